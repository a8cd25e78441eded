//! Requests for ownership (RFO) of cache lines by stores, simulated (section 4.3 of ACCT).
//!
//! The thesis counts events of a processor that this machine is not. Its ratio is events x size of
//! a store / bytes written. Which stores ask for a line is a rule here, and the thesis does not
//! tell its program's flushes:
//!
//! - `kept`: a line stays in the cache, direct mapped, until another one takes its place;
//! - `given-up`: a line leaves the cache after each store, as if each were flushed;
//! - stores past the caches collect in buffers of lines. By `kept` a buffer asks for its line when
//!   it is given up with a part missing; by `given-up` each store asks but the one that fills it.

use anyhow::bail;
use clap::{Args, ValueEnum};
use pmep::cache::{Cache, Outcome};
use serde_json::json;
use std::path::Path;

use super::Random;
use crate::experiments::shell::Cannot;

/// Bytes of a cache line.
const LINE: u64 = 64;
/// Bytes of the last cache: a Cascade Lake's 22 MiB.
const CACHE: u64 = 22 << 20;
/// Lines that stores past the caches collect in.
const BUFFERS: usize = 12;
/// The events of table 4.1 stand for persistent memory: a processor of this family has them.
const MODELS: [&str; 2] = ["Cascade Lake", "Cooper Lake"];

/// The program and the rule.
#[derive(Args)]
pub struct Options {
    /// The kind of stores.
    #[arg(long, value_enum)]
    store: Store,
    /// The order of places.
    #[arg(long, value_enum)]
    order: Order,
    /// Bytes of a store; more than 64 are made of 64 each.
    #[arg(long)]
    access: u64,
    /// The stores that ask.
    #[arg(long, value_enum)]
    rule: Rule,
    /// Mebibytes of the file, into which twice as many are written.
    #[arg(long, default_value_t = 256)]
    mib: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Store {
    Temporal,
    Nt,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Order {
    Seq,
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Rule {
    Kept,
    GivenUp,
    /// No simulation: the number or the formula of the thesis.
    Thesis,
}

/// Tells that the machine has none of the events, which is so where there is no PMU.
pub fn events() -> anyhow::Result<()> {
    if !Path::new("/sys/bus/event_source/devices/cpu/events").exists() {
        bail!(Cannot("this machine has no PMU".to_owned()));
    }
    let all = MODELS.join(" or ");
    bail!(Cannot(format!(
        "only {all} count OCR.*_RFO.PMM_HIT_LOCAL_PMM, and counting them is not written"
    )))
}

/// Simulates, and prints.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let bytes = options.mib << 21;
    let (kind, ratio) = match options.rule {
        Rule::Thesis => ("thesis", told(options)),
        rule => {
            let asked = asked(options, rule)?;
            (
                "simulated",
                Some(asked as f64 * options.access as f64 / bytes as f64),
            )
        }
    };
    match ratio {
        None => bail!(Cannot(
            "the thesis has no number for it in its text".to_owned()
        )),
        Some(0.0) => bail!(Cannot(format!("{kind}: no request at all, a ratio of 0"))),
        Some(ratio) => println!("{}", json!({"kind": kind, "ratio": ratio})),
    }
    Ok(())
}

/// The number of the thesis' text for a size: figures 4.1 to 4.4 have no numbers.
fn told(options: &Options) -> Option<f64> {
    match (options.store, options.access) {
        // 7,753,884 and 7,859,510 events for 512 MiB.
        (Store::Temporal, 64) => Some(7_753_884.0 * 64.0 / 536_870_912.0),
        (Store::Temporal, 256) => Some(7_859_510.0 * 256.0 / 536_870_912.0),
        (Store::Temporal, _) => None,
        (Store::Nt, size) => Some((1.0 - size as f64 / 64.0).max(0.0)),
    }
}

/// The requests of a run.
fn asked(options: &Options, rule: Rule) -> anyhow::Result<u64> {
    let file = options.mib << 20;
    let piece = options.access.min(LINE);
    if options.access == 0 || !file.is_multiple_of(options.access.max(LINE)) {
        bail!("--access does not divide the file");
    }
    let mut cache = Cache::new(CACHE)?;
    let mut buffers = Buffers::default();
    let mut random = Random(1);
    let mut requests = 0;
    for turn in 0..2 * file / options.access {
        let place = match options.order {
            Order::Seq => turn * options.access % file,
            Order::Random => random.below(file / options.access) * options.access,
        };
        for address in (place..place + options.access).step_by(piece as usize) {
            let asks = match (options.store, rule) {
                (Store::Temporal, Rule::Kept) => cache.access(address, true) != Outcome::Hit,
                (Store::Temporal, _) => true,
                (Store::Nt, Rule::Kept) => buffers.store(address, piece).1,
                (Store::Nt, _) => !buffers.store(address, piece).0,
            };
            requests += u64::from(asks);
        }
    }
    Ok(requests)
}

/// Lines that stores past the caches collect in, the oldest first, with a bit for each byte.
#[derive(Default)]
struct Buffers(Vec<(u64, u64)>);

impl Buffers {
    /// Whether a store fills its line, and whether another one, of which a part is missing, has to
    /// make room for it.
    fn store(&mut self, address: u64, bytes: u64) -> (bool, bool) {
        let line = address / LINE;
        let mask = (u64::MAX >> (LINE - bytes)) << (address % LINE);
        let found = self.0.iter().position(|(known, _)| *known == line);
        let before = found.map_or(0, |at| self.0.remove(at).1);
        if before | mask == u64::MAX {
            return (true, false);
        }
        let is_partial = self.0.len() == BUFFERS;
        if is_partial {
            self.0.remove(0);
        }
        self.0.push((line, before | mask));
        (false, is_partial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(store: Store, order: Order, access: u64, rule: Rule) -> f64 {
        let options = Options {
            store,
            order,
            access,
            rule,
            // More than twice the cache, so that none of its lines comes again in time.
            mib: 64,
        };
        let requests = asked(&options, rule).unwrap();
        requests as f64 * access as f64 / (128 << 20) as f64
    }

    /// Goal: where each store is given up, the ratios are the thesis' approximations: one for
    /// temporal stores, 1 - s/64 for others in order, none for whole lines, and four times as many
    /// where 256 bytes are four stores.
    #[test]
    fn given_up_lines_have_the_thesis_ratios() {
        for access in [1, 2, 4, 8, 16, 32, 64] {
            let temporal = ratio(Store::Temporal, Order::Seq, access, Rule::GivenUp);
            assert_eq!(temporal, 1.0, "{access}");
            let formula = 1.0 - access as f64 / 64.0;
            let streamed = ratio(Store::Nt, Order::Seq, access, Rule::GivenUp);
            assert!((streamed - formula).abs() < 1e-9, "{access}: {streamed}");
        }
        assert_eq!(ratio(Store::Temporal, Order::Seq, 256, Rule::GivenUp), 4.0);
        assert_eq!(ratio(Store::Nt, Order::Random, 64, Rule::GivenUp), 0.0);
        assert_eq!(ratio(Store::Nt, Order::Seq, 256, Rule::GivenUp), 0.0);
    }

    /// Goal: where lines are kept, stores in order ask once a line, and those anywhere almost each
    /// time.
    #[test]
    fn kept_lines_are_asked_for_once() {
        assert_eq!(
            ratio(Store::Temporal, Order::Seq, 8, Rule::Kept),
            8.0 / 64.0
        );
        assert_eq!(ratio(Store::Nt, Order::Seq, 8, Rule::Kept), 0.0);
        let random = ratio(Store::Nt, Order::Random, 8, Rule::Kept);
        assert!((random - 1.0).abs() < 0.001, "{random}");
    }
}
