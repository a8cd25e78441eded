//! The kill model of a heap: a process is stopped before its n-th store of any kind, flush or
//! fence, while a third one is in the middle of a transaction; another one cleans up on the live
//! memory. Then the third goes on, what is there is compared, power fails, and what was seen must
//! still be there. No place and no chunk may stay taken.

use super::{Act, Attached, HEAP_BYTES, Heaps, MEMORY_BYTES, SLOTS, Seen, Step};
use super::{file_for, set, text, word};
use crate::kill::{Killer, OFF};
use crate::memory::Pending;
use crate::program::Program;
use crate::quiet::quietly;
use crate::stopper::Killed;
use crate::third::{Pauser, Release, Survivor};
use crate::trace::{Place, Recorder};
use pmem::record::{Observer, StoreKind, Verdict};
use pmem::{MapOptions, Pmem};
use pmlib::{Error, Heap, Options};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The third one's objects: chunks of its own, and one beside the others'.
pub(super) const APART: u64 = 6;
pub(super) const BESIDE: u64 = 7;
/// Bytes of the former.
pub(super) const APART_BYTES: u64 = 120_000;
/// The word that it stores in one of them.
const MARK: u64 = 0x3333;
/// The greater of the words that stood there.
const OLD: u64 = 1;
/// Where it waits meanwhile: with a chunk locked that nobody needs, with one that all need, and
/// before its commit.
const VARIANTS: u64 = 3;

/// The call in which the process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A step of the workload.
    Step(usize),
    /// It attaches.
    Attach,
    /// It leaves.
    Leave,
    /// It cleans up after one that was killed before that many stores of the first step.
    Rescue(u64),
}

/// How the survivor finds out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finds {
    /// It looks for the dead.
    Looking,
    /// It needs what they held.
    Waiting,
}

/// A program on a heap in a file, whose calls are killed. The heap's root is a directory with
/// objects of the third one.
pub trait OnHeap: Program<Visible: Debug + PartialEq> {
    /// Its heap's; the bytes that it may grow to are its file's.
    fn options(&self) -> Options;

    /// An attachment to its heap.
    fn running(heap: Heap) -> Self::Running;

    /// The heap of an attachment.
    fn heap(running: &Self::Running) -> &Heap;

    /// The heap back, with nothing closed.
    fn into_heap(running: Self::Running) -> Heap;

    /// Makes the third one's objects.
    ///
    /// # Errors
    /// The heap's.
    fn make_beside(&self, running: &mut Self::Running) -> Result<(), Error>;

    /// The state that can be seen.
    ///
    /// # Errors
    /// The heap's.
    fn look(heap: &Heap) -> Result<Self::Visible, Error>;

    /// Whether all of the heap is accounted for.
    ///
    /// # Errors
    /// The difference, in words.
    fn check_all(heap: &Heap) -> Result<(), String>;

    /// Needs what most calls hold.
    ///
    /// # Errors
    /// The heap's.
    fn touch(heap: &Heap) -> Result<(), Error> {
        touch_beside(heap)
    }

    /// Whether a state is the expected one, but for what the third one did, and, if it was
    /// `touched`, the survivor.
    fn is_same(seen: &Self::Visible, expected: &Self::Visible, touched: bool) -> bool;
}

impl OnHeap for Heaps {
    fn options(&self) -> Options {
        Heaps::options(self)
    }

    fn running(heap: Heap) -> Attached {
        Attached { heap, second: None }
    }

    fn heap(running: &Attached) -> &Heap {
        &running.heap
    }

    fn into_heap(running: Attached) -> Heap {
        running.heap
    }

    fn make_beside(&self, running: &mut Attached) -> Result<(), Error> {
        let acts = [Act::Make(APART, APART_BYTES), Act::Make(BESIDE, 64)];
        self.run(running, &Step::One(0, acts.to_vec()), 0)
    }

    fn look(heap: &Heap) -> Result<Seen, Error> {
        super::look(heap)
    }

    fn check_all(heap: &Heap) -> Result<(), String> {
        super::check(heap)
    }

    fn is_same(seen: &Seen, expected: &Seen, touched: bool) -> bool {
        let mut expected = expected.clone();
        if let (true, Some(words)) = (touched, &mut expected[BESIDE as usize]) {
            words[1] += 2;
        }
        same(seen, &expected)
    }
}

/// Adds one to a word that nobody else changes, in a chunk that most need.
pub(super) fn touch_beside(heap: &Heap) -> Result<(), Error> {
    let directory = heap.root_offset()?;
    // The dead one may have any lane.
    heap.tx(|tx| {
        let object = word(tx, directory, BESIDE * 8)?;
        let value = word(tx, object, 8)?;
        set(tx, object, 8, value + 1)
    })
}

fn options(program: &impl OnHeap) -> Options {
    Options {
        lanes: 4,
        ..program.options()
    }
}

/// The third process: a thread in the middle of a transaction.
struct Third {
    go: SyncSender<()>,
    pauser: Arc<Pauser>,
    thread: Option<JoinHandle<Result<Heap, String>>>,
    /// It stays attached, and lives.
    heap: Option<Heap>,
}

impl Third {
    /// Begins its transaction, and waits until it has stopped.
    fn begin(path: &Path, options: &Options, variant: u64, recorder: Recorder) -> Third {
        let (paused, is_paused) = sync_channel(2);
        let (go, may_go) = sync_channel(1);
        let pauser = Arc::new(Pauser {
            recorder,
            left: AtomicU64::new(0),
            paused,
            go: Mutex::new(may_go),
        });
        let (path, options, observer) = (path.to_path_buf(), *options, pauser.clone());
        let thread = std::thread::spawn(move || {
            let done = quietly(|| Third::run(&path, &options, variant, &observer));
            // An error before it paused shows at its end.
            let _ = observer.paused.try_send(());
            done.and_then(|done| done.map_err(text))
        });
        let _ = is_paused.recv();
        Third {
            go,
            pauser,
            thread: Some(thread),
            heap: None,
        }
    }

    fn run(
        path: &Path,
        options: &Options,
        variant: u64,
        observer: &Arc<Pauser>,
    ) -> Result<Heap, Error> {
        let heap = Heap::open_observed(path, options, observer.clone())?;
        let directory = heap.root_offset()?;
        let mut tx = heap.begin_on(3);
        let slot = if variant == 0 { APART } else { BESIDE };
        let object = word(&tx, directory, slot * 8)?;
        set(&mut tx, object, 0, MARK)?;
        if variant == 2 {
            let made = tx.alloc(64)?;
            tx.lock(object)?;
            tx.free(made)?;
            let _ = observer.paused.send(());
            let _ = observer.go.lock().expect("one thread").recv();
        } else {
            observer.left.store(1, Ordering::SeqCst);
        }
        heap.commit(tx)?;
        Ok(heap)
    }

    fn end(&mut self) -> Result<(), String> {
        let _ = self.go.try_send(());
        let thread = self.thread.take().expect("it ends once");
        let done = thread.join().map_err(|_| "the third one panicked")?;
        self.heap = Some(done.map_err(|error| format!("the third one: {error}"))?);
        Ok(())
    }
}

impl Drop for Third {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.end();
        }
        drop(self.heap.take().map(Heap::into_memory));
    }
}

/// A heap in a file, and the one who survives.
struct Arena<'a, P: OnHeap> {
    program: &'a P,
    path: PathBuf,
    other: Heap,
    survivor: Arc<Survivor>,
    third: Third,
}

impl<P: OnHeap> Drop for Arena<'_, P> {
    fn drop(&mut self) {
        if let Some(dir) = self.path.parent() {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

impl<'a, P: OnHeap> Arena<'a, P> {
    fn new(program: &'a P, variant: u64) -> Result<Arena<'a, P>, String> {
        let options = options(program);
        let mem = file_for(MEMORY_BYTES)?;
        mem.poke(0, &vec![0xdb; MEMORY_BYTES as usize]);
        Heap::format(&mem, HEAP_BYTES, &options).map_err(text)?;
        let path = mem.path().expect("a file").to_path_buf();
        let survivor = Arc::new(Survivor {
            recorder: Recorder::new(Heap::volatile(&mem)).beside(1),
            release: Mutex::default(),
        });
        drop(mem);
        let open = || Heap::open_observed(&path, &options, survivor.clone());
        let mut running = P::running(open().map_err(text)?);
        program.prepare(&mut running)?;
        program.make_beside(&mut running).map_err(text)?;
        let third = Third::begin(&path, &options, variant, survivor.recorder.beside(2));
        *survivor.release.lock().expect("nobody has it") = Some(Release(third.go.clone()));
        Ok(Arena {
            program,
            path,
            other: P::into_heap(running),
            survivor,
            third,
        })
    }

    /// A process that is going to be killed.
    fn victim(&self) -> Arc<Killer> {
        Arc::new(Killer {
            left: AtomicU64::new(OFF),
            recorder: self.survivor.recorder.beside(0),
            release: Release(self.third.go.clone()),
        })
    }

    fn attach(&self, observer: Arc<dyn Observer>) -> Result<P::Running, String> {
        let heap = Heap::open_observed(&self.path, &options(self.program), observer);
        Ok(P::running(heap.map_err(text)?))
    }

    /// Kills a process before the n-th store of `call`; `false`: that came to its end before.
    fn killed(
        &self,
        killer: &Killer,
        stores: u64,
        call: impl FnOnce() -> Result<(), String>,
    ) -> Result<bool, String> {
        killer.recorder.start();
        killer.left.store(stores, Ordering::Relaxed);
        let answer = catch_unwind(AssertUnwindSafe(call));
        match answer {
            Ok(answer) => {
                killer.left.store(OFF, Ordering::Relaxed);
                answer?;
                Ok(false)
            }
            Err(payload) if payload.is::<Killed>() => Ok(true),
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Steps before the one in question.
    fn run_to(&self, victim: &mut P::Running, steps: usize) -> Result<(), String> {
        for step in 0..steps {
            self.program.step(victim, step)?;
        }
        Ok(())
    }

    /// One process does what is asked and is killed; `None`: it came to its end before.
    fn die(&self, what: What, stores: u64) -> Result<Option<Pending>, String> {
        let killer = self.victim();
        let observer = || killer.clone() as Arc<dyn Observer>;
        let begin = || {
            self.survivor.recorder.start();
            self.third.pauser.recorder.start();
            Pending::new(image(&self.path))
        };
        let (pending, is_dead) = match what {
            What::Attach => {
                let pending = begin();
                let attach = || {
                    forget::<P>(self.attach(observer())?);
                    Ok(())
                };
                (pending, self.killed(&killer, stores, attach)?)
            }
            What::Step(step) => {
                let mut victim = self.attach(observer())?;
                self.run_to(&mut victim, step)?;
                let pending = begin();
                let run = || self.program.step(&mut victim, step);
                let is_dead = self.killed(&killer, stores, run)?;
                forget::<P>(victim);
                (pending, is_dead)
            }
            What::Leave => {
                let mut victim = self.attach(observer())?;
                self.run_to(&mut victim, self.program.steps())?;
                let pending = begin();
                let leave = || P::heap(&victim).leave().map_err(text);
                let is_dead = self.killed(&killer, stores, leave)?;
                forget::<P>(victim);
                (pending, is_dead)
            }
            What::Rescue(first) => {
                let mut victim = self.attach(observer())?;
                let second = self.victim();
                let rescuer = self.attach(second.clone())?;
                let pending = begin();
                let run = || self.program.step(&mut victim, 0);
                let is_first_dead = self.killed(&killer, first, run)?;
                forget::<P>(victim);
                let rescue = || P::heap(&rescuer).recover_dead().map(drop).map_err(text);
                let is_dead = self.killed(&second, stores, rescue)?;
                forget::<P>(rescuer);
                (pending, is_first_dead && is_dead)
            }
        };
        Ok(is_dead.then_some(pending))
    }

    /// Cleans up, lets the third one go on, and judges what is there; answers whether what the dead
    /// one did was undone.
    fn judge(
        mut self,
        what: What,
        finds: Finds,
        mut pending: Pending,
        history: &[P::Visible],
    ) -> Result<bool, String> {
        if finds == Finds::Waiting {
            for _ in 0..2 {
                P::touch(&self.other).map_err(text)?;
            }
        }
        self.other.recover_dead().map_err(text)?;
        self.third.end()?;
        P::check_all(&self.other)?;
        let seen = P::look(&self.other).map_err(text)?;
        // A look for a log's end makes it durable before it is seen.
        pending.apply_all(&self.survivor.recorder.stop());
        let allowed = match what {
            What::Step(step) => &history[step..step + 2],
            What::Attach => &history[..1],
            What::Leave => &history[history.len() - 1..],
            What::Rescue(_) => &history[..2],
        };
        let is = |state: &P::Visible| P::is_same(&seen, state, finds == Finds::Waiting);
        if !allowed.iter().any(is) {
            return Err(format!("seen: {seen:?}\nallowed: {allowed:?}"));
        }
        let durable = attached(&pending.durable).map_err(|text| format!("power loss: {text}"))?;
        P::check_all(&durable).map_err(|text| format!("power loss: {text}"))?;
        let after = P::look(&durable).map_err(text)?;
        if after != seen {
            return Err(format!("then power loss: {after:?}, before it: {seen:?}"));
        }
        let undone = is(&allowed[0]);
        let (seen, is_sound) = match what {
            What::Step(step) => self
                .do_it_again(step, &mut pending)
                .map_err(|text| format!("again by another process: {text}"))?,
            _ => (seen, true),
        };
        // The same if nothing is lost but the processes. All that is volatile is made anew then,
        // and there is no more room.
        let anew = attached(&image(&self.path)).map_err(|text| format!("all dead: {text}"))?;
        if is_sound {
            P::check_all(&anew).map_err(|text| format!("all dead: {text}"))?;
        }
        let after = P::look(&anew).map_err(text)?;
        if after != seen {
            return Err(format!("then all die: {after:?}, before it: {seen:?}"));
        }
        let (room, all) = (fill(&self.other)?, fill(&anew)?);
        if room != all {
            return Err(format!(
                "room for {room:?} objects, and there are {all:?} places"
            ));
        }
        self.other.check().map_err(text)?;
        Ok(undone)
    }

    /// Another process makes the dead one's call, and power fails: it must not trust a store that
    /// the dead one made and did not flush. Answers what is seen then, and whether the heap is
    /// sound: a call that is made twice may forget an object.
    fn do_it_again(
        &self,
        step: usize,
        pending: &mut Pending,
    ) -> Result<(P::Visible, bool), String> {
        let watched = self.victim();
        watched.recorder.start();
        let mut again = self.attach(watched.clone())?;
        // A call that was done before its caller's death may fail now.
        let _ = self.program.step(&mut again, step);
        pending.apply_all(&watched.recorder.stop());
        let seen = P::look(&self.other).map_err(text)?;
        forget::<P>(again);
        self.other.recover_dead().map_err(text)?;
        let is_sound = P::check_all(&self.other).is_ok();
        let durable = attached(&pending.durable).map_err(|text| format!("power loss: {text}"))?;
        if is_sound {
            P::check_all(&durable).map_err(|text| format!("power loss: {text}"))?;
        }
        let after = P::look(&durable).map_err(text)?;
        match after == seen {
            true => Ok((seen, is_sound)),
            false => Err(format!("then power loss: {after:?}, before it: {seen:?}")),
        }
    }
}

/// The bytes of a heap's file as all see them.
fn image(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

fn attached(bytes: &[u8]) -> Result<Heap, String> {
    let mem = Pmem::private(bytes.len() as u64);
    mem.poke(0, bytes);
    Heap::attach(mem).map_err(text)
}

/// Whether two states are the same, but for what the third one did, of whose objects only one
/// changes.
fn same(seen: &Seen, expected: &Seen) -> bool {
    let pairs = seen.iter().zip(expected).enumerate();
    seen.len() == expected.len()
        && pairs
            .take(SLOTS as usize)
            .all(|(slot, (seen, expected))| match (seen, expected) {
                (Some(seen), Some(expected)) if slot as u64 >= APART => {
                    let is_its = seen[0] <= OLD + 2 || (MARK..=MARK + 2).contains(&seen[0]);
                    is_its && seen[1..] == expected[1..]
                }
                (seen, expected) => seen == expected,
            })
}

/// How many objects of some sizes there is room for, one size after the other.
fn fill(heap: &Heap) -> Result<Vec<u64>, String> {
    let mut counts = Vec::new();
    for size in [130_000, 65_536, 1280, 1000, 64, 16] {
        let mut count = 0;
        loop {
            let mut tx = heap.begin_on(2);
            match tx.alloc(size) {
                Ok(_) => heap.commit(tx).map_err(text)?,
                Err(Error::Full { .. }) => break,
                Err(error) => return Err(format!("filling it: {error}")),
            }
            count += 1;
        }
        counts.push(count);
    }
    Ok(counts)
}

/// The states before the first step, after it, ..., with the third one's transaction.
fn history<P: OnHeap>(program: &P) -> Result<Vec<P::Visible>, String> {
    let mut arena = Arena::new(program, 0)?;
    arena.third.end()?;
    let mut seen = vec![P::look(&arena.other).map_err(text)?];
    let mut victim = arena.attach(arena.victim())?;
    for step in 0..program.steps() {
        program.step(&mut victim, step)?;
        seen.push(P::look(&arena.other).map_err(text)?);
    }
    Ok(seen)
}

/// Ends an attachment as a kill does: a dead process has no destructors, which would leave.
fn forget<P: OnHeap>(running: P::Running) {
    drop(P::into_heap(running).into_memory());
}

/// Counts of kills.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    /// Kills, each judged.
    pub kills: u64,
    /// Those whose call was undone.
    pub undone: u64,
}

impl std::ops::AddAssign for Kills {
    fn add_assign(&mut self, other: Kills) {
        self.kills += other.kills;
        self.undone += other.undone;
    }
}

/// Kills a process before each store, flush and fence of what it does; the third one waits at
/// another place each time.
///
/// # Errors
/// The first violation.
pub fn kill_everywhere<P: OnHeap>(program: &P, what: What, finds: Finds) -> Result<Kills, String> {
    let name = format!("{}: {what:?}, {finds:?}", program.name());
    let history = history(program).map_err(|text| format!("{name}: {text}"))?;
    let mut kills = Kills::default();
    for stores in 1.. {
        // Each pair of two kills, one after the other, is tried once.
        let variants = match what {
            What::Rescue(first) => (first + stores) % VARIANTS..(first + stores) % VARIANTS + 1,
            _ => 0..VARIANTS,
        };
        for variant in variants.clone() {
            let round = quietly(|| {
                let arena = Arena::new(program, variant)?;
                let Some(pending) = arena.die(what, stores)? else {
                    return Ok(None);
                };
                arena.judge(what, finds, pending, &history).map(Some)
            });
            match round.and_then(|round: Result<_, String>| round) {
                Ok(None) if variant == variants.start => return Ok(kills),
                Ok(None) => {}
                Ok(Some(is_undone)) => {
                    kills.kills += 1;
                    kills.undone += u64::from(is_undone);
                }
                Err(text) => {
                    return Err(format!(
                        "{name}: killed at {stores}, third {variant}: {text}"
                    ));
                }
            }
        }
    }
    Ok(kills)
}

/// The survivor's observer: lets another one go on when the first word is stored in place, and
/// waits until that one has ended or sleeps.
struct Trigger {
    recorder: Recorder,
    volatile: std::ops::Range<u64>,
    is_armed: AtomicBool,
    go: SyncSender<()>,
    told: Mutex<Receiver<()>>,
}

impl Observer for Trigger {
    fn store(&self, mem: &Pmem, off: u64, bytes: &[u8], kind: StoreKind, at: Place) -> Verdict {
        if !self.volatile.contains(&off) && self.is_armed.swap(false, Ordering::SeqCst) {
            let _ = self.go.try_send(());
            let told = self.told.lock().expect("one thread");
            let _ = told.recv_timeout(Duration::from_secs(10));
        }
        self.recorder.store(mem, off, bytes, kind, at)
    }
}

/// The other one's observer: tells that it sleeps.
struct Sleeper(SyncSender<()>);

impl Observer for Sleeper {
    fn wait(&self, _mem: &Pmem, _off: u64) {
        let _ = self.0.try_send(());
    }
}

/// Stores [`MARK`] in slot 1's object, when it is told to.
fn racer(
    path: &Path,
    options: &Options,
    may_go: Receiver<()>,
    told: SyncSender<()>,
) -> Result<(), Error> {
    let heap = Heap::open_observed(path, options, Arc::new(Sleeper(told.clone())))?;
    let directory = heap.root_offset()?;
    let mut tx = heap.begin_on(1);
    let object = word(&tx, directory, 8)?;
    set(&mut tx, object, 0, MARK)?;
    let _ = told.send(());
    let _ = may_go.recv();
    heap.commit(tx)?;
    let _ = told.try_send(());
    Ok(())
}

/// One round of [`race_everywhere`]; `false`: the first one was not killed.
fn race(program: &Heaps, stores: u64) -> Result<bool, String> {
    let arena = Arena::new(program, 2)?;
    let (go, may_go) = sync_channel(1);
    let (tell, told) = sync_channel(1);
    let volatile = Heap::volatile(&Pmem::open(&arena.path, &MapOptions::default()).map_err(text)?);
    let trigger = Arc::new(Trigger {
        recorder: Recorder::new(0..0),
        volatile,
        is_armed: AtomicBool::new(false),
        go: go.clone(),
        told: Mutex::new(told),
    });
    let survivor = arena.attach(trigger.clone())?;
    let (path, options) = (arena.path.clone(), options(program));
    let racer = std::thread::spawn(move || racer(&path, &options, may_go, tell));
    let _ = trigger.told.lock().expect("one thread").recv();
    let is_dead = arena.die(What::Step(0), stores)?.is_some();
    trigger.is_armed.store(true, Ordering::SeqCst);
    let recovered = survivor.heap.recover_dead().map_err(text);
    trigger.is_armed.store(false, Ordering::SeqCst);
    let _ = go.try_send(());
    let raced = racer.join().map_err(|_| "the other one panicked")?;
    recovered?;
    raced.map_err(text)?;
    super::check(&survivor.heap)?;
    let seen = super::look(&survivor.heap).map_err(text)?;
    let last = seen[1].as_ref().map(|words| words[0]);
    if last != Some(MARK) {
        return Err(format!("a transaction that came last is gone: {last:?}"));
    }
    Ok(is_dead)
}

/// Kills a process before each store of its first step, while another one is about to change the
/// same word: that one comes when the survivor begins to store in place. It has to be the last.
///
/// # Errors
/// The first violation.
pub fn race_everywhere(program: &Heaps) -> Result<u64, String> {
    for stores in 1.. {
        let round = quietly(|| race(program, stores)).and_then(|round| round);
        match round {
            Ok(true) => {}
            Ok(false) => return Ok(stores - 1),
            Err(text) => return Err(format!("{}: killed at {stores}: {text}", program.name())),
        }
    }
    Ok(0)
}
