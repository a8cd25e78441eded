//! Goal: a handle names the place of its field, so that code and `docs/FORMAT.md` can't differ.
//! Method: words that are stored through handles are found in the fields of the structure that the
//! same bytes are read as.

use pmfs_format::{DentryRaw, InodeRaw, LockRaw, LogEntryRaw, SlotRaw, SuperblockRaw};
use std::mem::offset_of;
use zerocopy::{FromBytes, IntoBytes};

#[test]
fn a_word_stored_by_a_handle_is_the_field() {
    let mut line = [0u64; 8];
    line[LockRaw::owner.word()] = 1;
    line[LockRaw::sequence.word()] = 2;
    line[LockRaw::copies.word()] = 3;
    line[LockRaw::pending_commit.word()] = 4;
    let lock = LockRaw::read_from_bytes(line.as_bytes()).expect("a line");
    assert_eq!(
        (lock.owner, lock.sequence, lock.copies, lock.pending_commit),
        (1, 2, 3, 4)
    );
}

#[test]
fn handles_and_fields_have_the_same_offsets() {
    assert_eq!(InodeRaw::size.offset(), offset_of!(InodeRaw, size) as u64);
    assert_eq!(InodeRaw::gid.offset(), offset_of!(InodeRaw, gid) as u64);
    assert_eq!(DentryRaw::name.of(4096), 4096 + 16);
    assert_eq!(SuperblockRaw::crc.of(0), SuperblockRaw::SIZE - 4);
    // A handle for each that the description has.
    let described = SlotRaw::structure().fields;
    let last = described.last().expect("fields");
    assert_eq!(last.name, "sessions");
    assert_eq!(SlotRaw::sessions.offset(), last.offset as u64);
}

#[test]
fn elements_and_neighbours_follow_from_types() {
    assert_eq!(LogEntryRaw::old.nth(5).of(128), 128 + 8 + 5 * 8);
    assert!(LogEntryRaw::old.is_before(LogEntryRaw::id));
    assert!(!LogEntryRaw::header.is_before(LogEntryRaw::id));
    // Two halves of one word.
    assert_eq!(InodeRaw::mode.word(), InodeRaw::generation.word());
}
