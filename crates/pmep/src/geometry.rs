//! Addresses to sockets, controllers, modules and lines.

use crate::error::{BadInput, Result};

/// Bytes of a request between the processor and a module.
pub const REQUEST: u64 = 64;
/// Bytes of a line of the media (an XPLine).
pub const LINE: u64 = 256;
/// Bytes that an entry of the address indirection table covers.
pub const PAGE: u64 = 4096;
/// Bytes of a block that wear levelling moves.
pub const WEAR_BLOCK: u64 = 65_536;
/// Modules of one memory controller.
const MODULES_PER_CONTROLLER: u32 = 3;
/// The most modules that are answered for: eight a socket, eight sockets.
pub const DIMMS_MAX: u32 = 64;

/// Modules, and how addresses are spread over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    dimms: u32,
    interleave: u64,
}

/// The place of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The module.
    pub module: u32,
    /// Its memory controller.
    pub controller: u32,
    /// The line, counted within the module.
    pub line: u64,
}

impl Geometry {
    /// `dimms` modules, of which each takes `interleave` bytes in turn. One module needs none.
    ///
    /// # Errors
    /// No module, more than [`DIMMS_MAX`], or chunks that are no power of two of at least a line.
    pub fn new(dimms: u32, interleave: u64) -> Result<Geometry> {
        if dimms == 0 || dimms > DIMMS_MAX {
            return Err(BadInput::new(
                "dimms",
                format!("{dimms} modules"),
                format!("give 1 to {DIMMS_MAX}"),
            ));
        }
        if !interleave.is_power_of_two() || !(LINE..=1 << 30).contains(&interleave) {
            return Err(BadInput::new(
                "interleave",
                format!("chunks of {interleave} B"),
                "give a power of two from 256 to 2^30, 4096 on all known machines",
            ));
        }
        Ok(Geometry { dimms, interleave })
    }

    /// One of `count` equal parts of the modules; at least one.
    #[must_use]
    pub fn part(self, count: u32) -> Geometry {
        let dimms = (self.dimms / count.max(1)).max(1);
        Geometry { dimms, ..self }
    }

    /// The number of modules.
    #[must_use]
    pub fn dimms(&self) -> u32 {
        self.dimms
    }

    /// Bytes of a chunk.
    #[must_use]
    pub fn interleave(&self) -> u64 {
        self.interleave
    }

    /// The place of an address.
    #[must_use]
    #[inline]
    pub fn place(&self, address: u64) -> Place {
        // Chunks are powers of two, and most counts of them are short: both make divisions cheap.
        let chunk = address >> self.interleave.trailing_zeros();
        let dimms = u64::from(self.dimms);
        let (turn, module) = match u32::try_from(chunk) {
            Ok(chunk) => (u64::from(chunk / self.dimms), chunk % self.dimms),
            Err(_) => (chunk / dimms, (chunk % dimms) as u32),
        };
        let within = turn * self.interleave + (address & (self.interleave - 1));
        Place {
            module,
            controller: module / MODULES_PER_CONTROLLER,
            line: within / LINE,
        }
    }

    /// Modules that accesses of `access` bytes at multiples of `stride` meet.
    #[must_use]
    pub fn modules_met(&self, access: u64, stride: u64) -> u32 {
        if stride == 0 || !stride.is_multiple_of(self.interleave) {
            return self.dimms;
        }
        let shared = divisor(
            (stride / self.interleave) % u64::from(self.dimms),
            self.dimms,
        );
        let each = access.div_ceil(self.interleave).clamp(1, u64::from(shared)) as u32;
        (self.dimms / shared * each).min(self.dimms)
    }
}

/// The greatest common divisor of the two; that of 0 and n is n.
fn divisor(a: u64, b: u32) -> u32 {
    let (mut a, mut b) = (a, u64::from(b));
    while a != 0 {
        (a, b) = (b % a, a);
    }
    b as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stride_of_six_chunks_meets_one_module() {
        let six = Geometry::new(6, 4096).unwrap();
        assert_eq!(six.modules_met(64, 24_576), 1);
        assert_eq!(six.modules_met(64, 16_384), 3);
        assert_eq!(six.modules_met(8192, 16_384), 6);
        assert_eq!(six.modules_met(64, 4096), 6);
        assert_eq!(six.modules_met(64, 256), 6);
    }

    #[test]
    fn what_is_no_geometry_is_refused() {
        for (dimms, interleave) in [(0, 4096), (65, 4096), (6, 0), (6, 3000), (6, 128)] {
            assert!(Geometry::new(dimms, interleave).is_err());
        }
    }

    proptest! {
        /// Goal: each address has one place, and no place two addresses. Method: the address is
        /// made again from the place by counting chunks.
        #[test]
        fn places_lead_back(address in 0_u64..1 << 40, dimms in 1_u32..=16, log in 8_u32..=16) {
            let geometry = Geometry::new(dimms, 1 << log).unwrap();
            let place = geometry.place(address);
            let lines = geometry.interleave() / LINE;
            let chunk = place.line / lines * u64::from(dimms) + u64::from(place.module);
            let back = chunk * geometry.interleave() + place.line % lines * LINE;
            prop_assert_eq!(back, address / LINE * LINE);
            prop_assert_eq!(place.controller, place.module / 3);
        }

        /// Goal: the modules that a stride meets. Method: all are visited.
        #[test]
        fn met_modules_are_those_visited(access in 1_u64..20_000, chunks in 1_u64..40, dimms in 1_u32..=12) {
            let geometry = Geometry::new(dimms, 4096).unwrap();
            let stride = chunks * 4096;
            let mut seen = std::collections::BTreeSet::new();
            for step in 0..u64::from(dimms) {
                let mut at = step * stride;
                while at < step * stride + access {
                    seen.insert(geometry.place(at).module);
                    at += 4096;
                }
            }
            prop_assert_eq!(geometry.modules_met(access, stride) as usize, seen.len());
        }
    }
}
