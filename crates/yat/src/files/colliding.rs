//! Names whose hashes begin with the same bits: few of them lead deep into a directory's tree.

use super::pool::HASH_KEY;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// The first `count` names of 255 bytes whose hashes are below `1 << (63 - bits)`.
pub fn colliding(count: usize, bits: u32) -> Vec<Vec<u8>> {
    let names = (0u64..).map(|number| format!("{number:c>255}").into_bytes());
    let names = names.filter(|name| hash(name) >> (pmfs_format::directory::HASH_BITS - bits) == 0);
    names.take(count).collect()
}

/// `docs/FORMAT.md`: SipHash-1-3, without its lowest bit.
fn hash(name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(HASH_KEY[0], HASH_KEY[1]);
    hasher.write(name);
    hasher.finish() >> 1
}
