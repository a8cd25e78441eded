//! Processes and threads, by `/proc`.

use std::fs;
use std::io;
use std::str::FromStr;

/// Nanoseconds of a tick, which is a hundredth of a second for programs on x86-64.
const TICK_NS: u64 = 10_000_000;

/// A process's identity and image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The command's name.
    pub command: String,
    /// The process that started it.
    pub parent: u32,
    /// When it was started, since the machine was.
    pub start_ns: u64,
    /// Where its code and its stack begin, which exec changes.
    pub image: (u64, u64),
    /// It has ended, and its parent has not asked yet.
    pub is_zombie: bool,
}

/// Reads `/proc/PID/stat`.
///
/// # Errors
/// The process is gone, or the kernel's text is not understood.
pub fn stat(pid: u32) -> io::Result<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse(&text).ok_or_else(|| io::Error::other("/proc/PID/stat has an unknown form"))
}

/// A command's name may have blanks and parentheses: what follows begins behind the last one.
fn parse(text: &str) -> Option<Stat> {
    let (head, tail) = text.rsplit_once(')')?;
    let (_, command) = head.split_once('(')?;
    let words: Vec<&str> = tail.split_whitespace().collect();
    // Numbers of fields as in proc(5), of which the first behind the name is 3.
    let field = |number: usize| words.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        command: command.to_owned(),
        parent: u32::try_from(field(4)?).ok()?,
        start_ns: field(22)?.saturating_mul(TICK_NS),
        image: (field(26)?, field(28)?),
        is_zombie: matches!(*words.first()?, "Z" | "X"),
    })
}

fn numbers<T: FromStr>(path: &str) -> io::Result<Vec<T>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        if let Ok(number) = entry?.file_name().to_string_lossy().parse() {
            found.push(number);
        }
    }
    Ok(found)
}

/// The threads of a process.
///
/// # Errors
/// The process is gone.
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    numbers(&format!("/proc/{pid}/task"))
}

/// All processes.
///
/// # Errors
/// There is no `/proc`.
pub fn all() -> io::Result<Vec<u32>> {
    numbers("/proc")
}

/// `/proc` shows the PID namespace of this process. Otherwise its numbers are other processes here.
#[must_use]
pub fn is_of_here() -> bool {
    let own = fs::read_link("/proc/self").ok();
    own.is_some_and(|own| own.to_str() == Some(std::process::id().to_string().as_str()))
}

/// A process's number in its own namespace, if it has another than here.
#[must_use]
pub fn inner_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    let inner = line.split_whitespace().last()?.parse().ok()?;
    (inner != pid).then_some(inner)
}

/// Threads of a process by their numbers in its own namespace, if that is another than here.
#[must_use]
pub fn inner_threads(pid: u32) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for tid in threads(pid).unwrap_or_default() {
        if let Some(inner) = inner_pid(tid) {
            found.push((inner, tid));
        }
    }
    found
}

/// The processes that a process has started and that live.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for tid in threads(pid).unwrap_or_default() {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
        let text = text.unwrap_or_default();
        found.extend(
            text.split_whitespace()
                .filter_map(|word| word.parse::<u32>().ok()),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_may_have_parentheses() {
        let mut text = String::from("42 (a) b (c)) S 7");
        for number in 5..=52 {
            text.push_str(&format!(" {}", number * 100));
        }
        let stat = parse(&text).unwrap();
        assert_eq!(stat.command, "a) b (c)");
        assert_eq!((stat.parent, stat.start_ns), (7, 2200 * TICK_NS));
        assert_eq!(stat.image, (2600, 2800));
        assert!(parse("42 (a").is_none());
        assert!(parse("42 (a) S 7 1").is_none());
    }

    #[test]
    fn this_process_is_found() {
        let pid = std::process::id();
        assert!(is_of_here());
        assert!(stat(pid).unwrap().start_ns > 0);
        assert!(threads(pid).unwrap().contains(&pid));
        assert!(all().unwrap().contains(&pid));
        assert!(stat(0x3fff_ffff).is_err());
    }
}
