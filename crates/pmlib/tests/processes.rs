//! Goal: any number of processes use one heap, and one that is killed at whatever moment harms
//! nobody. Method: this program is run again as the others, which move units between accounts,
//! replace objects, make holes of the file and are killed at random; the sum stays, what was
//! acknowledged is there, and no byte is lost. How long they wait for locks is told.
//! `PMLIB_TORTURE_SECONDS` makes it longer, with 16 processes and 10 kills a second;
//! `PMLIB_TORTURE_SEED` makes its choices again.

use pmlib::{Error, Heap, Options, Stalled, Tx};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CHUNK_BYTES: u64 = 64 << 10;
/// The work of a process that this program is run as, and where: `role path number`.
const ROLE: &str = "PMLIB_TEST_ROLE";
const ACCOUNTS: u64 = 24;
/// Words of an account: its balance, the object that it has, a number that the object has too.
const ACCOUNT_BYTES: u64 = 24;
/// Children have a counter each, behind the accounts.
const CHILDREN_MAX: u64 = 32;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// Runs this program again, as a process with that work.
fn child(role: &str, path: &Path, number: u64) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "as_another_process", "--nocapture"])
        .env(ROLE, format!("{role} {} {number}", path.display()))
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs")
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, signal).expect("it is there");
}

fn kill(child: &mut Child) {
    signal(child, Signal::KILL);
    child.wait().expect("it was there");
}

/// No test: the processes that the tests below run.
#[test]
fn as_another_process() {
    let Ok(work) = std::env::var(ROLE) else {
        return;
    };
    let parts: Vec<&str> = work.split(' ').collect();
    let (path, nth) = (PathBuf::from(parts[1]), parts[2].parse().expect("a number"));
    match parts[0] {
        "transfer" => transfer_for_ever(&path, nth),
        "grow" => grow(&path, nth),
        "hold" => hold(&path, nth),
        role => panic!("{role}"),
    }
}

fn word(tx: &Tx<'_>, object: u64, at: u64) -> Result<u64, Error> {
    let mut bytes = [0; 8];
    tx.read_bytes(object, at, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn set(tx: &mut Tx<'_>, object: u64, at: u64, value: u64) -> Result<(), Error> {
    tx.edit_bytes(object, at, 8)?
        .copy_from_slice(&value.to_le_bytes());
    Ok(())
}

fn read(heap: &Heap, object: u64, at: u64) -> u64 {
    let mut bytes = [0; 8];
    heap.read_bytes(object, at, &mut bytes).expect("an object");
    u64::from_le_bytes(bytes)
}

fn account(nth: u64) -> u64 {
    nth * ACCOUNT_BYTES
}

fn counter(child: u64) -> u64 {
    account(ACCOUNTS) + child * 8
}

fn acknowledged(path: &Path) -> File {
    File::options()
        .read(true)
        .write(true)
        .open(path.with_extension("acknowledged"))
        .expect("a file")
}

/// One transaction: a unit goes from an account to another one, and one of them has a new object.
fn transfer(tx: &mut Tx<'_>, random: &mut Random, child: u64, done: u64) -> Result<(), Error> {
    const SIZES: [u64; 10] = [
        16, 64, 100, 700, 3000, 8192, 20_000, 30_000, 120_000, 150_000,
    ];
    let bank = 1u64;
    let root = root_of(tx)?;
    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
    let since = Instant::now();
    let locked = if random.below(8) == 0 {
        // In no order: a circle is an error for one of them.
        tx.lock(bank + from).and_then(|()| tx.lock(bank + to))
    } else {
        tx.lock_all([bank + from, bank + to])
    };
    WAITED.set(since.elapsed());
    locked?;
    for (nth, more) in [(from, u64::MAX), (to, 1)] {
        let balance = word(tx, root, account(nth))?;
        set(tx, root, account(nth), balance.wrapping_add(more))?;
    }
    if random.below(2) == 0 {
        let old = word(tx, root, account(to) + 8)?;
        let number = word(tx, root, account(to) + 16)?;
        if old != 0 {
            assert_eq!(word(tx, old, 8)?, number, "another's object");
            tx.free(old)?;
        }
        let size = SIZES[random.below(SIZES.len() as u64) as usize];
        let new = match tx.alloc(size) {
            Ok(new) => new,
            Err(Error::Full { .. }) => 0,
            Err(error) => return Err(error),
        };
        let number = child << 48 | done;
        if new != 0 {
            set(tx, new, 8, number)?;
        }
        set(tx, root, account(to) + 8, new)?;
        set(tx, root, account(to) + 16, number)?;
    }
    set(tx, root, counter(child), done)
}

/// The bank is the heap's first object, which its makers set as root before all else.
fn root_of(_tx: &Tx<'_>) -> Result<u64, Error> {
    Ok(BANK.with(std::cell::Cell::get))
}

thread_local! {
    static BANK: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    /// The time that the last transfer took to get its locks.
    static WAITED: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

/// Waits of a child for the locks of one transfer: the longest, and how many were longer than
/// [`LONG`]. They stand behind what was acknowledged, each in microseconds.
#[derive(Default)]
struct Waits {
    longest_us: u64,
    long: u64,
}

/// Nobody should wait longer for what a dead process held; on a machine with more to do than CPUs
/// a wait for a living one may be as long.
const LONG: Duration = Duration::from_millis(100);

impl Waits {
    /// Where those of a child stand in the file.
    fn place(nth: u64) -> u64 {
        CHILDREN_MAX * 8 + nth * 16
    }

    fn of(file: &File, nth: u64) -> Waits {
        let mut words = [0; 16];
        file.read_exact_at(&mut words, Waits::place(nth))
            .expect("a file");
        let [longest_us, long] =
            [0, 8].map(|at| u64::from_le_bytes(words[at..at + 8].try_into().expect("a word")));
        Waits { longest_us, long }
    }

    /// Notes a wait, if it is one to be told of.
    fn note(&mut self, wait: Duration, file: &File, nth: u64) {
        let us = wait.as_micros() as u64;
        if us <= self.longest_us && wait <= LONG {
            return;
        }
        self.longest_us = self.longest_us.max(us);
        self.long += u64::from(wait > LONG);
        let words = [self.longest_us, self.long].map(u64::to_le_bytes);
        file.write_all_at(words.as_flattened(), Waits::place(nth))
            .expect("a file");
    }
}

fn transfer_for_ever(path: &Path, nth: u64) {
    let heap = Heap::open(path, &Options::default()).expect("it opens");
    let bank = heap.root_offset().expect("a root");
    BANK.set(bank);
    let file = acknowledged(path);
    let mut random = Random((u64::from(std::process::id()) << 20 | nth) | 1);
    let mut done = read(&heap, bank, counter(nth));
    let mut waits = Waits::of(&file, nth);
    loop {
        if random.below(200) == 0 {
            // Holes of 256 KiB: all the heap has four of 2 MiB.
            heap.free_chunks().expect("it can be used");
            heap.punch(4).expect("it can be used");
        }
        let moved: Result<(), Error> = heap.tx(|tx| transfer(tx, &mut random, nth, done + 1));
        waits.note(WAITED.get(), &file, nth);
        match moved {
            Ok(()) => {
                done += 1;
                file.write_all_at(&done.to_le_bytes(), nth * 8)
                    .expect("a file");
            }
            Err(Error::Deadlock) => {}
            Err(error) => {
                // Seen by the one that waits for this process.
                eprintln!("process {nth}: {error}");
                std::process::exit(3);
            }
        }
    }
}

/// A heap with a bank, and the file where its processes tell what they have done.
fn bank(path: &Path, len: u64, options: &Options) -> (Heap, u64) {
    let heap = Heap::create(path, len, options).expect("a heap");
    let bank = heap
        .tx(|tx| {
            let bank = tx.alloc(counter(CHILDREN_MAX))?;
            tx.set_root(bank)?;
            Ok::<_, Error>(bank)
        })
        .expect("a bank");
    let file = File::create(path.with_extension("acknowledged")).expect("a file");
    file.set_len(Waits::place(CHILDREN_MAX))
        .expect("its length");
    (heap, bank)
}

/// Nothing is wrong with a bank that nobody changes.
fn judge(heap: &Heap, bank: u64, path: &Path) {
    let sum = (0..ACCOUNTS).map(|nth| read(heap, bank, account(nth)));
    assert_eq!(sum.fold(0, u64::wrapping_add), 0, "the sum");
    let file = acknowledged(path);
    for child in 0..CHILDREN_MAX {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, child * 8).expect("a file");
        let done = read(heap, bank, counter(child));
        let said = u64::from_le_bytes(bytes);
        // The process may have died before it could say so.
        assert!((said..=said + 1).contains(&done), "{child}: {said}, {done}");
    }
    let mut objects = 1;
    for nth in 0..ACCOUNTS {
        let object = read(heap, bank, account(nth) + 8);
        if object != 0 {
            objects += 1;
            assert_eq!(
                read(heap, object, 8),
                read(heap, bank, account(nth) + 16),
                "the object of account {nth}"
            );
        }
    }
    let census = heap.check().expect("a sound heap");
    assert_eq!(census.objects, objects, "objects that nothing names");
    let all = census.own_bytes + census.free_bytes + census.object_bytes + census.spare_bytes;
    assert_eq!(all, heap.size());
}

/// All room is there again when all objects but the bank are freed.
fn use_up(heap: &Heap, bank: u64) {
    heap.tx(|tx| {
        for nth in 0..ACCOUNTS {
            let object = word(tx, bank, account(nth) + 8)?;
            if object != 0 {
                tx.free(object)?;
                set(tx, bank, account(nth) + 8, 0)?;
            }
        }
        Ok::<_, Error>(())
    })
    .expect("they are freed");
    let census = heap.check().expect("a sound heap");
    assert_eq!(census.objects, 1);
    // All but the heap's own parts and the bank's chunk.
    let chunks = (heap.size() - census.own_bytes) / CHUNK_BYTES - 1;
    let mut taken = Vec::new();
    for nth in 0..chunks {
        let object = heap.tx(|tx| tx.alloc(CHUNK_BYTES));
        taken.push(object.unwrap_or_else(|error| panic!("{nth} of {chunks}: {error}")));
    }
    for object in taken {
        heap.tx(|tx| tx.free(object)).expect("it is there");
    }
    // All places of a class in a chunk are free too, those of the bank included.
    let beside = heap.tx(|tx| tx.alloc(8192)).expect("room");
    heap.tx(|tx| tx.free(beside)).expect("it is there");
}

/// Sets what a process has done back to what it said: it is killed between the two.
fn agree(heap: &Heap, bank: u64, path: &Path, child: u64) {
    let done = read(heap, bank, counter(child));
    let file = acknowledged(path);
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, child * 8).expect("a file");
    let said = u64::from_le_bytes(bytes);
    assert!((said..=said + 1).contains(&done), "{child}: {said}, {done}");
    file.write_all_at(&done.to_le_bytes(), child * 8)
        .expect("a file");
}

#[test]
fn killed_processes_harm_nobody() {
    let seconds = number("PMLIB_TORTURE_SECONDS", 0);
    let (processes, pause, seconds) = match seconds {
        0 => (4, 20, 3),
        seconds => (16, 100, seconds),
    };
    let seed = number("PMLIB_TORTURE_SEED", std::process::id().into());
    println!("PMLIB_TORTURE_SEED={seed}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let options = Options {
        lanes: 8,
        max: 8 << 20,
        processes: 64,
        ..Options::default()
    };
    let (heap, bank) = bank(&path, 8 << 20, &options);
    let mut children: Vec<Child> = (0..processes)
        .map(|nth| child("transfer", &path, nth))
        .collect();
    let (since, mut kills, mut last, mut moved) = (Instant::now(), 0, 0, Instant::now());
    while since.elapsed() < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_millis(pause / 2 + random.below(pause)));
        let nth = random.below(processes);
        let victim = &mut children[nth as usize];
        let ended = victim.try_wait().expect("a child");
        assert!(ended.is_none(), "process {nth} ended by itself: {ended:?}");
        kill(victim);
        kills += 1;
        if random.below(4) == 0 {
            heap.recover_dead().expect("it can be used");
        }
        agree(&heap, bank, &path, nth);
        children[nth as usize] = child("transfer", &path, nth);
        let done: u64 = (0..CHILDREN_MAX)
            .map(|nth| read(&heap, bank, counter(nth)))
            .sum();
        if done != last {
            (last, moved) = (done, Instant::now());
        }
        assert!(moved.elapsed() < Duration::from_secs(60), "nobody goes on");
    }
    for victim in &mut children {
        kill(victim);
    }
    heap.recover_dead().expect("it can be used");
    for nth in 0..CHILDREN_MAX {
        agree(&heap, bank, &path, nth);
    }
    judge(&heap, bank, &path);
    use_up(&heap, bank);
    heap.close().expect("it is left");
    let heap = Heap::open(&path, &options).expect("it opens");
    judge(&heap, bank, &path);
    let file = acknowledged(&path);
    let waits = (0..CHILDREN_MAX).map(|nth| Waits::of(&file, nth));
    let waits = waits.fold(Waits::default(), |all, here| Waits {
        longest_us: all.longest_us.max(here.longest_us),
        long: all.long + here.long,
    });
    println!(
        "{kills} kills, {last} transactions, 0 lost; the longest wait for locks {}.{:03} ms, {} \
         beyond {} ms",
        waits.longest_us / 1000,
        waits.longest_us % 1000,
        waits.long,
        LONG.as_millis()
    );
}

/// Makes objects of a MiB in a list of its own, until the heap has grown twice.
fn grow(path: &Path, nth: u64) {
    let heap = Heap::open(path, &Options::default()).expect("it opens");
    let bank = heap.root_offset().expect("a root");
    for round in 0..GROWN_BY {
        let made: Result<(), Error> = heap.tx(|tx| {
            let object = tx.alloc(MIB)?;
            let before = word(tx, bank, nth * 8)?;
            set(tx, object, 0, before)?;
            set(tx, object, MIB - 8, nth << 32 | round)?;
            set(tx, bank, nth * 8, object)
        });
        made.expect("there is room");
        // Some of the other one's: in a span that this one has not made, perhaps.
        let other = heap.read_word(bank, (1 - nth) * 8);
        if other != 0 {
            assert_eq!(heap.read_word(other, MIB - 8) >> 32, 1 - nth);
        }
    }
}

const MIB: u64 = 1 << 20;
/// Objects that each of two processes makes.
const GROWN_BY: u64 = 100;

trait ReadWord {
    fn read_word(&self, object: u64, at: u64) -> u64;
}

impl ReadWord for Heap {
    fn read_word(&self, object: u64, at: u64) -> u64 {
        read(self, object, at)
    }
}

#[test]
fn a_heap_grows_under_several_processes() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let (heap, bank) = bank(&path, 64 << 20, &Options::default());
    let mut children = [0, 1].map(|nth| child("grow", &path, nth));
    for child in &mut children {
        assert!(child.wait().expect("a child").success());
    }
    for nth in 0..2 {
        let (mut object, mut count) = (read(&heap, bank, nth * 8), GROWN_BY);
        while object != 0 {
            count -= 1;
            assert_eq!(read(&heap, object, MIB - 8), nth << 32 | count);
            object = read(&heap, object, 0);
        }
        assert_eq!(count, 0);
    }
    assert_eq!(
        heap.check().expect("a sound heap").objects,
        1 + 2 * GROWN_BY
    );
    assert!(heap.size() > 200 << 20 && heap.stats().unwrap().spans >= 3);
}

/// Locks an object, says so, and does no more.
fn hold(path: &Path, nth: u64) {
    let heap = Heap::open(path, &Options::default()).expect("it opens");
    let bank = heap.root_offset().expect("a root");
    let _: Result<(), Error> = heap.tx(|tx| {
        tx.lock(bank)?;
        tx.alloc(100_000)?;
        tx.alloc(64)?;
        set(tx, bank, 0, 77)?;
        acknowledged(path)
            .write_all_at(&[1], nth * 8)
            .expect("a file");
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
}

/// A process that holds a lock, once it does.
fn holder(path: &Path) -> Child {
    let child = child("hold", path, 0);
    let mut said = [0];
    while said == [0] {
        std::thread::sleep(Duration::from_millis(2));
        acknowledged(path)
            .read_exact_at(&mut said, 0)
            .expect("a file");
    }
    child
}

#[test]
fn a_lock_of_the_dead_is_taken_and_nothing_of_theirs_stays() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let (heap, bank) = bank(&path, 2 << 20, &Options::default());
    let mut holder = holder(&path);
    let is_free = |heap: &Heap| heap.tx(|tx| tx.try_lock(bank)).expect("a lock");
    assert!(!is_free(&heap));
    kill(&mut holder);
    heap.tx(|tx| tx.lock(bank)).expect("it is free by now");
    assert!(is_free(&heap));
    assert_eq!(read(&heap, bank, 0), 0);
    use_up(&heap, bank);
}

#[test]
fn a_stopped_holder_is_killed_if_that_is_wanted() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let options = Options {
        stalled: Stalled::Kill,
        ..Options::default()
    };
    let (made, bank) = bank(&path, 2 << 20, &options);
    drop(made);
    let heap = Heap::open(&path, &options).expect("it opens");
    let mut holder = holder(&path);
    signal(&holder, Signal::STOP);
    heap.tx(|tx| tx.lock(bank)).expect("it is free by now");
    assert!(!holder.wait().expect("a child").success());
    use_up(&heap, bank);
}

#[test]
fn more_processes_than_slots_are_refused() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let options = Options {
        processes: 4,
        ..Options::default()
    };
    let first = Heap::create(&path, 2 << 20, &options).expect("a heap");
    let mut others: Vec<Heap> = (0..2)
        .map(|_| Heap::open(&path, &options).expect("it opens"))
        .collect();
    let refused = Heap::open(&path, &options).map(drop);
    let Err(error @ Error::Processes { slots: 3 }) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        error.to_string().contains("3 processes have the heap"),
        "{error}"
    );
    // One that leaves, and one that dies, make room.
    others
        .pop()
        .expect("it is there")
        .close()
        .expect("it leaves");
    others.push(Heap::open(&path, &options).expect("it opens"));
    drop(others.pop().expect("it is there").into_memory());
    others.push(Heap::open(&path, &options).expect("it opens"));
    for heap in [&first, &others[0], &others[1]] {
        heap.tx(|tx| tx.alloc(64)).expect("it works");
    }
    assert_eq!(first.check().expect("a sound heap").objects, 3);
}

/// The last one to leave leaves it clean, others do not; one who comes meanwhile joins.
#[test]
fn processes_come_and_go() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let (first, bank) = bank(&path, 2 << 20, &Options::default());
    let open = || Heap::open(&path, &Options::default()).expect("it opens");
    let add = |heap: &Heap| {
        heap.tx(|tx| {
            tx.lock(bank)?;
            let value = word(tx, bank, 0)?;
            set(tx, bank, 0, value + 1)
        })
        .expect("it works");
    };
    let second = open();
    add(&first);
    add(&second);
    first.close().expect("it leaves");
    let third = open();
    add(&second);
    add(&third);
    // The end that a kill makes.
    drop(second.into_memory());
    add(&third);
    third.close().expect("it leaves");
    let last = open();
    assert_eq!(read(&last, bank, 0), 5);
    drop(last.into_memory());
    let again = open();
    assert_eq!(read(&again, bank, 0), 5);
    assert_eq!(again.check().expect("a sound heap").objects, 1);
}

/// A child's copy is dead, and its end is not its parent's.
#[test]
fn a_forked_child_leaves_nothing_behind() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let (heap, bank) = bank(&path, 2 << 20, &Options::default());
    let done: Result<u8, Error> = heap.tx(|tx| {
        tx.lock(bank)?;
        set(tx, bank, 0, 1)?;
        Ok(pmem::life::in_child(|| {
            let refused = heap.read_bytes(bank, 0, &mut [0; 8]);
            let other = Heap::open(&path, &Options::default()).expect("a copy of its own");
            let is_locked = !other.tx(|tx| tx.try_lock(bank)).expect("it works");
            u8::from(!matches!(refused, Err(Error::Forked)) || !is_locked)
        }))
    });
    assert_eq!(done.expect("it works"), 0);
    assert_eq!(read(&heap, bank, 0), 1);
    use_up(&heap, bank);
}

/// Goal: a lane's chunk that another user of the heap has added is met like any. Method: of two
/// that share the only lane one makes the heap longer and takes places there, then the other does.
#[test]
fn a_lane_leads_to_what_another_has_added() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("heap");
    let options = Options {
        lanes: 1,
        ..Options::default()
    };
    let one = Heap::create(&path, 2 << 20, &options).expect("a heap");
    let other = Heap::open(&path, &options).expect("a heap");
    let before = one.size();
    let mut last = 0;
    while last < before {
        last = one.tx(|tx| tx.alloc(8192)).expect("room");
    }
    let next = other.tx(|tx| tx.alloc(8192)).expect("room");
    assert!(next > before && next != last);
    assert_eq!(
        one.check().expect("a sound heap").objects,
        other.check().expect("a sound heap").objects
    );
}
