//! Chains of accesses as an index makes them, in the notation of PerMA: `rp_512,wp_64_cache_128`
//! reads 512 B anywhere, then writes 64 B at 128 B behind the beginning of that read, with clwb.

use crate::error::{BadInput, Result};
use crate::pattern::Op;
use crate::points::shown;

/// The most steps of a chain: published ones have at most seven.
pub const STEPS_MAX: usize = 16;
/// The most bytes of a step, and of its distance from the step before.
pub const BYTES_MAX: u32 = 1 << 20;

/// A step of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// The memory is DRAM beside the modules.
    pub in_dram: bool,
    /// Bytes.
    pub bytes: u32,
    /// The beginning of a write, from the beginning of the step before. Reads go anywhere.
    pub offset: i32,
}

/// A chain: at least one step, at most [`STEPS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    steps: [Step; STEPS_MAX],
    len: u8,
}

fn bad(at: usize, text: &str, way_out: &str) -> BadInput {
    BadInput::new(
        format!("column `op`, step {}", at + 1),
        format!("`{}` is no step of a chain", shown(text)),
        way_out,
    )
}

fn step(at: usize, text: &str) -> Result<Step> {
    let parts: Vec<&str> = text.split('_').collect();
    let (is_write, in_dram) = match parts[0] {
        "r" | "rp" => (false, false),
        "rd" => (false, true),
        "w" | "wp" => (true, false),
        "wd" => (true, true),
        _ => return Err(bad(at, text, "begin it with rp, wp, rd or wd")),
    };
    let bytes = parts.get(1).and_then(|part| part.parse::<u32>().ok());
    let Some(bytes) = bytes.filter(|bytes| (1..=BYTES_MAX).contains(bytes)) else {
        return Err(bad(at, text, "give 1 to 1048576 bytes behind the first _"));
    };
    let op = match (is_write, parts.get(2).copied()) {
        (false, None) => Op::Load,
        (true, Some("cache")) => Op::StoreClwb,
        (true, Some("cacheinv")) => Op::StoreClflushopt,
        (true, Some("nocache")) => Op::NtStore,
        (true, Some("none")) => Op::Store,
        (false, Some(_)) => return Err(bad(at, text, "end a read behind its bytes")),
        (true, _) => {
            let way_out = "give a write cache, cacheinv, nocache or none behind its bytes";
            return Err(bad(at, text, way_out));
        }
    };
    let offset = match parts.get(3) {
        None => Some(0),
        Some(part) => part.parse::<i32>().ok(),
    };
    let far = offset.filter(|offset| offset.unsigned_abs() <= BYTES_MAX);
    let (Some(offset), true) = (far, parts.len() <= 4) else {
        return Err(bad(
            at,
            text,
            "end it with a distance of at most 1048576 bytes",
        ));
    };
    Ok(Step {
        op,
        in_dram,
        bytes,
        offset,
    })
}

impl Chain {
    /// The chain of that notation.
    ///
    /// # Errors
    /// The first step that is none, or one step too many.
    pub fn parse(text: &str) -> Result<Chain> {
        let empty = Step {
            op: Op::Load,
            in_dram: false,
            bytes: 1,
            offset: 0,
        };
        let mut chain = Chain {
            steps: [empty; STEPS_MAX],
            len: 0,
        };
        for (at, part) in text.split(',').enumerate() {
            if at == STEPS_MAX {
                return Err(bad(at, part, "give at most 16 steps"));
            }
            chain.steps[at] = step(at, part)?;
            chain.len += 1;
        }
        Ok(chain)
    }

    /// Returns whether a step goes to the modules.
    #[must_use]
    pub fn meets_modules(&self) -> bool {
        self.steps().iter().any(|step| !step.in_dram)
    }

    /// Its steps.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_notation_is_read() {
        let chain =
            Chain::parse("rp_512,rd_64,wp_64_cache_128,wp_64_nocache_-128,w_8_none").unwrap();
        let read: Vec<_> = (chain.steps().iter())
            .map(|step| (step.op, step.in_dram, step.bytes, step.offset))
            .collect();
        let expected = [
            (Op::Load, false, 512, 0),
            (Op::Load, true, 64, 0),
            (Op::StoreClwb, false, 64, 128),
            (Op::NtStore, false, 64, -128),
            (Op::Store, false, 8, 0),
        ];
        assert_eq!(read, expected);
    }

    /// Goal: a bad chain is an error that names its step. Method: one fault each, at a known step.
    #[test]
    fn a_bad_step_is_named() {
        let long = ["rp_64"; STEPS_MAX + 1].join(",");
        let cases = [
            ("", 1),
            ("rp_64,", 2),
            (",rp_64", 1),
            ("rp", 1),
            ("rp_", 1),
            ("rp_0", 1),
            ("rp_-64", 1),
            ("rp_99999999999999999999", 1),
            ("rp_1048577", 1),
            ("rp_64_cache", 1),
            ("rp_64,wp_64", 2),
            ("rp_64,wp_64_", 2),
            ("rp_64,wp_64_clwb", 2),
            ("rp_64,wp_64_cache_", 2),
            ("rp_64,wp_64_cache_x", 2),
            ("rp_64,wp_64_cache_-2147483648", 2),
            ("rp_64,wp_64_cache_0_0", 2),
            ("rp_64,rp_64,xp_64", 3),
            ("rp_64, rp_64", 2),
            (long.as_str(), STEPS_MAX + 1),
        ];
        for (text, step) in cases {
            let error = Chain::parse(text).unwrap_err();
            assert_eq!(error.place, format!("column `op`, step {step}"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_chain_or_an_error(text in "[rwpd_0-9,a-z\\-]{0,60}") {
            if let Ok(chain) = Chain::parse(&text) {
                prop_assert_eq!(chain.steps().len(), text.split(',').count());
            }
        }
    }
}
