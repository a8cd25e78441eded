//! Someone else's pool, by every face: the commands, a mount, `pmfs run` with and without
//! one, the library for C. Each pool was edited on purpose, with right checksums; each
//! call ends in an answer or an error, and nothing outside is read, made or removed.
//!
//! `PMFS_CRAFTED_FACES` pools are tried, from number `PMFS_CRAFTED_SEED` on: those of
//! `yat`'s test of the same name, which tries many more by the library alone.

#[path = "../bench/mod.rs"]
mod bench;
#[allow(dead_code, reason = "the checker uses the rest")]
#[path = "../../../yat/src/files/crafted.rs"]
mod crafted;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bench::Bench;
use bench::installed::install;
use crafted::{Edits, Places};
use pmfs::{Fs, NewNode, OpenOptions, ROOT_INO};
use pmfs_admin::MkfsOptions;
use rustix::process::{Pid, Signal, kill_process};

/// A command that takes longer hangs: it takes a second at most.
const PATIENCE: Duration = Duration::from_secs(120);

/// The commands that programs run in the pool's directory. Their output goes beside it.
const PROGRAM: &str = "find . -print0 >../listed 2>/dev/null; ls -lR . >/dev/null 2>&1; \
    tar cf ../packed . 2>/dev/null; mkdir made 2>/dev/null; echo x 2>/dev/null >made/file; \
    rm -rf ./dir ./linked ./made 2>/dev/null; true";

/// A small sound pool's bytes.
fn sound(bench: &Bench) -> Vec<u8> {
    let path = bench.path("sound");
    let options = MkfsOptions {
        size: Some(2 << 20),
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(&path, &options).unwrap();
    let fs = Fs::open(&path, &OpenOptions::default()).unwrap();
    let node = NewNode {
        mode: 0o755,
        uid: 0,
        gid: 0,
        umask: 0,
    };
    let dir = fs.mkdir(ROOT_INO, b"dir", &node).unwrap().ino;
    let below = fs.mkdir(dir, b"below", &node).unwrap().ino;
    for number in 0..80 {
        let name = format!("file-{number}");
        let file = fs.create(dir, name.as_bytes(), &node).unwrap().ino;
        fs.write(file, 0, name.as_bytes()).unwrap();
    }
    let long = fs.create(below, &[b'n'; 200], &node).unwrap().ino;
    fs.write(long, 0, &[1; 40_000]).unwrap();
    fs.write(long, 1 << 30, b"far").unwrap();
    fs.link(long, ROOT_INO, b"linked").unwrap();
    fs.symlink(below, b"short", b"target", &node).unwrap();
    fs.symlink(below, b"long", &[b't'; 300], &node).unwrap();
    fs.close().unwrap();
    fs::read(&path).unwrap()
}

/// One face that a pool is looked at and used through.
#[derive(Clone, Copy, Debug)]
enum Face {
    Commands,
    Mount,
    Run,
    Mountless,
    C,
}

struct Faces {
    bench: Bench,
    /// The command, beside the library that it preloads.
    pmfs: PathBuf,
    walker: PathBuf,
}

impl Faces {
    /// `None` where this machine can't mount.
    fn new() -> Option<Faces> {
        if !bench::can_mount() {
            return None;
        }
        let bench = Bench::empty();
        fs::create_dir(bench.path("esc")).unwrap();
        let walker = compiled(&bench);
        let pmfs = install(&bench.path("installed"));
        Some(Faces {
            bench,
            pmfs,
            walker,
        })
    }

    /// Has to end by itself, and not by a panic or a signal.
    fn ends(&self, what: &str, mut command: Command) -> ExitStatus {
        let null = || Stdio::from(fs::File::create("/dev/null").unwrap());
        let mut child = command.stdout(null()).stderr(null()).spawn().unwrap();
        let since = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if since.elapsed() > PATIENCE {
                child.kill().unwrap();
                self.end_daemon();
                child.wait().unwrap();
                panic!("{what} does not end");
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        let code = status.code();
        assert!(code.is_some_and(|code| code < 101), "{what}: {status}");
        status
    }

    fn pmfs(&self, arguments: &[&str]) -> ExitStatus {
        self.ends(&format!("{arguments:?}"), self.bench.command(arguments))
    }

    /// The daemon of the mount, if there is one.
    fn end_daemon(&self) {
        let pool = self.bench.path("pool");
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let name = pool.as_os_str().as_encoded_bytes();
            let is_ours = line.windows(name.len()).any(|part| part == name);
            let pid = process.file_name().to_string_lossy().parse::<i32>();
            if is_ours && let Ok(pid) = pid {
                let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            }
        }
    }

    fn commands(&self) {
        let parts = ["superblock", "inode", "dir", "tree", "lane", "slots"];
        for part in parts {
            let number = if matches!(part, "inode" | "dir" | "tree") {
                "2"
            } else {
                "0"
            };
            let which = [number]
                .into_iter()
                .filter(|_| !matches!(part, "superblock" | "slots"));
            let arguments: Vec<&str> = ["dump", "pool", part].into_iter().chain(which).collect();
            self.pmfs(&arguments);
        }
        self.pmfs(&["info", "pool"]);
        self.pmfs(&["ls", "-lR", "pool"]);
        self.pmfs(&["get", "-r", "pool", "/", "got"]);
        let _ = fs::remove_dir_all(self.bench.path("got"));
        self.pmfs(&["save", "pool", "saved"]);
        let _ = fs::remove_file(self.bench.path("saved"));
        self.pmfs(&["fsck", "pool"]);
        let repaired = self.pmfs(&["fsck", "--repair", "pool"]).code();
        if matches!(repaired, Some(0 | 1)) {
            assert_eq!(self.pmfs(&["fsck", "pool"]).code(), Some(0), "repaired");
        }
    }

    fn sh(&self) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", PROGRAM])
            .current_dir(self.bench.path("mnt"));
        command
    }

    fn used(&self, face: Face) {
        let walk = |arguments: &[&str]| {
            let program = format!("cd mnt && {PROGRAM}");
            let mut command = Command::new(&self.pmfs);
            command
                .args(["run", "--pool", "pool", "--at", "mnt"])
                .stdin(Stdio::null());
            command.args(arguments).args(["--", "sh", "-c", &program]);
            command.current_dir(self.bench.path("."));
            self.ends(&format!("run {arguments:?}"), command);
        };
        match face {
            Face::Commands => self.commands(),
            Face::Run => walk(&[]),
            Face::Mountless => walk(&["--no-mount"]),
            Face::Mount => {
                if self.pmfs(&["mount", "pool", "mnt"]).success() {
                    self.ends("programs on the mount", self.sh());
                    self.pmfs(&["umount", "mnt"]);
                }
            }
            Face::C => {
                let mut command = Command::new(&self.walker);
                command.arg(self.bench.path("pool"));
                command.env("LD_LIBRARY_PATH", self.bench.path("."));
                let status = self.ends("the walk in C", command);
                assert!(status.success(), "the walk in C: {status}");
            }
        }
    }

    /// Checks that programs list a sound pool, by the faces that have programs: none of them is
    /// blind.
    fn list_all(&self, image: &[u8]) {
        for face in [Face::Mount, Face::Run, Face::Mountless] {
            fs::write(self.bench.path("pool"), image).unwrap();
            self.used(face);
            let listed = fs::read(self.bench.path("listed")).unwrap_or_default();
            let name = b"./dir/file-79\0";
            let found = listed.windows(name.len()).any(|part| part == name);
            assert!(found, "{face:?} lists it");
            fs::remove_file(self.bench.path("listed")).unwrap();
        }
    }

    /// By each face; nothing outside of the pool is touched.
    fn all(&self, image: &[u8], said: &str) {
        let canary = self.bench.path("esc/owned");
        for face in [
            Face::Commands,
            Face::Mount,
            Face::Run,
            Face::Mountless,
            Face::C,
        ] {
            fs::write(self.bench.path("pool"), image).unwrap();
            fs::write(&canary, "mine").unwrap();
            eprintln!("{face:?}: {said}");
            self.used(face);
            let listed = fs::read(self.bench.path("listed")).unwrap_or_default();
            let mut names = listed.split(|&byte| byte == 0);
            let out = names.find(|name| name.windows(4).any(|part| part == b"/../"));
            assert_eq!(out, None, "{face:?} lists it");
            assert_eq!(fs::read(&canary).unwrap_or_default(), b"mine", "{face:?}");
            let _ = fs::remove_file(self.bench.path("listed"));
            assert!(self.bench.mounts().is_empty(), "{face:?}: still mounted");
        }
    }
}

/// `walk.c`, with the library beside it.
fn compiled(bench: &Bench) -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let deps = std::env::current_exe().unwrap();
    let library = bench.path("libpmfs.so.0");
    fs::copy(deps.with_file_name("libpmfs_c.so"), &library).expect("it is built first");
    let program = bench.path("walk");
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]);
    compile.arg("-I").arg(here.join("../pmfs-capi/include"));
    compile.arg(here.join("tests/crafted/walk.c")).arg(&library);
    let done = compile.arg("-o").arg(&program).status();
    assert!(done.expect("cc, of the package gcc").success());
    program
}

/// Goal: a name in someone else's pool leads nowhere outside of it.
#[test]
fn names_that_lead_out() {
    let Some(faces) = Faces::new() else { return };
    let image = sound(&faces.bench);
    let places = Places::of(&image);
    faces.list_all(&image);
    for name in ["../../esc/owned", "../esc/owned", ".."] {
        let image = crafted::renamed(&image, &places, name.as_bytes());
        faces.all(&image, name);
    }
}

/// Goal: whatever somebody wrote into a pool, each face has an answer.
#[test]
fn every_face_answers() {
    let Some(faces) = Faces::new() else { return };
    let of = |name: &str, or: u64| std::env::var(name).map_or(or, |text| text.parse().unwrap());
    let days = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400;
    let first = of("PMFS_CRAFTED_SEED", days * 100_000);
    println!("PMFS_CRAFTED_SEED={first}");
    let image = sound(&faces.bench);
    let places = Places::of(&image);
    let count = of("PMFS_CRAFTED_FACES", 4);
    for number in first..first + count {
        let (image, said) = crafted::craft(&image, &places, Edits::All, number);
        faces.all(&image, &format!("PMFS_CRAFTED_SEED={number}: {said}"));
    }
    println!("{count} pools crafted, by every face");
}
