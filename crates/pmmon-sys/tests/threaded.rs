//! Goal: threaded cgroups are made, and where they can't be, the answer says why and changes
//! nothing. Method: folders with the files of the kernel's; `pmmon pin` is tested on real ones.

use std::fs;
use std::path::{Path, PathBuf};

use pmmon::group::{Affinity, Cores};
use pmmon_sys::{Threaded, Undo, disable, threads_in};
use tempfile::TempDir;

const NAME: &str = "pmmon-pin-1";
/// No mask of a thread is this one.
const GENERAL: [u32; 3] = [0, 1, 900];

fn cgroup(dir: &Path, controllers: &str, given: &str) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("cgroup.controllers"), controllers).unwrap();
    fs::write(dir.join("cgroup.subtree_control"), given).unwrap();
}

fn threaded(root: &Path) -> Threaded {
    let (pm, general) = (Cores::from([1]), Cores::from(GENERAL));
    Threaded::at(root.to_owned(), NAME, &[&pm, &general])
}

fn folders(home: &Path) -> Vec<PathBuf> {
    (0..2)
        .map(|number| home.join(format!("{NAME}-{number}")))
        .collect()
}

#[test]
fn what_is_changed_is_told_before() {
    let root = TempDir::new().unwrap();
    let home = root.path().join("home");
    cgroup(&home, "cpuset cpu memory\n", "cpu\n");
    let undo = threaded(root.path()).undo(&home).unwrap();
    let expected = Undo {
        folders: folders(&home),
        enabled: Some(home.clone()),
    };
    assert_eq!(undo, expected);
    cgroup(&home, "cpuset cpu memory\n", "cpuset cpu pids\n");
    let undo = threaded(root.path()).undo(&home).unwrap();
    assert_eq!(undo.enabled, None, "somebody else has enabled it");
    assert_eq!(fs::read_dir(&home).unwrap().count(), 2, "nothing was made");
}

#[test]
fn refusals_name_the_cause() {
    let root = TempDir::new().unwrap();
    let home = root.path().join("home");
    for (controllers, given, cause) in [
        ("cpu memory\n", "", "write +cpuset to"),
        (
            "cpuset memory\n",
            "memory\n",
            "gives memory to its children",
        ),
    ] {
        cgroup(&home, controllers, given);
        let refused = threaded(root.path()).undo(&home).unwrap_err();
        assert!(refused.to_string().contains(cause), "{refused}");
    }
    let gone = threaded(root.path()).undo(&root.path().join("gone"));
    assert_eq!(gone.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    // The root may give what it likes.
    cgroup(root.path(), "cpuset memory\n", "memory\n");
    threaded(root.path()).undo(root.path()).unwrap();
}

#[test]
fn threads_move_and_come_back() {
    let root = TempDir::new().unwrap();
    let tid = std::process::id();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let Some(own) = own.lines().find_map(|line| line.strip_prefix("0::/")) else {
        eprintln!("skipped: there are no cgroups of version 2");
        return;
    };
    let home = root.path().join(own);
    cgroup(&home, "cpuset\n", "");
    let [pm, general] = [folders(&home)[0].clone(), folders(&home)[1].clone()];
    for (dir, effective) in [(&home, ""), (&pm, "1\n"), (&general, "0-1,900\n")] {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("cgroup.threads"), "").unwrap();
        fs::write(dir.join("cpuset.cpus.effective"), effective).unwrap();
    }
    let mut threaded = threaded(root.path());
    assert_eq!(threaded.home(tid).unwrap(), home);
    threaded.set(tid, &Cores::from([1])).unwrap();
    let read = |dir: &Path, name: &str| fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(read(&pm, "cgroup.type"), "threaded");
    assert_eq!(read(&pm, "cpuset.cpus"), "1");
    assert_eq!(read(&general, "cpuset.cpus"), "0-1,900");
    assert_eq!(read(&home, "cgroup.subtree_control"), "+cpuset");
    assert_eq!(threads_in(&pm), [tid]);
    threaded.set(tid, &Cores::from(GENERAL)).unwrap();
    assert_eq!(threads_in(&general), [tid]);
    let mask = threaded.get(tid).unwrap();
    threaded.set(tid, &mask).unwrap();
    assert_eq!(
        threads_in(&home),
        [tid],
        "its own mask is in its own cgroup"
    );
    // Folders of another one that runs keep the cpusets.
    disable(&home).unwrap();
    assert_eq!(read(&home, "cgroup.subtree_control"), "+cpuset");
    fs::remove_dir_all(&pm).unwrap();
    fs::remove_dir_all(&general).unwrap();
    disable(&home).unwrap();
    assert_eq!(read(&home, "cgroup.subtree_control"), "-cpuset");
}

/// Goal: a home that has none of the cores is told, and no thread comes to all of its cores.
#[test]
fn cores_of_others_are_refused() {
    let root = TempDir::new().unwrap();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let Some(own) = own.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return;
    };
    let home = root.path().join(own);
    cgroup(&home, "cpuset\n", "cpuset\n");
    for dir in folders(&home) {
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cgroup.threads"), "").unwrap();
        fs::write(dir.join("cpuset.cpus.effective"), "2-3\n").unwrap();
    }
    let refused = threaded(root.path()).set(std::process::id(), &Cores::from([1]));
    let refused = refused.unwrap_err();
    assert!(
        refused.to_string().contains("none of the cores 1"),
        "{refused}"
    );
    assert!(threads_in(&folders(&home)[0]).is_empty());
}
