//! Each need: how to see whether it is met, and what mends it.

use std::io;

use super::machine::Machine;
use super::{Need, State};
use pm_cli::Size;

const KERNEL_MIN: (u32, u32) = (6, 1);
const RUST_MIN: (u32, u32) = (1, 95);
/// Less than this in /dev/shm is too little for a pool to play with, bytes.
const SHM_FREE_MIN: u64 = 64 << 20;

/// All of them, what is needed most first.
pub fn all(machine: &Machine) -> Vec<Need> {
    vec![
        kernel(machine),
        cpu(machine),
        device(machine),
        helper(machine),
        allow_other(machine),
        protection_keys(machine),
        huge_tmpfs(machine),
        shm(machine),
        remove_ipc(machine),
        huge_pages(machine),
        dax(machine),
        rust(machine),
    ]
}

/// Returns whether a pool can be used, but not be mounted.
pub fn only_fuse_is_missing(needs: &[Need]) -> bool {
    let mut missing = needs.iter().filter(|need| need.state == State::Missing);
    missing.clone().next().is_some() && missing.all(|need| [DEVICE, HELPER].contains(&need.name))
}

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";

fn ok(name: &'static str, found: impl Into<String>) -> Need {
    Need {
        name,
        state: State::Ok,
        found: found.into(),
        mend: None,
    }
}

fn missing(name: &'static str, found: impl Into<String>, mend: Option<String>) -> Need {
    Need {
        name,
        state: State::Missing,
        found: found.into(),
        mend,
    }
}

fn optional(name: &'static str, found: impl Into<String>, mend: Option<String>) -> Need {
    Need {
        name,
        state: State::Optional,
        found: found.into(),
        mend,
    }
}

/// The first two numbers of a version.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel(machine: &Machine) -> Need {
    let (major, minor) = KERNEL_MIN;
    let name = "kernel";
    match version(&machine.kernel) {
        Some(version) if version >= KERNEL_MIN => ok(name, format!("Linux {}", machine.kernel)),
        _ => missing(
            name,
            format!(
                "Linux {}; {major}.{minor} or later is needed",
                machine.kernel
            ),
            Some(machine.as_root("apt-get install linux-image-amd64")),
        ),
    }
}

fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_whitespace().any(|word| word == flag))
}

fn cpu(machine: &Machine) -> Need {
    let cpuinfo = machine.read("/proc/cpuinfo");
    let name = "CPU";
    if !has_flag(&cpuinfo, "cx16") {
        return missing(name, "it has no cmpxchg16b, which pools need", None);
    }
    // CLFLUSH is on every x86-64 CPU.
    let flush = ["clwb", "clflushopt"]
        .into_iter()
        .find(|flag| has_flag(&cpuinfo, flag))
        .unwrap_or("clflush alone (slow on persistent memory)");
    ok(name, format!("cmpxchg16b; flushes with {flush}"))
}

fn device(machine: &Machine) -> Need {
    let name = DEVICE;
    match machine.open("/dev/fuse") {
        Ok(()) => ok(name, "open to this user"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => missing(
            name,
            "not there (in a container: start it with --device /dev/fuse)",
            Some(machine.as_root("modprobe fuse")),
        ),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => missing(
            name,
            "closed to this user",
            Some(machine.as_root("chmod 666 /dev/fuse")),
        ),
        Err(error) => missing(
            name,
            error.to_string(),
            Some(machine.as_root("modprobe fuse")),
        ),
    }
}

fn helper(machine: &Machine) -> Need {
    let name = HELPER;
    let (found, mend) = match machine.program("fusermount3") {
        Some((path, true)) => return ok(name, path.display().to_string()),
        Some((path, false)) => {
            let path = path.display();
            let mend = format!("chmod u+s {path}");
            (
                format!("{path} is not set-user-id root"),
                machine.as_root(&mend),
            )
        }
        None => (
            "not there".to_owned(),
            machine.as_root("apt-get install fuse3"),
        ),
    };
    match machine.is_root {
        true => optional(
            name,
            format!("{found}; users need it to mount, root doesn't"),
            Some(mend),
        ),
        false => missing(name, found, Some(mend)),
    }
}

fn allow_other(machine: &Machine) -> Need {
    let name = "user_allow_other";
    let is_set = machine
        .read("/etc/fuse.conf")
        .lines()
        .any(|line| line.trim() == "user_allow_other");
    match (is_set, machine.is_root) {
        (true, _) => ok(name, "set in /etc/fuse.conf"),
        (false, true) => ok(name, "not set; root needs no leave for -o allow_other"),
        (false, false) => optional(
            name,
            "not set in /etc/fuse.conf: what you mount, you alone can use",
            Some(machine.as_root("echo user_allow_other >>/etc/fuse.conf")),
        ),
    }
}

fn protection_keys(machine: &Machine) -> Need {
    let cpuinfo = machine.read("/proc/cpuinfo");
    let name = "protection keys";
    match has_flag(&cpuinfo, "pku") && has_flag(&cpuinfo, "ospke") {
        true => ok(name, "there: stray stores don't reach mapped pools"),
        false => optional(
            name,
            "the CPU has none, or the kernel doesn't use them: a program's stray store may reach a pool (--protect=pages keeps it away, slowly)",
            None,
        ),
    }
}

/// Tmpfs mounts with pages of 2 MiB: their directories.
fn huge_tmpfs(machine: &Machine) -> Need {
    let name = "tmpfs, 2 MiB";
    let mounts = machine.read("/proc/self/mountinfo");
    let huge = mounts.lines().filter(|line| {
        let kind = line.split_once(" - ").map_or("", |(_, kind)| kind);
        kind.starts_with("tmpfs ")
            && (kind.contains("huge=always") || kind.contains("huge=within_size"))
    });
    let dirs: Vec<&str> = huge.filter_map(|line| line.split(' ').nth(4)).collect();
    if machine
        .read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
        .contains("[deny]")
    {
        let mend = "echo never >/sys/kernel/mm/transparent_hugepage/shmem_enabled";
        return optional(
            name,
            "forbidden on this machine: pools on tmpfs get small pages, and are slower",
            Some(machine.as_root(mend)),
        );
    }
    match dirs[..] {
        [] => optional(
            name,
            "no tmpfs with huge=always: pools on tmpfs get small pages, and are slower",
            Some(machine.as_root(
                "mkdir -p /mnt/ram && mount -t tmpfs -o huge=always,size=2G tmpfs /mnt/ram",
            )),
        ),
        _ => ok(name, dirs.join(", ")),
    }
}

fn shm(machine: &Machine) -> Need {
    let name = "/dev/shm";
    match machine.space("/dev/shm") {
        Some((size, free)) if free >= SHM_FREE_MIN => ok(
            name,
            format!("{}, {} free; emptied at reboot", Size(size), Size(free)),
        ),
        Some((size, free)) => optional(
            name,
            format!("{}, {} free: little room for pools", Size(size), Size(free)),
            Some(machine.as_root("mount -o remount,size=2G /dev/shm")),
        ),
        None => optional(
            name,
            "not there",
            Some(
                machine.as_root("mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm"),
            ),
        ),
    }
}

/// logind.conf(5): the last assignment counts; files in drop-in directories come after
/// the main one.
fn removes_ipc(machine: &Machine) -> bool {
    let mut texts = vec![machine.read("/etc/systemd/logind.conf")];
    for dir in ["/usr/lib/systemd", "/run/systemd", "/etc/systemd"] {
        let dir = format!("{dir}/logind.conf.d");
        let files = machine.names(&dir);
        texts.extend(
            files
                .iter()
                .map(|name| machine.read(&format!("{dir}/{name}"))),
        );
    }
    let assigned = texts
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.trim().strip_prefix("RemoveIPC="))
        .next_back();
    !matches!(assigned.map(str::trim), Some("no" | "false" | "0" | "off"))
}

fn remove_ipc(machine: &Machine) -> Need {
    let name = "RemoveIPC";
    if !machine.at("/usr/lib/systemd/systemd-logind").exists() {
        return ok(name, "there is no logind; /dev/shm is left alone at logout");
    }
    if !removes_ipc(machine) {
        return ok(name, "off; /dev/shm is left alone at logout");
    }
    let dropin = "/etc/systemd/logind.conf.d";
    optional(
        name,
        "on: logind deletes a user's pools in /dev/shm at logout (not root's)",
        Some(machine.as_root(&format!(
            "mkdir -p {dropin} && printf \"[Login]\\nRemoveIPC=no\\n\" >{dropin}/pmfs.conf && systemctl restart systemd-logind"
        ))),
    )
}

fn huge_pages(machine: &Machine) -> Need {
    let name = "hugetlbfs";
    let meminfo = machine.read("/proc/meminfo");
    let number = |field: &str| {
        let line = meminfo.lines().find(|line| line.starts_with(field));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .unwrap_or(0)
    };
    match number("HugePages_Total:") {
        0 => optional(
            name,
            "no pages set aside; pools on tmpfs don't need them",
            Some(machine.as_root("sysctl vm.nr_hugepages=512")),
        ),
        total => ok(
            name,
            format!("{total} pages, {} free", number("HugePages_Free:")),
        ),
    }
}

fn dax(machine: &Machine) -> Need {
    let name = "DAX devices";
    let devices: Vec<String> = machine
        .names("/dev")
        .into_iter()
        .filter(|name| {
            let number = name.strip_prefix("pmem").or(name.strip_prefix("dax"));
            number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
        .map(|name| format!("/dev/{name}"))
        .collect();
    if devices.is_empty() {
        return optional(
            name,
            "none: no pool here survives power loss, but for a plain file with -o durable",
            None,
        );
    }
    match machine.program("ndctl") {
        Some(_) => ok(name, devices.join(", ")),
        None => optional(
            name,
            format!(
                "{}; ndctl, which sets them up, is not there",
                devices.join(", ")
            ),
            Some(machine.as_root("apt-get install ndctl")),
        ),
    }
}

fn rust(machine: &Machine) -> Need {
    let name = "rustc";
    let (major, minor) = RUST_MIN;
    let Some(said) = &machine.rustc else {
        return optional(
            name,
            format!("not there; to build PMFS it takes {major}.{minor} or later"),
            Some("curl --proto =https --tlsv1.2 -sSf https://sh.rustup.rs | sh".to_owned()),
        );
    };
    let number = said.split_whitespace().nth(1).unwrap_or_default();
    match version(number) {
        Some(version) if version >= RUST_MIN => ok(name, number),
        _ => optional(
            name,
            format!("{number}; to build PMFS it takes {major}.{minor} or later"),
            Some("rustup update stable".to_owned()),
        ),
    }
}

#[cfg(test)]
mod tests {
    //! Goal: each need is seen when it is met and when it isn't. Method: a machine in a
    //! directory, where one thing after the other is taken away.

    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    fn put(dir: &TempDir, path: &str, text: &str) {
        let path = dir.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn mode(dir: &TempDir, path: &str, mode: u32) {
        let path = dir.path().join(path.trim_start_matches('/'));
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A machine with all that a user needs or can use.
    fn furnished() -> (TempDir, Machine) {
        let dir = TempDir::new().unwrap();
        put(
            &dir,
            "/proc/cpuinfo",
            "model\t: x\nflags\t\t: cx16 avx clwb pku ospke\n",
        );
        put(&dir, "/dev/fuse", "");
        put(&dir, "/dev/pmem0", "");
        put(&dir, "/dev/shm/x", "");
        put(&dir, "/usr/bin/fusermount3", "");
        mode(&dir, "/usr/bin/fusermount3", 0o4755);
        put(&dir, "/usr/bin/ndctl", "");
        mode(&dir, "/usr/bin/ndctl", 0o755);
        put(&dir, "/etc/fuse.conf", "# x\nuser_allow_other\n");
        put(
            &dir,
            "/proc/self/mountinfo",
            "1 2 0:5 / /mnt/ram rw - tmpfs tmpfs rw,huge=always\n2 2 0:6 / /x rw - tmpfs tmpfs rw\n",
        );
        put(&dir, "/usr/lib/systemd/systemd-logind", "");
        put(
            &dir,
            "/etc/systemd/logind.conf",
            "#RemoveIPC=yes\nRemoveIPC=no\n",
        );
        put(
            &dir,
            "/proc/meminfo",
            "HugePages_Total:     8\nHugePages_Free:      3\n",
        );
        let machine = Machine {
            base: dir.path().to_owned(),
            is_root: false,
            kernel: "6.1.0-30-amd64".to_owned(),
            rustc: Some("rustc 1.95.0 (abc 2026-01-01)\n".to_owned()),
            path: vec!["/opt/bin".into(), "/usr/bin".into()],
        };
        (dir, machine)
    }

    fn only(machine: &Machine, name: &str) -> Need {
        let mut needs = all(machine);
        let at = needs.iter().position(|need| need.name == name).unwrap();
        let others = needs.iter().filter(|need| need.name != name);
        for other in others {
            // The space is the real file system's.
            assert!(
                other.state == State::Ok || other.name == "/dev/shm",
                "{other:?}"
            );
        }
        needs.remove(at)
    }

    fn expect(machine: &Machine, name: &str, state: State, mend: &str) {
        let need = only(machine, name);
        assert_eq!(need.state, state, "{need:?}");
        assert!(
            need.mend.as_deref().unwrap_or("").contains(mend),
            "{need:?}"
        );
        assert_eq!(need.mend.is_none(), mend.is_empty(), "{need:?}");
    }

    #[test]
    fn a_furnished_machine_is_ready() {
        let (_dir, machine) = furnished();
        for need in all(&machine) {
            assert!(
                need.state == State::Ok || need.name == "/dev/shm",
                "{need:?}"
            );
        }
    }

    #[test]
    fn old_kernels_cpus_and_compilers_are_seen() {
        let (dir, mut machine) = furnished();
        machine.kernel = "5.15.0".to_owned();
        expect(&machine, "kernel", State::Missing, "linux-image");
        machine.kernel = "10.0".to_owned();
        machine.rustc = Some("rustc 1.9.0".to_owned());
        expect(&machine, "rustc", State::Optional, "rustup update");
        machine.rustc = None;
        expect(&machine, "rustc", State::Optional, "sh.rustup.rs");
        machine.rustc = Some("rustc 2.0.0-nightly".to_owned());
        put(&dir, "/proc/cpuinfo", "flags : avx cx1 pku ospke\n");
        expect(&machine, "CPU", State::Missing, "");
        put(&dir, "/proc/cpuinfo", "flags : avx cx16 clflushopt ospke\n");
        expect(&machine, "protection keys", State::Optional, "");
        assert!(only(&machine, "protection keys").found.contains("none"));
        assert!(all(&machine)[1].found.contains("clflushopt"));
    }

    #[test]
    fn without_fuse_programs_are_served_all_the_same() {
        let (dir, mut machine) = furnished();
        assert!(!only_fuse_is_missing(&all(&machine)));
        fs::remove_file(dir.path().join("dev/fuse")).unwrap();
        assert!(only_fuse_is_missing(&all(&machine)));
        machine.kernel = "5.10.0-1-amd64".to_owned();
        assert!(!only_fuse_is_missing(&all(&machine)));
    }

    #[test]
    fn fuse_is_looked_at_in_all_its_parts() {
        let (dir, mut machine) = furnished();
        fs::remove_file(dir.path().join("dev/fuse")).unwrap();
        expect(&machine, "/dev/fuse", State::Missing, "sudo modprobe fuse");
        put(&dir, "/dev/fuse", "");
        mode(&dir, "/usr/bin/fusermount3", 0o755);
        expect(
            &machine,
            "fusermount3",
            State::Missing,
            "chmod u+s /usr/bin/fusermount3",
        );
        fs::remove_file(dir.path().join("usr/bin/fusermount3")).unwrap();
        expect(
            &machine,
            "fusermount3",
            State::Missing,
            "apt-get install fuse3",
        );
        machine.is_root = true;
        expect(
            &machine,
            "fusermount3",
            State::Optional,
            "apt-get install fuse3",
        );
        machine.is_root = false;
        put(&dir, "/usr/bin/fusermount3", "");
        mode(&dir, "/usr/bin/fusermount3", 0o4755);
        put(&dir, "/etc/fuse.conf", "#user_allow_other\n");
        let mend = "sudo sh -c 'echo user_allow_other >>/etc/fuse.conf'";
        expect(&machine, "user_allow_other", State::Optional, mend);
    }

    #[test]
    fn media_are_looked_at() {
        let (dir, machine) = furnished();
        put(
            &dir,
            "/proc/self/mountinfo",
            "1 2 0:5 / /ram rw - tmpfs tmpfs rw,huge=never\n",
        );
        expect(&machine, "tmpfs, 2 MiB", State::Optional, "huge=always");
        put(
            &dir,
            "/proc/self/mountinfo",
            "1 2 0:5 / /ram rw - tmpfs t rw,huge=within_size\n",
        );
        put(&dir, "/proc/meminfo", "HugePages_Total:       0\n");
        expect(&machine, "hugetlbfs", State::Optional, "nr_hugepages");
        put(&dir, "/proc/meminfo", "HugePages_Total:     2\n");
        fs::remove_file(dir.path().join("usr/bin/ndctl")).unwrap();
        expect(
            &machine,
            "DAX devices",
            State::Optional,
            "apt-get install ndctl",
        );
        fs::remove_file(dir.path().join("dev/pmem0")).unwrap();
        put(&dir, "/dev/daxctl", "");
        expect(&machine, "DAX devices", State::Optional, "");
    }

    #[test]
    fn logind_is_asked_as_it_reads_its_files() {
        let (dir, machine) = furnished();
        put(
            &dir,
            "/etc/systemd/logind.conf.d/a.conf",
            "[Login]\nRemoveIPC=yes\n",
        );
        expect(&machine, "RemoveIPC", State::Optional, "RemoveIPC=no");
        put(&dir, "/etc/systemd/logind.conf.d/b.conf", "RemoveIPC=no\n");
        assert_eq!(only(&machine, "RemoveIPC").state, State::Ok);
        fs::remove_dir_all(dir.path().join("etc/systemd")).unwrap();
        expect(&machine, "RemoveIPC", State::Optional, "systemd-logind");
        fs::remove_file(dir.path().join("usr/lib/systemd/systemd-logind")).unwrap();
        assert_eq!(only(&machine, "RemoveIPC").state, State::Ok);
    }
}
