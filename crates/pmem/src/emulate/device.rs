//! A device of `crates/pmep` to emulate: its numbers, and the machine that is asked for.

use std::fmt;

use crate::emulate::devices::DEVICES;
use crate::emulate::emulation::EmulationError;

/// The most modules that are emulated: each has a word that all processes of a pool share.
pub const DIMMS_MAX: u64 = 16;
/// Bytes of a chunk that one module takes, from a line of the media to 1 GiB.
const INTERLEAVE_LOG2: std::ops::RangeInclusive<u32> = 8..=30;
/// Budgets of a module, mW; 12.5, 15 and 18 W were measured.
const POWER_MW: std::ops::RangeInclusive<u64> = 8_000..=25_000;
const POWER_MW_USUAL: u64 = 15_000;
const INTERLEAVE_LOG2_USUAL: u32 = 12;

/// Numbers of a device, for one module at 15 W, as `crates/pmep` fitted them. Times are in ns. A
/// line is the unit of the media.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// The name, as typed.
    pub name: &'static str,
    /// Bytes of a line.
    pub line_bytes: u64,
    /// Lines of a module's buffer; 0: there is none.
    pub buffer_lines: u64,
    /// A thread's time for a random read beside its bytes.
    pub read_start: f64,
    /// Share of that which a sequential read pays.
    pub sequential_share: f64,
    /// A thread's time for a byte read.
    pub read_byte: f64,
    /// A thread's time for a byte stored past the caches.
    pub nt_byte: f64,
    /// A thread's time for a byte stored and flushed.
    pub flush_byte: f64,
    /// The least time of a module for a flushed byte.
    pub flush_floor: f64,
    /// A module's time for a line read.
    pub line_read: f64,
    /// A module's time for a line written.
    pub line_written: f64,
    /// Latency of a word in the line after the last one.
    pub word_next: f64,
    /// Latency of a word that the buffer has.
    pub word_buffered: f64,
    /// Latency of a word whose page the table of addresses has in its cache.
    pub word_mapped: f64,
    /// Latency of a word that the media answers.
    pub word_far: f64,
    /// Bytes that the cache of the table of addresses covers.
    pub mapped_bytes: f64,
    /// Latency of store, flush and fence.
    pub persist: f64,
    /// Read streams whose lines stay in a module's buffer.
    pub read_streams: f64,
    /// More streams stay if accesses are at most a line, and if they are sequential.
    pub short_streams: f64,
    /// The same of sequential accesses.
    pub sequential_streams: f64,
    /// Parts of a line that are read again beyond these streams.
    pub read_again: f64,
    /// Streams at which half of the whole lines leave the buffer in parts.
    pub full_streams: f64,
    /// The same of lines that are never written whole.
    pub part_streams: f64,
    /// A module's time for a page that strided reads enter.
    pub read_page: f64,
    /// A module's time for a page that strided stores of one thread enter.
    pub write_page: f64,
    /// Growth of that by threads, a power.
    pub write_page_growth: f64,
    /// Share of it that flushed stores pay.
    pub flush_page: f64,
    /// Requests under way over all modules, at random accesses of one chunk.
    pub in_flight: f64,
    /// The norm by which a thread's and a module's times meet.
    pub sharpness: f64,
    /// The norm by which the time of a page joins these.
    pub page_sharpness: f64,
    /// The media's speed at 12.5 W and at 18 W, by that at 15 W.
    pub budgets: [f64; 2],
}

impl Device {
    /// The media's speed at a budget, by that at 15 W: on a line through the measured budgets, in
    /// logarithms.
    pub(crate) fn speed_at(&self, power_mw: u64) -> f64 {
        let log = libm::log(power_mw as f64 / POWER_MW_USUAL as f64);
        let (factor, measured) = match power_mw < POWER_MW_USUAL {
            true => (self.budgets[0], 12.5_f64 / 15.0),
            false => (self.budgets[1], 18.0_f64 / 15.0),
        };
        libm::exp(libm::log(factor) * log / libm::log(measured))
    }
}

/// A device to emulate, and the machine around it: `device:optane-100,dimms=6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modules {
    /// The place in [`DEVICES`].
    device: u8,
    dimms: u8,
    interleave_log2: u8,
    power_mw: u32,
}

impl Modules {
    /// One module of a device, at 15 W.
    ///
    /// # Errors
    /// There is no such device.
    pub fn named(name: &str) -> Result<Modules, EmulationError> {
        let device = DEVICES.iter().position(|device| device.name == name);
        let device = device.ok_or_else(|| EmulationError::NoDevice {
            name: name.to_owned(),
        })?;
        Ok(Modules {
            device: device as u8,
            dimms: 1,
            interleave_log2: INTERLEAVE_LOG2_USUAL as u8,
            power_mw: POWER_MW_USUAL as u32,
        })
    }

    /// The device's numbers.
    #[must_use]
    pub fn device(&self) -> &'static Device {
        &DEVICES[usize::from(self.device)]
    }

    /// The number of modules.
    #[must_use]
    pub fn dimms(&self) -> u64 {
        u64::from(self.dimms)
    }

    /// Bytes that one module takes before the next.
    #[must_use]
    pub fn interleave(&self) -> u64 {
        1 << self.interleave_log2
    }

    /// A module's power budget, mW.
    #[must_use]
    pub fn power_mw(&self) -> u64 {
        u64::from(self.power_mw)
    }

    /// Changes one property as typed.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<(), EmulationError> {
        let known = match key {
            "dimms" => value.parse().ok().and_then(|dimms| self.with_dimms(dimms)),
            "interleave" => bytes(value).and_then(|bytes| self.with_interleave(bytes)),
            "power" => milliwatts(value).and_then(|power| self.with_power(power)),
            _ => {
                return Err(EmulationError::NoProperty {
                    word: format!("{key}={value}"),
                });
            }
        };
        *self = known.ok_or_else(|| EmulationError::Property {
            word: format!("{key}={value}"),
        })?;
        Ok(())
    }

    fn with_dimms(self, dimms: u64) -> Option<Modules> {
        (1..=DIMMS_MAX).contains(&dimms).then_some(Modules {
            dimms: dimms as u8,
            ..self
        })
    }

    fn with_interleave(self, bytes: u64) -> Option<Modules> {
        let log2 = bytes.checked_ilog2().unwrap_or(0);
        let fits = bytes.is_power_of_two() && INTERLEAVE_LOG2.contains(&log2);
        fits.then_some(Modules {
            interleave_log2: log2 as u8,
            ..self
        })
    }

    fn with_power(self, power_mw: u64) -> Option<Modules> {
        POWER_MW.contains(&power_mw).then_some(Modules {
            power_mw: power_mw as u32,
            ..self
        })
    }

    /// One word that [`Modules::unpacked`] reads; never 0.
    #[must_use]
    pub fn packed(&self) -> u64 {
        (u64::from(self.device) + 1)
            | u64::from(self.dimms) << 8
            | u64::from(self.interleave_log2) << 16
            | u64::from(self.power_mw) << 32
    }

    /// The modules of a word that another process may have written; `None` if it names none.
    #[must_use]
    pub fn unpacked(word: u64) -> Option<Modules> {
        let device = ((word & 0xff) as usize).checked_sub(1)?;
        let named = Modules::named(DEVICES.get(device)?.name).ok()?;
        let log2 = (word >> 16 & 0xff) as u32;
        let interleave = INTERLEAVE_LOG2.contains(&log2).then(|| 1 << log2)?;
        let modules = named
            .with_dimms(word >> 8 & 0xff)?
            .with_interleave(interleave)?
            .with_power(word >> 32)?;
        (modules.packed() == word).then_some(modules)
    }
}

/// The text can be typed again.
impl fmt::Display for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device:{},dimms={}", self.device().name, self.dimms)?;
        if u32::from(self.interleave_log2) != INTERLEAVE_LOG2_USUAL {
            write!(f, ",interleave={}", Size(self.interleave()))?;
        }
        if self.power_mw() != POWER_MW_USUAL {
            write!(f, ",power={}W", f64::from(self.power_mw) / 1000.0)?;
        }
        Ok(())
    }
}

/// Bytes in the largest unit of 1024 that divides them.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(30, "G"), (20, "M"), (10, "K")] {
            if self.0.trailing_zeros() >= unit {
                return write!(f, "{}{name}", self.0 >> unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

fn bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| is_number)?;
    count.checked_mul(1 << unit)
}

/// A power in mW, from W with at most three places.
fn milliwatts(text: &str) -> Option<u64> {
    crate::emulate::emulation::decimal(text.strip_suffix('W')?, 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: a word from another process names modules or none. Method: any word; one that is
        /// taken packs to itself, and its text is read back.
        #[test]
        fn words_are_modules_or_none(word in any::<u64>(), device in 1_u64..6, log2 in 0_u64..40) {
            prop_assert!(Modules::unpacked(0).is_none());
            for word in [word, device | 6 << 8 | log2 << 16 | 15_000 << 32] {
                if let Some(modules) = Modules::unpacked(word) {
                    prop_assert_eq!(modules.packed(), word);
                    let text = modules.to_string();
                    let again: crate::Emulation = text.parse().expect("it is its own text");
                    prop_assert_eq!(again.device, Some(modules));
                }
            }
        }
    }

    /// Goal: the line goes through the measured budgets.
    #[test]
    fn budgets_are_those_measured() {
        let device = Modules::named("optane-100").expect("a device").device();
        for (power_mw, speed) in [
            (12_500, device.budgets[0]),
            (15_000, 1.0),
            (18_000, device.budgets[1]),
        ] {
            let got = device.speed_at(power_mw);
            assert!((got - speed).abs() < 1e-9, "{power_mw} mW: {got}");
        }
    }
}
