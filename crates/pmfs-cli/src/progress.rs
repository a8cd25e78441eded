//! A bar on stderr for what takes more than a second, on a terminal; elsewhere a line
//! then, and one every ten seconds. Never beside `--json`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Work that is done sooner needs no bar.
const QUIET: Duration = Duration::from_secs(1);

/// The time from one line to the next, after the first, where there is no terminal.
const LINES: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(100);

/// Work of a known number of bytes. The bar goes when this does.
pub struct Progress {
    what: &'static str,
    total_bytes: u64,
    since: Instant,
    wanted: bool,
    /// The work is counted in other units than bytes.
    counts: bool,
    bar: Option<ProgressBar>,
    /// Lines are written instead; so many were.
    lines: Option<u32>,
}

impl Progress {
    /// `total_bytes`: 0 if it is not known.
    pub fn new(json: bool, what: &'static str, total_bytes: u64) -> Progress {
        Progress {
            what,
            total_bytes,
            since: Instant::now(),
            wanted: !json,
            counts: false,
            bar: None,
            lines: (!std::io::stderr().is_terminal()).then_some(0),
        }
    }

    /// Work that is counted in other things than bytes.
    pub fn counting(json: bool, what: &'static str) -> Progress {
        let mut progress = Progress::new(json, what, 0);
        progress.counts = true;
        progress
    }

    /// Shows that `bytes` of `total_bytes` are done.
    pub fn of(&mut self, bytes: u64, total_bytes: u64) {
        if self.bar.is_none() {
            self.total_bytes = total_bytes;
        }
        self.at(bytes);
    }

    /// Shows that `bytes` are done.
    pub fn at(&mut self, bytes: u64) {
        if !self.wanted || self.bar.is_none() && self.since.elapsed() < QUIET {
            return;
        }
        if let Some(lines) = &mut self.lines {
            if let Some(line) = line(
                self.what,
                lines,
                self.since.elapsed(),
                (bytes, self.total_bytes),
            ) {
                eprintln!("pmfs: {line}");
            }
            return;
        }
        let bar = self
            .bar
            .get_or_insert_with(|| bar(self.what, self.total_bytes, self.counts));
        bar.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar of its own for work that does not tell how far it is; the drop removes it.
pub struct Watch {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Nothing is known but that it goes on.
    pub fn spin(json: bool, what: &'static str) -> Watch {
        Watch::start(json, what, 0, || 0)
    }

    /// The space that a file takes, up to `total_bytes`, is how far it is.
    pub fn allocation(json: bool, what: &'static str, path: &Path, total_bytes: u64) -> Watch {
        use std::os::unix::fs::MetadataExt;
        let path: PathBuf = path.to_owned();
        Watch::start(json, what, total_bytes, move || {
            std::fs::metadata(&path).map_or(0, |file| file.blocks() * 512)
        })
    }

    fn start(
        json: bool,
        what: &'static str,
        total_bytes: u64,
        bytes: impl Fn() -> u64 + Send + 'static,
    ) -> Watch {
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let thread = (!json).then(|| {
            thread::spawn(move || {
                let mut progress = Progress::new(false, what, total_bytes);
                while !seen.load(Ordering::Relaxed) {
                    progress.at(bytes().min(total_bytes));
                    if let Some(bar) = &progress.bar {
                        bar.tick();
                    }
                    thread::park_timeout(POLL);
                }
            })
        });
        Watch { ended, thread }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// The next line, if it is time for it.
fn line(
    what: &str,
    lines: &mut u32,
    elapsed: Duration,
    (done, total): (u64, u64),
) -> Option<String> {
    let due = if *lines == 0 { QUIET } else { LINES * *lines };
    if elapsed < due {
        return None;
    }
    *lines = 1 + (elapsed.as_secs() / LINES.as_secs()) as u32;
    let seconds = elapsed.as_secs();
    let share = match total {
        0 => String::new(),
        total => format!(
            "{} %, ",
            u128::from(done.min(total)) * 100 / u128::from(total)
        ),
    };
    Some(format!("{what}: {share}{seconds} s"))
}

fn bar(what: &'static str, total_bytes: u64, counts: bool) -> ProgressBar {
    let (bar, template) = if total_bytes == 0 {
        (
            ProgressBar::new_spinner(),
            "{msg} {spinner} {binary_bytes} in {elapsed}",
        )
    } else if counts {
        (
            ProgressBar::new(total_bytes),
            "{msg} [{bar:32}] {percent} %, {eta} left",
        )
    } else {
        (
            ProgressBar::new(total_bytes),
            "{msg} [{bar:32}] {binary_bytes} of {binary_total_bytes}, {eta} left",
        )
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the reader of a pipe or a log learns within seconds that the work goes on, and is not
    /// flooded. Method: the lines at some times.
    #[test]
    fn a_line_now_and_then() {
        let mut lines = 0;
        let mut at = |seconds, done| {
            line(
                "growing",
                &mut lines,
                Duration::from_secs(seconds),
                (done, 200),
            )
        };
        assert_eq!(at(0, 1), None);
        assert_eq!(at(1, 10).as_deref(), Some("growing: 5 %, 1 s"));
        assert_eq!(at(9, 30), None);
        assert_eq!(at(10, 50).as_deref(), Some("growing: 25 %, 10 s"));
        assert_eq!(at(19, 60), None);
        assert_eq!(at(45, 300).as_deref(), Some("growing: 100 %, 45 s"));
        assert_eq!(at(49, 300), None);
        let mut none = 0;
        let unknown = line("opening", &mut none, Duration::from_secs(11), (5, 0));
        assert_eq!(unknown.as_deref(), Some("opening: 11 s"));
    }
}
