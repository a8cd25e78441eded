//! `pmm-writer`: a load on a mapped file whose bytes and accesses are known exactly.
//!
//! A thread publishes its counts between batches of 4,096 accesses, so that no other store than the
//! counted ones is in the loop.
#![forbid(unsafe_code)]

mod counts;
mod load;
mod places;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use clap::Parser;
use counts::{Board, Counts};
use load::Load;
use pm_cli::Failure;
use pmmon_cli::writer::{Cli, Plan};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM, SIGTRAP};

/// First bytes of files that this program does not write to: pools, and persistent heaps.
const KEPT: [&[u8; 8]; 2] = [b"PMFSPOOL", b"PMHEAP01"];

#[derive(Serialize)]
struct Ready<'a> {
    event: &'static str,
    pid: u32,
    threads: &'a [u32],
}

#[derive(Serialize)]
struct Done<'a> {
    event: &'static str,
    schema: u32,
    pid: u32,
    access: u32,
    order: String,
    way: &'static str,
    seconds: f64,
    stopped: bool,
    /// A debug trap without a cause has come, which would have ended another program (ADR 0083).
    stray_trap: bool,
    threads: &'a [Counts],
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.plan() {
        Ok(plan) => run(&cli, &plan),
        Err(message) => Err(Failure::whole(message).with_code(2)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("pmm-writer: {failure}");
            failure.exit_code()
        }
    }
}

fn run(cli: &Cli, plan: &Plan) -> Result<(), Failure> {
    let file = open(cli)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::new(format!("signals: {error}"), "try again"))?;
    }
    // Some hypervisors deliver debug traps without a cause while breakpoints are set.
    let stray = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTRAP, Arc::clone(&stray))
        .map_err(|error| Failure::new(format!("signals: {error}"), "try again"))?;
    let board = Board::open(cli.counts.as_deref(), plan.threads)?;
    let load = Load::new(cli, plan, file, board, stop)?;
    let go = Barrier::new(plan.threads as usize + 1);
    let (tell, told) = channel();
    let mut begin = Instant::now();
    let all: Result<Vec<Counts>, Failure> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .map(|number| {
                let tell = tell.clone();
                let (load, go) = (&load, &go);
                scope.spawn(move || follow(load, number, &tell, go))
            })
            .collect();
        let ready = ready(cli, &told, plan.threads);
        // Threads that wait here could not be joined otherwise.
        load.halt_if(ready.is_err());
        begin = Instant::now();
        go.wait();
        let counts = threads.into_iter().map(|thread| {
            let counts = thread.join();
            counts.unwrap_or_else(|_| Err(Failure::new("a thread failed", "see above")))
        });
        let counts = counts.collect();
        ready?;
        counts
    });
    let end = End {
        begin,
        stopped: load.is_stopped(),
        stray_trap: stray.load(Relaxed),
    };
    show(cli, plan, &all?, &end)
}

fn follow(load: &Load, number: u32, tell: &Sender<u32>, go: &Barrier) -> Result<Counts, Failure> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let tid = tid.unsigned_abs();
    // The receiver waits for all threads.
    let _ = tell.send(tid);
    go.wait();
    load.run(number, tid)
}

fn open(cli: &Cli) -> Result<File, Failure> {
    let path = cli.file.display();
    let failed = |error: io::Error| {
        Failure::new(
            format!("{path}: {error}"),
            "name a file that may be written",
        )
    };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false);
    let file = file.open(&cli.file).map_err(failed)?;
    let data = file.metadata().map_err(failed)?;
    let mut head = [0; 8];
    if file.read_exact_at(&mut head, 0).is_ok() && KEPT.contains(&&head) {
        return Err(Failure::new(
            format!("{path}: a pool or a heap, which would be overwritten"),
            "name another file",
        ));
    }
    if data.len() < cli.size.0 && !data.file_type().is_char_device() {
        file.set_len(cli.size.0).map_err(failed)?;
    }
    Ok(file)
}

/// Tells who will work, and waits if that was asked for.
fn ready(cli: &Cli, told: &Receiver<u32>, threads: u32) -> Result<(), Failure> {
    let mut tids: Vec<u32> = told.iter().take(threads as usize).collect();
    tids.sort_unstable();
    if !cli.wait {
        return Ok(());
    }
    let ready = Ready {
        event: "ready",
        pid: std::process::id(),
        threads: &tids,
    };
    pm_cli::print(cli.json, &ready, |ready| {
        format!("process {}, threads {tids:?}: press Enter", ready.pid)
    })?;
    io::stdout().flush()?;
    let mut byte = [0];
    while io::stdin().read(&mut byte).unwrap_or(0) > 0 && byte != *b"\n" {}
    Ok(())
}

/// The end of a load.
struct End {
    begin: Instant,
    stopped: bool,
    stray_trap: bool,
}

fn show(cli: &Cli, plan: &Plan, threads: &[Counts], end: &End) -> Result<(), Failure> {
    let done = Done {
        event: "done",
        schema: 1,
        pid: std::process::id(),
        access: plan.access,
        order: plan.order.to_string(),
        way: if cli.calls.is_some() {
            "call"
        } else {
            "mapped"
        },
        seconds: end.begin.elapsed().as_secs_f64(),
        stopped: end.stopped,
        stray_trap: end.stray_trap,
        threads,
    };
    pm_cli::print(cli.json, &done, |done| {
        let mut lines = vec![format!(
            "{:.3} s, by {}{}",
            done.seconds,
            done.way,
            if done.stopped { ", stopped" } else { "" }
        )];
        lines.extend(done.threads.iter().map(Counts::to_string));
        lines.join("\n")
    })?;
    Ok(())
}
