//! The guardian of a terminal: a child that gives the terminal back as it was where this program
//! was killed and could not. It ends with this program, which it knows by a pipe.

use std::io::{self, Read, Write, stdin, stdout};
use std::process::{Child, Command, Stdio};

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::LeaveAlternateScreen;
use rustix::process::setsid;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

/// Tells the guardian that the terminal was given back.
const RESTORED: &[u8] = b"r";

/// A guardian that waits.
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts it, and waits until it knows how the terminal is.
    pub fn start() -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["top", "--guard"]);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut ready = [0];
        // One that could not begin has ended, and the screen goes on without.
        if let Some(mut says) = child.stderr.take() {
            let _ = says.read_exact(&mut ready);
        }
        Ok(Self(child))
    }

    /// Ends it, once the terminal is as it was.
    pub fn end(mut self) {
        if let Some(mut to) = self.0.stdin.take() {
            let _ = to.write_all(RESTORED);
        }
        let _ = self.0.wait();
    }
}

/// Is the guardian: waits for the end of the program that has started it.
///
/// # Errors
/// Standard output is no terminal.
pub(crate) fn run() -> io::Result<()> {
    // In a session of its own the terminal's signals do not come here, and no shell that has the
    // terminal meanwhile keeps it from changing its modes.
    setsid()?;
    let terminal = stdout();
    let before = tcgetattr(&terminal)?;
    io::stderr().write_all(b".")?;
    let mut told = Vec::new();
    stdin().read_to_end(&mut told)?;
    if told != RESTORED {
        execute!(stdout(), LeaveAlternateScreen, Show)?;
        tcsetattr(&terminal, OptionalActions::Now, &before)?;
    }
    Ok(())
}
