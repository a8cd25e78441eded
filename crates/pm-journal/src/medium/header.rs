//! The lock words of the runtime header.

use crate::medium::store::Store;
use pmfs_format::RuntimeHeaderRaw;

/// All of them; the recovery lock first.
pub fn words(store: &Store) -> [u64; 5] {
    [
        recovery_word(store),
        rename_word(store),
        grow_word(store),
        closing_word(store),
        annex_word(store),
    ]
}

/// The lock of renames.
#[inline]
pub fn rename_word(store: &Store) -> u64 {
    RuntimeHeaderRaw::rename_owner.of(store.geometry.header)
}

/// The lock under which the inode table grows.
#[inline]
pub fn grow_word(store: &Store) -> u64 {
    RuntimeHeaderRaw::grow_owner.of(store.geometry.header)
}

/// The lock under which blocks are taken for annexes.
#[inline]
pub fn annex_word(store: &Store) -> u64 {
    RuntimeHeaderRaw::annex_owner.of(store.geometry.header)
}

/// The lock of those who clean up after others.
#[inline]
pub fn recovery_word(store: &Store) -> u64 {
    RuntimeHeaderRaw::recovery_owner.of(store.geometry.header)
}

/// The lock of those who close what the dead held open.
#[inline]
pub fn closing_word(store: &Store) -> u64 {
    RuntimeHeaderRaw::closing_owner.of(store.geometry.header)
}
