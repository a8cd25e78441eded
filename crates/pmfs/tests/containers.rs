//! Goal: a pool reached in two ways is shared, or refused; there are never two first openers.
//! Method: namespaces of mounts and PIDs, as containers have them: the same file by a bind mount,
//! and the same bytes by overlayfs, through which locks don't meet. Takes root; this program
//! executed again is who lives inside.

use pmfs::{Error, Fs, NewNode, OpenOptions, ROOT_INO};
use pmfs_admin::{Admin, MkfsOptions};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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
    /// A process in namespaces of its own (mounts, PIDs), made ready by `script`, that opens
    /// `pool`.
    fn start(script: &str, pool: &Path) -> Container {
        let program = std::env::current_exe().unwrap();
        let script = format!("{script}\nexec \"$0\" --exact inside --nocapture");
        let mut child = Command::new("unshare")
            .args(["-m", "-p", "--fork", "sh", "-ec", &script])
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
    pmfs_admin::mkfs(&pool, &options).unwrap();
    (dir, pool)
}

fn can_unshare() -> bool {
    let unshared = Command::new("unshare")
        .args(["-m", "-p", "--fork", "true"])
        .status();
    let able = unshared.is_ok_and(|status| status.success());
    if !able {
        println!("containers: not tried: namespaces take root");
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

/// Opens and closes the pool as it is seen here again and again, for some seconds; tells how often
/// it was in, and stops if somebody else was in at the same time.
#[test]
fn in_and_out() {
    let Ok(pool) = std::env::var(RACED) else {
        return;
    };
    let inside = std::env::var(INSIDE).unwrap();
    println!("\nanswer: {}", open_and_close(Path::new(&pool), &inside));
}

const RACED: &str = "PMFS_TEST_RACED";
const INSIDE: &str = "PMFS_TEST_INSIDE";

fn open_and_close(pool: &Path, inside: &str) -> String {
    let until = Instant::now() + Duration::from_secs(3);
    let (mut opened, mut refused) = (0, 0);
    while Instant::now() < until {
        match Fs::open(pool, &OpenOptions::default()) {
            Ok(fs) => {
                if let Err(error) = File::create_new(inside) {
                    return format!("both are in, after {opened} times: {error}");
                }
                opened += 1;
                std::thread::sleep(Duration::from_micros(100));
                std::fs::remove_file(inside).unwrap();
                fs.close().unwrap();
            }
            Err(Error::Elsewhere) => refused += 1,
            Err(error) => return error.to_string(),
        }
    }
    println!("{opened} times in, {refused} times refused");
    if opened > 0 && refused > 0 {
        "never both".to_owned()
    } else {
        format!("{opened} times in, {refused} times refused: they did not meet")
    }
}

/// Two who come at the same time, by names through which their locks don't meet: never both.
#[test]
fn the_same_bytes_at_the_same_time() {
    if !can_unshare() {
        return;
    }
    let (dir, pool) = make();
    let at = dir.path().display();
    let script = format!(
        "mount -t overlay overlay -o lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work {at}/merged
        export {RACED}={at}/merged/pool {INSIDE}={at}/inside
        \"$0\" --exact in_and_out --nocapture; exit 0"
    );
    let mut container = Container::start(&script, &pool);
    let inside = format!("{at}/inside");
    let ends = AtomicBool::new(false);
    let outside = thread::scope(|scope| {
        // Children, each of which has for a moment what this process has open.
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                Command::new("true").status().unwrap();
            }
        });
        let outside = open_and_close(&pool, &inside);
        ends.store(true, Ordering::Relaxed);
        outside
    });
    let both = [container.answer(), outside];
    assert_eq!(both, ["never both", "never both"]);
    let fs = Fs::open(&pool, &OpenOptions::default()).unwrap();
    assert_eq!(fs.check().unwrap().findings, []);
    fs.close().unwrap();
}
