//! The state of programs that hang, for the report of a failed test.

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Returns a line for each thread of a process group: its name, state, times, and the system call
/// and the place in the kernel where it waits.
pub fn threads_of(group: u32) -> String {
    let mut text = String::new();
    for process in entries(Path::new("/proc")) {
        if number_at(&process.join("stat"), 2) != Some(u64::from(group)) {
            continue;
        }
        for thread in entries(&process.join("task")) {
            let name = read(&thread.join("comm"));
            let state = field(&thread.join("stat"), 0).unwrap_or_default();
            let ticks = [11, 12].map(|at| number_at(&thread.join("stat"), at).unwrap_or(0));
            let call = read(&thread.join("syscall"));
            let place = read(&thread.join("wchan"));
            let signals = read(&thread.join("status"));
            let signals: Vec<&str> = signals
                .lines()
                .filter(|line| line.starts_with("SigPnd") || line.starts_with("SigBlk"))
                .collect();
            let path = thread.display();
            let _ = writeln!(
                text,
                "{path} {name} {state} ticks {ticks:?} {call} {place} {signals:?}"
            );
        }
    }
    text
}

fn entries(dir: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}

fn read(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim_end().to_owned()
}

/// A field of a `stat` file, counted from the one behind the name.
fn field(path: &Path, at: usize) -> Option<String> {
    let text = read(path);
    let (_, behind) = text.rsplit_once(')')?;
    behind.split_whitespace().nth(at).map(str::to_owned)
}

fn number_at(path: &Path, at: usize) -> Option<u64> {
    field(path, at)?.parse().ok()
}
