//! Patterns of access, and the machines that they run on.

use serde::{Deserialize, Serialize};

use crate::error::{BadInput, Result};
use crate::geometry::{Geometry, LINE, PAGE};

/// The threads up to which the parameters are fitted.
pub const THREADS_FITTED: u32 = 32;
/// The most threads that are answered for.
pub const THREADS_MAX: u32 = 4096;
/// The greatest access.
pub const ACCESS_MAX: u64 = 1 << 30;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Loads.
    #[serde(rename = "load")]
    Load,
    /// Stores past the cache.
    #[serde(rename = "ntstore")]
    NtStore,
    /// Stores, each line flushed and kept.
    #[serde(rename = "store+clwb")]
    StoreClwb,
    /// Stores, each line flushed and dropped.
    #[serde(rename = "store+clflushopt")]
    StoreClflushopt,
    /// Stores that leave the cache when it is full.
    #[serde(rename = "store")]
    Store,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 5] = [
        Op::Load,
        Op::NtStore,
        Op::StoreClwb,
        Op::StoreClflushopt,
        Op::Store,
    ];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Op::Load => "load",
            Op::NtStore => "ntstore",
            Op::StoreClwb => "store+clwb",
            Op::StoreClflushopt => "store+clflushopt",
            Op::Store => "store",
        }
    }

    /// The operation of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.name() == name)
    }
}

/// The order of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One after the other.
    #[serde(rename = "seq")]
    Sequential,
    /// Anywhere, at multiples of the access.
    #[serde(rename = "rand")]
    Random,
    /// By a stride.
    Strided,
}

/// A pattern.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pattern {
    /// The operation.
    pub op: Op,
    /// The order.
    pub order: Order,
    /// Bytes of an access.
    pub access: u64,
    /// Bytes from one access to the next, if strided; else the access.
    pub stride: u64,
    /// Threads.
    pub threads: u32,
}

impl Pattern {
    /// A pattern. A stride of `None` is the access.
    ///
    /// # Errors
    /// No bytes, no threads, too many of either, or a stride below the access.
    pub fn new(
        op: Op,
        order: Order,
        access: u64,
        stride: Option<u64>,
        threads: u32,
    ) -> Result<Pattern> {
        if access == 0 || access > ACCESS_MAX {
            return Err(BadInput::new(
                "access",
                format!("accesses of {access} B"),
                format!("give 1 to {ACCESS_MAX} B"),
            ));
        }
        if threads == 0 || threads > THREADS_MAX {
            return Err(BadInput::new(
                "threads",
                format!("{threads} threads"),
                format!("give 1 to {THREADS_MAX}"),
            ));
        }
        let stride = match order {
            Order::Strided => stride.unwrap_or(access),
            _ => access,
        };
        if stride < access {
            return Err(BadInput::new(
                "stride",
                format!("a stride of {stride} B is below the access of {access} B"),
                "the processor's cache serves it: give a larger stride, or --cached for the most that modules allow",
            ));
        }
        Ok(Pattern {
            op,
            order,
            access,
            stride,
            threads,
        })
    }

    /// Returns whether each access begins where the last ended.
    #[must_use]
    pub fn is_sequential(&self) -> bool {
        self.order != Order::Random && self.stride == self.access
    }

    /// Share of the bytes of each line entered that are asked for.
    #[must_use]
    pub fn used(&self) -> f64 {
        if self.is_sequential() {
            return 1.0;
        }
        if self.order == Order::Strided && self.stride <= LINE {
            return self.access as f64 / self.stride as f64;
        }
        self.access as f64 / (self.access.div_ceil(LINE) * LINE) as f64
    }

    /// Pages that an access enters by a stride: none of its own if accesses are random.
    #[must_use]
    pub fn pages(&self) -> f64 {
        if self.order == Order::Random {
            return 0.0;
        }
        let entered = (self.stride as f64 / PAGE as f64).min(1.0);
        entered * (self.access as f64 / PAGE as f64).max(1.0)
    }

    /// Returns whether a reading thread waits for each access before the next: the loop of the
    /// sweep's strided reads of 2 KiB and more does.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.order == Order::Strided
            && self.access >= 2048
            && !(self.is_sequential() && self.access < PAGE)
    }
}

/// A generation of modules, with its hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Generation {
    /// Optane 100 in Cascade Lake.
    #[serde(rename = "100")]
    First,
    /// Optane 200 in Ice Lake.
    #[serde(rename = "200")]
    Second,
}

/// A machine: modules, budget, and habits of the host that change figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Modules and their interleaving.
    pub geometry: Geometry,
    /// Average power of a module, in watts.
    pub budget_w: f64,
    /// The generation.
    pub generation: Generation,
    /// Modules of 128 or 512 GB.
    pub other_capacity: bool,
    /// UCSD's second host.
    pub second_host: bool,
    /// A memory clock below 2666 MT/s.
    pub slow_clock: bool,
    /// A fence follows each write.
    pub fenced: bool,
    /// The processor prefetches.
    pub prefetcher: bool,
}

impl Machine {
    /// A first-generation machine at 15 W without habits.
    ///
    /// # Errors
    /// Those of [`Geometry::new`].
    pub fn plain(dimms: u32, interleave: u64) -> Result<Machine> {
        Ok(Machine {
            geometry: Geometry::new(dimms, interleave)?,
            budget_w: 15.0,
            generation: Generation::First,
            other_capacity: false,
            second_host: false,
            slow_clock: false,
            fenced: false,
            prefetcher: false,
        })
    }

    /// One of `count` equal parts of the machine; at least one module.
    #[must_use]
    pub fn part(mut self, count: u32) -> Machine {
        self.geometry = self.geometry.part(count);
        self
    }

    /// The same with another budget.
    ///
    /// # Errors
    /// A budget that no module takes.
    pub fn at_budget(mut self, watts: f64) -> Result<Machine> {
        if !(8.0..=25.0).contains(&watts) {
            return Err(BadInput::new(
                "power",
                format!("a budget of {watts} W"),
                "give 8 to 25 W; 12.5, 15 and 18 were measured",
            ));
        }
        self.budget_w = watts;
        Ok(self)
    }
}
