//! `pmep devices`

use std::process::ExitCode;

use pmep::device::{Class, Device, FREE_MAX};
use serde::Serialize;

use crate::{Outcome, fitting};
use pmep_cli::Devices;

#[derive(Serialize)]
struct Number<'a> {
    name: &'static str,
    value: f64,
    unit: &'static str,
    min: f64,
    max: f64,
    fitted: bool,
    class: String,
    source: &'a str,
    uncertainty: Option<f64>,
    meaning: &'static str,
}

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    free_numbers: usize,
    free_numbers_max: usize,
    fitted: bool,
    plain: Option<&'a pmep::device::Plain>,
    numbers: Vec<Number<'a>>,
}

fn shown(device: &Device) -> Shown<'_> {
    let number = |(key, parameter): &'_ (pmep::device::Key, pmep::device::Parameter)| {
        let entry = key.entry();
        (entry.name, entry, parameter.value, parameter.uncertainty)
    };
    let numbers = (device.parameters.iter())
        .map(|pair| {
            let (name, entry, value, uncertainty) = number(pair);
            Number {
                name,
                value,
                unit: entry.unit,
                min: entry.min,
                max: entry.max,
                fitted: entry.class != Class::Cited,
                class: format!("{:?}", entry.class).to_lowercase(),
                source: &pair.1.source,
                uncertainty,
                meaning: entry.meaning,
            }
        })
        .collect();
    Shown {
        name: &device.name,
        free_numbers: device.free(),
        free_numbers_max: FREE_MAX,
        fitted: device.plain.is_none(),
        plain: device.plain.as_ref(),
        numbers,
    }
}

fn print(device: &Device) {
    out!("{}: {} free numbers", device.name, device.free());
    if let Some(plain) = &device.plain {
        out!(
            "  not fitted: {} (within {:.0} %)",
            plain.source,
            plain.uncertainty * 100.0
        );
        return;
    }
    for (key, parameter) in &device.parameters {
        let entry = key.entry();
        let error = match parameter.uncertainty {
            Some(share) => format!("+-{:.1} %", share * 100.0),
            None => "not fitted".to_owned(),
        };
        out!(
            "  {:<20} {:>12} {:<9} {error:<11} {}",
            entry.name,
            parameter.value,
            entry.unit,
            entry.meaning
        );
    }
}

pub fn run(arguments: &Devices) -> Outcome {
    let names: Vec<String> = match &arguments.device {
        Some(name) => vec![name.clone()],
        None => Device::names().map(str::to_owned).collect(),
    };
    let mut devices = Vec::new();
    for name in &names {
        devices.push(fitting::load(name)?);
    }
    if arguments.toml {
        out!("{}", devices[0].to_toml()?.trim_end());
    } else if arguments.json {
        let all: Vec<Shown> = devices.iter().map(shown).collect();
        crate::predict::print_json(&all)?;
    } else {
        devices.iter().for_each(print);
    }
    Ok(ExitCode::SUCCESS)
}
