//! Devices: numbers with unit, source and uncertainty, as TOML.

mod key;

use std::collections::BTreeMap;
use std::ops::Index;

use serde::{Deserialize, Serialize};

pub use key::{Class, ENTRIES, Entry, KEYS, Key};

use crate::error::{BadInput, Result};
use crate::pattern::Generation;

/// The most free numbers of a device, all classes together.
pub const FREE_MAX: usize = 40;
/// The devices that the crate brings.
const SHIPPED: [(&str, &str); 4] = [
    ("optane-100", include_str!("optane-100.toml")),
    ("optane-200", include_str!("optane-200.toml")),
    ("dram", include_str!("dram.toml")),
    ("cxl", include_str!("cxl.toml")),
];

/// The values of all numbers, by [`Key`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers([f64; ENTRIES.len()]);

impl Numbers {
    /// The first guesses of a fit, and the published values of what is not fitted.
    #[must_use]
    pub fn start() -> Numbers {
        let mut values = [0.0; ENTRIES.len()];
        for (value, entry) in values.iter_mut().zip(ENTRIES) {
            *value = entry.start;
        }
        Numbers(values)
    }

    /// Gives a number a value, cut to its bounds.
    pub fn set(&mut self, key: Key, value: f64) {
        let entry = key.entry();
        self.0[key as usize] = match value.is_nan() {
            true => entry.start,
            false => value.clamp(entry.min, entry.max),
        };
    }
}

impl Index<Key> for Numbers {
    type Output = f64;

    fn index(&self, key: Key) -> &f64 {
        &self.0[key as usize]
    }
}

/// A number in a device's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// The measurements or the publication that it is from.
    pub source: String,
    /// Standard error as a share of the value; absent if it is not fitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertainty: Option<f64>,
}

/// The figures of a memory without lines and buffers: DRAM, or a CXL device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plain {
    /// Idle latency of sequential reads, ns.
    pub sequential_ns: f64,
    /// Idle latency of random reads, ns.
    pub random_ns: f64,
    /// Reads of one module or channel, GiB/s.
    pub read_gib_s: f64,
    /// Writes of one module or channel, GiB/s.
    pub write_gib_s: f64,
    /// Bytes that one thread moves, GiB/s.
    pub thread_gib_s: f64,
    /// The publication of these.
    pub source: String,
    /// Their interval as a share, both ways.
    pub uncertainty: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default = "first")]
    generation: Generation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plain: Option<Plain>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    numbers: BTreeMap<String, Parameter>,
}

fn first() -> Generation {
    Generation::First
}

/// A device.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The name.
    pub name: String,
    /// The generation whose factors count.
    pub generation: Generation,
    /// The values.
    pub numbers: Numbers,
    /// Source and uncertainty of each.
    pub parameters: Vec<(Key, Parameter)>,
    /// The figures of a memory without lines, which stand for all of the above.
    pub plain: Option<Plain>,
}

impl Device {
    /// Names of the devices that the crate brings.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// The device of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Device> {
        let found = SHIPPED.iter().find(|(known, _)| *known == name);
        let Some((_, text)) = found else {
            let known: Vec<&str> = Device::names().collect();
            return Err(BadInput::new(
                "device",
                format!("no device `{name}`"),
                format!("give one of {}, or a file with .toml", known.join(", ")),
            ));
        };
        Device::parse(text, name)
    }

    /// The device in a file's text; `place` names the file in errors.
    ///
    /// # Errors
    /// Text that is no device, units that differ, values out of bounds.
    pub fn parse(text: &str, place: &str) -> Result<Device> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            BadInput::new(
                format!("{place}, line {line}"),
                error.message().replace('\n', " "),
                "see `pmep devices --toml` for the form",
            )
        })?;
        let mut device = match &file.base {
            Some(base) if base != place => Device::named(base)?,
            _ => Device {
                name: String::new(),
                generation: file.generation,
                numbers: Numbers::start(),
                parameters: Vec::new(),
                plain: None,
            },
        };
        for (name, parameter) in &file.numbers {
            let at = place_of(text, place, name);
            let key = Key::named(name).ok_or_else(|| {
                BadInput::new(
                    &at,
                    format!("no number `{name}`"),
                    "see `pmep devices --json`",
                )
            })?;
            accept(&at, key, parameter)?;
            device.numbers.0[key as usize] = parameter.value;
            device.parameters.retain(|(known, _)| *known != key);
            device.parameters.push((key, parameter.clone()));
        }
        device.parameters.sort_by_key(|(key, _)| *key as usize);
        let is_whole = device.parameters.len() == KEYS.len();
        if let Some(plain) = &file.plain {
            accept_plain(place, plain)?;
        } else if !is_whole {
            let missing =
                (KEYS.iter()).find(|key| device.parameters.iter().all(|(k, _)| k != *key));
            let name = missing.map_or("", |key| key.entry().name);
            return Err(BadInput::new(
                place,
                format!("the number `{name}` is missing"),
                "give it, or a `base` that has it",
            ));
        }
        device.name = file.name;
        device.generation = file.generation;
        device.plain = file.plain;
        Ok(device)
    }

    /// The device as a file.
    ///
    /// # Errors
    /// None is known: the types are those of TOML.
    pub fn to_toml(&self) -> Result<String> {
        let numbers = (self.parameters.iter())
            .map(|(key, parameter)| (key.entry().name.to_owned(), parameter.clone()))
            .collect();
        let file = File {
            name: self.name.clone(),
            generation: self.generation,
            base: None,
            plain: self.plain.clone(),
            numbers,
        };
        toml::to_string(&file).map_err(|error| {
            BadInput::new(
                &self.name,
                error.to_string(),
                "report it: this is the model's fault",
            )
        })
    }

    /// How many numbers are fitted.
    #[must_use]
    pub fn free(&self) -> usize {
        let fitted = |(key, _): &&(Key, Parameter)| key.is_fitted();
        self.parameters.iter().filter(fitted).count()
    }
}

/// The line of a byte, from 1.
fn line_of(text: &str, byte: usize) -> usize {
    let before = text.as_bytes().iter().take(byte);
    before.filter(|byte| **byte == b'\n').count() + 1
}

/// The place of a number in a file.
fn place_of(text: &str, place: &str, name: &str) -> String {
    let at = text.find(name).unwrap_or(0);
    format!("{place}, line {}", line_of(text, at))
}

fn accept(at: &str, key: Key, parameter: &Parameter) -> Result<()> {
    let entry = key.entry();
    if parameter.unit != entry.unit {
        return Err(BadInput::new(
            at,
            format!("`{}` is in `{}`", entry.name, parameter.unit),
            format!("give it in `{}`", entry.unit),
        ));
    }
    if !(entry.min..=entry.max).contains(&parameter.value) {
        return Err(BadInput::new(
            at,
            format!("`{}` is {}", entry.name, parameter.value),
            format!("give {} to {} {}", entry.min, entry.max, entry.unit),
        ));
    }
    if parameter
        .uncertainty
        .is_some_and(|share| !(0.0..=1e6).contains(&share))
    {
        return Err(BadInput::new(
            at,
            format!("the uncertainty of `{}` is no share", entry.name),
            "give 0 or more, or leave it out",
        ));
    }
    Ok(())
}

fn accept_plain(place: &str, plain: &Plain) -> Result<()> {
    let all = [
        ("sequential_ns", plain.sequential_ns, 1e6),
        ("random_ns", plain.random_ns, 1e6),
        ("read_gib_s", plain.read_gib_s, 1e5),
        ("write_gib_s", plain.write_gib_s, 1e5),
        ("thread_gib_s", plain.thread_gib_s, 1e5),
        ("uncertainty", plain.uncertainty, 10.0),
    ];
    for (name, value, max) in all {
        if !(1e-3..=max).contains(&value) {
            return Err(BadInput::new(
                place,
                format!("`{name}` is {value}"),
                format!("give 0.001 to {max}"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_devices_are_whole_and_few() {
        for name in Device::names() {
            let device = Device::named(name).unwrap();
            assert_eq!(device.name, name);
            assert!(device.free() <= FREE_MAX, "{name}: {}", device.free());
            let again = Device::parse(&device.to_toml().unwrap(), "again").unwrap();
            assert_eq!(again.parameters, device.parameters);
        }
    }

    #[test]
    fn a_value_out_of_bounds_names_its_line() {
        let text = "name = \"x\"\n\n[numbers.persist]\nvalue = 1e9\nunit = \"ns\"\nsource = \"\"\n";
        let error = Device::parse(text, "x.toml").unwrap_err();
        assert_eq!(error.place, "x.toml, line 3");
        let error = Device::parse("name = 3\n", "x.toml").unwrap_err();
        assert_eq!(error.place, "x.toml, line 1");
    }
}
