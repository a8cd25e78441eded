//! The mount itself: made and shaken hands on by `fuser` ([`handshake`]), then served
//! by workers of our own ([`worker`]), which pass each request ([`dispatch`]) to the
//! [`Server`] in the engine's terms ([`translate`]).
//!
//! Contract with the kernel:
//! - Names and attributes are valid for zero seconds, so each use asks again; while no other
//!   process has the pool they hold for a moment, and so does the absence of a name
//!   ([`lease`](crate::lease)). With `-o nocache` never, with `-o cache` for a second at any time.
//! - Files are opened for direct I/O; where the kernel (6.6 and later) offers
//!   FUSE_DIRECT_IO_ALLOW_MMAP they can be mapped all the same. Without it they are
//!   opened through the page cache, written through, but for those for writing alone.
//!   The writeback cache is never asked for.
//! - An inode is held in the engine from OPEN to RELEASE, because another process may unlink it.
//! - FSYNC and FSYNCDIR are answered ENOSYS once, which tells the kernel that there is
//!   nothing to do and not to ask again: all is durable when the call that did it
//!   returns. Dirty pages of mappings are still written back by the kernel on close,
//!   fsync and msync. FLUSH is served: it drops POSIX locks.
//! - Locks are asked for here ([`locks`]), both kinds. A SETLKW that has to wait is
//!   handed to a thread of its own, which answers it; INTERRUPT ends that wait
//!   ([`waiters`]). All other requests in hand are finished.
//! - A request that waits while the pool stands still, or for pages that another
//!   mount's kernel has, keeps no worker from others.
//! - A READ without FUSE_READ_LOCKOWNER fills pages, which are then noted in the pool; other
//!   processes ask the [`revoker`] for them, which has the kernel drop them.
//!
//! A handler that panics answers EIO and logs; the worker goes on. So does a message
//! that can't be right.

mod attributes;
mod content;
mod dispatch;
mod dropper;
mod handshake;
mod locks;
mod names;
mod revoker;
mod translate;
mod waiters;
mod worker;

use std::env;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::{Config, MountOption, Session, SessionACL};
use pmfs::{AtimeMode, Fs};

use crate::presence::Presence;
use crate::server::Server;
use crate::wire::device::Device;
use crate::wire::reply::OPEN_DIRECT_IO;
use crate::{MountError, mounts, unmount};
use dispatch::Adapter;
use dropper::Dropper;
pub use dropper::serve as drop_pages;
use handshake::{Handshake, Terms};
use pmfs_posix::mount_options::{MountOptions, Remember};

/// More workers than this only meet in the same queue.
const WORKERS_MAX: usize = 4;

/// After a signal: the time for which open files keep a detached mount alive.
const GRACE: Duration = Duration::from_secs(2);

/// The reason for which [`Mounted::serve`] is to end.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The reason in the log: "signal SIGTERM".
    why: String,
    /// Open files keep it for no longer than this; `None`: for as long as they are open.
    grace: Option<Duration>,
}

impl Stop {
    /// Soon: files that are still open are cut off.
    #[must_use]
    pub fn soon(why: impl Into<String>) -> Stop {
        Stop {
            why: why.into(),
            grace: Some(GRACE),
        }
    }

    /// The mount ends with its last open file.
    #[must_use]
    pub fn at_end(why: impl Into<String>) -> Stop {
        Stop {
            why: why.into(),
            grace: None,
        }
    }
}

/// The end of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Unmounted, from outside or on request; the pool is clean.
    Unmounted,
    /// On request, while files were open: they get errors from now on. The pool is clean.
    CutOff,
}

/// A mount that the kernel knows. Requests queue up until [`Mounted::serve`].
pub struct Mounted {
    session: Session<Handshake>,
    terms: Terms,
    server: Arc<Server>,
    remember: Remember,
    /// See [`presence`](crate::presence).
    name: u32,
    /// The only user that is let in, if not all are.
    only: Option<u32>,
    dir: PathBuf,
    /// The kernel's number for the mount, by which it is told from another on the same directory.
    device: Option<String>,
}

/// Mounts an attached pool. `pool` is for show in the table of mounts: the absolute path by which
/// an unmount finds it. `dir` has to be absolute. `presence` outlives the mount.
///
/// # Errors
/// The kernel refuses, or fusermount3 for a user other than root.
pub fn mount(
    fs: Arc<Fs>,
    pool: &Path,
    dir: &Path,
    options: &MountOptions,
    presence: &Presence,
) -> Result<Mounted, MountError> {
    let agreed = Arc::new(OnceLock::new());
    let handshake = Handshake {
        terms: Arc::clone(&agreed),
        paged: options.paged,
    };
    let session = Session::new(handshake, dir, &config(pool, options))
        .map_err(|error| refused(&error, dir))?;
    let terms = agreed.get().copied().ok_or_else(|| MountError::Mount {
        dir: dir.to_owned(),
        reason: "the kernel did not shake hands".to_owned(),
    })?;
    let device = mounts::pool_mount_at(dir)?.map(|mount| mount.device);
    Ok(Mounted {
        session,
        terms,
        server: Arc::new(
            Server::new(fs)
                .named(presence.file())
                .cached(terms.open_flags & OPEN_DIRECT_IO == 0)
                .leasing(options.remember == Remember::Alone),
        ),
        remember: options.remember,
        name: presence.name(),
        only: (!options.allow_other).then(|| rustix::process::geteuid().as_raw()),
        dir: dir.to_owned(),
        device,
    })
}

impl Mounted {
    /// Answers requests until the mount is gone, or until `stop` says so; then marks
    /// the pool clean. `dropping` is a program that calls
    /// [`drop_pages`](crate::drop_pages) and nothing else.
    ///
    /// # Errors
    /// [`MountError::Detach`]; [`MountError::Channel`] if the kernel's channel failed.
    /// The pool has been closed then as well as could be.
    pub fn serve(self, stop: Receiver<Stop>, dropping: Command) -> Result<Ending, MountError> {
        enum Event {
            Ended(io::Result<()>),
            Asked(Stop),
        }
        let Mounted {
            session,
            terms,
            server,
            remember,
            name,
            only,
            dir,
            device,
        } = self;
        // A drop would unmount any mount on the directory by then: `fuser` 0.18 tests whether our
        // mount is gone, and has that test the wrong way round. Unmounting is done here.
        let session = ManuallyDrop::new(session);
        let lost = |source| MountError::Channel {
            dir: dir.clone(),
            source,
        };
        let notices = Device::of(session.as_fd()).map_err(lost)?;
        let dropper = Dropper::new(dropping, notices);
        revoker::start(Arc::clone(&server), dropper).map_err(lost)?;
        let adapter = Adapter::new(Arc::clone(&server), terms, remember, name, only);
        let (events, event) = channel();
        let serving = worker::start(adapter, session.as_fd(), workers()).map_err(lost)?;
        let ended = events.clone();
        thread::spawn(move || ended.send(Event::Ended(join(serving))));
        thread::spawn(move || forward(&stop, &events, Event::Asked));

        let mut ending = Ending::Unmounted;
        let mut outcome = Ok(());
        let mut wait = None;
        loop {
            let next = match wait {
                None => event.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(patience) => event.recv_timeout(patience),
            };
            match next {
                Ok(Event::Ended(result)) => {
                    outcome = result;
                    break;
                }
                Ok(Event::Asked(Stop { why, grace })) => {
                    log::info!("{why}: unmounting {}", dir.display());
                    take_away(&dir, device.as_deref());
                    wait = grace.or(wait);
                }
                Err(RecvTimeoutError::Timeout) => {
                    log::warn!(
                        "files are still open on {}: they are cut off",
                        dir.display()
                    );
                    ending = Ending::CutOff;
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let closed = server.close().map_err(MountError::Detach);
        if let Err(source) = outcome {
            take_away(&dir, device.as_deref());
            return Err(MountError::Channel { dir, source });
        }
        closed.map(|()| ending)
    }
}

/// Passes requests to stop on, until no sender of them is left.
fn forward<E>(stop: &Receiver<Stop>, events: &Sender<E>, wrap: impl Fn(Stop) -> E) {
    while let Ok(why) = stop.recv() {
        if events.send(wrap(why)).is_err() {
            return;
        }
    }
}

fn workers() -> usize {
    thread::available_parallelism().map_or(1, |n| n.get().min(WORKERS_MAX))
}

/// Waits for the end of all; the first error of any.
fn join(serving: Vec<JoinHandle<io::Result<()>>>) -> io::Result<()> {
    let panicked = |_| Err(io::Error::other("a worker panicked"));
    let ends: Vec<io::Result<()>> = serving
        .into_iter()
        .map(|worker| worker.join().unwrap_or_else(panicked))
        .collect();
    ends.into_iter().collect()
}

/// Unmounts, unless another mount has taken the directory; a busy one is detached, so that no
/// further program gets in.
fn take_away(dir: &Path, device: Option<&str>) {
    let there = mounts::pool_mount_at(dir).ok().flatten();
    if there.is_none_or(|mount| Some(mount.device.as_str()) != device) {
        return;
    }
    match unmount::unmount(dir, false) {
        Ok(()) => return,
        Err(error @ MountError::Busy { .. }) => log::warn!("{error}: detaching it"),
        Err(error) => log::error!("{error}"),
    }
    if let Err(error) = unmount::unmount(dir, true) {
        log::error!("{error}");
    }
}

fn config(pool: &Path, options: &MountOptions) -> Config {
    let root = rustix::process::geteuid().is_root();
    let mut config = Config::default();
    config.acl = if options.allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    let mut name = pool.to_string_lossy().into_owned();
    if !root {
        // fusermount3 splits its options at commas.
        name = name.replace('\\', "\\\\").replace(',', "\\,");
    }
    config.mount_options = vec![
        MountOption::FSName(name),
        // A plain option, because fuser gives its own `Subtype` to fusermount3 only.
        MountOption::CUSTOM("subtype=pmfs".to_owned()),
        MountOption::DefaultPermissions,
        pick(options.read_only, MountOption::RO, MountOption::RW),
        pick(options.suid, MountOption::Suid, MountOption::NoSuid),
        pick(options.dev, MountOption::Dev, MountOption::NoDev),
        pick(options.exec, MountOption::Exec, MountOption::NoExec),
    ];
    if options.atime == AtimeMode::Noatime {
        config.mount_options.push(MountOption::NoAtime);
    }
    config
}

fn pick<T>(condition: bool, yes: T, no: T) -> T {
    if condition { yes } else { no }
}

/// The causes in `fuser`'s error of a failed mount.
fn refused(error: &io::Error, dir: &Path) -> MountError {
    let device = Path::new("/dev/fuse");
    let reason = error.to_string();
    match error.kind() {
        io::ErrorKind::NotFound if !device.exists() => MountError::NoDevice,
        io::ErrorKind::NotFound if dir.exists() => MountError::NoHelper,
        _ if reason.contains("user_allow_other") => MountError::AllowOther,
        io::ErrorKind::PermissionDenied
            if rustix::fs::access(device, rustix::fs::Access::WRITE_OK).is_err() =>
        {
            MountError::DeviceDenied
        }
        // A directory in PATH that may not be searched hides that the helper is in none of them.
        io::ErrorKind::PermissionDenied
            if !rustix::process::geteuid().is_root() && !has_helper() =>
        {
            MountError::NoHelper
        }
        _ => MountError::Mount {
            dir: dir.to_owned(),
            reason: reason.trim().replace('\n', "; "),
        },
    }
}

fn has_helper() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join("fusermount3").is_file())
}
