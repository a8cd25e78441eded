//! Goal: a daemon killed at any instant loses nothing that had returned, leaves nothing half
//! done, and the next opener needs nobody's help. Method: writers load a mount and keep,
//! outside the pool, a model of what returned and the one call in flight. The daemon is killed:
//! now and then from outside at a random moment, mostly by itself, some instructions after a
//! random barrier, where about half of the kills fall inside a transaction. Now and then the
//! recovery that follows is killed too. Then fsck, and each writer's files must be its model,
//! with or without the call in flight. The pool and the models go on to the next round.
//!
//! `PMFS_KILLS` is the number of rounds (10), `PMFS_KILLS_SEED` repeats a run's random choices (the
//! instants of the kills are the machine's).

#[path = "../bench/mod.rs"]
mod bench;
#[path = "../torture/model.rs"]
mod model;
mod random;
mod tally;
mod writer;

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bench::Bench;
use random::Random;
use serde_json::Value;
use tally::{Cause, Fall, Tally};
use writer::Writer;

const WRITERS: usize = 6;
/// Beyond this a kill at a barrier is given up and done from outside: the load was too slow.
const PATIENCE: Duration = Duration::from_secs(5);

#[test]
fn nothing_that_returned_is_lost() {
    if !bench::can_mount() {
        return;
    }
    let rounds = number("PMFS_KILLS").unwrap_or(10);
    let seed = number("PMFS_KILLS_SEED").unwrap_or_else(clock_seed);
    println!("{rounds} kills, PMFS_KILLS_SEED={seed}");
    let mut random = Random::new(seed);
    let bench = Bench::empty();
    bench.ok(&["mkfs", "--size", "256M", "pool"]);
    let mut writers = lay_out(&bench, &mut random);
    let mut tally = Tally::default();
    for round in 0..rounds {
        let fall = one_round(&bench, &mut writers, round, &mut random);
        println!("kill {:3}: {fall}", round + 1);
        tally.add(&fall);
    }
    println!("{tally}");
    if rounds >= 30 {
        assert!(tally.a_third_inside(), "too few kills inside: {tally}");
    }
}

/// The directories, and a writer for each; everything is empty.
fn lay_out(bench: &Bench, random: &mut Random) -> Vec<Writer> {
    let daemon = Daemon::mount(bench, None).expect("a fresh pool is mounted");
    let writers: Vec<Writer> = (0..WRITERS)
        .map(|at| Writer::new(at, random.next()))
        .collect();
    writer::lay_out(&bench.path("mnt"), &writers);
    daemon.end(bench);
    writers
}

/// From a barrier to the instant of a kill. A transaction stores in place some hundred instructions
/// after its first barrier; just after a barrier, on the other hand, it is most often still open.
fn instructions(random: &mut Random) -> u64 {
    let max = if random.below(2) == 0 { 100 } else { 1000 };
    random.below(max)
}

/// Load, kill, recovery, verification; the pool is clean before and after.
fn one_round(bench: &Bench, writers: &mut [Writer], round: u64, random: &mut Random) -> Fall {
    let cause = if round.is_multiple_of(4) {
        Cause::Time(Duration::from_micros(random.below(300_000) + 20_000))
    } else {
        Cause::Barrier(random.below(20_000) + 100, instructions(random))
    };
    let daemon = Daemon::mount(bench, cause.barrier()).expect("a clean pool is mounted");
    let calls = load_until_killed(bench, daemon, writers, cause);
    bench.ok(&["umount", "--lazy", "mnt"]);
    let recovery_killed =
        round % 5 == 3 && kill_recovery(bench, (random.below(6) + 1, instructions(random)));
    // Recovery by either of the two that can: the checker, or the next mount.
    let (daemon, recovery) = if random.below(2) == 0 {
        let recovery = fsck(bench);
        let daemon = Daemon::mount(bench, None).expect("a recovered pool is mounted");
        (daemon, recovery)
    } else {
        let daemon = Daemon::mount(bench, None).expect("a killed pool is mounted");
        let recovery = daemon.report["recovery"].clone();
        (daemon, recovery)
    };
    let mut applied = 0;
    for writer in writers.iter_mut() {
        match writer.verify(&bench.path("mnt")) {
            Ok(in_flight) => applied += u64::from(in_flight),
            Err(text) => panic!("after kill {} ({cause}): {text}", round + 1),
        }
    }
    writer::verify_shared_log(&bench.path("mnt"), writers)
        .unwrap_or_else(|text| panic!("after kill {} ({cause}): {text}", round + 1));
    daemon.end(bench);
    fsck(bench);
    Fall::new(cause, calls, applied, recovery_killed, &recovery)
}

/// Runs the writers until the daemon is dead; how many calls returned.
fn load_until_killed(
    bench: &Bench,
    mut daemon: Daemon,
    writers: &mut [Writer],
    cause: Cause,
) -> u64 {
    let mount = bench.path("mnt");
    let stop = AtomicBool::new(false);
    let before: u64 = writers.iter().map(|writer| writer.returned).sum();
    thread::scope(|scope| {
        for writer in writers.iter_mut() {
            let (mount, stop) = (&mount, &stop);
            scope.spawn(move || writer.work(mount, stop));
        }
        match cause {
            Cause::Time(after) => thread::sleep(after),
            Cause::Barrier(..) => daemon.wait_for_death(PATIENCE),
        }
        daemon.kill();
        stop.store(true, Ordering::Relaxed);
    });
    writers.iter().map(|writer| writer.returned).sum::<u64>() - before
}

/// Kills the recovery at one of its barriers; whether it got so far.
fn kill_recovery(bench: &Bench, barrier: (u64, u64)) -> bool {
    match Daemon::mount(bench, Some(barrier)) {
        None => true,
        Some(mut daemon) => {
            daemon.kill();
            bench.ok(&["umount", "--lazy", "mnt"]);
            false
        }
    }
}

/// Has to find the pool clean; what it recovered.
fn fsck(bench: &Bench) -> Value {
    let output = bench.run(&["fsck", "--json", "pool"]);
    let text = bench::text(&output.stdout);
    assert!(
        output.status.success(),
        "fsck: {text}{}",
        bench::text(&output.stderr)
    );
    let report: Value = serde_json::from_str(&text).unwrap();
    report["recovery"].clone()
}

/// A mount served by a child, so that its number can't become another process's.
struct Daemon {
    child: Child,
    report: Value,
}

impl Daemon {
    /// `None` if it died at the barrier that it was told to die at before the mount was there.
    fn mount(bench: &Bench, die_at: Option<(u64, u64)>) -> Option<Daemon> {
        let mut command = bench.command(&["mount", "--foreground", "--json", "pool", "mnt"]);
        if let Some((barrier, instructions)) = die_at {
            let instant = format!("{barrier}+{instructions}");
            command.env("PMFS_CRASH_AFTER_BARRIERS", instant);
        }
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        match serde_json::from_str(&line) {
            Ok(report) => Some(Daemon { child, report }),
            Err(_) => {
                let mut said = String::new();
                let mut stderr = child.stderr.take().unwrap();
                stderr.read_to_string(&mut said).unwrap();
                let end = child.wait().unwrap();
                assert!(die_at.is_some() && killed(end), "mount: {end}: {said}");
                // Between the mount and the report of it: then there is a mount without a daemon.
                if !bench.mounts().is_empty() {
                    bench.ok(&["umount", "--lazy", "mnt"]);
                }
                None
            }
        }
    }

    fn wait_for_death(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.child.try_wait().unwrap().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        let end = self.child.wait().unwrap();
        if !killed(end) {
            let mut said = String::new();
            if let Some(mut stderr) = self.child.stderr.take() {
                let _ = stderr.read_to_string(&mut said);
            }
            panic!("the daemon ended by itself: {end}: {said}");
        }
    }

    /// Ends it in good order.
    fn end(mut self, bench: &Bench) {
        bench.ok(&["umount", "mnt"]);
        let end = self.child.wait().unwrap();
        assert!(end.success(), "{end}");
    }
}

/// A test that fails leaves no process.
impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn killed(end: std::process::ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    end.signal() == Some(9)
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}

fn clock_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(1, |now| now.as_nanos() as u64 % 1_000_000_007)
}
