//! A third instance in the middle of a call while another one dies: a thread that stops at one of
//! its fences, with its locks held and its lane open, and goes on when the dead one has been
//! cleaned up after.

use crate::files::pool::NODE;
use crate::kill::shared;
use crate::trace::{Place, Recorder};
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use pmfs::{Clock, DataMode, Fs, ROOT_INO, RenameFlags};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Fences of the third call, at each of which it may stop: after its log, and after its stores with
/// their commit checksum.
const STOPS: u64 = 2;

/// Stops its thread at a fence.
pub(crate) struct Pauser {
    pub recorder: Recorder,
    /// Fences until it stops; 0: it has.
    pub left: AtomicU64,
    pub paused: SyncSender<()>,
    pub go: Mutex<Receiver<()>>,
}

impl Observer for Pauser {
    fn store(&self, mem: &Pmem, off: u64, bytes: &[u8], kind: StoreKind, at: Place) -> Verdict {
        self.recorder.store(mem, off, bytes, kind, at)
    }

    fn flush(&self, mem: &Pmem, line: u64, asked: (u64, u64), at: Place) {
        self.recorder.flush(mem, line, asked, at);
    }

    fn fence(&self, mem: &Pmem, at: Place) {
        self.recorder.fence(mem, at);
        let left = self.left.load(Ordering::SeqCst);
        if left > 0 {
            self.left.store(left - 1, Ordering::SeqCst);
            if left == 1 {
                self.paused.send(()).expect("the other end is there");
                let go = self.go.lock().expect("one thread");
                go.recv().expect("the other end is there");
            }
        }
    }
}

/// Lets a stopped third call go on: whoever sleeps on a lock that it may hold does this first.
#[derive(Clone)]
pub(crate) struct Release(pub SyncSender<()>);

impl Release {
    /// Lets it go on, or lets its next stop be none.
    pub fn release(&self) {
        let _ = self.0.try_send(());
    }
}

/// The observer of the survivor: a recorder, who lets the third call go on before it sleeps.
pub(crate) struct Survivor {
    pub recorder: Recorder,
    pub release: Mutex<Option<Release>>,
}

impl Observer for Survivor {
    fn store(&self, mem: &Pmem, off: u64, bytes: &[u8], kind: StoreKind, at: Place) -> Verdict {
        self.recorder.store(mem, off, bytes, kind, at)
    }

    fn flush(&self, mem: &Pmem, line: u64, asked: (u64, u64), at: Place) {
        self.recorder.flush(mem, line, asked, at);
    }

    fn fence(&self, mem: &Pmem, at: Place) {
        self.recorder.fence(mem, at);
    }

    fn wait(&self, _mem: &Pmem, _off: u64) {
        if let Some(release) = &*self.release.lock().expect("no panic while it is held") {
            release.release();
        }
    }
}

/// The time at which its clock begins, each time.
const START: i64 = 3_000_000;

/// The third instance and its thread.
pub(crate) struct Third {
    clock: Arc<AtomicI64>,
    pauser: Arc<Pauser>,
    begin: Option<SyncSender<()>>,
    /// Something to wait for: it paused, or it ended.
    paused: Receiver<()>,
    go: SyncSender<()>,
    ended: Receiver<pmfs::Result<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Third {
    /// Makes what its call works on: a file in a directory of its own.
    pub fn prepare(fs: &Fs) -> pmfs::Result<()> {
        let dir = fs.mkdir(ROOT_INO, b"third", &NODE)?.ino;
        let file = fs.create(dir, b"before", &NODE)?.ino;
        fs.write(file, 0, b"of the third").map(drop)
    }

    /// Attaches, and waits.
    pub fn attach(path: &Path, mode: DataMode, recorder: Recorder) -> pmfs::Result<Third> {
        let (paused_tx, paused) = sync_channel(1);
        let (go, go_rx) = sync_channel(1);
        let (begin, begin_rx) = sync_channel::<()>(1);
        let (ended_tx, ended) = sync_channel(1);
        let pauser = Arc::new(Pauser {
            recorder,
            left: AtomicU64::new(0),
            paused: paused_tx,
            go: Mutex::new(go_rx),
        });
        let clock = Arc::new(AtomicI64::new(START));
        let mut options = shared(mode, START);
        options.clock = Clock::Steps(clock.clone());
        options.observer = Some(pauser.clone());
        let fs = Fs::open(path, &options)?;
        let dir = fs.lookup(ROOT_INO, b"third")?.ino;
        let thread = std::thread::spawn(move || {
            while begin_rx.recv().is_ok() {
                let done = fs.rename(dir, b"before", dir, b"after", RenameFlags::empty());
                if ended_tx.send(done).is_err() {
                    return;
                }
            }
        });
        Ok(Third {
            clock,
            pauser,
            begin: Some(begin),
            paused,
            go,
            ended,
            thread: Some(thread),
        })
    }

    /// Begins the call, and returns when it has stopped at one of its fences, which `n` chooses.
    pub fn begin(&self, n: u64) {
        self.clock.store(START, Ordering::SeqCst);
        self.pauser.recorder.pause();
        self.pauser.left.store(n % STOPS + 1, Ordering::SeqCst);
        let begin = self.begin.as_ref().expect("not dropped");
        begin.send(()).expect("its thread is there");
        self.paused.recv().expect("its thread is there");
    }

    /// Records what it does from here on.
    pub fn record(&self) {
        self.pauser.recorder.start();
    }

    /// Returns what lets it go on.
    pub fn release(&self) -> Release {
        Release(self.go.clone())
    }

    /// Lets it go on to its end.
    pub fn end(&self) -> Result<(), String> {
        let _ = self.go.try_send(());
        let done = self.ended.recv().expect("its thread is there");
        // Two may have told it to go on.
        let _ = self.pauser.go.lock().expect("one thread").try_recv();
        done.map_err(|error| format!("the third call: {error}"))
    }
}

impl Drop for Third {
    fn drop(&mut self) {
        let _ = self.go.try_send(());
        self.begin = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
