//! A monitor with its backend, as options say.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pm_cli::Failure;
use pmmon::monitor::Found;
use pmmon::{Event, Monitor, Sampler, Wanted, proc};
use pmmon_cli::commands::{Backend, Look};
use pmmon_sys::{ClockTicks, Finder, Watch, WatchOptions, calibrate, is_virtual};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::NOTHING;

/// The time between two looks.
const STEP: Duration = Duration::from_millis(5);

/// A backend, and the cost of its traps.
pub(crate) type Backed = (Box<dyn Sampler>, f64);
type Find = Box<dyn FnMut(u32) -> io::Result<Found>>;

/// A monitor that runs.
pub(crate) struct Session {
    monitor: Monitor<Box<dyn Sampler>, Find>,
    trap_ns: f64,
    stop: Arc<AtomicBool>,
    began: bool,
    wants_all: bool,
    was_busy: bool,
}

impl Session {
    pub fn open(look: &Look) -> Result<Self, Failure> {
        Self::with(look, sampler(look)?)
    }

    /// A monitor with a backend that is there already.
    pub fn with(look: &Look, (sampler, trap_ns): Backed) -> Result<Self, Failure> {
        let mut finder = Finder::new(look.as_pm.clone());
        for pool in &look.pool {
            finder.only(pool).map_err(|error| {
                let cause = format!("--pool {}: {error}", pool.display());
                Failure::new(cause, "name a file that is there")
            })?;
        }
        let find: Find = Box::new(move |pid| finder.find(pid));
        let wants_all = look.pid.is_empty();
        let wanted = match wants_all {
            true => Wanted::All,
            false => Wanted::Pids(look.pid.clone()),
        };
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&stop))
                .map_err(|error| Failure::new(format!("signals: {error}"), "try again"))?;
        }
        Ok(Self {
            monitor: Monitor::new(sampler, wanted, find),
            trap_ns,
            stop,
            began: false,
            wants_all,
            was_busy: false,
        })
    }

    /// The word whose truth ends this session, as a signal does.
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Looks until the time is over, `false` if there is nothing more to look at: the processes
    /// have ended, or a signal has come.
    pub fn run(
        &mut self,
        time: Duration,
        take: &mut impl FnMut(Vec<Event>) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let begin = Instant::now();
        loop {
            let mut events = Vec::new();
            if !std::mem::replace(&mut self.began, true) {
                events.push(self.monitor.begin(self.trap_ns, now_ns()));
            }
            self.monitor.step(now_ns(), &mut events);
            take(events)?;
            self.was_busy |= self.monitor.is_busy();
            let have_ended = !self.wants_all && !self.monitor.is_busy();
            if have_ended || self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(true);
            }
            std::thread::sleep(STEP.min(left));
        }
    }

    /// The last events.
    pub fn end(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.monitor.end(now_ns(), &mut events);
        events
    }
}

/// `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The backend for processes that are there.
pub(crate) fn sampler(look: &Look) -> Result<Backed, Failure> {
    if !proc::is_of_here() {
        let cause = "/proc is not of this program's PID namespace";
        let way_out = "mount -t proc proc /proc within it (unshare --mount-proc, nsenter --mount)";
        return Err(Failure::new(cause, way_out).with_code(NOTHING));
    }
    for pid in &look.pid {
        if let Err(error) = proc::stat(*pid) {
            let cause = format!("--pid {pid}: {error}");
            let way_out = "name a process that runs, as seen from here";
            return Err(Failure::new(cause, way_out));
        }
    }
    let watch = || {
        calibrate().map(|trap_ns| {
            let options = WatchOptions {
                reads: look.reads,
                ..WatchOptions::default()
            };
            (Box::new(Watch::new(options)) as Box<dyn Sampler>, trap_ns)
        })
    };
    let clock =
        || ClockTicks::probe().map(|()| (Box::new(ClockTicks::default()) as Box<dyn Sampler>, 0.0));
    let lacks = |name: &str, error: io::Error| {
        let cause = format!("--backend {name}: {error}");
        Failure::new(cause, "see `pmmon doctor`").with_code(NOTHING)
    };
    match look.backend {
        Backend::Watch => watch().map_err(|error| lacks("watch", error)),
        Backend::Clock => clock().map_err(|error| lacks("clock", error)),
        Backend::Pebs => Err(lacks("pebs", io::Error::other("not implemented"))),
        Backend::Auto => {
            let watched = match is_virtual() {
                // A look finds the machines where that happens in a part of the cases alone.
                true => Err(io::Error::other(
                    "in virtual machines its traps may kill a program, and take --backend watch",
                )),
                false => watch(),
            };
            watched.or_else(|first| {
                eprintln!("pmmon: watch: {first}; the clock tells times and no bytes");
                clock().map_err(|error| lacks("auto", error))
            })
        }
    }
}
