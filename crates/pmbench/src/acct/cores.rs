//! Cores of their own for writers: others are slowed less, and the medium is not overloaded by
//! many writers at once (figures 5.3 and 5.4). A fair scheduler on 16 cores, 3 of them for writers,
//! is simulated, and the bandwidth of one module by the number of writers that run at once is the
//! device model's.

use clap::Args;
use serde_json::json;

use super::Random;
use pmep::analytic::on_device;
use pmep::{Device, Machine, Op, Order, Pattern};

const CORES: usize = 16;
const PM_CORES: usize = 3;
/// Milliseconds of a scheduler's slice, and of a simulation.
const SLICES: usize = 4_000;
/// Slices between two looks for a shorter queue.
const BALANCE_EVERY: usize = 4;
/// Threads that compute, one for each core, as sysbench has them.
const COMPUTING: usize = CORES;

#[derive(Clone, Copy, Debug)]
struct Task {
    is_writer: bool,
    core: usize,
    /// Slices that it has run.
    ran: usize,
}

/// The shares of time of computing threads, and the bytes a second of writers in GB/s.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    computed: f64,
    written: f64,
}

/// GB/s of one module by the number of writers at once: streaming stores of 256 bytes.
fn bandwidths(most: u32) -> Vec<f64> {
    let device = Device::named("optane-100").expect("a shipped device");
    let machine = Machine::plain(1, 4096).expect("one module");
    let one = |threads| {
        let pattern = Pattern::new(Op::NtStore, Order::Sequential, 256, None, threads);
        on_device(&device, &pattern.expect("a pattern"), &machine).bandwidth_gib_s * 1.073_741_824
    };
    std::iter::once(0.0).chain((1..=most).map(one)).collect()
}

/// The cores on which a task may run. The others may run on the writers' cores too.
fn allowed(task: &Task, is_managed: bool) -> std::ops::Range<usize> {
    match task.is_writer && is_managed {
        true => 0..PM_CORES,
        false => 0..CORES,
    }
}

/// Moves one task from the longest queue it may leave to the shortest it may join.
fn balance(tasks: &mut [Task], is_managed: bool) {
    for _ in 0..CORES {
        let mut lengths = [0usize; CORES];
        tasks.iter().for_each(|task| lengths[task.core] += 1);
        let gain = |task: &Task| {
            let best = allowed(task, is_managed).min_by_key(|core| lengths[*core]);
            let best = best.expect("a core");
            (lengths[task.core] as i64 - lengths[best] as i64, best)
        };
        let found = (0..tasks.len()).max_by_key(|at| gain(&tasks[*at]).0);
        let at = found.expect("tasks");
        let (difference, best) = gain(&tasks[at]);
        if difference < 2 {
            return;
        }
        tasks[at].core = best;
    }
}

fn simulate(writers: usize, is_managed: bool, bandwidths: &[f64]) -> Outcome {
    let task = |number: usize| Task {
        is_writer: number < writers,
        core: number % CORES,
        ran: 0,
    };
    let mut tasks: Vec<Task> = (0..writers + COMPUTING).map(task).collect();
    for task in tasks.iter_mut().filter(|task| task.is_writer && is_managed) {
        task.core %= PM_CORES;
    }
    let (mut written, mut random) = (0.0, Random(1));
    for slice in 0..SLICES {
        if slice % BALANCE_EVERY == 0 {
            balance(&mut tasks, is_managed);
        }
        let mut at_once = 0;
        for core in 0..CORES {
            let here = tasks.iter_mut().filter(|task| task.core == core);
            // Slices of real programs are not in step: a task may be a little ahead.
            let mut turn = |task: &Task| 4 * task.ran as u64 + random.below(8);
            if let Some(next) = here.min_by_key(|task| turn(task)) {
                next.ran += 1;
                at_once += usize::from(next.is_writer);
            }
        }
        written += bandwidths[at_once] / SLICES as f64;
    }
    let computed = tasks.iter().filter(|task| !task.is_writer);
    let computed: usize = computed.map(|task| task.ran).sum();
    Outcome {
        computed: computed as f64 / (COMPUTING * SLICES) as f64,
        written,
    }
}

/// The writers.
#[derive(Args)]
pub struct Options {
    /// Threads that write.
    #[arg(long)]
    writers: usize,
    /// They have cores of their own.
    #[arg(long)]
    managed: bool,
}

/// Simulates, and prints.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let bandwidths = bandwidths(CORES as u32);
    let alone = simulate(1, options.managed, &bandwidths);
    let outcome = simulate(options.writers, options.managed, &bandwidths);
    println!(
        "{}",
        json!({
            "kind": "simulated",
            "time": 1.0 / outcome.computed,
            "time_by_one_writer": alone.computed / outcome.computed,
            "gb_s": outcome.written,
        })
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the thesis' conclusions hold: others are slowed by half from 16 to 32 writers without
    /// groups, and by 35 % at most with them from 1 to 32; writers peak at 3 to 6.
    #[test]
    fn figures_5_3_and_5_4() {
        let bandwidths = bandwidths(CORES as u32);
        println!("| writers | time | time, managed | GB/s | GB/s, managed |");
        let run = |writers| {
            let (plain, managed) = (
                simulate(writers, false, &bandwidths),
                simulate(writers, true, &bandwidths),
            );
            println!(
                "| {writers} | {:.3} | {:.3} | {:.2} | {:.2} |",
                1.0 / plain.computed,
                1.0 / managed.computed,
                plain.written,
                managed.written
            );
            (writers, plain, managed)
        };
        let rows: Vec<_> = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32].map(run).into();
        let (first, last) = (rows[0], rows[rows.len() - 1]);
        let rise = |one: Outcome, other: Outcome| one.computed / other.computed;
        // Without management, 16 writers more take half of the others' time again: 5.4.3.
        let sixteen = rows.iter().find(|row| row.0 == 16).expect("16 writers");
        let doubled = rise(sixteen.1, last.1);
        assert!((doubled - 1.5).abs() < 0.05, "{doubled}");
        let managed = rise(first.2, last.2);
        println!(
            "managed, from 1 to 32 writers: {:+.1} %",
            (managed - 1.0) * 100.0
        );
        assert!(managed <= 1.35, "{managed}");
        assert!(rise(first.1, last.1) > 2.0);
        let written = |row: &&(usize, Outcome, Outcome)| (row.1.written * 1e6) as u64;
        let peak = rows.iter().max_by_key(written).expect("rows").0;
        println!("the peak without management is at {peak} writers");
        assert!((3..=6).contains(&peak), "{peak}");
        for (writers, plain, managed) in rows.iter().filter(|row| row.0 >= 16) {
            assert!(
                managed.written > plain.written,
                "{writers}: {managed:?}, {plain:?}"
            );
        }
    }
}
