//! The private mount of `pmfs run` lasts as long as a program of the run does, also one in the background.
//!
//! All of them inherit the writing end of a pipe, at a number that the preloaded library keeps open. The keeper, a process of its own,
//! waits for the end of what can be read there, and then takes the mount away.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, getrlimit};

use crate::Outcome;
use crate::cli::Umount;
use crate::failure::Failure;
use crate::umount;

/// Where the pipe's number is, counted from the end of the library's own.
const FROM_TOP: u64 = 2;
/// The library keeps its own descriptors, and what this command leaves open for it, below this number or the limit
/// (`OWN_END` in `crates/pmfs-shim/src/descriptors.rs`): others a program may close.
pub const OWN_END: u64 = 1024;

/// Others of the run who have not ended after so long go on. Nobody waits for a program's grandchildren, and one that is on its way out when the
/// program is has its descriptors until it is gone.
const ENDING: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// A keeper at work.
pub struct Keeper {
    process: Child,
    reading: OwnedFd,
    writing: OwnedFd,
}

impl Keeper {
    /// Starts one for the mount on `dir`.
    pub fn start(dir: &Path) -> Result<Keeper, Failure> {
        let failed =
            |error: io::Error| Failure::new(format!("the mount's keeper: {error}"), "try again");
        let (reading, writing) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let top = getrlimit(Resource::Nofile)
            .current
            .unwrap_or(OWN_END)
            .min(OWN_END);
        let number = i32::try_from(top.saturating_sub(FROM_TOP)).unwrap_or(0);
        let writing =
            fcntl_dupfd_cloexec(&writing, number).map_err(|errno| failed(errno.into()))?;
        let process = Command::new("/proc/self/exe")
            .args(["umount", "--quiet", "--at-end"])
            .arg(dir)
            .stdin(reading.try_clone().map_err(failed)?)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        // From here on every process that is started inherits it.
        fcntl_setfd(&writing, FdFlags::empty()).map_err(|errno| failed(errno.into()))?;
        Ok(Keeper {
            process,
            reading,
            writing,
        })
    }

    /// The number that the programs' end of the pipe has.
    pub fn number(&self) -> i32 {
        self.writing.as_raw_fd()
    }

    /// The program has ended: waits for the keeper, unless others of the run go on.
    pub fn end(mut self) {
        drop(self.writing);
        // As long as its own start is not over, the keeper has the programs' end, too, and looks like one of them.
        if let Some(mut said) = self.process.stdout.take() {
            let _ = said.read(&mut [0]);
        }
        let mut waiting = [PollFd::from_borrowed_fd(
            self.reading.as_fd(),
            PollFlags::IN,
        )];
        let over = poll(&mut waiting, Some(&ENDING)).is_ok_and(|ready| ready > 0);
        if over {
            let _ = self.process.wait();
        }
    }
}

/// `pmfs umount --at-end`: waits for the end of stdin, and takes the mount away. What still uses it ends it.
pub fn run(arguments: &Umount) -> Outcome {
    // Of the terminal's signals the programs are to decide what they mean.
    let _ = rustix::process::setsid();
    let _ = io::stdout().write_all(b"\n");
    io::stdin().read_to_end(&mut Vec::new())?;
    let mut arguments = Umount {
        dir: arguments.dir.clone(),
        lazy: false,
        wait: arguments.wait,
        quiet: true,
        json: false,
        at_end: false,
    };
    if umount::run(&arguments).is_err() {
        arguments.lazy = true;
        return umount::run(&arguments);
    }
    Ok(ExitCode::SUCCESS)
}
