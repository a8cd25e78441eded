//! Builds a program and runs it, on a plain directory and under `pmfs run`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{XattrFlags, setxattr};
use rustix::process::{Pid, Signal, kill_process_group};

use tempfile::TempDir;

use crate::bench::Bench;
use crate::bench::installed::{copy_program, install};
use crate::stuck::threads_of;

/// A program that takes longer hangs. It is ended, with all that it has started.
const PATIENCE: Duration = Duration::from_secs(60);
/// The variable by which the long campaigns give the seconds.
const LONGER: &str = "PMFS_RUN_SECONDS";

const NOBODY: u32 = 65534;

/// The output of a program, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub text: String,
    pub code: Option<i32>,
}

/// A pool, a plain directory, and programs.
pub struct Run {
    bench: Bench,
    pmfs: PathBuf,
    environment: Vec<(&'static str, OsString)>,
    /// The file or directory of which programs in the pool can't execute anything.
    noexec: Option<PathBuf>,
    /// The user that runs programs.
    user: u32,
}

impl Run {
    /// `None` where this machine can't mount.
    pub fn new() -> Option<Run> {
        crate::bench::can_mount().then(Run::unmounted)
    }

    /// For programs that need no mount.
    pub fn unmounted() -> Run {
        let bench = Bench::pool();
        fs::create_dir(bench.path("plain")).expect("a directory");
        let pmfs = install(&bench.path("bin"));
        Run {
            bench,
            pmfs,
            environment: Vec::new(),
            noexec: None,
            user: 0,
        }
    }

    /// Sets a variable for what runs in the pool from now on.
    pub fn set(&mut self, variable: &'static str, value: &OsStr) {
        self.environment.push((variable, value.to_owned()));
    }

    /// Makes a place that is nobody's as a whole, in which programs run as nobody. `None` where
    /// nobody can't mount.
    pub fn as_nobody() -> Option<Run> {
        if !rustix::process::geteuid().is_root() || !crate::bench::fuse_is_open() {
            eprintln!("skipped: needs root, fusermount3, and a /dev/fuse that is open to all");
            return None;
        }
        let bench = Bench::empty();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(bench.path(""), open).expect("root may");
        fs::create_dir(bench.path("plain")).expect("a directory");
        for path in ["", "mnt", "plain"].map(|name| bench.path(name)) {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        let pmfs = install(&bench.path("bin"));
        // The root directory in it is nobody's, too.
        let made = Command::new(&pmfs)
            .args(["mkfs", "--size", "64M", "pool"])
            .current_dir(bench.path("."))
            .uid(NOBODY)
            .gid(NOBODY)
            .output();
        assert!(made.expect("the command starts").status.success());
        Some(Run {
            bench,
            pmfs,
            environment: Vec::new(),
            noexec: None,
            user: NOBODY,
        })
    }

    /// From now on what runs in the pool can't execute anything of this file or
    /// directory. Needs root.
    pub fn forbid_execution(&mut self, path: &Path) {
        self.noexec = Some(path.to_owned());
    }

    /// Compiles a source of this directory.
    pub fn build(&self, source: &str, more: &[&str]) -> PathBuf {
        let cpp = source.ends_with(".cc");
        self.compile(if cpp { "c++" } else { "cc" }, source, more)
    }

    fn compile(&self, compiler: &str, source: &str, more: &[&str]) -> PathBuf {
        let program = self.bench.path(&format!("{source}.{}", more.concat()));
        compile(compiler, source, more, &program)
    }

    /// The stranger in Go, which has C in it.
    fn compile_go(&self) -> PathBuf {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run");
        let program = self.bench.path("stranger.go.out");
        let compiled = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(here.join("stranger.go"))
            // The parts of Go's own library that it compiles are kept for the next time.
            .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"))
            .env("CGO_ENABLED", "1")
            .env("GOFLAGS", "-buildvcs=false")
            .env("GO111MODULE", "off")
            .output()
            .expect("go was there");
        let said = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{said}");
        program
    }

    /// Runs a program on the plain directory.
    pub fn plain(&self, program: &Path, arguments: &[&str]) -> Said {
        let mut command = Command::new(program);
        command.args(arguments).arg(self.bench.path("plain"));
        // The program is told where a tmpfs differs from what a pool is to be like.
        command.env("PMFS_LIKE_TMPFS", "1");
        self.ended(command)
    }

    /// A pool in which nothing is, in place of the other.
    pub fn renew(&self) {
        fs::remove_file(self.pool()).expect("the pool");
        self.bench.ok(&["mkfs", "--size", "64M", "pool"]);
    }

    /// On the pool, through a mount alone.
    pub fn mounted(&mut self, program: &Path, arguments: &[&str]) -> Said {
        self.bench.mount(&[]);
        let mut command = Command::new(program);
        command.args(arguments).arg(self.bench.path("mnt"));
        let said = self.ended(command);
        self.bench.umount();
        said
    }

    /// Runs a program on the pool.
    pub fn inside(&self, program: &Path, arguments: &[&str]) -> Said {
        self.below_run(&[], program, arguments)
    }

    /// On the pool, without a mount.
    pub fn apart(&self, program: &Path, arguments: &[&str]) -> Said {
        self.below_run(&["--no-mount"], program, arguments)
    }

    /// On the pool, closed in this way.
    pub fn closed(&self, protect: &str, program: &Path, arguments: &[&str]) -> Said {
        self.below_run(&["--protect", protect], program, arguments)
    }

    /// On the pool, with options of `pmfs run`.
    pub fn below_run(&self, options: &[&str], program: &Path, arguments: &[&str]) -> Said {
        let mut command = match &self.noexec {
            // The caller of the tests may ignore signals (nohup, a shell's background): the
            // programs expect none to be.
            None => {
                let mut command = Command::new("env");
                command.arg("--default-signal").arg(&self.pmfs);
                command
            }
            Some(path) => {
                let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,noexec \"$0\" && exec \"$@\"";
                let mut command = Command::new("unshare");
                command.args(["-m", "sh", "-c", script]);
                command.arg(path).arg(&self.pmfs);
                command
            }
        };
        let dir = self.bench.path("mnt");
        command.arg("run").args(options);
        command.arg("--pool").arg(self.bench.path("pool"));
        command.arg("--at").arg(&dir).arg("--").arg(program);
        command.args(arguments).arg(&dir);
        command.env("PMFS_LOG", self.bench.path("log"));
        command.envs(self.environment.iter().cloned());
        self.ended(command)
    }

    /// A shell's script, in a mount namespace of its own: the command `pmfs` is its
    /// `$0`, the program and the numbers are its arguments.
    pub fn in_a_namespace(&self, script: &str, program: &Path, numbers: &[u64]) -> Said {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]);
        command.arg(&self.pmfs).arg(program);
        command.args(numbers.iter().map(u64::to_string));
        command.env("PMFS_LOG", self.bench.path("log"));
        self.ended(command)
    }

    fn ended(&self, mut command: Command) -> Said {
        let out = self.bench.path("out");
        let file = File::create(&out).expect("a file");
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a duplicate"))
            .stderr(file)
            .current_dir(self.bench.path("."))
            .process_group(0);
        if self.user != 0 {
            command.uid(self.user).gid(self.user);
            command.env("XDG_CACHE_HOME", self.bench.path("."));
        }
        let mut child = command.spawn().expect("the program starts");
        let since = Instant::now();
        let longer = std::env::var(LONGER).ok();
        let longer = longer.and_then(|seconds| seconds.parse().ok());
        let patience = longer.map_or(PATIENCE, Duration::from_secs);
        let mut stuck = String::new();
        let status: Option<ExitStatus> = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break Some(status);
            }
            if since.elapsed() > patience {
                let group = Pid::from_child(&child);
                stuck = threads_of(child.id());
                let _ = kill_process_group(group, Signal::KILL);
                let _ = child.wait();
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut text = String::from_utf8_lossy(&fs::read(&out).expect("its output")).into_owned();
        if status.is_none() {
            text += &format!("(ended after {patience:?})\n{stuck}");
        }
        Said {
            text,
            code: status.and_then(|status| status.code()),
        }
    }

    /// A file's text, past any mount; empty: it is not there.
    pub fn copied_out(&self, name: &str) -> String {
        let got = self.bench.run(&["get", "pool", name, "-"]);
        String::from_utf8_lossy(&got.stdout).into_owned()
    }

    /// Returns what `pmfs info --json` says of the pool.
    pub fn state(&self) -> String {
        let said = self.bench.run(&["info", "--json", "pool"]);
        String::from_utf8_lossy(&said.stdout).into_owned()
    }

    pub fn pool(&self) -> PathBuf {
        self.bench.path("pool")
    }

    /// The pool is sound, and nobody is in it.
    pub fn check(&self) {
        self.bench.ok(&["fsck", "pool"]);
    }

    /// Checks that a program did in the pool what it did elsewhere, and that the pool is sound.
    pub fn same(&self, inside: &Said, plain: &Said) {
        let log = self.log();
        let unusual: Vec<&str> = log
            .lines()
            .filter(|line| !line.ends_with("were patched in place, 0 left alone"))
            .collect();
        assert!(
            inside == plain,
            "in the pool, exit code {:?}:\n{}\nelsewhere, exit code {:?}:\n{}\nlog:\n{}",
            inside.code,
            inside.text,
            plain.code,
            plain.text,
            unusual.join("\n")
        );
        self.check();
    }

    /// Returns what the library had to say.
    pub fn log(&self) -> String {
        fs::read_to_string(self.bench.path("log")).unwrap_or_default()
    }
}

/// Runs a program in both places: it has to succeed and say the same.
pub fn both(source: &str, arguments: &[&str]) {
    let Some(run) = Run::new() else { return };
    run.both(source, arguments);
}

/// Does what [`both`] does, without a mount.
pub fn both_apart(source: &str, argument: &str) {
    let run = Run::unmounted();
    let program = run.build(source, &[]);
    let mut arguments = vec![argument];
    let stranger;
    if source == "strangers.c" {
        stranger = run.compile("cc", "stranger.c", &[]);
        arguments.push(stranger.to_str().expect("a path in UTF-8"));
    }
    let plain = run.plain(&program, &arguments);
    assert_eq!(plain.code, Some(0), "on a plain directory: {}", plain.text);
    let apart = run.apart(&program, &arguments);
    run.same(&apart, &plain);
}

/// Without a mount, of a program for that alone: it has to succeed, and the log or the
/// totals to have these.
pub fn apart(source: &str, argument: &str, lines: &[&str]) {
    let run = Run::unmounted();
    let program = run.build(source, &[]);
    let stranger = run.compile("cc", "stranger.c", &["-static"]);
    let stranger = stranger.to_str().expect("a path in UTF-8");
    let counted = ["--no-mount", "--stats", "--json"];
    let said = run.below_run(&counted, &program, &[argument, stranger]);
    let log = run.log();
    assert_eq!(said.code, Some(0), "{}\n{log}", said.text);
    // Each is a line in the log, or a count in the totals.
    let why = "\"mountless\":\"--no-mount\"";
    for line in [why].iter().chain(lines) {
        assert!(
            log.contains(line) || said.text.contains(line),
            "{line}: {log}{}",
            said.text
        );
    }
    run.check();
}

/// Does what [`both`] does, for a program that starts another one, which is built so; that one's
/// path is its second argument.
pub fn both_with(source: &str, argument: &str, how: &str) {
    let Some(run) = Run::new() else { return };
    let stranger = match how {
        "static" => run.compile("cc", "stranger.c", &["-static"]),
        "asan" => run.compile("cc", "stranger.c", &["-fsanitize=address"]),
        "musl" if !has("musl-gcc") => {
            eprintln!("skipped: musl-gcc is missing (apt-get install musl-tools)");
            return;
        }
        "musl" => run.compile("musl-gcc", "stranger.c", &[]),
        "go" if !has_go() => {
            eprintln!("skipped: go is missing (apt-get install golang-go)");
            return;
        }
        "go" => run.compile_go(),
        _ => run.compile("cc", "stranger.c", &[]),
    };
    run.both(
        source,
        &[argument, stranger.to_str().expect("a path in UTF-8")],
    );
}

/// The rights that a program's file gives to who runs it.
pub enum Rights {
    /// To be root, who has the file.
    SetUid,
    /// To read and write what the mode forbids: `security.capability` with
    /// CAP_DAC_OVERRIDE, effective.
    Capability,
}

impl Rights {
    fn give(&self, program: &Path) -> &'static str {
        let mode = |bits| {
            let bits = fs::Permissions::from_mode(bits);
            fs::set_permissions(program, bits).expect("root may");
        };
        match self {
            Rights::SetUid => {
                mode(0o4755);
                "set-uid"
            }
            Rights::Capability => {
                mode(0o755);
                let words: [u32; 5] = [0x0200_0001, 1 << 1, 0, 0, 0];
                let value = words.map(u32::to_le_bytes).concat();
                let (name, flags) = ("security.capability", XattrFlags::empty());
                setxattr(program, name, &value, flags).expect("root may");
                "capable"
            }
        }
    }
}

/// Does what [`both`] does, as an ordinary user, for a program that starts another one, which has
/// more rights than he.
pub fn both_as_nobody(how: &str, rights: Rights) {
    let Some(run) = Run::as_nobody() else { return };
    let stranger = match how {
        "static" => run.compile("cc", "stranger.c", &["-static"]),
        _ => run.compile("cc", "stranger.c", &[]),
    };
    // The place is one where such programs are heeded: shared memory may be mounted nosuid.
    let place = TempDir::with_prefix("pmfs-cli-test-").expect("a directory");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(place.path(), open).expect("root may");
    let owned = place.path().join("stranger");
    copy_program(&stranger, &owned);
    let argument = rights.give(&owned);
    let owned = owned.to_str().expect("UTF-8");
    run.both("strangers.c", &[argument, owned]);
}

/// Compiles a source of this directory.
pub fn compile(compiler: &str, source: &str, more: &[&str], program: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run");
    let cpp = source.ends_with(".cc");
    let compiled = Command::new(compiler)
        .arg(if cpp { "-std=c++17" } else { "-std=gnu11" })
        .args(["-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-O1", "-g"])
        .args(["-pthread", "-rdynamic", "-fno-builtin"])
        // The programs do on purpose what the compiler warns of.
        .args(["-Wno-nonnull", "-Wno-stringop-overread"])
        .args(["-Wno-stringop-overflow", "-Wno-unused-result"])
        .args(["-Wno-format-truncation", "-Wno-clobbered"])
        .args(more.iter().filter(|flag| !flag.starts_with("-l")))
        .arg(here.join(source))
        .args(more.iter().filter(|flag| flag.starts_with("-l")))
        .arg("-o")
        .arg(program)
        .output()
        .expect("cc, of the package gcc");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
    program.to_owned()
}

fn has_go() -> bool {
    let version = Command::new("go").arg("version").output();
    version.is_ok_and(|output| output.status.success())
}

fn has(program: &str) -> bool {
    let version = Command::new(program).arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

impl Run {
    fn both(&self, source: &str, arguments: &[&str]) {
        let run = self;
        let program = run.build(source, &[]);
        let plain = run.plain(&program, arguments);
        assert_eq!(plain.code, Some(0), "on a plain directory: {}", plain.text);
        if plain.text.starts_with("skipped: ") {
            eprint!("{}", plain.text);
            return;
        }
        let inside = run.inside(&program, arguments);
        run.same(&inside, &plain);
        if let Some(figure) = inside
            .text
            .lines()
            .find(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        {
            println!("{figure}");
        }
    }
}
