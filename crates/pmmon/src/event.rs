//! The events that a monitor tells, in the order of time. A recording is a line of JSON for each.

use serde::{Deserialize, Serialize};

use crate::calls::Calls;
use crate::regions::Region;
use crate::{Drained, Sample, Tid};

/// The form of events that this version writes and reads.
pub const SCHEMA: u32 = 1;

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The first event.
    Begin {
        /// [`SCHEMA`].
        schema: u32,
        /// The backend's name.
        backend: String,
        /// Loads are seen.
        reads: bool,
        /// Samples tell how many accesses there were.
        counts: bool,
        /// The cost of a trap to a thread, in nanoseconds.
        trap_ns: f64,
        /// `CLOCK_MONOTONIC`.
        time_ns: u64,
    },
    /// A process is looked at from now on, or one that is has become another program.
    Process {
        /// Its number here.
        pid: u32,
        /// When it was started, since the machine was.
        start_ns: u64,
        /// The command's name.
        command: String,
        /// Its number in its own namespace, if that is another.
        inner_pid: Option<u32>,
        /// It had run before the monitor looked.
        was_running: bool,
    },
    /// Where a process has persistent memory and code, from now on.
    Regions {
        /// The process.
        pid: u32,
        /// Persistent memory.
        regions: Vec<Region>,
        /// Code.
        code: Vec<Region>,
    },
    /// A thread is followed from now on.
    Thread {
        /// Its process.
        pid: u32,
        /// The thread.
        tid: Tid,
    },
    /// Something is not seen, with the cause and the way out.
    NotSeen {
        /// The process.
        pid: u32,
        /// The cause.
        cause: String,
        /// The way out.
        remedy: String,
    },
    /// A sampler has delivered something.
    Batch {
        /// `CLOCK_MONOTONIC`.
        time_ns: u64,
        /// The samples.
        samples: Vec<Sample>,
        /// Arms, times, and losses.
        drained: Drained,
    },
    /// Calls of threads since the monitor began, counted exactly; threads that have made none since
    /// the last such event are left out.
    Calls {
        /// `CLOCK_MONOTONIC`.
        time_ns: u64,
        /// Threads, and totals.
        calls: Vec<(Tid, Calls)>,
    },
    /// A process has ended.
    Ended {
        /// The process.
        pid: u32,
    },
    /// The last event.
    End {
        /// `CLOCK_MONOTONIC`.
        time_ns: u64,
    },
}
