//! The load that a monitor has seen lately: how many threads write, in which sizes and order.
//!
//! The order of a thread's stores is told by the addresses of its samples one after the other:
//! they rise, or fall, if stores are in order, and do both equally often if they are anywhere.
//! A watched word's address was drawn by the monitor and tells nothing of it.

use std::collections::{BTreeSet, HashMap, VecDeque};

use pmep::Order;

use crate::{Access, Exposure, Sample, Tid};

/// The time that counts as lately, in nanoseconds.
pub const WINDOW_NS: u64 = 1_000_000_000;
/// Steps of a thread from which an order is told: few ones fall to one side by chance.
const STEPS_MIN: u32 = 12;
/// Share of steps in one direction from which stores are in order, and below which they are not
/// any more. Those anywhere have half of them, and those in order lose some where they begin anew.
const IN_ORDER: f64 = 0.8;
const ANYWHERE: f64 = 0.7;

/// The work of writers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Threads that write.
    pub writers: u32,
    /// Bytes of the middle access.
    pub access: u64,
    /// The order of most threads' stores.
    pub order: Order,
}

/// The direction of a sample's address from the thread's last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Unknown,
    Up,
    Down,
}

/// Stores that were seen lately.
#[derive(Clone, Debug)]
pub struct Seen {
    stores: VecDeque<(u64, Tid, u32, Step)>,
    /// The last address of each thread.
    last: HashMap<Tid, u64>,
    /// The order that was told last: anywhere, until one is known.
    order: Order,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            stores: VecDeque::new(),
            last: HashMap::new(),
            order: Order::Random,
        }
    }
}

impl Seen {
    /// Adds what a sampler has delivered.
    pub fn add(&mut self, samples: &[Sample]) {
        let stores = samples.iter();
        let stores = stores.filter(|one| one.access == Access::Write && one.bytes > 0);
        for store in stores {
            let step = match store.exposure {
                Exposure::Word { .. } | Exposure::Beside { .. } => Step::Unknown,
                Exposure::Probability(_) | Exposure::Time { .. } => {
                    match self.last.insert(store.tid, store.address) {
                        Some(last) if last < store.address => Step::Up,
                        Some(last) if last > store.address => Step::Down,
                        _ => Step::Unknown,
                    }
                }
            };
            let seen = (store.time_ns, store.tid, store.bytes, step);
            self.stores.push_back(seen);
        }
    }

    /// A thread has ended.
    pub fn forget(&mut self, tid: Tid) {
        self.last.remove(&tid);
        self.stores.retain(|(_, of, _, _)| *of != tid);
    }

    /// The load; `None` if nobody has written lately.
    pub fn load(&mut self, now_ns: u64) -> Option<Load> {
        let is_lately = |time_ns: u64| time_ns.saturating_add(WINDOW_NS) > now_ns;
        self.stores.retain(|(time_ns, _, _, _)| is_lately(*time_ns));
        let mut sizes: Vec<u32> = self.stores.iter().map(|store| store.2).collect();
        sizes.sort_unstable();
        let access = u64::from(*sizes.get(sizes.len() / 2)?);
        let writers: BTreeSet<Tid> = self.stores.iter().map(|store| store.1).collect();
        if let Some(share) = self.one_way() {
            self.order = match self.order {
                Order::Random if share >= IN_ORDER => Order::Sequential,
                Order::Sequential if share < ANYWHERE => Order::Random,
                same => same,
            };
        }
        Some(Load {
            writers: u32::try_from(writers.len()).unwrap_or(u32::MAX),
            access,
            order: self.order,
        })
    }

    /// Share of steps in the direction that most of their thread's steps have.
    fn one_way(&self) -> Option<f64> {
        let mut steps: HashMap<Tid, (u32, u32)> = HashMap::new();
        for (_, tid, _, step) in &self.stores {
            let (up, down) = steps.entry(*tid).or_default();
            *up += u32::from(*step == Step::Up);
            *down += u32::from(*step == Step::Down);
        }
        let known = steps.values().filter(|(up, down)| up + down >= STEPS_MIN);
        let sum = |(most, all): (u32, u32), (up, down): &(u32, u32)| {
            (most + up.max(down), all + up + down)
        };
        let (most, all) = known.fold((0, 0), sum);
        (all > 0).then(|| f64::from(most) / f64::from(all))
    }
}
