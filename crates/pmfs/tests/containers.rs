//! Goal: a pool reached in two ways is shared, or refused; there are never two first openers. Method: mount namespaces, as
//! containers have them: the same file by a bind mount, and the same bytes by overlayfs, through which locks don't meet. Takes
//! root; this program executed again is who lives inside.

use pmfs::{Error, Fs, MkfsOptions, NewNode, OpenOptions, ROOT_INO};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const POOL: &str = "PMFS_TEST_POOL";

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};

/// Opens the pool as it is seen here, makes a file, and stays until stdin ends.
#[test]
fn inside() {
    let Ok(pool) = std::env::var(POOL) else {
        return;
    };
    let said = match Fs::open(Path::new(&pool), &OpenOptions::default()) {
        Ok(fs) => {
            fs.create(ROOT_INO, b"inside", &NODE).unwrap();
            println!("\nanswer: in");
            let _ = std::io::stdin().read_line(&mut String::new());
            fs.close().unwrap();
            return;
        }
        Err(Error::Elsewhere) => "elsewhere".to_owned(),
        Err(error) => error.to_string(),
    };
    println!("\nanswer: {said}");
}

struct Container {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Container {
    /// A process in a mount namespace of its own, made ready by `script`, that opens `pool`.
    fn start(script: &str, pool: &Path) -> Container {
        let program = std::env::current_exe().unwrap();
        let script = format!("{script}\nexec \"$0\" --exact inside --nocapture");
        let mut child = Command::new("unshare")
            .args(["-m", "sh", "-ec", &script])
            .arg(program)
            .env(POOL, pool)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare, of util-linux");
        let said = BufReader::new(child.stdout.take().unwrap());
        Container { child, said }
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        while self.said.read_line(&mut line).unwrap() > 0 {
            if let Some(answer) = line.trim().strip_prefix("answer: ") {
                return answer.to_owned();
            }
            line.clear();
        }
        "nothing".to_owned()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn make() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::TempDir::with_prefix_in("pmfs-containers-", "/dev/shm").unwrap();
    for name in ["lower", "upper", "work", "merged", "bound"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let pool = dir.path().join("upper/pool");
    let options = MkfsOptions {
        size: Some(4 << 20),
        ..MkfsOptions::default()
    };
    Fs::mkfs(&pool, &options).unwrap();
    (dir, pool)
}

fn can_unshare() -> bool {
    let unshared = Command::new("unshare").args(["-m", "true"]).status();
    let able = unshared.is_ok_and(|status| status.success());
    if !able {
        println!("containers: not tried: a mount namespace takes root");
    }
    able
}

/// Another name of the same file: its locks are the same, and so is the pool.
#[test]
fn the_same_file() {
    if !can_unshare() {
        return;
    }
    let (dir, pool) = make();
    let fs = Fs::open(&pool, &OpenOptions::default()).unwrap();
    let at = dir.path().display();
    let script = format!("mount --bind {at}/upper {at}/bound");
    let mut container = Container::start(&script, &dir.path().join("bound/pool"));
    assert_eq!(container.answer(), "in");
    fs.lookup(ROOT_INO, b"inside").unwrap();
    assert_eq!(fs.details().attached, 2);
    drop(container);
    assert_eq!(fs.details().attached, 1);
    fs.close().unwrap();
}

/// The same bytes by another inode: refused, whoever is first.
#[test]
fn the_same_bytes() {
    if !can_unshare() {
        return;
    }
    let (dir, pool) = make();
    let at = dir.path().display();
    let script = format!(
        "mount -t overlay overlay -o lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work {at}/merged"
    );
    let merged = dir.path().join("merged/pool");
    let fs = Fs::open(&pool, &OpenOptions::default()).unwrap();
    assert_eq!(Container::start(&script, &merged).answer(), "elsewhere");
    fs.create(ROOT_INO, b"outside", &NODE).unwrap();
    fs.close().unwrap();
    let mut container = Container::start(&script, &merged);
    assert_eq!(container.answer(), "in");
    let refused = Fs::open(&pool, &OpenOptions::default()).err();
    assert!(matches!(refused, Some(Error::Elsewhere)), "{refused:?}");
    drop(container);
    // Closed cleanly, it is anybody's.
    let fs = Fs::open(&pool, &OpenOptions::default()).unwrap();
    fs.lookup(ROOT_INO, b"inside").unwrap();
    fs.lookup(ROOT_INO, b"outside").unwrap();
    assert_eq!(fs.check().unwrap().findings, []);
    fs.close().unwrap();
}
