//! The one module that knows `fuser`: its session, its requests ([`requests`]), its types
//! ([`translate`]).
//!
//! Contract with the kernel:
//! - Names and attributes are valid for zero seconds, so each use asks again.
//! - Files are opened for direct I/O; where the kernel (6.6 and later) offers
//!   FUSE_DIRECT_IO_ALLOW_MMAP they can be mapped all the same. Without it they are opened through
//!   the page cache, written through. The writeback cache is never asked for.
//! - FLUSH, FSYNC and FSYNCDIR are answered ENOSYS once, which tells the kernel that there is
//!   nothing to do and not to ask again: all is durable when the call that did it returns. Dirty
//!   pages of mappings are still written back by the kernel on close, fsync and msync.
//! - O_TMPFILE and INTERRUPT are unknown to `fuser` 0.18 and answered ENOSYS by it: the first
//!   becomes EOPNOTSUPP, the second means that requests are waited for (none here blocks).
//!
//! A handler that panics answers EIO and logs; the worker goes on. (A time of `i64::MIN` seconds in
//! `utimensat` makes `fuser` 0.18 itself panic, outside of any handler: the mount then ends, with
//! the pool closed.)

mod requests;
mod translate;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use pmfs::{AtimeMode, Fs};

use crate::options::MountOptions;
use crate::server::Server;
use crate::{MountError, mounts, unmount};
use requests::Adapter;

/// More workers than this only meet in the same queue.
const WORKERS_MAX: usize = 4;

/// After a signal: how long open files keep a mount, that nobody can reach any more, alive.
const GRACE: Duration = Duration::from_secs(2);

/// Why [`Mounted::serve`] is to end.
#[derive(Clone, Debug)]
pub struct Stop(
    /// For the log: "signal SIGTERM".
    pub String,
);

/// How a mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Unmounted, from outside or on request; the pool is clean.
    Unmounted,
    /// On request, while files were open: they get errors from now on. The pool is clean.
    CutOff,
}

/// A mount that the kernel knows. Requests queue up until [`Mounted::serve`].
pub struct Mounted {
    session: Session<Adapter>,
    unmounter: SessionUnmounter,
    server: Arc<Server>,
    dir: PathBuf,
}

/// Mounts an attached pool. `pool` is for show in the table of mounts: the absolute path by which
/// an unmount finds it. `dir` has to be absolute.
///
/// # Errors
/// What the kernel, or fusermount3 for who is not root, refuses.
pub fn mount(
    fs: Arc<Fs>,
    pool: &Path,
    dir: &Path,
    options: &MountOptions,
) -> Result<Mounted, MountError> {
    let server = Arc::new(Server::new(fs));
    let adapter = Adapter::new(Arc::clone(&server));
    let mut session =
        Session::new(adapter, dir, &config(pool, options)).map_err(|error| refused(&error, dir))?;
    let unmounter = session.unmount_callable();
    Ok(Mounted {
        session,
        unmounter,
        server,
        dir: dir.to_owned(),
    })
}

impl Mounted {
    /// Answers requests until the mount is gone, or until `stop` says so; then marks the pool
    /// clean.
    ///
    /// # Errors
    /// [`MountError::Detach`]; [`MountError::Channel`] if the kernel's channel failed. The pool has been
    /// closed then as well as could be.
    pub fn serve(self, stop: Receiver<Stop>) -> Result<Ending, MountError> {
        enum Event {
            Ended(io::Result<()>),
            Asked(Stop),
        }
        let Mounted {
            session,
            mut unmounter,
            server,
            dir,
        } = self;
        let (events, event) = channel();
        let ended = events.clone();
        thread::spawn(move || ended.send(Event::Ended(session.run())));
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
                Ok(Event::Asked(Stop(why))) => {
                    log::info!("{why}: unmounting {}", dir.display());
                    take_away(&mut unmounter, &dir);
                    wait = Some(GRACE);
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
            take_away(&mut unmounter, &dir);
            return Err(MountError::Channel { dir, source });
        }
        closed.map(|()| ending)
    }
}

/// Passes requests to stop on, until there is nobody who could make one.
fn forward<E>(stop: &Receiver<Stop>, events: &Sender<E>, wrap: impl Fn(Stop) -> E) {
    while let Ok(why) = stop.recv() {
        if events.send(wrap(why)).is_err() {
            return;
        }
    }
}

/// Unmounts; a busy mount is detached, so that nobody new gets in.
fn take_away(unmounter: &mut SessionUnmounter, dir: &Path) {
    let Err(error) = unmounter.unmount() else {
        return;
    };
    log::warn!("unmounting {}: {error}; detaching it", dir.display());
    // Not if it is gone, or if someone has mounted over it.
    if !matches!(mounts::pool_mount_at(dir), Ok(Some(_))) {
        return;
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
    config.n_threads =
        Some(thread::available_parallelism().map_or(1, |n| n.get().min(WORKERS_MAX)));
    config.clone_fd = true;
    let mut name = pool.to_string_lossy().into_owned();
    if !root {
        // fusermount3 splits its options at commas.
        name = name.replace('\\', "\\\\").replace(',', "\\,");
    }
    config.mount_options = vec![
        MountOption::FSName(name),
        // As a plain option, because fuser gives its own `Subtype` to fusermount3 only.
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

/// What `fuser` says of a failed mount, as causes.
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
        _ => MountError::Mount {
            dir: dir.to_owned(),
            reason: reason.trim().replace('\n', "; "),
        },
    }
}
