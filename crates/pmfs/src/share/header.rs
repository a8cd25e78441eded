//! The lock words of the runtime header.

use crate::medium::store::Store;

const RECOVERY_OWNER: u64 = 8;
const ANNEX_OWNER: u64 = 32;
const RENAME_OWNER: u64 = 64;
const GROW_OWNER: u64 = 128;
const CLOSING_OWNER: u64 = 192;

/// All of them; the recovery lock first.
pub(crate) fn words(store: &Store) -> [u64; 5] {
    [
        recovery_word(store),
        rename_word(store),
        grow_word(store),
        closing_word(store),
        annex_word(store),
    ]
}

/// The lock of renames.
pub(crate) fn rename_word(store: &Store) -> u64 {
    store.geometry.header + RENAME_OWNER
}

/// The lock under which the inode table grows.
pub(crate) fn grow_word(store: &Store) -> u64 {
    store.geometry.header + GROW_OWNER
}

/// The lock under which blocks are taken for annexes.
pub(crate) fn annex_word(store: &Store) -> u64 {
    store.geometry.header + ANNEX_OWNER
}

/// The lock of those who clean up after others.
pub(crate) fn recovery_word(store: &Store) -> u64 {
    store.geometry.header + RECOVERY_OWNER
}

/// The lock of those who close what the dead held open.
pub(crate) fn closing_word(store: &Store) -> u64 {
    store.geometry.header + CLOSING_OWNER
}
