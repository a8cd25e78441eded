//! The parameters of an emulated slower medium, as typed, and the media with names
//! (docs/EMULATION.md has their sources).

use std::fmt;
use std::str::FromStr;

use crate::emulate::device::{DIMMS_MAX, Modules};
use crate::emulate::devices::DEVICES;

/// A slower medium than the memory under the pool (PMFS section 4, PMEP). Zero leaves a property as
/// it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Emulation {
    /// The extra time of a line read from the pool, ns.
    pub read_ns: u64,
    /// The extra time of a barrier, ns.
    pub barrier_ns: u64,
    /// The greatest rate of writes to the pool by all processes together, bytes a second.
    pub write_bytes_per_s: u64,
    /// The modules whose times are emulated; the three figures are then zero.
    pub device: Option<Modules>,
}

/// The longest delay, ns. No memory is slower.
const DELAY_NS_MAX: u64 = 1_000_000;
/// The least and the greatest bandwidth, bytes a second.
const BANDWIDTH: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

/// The media with names.
pub const PROFILES: &[(&str, Emulation)] = &[
    ("dram", Emulation::OFF),
    (
        "pmep-2014",
        Emulation {
            read_ns: 210,
            barrier_ns: 100,
            write_bytes_per_s: 9_500_000_000,
            device: None,
        },
    ),
    (
        "optane-100",
        Emulation {
            read_ns: 224,
            barrier_ns: 8,
            write_bytes_per_s: 13_900_000_000,
            device: None,
        },
    ),
    (
        "cxl-nvcmm",
        Emulation {
            read_ns: 110,
            barrier_ns: 0,
            write_bytes_per_s: 32_000_000_000,
            device: None,
        },
    ),
];

/// The cause for refusing a description of a medium.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmulationError {
    /// The word is neither the name of a medium nor a figure.
    #[error(
        "{word:?} is no medium to emulate; write one of {}, or read=300ns, barrier=100ns, write-bandwidth=9.5G, or several, or device:optane-100,dimms=6",
        names()
    )]
    Unknown {
        /// The word as typed.
        word: String,
    },
    /// The text is not a time.
    #[error("{name}={value:?} is no time; write it like {name}=300ns, at most 1000us")]
    Time {
        /// The number's name.
        name: String,
        /// The value as typed.
        value: String,
    },
    /// The text is not a rate.
    #[error("{name}={value:?} is no rate; write it like {name}=9.5G (bytes a second, 1M to 1T)")]
    Rate {
        /// The number's name.
        name: String,
        /// The value as typed.
        value: String,
    },
    /// No device has the name.
    #[error("{name:?} is no device; write device: and one of {}", devices())]
    NoDevice {
        /// The name as typed.
        name: String,
    },
    /// A device has no such property.
    #[error("{word:?} is none of a device's properties; write dimms=6, interleave=4K or power=15W")]
    NoProperty {
        /// The word as typed.
        word: String,
    },
    /// The value of a device's property is none.
    #[error(
        "{word:?} is out of bounds; write dimms=1 to dimms={DIMMS_MAX}, interleave= a power of two from 256 to 1G, power=8W to power=25W"
    )]
    Property {
        /// The word as typed.
        word: String,
    },
    /// The name of a medium does not come first.
    #[error("{word:?} would undo what stands before it; write the medium first")]
    Late {
        /// The word as typed.
        word: String,
    },
}

fn devices() -> String {
    let names: Vec<&str> = DEVICES.iter().map(|device| device.name).collect();
    names.join(", ")
}

fn names() -> String {
    let names: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

impl Emulation {
    /// The memory as it is.
    pub const OFF: Emulation = Emulation {
        read_ns: 0,
        barrier_ns: 0,
        write_bytes_per_s: 0,
        device: None,
    };

    /// The emulation of a device's modules.
    #[must_use]
    pub fn of_device(modules: Modules) -> Emulation {
        Emulation {
            device: Some(modules),
            ..Emulation::OFF
        }
    }

    /// Returns whether nothing is emulated.
    #[must_use]
    pub fn is_off(&self) -> bool {
        *self == Emulation::OFF
    }

    /// The text of [`fmt::Display`] with colons in place of commas, for lists of options.
    #[must_use]
    pub fn as_option(&self) -> String {
        self.to_string().replace(',', ":")
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), EmulationError> {
        if let Some(device) = &mut self.device {
            return device.set(name, value);
        }
        let time = || {
            time(value).ok_or_else(|| EmulationError::Time {
                name: name.to_owned(),
                value: value.to_owned(),
            })
        };
        match name {
            "read" => self.read_ns = time()?,
            "barrier" => self.barrier_ns = time()?,
            "write-bandwidth" => {
                self.write_bytes_per_s = rate(value).ok_or_else(|| EmulationError::Rate {
                    name: name.to_owned(),
                    value: value.to_owned(),
                })?;
            }
            _ => {
                return Err(EmulationError::Unknown {
                    word: format!("{name}={value}"),
                });
            }
        }
        Ok(())
    }
}

/// A description: the name of a medium, figures, or a name followed by figures that replace some of
/// its own, separated by commas or colons; or `device`, the name of one, and its properties.
impl FromStr for Emulation {
    type Err = EmulationError;

    fn from_str(text: &str) -> Result<Emulation, EmulationError> {
        let mut emulation = Emulation::OFF;
        let mut words = text.split([',', ':']).enumerate();
        while let Some((at, word)) = words.next() {
            if at == 0 && word == "device" {
                let (_, name) = words.next().unwrap_or_default();
                emulation = Emulation::of_device(Modules::named(name)?);
                continue;
            }
            if let Some((name, value)) = word.split_once('=') {
                emulation.set(name, value)?;
                continue;
            }
            let word = || word.to_owned();
            if emulation.device.is_some() {
                return Err(EmulationError::NoProperty { word: word() });
            }
            let known = PROFILES.iter().find(|(name, _)| *name == word());
            let (_, medium) = known.ok_or_else(|| EmulationError::Unknown { word: word() })?;
            if at > 0 {
                return Err(EmulationError::Late { word: word() });
            }
            emulation = *medium;
        }
        Ok(emulation)
    }
}

/// A time, ns.
fn time(text: &str) -> Option<u64> {
    let (digits, unit) = match (text.strip_suffix("ns"), text.strip_suffix("us")) {
        (Some(digits), _) => (digits, 1),
        (_, Some(digits)) => (digits, 1000),
        _ if text == "0" => ("0", 1),
        _ => return None,
    };
    let ns = decimal(digits, unit)?;
    (ns <= DELAY_NS_MAX).then_some(ns)
}

/// A rate, bytes a second; 0 is no limit.
fn rate(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let text = text.strip_suffix("B/s").unwrap_or(text);
    let unit = match text.chars().last()? {
        'K' => 1000,
        'M' => 1_000_000,
        'G' => 1_000_000_000,
        'T' => 1_000_000_000_000,
        _ => 1,
    };
    let digits = if unit == 1 {
        text
    } else {
        &text[..text.len() - 1]
    };
    decimal(digits, unit).filter(|rate| BANDWIDTH.contains(rate))
}

/// A decimal fraction of a unit; the result must be a whole number.
pub(crate) fn decimal(text: &str, unit: u64) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) || text.ends_with('.') {
        return None;
    }
    let mut total = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let mut unit = unit;
    for digit in part.bytes() {
        let digit = u64::from(digit - b'0');
        if !unit.is_multiple_of(10) {
            return None;
        }
        unit /= 10;
        total = total.checked_add(digit * unit)?;
    }
    Some(total)
}

/// The text is a description that can be typed again.
impl fmt::Display for Emulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_off() {
            return f.write_str("dram");
        }
        if let Some(device) = &self.device {
            return device.fmt(f);
        }
        let mut words = Vec::new();
        if self.read_ns != 0 {
            words.push(format!("read={}ns", self.read_ns));
        }
        if self.write_bytes_per_s != 0 {
            words.push(format!("write-bandwidth={}", Rate(self.write_bytes_per_s)));
        }
        if self.barrier_ns != 0 {
            words.push(format!("barrier={}ns", self.barrier_ns));
        }
        f.write_str(&words.join(","))
    }
}

/// A rate in the largest unit that gives at least 1.
struct Rate(u64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, 9, "G"), (1_000_000, 6, "M")];
        for (unit, digits, name) in units {
            if self.0 >= unit {
                let part = format!("{:0digits$}", self.0 % unit);
                let part = part.trim_end_matches('0');
                let point = if part.is_empty() { "" } else { "." };
                return write!(f, "{}{point}{part}{name}", self.0 / unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    //! Goal: descriptions are read back as they are shown. Method: shown text is parsed again, and
    //! errors name a valid description.

    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Emulation {
        text.parse().expect(text)
    }

    #[test]
    fn figures_and_names() {
        let all = parsed("read=300ns,write-bandwidth=9.5G,barrier=100ns");
        assert_eq!((all.read_ns, all.barrier_ns), (300, 100));
        assert_eq!(all.write_bytes_per_s, 9_500_000_000);
        assert_eq!(
            parsed("barrier=0.1us:read=300ns:write-bandwidth=9500MB/s"),
            all
        );
        assert!(parsed("dram").is_off() && parsed("read=0").is_off());
        for (name, medium) in PROFILES {
            assert_eq!(parsed(name), *medium);
        }
        let device = |text: &str| parsed(text).device.expect(text);
        let six = device("device:optane-100,dimms=6,interleave=4K,power=12.5W");
        assert_eq!(device("device:optane-100:dimms=6:power=12.5W"), six);
        assert_eq!(
            (six.dimms(), six.interleave(), six.power_mw()),
            (6, 4096, 12_500)
        );
        assert_eq!(six.device().name, "optane-100");
        assert_eq!(device("device:optane-200").dimms(), 1);
        // Figures replace those of the named medium.
        let faster = parsed("pmep-2014,read=0,barrier=1us");
        assert_eq!((faster.read_ns, faster.barrier_ns), (0, 1000));
        assert_eq!(faster.write_bytes_per_s, 9_500_000_000);
    }

    #[test]
    fn what_is_none_names_the_way_out() {
        for (text, way_out) in [
            ("", "pmep-2014"),
            ("optane", "optane-100"),
            ("read", "read=300ns"),
            ("read=300", "read=300ns"),
            ("read=300ns,", "write one of"),
            ("read=-1ns", "read=300ns"),
            ("read=.5us", "read=300ns"),
            ("read=1.ns", "read=300ns"),
            ("read=0.5ns", "read=300ns"),
            ("read=1001us", "at most 1000us"),
            ("read=99999999999999999999ns", "at most 1000us"),
            ("barrier=fast", "barrier=300ns"),
            ("write=9.5G", "write-bandwidth=9.5G"),
            ("write-bandwidth=9.5", "write-bandwidth=9.5G"),
            ("write-bandwidth=G", "write-bandwidth=9.5G"),
            ("write-bandwidth=1K", "1M to 1T"),
            ("write-bandwidth=2T", "1M to 1T"),
            ("read=1ns,pmep-2014", "the medium first"),
            ("device", "one of optane-100"),
            ("device:", "optane-200"),
            ("device:optane-300", "optane-100, optane-200"),
            ("device:optane-100,ranks=2", "dimms=6"),
            ("device:optane-100,read=3ns", "dimms=6"),
            ("device:optane-100,fast", "dimms=6"),
            ("device:optane-100,dimms=0", "dimms=1 to dimms=16"),
            ("device:optane-100,dimms=17", "dimms=1 to dimms=16"),
            ("device:optane-100,dimms=-1", "dimms=1 to dimms=16"),
            ("device:optane-100,interleave=3000", "power of two"),
            ("device:optane-100,interleave=128", "256 to 1G"),
            ("device:optane-100,interleave=", "256 to 1G"),
            ("device:optane-100,interleave=99999999999G", "256 to 1G"),
            ("device:optane-100,power=15", "power=8W"),
            ("device:optane-100,power=26W", "power=8W"),
            ("device:optane-100,power=NaNW", "power=8W"),
            ("pmep-2014,device:optane-100", "is no medium"),
            ("dimms=6", "device:optane-100"),
        ] {
            let error = text.parse::<Emulation>().expect_err(text).to_string();
            assert!(error.contains(way_out), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_typed(
            read_ns in 0..=DELAY_NS_MAX,
            barrier_ns in 0..=DELAY_NS_MAX,
            rate in prop_oneof![Just(0), BANDWIDTH],
        ) {
            let some = Emulation { read_ns, barrier_ns, write_bytes_per_s: rate, device: None };
            prop_assert_eq!(parsed(&some.to_string()), some);
            prop_assert_eq!(parsed(&some.as_option()), some);
            prop_assert!(!some.as_option().contains(','));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[a-z0-9=,:.GMnsu-]{0,30}") {
            let _ = text.parse::<Emulation>();
        }
    }
}
