//! Locks of files on a mount: POSIX ranges, ranges of an open file (OFD) and flock(2).
//! They exclude, a waiter can be killed or interrupted, and whatever ends a lock
//! elsewhere on Linux ends it here.

mod bench;

use std::time::{Duration, Instant};

use bench::actor::Actor;
use bench::{Bench, wait_until};
use rustix::process::Signal;

/// The commands that take all of `f` alone, and give it up.
const KINDS: [(&str, &str); 3] = [
    ("flock f ex", "flock f un"),
    ("posix f ex 0 0", "posix f un 0 0"),
    ("ofd f ex 0 0", "ofd f un 0 0"),
];

fn mounted() -> Option<Bench> {
    let bench = Bench::mounted(&[])?;
    std::fs::write(bench.file("file"), "locked by many").unwrap();
    Some(bench)
}

fn actor(bench: &Bench) -> Actor {
    Actor::with(&bench.file("file"))
}

/// One that has the lock, and one that waits for it.
fn contended(bench: &Bench, lock: &str) -> (Actor, Actor) {
    let (mut holder, mut waiter) = (actor(bench), actor(bench));
    holder.does(lock);
    assert_eq!(waiter.ask(lock), "EAGAIN");
    waiter.waits(&format!("{lock} wait"));
    (holder, waiter)
}

#[test]
fn a_waiter_gets_in() {
    let Some(bench) = mounted() else { return };
    for (lock, unlock) in KINDS {
        let (mut holder, mut waiter) = contended(&bench, lock);
        holder.does(unlock);
        assert_eq!(waiter.says(), "ok");
        assert_eq!(holder.ask(lock), "EAGAIN");
    }
}

#[test]
fn a_killed_holder_lets_the_waiter_in() {
    let Some(bench) = mounted() else { return };
    for (lock, _) in KINDS {
        let (mut holder, mut waiter) = contended(&bench, lock);
        holder.killed();
        assert_eq!(waiter.says(), "ok");
    }
}

/// Goal: SIGKILL ends a wait at once, and nothing is left of it: neither the lock nor
/// the wish for it.
#[test]
fn a_waiter_can_be_killed() {
    let Some(bench) = mounted() else { return };
    for (lock, unlock) in KINDS {
        let (mut holder, mut waiter) = contended(&bench, lock);
        let took = waiter.killed();
        assert!(took < Duration::from_secs(1), "{lock}: {took:?}");
        assert_eq!(waiter.says(), "", "it never had the lock");
        holder.does(unlock);
        actor(&bench).does(lock);
    }
}

#[test]
fn a_signal_interrupts_a_waiter() {
    let Some(bench) = mounted() else { return };
    for (lock, unlock) in KINDS {
        let (mut holder, mut waiter) = contended(&bench, lock);
        let since = Instant::now();
        waiter.signal(Signal::USR1);
        assert_eq!(waiter.says(), "interrupted");
        assert!(since.elapsed() < Duration::from_secs(1));
        holder.does(unlock);
        actor(&bench).does(lock);
    }
}

/// flock(2) does not know of ranges; POSIX ranges and those of open files do know of each other.
#[test]
fn which_kinds_meet() {
    let Some(bench) = mounted() else { return };
    for (i, (lock, unlock)) in KINDS.into_iter().enumerate() {
        let (mut first, mut second) = (actor(&bench), actor(&bench));
        first.does(lock);
        for (j, (other, give_up)) in KINDS.into_iter().enumerate() {
            let meet = (i == 0) == (j == 0);
            let said = second.ask(other);
            assert_eq!(said, if meet { "EAGAIN" } else { "ok" }, "{lock}, {other}");
            second.does(give_up);
        }
        first.does(unlock);
    }
}

#[test]
fn ranges() {
    let Some(bench) = mounted() else { return };
    let (mut first, mut second) = (actor(&bench), actor(&bench));
    first.does("posix f ex 10 10");
    second.does("posix f ex 0 10");
    second.does("posix f ex 20 0");
    assert_eq!(second.ask("posix f sh 19 1"), "EAGAIN");
    assert_eq!(
        second.ask("get f ex 0 0"),
        format!("ex 10 10 {}", first.pid())
    );
    assert_eq!(
        first.ask("get f sh 25 1"),
        format!("ex 20 0 {}", second.pid())
    );
    // The middle goes, the ends stay; then all of it is shared.
    first.does("posix f un 12 4");
    second.does("posix f ex 12 4");
    assert_eq!(second.ask("posix f sh 11 1"), "EAGAIN");
    assert_eq!(second.ask("posix f sh 16 1"), "EAGAIN");
    second.does("posix f un 0 0");
    first.does("posix f sh 0 0");
    second.does("posix f sh 0 0");
    assert_eq!(second.ask("posix f ex 3 1"), "EAGAIN");
    assert_eq!(
        second.ask("get f ex 3 1"),
        format!("sh 0 0 {}", first.pid())
    );
    first.does("posix f un 0 0");
    assert_eq!(second.ask("get f ex 0 0"), "free");
}

/// POSIX: closing any descriptor of the file drops what the process has of it.
#[test]
fn closing_drops_posix_locks() {
    let Some(bench) = mounted() else { return };
    let (mut first, mut second) = (actor(&bench), actor(&bench));
    let path = bench.file("file");
    first.does(&format!("open g {}", path.display()));
    first.does("posix f ex 0 0");
    assert_eq!(second.ask("posix f ex 0 0"), "EAGAIN");
    first.does("close g");
    second.does("posix f ex 0 0");
    second.does("close f");
    first.does("posix f ex 0 0");
}

/// A lock of an open file goes only when that is closed, also where the process has the file open
/// twice.
#[test]
fn closing_drops_locks_of_the_open_file_only() {
    let Some(bench) = mounted() else { return };
    let (mut first, mut second) = (actor(&bench), actor(&bench));
    let path = bench.file("file");
    for (lock, unlock) in [KINDS[0], KINDS[2]] {
        let other = |what: &str| what.replace(" f ", " g ");
        first.does(&format!("open g {}", path.display()));
        first.does(lock);
        assert_eq!(first.ask(&other(lock)), "EAGAIN", "two open files");
        first.does("close g");
        assert_eq!(second.ask(lock), "EAGAIN");
        first.does("close f");
        // The kernel tells of the end of an open file a moment after close(2).
        wait_until("it is free", || second.ask(lock) == "ok");
        second.does(unlock);
        first.does(&format!("open f {}", path.display()));
    }
}

/// A wait that closes a circle is refused; when who refused gives up, the other goes on.
#[test]
fn deadlock() {
    let Some(bench) = mounted() else { return };
    std::fs::write(bench.file("second"), "").unwrap();
    let (mut first, mut second) = (actor(&bench), actor(&bench));
    for actor in [&mut first, &mut second] {
        actor.does(&format!("open g {}", bench.file("second").display()));
    }
    first.does("posix f ex 0 0");
    second.does("posix g ex 0 0");
    first.waits("posix g ex 0 0 wait");
    assert_eq!(second.ask("posix f ex 0 0 wait"), "EDEADLK");
    second.does("posix g un 0 0");
    assert_eq!(first.says(), "ok");
}

/// flock(2): who wants to have alone what it shares gives up its share meanwhile.
#[test]
fn two_who_share_may_both_want_it_alone() {
    let Some(bench) = mounted() else { return };
    let (mut first, mut second) = (actor(&bench), actor(&bench));
    first.does("flock f sh");
    second.does("flock f sh");
    first.waits("flock f ex wait");
    second.does("flock f ex wait");
    second.does("flock f un");
    assert_eq!(first.says(), "ok");
    assert_eq!(second.ask("flock f sh"), "EAGAIN");
    first.does("flock f sh");
    second.does("flock f sh");
}

/// However many wait, the mount answers everybody else.
#[test]
fn waiters_keep_no_worker() {
    let Some(bench) = mounted() else { return };
    let mut holder = actor(&bench);
    holder.does("posix f ex 0 0");
    let mut waiters: Vec<Actor> = (0..8).map(|_| actor(&bench)).collect();
    for waiter in &mut waiters {
        waiter.waits("posix f sh 0 0 wait");
    }
    std::fs::write(bench.file("other"), "text").unwrap();
    assert_eq!(std::fs::read(bench.file("other")).unwrap(), b"text");
    holder.does("posix f un 0 0");
    for waiter in &mut waiters {
        assert_eq!(waiter.says(), "ok");
    }
}

/// A mount that is told to end does, though files are open and somebody waits.
#[test]
fn waits_end_with_the_mount() {
    let Some(bench) = mounted() else { return };
    let (_holder, mut waiter) = contended(&bench, KINDS[0].0);
    rustix::process::kill_process(bench.daemon(), Signal::TERM).unwrap();
    let daemon = bench.daemon().as_raw_nonzero().get() as u32;
    wait_until("the daemon ends", || !bench::is_daemon(daemon));
    let said = waiter.says();
    let errors = ["EIO", "ENOTCONN", "ECONNABORTED"];
    assert!(errors.contains(&said.as_str()), "{said}");
    assert_eq!(bench.json(&["fsck", "--json", "pool"])["clean"], true);
}
