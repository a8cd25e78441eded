//! Calls of one kind in a row, for a count of instructions: `tests/kv-cost.sh` runs it.
//!
//! `calls OPERATION COUNT [BYTES]`, with values of 64 bytes if nothing else is said. The operations
//! are those of the match below, of a hash; `tree-` before one has it be a tree's.

use pmkv::{Hash, Tree};
use pmlib::{Heap, Options};

/// Keys that are there.
const KEYS: u64 = 20_000;
/// Bytes of values of which there are fewer, and how many there are.
const LONG: usize = 1024;
const FEW: u64 = 1000;

fn key(nth: u64) -> [u8; 16] {
    let mut key = [7; 16];
    key[..8].copy_from_slice(&nth.to_le_bytes());
    key
}

/// Fills an engine, does the calls, and answers it; a macro, so that both are called directly.
macro_rules! calls {
    ($kind:ident, $heap:expr, $operation:expr, $count:expr, ($keys:expr, $bytes:expr)) => {{
        let keys = $keys;
        let kv = $kind::open($heap, "kv")?;
        let (first, second) = (vec![1; $bytes], vec![2; $bytes]);
        for nth in 0..keys {
            kv.put(&key(nth), &first)?;
        }
        let mut value = Vec::with_capacity($bytes);
        for nth in 0..$count.min(keys) {
            match $operation {
                "put-new" => kv.put(&key(keys + nth), &second)?,
                "put-over" => kv.put(&key(nth), &second)?,
                "pin" => assert!(kv.reader()?.get(&key(nth))?.is_some()),
                "get" => assert!(kv.get_into(&key(nth), &mut value)?),
                "get-missing" => assert!(!kv.get_into(&key(keys + nth), &mut value)?),
                "delete" => assert!(kv.delete(&key(nth))?),
                _ => {}
            }
        }
        kv
    }};
}

fn main() -> Result<(), pmkv::Error> {
    let mut arguments = std::env::args().skip(1);
    let operation = arguments.next().unwrap_or_default();
    let count: u64 = arguments.next().map_or(0, |text| text.parse().unwrap_or(0));
    let bytes: usize = arguments
        .next()
        .map_or(64, |text| text.parse().unwrap_or(64));
    let keys = if bytes > LONG { FEW } else { KEYS };
    let options = Options {
        seed: 7,
        ..Options::default()
    };
    let heap = Heap::private((64 << 20) + keys * 2 * bytes as u64, &options)?;
    match operation.strip_prefix("tree-") {
        None => {
            calls!(Hash, &heap, operation.as_str(), count, (keys, bytes));
        }
        Some(operation) => {
            let tree = calls!(Tree, &heap, operation, count, (keys, bytes));
            if operation == "scan-100" {
                for nth in 0..count {
                    let mut entries = tree.range(key(nth * 97 % keys)..);
                    let mut all = 0;
                    while all < 100
                        && let Some(entry) = entries.next_ref()
                    {
                        all += entry?.1.len().min(1);
                    }
                    assert!(all > 0);
                }
            }
        }
    }
    Ok(())
}
