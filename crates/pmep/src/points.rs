//! Rows of measurements as questions to the model: the key columns of a published point say which
//! form answers it. A row that no form answers is told with its reason, and never guessed.

use crate::analytic::{
    GIB_S, Idle, Remote, amplification, chained, flushed_run, idle_latency, loaded, predict, tail,
    thread_mix, traffic_mix, write_ratio,
};
use crate::chain::Chain;
use crate::device::Numbers;
use crate::error::{BadInput, Result};
use crate::geometry::{Geometry, LINE, WEAR_BLOCK};
use crate::pattern::{Generation, Machine, Op, Order, Pattern};

/// The key columns of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `figure`
    pub figure: String,
    /// `machine`
    pub machine: String,
    /// `media`
    pub media: String,
    /// `dimms`
    pub dimms: String,
    /// `interleaved`
    pub interleaved: String,
    /// `op`
    pub op: String,
    /// `pattern`
    pub pattern: String,
    /// `access_B`
    pub access: String,
    /// `stride_B`
    pub stride: String,
    /// `threads`
    pub threads: String,
    /// `power_mW`
    pub power: String,
    /// `metric`
    pub metric: String,
}

/// The key columns' names, in the order of [`Record`]'s fields.
pub const COLUMNS: [&str; 12] = [
    "figure",
    "machine",
    "media",
    "dimms",
    "interleaved",
    "op",
    "pattern",
    "access_B",
    "stride_B",
    "threads",
    "power_mW",
    "metric",
];

impl Record {
    /// A record of the values of [`COLUMNS`].
    #[must_use]
    pub fn of(values: [&str; COLUMNS.len()]) -> Record {
        let [
            figure,
            machine,
            media,
            dimms,
            interleaved,
            op,
            pattern,
            access,
            stride,
            threads,
            power,
            metric,
        ] = values.map(|value| value.trim().to_owned());
        Record {
            figure,
            machine,
            media,
            dimms,
            interleaved,
            op,
            pattern,
            access,
            stride,
            threads,
            power,
            metric,
        }
    }
}

/// A question that a form answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Question {
    /// Bandwidth, GiB/s.
    Bandwidth(Pattern, Machine),
    /// Bytes asked by bytes written to the media.
    WriteRatio(Pattern, Machine),
    /// Latency of dependent loads in a region, ns.
    Chase {
        /// Bytes of the region.
        region: f64,
        /// Modules.
        dimms: u32,
    },
    /// Idle latency, ns.
    Latency(Idle),
    /// Write amplification by region.
    Amplification(f64),
    /// Bandwidth (GiB/s) under a load with a delay.
    LoadedBandwidth(Machine, u32, f64),
    /// Latency (ns) under it.
    LoadedLatency(Machine, u32, f64),
    /// Bandwidth (MiB/s) of threads that read and others that write.
    ThreadMix(Machine, u32, u32),
    /// Bandwidth (GiB/s) of threads that read this share of their bytes.
    TrafficMix(Machine, u32, f64, Remote),
    /// Chains a second of so many threads on so many cores.
    ChainRate(Chain, Machine, u32, u32),
    /// Their average latency, ns.
    ChainLatency(Chain, Machine, u32, u32),
    /// Bandwidth (GiB/s) of so many equal groups, each of which has its part of the threads and of
    /// the modules.
    Groups(Pattern, Machine, u32),
    /// Bandwidth (GiB/s) of one thread that stores and flushes, with a fence behind so many bytes.
    Flushes(u64),
    /// Latency (us) that a share of the stores within a region of so many bytes keeps.
    Tail(Pattern, f64, f64),
}

/// The assumptions behind rows that do not say them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assumed {
    /// Bytes of a chunk of interleaved modules.
    pub interleave: u64,
}

impl Default for Assumed {
    fn default() -> Assumed {
        Assumed { interleave: 4096 }
    }
}

/// The answer to a row: a question, or the reason that there is none.
pub type Answerable = std::result::Result<Question, &'static str>;

fn number<T: std::str::FromStr>(text: &str, column: &str) -> Result<T> {
    text.parse().map_err(|_| {
        BadInput::new(
            format!("column `{column}`"),
            format!("`{}` is no number that can be used", shown(text)),
            "give a whole number, or leave the row out",
        )
    })
}

/// The beginning of a text, for an error.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The habits of the machines that the sources name.
fn machine(record: &Record, assumed: Assumed) -> Result<Machine> {
    let dimms = match record.dimms.as_str() {
        "" => 6,
        text => number(text, "dimms")?,
    };
    let name = record.machine.as_str();
    let is_perma = name.starts_with("perma-");
    let is_second = is_perma && (name.contains("barlow") || name.starts_with("perma-b-"));
    let watts = match record.power.as_str() {
        // PerMA's machines agree with 18 W; a setting of 10 W had no effect.
        "" if is_perma => 18.0,
        "" | "10000" => 15.0,
        text => number::<f64>(text, "power_mW")? / 1000.0,
    };
    let machine = Machine {
        geometry: Geometry::new(dimms, assumed.interleave)?,
        budget_w: 15.0,
        generation: match is_second {
            true => Generation::Second,
            false => Generation::First,
        },
        other_capacity: is_perma && (name.ends_with("-128") || name.ends_with("-512")),
        second_host: name == "ucsd-aep2",
        slow_clock: is_perma && (name.ends_with("-2133") || name.ends_with("-2400")),
        fenced: is_perma,
        prefetcher: is_perma && !name.ends_with("-pf-off"),
    };
    machine.at_budget(watts)
}

/// The question of a row.
///
/// # Errors
/// Columns that hold no numbers, or such as no machine has.
pub fn question(record: &Record, assumed: Assumed) -> Result<Answerable> {
    if record.media != "optane" && record.media != "optane-remote" {
        return Ok(Err(
            "the memory is not Optane: these forms have lines and buffers",
        ));
    }
    if record.pattern == "custom" {
        return chain(record, assumed);
    }
    match record.figure.as_str() {
        "sweep" | "fast20-4-optane1" | "fast20-4-optane6" | "fast20-5-optane1"
        | "fast20-5-optane6" | "perma-seqread" | "perma-randread" | "perma-seqwrite"
        | "perma-randwrite" => swept(record, assumed),
        "vans-chase1" | "vans-chase6" | "nvleak-2" => chase(record),
        "fast20-10" => Ok(Ok(Question::Amplification(number(
            &record.access,
            "access_B",
        )?))),
        "fast20-2" => Ok(latency(record)),
        "fast20-6-loaded" => load(record, assumed),
        "fast20-6-mix" => mix(record, assumed),
        "fast20-18" => remote(record, assumed),
        "fast20-9" => Ok(Err("the run's configuration is not published")),
        "fast20-3" => hot_spot(record),
        "fast20-14" => fences(record, assumed),
        "fast20-16" => groups(record, assumed),
        _ => Ok(Err("no form of the model answers this figure")),
    }
}

fn swept(record: &Record, assumed: Assumed) -> Result<Answerable> {
    if record.media != "optane" {
        return Ok(Err("sweeps from the other socket are not modelled"));
    }
    let Some(op) = Op::named(&record.op) else {
        return Ok(Err("no form answers this operation"));
    };
    let access = number(&record.access, "access_B")?;
    let threads = number(&record.threads, "threads")?;
    let order = match record.pattern.as_str() {
        "seq" => Order::Sequential,
        "rand" => Order::Random,
        "strided" => Order::Strided,
        _ => return Ok(Err("no form answers this pattern")),
    };
    let stride = match record.stride.as_str() {
        "" => None,
        text => Some(number::<u64>(text, "stride_B")?),
    };
    if order == Order::Strided && stride.is_some_and(|stride| stride < access) {
        return Ok(Err(
            "the stride is below the access: the processor's cache serves it",
        ));
    }
    let pattern = Pattern::new(op, order, access, stride, threads)?;
    let machine = machine(record, assumed)?;
    Ok(match record.metric.as_str() {
        "bandwidth" => Ok(Question::Bandwidth(pattern, machine)),
        "EWR" => Ok(Question::WriteRatio(pattern, machine)),
        _ => Err("no form answers this metric"),
    })
}

/// Cores of the processors beside which chains were measured: more threads take turns.
fn cores(machine: &Machine) -> u32 {
    match machine.generation {
        Generation::First => 18,
        Generation::Second => 32,
    }
}

fn chain(record: &Record, assumed: Assumed) -> Result<Answerable> {
    let chain = Chain::parse(&record.op)?;
    let threads: u32 = number(&record.threads, "threads")?;
    // The bounds of threads are those of a pattern.
    Pattern::new(Op::Load, Order::Random, 64, None, threads)?;
    let machine = Machine {
        fenced: true,
        ..machine(record, assumed)?
    };
    if record.media != "optane" {
        return Ok(Err("chains from the other socket are not modelled"));
    }
    if !chain.meets_modules() {
        return Ok(Err("the chain meets no module"));
    }
    let cores = cores(&machine);
    Ok(match record.metric.as_str() {
        "throughput" => Ok(Question::ChainRate(chain, machine, threads, cores)),
        "latency_avg" => Ok(Question::ChainLatency(chain, machine, threads, cores)),
        metric if metric.starts_with("latency_") => {
            Err("of a chain's latency only the average is modelled")
        }
        _ => Err("no form answers this metric"),
    })
}

fn chase(record: &Record) -> Result<Answerable> {
    if record.op != "ptr-chase load" {
        return Ok(Err("chains of stores are not modelled"));
    }
    let region = number(&record.access, "access_B")?;
    let dimms = number(&record.dimms, "dimms")?;
    Geometry::new(dimms, 4096)?;
    Ok(Ok(Question::Chase { region, dimms }))
}

fn latency(record: &Record) -> Answerable {
    let (op, order) = match (record.op.as_str(), record.pattern.as_str()) {
        ("load", "seq") => (Op::Load, Order::Sequential),
        ("load", "rand") => (Op::Load, Order::Random),
        ("ntstore+fence", _) => (Op::NtStore, Order::Random),
        ("store+clwb+fence", _) => (Op::StoreClwb, Order::Random),
        _ => return Err("no form answers this operation"),
    };
    Ok(Question::Latency(Idle { op, order }))
}

/// Stores of a line, again and again in a region.
fn hot_spot(record: &Record) -> Result<Answerable> {
    let Some(op) = Op::named(&record.op) else {
        return Ok(Err("no form answers this operation"));
    };
    let region: u64 = number(&record.access, "access_B")?;
    let threads = number(&record.threads, "threads")?;
    let pattern = Pattern::new(op, Order::Sequential, LINE, None, threads)?;
    let share = match record.metric.strip_prefix("latency_p") {
        // A published maximum is that of some millions of stores.
        None if record.metric == "latency_max" => 1.0,
        None => return Ok(Err("no form answers this metric")),
        Some(percent) => number::<f64>(percent, "metric")? / 100.0,
    };
    if !(0.0..=1.0).contains(&share) {
        return Ok(Err("no form answers this metric"));
    }
    if share == 1.0 && region >= 2 * WEAR_BLOCK {
        return Ok(Err("the slowest store is modelled only where blocks move"));
    }
    Ok(Ok(Question::Tail(pattern, region as f64, share)))
}

/// Stores with a fence behind each interval: an interval is an access. Flushes may stand behind
/// each line or at the end of the interval: no figure tells them apart.
fn fences(record: &Record, assumed: Assumed) -> Result<Answerable> {
    let interval = number(&record.access, "access_B")?;
    let threads = number(&record.threads, "threads")?;
    if record.op != "ntstore" {
        if threads != 1 || !record.op.starts_with("clwb ") {
            return Ok(Err("flushes within an interval of fences are one thread's"));
        }
        // The same bounds as those of other accesses.
        Pattern::new(Op::StoreClwb, Order::Sequential, interval, None, threads)?;
        return Ok(Ok(Question::Flushes(interval)));
    }
    let pattern = Pattern::new(Op::NtStore, Order::Sequential, interval, None, threads)?;
    let machine = Machine {
        fenced: true,
        ..machine(record, assumed)?
    };
    Ok(Ok(Question::Bandwidth(pattern, machine)))
}

/// Threads of which each keeps to some modules, which it shares with as many others.
fn groups(record: &Record, assumed: Assumed) -> Result<Answerable> {
    let spread = (record
        .pattern
        .strip_prefix("rand; threads-per-DIMM spread "))
    .and_then(|rest| rest.strip_suffix(" thread(s) per DIMM"));
    let (Some(spread), Some(op)) = (spread, Op::named(&record.op)) else {
        return Ok(Err("no form answers this pattern"));
    };
    let spread: u32 = number(spread, "pattern")?;
    let access = number(&record.access, "access_B")?;
    let threads = number(&record.threads, "threads")?;
    let pattern = Pattern::new(op, Order::Random, access, None, threads)?;
    let machine = machine(record, assumed)?;
    let dimms = machine.geometry.dimms();
    if spread == 0 || !dimms.is_multiple_of(spread) || !threads.is_multiple_of(dimms / spread) {
        return Ok(Err("the threads do not spread evenly over the modules"));
    }
    Ok(Ok(Question::Groups(pattern, machine, dimms / spread)))
}

fn load(record: &Record, assumed: Assumed) -> Result<Answerable> {
    let Some(steps) = record.pattern.strip_prefix("seq; injected delay M") else {
        return Ok(Err("no form answers this pattern"));
    };
    let delay = f64::from(number::<u32>(steps, "pattern")?);
    let threads = number(&record.threads, "threads")?;
    let machine = machine(record, assumed)?;
    Ok(match record.metric.as_str() {
        "bandwidth" => Ok(Question::LoadedBandwidth(machine, threads, delay)),
        "loaded_latency" => Ok(Question::LoadedLatency(machine, threads, delay)),
        _ => Err("no form answers this metric"),
    })
}

fn mix(record: &Record, assumed: Assumed) -> Result<Answerable> {
    let Some(both) = record.pattern.strip_prefix("read-write threads ") else {
        return Ok(Err("no form answers this pattern"));
    };
    let Some((readers, writers)) = both.split_once('-') else {
        return Ok(Err("no form answers this pattern"));
    };
    let readers: u16 = number(readers, "pattern")?;
    let writers: u16 = number(writers, "pattern")?;
    if readers == 0 && writers == 0 {
        return Ok(Err("there are no threads"));
    }
    let machine = machine(record, assumed)?;
    Ok(Ok(Question::ThreadMix(
        machine,
        readers.into(),
        writers.into(),
    )))
}

fn remote(record: &Record, assumed: Assumed) -> Result<Answerable> {
    let share = match record.op.as_str() {
        "mix R" => 1.0,
        "mix W" => 0.0,
        op => {
            let reads = op
                .strip_prefix("mix R:W (")
                .and_then(|rest| rest.strip_suffix(":1)"));
            let Some(reads) = reads else {
                return Ok(Err("no form answers this operation"));
            };
            let reads = f64::from(number::<u16>(reads, "op")?);
            reads / (reads + 1.0)
        }
    };
    let from = match record.media == "optane" {
        true => Remote::Local,
        false => Remote::Far,
    };
    let threads = number(&record.threads, "threads")?;
    Ok(Ok(Question::TrafficMix(
        machine(record, assumed)?,
        threads,
        share,
        from,
    )))
}

/// The answer, in the row's unit.
#[must_use]
pub fn answer(numbers: &Numbers, question: &Question) -> f64 {
    match *question {
        Question::Bandwidth(pattern, machine) => {
            predict(numbers, &pattern, &machine).bandwidth_gib_s
        }
        Question::Groups(pattern, machine, count) => {
            let pattern = Pattern {
                threads: (pattern.threads / count).max(1),
                ..pattern
            };
            let machine = machine.part(count);
            f64::from(count) * predict(numbers, &pattern, &machine).bandwidth_gib_s
        }
        Question::WriteRatio(pattern, machine) => write_ratio(numbers, &pattern, &machine),
        Question::Flushes(interval) => {
            let bytes = interval as f64;
            bytes / flushed_run(numbers, bytes) / GIB_S
        }
        Question::Chase { region, dimms } => {
            let idle = Idle {
                op: Op::Load,
                order: Order::Random,
            };
            idle_latency(numbers, idle, region, dimms)
        }
        Question::Latency(idle) => idle_latency(numbers, idle, 1e8, 6),
        Question::Amplification(region) => amplification(numbers, region),
        Question::LoadedBandwidth(machine, threads, delay) => {
            loaded(numbers, &machine, threads, delay).0
        }
        Question::LoadedLatency(machine, threads, delay) => {
            loaded(numbers, &machine, threads, delay).1
        }
        Question::ThreadMix(machine, readers, writers) => {
            thread_mix(numbers, &machine, readers, writers) * 1024.0
        }
        Question::TrafficMix(machine, threads, share, from) => {
            traffic_mix(numbers, &machine, threads, share, from)
        }
        Question::ChainRate(chain, machine, threads, cores) => {
            chained(numbers, &chain, &machine, threads, cores).per_s
        }
        Question::Tail(pattern, region, share) => tail(numbers, &pattern, region).quantile(share),
        Question::ChainLatency(chain, machine, threads, cores) => {
            chained(numbers, &chain, &machine, threads, cores).latency_ns
        }
    }
}
