//! Damaged pools for libFuzzer: see `yat::files::damage` for what an input says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use yat::files::damage::Base;

static BASE: OnceLock<Base> = OnceLock::new();

fuzz_target!(|input: &[u8]| {
    BASE.get_or_init(Base::new).try_input(input);
});
