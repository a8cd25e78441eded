//! `pmep fit`

use std::process::ExitCode;

use pmep::device::{Class, Device, KEYS, Key, Parameter};
use pmep::fit::{Fitted, fit, start};
use pmep::points::Assumed;
use pmep::{BadInput, Generation, Result};
use pmep_cli::{Fit, study, table};

use crate::Outcome;

pub fn run(arguments: &Fit) -> Outcome {
    let rows = table::read(&arguments.data, Assumed::default(), true)?;
    let points = study::points(&rows);
    if points.len() < 1000 {
        return Err(BadInput::new(
            arguments.data.display().to_string(),
            format!("{} points of figures that a fit takes", points.len()),
            "give a file with at least 1000 of them",
        ));
    }
    let fitted = fit(&points, &start(arguments.seed));
    eprintln!(
        "{} points, {} steps, loss {:.6}",
        points.len(),
        fitted.steps,
        fitted.loss
    );
    let text = device(&arguments.device, &fitted).to_toml()?;
    match &arguments.output {
        Some(path) => std::fs::write(path, text).map_err(|error| {
            let place = path.display().to_string();
            BadInput::new(place, error.to_string(), "give a place that can be written")
        })?,
        None => out!("{}", text.trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}

/// To five digits: more than any uncertainty leaves.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

fn source(key: Key) -> &'static str {
    match (key.entry().class, key) {
        (Class::Core, Key::Persist) => "fitted: PerMA writes, FAST'20 6",
        (Class::Core, Key::LoadedRise) => "fitted: FAST'20 6 (loaded latency)",
        (Class::Core, Key::MixWeight) => "fitted: FAST'20 6 (mixes)",
        (Class::Core, _) => "fitted: FAST'20 4, 5 and the sweep of OptaneStudy, 15 W",
        (Class::Budget, _) => "fitted: the sweep of OptaneStudy at 12.5 and 18 W, PerMA",
        (Class::Clock, _) => "fitted: PerMA, 2400 MT/s",
        (Class::Generation, _) => "fitted: PerMA, Ice Lake",
        (Class::Lab, Key::HostPage) => "fitted: the sweep of OptaneStudy, both hosts",
        (Class::Lab, _) => "fitted: PerMA",
        (Class::Cited, key) => cited(key),
    }
}

fn cited(key: Key) -> &'static str {
    match key {
        Key::BufferLines => "Yang et al. 2020, 5.1: 16 KiB",
        Key::AitBytes => "Wang et al. 2020: 16 MiB",
        Key::BufferLatency | Key::AitLatency | Key::MediaLatency => {
            "Wang et al. 2020, pointer chase of one module"
        }
        Key::SequentialLatency => "Izraelevitz et al. 2019, 3.1.1",
        Key::StoreLatency => "Izraelevitz et al. 2019, 3.1.2",
        Key::Amplification => "Yang et al. 2020, figure 10",
        Key::DelayUnit => "assumed: a cycle at 2.5 GHz",
        Key::TailWrites | Key::TailTime | Key::TailUsual => "Yang et al. 2020, figure 3",
        _ => "assumed after Yang et al. 2020, figure 18; not fitted",
    }
}

fn device(name: &str, fitted: &Fitted) -> Device {
    let parameter = |key: &Key| {
        let entry = key.entry();
        let known = (fitted.uncertainty.iter()).find(|(fitted, _)| fitted == key);
        let parameter = Parameter {
            value: rounded(fitted.numbers[*key]).clamp(entry.min, entry.max),
            unit: entry.unit.to_owned(),
            source: source(*key).to_owned(),
            uncertainty: known.map(|(_, share)| format!("{share:.1e}").parse().unwrap_or(*share)),
        };
        (*key, parameter)
    };
    Device {
        name: name.to_owned(),
        generation: Generation::First,
        numbers: fitted.numbers,
        parameters: KEYS.iter().map(parameter).collect(),
        plain: None,
    }
}

/// A device by name, or from a file that ends in `.toml`.
pub fn load(name: &str) -> Result<Device> {
    if !name.ends_with(".toml") {
        return Device::named(name);
    }
    let text = std::fs::read_to_string(name).map_err(|error| {
        BadInput::new(
            name,
            error.to_string(),
            "give a device's file, or a name of `pmep devices`",
        )
    })?;
    Device::parse(&text, name)
}
