//! Calls of one kind in a row, for a count of instructions: `tests/kv-cost.sh` runs it.
//!
//! `calls OPERATION COUNT`; the operations are those of the match below.

use pmkv::Hash;
use pmlib::{Heap, Options};

/// Keys that are there.
const KEYS: u64 = 20_000;

fn main() -> Result<(), pmkv::Error> {
    let mut arguments = std::env::args().skip(1);
    let operation = arguments.next().unwrap_or_default();
    let count: u64 = arguments.next().map_or(0, |text| text.parse().unwrap_or(0));
    let options = Options {
        seed: 7,
        ..Options::default()
    };
    let heap = Heap::private(64 << 20, &options)?;
    let hash = Hash::open(&heap, "kv")?;
    let key = |nth: u64| {
        let mut key = [7; 16];
        key[..8].copy_from_slice(&nth.to_le_bytes());
        key
    };
    for nth in 0..KEYS {
        hash.put(&key(nth), &[1; 64])?;
    }
    let mut value = Vec::with_capacity(64);
    for nth in 0..count.min(KEYS) {
        match operation.as_str() {
            "put-new" => hash.put(&key(KEYS + nth), &[2; 64])?,
            "put-over" => hash.put(&key(nth), &[2; 64])?,
            "get" => assert!(hash.get_into(&key(nth), &mut value)?),
            "get-missing" => assert!(!hash.get_into(&key(KEYS + nth), &mut value)?),
            "delete" => assert!(hash.delete(&key(nth))?),
            _ => {}
        }
    }
    Ok(())
}
