//! The private mount of `pmfs run` lasts as long as a program of any run below it does,
//! also one in the background.
//!
//! Its daemon has a socket in the abstract name space, by the mount's name. Each run connects to
//! it, and all its programs inherit the connection, at a number that the preloaded library keeps
//! open: the kernel ends it with the last of them, however they end. When there is none left the
//! daemon takes its mount away. A run that comes then is told so, and makes another one.
//!
//! A connection begins with one byte, which says what it is for, and is answered with one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use pmfs_fuse::mounts::PoolMount;
use pmfs_fuse::{Stop, mounts, presence, unmount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Resource, getrlimit};

use crate::failure::Failure;
use crate::umount;

/// The number of the connection, counted from the end of the library's own.
const FROM_TOP: u64 = 2;
/// The library keeps its own descriptors, and what this command leaves open for it,
/// below this number or the limit (`OWN_END` in
/// `crates/pmfs-shim/src/descriptors/mod.rs`): others a program may close.
pub const OWN_END: u64 = 1024;

/// Other processes of the run that have not ended after this time go on. A program's grandchildren
/// are not waited for, and one that is about to end with the program has its descriptors until it
/// is gone.
const ENDING: Duration = Duration::from_millis(200);

/// The process that had the mount made may end before it uses it.
const FIRST_USE: Duration = Duration::from_secs(10);

/// The wait after an error that should not happen.
const PAUSE: Duration = Duration::from_millis(100);

/// The uses of a connection: the mount stays as long as it does; or it tells when the mount goes.
const USES: u8 = b'u';
const WATCHES: u8 = b'w';
/// Answers: it stays; it is going.
const STAYS: u8 = b's';
const GOES: u8 = b'g';

fn address(name: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("pmfs-mount-{name:08x}"))
}

/// A run's hold on a private mount.
#[derive(Debug)]
pub struct Keeper {
    mount: PoolMount,
    using: OwnedFd,
    watching: UnixStream,
}

/// The state in which a mount is found.
#[derive(Debug)]
pub enum Found {
    /// The mount stays for this run.
    Kept(Box<Keeper>),
    /// The mount stays anyway.
    Stays,
    /// The mount is gone.
    Gone,
}

impl Keeper {
    /// Uses a mount, if it is a private one.
    pub fn join(mount: &PoolMount) -> Result<Found, Failure> {
        let name = File::open(&mount.dir).and_then(|root| presence::name_of(&root));
        let watching = name.and_then(|name| connect_to(address(name), WATCHES));
        let Ok((mut watching, answer)) = watching else {
            // Nothing listens: the mount is no private one, or has just gone.
            let is_there = is_there(mount)?;
            return Ok(if is_there { Found::Stays } else { Found::Gone });
        };
        let using = connect_to(watching.peer_addr(), USES);
        let (Ok((using, STAYS)), STAYS) = (using, answer) else {
            let _ = watching.read_to_end(&mut Vec::new());
            return Ok(Found::Gone);
        };
        let using = numbered(&using).map_err(|error| {
            let dir = mount.dir.display();
            Failure::new(format!("using the mount on {dir}: {error}"), "try again")
        })?;
        Ok(Found::Kept(Box::new(Keeper {
            mount: mount.clone(),
            using,
            watching,
        })))
    }

    /// From here on every process that is started inherits the connection; at which number.
    pub fn number(&self) -> io::Result<i32> {
        fcntl_setfd(&self.using, FdFlags::empty())?;
        Ok(self.using.as_raw_fd())
    }

    /// The program has ended: waits for the end of the mount, unless others use it. A mount whose
    /// daemon was killed is taken away.
    pub fn end(self) {
        let Keeper {
            mount,
            using,
            mut watching,
        } = self;
        drop(using);
        // The mount is about to go, or the daemon is gone.
        if is_readable(&watching, Some(ENDING)) {
            let _ = watching.read_to_end(&mut Vec::new());
        }
        let was_killed = is_there(&mount).unwrap_or(false) && umount::is_gone(&mount.dir);
        if was_killed {
            let _ = unmount::unmount(&mount.dir, true);
        }
    }
}

fn is_there(mount: &PoolMount) -> Result<bool, Failure> {
    let there = mounts::pool_mount_at(&mount.dir)?;
    Ok(there.is_some_and(|there| there.device == mount.device))
}

/// Connected to a daemon; and its answer.
fn connect_to(address: io::Result<SocketAddr>, purpose: u8) -> io::Result<(UnixStream, u8)> {
    let mut stream = UnixStream::connect_addr(&address?)?;
    stream.write_all(&[purpose])?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    Ok((stream, answer[0]))
}

/// At a number that programs leave alone, and that none is given by chance.
fn numbered(stream: &UnixStream) -> io::Result<OwnedFd> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(OWN_END);
    let number = limit.min(OWN_END).saturating_sub(FROM_TOP);
    Ok(fcntl_dupfd_cloexec(
        stream,
        i32::try_from(number).unwrap_or(0),
    )?)
}

fn is_readable(stream: &UnixStream, patience: Option<Duration>) -> bool {
    let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
    let mut waiting = [PollFd::new(stream, PollFlags::IN)];
    poll(&mut waiting, patience.as_ref()).is_ok_and(|ready| ready > 0)
}

/// The daemon's side: the users of its mount.
struct Users {
    listener: UnixListener,
    /// Have not said what they are for.
    new: Vec<UnixStream>,
    using: Vec<UnixStream>,
    watching: Vec<UnixStream>,
    /// The time since which no program has used it.
    unused_since: Option<Instant>,
    is_going: bool,
}

/// Listens for users of the mount of that name; when the last has gone, `stop` is told.
pub fn listen(name: u32, stop: Sender<Stop>) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::new(format!("the mount's keeper: {error}"), "try again");
    let listener = address(name).and_then(|address| UnixListener::bind_addr(&address));
    let listener = listener.map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let mut users = Users {
        listener,
        new: Vec::new(),
        using: Vec::new(),
        watching: Vec::new(),
        unused_since: Some(Instant::now()),
        is_going: false,
    };
    let keeper = thread::Builder::new().name("pmfs-keeper".to_owned());
    let work = move || {
        loop {
            users.wait();
            users.accept();
            users.hear();
            if !users.is_going && users.is_over() {
                users.go();
                if stop
                    .send(Stop::at_end("no program uses it any more"))
                    .is_err()
                {
                    return;
                }
            }
        }
    };
    keeper.spawn(work).map(drop).map_err(failed)
}

impl Users {
    fn wait(&self) {
        let streams = [&self.new, &self.using, &self.watching];
        let mut all = vec![PollFd::new(&self.listener, PollFlags::IN)];
        all.extend(
            streams
                .into_iter()
                .flatten()
                .map(|stream| PollFd::new(stream, PollFlags::IN)),
        );
        let patience = self.unused_since.map(|_| FIRST_USE);
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        if poll(&mut all, patience.as_ref()).is_err() {
            // Too little memory, or a signal.
            thread::sleep(PAUSE);
        }
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => self.new.push(stream),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    log::error!("no further user of the mount can be noted: {error}");
                    return thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Takes in messages, and the end of users.
    fn hear(&mut self) {
        let answer = [if self.is_going { GOES } else { STAYS }];
        for mut stream in std::mem::take(&mut self.new) {
            let mut purpose = [0];
            match (stream.read(&mut purpose), purpose) {
                (Ok(1), [USES]) if stream.write_all(&answer).is_ok() => {
                    self.unused_since = None;
                    self.using.push(stream);
                }
                (Ok(1), [WATCHES]) if stream.write_all(&answer).is_ok() => {
                    self.watching.push(stream)
                }
                (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.new.push(stream)
                }
                _ => {}
            }
        }
        self.using.retain_mut(is_open);
        self.watching.retain_mut(is_open);
    }

    fn is_over(&self) -> bool {
        let unused = self.unused_since.map(|since| since.elapsed());
        self.using.is_empty()
            && self.new.is_empty()
            && unused.is_none_or(|unused| unused >= FIRST_USE)
    }

    fn go(&mut self) {
        self.is_going = true;
        self.unused_since = None;
        self.watching
            .retain_mut(|stream| stream.write_all(&[GOES]).is_ok());
    }
}

/// No peer sends more than one byte.
fn is_open(stream: &mut UnixStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(read) => read > 0,
        Err(error) => matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
        ),
    }
}
