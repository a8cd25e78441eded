//! A monitor with its backend, as options say.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pm_cli::Failure;
use pmmon::monitor::Found;
use pmmon::{Event, Monitor, Sampler, Wanted, proc};
use pmmon_cli::commands::{Backend, Look};
use pmmon_sys::{ClockTicks, Engine, Finder, Watch, WatchOptions, calibrate, is_virtual};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::NOTHING;

/// The time between two looks.
const STEP: Duration = Duration::from_millis(5);

/// A backend.
pub(crate) enum Backed {
    /// One that samples, and the cost of its traps.
    Sampler(Box<dyn Sampler>, f64),
    /// The processes' own counts.
    Engine,
    /// A sampler, and the processes' own counts beside it.
    Both(Box<dyn Sampler>, f64),
}

impl Backed {
    /// Programs are asked to count their calls.
    pub fn counts_calls(&self) -> bool {
        matches!(self, Self::Engine | Self::Both(..))
    }
}

type Find = Box<dyn FnMut(u32) -> io::Result<Found>>;

/// A monitor of mapped use.
type Sampled = Monitor<Box<dyn Sampler>, Find>;

/// A monitor of mapped use, of calls, or both.
struct Looks {
    /// With the cost of a trap.
    sampled: Option<(Sampled, f64)>,
    stepped: Option<Instant>,
    counted: Option<Engine>,
}

impl Looks {
    fn begin(&self, to: &mut Vec<Event>) {
        let sampled = self.sampled.iter();
        to.extend(sampled.map(|(monitor, trap_ns)| monitor.begin(*trap_ns, now_ns())));
        to.extend(self.counted.iter().map(|engine| engine.begin(now_ns())));
    }

    fn step(&mut self, to: &mut Vec<Event>) {
        let is_due = self.stepped.is_none_or(|at| at.elapsed() >= STEP / 2);
        if let Some((monitor, _)) = self.sampled.as_mut().filter(|_| is_due) {
            self.stepped = Some(Instant::now());
            monitor.step(now_ns(), to);
        }
        if let Some(engine) = &mut self.counted {
            engine.step(now_ns(), to);
        }
    }

    fn end(&mut self, to: &mut Vec<Event>) {
        if let Some((monitor, _)) = &mut self.sampled {
            monitor.end(now_ns(), to);
        }
        if let Some(engine) = &mut self.counted {
            // A recording has one end.
            to.retain(|event| !matches!(event, Event::End { .. }));
            engine.end(now_ns(), to);
        }
    }

    fn step_time(&self) -> Duration {
        match self.counted {
            None => STEP,
            Some(_) => Engine::STEP,
        }
    }

    fn is_busy(&self) -> bool {
        let sampled = self.sampled.as_ref();
        let is_sampled = sampled.is_some_and(|(monitor, _)| monitor.is_busy());
        is_sampled || self.counted.as_ref().is_some_and(Engine::is_busy)
    }
}

/// A monitor that runs.
pub(crate) struct Session {
    monitor: Looks,
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
    pub fn with(look: &Look, backed: Backed) -> Result<Self, Failure> {
        let wants_all = look.pid.is_empty();
        let wanted = match wants_all {
            true => Wanted::All,
            false => Wanted::Pids(look.pid.clone()),
        };
        let counted = match backed.counts_calls() {
            true => Some(counting(look, wanted.clone())?),
            false => None,
        };
        let sampled = match backed {
            Backed::Engine => None,
            Backed::Sampler(sampler, trap_ns) | Backed::Both(sampler, trap_ns) => {
                let mut finder = finder(look)?;
                let find: Find = Box::new(move |pid| finder.find(pid));
                Some((Monitor::new(sampler, wanted, find), trap_ns))
            }
        };
        let monitor = Looks {
            sampled,
            stepped: None,
            counted,
        };
        let stop = stop_at_signals()?;
        Ok(Self {
            monitor,
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
                self.monitor.begin(&mut events);
            }
            self.monitor.step(&mut events);
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
            std::thread::sleep(self.monitor.step_time().min(left));
        }
    }

    /// The last events.
    pub fn end(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.monitor.end(&mut events);
        events
    }
}

/// A word that is true once a signal to end has come.
pub(crate) fn stop_at_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::new(format!("signals: {error}"), "try again"))?;
    }
    Ok(stop)
}

/// `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

fn no_pool(pool: &std::path::Path, error: &io::Error) -> Failure {
    let cause = format!("--pool {}: {error}", pool.display());
    Failure::new(cause, "name a file that is there")
}

fn lacks(name: &str, error: &io::Error) -> Failure {
    let cause = format!("--backend {name}: {error}");
    Failure::new(cause, "see `pmmon doctor`").with_code(NOTHING)
}

/// The backend that reads what processes count.
fn counting(look: &Look, wanted: Wanted) -> Result<Engine, Failure> {
    for pool in &look.pool {
        let found = std::fs::metadata(pool);
        found.map_err(|error| no_pool(pool, &error))?;
    }
    Engine::new(wanted, &look.pool).map_err(|error| lacks("engine", &error))
}

/// The backend for processes that are there.
pub(crate) fn sampler(look: &Look) -> Result<Backed, Failure> {
    Ok(match chosen(look)? {
        Backed::Sampler(sampler, trap_ns) if look.calls => Backed::Both(sampler, trap_ns),
        backed => backed,
    })
}

/// The processes that were named are there, and `/proc` tells of them.
pub(crate) fn check(look: &Look) -> Result<(), Failure> {
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
    Ok(())
}

/// The finder of persistent memory, by the options.
pub(crate) fn finder(look: &Look) -> Result<Finder, Failure> {
    let mut finder = Finder::new(look.as_pm.clone());
    for pool in &look.pool {
        finder.only(pool).map_err(|error| no_pool(pool, &error))?;
    }
    Ok(finder)
}

fn chosen(look: &Look) -> Result<Backed, Failure> {
    check(look)?;
    let watch = || {
        calibrate().map(|trap_ns| {
            let options = WatchOptions {
                reads: look.reads,
                neighbours: look.media,
                ..WatchOptions::default()
            };
            Backed::Sampler(Box::new(Watch::new(options)), trap_ns)
        })
    };
    let clock =
        || ClockTicks::probe().map(|()| Backed::Sampler(Box::new(ClockTicks::default()), 0.0));
    match look.backend {
        Backend::Watch => watch().map_err(|error| lacks("watch", &error)),
        Backend::Clock => clock().map_err(|error| lacks("clock", &error)),
        Backend::Engine => Ok(Backed::Engine),
        Backend::Pages => {
            let cause = "--backend pages: it tells pages, and neither threads nor bytes";
            Err(Failure::new(cause, "take `pmmon top --backend pages`").with_code(2))
        }
        Backend::Pebs => Err(lacks("pebs", &io::Error::other("not implemented"))),
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
                clock().map_err(|error| lacks("auto", &error))
            })
        }
    }
}
