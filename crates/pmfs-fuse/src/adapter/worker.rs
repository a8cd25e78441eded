//! Workers: threads that take requests from the kernel one by one and answer them.

use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pmem::published;
use pmfs::{Error, PagesInTheWay};
use rustix::io::Errno;
use zerocopy::FromBytes;

use super::dispatch::{Adapter, Answer, Refusal};
use super::handshake::WRITE_MAX;
use super::locks;
use super::waiters::{Met, Waiters};
use crate::freeze::Pass;
use crate::wire::device::Device;
use crate::wire::message::{self, Body, Malformed};
use crate::wire::opcode::Opcode;
use crate::wire::reply::Reply;
use crate::wire::request::{InHeader, InterruptIn, WriteIn};

/// The bytes before the data of a write.
const BEFORE_DATA: usize = size_of::<InHeader>() + size_of::<WriteIn>();

const PAGE_BYTES: usize = 4096;

/// Enough for the engine's wait; there may be many.
const WAITER_STACK_BYTES: usize = 256 << 10;

/// Workers and stand-ins together.
const SEATS: usize = 64;

/// The longest wait for pages of a worker that has no stand-in: the mount that gives them back may
/// wait for it in turn.
const WAIT_ALONE: Duration = Duration::from_secs(5);

/// The state that all workers of a mount share.
///
/// A worker that has to wait, because the pool stands still or for pages below another mount, calls
/// a stand-in first: so requests that change nothing, and those that close a file, are answered all
/// the same. A stand-in leaves once it is one too many.
struct Crew {
    adapter: Adapter,
    /// A device for each worker; a stand-in uses that of the worker it stands in for.
    devices: Vec<Device>,
    /// The request that each worker has in hand; 0 for none (the kernel's numbers are
    /// even, and not 0).
    in_hand: [AtomicU64; SEATS],
    /// Free places in `in_hand`.
    free: Mutex<Vec<usize>>,
    /// Workers and stand-ins that wait for nothing but requests.
    ready: AtomicUsize,
    waiters: Waiters,
}

/// Starts `count` workers on the connection. Each ends when the mount does; what comes
/// of it is the first error of any.
pub(super) fn start(
    adapter: Adapter,
    connection: BorrowedFd<'_>,
    count: usize,
) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
    let devices: io::Result<Vec<Device>> = (0..count).map(|_| Device::of(connection)).collect();
    let crew = Arc::new(Crew {
        adapter,
        devices: devices?,
        in_hand: [const { AtomicU64::new(0) }; SEATS],
        free: Mutex::new((count..SEATS).collect()),
        ready: AtomicUsize::new(count),
        waiters: Waiters::default(),
    });
    (0..count)
        .map(|seat| {
            let crew = Arc::clone(&crew);
            thread::Builder::new()
                .name(format!("pmfs-worker-{seat}"))
                .spawn(move || crew.work(seat, seat, || false))
        })
        .collect()
}

impl Crew {
    /// Takes requests until the mount is gone or, after one, `enough` says so.
    fn work(
        self: &Arc<Crew>,
        seat: usize,
        device: usize,
        enough: impl Fn() -> bool,
    ) -> io::Result<()> {
        let mut room = message_room();
        // A write's data then begins on a page, and is copied from there by whole lines.
        let start = (room.as_ptr().addr() + BEFORE_DATA).wrapping_neg() % PAGE_BYTES;
        let mut reply = Reply::default();
        while let Some(len) = self.devices[device].receive(&mut room[start..])? {
            reply.clear();
            self.take(seat, device, &room[start..start + len], &mut reply);
            if enough() {
                break;
            }
        }
        Ok(())
    }

    /// Starts a stand-in that takes requests from `device` while the caller waits; `false`: there
    /// are as many as allowed.
    fn call_stand_in(self: &Arc<Crew>, device: usize) -> bool {
        let Some(seat) = self.seats().pop() else {
            return false;
        };
        let crew = Arc::clone(self);
        let began = thread::Builder::new()
            .name(format!("pmfs-stand-in-{seat}"))
            .spawn(move || {
                crew.ready.fetch_add(1, Ordering::SeqCst);
                let too_many = || {
                    let less = |ready: usize| (ready > crew.devices.len()).then(|| ready - 1);
                    let ready = &crew.ready;
                    ready
                        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
                        .is_ok()
                };
                if let Err(error) = crew.work(seat, device, too_many) {
                    log::error!("a stand-in ended: {error}");
                }
                crew.seats().push(seat);
            });
        if let Err(error) = &began {
            log::error!("no thread for a stand-in: {error}");
            self.seats().push(seat);
        }
        began.is_ok()
    }

    fn seats(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, if it has to, until a call of this kind may go on.
    fn pass(self: &Arc<Crew>, device: usize, opcode: Opcode) -> Pass<'_> {
        let server = &self.adapter.server;
        server.try_pass(opcode.changes()).unwrap_or_else(|| {
            self.ready.fetch_sub(1, Ordering::SeqCst);
            self.call_stand_in(device);
            let pass = server.pass(opcode.changes());
            self.ready.fetch_add(1, Ordering::SeqCst);
            pass
        })
    }

    /// Answers one message.
    fn take(self: &Arc<Crew>, seat: usize, from: usize, message: &[u8], reply: &mut Reply) {
        let device = &self.devices[from];
        let (header, body) = match message::split(message) {
            Ok(parts) => parts,
            Err(Malformed) => {
                log::error!("a message of {} bytes can't be right", message.len());
                if let Ok((header, _)) = InHeader::read_from_prefix(message) {
                    device.answer(header.unique, Err(Errno::IO));
                }
                return;
            }
        };
        let Some(opcode) = Opcode::of(header.opcode) else {
            return device.answer(header.unique, Err(Errno::NOSYS));
        };
        if opcode == Opcode::Interrupt {
            return self.interrupt(body);
        }
        self.in_hand[seat].store(header.unique, Ordering::SeqCst);
        published::for_caller(header.pid);
        let mut outcome = self.outcome(from, opcode, &header, body, reply);
        if opcode == Opcode::Setlkw && outcome == Err(Errno::AGAIN) {
            outcome = match self.wait(from, header, body) {
                Ok(()) => return self.in_hand[seat].store(0, Ordering::SeqCst),
                Err(errno) => Err(errno),
            };
        }
        if !opcode.is_silent() {
            device.answer(header.unique, outcome.map(|()| reply.bytes()));
        }
        reply.clear();
        self.in_hand[seat].store(0, Ordering::SeqCst);
    }

    /// Answers a request, once others have given back what is in its way.
    fn outcome(
        self: &Arc<Crew>,
        from: usize,
        opcode: Opcode,
        header: &InHeader,
        body: Body<'_>,
        reply: &mut Reply,
    ) -> Result<(), Errno> {
        loop {
            let pass = self.pass(from, opcode);
            let mut elsewhere = None;
            reply.grant = self.adapter.server.begin_answer();
            let outcome = guard(opcode, || {
                let answer = self.adapter.dispatch(opcode, header, body, reply);
                if let Err(Refusal::Engine(Error::PagesElsewhere(pages))) = &answer {
                    elsewhere = Some(**pages);
                }
                answer
            });
            // The pass is given back before the wait: a save that makes the pool stand still would
            // wait for it.
            drop(pass);
            let Some(pages) = elsewhere else {
                return outcome;
            };
            reply.clear();
            guard(opcode, || Ok(self.wait_for_pages(from, pages)?))?;
        }
    }

    /// Waits for another mount's kernel, or for this one's to drop pages. The other kernel may wait
    /// for this one's pages, so a stand-in has to answer meanwhile.
    fn wait_for_pages(self: &Arc<Crew>, device: usize, pages: PagesInTheWay) -> pmfs::Result<()> {
        self.ready.fetch_sub(1, Ordering::SeqCst);
        let limit = (!self.call_stand_in(device)).then_some(WAIT_ALONE);
        let waited = self.adapter.server.wait_for_pages(pages, limit);
        self.ready.fetch_add(1, Ordering::SeqCst);
        waited
    }

    /// Hands a lock that has to be waited for to a thread of its own, which answers.
    ///
    /// # Errors
    /// ENOLCK: too many wait.
    fn wait(self: &Arc<Crew>, from: usize, header: InHeader, body: Body<'_>) -> Result<(), Errno> {
        let asked = locks::lock_request(&header, body).map_err(|_| Errno::INVAL)?;
        let unique = header.unique;
        let interrupted = self.waiters.begin(unique).ok_or(Errno::NOLCK)?;
        let crew = Arc::clone(self);
        let waiter = thread::Builder::new()
            .name("pmfs-waiter".to_owned())
            .stack_size(WAITER_STACK_BYTES);
        let began = waiter.spawn(move || {
            let outcome = guard(Opcode::Setlkw, || {
                let interrupted = || interrupted.load(Ordering::SeqCst);
                crew.adapter.wait_for_lock(&asked, &interrupted)
            });
            crew.devices[from].answer(unique, outcome.map(|()| &[][..]));
            crew.waiters.end(unique);
        });
        if let Err(error) = began {
            log::error!("no thread to wait for a lock: {error}");
            self.waiters.end(unique);
            return Err(Errno::NOLCK);
        }
        Ok(())
    }

    /// A caller that waits for an answer has got a signal. A caller that waits for a lock is told;
    /// a request that a worker has in hand is finished. A request that none has was answered, or
    /// was read a moment ago and not yet noted: the kernel knows which, and says it again if need
    /// be.
    fn interrupt(&self, mut body: Body<'_>) {
        let Ok(InterruptIn { unique }) = body.take() else {
            return;
        };
        let in_hand = |unique| {
            let has = |slot: &AtomicU64| slot.load(Ordering::SeqCst) == unique;
            self.in_hand.iter().any(has)
        };
        if self.waiters.interrupt(unique, in_hand) == Met::Unknown {
            for device in &self.devices {
                device.interrupt_again(unique);
            }
        }
    }
}

/// For any message, wherever in its first page it begins.
pub(super) fn message_room() -> Vec<u8> {
    vec![0; BEFORE_DATA + WRITE_MAX as usize + 2 * PAGE_BYTES]
}

/// Turns what comes of a request into a number; survives panics.
fn guard(opcode: Opcode, work: impl FnOnce() -> Answer) -> Result<(), Errno> {
    let name = opcode.name();
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Refusal::Number(errno))) => Err(errno),
        Ok(Err(Refusal::Engine(error))) => {
            let errno = error.errno();
            if errno == Errno::IO {
                log::error!("{name}: {error}");
            }
            Err(errno)
        }
        Ok(Err(Refusal::Malformed)) => {
            log::error!("{name}: the message can't be right; answered EIO");
            Err(Errno::IO)
        }
        Err(panic) => {
            log::error!("{name} panicked: {}; answered EIO", words(&*panic));
            Err(Errno::IO)
        }
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::handshake::Terms;
    use crate::server::Server;
    use pmfs_posix::mount_options::Remember;
    use zerocopy::IntoBytes;

    fn adapter(dir: &tempfile::TempDir, only: Option<u32>) -> Adapter {
        let server = Arc::new(Server::new(crate::temporary::pool(dir)));
        let terms = Terms {
            open_flags: 0,
            acls: true,
        };
        Adapter::new(server, terms, Remember::Always, 1, only)
    }

    fn message(opcode: u32, nodeid: u64, body: &[u8]) -> Vec<u8> {
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode,
            unique: 2,
            nodeid,
            uid: 7,
            gid: 7,
            pid: 0,
            total_extlen: 0,
            padding: 0,
        };
        [header.as_bytes(), body].concat()
    }

    fn ask(adapter: &Adapter, message: &[u8], reply: &mut Reply) -> Result<(), Errno> {
        reply.clear();
        let (header, body) = message::split(message).unwrap();
        let opcode = Opcode::of(header.opcode).unwrap();
        guard(opcode, || adapter.dispatch(opcode, &header, body, reply))
    }

    /// Goal: requests are answered after a panic too, and none is after the end.
    #[test]
    fn panics_and_errors_become_numbers() {
        let dir = crate::temporary::dir();
        let adapter = adapter(&dir, None);
        let reply = &mut Reply::default();
        let panicked = guard(Opcode::Lookup, || {
            let work = |_: &Server| -> pmfs::Result<()> { panic!("on purpose") };
            adapter.run(work)
        });
        assert_eq!(panicked, Err(Errno::IO));
        let lookup = message(Opcode::Lookup as u32, 1, b"absent\0");
        assert_eq!(ask(&adapter, &lookup, reply), Err(Errno::NOENT));
        let getattr = message(Opcode::Getattr as u32, 1, &[0; 16]);
        assert_eq!(ask(&adapter, &getattr, reply), Ok(()));
        assert_eq!(reply.bytes().len(), 104);
        adapter.server.close().unwrap();
        assert_eq!(ask(&adapter, &getattr, reply), Err(Errno::IO));
    }

    /// Goal: no message, however it is cut or filled, ends a worker or reaches beyond itself.
    /// Method: each operation with bodies of each length, of zeros, of ones and of a pattern.
    #[test]
    fn no_message_is_too_short() {
        let dir = crate::temporary::dir();
        let adapter = adapter(&dir, None);
        let reply = &mut Reply::default();
        for number in (0..64).filter(|&number| Opcode::of(number).is_some()) {
            let opcode = Opcode::of(number).unwrap();
            for (len, fill) in (0..120).flat_map(|len| [0, 0xff, 0x41].map(|fill| (len, fill))) {
                let message = message(number, 1, &vec![fill; len]);
                let (header, body) = message::split(&message).unwrap();
                reply.clear();
                // A panic is what must not come of it.
                let _ = adapter.dispatch(opcode, &header, body, reply);
            }
        }
        let short = message(Opcode::Write as u32, 1, &[0; 39]);
        assert_eq!(ask(&adapter, &short, reply), Err(Errno::IO));
    }

    /// Goal: requests of the kernel itself pass; all others are for the one user.
    #[test]
    fn others_stay_out() {
        let dir = crate::temporary::dir();
        let reply = &mut Reply::default();
        let adapter = adapter(&dir, Some(8));
        let getattr = message(Opcode::Getattr as u32, 1, &[0; 16]);
        assert_eq!(ask(&adapter, &getattr, reply), Err(Errno::ACCESS));
        let release = message(Opcode::Releasedir as u32, 1, &[0; 24]);
        assert_eq!(ask(&adapter, &release, reply), Ok(()));
    }
}
