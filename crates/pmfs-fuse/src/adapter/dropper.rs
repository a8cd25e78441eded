//! Has the kernel drop pages, and dentries of files without a name, from a process of its own.
//!
//! The kernel does that in a call that no signal ends, while it waits for answers of the daemon. A
//! thread of the daemon in that call would keep a killed daemon from ending: with its descriptors
//! open the kernel would wait for answers for ever, and its slot would never be free. A process
//! that has nothing but one descriptor of the mount therefore makes the call, and may outlive the
//! daemon until the call ends: when the daemon is gone, the process refuses the kernel's requests.
//!
//! The process is a program, not a fork: its stdin is a socket for inodes and answers, its stdout
//! the device.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{self, Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use pmfs::Ino;
use rustix::io::Errno;
use zerocopy::FromBytes;

use super::worker::message_room;
use crate::wire::device::Device;
use crate::wire::opcode::Opcode;
use crate::wire::request::InHeader;

/// The part of an inode that the kernel is to drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drop {
    /// The pages of an inode.
    Pages(Ino),
    /// The dentries by which the kernel still finds an inode.
    Names(Ino),
}

/// The bit of a word for names.
const NAMES: u64 = 1 << 63;

impl Drop {
    fn word(self) -> u64 {
        match self {
            Drop::Pages(ino) => ino,
            Drop::Names(ino) => ino | NAMES,
        }
    }

    fn of(word: u64) -> Drop {
        match word & NAMES {
            0 => Drop::Pages(word),
            _ => Drop::Names(word & !NAMES),
        }
    }

    fn by(self, device: &Device) -> Result<(), Errno> {
        match self {
            Drop::Pages(ino) => device.drop_pages(ino),
            Drop::Names(ino) => device.drop_names(ino),
        }
    }
}

/// The daemon's end.
pub(super) struct Dropper {
    command: Command,
    device: Device,
    helper: Option<Helper>,
}

struct Helper {
    child: Child,
    stream: UnixStream,
}

impl Helper {
    /// Asks the kernel, and returns its answer.
    fn ask(&mut self, drop: Drop) -> io::Result<Result<(), Errno>> {
        let mut number = [0; 4];
        self.stream.write_all(&drop.word().to_ne_bytes())?;
        self.stream.read_exact(&mut number)?;
        Ok(match i32::from_ne_bytes(number) {
            0 => Ok(()),
            number => Err(Errno::from_raw_os_error(number)),
        })
    }
}

impl Dropper {
    /// `command` runs [`serve`].
    pub(super) fn new(command: Command, device: Device) -> Dropper {
        let mut dropper = Dropper {
            command,
            device,
            helper: None,
        };
        // Now, while a program that was replaced since is not met.
        if let Err(error) = dropper.start() {
            log::warn!("no process to drop pages: {error}");
        }
        dropper
    }

    fn start(&mut self) -> io::Result<()> {
        let (stream, theirs) = UnixStream::pair()?;
        let device = Device::of(self.device.as_fd())?;
        let child = self
            .command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(device.into_file()))
            // An interrupt of the daemon is meant for the mount, which may go on for a while.
            .process_group(0)
            .spawn();
        // The command would keep their ends open.
        self.command.stdin(Stdio::null()).stdout(Stdio::null());
        self.helper = Some(Helper {
            child: child?,
            stream,
        });
        Ok(())
    }

    /// Returns when the kernel has dropped it. A process that was killed is started
    /// again; where that can't be done this thread makes the call itself.
    pub(super) fn drop(&mut self, what: Drop) -> Result<(), Errno> {
        for _ in 0..2 {
            if self.helper.is_none()
                && let Err(error) = self.start()
            {
                log::error!("no process to drop pages: {error}");
                break;
            }
            if let Some(helper) = &mut self.helper {
                match helper.ask(what) {
                    Ok(said) => return said,
                    Err(error) => log::error!("the process that drops pages: {error}"),
                }
            }
            self.end();
        }
        what.by(&self.device)
    }

    fn end(&mut self) {
        if let Some(Helper { mut child, stream }) = self.helper.take() {
            drop(stream);
            let _ = child.wait();
        }
    }
}

impl std::ops::Drop for Dropper {
    fn drop(&mut self) {
        self.end();
    }
}

/// The other end: serves until the daemon is gone.
///
/// # Errors
/// stdin or stdout fails.
pub fn serve() -> io::Result<()> {
    let mut stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Started by hand, the process has no daemon.
    stream.peer_addr()?;
    let device = Device::from_file(io::stdout().as_fd().try_clone_to_owned()?.into());
    let device = Arc::new(device);
    let (sender, told) = channel::<Drop>();
    let (mut answers, notices) = (stream.try_clone()?, Arc::clone(&device));
    let busy = Arc::new(AtomicBool::new(false));
    let is_busy = Arc::clone(&busy);
    let dropping = thread::Builder::new().name("pmfs-dropper".to_owned());
    dropping.spawn(move || {
        for what in told {
            let said = what.by(&notices);
            let number = said.map_or_else(Errno::raw_os_error, |()| 0);
            is_busy.store(false, Ordering::SeqCst);
            let _ = answers.write_all(&number.to_ne_bytes());
        }
        process::exit(0);
    })?;
    let mut number = [0; 8];
    while stream.read_exact(&mut number).is_ok() {
        busy.store(true, Ordering::SeqCst);
        let _ = sender.send(Drop::of(u64::from_ne_bytes(number)));
    }
    if !busy.load(Ordering::SeqCst) {
        return Ok(());
    }
    drop(sender);
    refuse_all(&device);
    loop {
        // The other thread ends the process.
        thread::park();
    }
}

/// For a daemon that is gone.
fn refuse_all(device: &Device) {
    let mut room = message_room();
    while let Ok(Some(len)) = device.receive(&mut room) {
        let Ok((header, _)) = InHeader::read_from_prefix(&room[..len]) else {
            continue;
        };
        if !Opcode::of(header.opcode).is_some_and(Opcode::is_silent) {
            // The kernel says so of a connection that has ended, which this one does in a moment.
            device.answer(header.unique, Err(Errno::CONNABORTED));
        }
    }
}
