//! Which types may be kept in a heap: those whose bytes mean the same in every process, at every
//! address, and of which every pattern is a value.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::RawP;

/// A type that may be kept in a heap. Safe to implement: a wrong fingerprint or trace makes heaps
/// that others misread, and never an access outside of what is theirs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be kept in a heap",
    label = "its bytes mean nothing, or something else, in another process",
    note = "keep integers of a fixed width, floats, arrays, `P<T>` for what lies in the same heap, \
            and structs of these with `#[derive(PmSafe)]`"
)]
pub trait PmSafe: FromBytes + IntoBytes + Immutable + KnownLayout + 'static {
    /// Tells types apart that lay out their bytes in different ways, or name them in different
    /// ways; the same in every build.
    const FINGERPRINT: u64;

    /// Shows where it points to in the heap.
    fn trace(&self, visit: &mut dyn FnMut(RawP));
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl PmSafe for $number {
            const FINGERPRINT: u64 = of_text(stringify!($number));

            #[inline]
            fn trace(&self, _visit: &mut dyn FnMut(RawP)) {}
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

impl<T: PmSafe, const N: usize> PmSafe for [T; N] {
    const FINGERPRINT: u64 = mix(mix(of_text("array"), T::FINGERPRINT), N as u64);

    fn trace(&self, visit: &mut dyn FnMut(RawP)) {
        self.iter().for_each(|each| each.trace(visit));
    }
}

/// Puts one more word into a fingerprint; the order counts.
#[must_use]
pub const fn mix(print: u64, word: u64) -> u64 {
    // The finaliser of SplitMix64 over the sum with a turned print.
    let mut all = print.rotate_left(29).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word;
    all = (all ^ all >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    all = (all ^ all >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    all ^ all >> 31
}

/// The fingerprint of a name.
#[must_use]
pub const fn of_text(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let (mut print, mut at) = (bytes.len() as u64, 0);
    while at < bytes.len() {
        print = mix(print, bytes[at] as u64);
        at += 1;
    }
    print
}
