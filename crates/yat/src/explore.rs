//! The power-loss model: a crash at every fence and at every return, in every image that the memory
//! model allows.

use crate::crash_image::{Chooser, CrashImage};
use crate::memory::Pending;
use crate::mutants::{Mutant, Scope, Site, site_of};
use crate::program::{Moment, Program};
use crate::quiet::quietly;
use crate::trace::{Event, Place, Recorder, Trace};
use pmem::Pmem;
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The images that one crash point may have before they are sampled, unless [`Options`] say
/// otherwise.
pub const IMAGES_MAX: u64 = 1 << 16;
/// One in so many of these is then taken at random.
const SAMPLE_ONE_IN: u64 = 16;

/// The amounts that were looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Workloads.
    pub workloads: u64,
    /// Steps that were crashed.
    pub steps: u64,
    /// Crash points: fences and returns; those of recoveries too.
    pub points: u64,
    /// Crash points in recoveries.
    pub nested: u64,
    /// Images that the model allows at those points.
    pub allowed: f64,
    /// Images told apart by what recovery, check, comparison and use read, on which all of these
    /// ran.
    pub images: u64,
    /// The most that one point had.
    pub images_max: u64,
    /// Points at which images were sampled.
    pub sampled: u64,
    /// Points that were left early, as their workload had had all its images.
    pub cut: u64,
    /// Visible states, told apart in each workload.
    pub states: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.workloads += other.workloads;
        self.steps += other.steps;
        self.points += other.points;
        self.nested += other.nested;
        self.allowed += other.allowed;
        self.images += other.images;
        self.images_max = self.images_max.max(other.images_max);
        self.sampled += other.sampled;
        self.cut += other.cut;
        self.states += other.states;
    }
}

/// The way to explore.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Steps before this one are recorded, and not crashed.
    pub from: usize,
    /// Crashes inside recovery, that many deep.
    pub depth: usize,
    /// A store, flush or fence that is got wrong, as if the source were so.
    pub mutant: Option<Mutant>,
    /// The seed of samples.
    pub seed: u64,
    /// The images that one crash point may have before they are sampled.
    pub images_max: u64,
    /// The images that one workload may have: behind them one is tried at each point, and none of a
    /// crash in its recovery.
    pub images_all: u64,
    /// Images in which most is durable come first: where a checksum tells all others apart, and not
    /// all can be tried.
    pub durable_first: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            from: 0,
            depth: 0,
            mutant: None,
            seed: 1,
            images_max: IMAGES_MAX,
            images_all: u64::MAX,
            durable_first: false,
        }
    }
}

/// The time of a power failure, in a step or in a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The moment before this fence.
    Fence(usize),
    /// The moment after the step's return.
    Return,
    /// After the recovered pool had been used.
    Use,
}

/// The place of a crash: the step and when in it, then when in the recoveries that were crashed
/// too; and the image that was left, as choices, for each of these crashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crash {
    /// The step.
    pub step: usize,
    /// The time in it, and the times in recoveries.
    pub when: Vec<When>,
    /// The choices where words were undecided.
    pub images: Vec<Vec<u32>>,
}

/// A crash after which something is wrong.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The workload.
    pub workload: String,
    /// The step's name.
    pub step: String,
    /// The crash: its time, and its image.
    pub crash: Crash,
    /// The place of the fence in the source.
    pub place: Option<Place>,
    /// The damage, in words.
    pub text: String,
    /// Stores that were not durable for certain: byte offset, place, whether this image has them
    /// (`None`: nobody looked).
    pub stores: Vec<(u64, Place, Option<bool>)>,
    /// Images tried in this workload until then.
    pub after_images: u64,
    /// The longer workload that it was found in first.
    pub shrunk_from: Option<String>,
}

/// A workload that ran: where it began, what it did, and what could be seen after each step.
pub struct Recording<V> {
    /// The pool before.
    pub base: Arc<[u8]>,
    /// The trace of what was done to it.
    pub trace: Trace,
    /// Before the first step, after it, ...
    pub history: Vec<V>,
    volatile: std::ops::Range<u64>,
}

impl<V> Recording<V> {
    /// Records what `program` did otherwise than step by step.
    pub(crate) fn of<P: Program<Visible = V>>(
        base: Vec<u8>,
        trace: Trace,
        program: &P,
    ) -> Recording<V> {
        let mem = Pmem::private(base.len() as u64);
        mem.poke(0, &base);
        Recording {
            volatile: program.volatile(&mem),
            base: base.into(),
            trace,
            history: Vec::new(),
        }
    }
}

/// Runs a program's steps under the recorder.
///
/// # Errors
/// A step that failed, in words.
pub fn record<P: Program>(program: &P) -> Result<Recording<P::Visible>, String> {
    let mem = program.setup()?;
    let base = mem.snapshot_image().into();
    let volatile = program.volatile(&mem);
    let recorder = Arc::new(Recorder::new(volatile.clone()));
    recorder.start();
    let mut running = program.attach(mem, recorder.clone())?;
    program.prepare(&mut running)?;
    recorder.returned();
    let mut history = vec![program.inspect(&mut running)?];
    for step in 0..program.steps() {
        program
            .step(&mut running, step)
            .map_err(|text| format!("{}: {text}", program.step_name(step)))?;
        recorder.returned();
        history.push(program.inspect(&mut running)?);
    }
    Ok(Recording {
        base,
        trace: recorder.stop(),
        history,
        volatile,
    })
}

/// Memory that is filled, recovered and judged again and again.
struct Arena {
    mem: Option<Pmem>,
    image: Arc<CrashImage>,
}

impl Arena {
    fn new(len: u64, volatile: std::ops::Range<u64>, durable_first: bool) -> Arena {
        Arena {
            mem: None,
            image: Arc::new(CrashImage::new(len, volatile, durable_first)),
        }
    }

    /// The memory, holding what is durable. `kept`: it held it before, but for `changed` lines and
    /// what was done to it.
    fn filled(&mut self, pending: &Pending, kept: bool, changed: &[u64]) -> Pmem {
        let dirty = self.image.take_dirty();
        match self.mem.take() {
            Some(mem) if kept => {
                for page in dirty {
                    let at = page as usize;
                    let end = (at + 4096).min(pending.durable.len());
                    mem.poke(page, &pending.durable[at..end]);
                }
                for &line in changed {
                    let at = line as usize;
                    mem.poke(line, &pending.durable[at..at + 64]);
                }
                mem
            }
            other => {
                let mem = other.unwrap_or_else(|| Pmem::private(pending.durable.len() as u64));
                mem.poke(0, &pending.durable);
                mem
            }
        }
    }
}

/// The life of one image.
struct Life<V> {
    /// Choices that recovery made.
    made: usize,
    /// The state that was seen, as a number; or what is wrong.
    result: Result<u64, String>,
    /// The trace of recovery, if that is to be crashed too.
    recovery: Option<Trace>,
    /// The words that check and look decided, and what was seen.
    look: Option<(Trace, V)>,
    /// The trace of the use of the recovered pool, and what was seen after it.
    use_of_it: Option<(Trace, V)>,
}

/// Explores one recorded workload.
pub struct Explorer<'a, P: Program> {
    program: &'a P,
    recording: &'a Recording<P::Visible>,
    options: Options,
    /// One for each depth.
    arenas: Vec<Arena>,
    counts: Counts,
    states: HashSet<u64>,
    /// States that a nested crash was explored in.
    nested: HashSet<u64>,
    /// The state that a recovery has shown already, before and after a step of nothing: what comes
    /// after it must show it too.
    shown: Option<Arc<[P::Visible; 2]>>,
    /// Sites of recoveries.
    sites: BTreeSet<Site>,
    crash: Crash,
}

/// Records and explores a workload.
///
/// # Errors
/// The first violation; or, in words, a workload that makes no sense.
pub fn explore<P: Program>(
    program: &P,
    options: Options,
) -> Result<Result<Counts, Box<Violation>>, String> {
    let recording = record(program)?;
    Ok(Explorer::new(program, &recording, options).run())
}

impl<'a, P: Program> Explorer<'a, P> {
    /// Explores `recording`, which `program` made.
    pub fn new(
        program: &'a P,
        recording: &'a Recording<P::Visible>,
        options: Options,
    ) -> Explorer<'a, P> {
        let len = recording.base.len() as u64;
        let arena = || Arena::new(len, recording.volatile.clone(), options.durable_first);
        let arenas = (0..=options.depth).map(|_| arena());
        Explorer {
            program,
            recording,
            options,
            arenas: arenas.collect(),
            counts: Counts {
                workloads: 1,
                ..Counts::default()
            },
            states: HashSet::new(),
            nested: HashSet::new(),
            shown: None,
            sites: BTreeSet::new(),
            crash: Crash::default(),
        }
    }

    /// Every crash point.
    ///
    /// # Errors
    /// The first violation.
    pub fn run(mut self) -> Result<Counts, Box<Violation>> {
        self.explore()?;
        Ok(self.counts)
    }

    /// Explores like [`Explorer::run`], by reference.
    ///
    /// # Errors
    /// The first violation.
    pub fn explore(&mut self) -> Result<(), Box<Violation>> {
        let trace = &self.recording.trace;
        let mut pending = Pending::new(self.recording.base.to_vec());
        // The first return is that of what came before the first step.
        let (mut returns, mut fence) = (0, 0);
        for event in trace.without(self.options.mutant, Scope::Prepared) {
            match *event {
                Event::Fence { at, .. } => {
                    if returns > self.options.from {
                        self.crash.step = returns - 1;
                        self.point(&mut pending, When::Fence(fence), Some(at))?;
                    }
                    fence += 1;
                }
                Event::Return { .. } => {
                    if returns > self.options.from {
                        self.crash.step = returns - 1;
                        self.counts.steps += 1;
                        self.point(&mut pending, When::Return, None)?;
                    }
                    returns += 1;
                    fence = 0;
                }
                _ => {}
            }
            pending.apply(trace, event);
            if returns == 1 && matches!(event, Event::Return { .. }) {
                pending.drain();
            }
        }
        self.counts.states = self.states.len() as u64;
        Ok(())
    }

    /// The sites of the recoveries that were crashed.
    pub fn take_sites(&mut self) -> BTreeSet<Site> {
        std::mem::take(&mut self.sites)
    }

    /// One crash in one image, for a replay.
    ///
    /// # Errors
    /// The violation, if it is one.
    pub fn replay(mut self, crash: &Crash) -> Result<(), Box<Violation>> {
        let trace = &self.recording.trace;
        let mut pending = Pending::new(self.recording.base.to_vec());
        let (mut returns, mut fence) = (0, 0);
        self.crash.step = crash.step;
        for event in &trace.events {
            let here = returns == crash.step + 1;
            let (at, returned) = match *event {
                Event::Fence { at, .. } if here && crash.when[0] == When::Fence(fence) => {
                    (Some(at), false)
                }
                Event::Return { .. } if here && crash.when[0] == When::Return => (None, true),
                _ => {
                    match event {
                        Event::Fence { .. } => fence += 1,
                        Event::Return { .. } => (returns, fence) = (returns + 1, 0),
                        _ => {}
                    }
                    pending.apply(trace, event);
                    if returns == 1 && matches!(event, Event::Return { .. }) {
                        pending.drain();
                    }
                    continue;
                }
            };
            return self.replay_at(pending, crash, at, returned);
        }
        Ok(())
    }

    fn replay_at(
        &mut self,
        mut pending: Pending,
        crash: &Crash,
        mut place: Option<Place>,
        returned: bool,
    ) -> Result<(), Box<Violation>> {
        for depth in 0..crash.images.len() {
            self.crash.when.push(crash.when[depth]);
            let chooser = Chooser::replay(&crash.images[depth]);
            let life = self.judge(&pending, depth, chooser, returned, false, &[]);
            let chooser = self.arenas[depth].image.take_chooser();
            let Some(&next) = crash.when.get(depth + 1) else {
                return life
                    .result
                    .map(drop)
                    .map_err(|text| self.violation(text, place, depth, &chooser));
            };
            let mut after = Pending::after_crash(&pending);
            let recovery = life.recovery.map(|trace| (trace, None));
            let [look, use_of_it] = [life.look, life.use_of_it]
                .map(|part| part.map(|(trace, seen)| (trace, Some(seen))));
            let parts = match next {
                When::Fence(_) => 1,
                When::Return => 2,
                When::Use => 3,
            };
            let lived = [recovery, look, use_of_it].into_iter().take(parts);
            for (trace, seen) in lived.flatten() {
                place = after.follow(&trace, next, None);
                self.shown = seen.map(|seen| Arc::new([seen.clone(), seen]));
            }
            self.crash.images.push(chooser.choices());
            pending = after;
        }
        Ok(())
    }

    /// One crash point, of a trace that somebody else follows: `step` is what [`Moment::step`]
    /// says.
    pub(crate) fn crash_at(
        &mut self,
        pending: &mut Pending,
        step: usize,
        when: When,
        place: Option<Place>,
    ) -> Result<(), Box<Violation>> {
        self.crash.step = step;
        self.point(pending, when, place)
    }

    /// Returns the amounts that were looked at.
    pub(crate) fn into_counts(mut self) -> Counts {
        self.counts.states = self.states.len() as u64;
        self.counts.workloads = 0;
        self.counts
    }

    fn point(
        &mut self,
        pending: &mut Pending,
        when: When,
        place: Option<Place>,
    ) -> Result<(), Box<Violation>> {
        let changed = pending.take_changed();
        let returned = when == When::Return;
        self.images(pending, 0, when, place, returned, &changed)
    }

    /// Every image of a crash point, and below it those of crashes in their recoveries.
    fn images(
        &mut self,
        pending: &Pending,
        depth: usize,
        when: When,
        place: Option<Place>,
        returned: bool,
        changed: &[u64],
    ) -> Result<(), Box<Violation>> {
        self.crash.when.push(when);
        let mut chooser = Chooser::default();
        let (mut images, mut kept, mut random) = (0, depth == 0, 0);
        let mut changed = changed;
        loop {
            let life = self.judge(pending, depth, chooser, returned, kept, changed);
            chooser = self.arenas[depth].image.take_chooser();
            (kept, changed) = (true, &[]);
            images += 1;
            self.counts.images += 1;
            match life.result {
                Err(text) => return Err(self.violation(text, place, depth, &chooser)),
                Ok(state) => self.states.insert(state),
            };
            if self.counts.images >= self.options.images_all {
                self.counts.cut += 1;
                break;
            }
            let rest = &chooser.choices()[life.made..];
            if let Some(recovery) = &life.recovery
                && rest.iter().all(|&choice| choice == 0)
            {
                self.crash.images.push(chooser.choices());
                let mut after = Pending::after_crash(pending);
                self.nested(&mut after, recovery, depth, returned)?;
                if let Some(look) = &life.look {
                    self.after_recovery(&mut after, look, depth)?;
                }
                if let Some(use_of_it) = &life.use_of_it {
                    self.second_life(&mut after, use_of_it, depth, place)?;
                }
                self.crash.images.pop();
            }
            if images == self.options.images_max {
                self.counts.sampled += 1;
                chooser = Chooser::random(self.options.seed);
            }
            random += u64::from(images >= self.options.images_max);
            if !chooser.advance() || random > self.options.images_max / SAMPLE_ONE_IN {
                break;
            }
        }
        self.counts.points += 1;
        self.counts.nested += u64::from(depth > 0);
        self.counts.allowed += pending.allowed();
        self.counts.images_max = self.counts.images_max.max(images);
        self.crash.when.pop();
        Ok(())
    }

    /// Crashes of one recovery, at each of its fences. `after`: what the crash before it left, and
    /// at the end what the recovery did.
    fn nested(
        &mut self,
        after: &mut Pending,
        trace: &Trace,
        depth: usize,
        returned: bool,
    ) -> Result<(), Box<Violation>> {
        let mut fence = 0;
        for event in trace.without(self.options.mutant, Scope::Whole) {
            self.sites.extend(site_of(event));
            if let Event::Fence { at, .. } = *event {
                if self.nested.insert(self.fingerprint(after, depth)) {
                    let when = When::Fence(fence);
                    self.images(after, depth + 1, when, Some(at), returned, &[])?;
                }
                fence += 1;
            }
            after.apply(trace, event);
        }
        Ok(())
    }

    /// A crash after a recovery: what it has shown must be there.
    fn after_recovery(
        &mut self,
        after: &mut Pending,
        (trace, seen): &(Trace, P::Visible),
        depth: usize,
    ) -> Result<(), Box<Violation>> {
        after.follow(trace, When::Return, self.options.mutant);
        let outer = self.shown.replace(Arc::new([seen.clone(), seen.clone()]));
        if self.nested.insert(self.fingerprint(after, depth)) {
            self.images(after, depth + 1, When::Return, None, true, &[])?;
        }
        self.shown = outer;
        Ok(())
    }

    /// Power fails again when the recovered pool was used: what was seen then must be there, and
    /// nothing that the first recovery undid may come back.
    fn second_life(
        &mut self,
        after: &mut Pending,
        (trace, seen): &(Trace, P::Visible),
        depth: usize,
        place: Option<Place>,
    ) -> Result<(), Box<Violation>> {
        after.follow(trace, When::Return, self.options.mutant);
        let outer = self.shown.replace(Arc::new([seen.clone(), seen.clone()]));
        if !self.nested.insert(self.fingerprint(after, depth)) {
            self.shown = outer;
            return Ok(());
        }
        let mut chooser = Chooser::default();
        let mut kept = false;
        loop {
            let life = self.judge(after, depth + 1, chooser, true, kept, &[]);
            kept = true;
            chooser = self.arenas[depth + 1].image.take_chooser();
            self.counts.images += 1;
            if let Err(text) = life.result {
                let text = format!("power failed again after the recovered pool was used: {text}");
                self.crash.when.push(When::Use);
                return Err(self.violation(text, place, depth + 1, &chooser));
            }
            if !chooser.advance() {
                break;
            }
        }
        self.shown = outer;
        self.counts.points += 1;
        self.counts.nested += 1;
        Ok(())
    }

    /// Recovers one image of a crash point and judges it.
    fn judge(
        &mut self,
        pending: &Pending,
        depth: usize,
        chooser: Chooser,
        returned: bool,
        kept: bool,
        changed: &[u64],
    ) -> Life<P::Visible> {
        let mem = self.arenas[depth].filled(pending, kept, changed);
        let shown = self.shown.clone();
        let moment = match &shown {
            Some(history) => Moment {
                history: history.as_slice(),
                step: 0,
                returned: true,
            },
            None => Moment {
                history: &self.recording.history,
                step: self.crash.step,
                returned,
            },
        };
        self.live(mem, pending, depth, chooser, &moment)
    }

    /// Recovers one image, checks it, compares what is seen, and uses it.
    fn live(
        &mut self,
        mem: Pmem,
        pending: &Pending,
        depth: usize,
        chooser: Chooser,
        moment: &Moment<'_, P::Visible>,
    ) -> Life<P::Visible> {
        let nest = depth < self.options.depth;
        let image = self.arenas[depth].image.clone();
        image.arm(pending, chooser, nest);
        let program = self.program;
        let mut life = Life {
            made: 0,
            result: Err(String::new()),
            recovery: None,
            look: None,
            use_of_it: None,
        };
        let outcome = quietly(|| {
            let mut running = program.attach(mem, image.clone())?;
            (life.made, life.recovery) = (image.made(), image.take_trace());
            image.trace_on(nest);
            program.check(&mut running)?;
            let seen = program.inspect(&mut running)?;
            program.accepts(&seen, moment)?;
            life.look = image.take_trace().map(|trace| (trace, seen.clone()));
            image.trace_on(nest);
            program
                .go_on(&mut running)
                .map_err(|text| format!("using it: {text}"))?;
            if let Some(trace) = image.take_trace() {
                life.use_of_it = Some((trace, program.inspect(&mut running)?));
            }
            Ok((hash_of(&seen), program.detach(running)))
        });
        let outcome = outcome.and_then(|outcome: Result<_, String>| outcome);
        life.result = outcome.map(|(state, mem)| {
            self.arenas[depth].mem = mem;
            state
        });
        life
    }

    /// Tells apart what a crash in a recovery may leave, and what may be seen then.
    fn fingerprint(&self, pending: &Pending, depth: usize) -> u64 {
        let mut hasher = DefaultHasher::new();
        let returned = self.crash.when[0] == When::Return;
        (depth, self.crash.step, returned).hash(&mut hasher);
        self.shown
            .as_ref()
            .map(|shown| hash_of(&shown[0]))
            .hash(&mut hasher);
        pending.digest().hash(&mut hasher);
        hasher.finish()
    }

    fn violation(
        &self,
        text: String,
        place: Option<Place>,
        depth: usize,
        chooser: &Chooser,
    ) -> Box<Violation> {
        let mut crash = self.crash.clone();
        crash.images.push(chooser.choices());
        Box::new(Violation {
            workload: self.program.name(),
            step: self.program.step_name(crash.step),
            crash,
            place,
            text,
            stores: self.arenas[depth].image.stores(),
            after_images: self.counts.images,
            shrunk_from: None,
        })
    }
}

fn hash_of(visible: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    visible.hash(&mut hasher);
    hasher.finish()
}
