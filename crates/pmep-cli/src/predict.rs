//! `pmep predict`

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use pmep::analytic::{Limit, Prediction, Tail, on_device, tail};
use pmep::device::Device;
use pmep::points::{Assumed, COLUMNS, answer};
use pmep::{BadInput, Geometry, Machine, Op, Order, Pattern, Result};
use pmep_cli::{MachineArgs, Predict, table};
use serde::Serialize;

use crate::{Outcome, fitting};

/// Prints a result as JSON.
pub fn print_json<T: Serialize>(value: &T) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| BadInput::new("output", error.to_string(), "report it"))?;
    out!("{text}");
    Ok(())
}

/// Watts as they are typed: 15, 12.5W.
fn watts(text: &str) -> Result<f64> {
    let digits = text.trim_end_matches(['w', 'W']);
    digits.parse().map_err(|_| {
        BadInput::new(
            "--power",
            format!("`{text}` is no budget"),
            "give watts, like 15 or 12.5W",
        )
    })
}

/// The machine that options describe.
pub fn machine(arguments: &MachineArgs, device: &Device) -> Result<Machine> {
    let plain = Machine::plain(arguments.dimms, arguments.interleave.0)?;
    let mut machine = plain.at_budget(watts(&arguments.power)?)?;
    machine.geometry = Geometry::new(arguments.dimms, arguments.interleave.0)?;
    machine.generation = device.generation;
    Ok(machine)
}

fn pattern(arguments: &Predict) -> Result<Pattern> {
    let op = Op::named(&arguments.op).ok_or_else(|| {
        let names: Vec<&str> = Op::ALL.iter().map(|op| op.name()).collect();
        BadInput::new(
            "--op",
            format!("no operation `{}`", arguments.op),
            format!("give one of {}", names.join(", ")),
        )
    })?;
    let order = match arguments.pattern.as_str() {
        "seq" => Order::Sequential,
        "rand" => Order::Random,
        "strided" => Order::Strided,
        other => {
            return Err(BadInput::new(
                "--pattern",
                format!("no pattern `{other}`"),
                "give seq, rand or strided",
            ));
        }
    };
    let stride = arguments.stride.map(|stride| stride.0);
    if stride.is_some() && order != Order::Strided {
        return Err(BadInput::new(
            "--stride",
            format!("a pattern `{}` has no stride", arguments.pattern),
            "add --pattern strided",
        ));
    }
    match stride.filter(|stride| arguments.cached && *stride < arguments.access.0) {
        // The modules see the bytes of each stride once, in order.
        Some(new) if new > 0 => Pattern::new(op, Order::Sequential, new, None, arguments.threads),
        Some(_) => Err(BadInput::new(
            "--stride",
            "a stride of 0 B asks the modules for nothing",
            "give a stride of at least 1 B: the cache's own speed is not modelled",
        )),
        None => Pattern::new(op, order, arguments.access.0, stride, arguments.threads),
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    device: &'a str,
    pattern: Pattern,
    dimms: u32,
    interleave_bytes: u64,
    power_w: f64,
    #[serde(flatten)]
    prediction: Prediction,
    media_bytes_per_byte: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tail: Option<Tail>,
    /// Share of the bytes that the processor's cache serves. The bandwidth is the most that the
    /// modules allow, since the cache's own speed is not modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_cache: Option<f64>,
}

fn why(prediction: &Prediction, pattern: &Pattern) -> String {
    match prediction.limit {
        Limit::Threads => "the threads".to_owned(),
        Limit::MediaRead => format!("media read, {:.2} of it used", prediction.used),
        Limit::MediaWrite => format!("media write, EWR {:.2}", prediction.used),
        Limit::Pages => format!("a page for each stride of {} B", pattern.stride),
    }
}

/// The tail of accesses within `--region`, if that is asked for.
fn tail_within(arguments: &Predict, device: &Device, pattern: &Pattern) -> Result<Option<Tail>> {
    let Some(region) = arguments.region else {
        return Ok(None);
    };
    let bad = |cause: String, way_out: &str| Err(BadInput::new("--region", cause, way_out));
    if device.plain.is_some() {
        let cause = format!("`{}` has no blocks that move", device.name);
        return bad(cause, "give optane-100 or optane-200");
    }
    if region.0 < pattern.access {
        let cause = format!("{} B hold no access of {} B", region.0, pattern.access);
        return bad(cause, "give a region of at least an access");
    }
    Ok(Some(tail(&device.numbers, pattern, region.0 as f64)))
}

fn print_tail(tail: &Tail) {
    match tail.accesses_a_move {
        Some(count) => out!(
            "tail       one of {count:.0} accesses waits {} us for wear levelling, others at most {} us",
            tail.move_us,
            tail.usual_us
        ),
        None => out!(
            "tail       none by wear levelling; accesses take at most {} us",
            tail.usual_us
        ),
    }
}

pub fn run(arguments: &Predict) -> Outcome {
    let device = fitting::load(&arguments.machine.device)?;
    if let (Some(points), Some(output)) = (&arguments.points, &arguments.output) {
        return rows(arguments, &device, points, output);
    }
    let pattern = pattern(arguments)?;
    let mut machine = machine(&arguments.machine, &device)?;
    machine.fenced = arguments.fenced;
    machine.prefetcher = arguments.prefetcher;
    let mut prediction = on_device(&device, &pattern, &machine);
    let asked = arguments.access.0;
    let from_cache = (arguments.cached && pattern.access < asked)
        .then(|| 1.0 - pattern.access as f64 / asked as f64);
    if let Some(share) = from_cache {
        prediction.bandwidth_gib_s /= 1.0 - share;
        prediction.used /= 1.0 - share;
    }
    let tail = tail_within(arguments, &device, &pattern)?;
    if arguments.json {
        print_json(&Shown {
            device: &device.name,
            pattern,
            dimms: machine.geometry.dimms(),
            interleave_bytes: machine.geometry.interleave(),
            power_w: machine.budget_w,
            prediction,
            media_bytes_per_byte: 1.0 / prediction.used,
            tail,
            from_cache,
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    out!("bandwidth  {:.3} GiB/s", prediction.bandwidth_gib_s);
    out!("access     {:.1} ns of each thread", prediction.access_ns);
    out!(
        "modules    {} of {}",
        prediction.modules,
        machine.geometry.dimms()
    );
    out!("limit      {}", why(&prediction, &pattern));
    if let Some(tail) = tail {
        print_tail(&tail);
    }
    if let Some(share) = from_cache {
        let percent = share * 100.0;
        out!("           at most: the processor's cache serves {percent:.0} % of the bytes");
    }
    if prediction.extrapolated {
        out!("           extrapolated: more threads than were measured");
    }
    if device.plain.is_some() {
        out!("           not fitted: a memory by published figures");
    }
    Ok(ExitCode::SUCCESS)
}

/// Predicts a file's rows.
fn rows(arguments: &Predict, device: &Device, points: &Path, output: &Path) -> Outcome {
    let all = table::read(points, Assumed::default(), false)?;
    let fault = |error: csv::Error| {
        let place = output.display().to_string();
        BadInput::new(place, error.to_string(), "give a place that can be written")
    };
    let mut writer = csv::Writer::from_path(output).map_err(fault)?;
    let mut header = vec!["id"];
    header.extend(COLUMNS);
    header.extend(["rep", "predicted"]);
    if arguments.unanswered {
        header.push("reason");
    }
    writer.write_record(&header).map_err(fault)?;
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut answered = 0;
    for row in &all {
        let (said, reason) = match (&row.question, device.plain.is_some()) {
            (Ok(question), false) => (format!("{:.6e}", answer(&device.numbers, question)), ""),
            (Ok(_), true) => (String::new(), "the device is not fitted"),
            (Err(reason), _) => (String::new(), *reason),
        };
        match reason.is_empty() {
            true => answered += 1,
            false => *reasons.entry(reason).or_default() += 1,
        }
        if !reason.is_empty() && !arguments.unanswered {
            continue;
        }
        let r = &row.record;
        let mut cells = vec![
            row.id.as_str(),
            &r.figure,
            &r.machine,
            &r.media,
            &r.dimms,
            &r.interleaved,
            &r.op,
            &r.pattern,
            &r.access,
            &r.stride,
            &r.threads,
            &r.power,
            &r.metric,
            &row.rep,
            &said,
        ];
        if arguments.unanswered {
            cells.push(reason);
        }
        writer.write_record(&cells).map_err(fault)?;
    }
    writer.flush().map_err(|error| fault(error.into()))?;
    eprintln!("{answered} of {} rows are predicted", all.len());
    for (reason, count) in reasons {
        eprintln!("{count:>7} are not: {reason}");
    }
    Ok(ExitCode::SUCCESS)
}
