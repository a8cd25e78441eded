//! The backend `clock`: a clock of each thread's time in user space, 1,000 ticks a second. A tick
//! whose instruction touches persistent memory tells where and who, and not how many accesses
//! there were: a slow access is found more often than a fast one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use perf_event::Sampler as Ring;
use perf_event::data::Record;
use pmmon::decode::{Registers, Sites};
use pmmon::{Coverage, Drained, Exposure, Lacking, Origin, Sample, Sampler, Thread, Tid};

use crate::breakpoint::{open_clock, read};
use crate::watch::lacking;

/// Nanoseconds of a thread's time from tick to tick.
const PERIOD_NS: u64 = 1_000_000;
const NAME: &str = "clock";

/// The backend.
#[derive(Default)]
pub struct ClockTicks {
    threads: HashMap<Tid, (u32, Ring)>,
    processes: HashMap<u32, Process>,
    /// Samples of threads that were left.
    left: (Vec<Sample>, Drained),
}

struct Process {
    sites: Sites,
    memory: File,
    regions: Vec<Range<u64>>,
}

impl ClockTicks {
    /// Tries the backend on the calling thread.
    ///
    /// # Errors
    /// The kernel allows no clock.
    pub fn probe() -> io::Result<()> {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        open_clock(tid.unsigned_abs(), PERIOD_NS).map(drop)
    }
}

/// Takes what is in a thread's ring, and tells how long the thread has run.
fn take(
    tid: Tid,
    ring: &mut Ring,
    process: &mut Process,
    to: &mut Vec<Sample>,
    drained: &mut Drained,
) {
    while let Some(record) = ring.next_record() {
        match record.parse_record() {
            Ok(Record::Sample(sample)) => {
                let (Some(ip), Some(time_ns)) = (sample.ip(), sample.time()) else {
                    continue;
                };
                let registers = sample.regs_user().map(|user| user.regs.as_ref());
                if let Some(registers) = registers.and_then(Registers::from_perf) {
                    process.append((tid, time_ns, ip), &registers, to);
                }
            }
            Ok(Record::Lost(lost)) => drained.lost += lost.lost,
            Ok(Record::Throttle(_)) => drained.throttled += 1,
            Ok(_) => {}
            Err(_) => drained.lost += 1,
        }
    }
    if let Ok(now) = read(ring.as_counter_mut()) {
        drained.ran.push((tid, now.running_ns));
    }
}

impl Process {
    /// Appends the accesses of a tick, if there are any: at most one of each direction.
    fn append(
        &mut self,
        (tid, time_ns, ip): (Tid, u64, u64),
        registers: &Registers,
        to: &mut Vec<Sample>,
    ) {
        let (memory, regions) = (&self.memory, &self.regions);
        let found = self.sites.touching(
            ip,
            registers,
            time_ns,
            |from, buffer| memory.read_exact_at(buffer, from).is_ok(),
            |address| regions.iter().any(|region| region.contains(&address)),
        );
        let Some(found) = found else { return };
        let begin = to.len();
        for access in found.accesses {
            if to[begin..]
                .iter()
                .any(|other| other.access == access.access)
            {
                continue;
            }
            to.push(Sample {
                tid,
                time_ns,
                ip: found.ip,
                address: access.address.unwrap_or(0),
                access: access.access,
                bytes: access.bytes.max().unwrap_or(0),
                exposure: Exposure::Time {
                    period_ns: PERIOD_NS,
                },
                origin: Origin::Mapped,
            });
        }
    }
}

impl Sampler for ClockTicks {
    fn what(&self) -> Coverage {
        Coverage {
            backend: NAME,
            reads: true,
            writes: true,
            counts: false,
        }
    }

    fn regions(&mut self, pid: u32, regions: &[Range<u64>]) -> io::Result<()> {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.regions = regions.to_vec();
            return Ok(());
        }
        let process = Process {
            sites: Sites::default(),
            memory: File::open(format!("/proc/{pid}/mem"))?,
            regions: regions.to_vec(),
        };
        self.processes.insert(pid, process);
        Ok(())
    }

    fn follow(&mut self, thread: Thread) -> Result<(), Lacking> {
        if self.threads.contains_key(&thread.tid) {
            return Ok(());
        }
        if !self.processes.contains_key(&thread.pid) {
            return Err(lacking(NAME, &io::Error::from(ErrorKind::NotFound)));
        }
        let ring = open_clock(thread.tid, PERIOD_NS).map_err(|error| lacking(NAME, &error))?;
        self.threads.insert(thread.tid, (thread.pid, ring));
        Ok(())
    }

    fn leave(&mut self, tid: Tid) {
        let Some((pid, mut ring)) = self.threads.remove(&tid) else {
            return;
        };
        let (samples, drained) = &mut self.left;
        if let Some(process) = self.processes.get_mut(&pid) {
            take(tid, &mut ring, process, samples, drained);
        }
        drained.ended.push(tid);
        if !self.threads.values().any(|(other, _)| *other == pid) {
            self.processes.remove(&pid);
        }
    }

    fn drain(&mut self, to: &mut Vec<Sample>) -> Drained {
        let (mut samples, mut drained) = std::mem::take(&mut self.left);
        to.append(&mut samples);
        for (tid, (pid, ring)) in &mut self.threads {
            if let Some(process) = self.processes.get_mut(pid) {
                take(*tid, ring, process, to, &mut drained);
            }
        }
        drained
    }
}
