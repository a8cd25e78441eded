//! Goal: 1,200 processes want one pool: as many as there are slots get in and work, the others are
//! told at once; killed all together they leave nothing. Method: this program executed so many
//! times.

use pmfs::{Error, Fs, NewNode, OpenOptions, ROOT_INO, RecoveryKind};
use pmfs_admin::{Admin, MkfsOptions};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const POOL: &str = "PMFS_TEST_POOL";
const PROCESSES: usize = 1200;

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};

fn make(dir: &Path) -> PathBuf {
    let path = dir.join("pool");
    let options = MkfsOptions {
        size: Some(1 << 30),
        sparse: true,
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(&path, &options).unwrap();
    path
}

/// One of the crowd: comes in, makes a file, and stays until it is killed or its stdin ends.
#[test]
fn member() {
    let Ok(pool) = std::env::var(POOL) else {
        return;
    };
    let said = match Fs::open(Path::new(&pool), &OpenOptions::default()) {
        Ok(fs) => {
            let name = format!("file-{}", std::process::id());
            fs.create(ROOT_INO, name.as_bytes(), &NODE).unwrap();
            println!("\nin");
            let _ = std::io::stdin().read(&mut [0]);
            fs.close().unwrap();
            return;
        }
        Err(Error::TooManyProcesses { slots }) => format!("full at {slots}"),
        Err(error) => error.to_string(),
    };
    println!("\n{said}");
}

/// Killed when it goes.
struct Member(Child);

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(pool: &Path) -> Member {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "member", "--nocapture", "--test-threads=1"])
        .env(POOL, pool)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    Member(child.unwrap())
}

/// The first line that is an answer.
fn answer(member: &mut Member) -> String {
    let out = BufReader::new(member.0.stdout.take().unwrap());
    let mut lines = out.lines().map(|line| line.unwrap_or_default());
    let said = |line: &String| line == "in" || line.starts_with("full") || line.contains("pool");
    lines.find(said).unwrap_or_else(|| "nothing".to_owned())
}

#[test]
fn twelve_hundred() {
    let dir = tempfile::TempDir::with_prefix_in("pmfs-crowd-", "/dev/shm").unwrap();
    let pool = make(dir.path());
    let since = Instant::now();
    let mut crowd: Vec<Member> = (0..PROCESSES).map(|_| start(&pool)).collect();
    let answers: Vec<String> = crowd.iter_mut().map(answer).collect();
    let inside = answers.iter().filter(|said| *said == "in").count();
    let refused = answers
        .iter()
        .filter(|said| *said == "full at 1023")
        .count();
    println!(
        "{inside} in, {refused} refused, {:.1} s",
        since.elapsed().as_secs_f64()
    );
    let other = answers
        .iter()
        .find(|said| *said != "in" && *said != "full at 1023");
    assert_eq!(other, None);
    assert_eq!((inside, refused), (1023, PROCESSES - 1023));
    // One leaves, and one more gets in.
    let at = answers.iter().position(|said| said == "in").unwrap();
    drop(crowd[at].0.stdin.take());
    crowd[at].0.wait().unwrap();
    let mut late = start(&pool);
    assert_eq!(answer(&mut late), "in");
    crowd.push(late);
    for member in &mut crowd {
        let _ = member.0.kill();
    }
    drop(crowd);
    let since = Instant::now();
    let fs = Fs::open(&pool, &OpenOptions::default()).unwrap();
    println!(
        "recovered in {:.2} s: {}",
        since.elapsed().as_secs_f64(),
        fs.recovery()
    );
    assert_eq!(fs.recovery().kind, RecoveryKind::Slots);
    assert_eq!(fs.details().attached, 1);
    let mut files = 0;
    fs.readdir(ROOT_INO, 0, &mut |entry| {
        files += usize::from(entry.name.starts_with(b"file-"));
        true
    })
    .unwrap();
    assert_eq!(files, 1024);
    assert_eq!(fs.check().unwrap().findings, []);
    fs.close().unwrap();
}
