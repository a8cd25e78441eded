//! Reads and writes at once, load, and the other socket.

use super::{Case, GIB_S, meet, predict, read, write};
use crate::device::{Key, Numbers};
use crate::pattern::{Machine, Op, Order, Pattern};

/// The socket that accesses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// The modules' own.
    Local,
    /// Another.
    Far,
}

const REQUEST: u64 = 64;

fn pattern(op: Op, order: Order, threads: u32) -> Pattern {
    Pattern {
        op,
        order,
        access: REQUEST,
        stride: REQUEST,
        threads: threads.max(1),
    }
}

/// Bandwidth (GiB/s) of a load of stores of 64 B from all threads but one, which asks for its
/// latency (ns): the second value. Each waits `delay` steps between stores.
#[must_use]
pub fn loaded(numbers: &Numbers, machine: &Machine, threads: u32, delay: f64) -> (f64, f64) {
    let stores = pattern(Op::NtStore, Order::Sequential, threads);
    let most = predict(numbers, &stores, machine).bandwidth_gib_s;
    let bytes = REQUEST as f64;
    let asker = bytes / numbers[Key::Persist] / GIB_S;
    let wait = (delay * numbers[Key::DelayUnit]).max(1e-3);
    let load = f64::from(threads.saturating_sub(1)) * bytes / wait / GIB_S;
    let bandwidth = meet(numbers[Key::Sharpness], &[asker + load, most]);
    let crowd = (bandwidth / most).powi(3);
    (
        bandwidth,
        numbers[Key::Persist] * (1.0 + numbers[Key::LoadedRise] * crowd),
    )
}

/// Bandwidth (GiB/s) of threads that read and others that write, 64 B anywhere: each byte has its
/// share of the modules' time.
#[must_use]
pub fn thread_mix(numbers: &Numbers, machine: &Machine, readers: u32, writers: u32) -> f64 {
    let threads = (readers + writers).max(1);
    let reads = predict(numbers, &pattern(Op::Load, Order::Random, threads), machine);
    let writes = predict(
        numbers,
        &pattern(Op::NtStore, Order::Random, threads),
        machine,
    );
    let weight = numbers[Key::MixWeight] * f64::from(readers);
    let share = weight / (weight + f64::from(writers)).max(1e-9);
    1.0 / (share / reads.bandwidth_gib_s + (1.0 - share) / writes.bandwidth_gib_s)
}

/// Bandwidth (GiB/s) of threads that each read `reads` bytes for each one that they store. The
/// stores of such a mix go through the cache, and leave it in no order.
#[must_use]
pub fn traffic_mix(
    numbers: &Numbers,
    machine: &Machine,
    threads: u32,
    read_share: f64,
    from: Remote,
) -> f64 {
    let share = read_share.clamp(0.0, 1.0);
    let threads_f = f64::from(threads.max(1));
    let prefetching = Machine {
        prefetcher: true,
        ..*machine
    };
    let loads = pattern(Op::Load, Order::Sequential, threads);
    let stores = pattern(Op::NtStore, Order::Sequential, threads);
    let local = if share >= 1.0 {
        predict(numbers, &loads, &prefetching).bandwidth_gib_s
    } else if share <= 0.0 {
        predict(numbers, &stores, machine).bandwidth_gib_s
    } else {
        let case = Case::new(numbers, &loads, &prefetching);
        let read = share / read::thread(&case);
        let stored = (1.0 - share) / numbers[Key::NtStream];
        let thread = threads_f / read.hypot(stored);
        let dimms = f64::from(machine.geometry.dimms());
        let merge = numbers[Key::StoreMerge];
        let ratio = write::written_back(merge, f64::INFINITY, threads_f / dimms);
        let back = numbers[Key::WriteMedia] * dimms * ratio;
        let media = 1.0 / (share / (numbers[Key::ReadMedia] * dimms) + (1.0 - share) / back);
        meet(numbers[Key::Sharpness], &[thread, media])
    };
    match from {
        Remote::Local => local,
        Remote::Far => local * far(numbers, threads_f, share),
    }
}

/// Bandwidth from the other socket by the own one's, of threads that read a `share` of their bytes:
/// reads alone keep theirs, writes alone lose some, and mixes fall with threads.
#[must_use]
pub fn far(numbers: &Numbers, threads: f64, share: f64) -> f64 {
    let mixed = 4.0 * share * (1.0 - share);
    let crowd = ((threads - 1.0) / 3.0).clamp(0.0, 1.0);
    let alone = 1.0 - (1.0 - numbers[Key::RemoteWrite]) * (1.0 - share);
    alone * (1.0 - (1.0 - numbers[Key::RemoteMix]) * mixed * crowd)
}
