//! Goal: `pmmon top` on a terminal shows the writer and does what keys say, and the terminal is as
//! it was however it ends. Method: a session of tmux, whose screen and modes are compared.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use pmmon::proc;
use rustix::process::{Pid, Signal, kill_process};

use super::{Load, works};

#[path = "../../src/screen/terminal.rs"]
mod terminal;

/// The program's own test runs as the child of another one by this variable.
const CHILD: &str = "PMMON_SCREEN_CHILD";
/// A mark that the shell prints when a command has ended, which it does not have in its text.
const ENDED: &str = "ended-0";

/// A server of tmux of the test's own, with one shell.
struct Tmux {
    name: String,
    commands: Cell<u32>,
}

impl Tmux {
    /// `None` where there is no tmux.
    fn new(name: &str) -> Option<Self> {
        if let Err(error) = Command::new("tmux").arg("-V").output() {
            eprintln!("skipped: tmux: {error}");
            return None;
        }
        let name = format!("pmmon-test-{name}-{}", std::process::id());
        let tmux = Self {
            name,
            commands: Cell::new(0),
        };
        let shell = ["-x", "110", "-y", "20", "env PS1='$ ' sh"];
        let started = tmux.run(&[&["-f", "/dev/null", "new-session", "-d"], &shell[..]].concat());
        assert!(started.status.success(), "{started:?}");
        Some(tmux)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.name]).args(arguments);
        // A session within another one is refused.
        command.env_remove("TMUX").output().unwrap()
    }

    fn keys(&self, keys: &[&str]) {
        let sent = self.run(&[&["send-keys"], keys].concat());
        assert!(sent.status.success(), "{sent:?}");
    }

    fn type_line(&self, line: &str) {
        self.keys(&["-l", line]);
        self.keys(&["Enter"]);
    }

    fn shown(&self) -> String {
        let shown = self.run(&["capture-pane", "-p"]);
        String::from_utf8_lossy(&shown.stdout).into_owned()
    }

    /// The pane shows the alternate screen, and the cursor.
    fn modes(&self) -> String {
        let modes = self.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        String::from_utf8_lossy(&modes.stdout).trim().to_owned()
    }

    fn wait(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        for _ in 0..3000 {
            let shown = self.shown();
            if is_so(&shown) {
                return shown;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("not in 30 s: {what}\n{}", self.shown());
    }

    /// Runs a command line, of which the shell tells the end.
    fn start(&self, line: &str) {
        // The screen of the command before must not be taken for this one's.
        let number = self.commands.get() + 1;
        self.commands.set(number);
        self.type_line(&format!("clear; stty -a >before; echo ready-$(({number}))"));
        self.wait("a shell", |shown| {
            shown.contains(&format!("ready-{number}"))
        });
        self.type_line(&format!("{line}; echo ended-$((0))"));
    }

    /// The terminal is as it was before the command.
    fn is_restored(&self, dir: &Path) {
        self.wait("the end", |shown| shown.contains(ENDED));
        self.has_modes_of_before(dir);
    }

    fn has_modes_of_before(&self, dir: &Path) {
        assert_eq!(self.modes(), "0 1", "{}", self.shown());
        self.type_line("stty -a >after; echo compared-$((0))");
        self.wait("stty", |shown| shown.contains("compared-0"));
        let read = |name| std::fs::read_to_string(dir.join(name)).unwrap();
        assert!(read("before").contains(" echo "), "{}", read("before"));
        assert_eq!(read("before"), read("after"));
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

/// A writer, and a terminal for `pmmon top` on it.
struct Session {
    tmux: Tmux,
    load: Load,
    dir: PathBuf,
    /// The command line, and how the writer's row begins.
    top: String,
    row: String,
}

impl Session {
    fn new(name: &str) -> Option<Self> {
        let tmux = Tmux::new(name).filter(|_| works("clock"))?;
        let mut load = Load::new(&[
            "--size", "2M", "--total", "64T", "--access", "8", "--order", "random",
        ]);
        load.go();
        let dir = load.dir.path().to_owned();
        let pid = load.child.id();
        tmux.type_line(&format!("cd {}", dir.display()));
        let top = format!(
            "{} top --backend clock --as-pm {} --interval 0.2 --pid {pid}",
            env!("CARGO_BIN_EXE_pmmon"),
            load.file().display()
        );
        Some(Self {
            tmux,
            load,
            dir,
            top,
            row: format!("{pid:>8}  pmm-writer "),
        })
    }

    /// Starts a command line that shows the screen.
    fn start(&self, line: &str) {
        self.tmux.start(line);
        self.tmux.wait("the row", |shown| shown.contains(&self.row));
    }
}

#[test]
fn a_session_is_looked_at() {
    let Some(session) = Session::new("keys") else {
        return;
    };
    let tmux = &session.tmux;
    session.start(&session.top);
    let is_row = |line: &str| {
        let cells = line.strip_prefix(&session.row);
        cells.is_some_and(|cells| !cells.trim_start().starts_with("0.000 s"))
    };
    let shown = tmux.wait("the writer's row", |shown| shown.lines().any(is_row));
    assert!(shown.contains("1 process, sorted by written"), "{shown}");
    assert!(shown.contains("before the monitor began"), "{shown}");
    assert_eq!(tmux.modes(), "1 0");
    tmux.keys(&["t"]);
    tmux.wait("threads", |shown| shown.contains("  thread "));
    tmux.keys(&["Enter", "s"]);
    tmux.wait("no threads, sorted anew", |shown| {
        !shown.contains("  thread ") && shown.contains("sorted by read")
    });
    tmux.keys(&["?"]);
    tmux.wait("the keys", |shown| shown.contains("left, right"));
    tmux.keys(&["?"]);
    tmux.run(&["resize-window", "-x", "20", "-y", "5"]);
    tmux.wait("a small screen", |shown| {
        let lines: Vec<&str> = shown.lines().collect();
        lines.len() == 5 && lines[1].ends_with('>') && lines[4].starts_with("q quit")
    });
    tmux.run(&["resize-window", "-x", "110", "-y", "20"]);
    tmux.wait("a large screen", |shown| shown.contains("TIME IN LOADS"));
    tmux.keys(&["q"]);
    tmux.is_restored(&session.dir);
}

#[test]
fn each_end_restores_the_terminal() {
    let Some(mut session) = Session::new("ends") else {
        return;
    };
    session.start(&session.top);
    session.tmux.keys(&["C-c"]);
    session.tmux.is_restored(&session.dir);
    session.start(&format!(
        "echo $$ >shell; exec_top() {{ {}; }}; exec_top",
        session.top
    ));
    let shell = std::fs::read_to_string(session.dir.join("shell")).unwrap();
    let tops = proc::children(shell.trim().parse().unwrap());
    let pid = Pid::from_raw(tops[0].cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    session.tmux.is_restored(&session.dir);
    // Killed: what the shell says of it may be gone with the screen.
    session.start(&format!("exec_top() {{ {}; }}; exec_top", session.top));
    let tops = proc::children(shell.trim().parse().unwrap());
    let pid = Pid::from_raw(tops[0].cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    session
        .tmux
        .wait("the guardian", |_| session.tmux.modes() == "0 1");
    session.tmux.wait("its end", |_| {
        proc::children(shell.trim().parse().unwrap()).is_empty()
    });
    session.tmux.has_modes_of_before(&session.dir);
    // A terminal that is closed.
    let other = Tmux::new("closed").unwrap();
    other.type_line(&format!("exec {}", session.top));
    other.wait("the row", |shown| shown.contains(&session.row));
    let pid = other.run(&["display-message", "-p", "#{pane_pid}"]);
    let pid = String::from_utf8_lossy(&pid.stdout).trim().parse().unwrap();
    drop(other);
    session.tmux.wait("its end", |_| {
        // Not every machine has somebody who waits for orphans.
        proc::stat(pid).map_or(true, |stat| stat.is_zombie)
    });
    // The last figures stay until a key.
    session.start(&session.top);
    session.load.child.kill().unwrap();
    session.load.child.wait().unwrap();
    let tmux = &session.tmux;
    tmux.wait("the end of the writer", |shown| shown.contains("  ended"));
    tmux.keys(&["q"]);
    tmux.is_restored(&session.dir);
}

#[test]
fn lines_are_printed_where_they_are_wanted() {
    let Some(tmux) = Tmux::new("plain").filter(|_| works("clock")) else {
        return;
    };
    let dir = tempfile::TempDir::new().unwrap();
    tmux.type_line(&format!("cd {}", dir.path().display()));
    let program = env!("CARGO_BIN_EXE_pmmon");
    // It waits for a word.
    let idle = Load::new(&["--size", "2M", "--total", "1G", "--access", "8"]);
    let pid = idle.child.id();
    for more in ["--plain", "--count 1", "--json"] {
        tmux.start(&format!(
            "{program} top --pid {pid} --backend clock --interval 0.1 {more}"
        ));
        tmux.wait("lines", |shown| {
            shown.contains("s by clock") || shown.contains("\"schema\":1")
        });
        assert_eq!(tmux.modes(), "0 1", "{more}");
        if !more.contains("count") {
            tmux.keys(&["C-c"]);
        }
        tmux.is_restored(dir.path());
    }
}

/// Goal: a panic leaves the terminal as it was, with its message on it. Method: this test's program
/// anew, within tmux.
#[test]
fn a_panic_restores_the_terminal() {
    if std::env::var_os(CHILD).is_some() {
        let mut screen = terminal::Screen::open().unwrap();
        screen
            .draw(|buffer| buffer.set_string(0, 0, "drawn", ratatui_core::style::Style::new()))
            .unwrap();
        std::thread::sleep(Duration::from_secs(1));
        // The screen is not dropped: the hook alone restores.
        let _screen = std::mem::ManuallyDrop::new(screen);
        panic!("meant");
    }
    let Some(tmux) = Tmux::new("panic") else {
        return;
    };
    let dir = tempfile::TempDir::new().unwrap();
    tmux.type_line(&format!("cd {}", dir.path().display()));
    let program = std::env::current_exe().unwrap();
    let program = program.display();
    let test = "screen::a_panic_restores_the_terminal";
    tmux.start(&format!(
        "RUST_BACKTRACE=0 {CHILD}=1 {program} --exact {test} --nocapture"
    ));
    tmux.wait("the screen", |_| tmux.modes() == "1 0");
    let shown = tmux.wait("the end", |shown| shown.contains(ENDED));
    assert!(
        shown.contains("meant") && !shown.contains("drawn"),
        "{shown}"
    );
    tmux.is_restored(dir.path());
}
