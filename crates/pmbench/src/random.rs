//! A small generator: the same numbers each run.

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    /// The next number below `below`.
    #[inline]
    pub fn below(&mut self, below: u64) -> u64 {
        self.number() % below
    }

    /// The same for a power of two, without a division.
    #[inline]
    pub fn below_power(&mut self, below: u64) -> u64 {
        self.number() & (below - 1)
    }

    #[inline]
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
