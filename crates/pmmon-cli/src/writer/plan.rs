//! The work of `pmm-writer`, checked.

use pmmon_sys::{ACCESS_BYTES, Kind, Op, supported};

use super::{Cli, Flush, Order, Store, Work};

/// The largest file: offsets have 32 bits.
pub const FILE_BYTES_MAX: u64 = 1 << 32;

/// The work as it was asked for, checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Bytes of an access.
    pub access: u32,
    /// The kind of stores.
    pub kind: Kind,
    /// The work.
    pub work: Work,
    /// The order of places.
    pub order: Order,
    /// Threads.
    pub threads: u32,
    /// Accesses of each thread.
    pub accesses: u64,
    /// Bytes of each thread's part of the file.
    pub part: u64,
    /// Bytes a second of each thread.
    pub rate: Option<f64>,
}

impl Cli {
    /// Checks what was asked for.
    ///
    /// # Errors
    /// A line with the cause and the way out.
    pub fn plan(&self) -> Result<Plan, String> {
        let asked = self
            .access
            .map_or_else(|| u64::from(self.widest()), |asked| asked.0);
        let access = u32::try_from(asked).unwrap_or(u32::MAX);
        if !ACCESS_BYTES.contains(&access) {
            return Err(format!(
                "--access {asked}: no such size; take 1, 2, 4, ... 256"
            ));
        }
        let each = u64::from(access) * u64::from(self.threads);
        for (name, bytes) in [("--size", self.size.0), ("--total", self.total.0)] {
            if bytes == 0 || !bytes.is_multiple_of(each) {
                return Err(format!(
                    "{name} {bytes}: not a multiple of {} threads x {access} bytes; take {}",
                    self.threads,
                    (bytes / each).max(1).saturating_mul(each)
                ));
            }
        }
        if self.size.0 > FILE_BYTES_MAX {
            return Err(format!("--size {}: more than 4G; take less", self.size.0));
        }
        if self.rate.is_some_and(|rate| rate.0 == 0) {
            return Err("--rate 0: nothing would be done; leave it out or take more".to_owned());
        }
        let kind = self.kind()?;
        let plan = Plan {
            access,
            kind,
            work: self.op,
            order: self.order,
            threads: self.threads,
            accesses: self.total.0 / each,
            part: self.size.0 / u64::from(self.threads),
            rate: self
                .rate
                .map(|rate| rate.0 as f64 / f64::from(self.threads)),
        };
        self.supported(&plan)?;
        Ok(plan)
    }

    fn kind(&self) -> Result<Kind, String> {
        match (self.store, self.flush) {
            (Store::Temporal, Flush::None) => Ok(Kind::Temporal),
            (Store::Temporal, Flush::Clwb) => Ok(Kind::Flushed),
            (Store::Nt, Flush::None) => Ok(Kind::NonTemporal),
            (Store::Nt, Flush::Clwb) => Err(
                "--flush clwb --store nt: nothing is left in the caches; leave --flush out"
                    .to_owned(),
            ),
        }
    }

    /// The most bytes up to a line that one access can have.
    fn widest(&self) -> u32 {
        let has = |&bytes: &u32| self.calls.is_some() || supported(Op::Read, bytes);
        match self.jit {
            true => 16,
            false => [64, 32].into_iter().find(has).unwrap_or(16),
        }
    }

    fn supported(&self, plan: &Plan) -> Result<(), String> {
        if self.calls.is_some() {
            if self.op != Work::Write || self.jit || self.flush != Flush::None {
                return Err("--calls pwrite only writes; leave --op, --jit and --flush out".into());
            }
            return Ok(());
        }
        if self.jit && (plan.access > 16 || plan.kind == Kind::Flushed) {
            return Err("--jit: only 1 to 16 bytes without --flush; take less".to_owned());
        }
        let ops: &[Op] = match self.op {
            Work::Write => &[Op::Write(plan.kind)],
            Work::Read => &[Op::Read],
            Work::Mix => &[Op::Read, Op::Write(plan.kind)],
        };
        for op in ops {
            if !supported(*op, plan.access) {
                return Err(format!(
                    "this CPU has no such instruction for {} bytes ({op:?}); take another --access",
                    plan.access
                ));
            }
        }
        Ok(())
    }
}
