//! The list of all planted bugs.

use super::site::Rule::{
    AllButFirst, Cached, FirstLine, FlushedFirst, LastPart, LastWordFirst, LengthAlone, OnlyFirst,
    SameOffset, Torn, Word,
};
use super::site::{Site, call, fence, flush, log, store};
use Plant::{Inline, Sites};

/// A bug that can be compiled in.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// The name by which the source asks for it.
    pub name: &'static str,
    /// The smallest check that finds it.
    pub needs: Needs,
    /// The file system that had a similar bug, or the kind of place.
    pub twin: &'static str,
    /// The fault that results.
    pub what: &'static str,
    /// The place where it acts.
    pub plant: Plant,
}

/// The place where a bug acts.
#[derive(Clone, Copy, Debug)]
pub enum Plant {
    /// Sites in the source, where the checker plants the bug from outside.
    Sites(&'static [Site]),
    /// An inline condition in the source; the text says why no site can stand for it.
    Inline(&'static str),
}

const ORDER: &str = "calls that load and store much change places, or are done twice";
const CHOICE: &str = "a question is not asked, or its answer not heeded";
const VALUE: &str = "another value is stored, or another way taken";
const WORK: &str = "a call is left out whose stores others need too";

/// A bug that makes all stores of an undo late, at a landmark.
const fn undo_behind(file: &'static str, text: &'static str) -> [Site; 3] {
    [
        call("log_entry.rs", "put", "restore.words(off").behind(file, text),
        call("undo.rs", "undo", "restore.words(off, &[word])").behind(file, text),
        call("undo.rs", "undo", "} } restore.barrier();").behind(file, text),
    ]
}

/// A bug that makes all stores of an undo and its closing entry late, at a landmark.
const fn undo_and_close_behind(file: &'static str, text: &'static str) -> [Site; 4] {
    let [first, second, third] = undo_behind(file, text);
    let fourth = call("undo.rs", "undo", "restore.close(").behind(file, text);
    [first, second, third, fourth]
}

/// The cases that a checker must try to find a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Power loss in one call, or after its return.
    OneCall,
    /// Several calls, and power loss.
    Sequence,
    /// A process killed in one call, and perhaps power loss after others have recovered.
    Kill,
    /// A second call, after one that was cut short and recovered.
    TwoCalls,
    /// Two processes, one of them stopped or killed while it changes shared state in the runtime
    /// area.
    Tables,
    /// Two threads.
    Pair,
    /// Power loss during recovery.
    Recovery,
    /// Power loss while a pool is made, or made larger.
    Mkfs,
    /// A pool left and opened again on another boot.
    Reopen,
    /// Power loss while a tree is cloned, or a snapshot made.
    Trees,
}

macro_rules! bugs {
    ($( $needs:ident $name:literal, $twin:literal, $what:literal, $plant:expr; )+) => {
        /// All of them.
        pub const BUGS: &[Bug] = &[ $( Bug {
            name: $name, needs: Needs::$needs, twin: $twin, what: $what, plant: $plant,
        } ),+ ];
    };
}

bugs! {
    // The log.
    OneCall "bug-undo-entry-unflushed", "undo entry: flush",
        "the log is not written back before the words that it covers change",
        Sites(&[flush("transaction.rs", "seal", "mem.flush(at, 64)")]);
    OneCall "bug-seal-unfenced", "undo entry: fence",
        "the words that the log covers change before the log is durable",
        Sites(&[fence("transaction.rs", "seal", "mem.fence()")]);
    OneCall "bug-undo-id-first", "undo entry: order in its line",
        "an entry is valid before it is whole",
        Sites(&[store("transaction.rs", "seal", "mem.write(at, &line)").by(LastWordFirst)]);
    OneCall "bug-unaligned-tail-unlogged", "missing log entry: overwrite",
        "the last bytes of an unaligned range are changed without being logged",
        Inline(VALUE);
    OneCall "bug-store-unflushed", "in-place store of a transaction: flush",
        "the first line that a transaction changed is not written back",
        Sites(&[flush("transaction.rs", "flush", "flush(line, 64)").by(AllButFirst)]);
    OneCall "bug-closed-before-stores", "barrier before the close entry",
        "a transaction counts as done before its words are durable",
        Sites(&[fence("transaction.rs", "make_durable", "fence()")]);
    OneCall "bug-close-unflushed", "close entry: flush",
        "a call returns, and is undone after a crash",
        Sites(&[
            flush("transaction.rs", "commit_by_checksum", "mem.flush(at, 64)"),
            flush("transaction.rs", "close", "mem.flush(at, 64)"),
        ]);
    OneCall "bug-close-unfenced", "close entry: fence",
        "a call returns before its close entry is durable",
        Sites(&[
            fence("transaction.rs", "commit_by_checksum", "mem.fence()"),
            fence("transaction.rs", "close", "mem.fence()"),
        ]);
    OneCall "bug-redo-unflushed", "redo entry: flush",
        "bytes change in place before the log of the new ones is durable",
        Sites(&[flush("redo.rs", "write_from", "mem.flush(entry, 64)")]);
    OneCall "bug-redo-unfenced", "redo entry: fence",
        "bytes change in place before the log of the new ones is durable",
        Sites(&[fence("redo.rs", "seal", "mem.fence()")]);
    OneCall "bug-redo-cut-short", "redo entries: the last one",
        "recovery makes a change of which only the first entries are there",
        Inline(VALUE);
    OneCall "bug-redo-with-gaps", "redo entries: all of them",
        "recovery makes a change of which entries are missing",
        Inline(CHOICE);
    Reopen "bug-redone-unflushed", "redo: flush of the words stored in place",
        "a log is given up while the words of its committed redo record are not durable",
        Sites(&[flush("", "take_over", "flush(off, bytes)")]);
    OneCall "bug-redo-closed-early", "committed redo: fence before the closing entry",
        "a log is given up while the words of its committed redo record are not durable",
        Sites(&[fence("", "complete", "mem.fence(); close(mem)")]);
    OneCall "bug-redo-closed-unflushed", "committed redo: flush of the closing entry",
        "recovery applies a redo record again after its words have changed",
        Sites(&[flush("", "close_open", "mem.flush(entry, 64)")]);
    Sequence "bug-redo-of-others-unflushed", "committed redo: flush by a thread that did not write it",
        "a log is given up while the words that another thread stored by it are not durable",
        Sites(&[flush("", "take_over", "self.flush_committed_redo()")]);
    OneCall "bug-redo-before-forgotten", "committed redo: the transaction before the last one",
        "the words of a change are not durable, and the next one's log hides its own",
        Inline(CHOICE);
    OneCall "bug-redo-past-end", "committed redo: closed if its last word is the file's",
        "recovery applies a redo record again over bytes that were appended after it",
        Inline(VALUE);
    Pair "bug-redo-completed-early", "committed redo: complete two transactions later",
        "words change while recovery may apply an old redo record again",
        Inline(VALUE);
    OneCall "bug-checksum-not-compared", "commit checksum: compared",
        "a transaction counts as done though its words are not durable",
        Inline(CHOICE);
    Kill "bug-checksum-unflushed", "matching checksum: the stores of a dead thread",
        "a transaction counts as done by words that are visible and not durable",
        Sites(&[flush("undo.rs", "make_commit", "restore.flush(off,")]);
    Recovery "bug-checksum-commit-unflushed", "matching checksum: made a commit record durably",
        "a finished transaction is undone after what was done since",
        Sites(&[
            flush("undo.rs", "make_commit", "restore.make_commit("),
            flush("committed_redo.rs", "", "restore.make_commit("),
            flush("committed_redo.rs", "", "restore.commit(last)"),
        ]);
    Reopen "bug-closings-unflushed", "clean close: closing entries",
        "a pool is clean while a transaction is closed by its checksum alone",
        Sites(&[flush("", "close_all", "restore.flush(last, 64)")]);
    OneCall "bug-pending-forgotten", "pending commit: left with the locks",
        "a checksum does not match because another call has changed its words",
        Sites(&[
            store("locks.rs", "leave_pending", "store(LockRaw::pending_commit.of(line), pending"),
        ]);
    OneCall "bug-pending-not-completed", "pending commit: adopted with the lock",
        "the next holder of a lock changes words that a checksum covers",
        Inline(CHOICE);
    OneCall "bug-pending-unflushed", "pending commit: flush",
        "the closing entry that a pending commit names is not written back",
        Sites(&[flush("", "flush", "mem.flush(pending & !BITS, 64)")]);
    OneCall "bug-pending-unfenced", "pending commit: fence before a store in place",
        "words that a checksum covers change before its transaction is closed durably",
        Sites(&[fence("", "complete", "} mem.fence();")]);
    OneCall "bug-place-not-drained", "pending commit: an inode's place that is given out anew",
        "a new inode is written where a checksum covers the old one's words",
        Inline(CHOICE);
    OneCall "bug-two-ids-accepted", "greatest id alone counts",
        "entries of the transaction before count too, and its close entry closes the open one",
        Inline(CHOICE);
    TwoCalls "bug-ids-restart", "NOVA: log pointers wrong after recovery",
        "recovery sets the lane's next id below those that stand in its log",
        Sites(&[store("lane.rs", "reset_ids", "runtime.store(LaneRaw::last_id")]);

    // Recovery.
    OneCall "bug-rebuild-before-undo", "PMFS: truncate list replayed at the wrong time",
        "the bitmaps are rebuilt from trees that are yet to be undone",
        Sites(&undo_and_close_behind("rebuild.rs", "pool.pm.runtime().store(place.bits"));
    OneCall "bug-rebuild-misses-attributes", "PMFS: the allocator after recovery",
        "blocks of extended attributes are free after recovery",
        Inline(WORK);
    OneCall "bug-second-range-forgotten", "undo: entries of several ranges",
        "of an entry with several ranges only the first is restored",
        Inline(CHOICE);
    OneCall "bug-undo-one-word-short", "undo: range",
        "the last word of each range is not restored",
        Inline(VALUE);
    OneCall "bug-saved-undone-backwards", "data undo: direction",
        "recovery copies the half-written data over the saved one",
        Inline(VALUE);
    Kill "bug-wrong-lane-undone", "WineFS: wrong per-CPU journal",
        "recovery undoes another lane than the dead thread's",
        Inline(VALUE);
    Kill "bug-resolved-before-undo", "recovery: order of undo and allocator",
        "intents are judged by trees that are yet to be undone",
        Sites(&undo_and_close_behind("recovery/mod.rs", "resolve(pool, &lane); lane.clear_intents()"));
    Kill "bug-dead-stores-unflushed", "recovery: the stores of a dead thread",
        "others build on stores that no one has written back",
        Sites(&[flush("", "flush_behind", "restore.flush(")]);
    Kill "bug-dead-nodes-unflushed", "recovery: words without an intent of a dead thread",
        "others trust a mark of a leaf that no one has written back",
        Sites(&[flush("recovery/behind.rs", "flush_nodes", "self.restore.flush(")]);
    Kill "bug-restored-unflushed", "restore: flush",
        "a transaction counts as undone, and what was put back is lost",
        Sites(&[
            flush("log_entry.rs", "put", "restore.words(off"),
            flush("undo.rs", "", "restore.words(off, &[word])"),
        ]);
    Recovery "bug-restored-unfenced", "restore: fence before the close entry",
        "a transaction counts as undone before what was put back is durable",
        Sites(&[fence("undo.rs", "", "} } restore.barrier();")]);
    Recovery "bug-closed-before-undo", "restore: order with the close entry",
        "a transaction counts as undone before it is",
        Sites(&undo_behind("undo.rs", "restore.close("));
    TwoCalls "bug-abort-unflushed", "close entry of an undone transaction: flush",
        "it is undone again, over what was done since",
        Sites(&[flush("undo.rs", "", "restore.close(log + head")]);
    Kill "bug-group-count-stale", "runtime bits: a dead holder's group",
        "a group's free count stays as the dead thread left it",
        Sites(&[
            store("bitmap.rs", "lock", "self.recount(unit / GROUP_UNITS)"),
            store("", "release_locks", "map.recount(group as u64)"),
        ]);

    // Stores without log.
    OneCall "bug-publish-unflushed", "publish: flush",
        "a pointer is stored and not written back",
        Sites(&[
            flush("", "", "pm.publish("),
            flush("", "", "pm.publish_early("),
        ]);
    OneCall "bug-publish-unfenced", "publish: fence",
        "a call returns before its pointer is durable",
        Sites(&[fence("", "", "pm.publish(")]);
    OneCall "bug-published-before-durable", "barrier before publish",
        "a pointer or a size is durable before what it shows",
        Sites(&[fence("", "", "fresh.barrier()")]);
    OneCall "bug-append-unfenced", "append: data barrier",
        "a size is durable before the bytes it shows",
        Sites(&[fence("file/extend.rs", "", "fresh.barrier()")]);
    OneCall "bug-hidden-pointer-unflushed", "publish of a leaf past the end: flush",
        "the size shows a block that no pointer names",
        Sites(&[flush("", "", "pm.publish_hidden")]);
    OneCall "bug-word-unflushed", "publish of bytes in one word: flush",
        "an overwrite of a few bytes returns and is lost",
        Sites(&[flush("", "", "pm.publish_bytes(")]);
    OneCall "bug-size-unflushed", "size pair: flush",
        "the new size is not written back",
        Sites(&[flush("", "", ".publish_size(")]);
    OneCall "bug-size-unfenced", "PMFS: missing fence at the end of write",
        "write and truncate return before the size is durable",
        Sites(&[fence("", "", ".publish_size(")]);
    OneCall "bug-size-flushed-first", "size pair: order of store and flush",
        "the line is written back before the size is stored",
        Sites(&[
            store("", "", ".publish_size(").by(FlushedFirst),
            flush("", "", ".publish_size("),
        ]);
    OneCall "bug-size-torn", "size pair: one store",
        "size and time are two stores, and a crash shows one without the other",
        Sites(&[store("", "", ".publish_size(").by(Torn)]);
    Kill "bug-word-intent-missing", "intent: word in place",
        "recovery does not write back a word that others have seen",
        Sites(&[store("file/overwrite.rs", "", "self.lane.intend(1, Purpose::Word")]);

    // Fresh memory.
    OneCall "bug-fresh-data-unflushed", "fresh block: data",
        "data goes through the caches and stays there",
        Sites(&[
            store("fresh.rs", "bytes", "write_nt(off, bytes)").by(Cached),
            flush("fresh.rs", "bytes", "write_nt(off, bytes)"),
        ]);
    OneCall "bug-nt-tail-unflushed", "NOVA: last bytes of a write and of a symlink's target",
        "the last, partial line of streamed data is not written back",
        Sites(&[flush("fresh.rs", "bytes", "write_nt(off, bytes)").by(LastPart)]);
    OneCall "bug-fresh-words-unflushed", "fresh block: words",
        "words stored through the caches are not written back",
        Sites(&[
            flush("dir/bucket.rs", "", "range.words(0, encoded.words())"),
            flush("inode_table.rs", "", "range.words(0, &new.words("),
        ]);
    OneCall "bug-tail-line-unflushed", "NOVA: last line of an unaligned write",
        "lines are counted from the length alone",
        Sites(&[flush("fresh.rs", "small", "flush(off, len)").by(LengthAlone)]);
    OneCall "bug-tail-same-offset-unflushed", "PMFS: tail line, if pos and pos + len share an offset",
        "the last line is skipped if the range ends where in a line it began",
        Sites(&[flush("fresh.rs", "small", "flush(off, len)").by(SameOffset)]);
    OneCall "bug-inode-unflushed", "NOVA: missing flush of an inode",
        "a new inode is not written back",
        Sites(&[flush("inode_table.rs", "", "range.words(0, &new.words(")]);
    Sequence "bug-tmpfile-unfenced", "a file without a name: barrier before it is handed on",
        "another thread links an inode that is not durable",
        Sites(&[fence("create.rs", "tmpfile", "fresh.barrier()")]);
    OneCall "bug-long-name-unflushed", "NOVA: long names unreadable after a crash",
        "only the first line of a name is written back",
        Sites(&[flush("dir/bucket.rs", "", "range.words(0, encoded.words())").by(FirstLine)]);
    OneCall "bug-table-pointer-unflushed", "Silhouette: pointer not persisted at inode allocation",
        "the inode table's new block is not durably named",
        Sites(&[flush("inode_table.rs", "grow", "pm.publish(swing.slot")]);
    OneCall "bug-table-block-unfenced", "SquirrelFS: pointer to uninitialised inodes",
        "the inode table names a block before its zeros are durable",
        Sites(&[fence("inode_table.rs", "grow", "fresh.barrier()")]);

    // Files.
    OneCall "bug-atomic-in-place", "WineFS: strict-mode write not atomic",
        "an atomic overwrite is done in place",
        Inline(VALUE);
    OneCall "bug-saved-data-unfenced", "data undo: saved copy durable before the log names it",
        "recovery restores from a copy that was never written",
        Sites(&[fence("file/overwrite.rs", "overwrite_saved", "fresh.barrier()")]);
    OneCall "bug-straddle-size-first", "write over the end: slot and size in one transaction",
        "the size changes before the blocks do",
        Sites(&[log("file/replace.rs", "", "self.publish_both(&swing, end)").by(Word(0))]);
    OneCall "bug-truncate-frees-first", "PMFS: truncate not atomic",
        "the blocks go before the size says so",
        Inline(ORDER);
    OneCall "bug-pinned-zeros-first", "truncate below a mapping",
        "bytes that the size still shows are zeros already",
        Sites(&[
            call("file/pinned.rs", "shrink_pinned", "self.publish_size(size")
                .behind("file/pinned.rs", "self.pool.pm.barrier();"),
        ]);
    OneCall "bug-part-unflushed", "mapping: flush of stored pages",
        "of several parts that a program stored to the last is not written back",
        Sites(&[flush("mapping/pin.rs", "flush_blocks", "flush_mapped(run.off").by(OnlyFirst)]);
    OneCall "bug-old-bytes-exposed", "zeroing past the end",
        "an extended file shows what the block held before",
        Sites(&[
            store("file/expose.rs", "expose", ".zero(0, until - at)"),
            store("file/expose.rs", "expose", "publish_hidden(found.slot, marked)"),
        ]);
    OneCall "bug-zeros-unfenced", "zeroing past the end: barrier",
        "the size is durable before the zeros that it shows",
        Sites(&[fence("file/expose.rs", "expose", "fresh.barrier()")]);
    OneCall "bug-shift-unlogged", "missing log entry: collapse and insert",
        "the new tree is swung in apart from the size",
        Sites(&[log("file/shift.rs", "", "self.publish_both(&swing, size)").by(Word(2))]);
    Kill "bug-insert-frees-moved", "intent: leaves that stay",
        "insert frees the leaves that it has moved",
        Inline(VALUE);
    OneCall "bug-pointer-unlogged", "missing log entry: pointers of a write",
        "the first of several blocks is swung in before its transaction",
        Sites(&[log("file/overwrite.rs", "", "tx.log_bytes(found.slot, 8 * count)")]);
    Kill "bug-blocks-freed-before-commit", "intent: blocks freed before commit",
        "several old blocks are free while the tree still names them",
        Inline(ORDER);
    Kill "bug-freed-before-publish", "intent: block freed before commit",
        "the old block is the lane's spare while the tree still names it",
        Sites(&[
            call("file/overwrite.rs", "", "self.pool.pm.publish(found.slot")
                .behind("file/overwrite.rs", "self.lane.clear_intents(); if found.level == 0"),
        ]);

    // Names.
    OneCall "bug-name-before-inode", "SquirrelFS: points to uninitialised",
        "a name is there before the inode has a link",
        Sites(&[log("namespace/create.rs", "", "header.log(&mut tx)")]);
    OneCall "bug-born-with-links", "missing log entry: links of a new inode",
        "an inode is alive before it has a name",
        Sites(&[log("namespace/create.rs", "", "tx.log(InodeRaw::links.of(off), 8)")]);
    OneCall "bug-link-count-in-place", "NOVA: link count in place; SquirrelFS: link count",
        "link's count changes before its transaction",
        Sites(&[log("namespace/link.rs", "", "inode.log(&mut tx, &with_links(")]);
    OneCall "bug-unlink-in-place", "Silhouette: unlink not atomic",
        "the name goes before the inode does",
        Sites(&[log("namespace/remove.rs", "", "header.log(&mut tx)")]);
    OneCall "bug-rmdir-in-place", "Silhouette: rmdir not atomic",
        "the parent's link count goes before the directory does",
        Sites(&[log("namespace/remove.rs", "", "parent.log(&mut tx").by(Word(4))]);
    OneCall "bug-mtime-apart", "PMFS: mtime set apart from the entry's removal",
        "a directory's size and times change before its names",
        Sites(&[log("namespace/remove.rs", "", "parent.log(&mut tx").by(Word(0))]);
    OneCall "bug-rename-deletes-in-place", "NOVA: rename deletes the old name in place",
        "a file is lost if rename is cut short",
        Sites(&[log("namespace/rename.rs", "transfer", "edit.log(&mut tx)")]);
    OneCall "bug-dotdot-unlogged", "NOVA: rename without the parent in the log; SquirrelFS: dotdot",
        "a directory's parent changes before its name",
        Sites(&[log("namespace/rename.rs", "dotdot", "tx.log(InodeRaw::parent")]);
    OneCall "bug-rename-over-loses-both", "NOVA: both names vanish in rename-over",
        "the replaced name is taken out in place and put back last",
        Inline(ORDER);
    OneCall "bug-rename-within-directory", "SquirrelFS: rename of a directory within one directory",
        "the parent loses a link though the directory stays in it",
        Inline(VALUE);
    OneCall "bug-exchange-unlogged", "missing log entry: exchange",
        "one of two exchanged names changes before the transaction",
        Sites(&[log("namespace/rename.rs", "exchange", "tx.log(target_hit.record.off, 8)")]);
    Pair "bug-rename-unlocked", "SquirrelFS: rename concurrency",
        "two directories are moved below each other",
        Sites(&[store("namespace/rename.rs", "", "Held::new(self, rename_word(self))")]);
    OneCall "bug-attributes-before-durable", "extended attributes: published before durable",
        "an inode names attributes that are not written",
        Inline(ORDER);
    OneCall "bug-split-before-durable", "directory split: barrier before the swing",
        "a directory names buckets that are not written",
        Sites(&[fence("dir/split.rs", "split", "fresh.barrier()")]);
    Kill "bug-split-frees-first", "directory split: order of swing and resolving",
        "the old bucket is free while the directory names it",
        Inline(ORDER);

    // Volatile state.
    TwoCalls "bug-orphan-reclaimed", "WineFS: inode reused while on the orphan list",
        "unlink frees a file that is held open",
        Inline(CHOICE);
    Kill "bug-intent-missing", "intent: allocation",
        "blocks that a dead thread had allocated are nobody's for good",
        Sites(&[store("pm-space/src/alloc.rs", "take", "lane.intend_run(run, purpose)")]);
    Kill "bug-bit-before-intent", "intent: order with the bit",
        "a block is taken before the lane says so",
        Sites(&[
            call("pm-space/src/alloc.rs", "take", "lane.intend_run(run, purpose)")
                .behind("pm-space/src/alloc.rs", "map.mark(run, true); lane.count_blocks(purpose, run.count"),
        ]);
    Kill "bug-inode-intent-missing", "intent: inode number",
        "a number that a dead thread had allocated is nobody's for good",
        Sites(&[store("pm-space/src/alloc.rs", "", "lane.intend_run(run, P::number(ino))")]);
    Kill "bug-inode-bit-not-taken", "Silhouette: two names with one inode number",
        "a new inode's number stays free",
        Sites(&[store("pm-space/src/alloc.rs", "alloc_ino", "map.mark(run, true)")]);
    Kill "bug-inode-number-freed-early", "runtime bits: inode number",
        "unlink gives the number back before it commits",
        Inline(ORDER);
    Pair "bug-record-not-shrunk", "NOVA-Fortis: double free in recovery",
        "recovery frees a block again that another has allocated since",
        Sites(&[store("pm-space/src/alloc.rs", "", "lane.shrink(record, run)")]);
    Pair "bug-cursor-not-moved", "NOVA-Fortis: double free in recovery",
        "freeing a file starts over, with blocks that others have allocated since",
        Sites(&[store("tree/free.rs", "", "self.lane.set_cursor(self.record, cursor)")]);
    Pair "bug-inode-read-unlocked", "PMFS: O_APPEND racing; NOVA: two descriptors",
        "a size read before the lock is taken is built on",
        Inline(ORDER);
    Pair "bug-growth-not-awaited", "another lane builds on a pointer that is not durable",
        "an inode is made in a block of the table that somebody is still adding",
        Inline(CHOICE);
    Pair "bug-unlocked-before-commit", "lock released before the commit is durable",
        "a dead thread's change is undone over what others built on it",
        Inline(ORDER);

    // Shared blocks.
    Kill "bug-share-untold", "intent: shares",
        "shares that a dead thread had taken are nobody's for good",
        Sites(&[store("pm-space/src/alloc.rs", "share", "lane.intend_run(Run { block, count: 0 }")]);
    Kill "bug-share-step-unnoted", "counts: a step and its record",
        "a dead thread's last change of a count is not told of, or told of in vain",
        Sites(&[store("pm-space/src/bitmap.rs", "step", "runtime.store(place, block |")]);
    Kill "bug-share-step-unfinished", "counts: a step and its record",
        "a dead thread's step is told of without the count",
        Sites(&[store("pm-space/src/bitmap.rs", "finish_step", "store_words(lane, off, count")]);
    OneCall "bug-source-unmarked", "shared blocks: the mark of the source",
        "a block has two leaves, of which one does not say so",
        Sites(&[call("file/clone.rs", "mark_shared", "publish_hidden(found.slot, word.0)")]);
    OneCall "bug-source-mark-unflushed", "shared blocks: the mark of the source",
        "a clone is durable before the source's leaves say that they share",
        Sites(&[flush("file/clone.rs", "mark_shared", "publish_hidden(found.slot, word.0)")]);
    OneCall "bug-walk-counts-once", "shared blocks: the walk",
        "after a crash a block that is shared counts as one file's own",
        Inline(VALUE);
    OneCall "bug-share-frees", "shared blocks: the last share frees",
        "the first leaf that goes frees a block that others name",
        Inline(CHOICE);
    OneCall "bug-parts-unshared", "shared blocks: a large leaf is split",
        "the parts of a shared large leaf count as a file's own",
        Inline(VALUE);
    OneCall "bug-clone-before-size", "shared blocks: a clone over the end",
        "a file shows cloned blocks and has its old size",
        Inline(CHOICE);
    OneCall "bug-node-unmarked", "shared nodes: the mark of the source",
        "a node has two root words, of which one does not say so",
        Sites(&[call("file/node.rs", "clone_node", "publish_hidden(tree.slot")]);
    OneCall "bug-node-mark-unflushed", "shared nodes: the mark of the source",
        "a clone is durable before the source's root word says that it shares",
        Sites(&[flush("file/node.rs", "clone_node", "publish_hidden(tree.slot")]);
    OneCall "bug-node-edited-in-place", "shared nodes: own before a change",
        "a call on one file changes the node of two",
        Inline(CHOICE);
    OneCall "bug-leaves-of-kept-node-unmarked", "shared nodes: the last keeps its node",
        "a file writes in place to blocks that a node made of its own names too",
        Inline(CHOICE);
    OneCall "bug-node-freed-with-leaves", "shared nodes: the last share frees",
        "the first file that goes frees a node that others name",
        Inline(CHOICE);
    Kill "bug-node-leaves-freed", "shared nodes: the last share frees",
        "the leaves of a node go with it, though another node names their blocks",
        Inline(CHOICE);
    OneCall "bug-walk-enters-twice", "shared nodes: the walk",
        "after a crash each file that names a node counts its leaves",
        Inline(CHOICE);
    Kill "bug-share-below-shared-node", "shared nodes: whose leaves",
        "shares that a dead thread took for a node of its own are taken for those of the old one",
        Inline(CHOICE);
    Kill "bug-clone-shares-twice", "shared blocks: the same again",
        "a leaf that stays gets one more share, which a death leaves behind",
        Inline(CHOICE);

    // Superblocks.
    Mkfs "bug-superblocks-unfenced", "NOVA-Fortis: fence between primary and replica",
        "both superblocks may be torn at once",
        Sites(&[fence("superblock.rs", "store", "raw.as_bytes())?; restore.barrier();")]);
    Mkfs "bug-superblock-before-copy", "NOVA-Fortis: the two not initialised atomically",
        "a pool is there before its superblock's copy",
        Sites(&[
            call("superblock.rs", "store", "restore.bytes(copy, raw.as_bytes())?; restore.barrier();")
                .behind("superblock.rs", "restore.bytes(0, raw.as_bytes())?; restore.barrier();"),
        ]);

    // Leaving and coming back.
    Reopen "bug-lazy-not-noted", "clean close: lazy words",
        "a word of an inode is stored unflushed and a clean close does not know of it",
        Sites(&[store("lazy.rs", "note", "self.cas(slot, known, known | bit)")]);
    Reopen "bug-lazy-unflushed", "clean close: flush",
        "a pool is clean before the inodes' counts are durable",
        Sites(&[flush("lazy.rs", "flush_inodes", "restore.flush(off, InodeRaw::SIZE)")]);
    Reopen "bug-active-missing", "clean flag: taken back",
        "a pool that is in use counts as clean after a crash, with the free lists of then",
        Inline(WORK);

    // State that processes share in the runtime area.
    Tables "bug-files-not-released", "open files: a dead opener's line",
        "cleaning up skips the lines of open files that the dead were changing",
        Sites(&[store("", "release_files", "owner::release(self, line.off)")]);
    Kill "bug-file-unowned", "open files: owner before content",
        "an open file's line is filled by somebody who does not own it",
        Sites(&[store("open_file.rs", "", "runtime.cas(OpenFileRaw::owner.of(line), 0, me)")]);
    Kill "bug-file-locks-outlive-it", "open files: end",
        "an open file ends and its locks stay",
        Inline(WORK);
    Tables "bug-offset-unlocked", "open files: offset",
        "two reads begin at one offset",
        Sites(&[store("open_file.rs", "", "HeldLine::new(self, line)")]);
    Tables "bug-dead-files-skipped", "cleaning up: one table left out",
        "inodes that the dead had open through open files stay open",
        Inline(WORK);
    Kill "bug-dead-orphans-left", "cleaning up: orphans",
        "a file without a name goes from the open table and nowhere else",
        Inline(WORK);
    Tables "bug-dead-orphan-let-go-first", "cleaning up: intent before the open count",
        "a cleaner that dies leaves an orphan that no entry of the open table has",
        Inline(ORDER);
    Tables "bug-slot-freed-first", "cleaning up: order of slot and tables",
        "a cleaner that dies leaves open files of a slot that is free",
        Inline(ORDER);
    Tables "bug-tree-cloned-unlocked", "all locks at once: not taken",
        "a tree is cloned file by file while others change it",
        Inline(WORK);
    Tables "bug-had-lock-released", "all locks at once: given up by a call",
        "the first call under all locks lets others at what it has changed",
        Inline(CHOICE);
    Tables "bug-snapshot-changeable", "snapshots: the test left out",
        "a snapshot's files are written to like others",
        Inline(CHOICE);
    Trees "bug-snapshot-flags-unflushed", "snapshots: the flag is durable before the name",
        "a snapshot is there after a crash, and some of its inodes take changes",
        Inline(VALUE);
    Tables "bug-snapshot-directory-left-open", "snapshots: no flag for directories",
        "names can be made in a snapshot",
        Inline(WORK);
    Tables "bug-opened-by-number", "open files: a number given out anew",
        "a call that looked a file up opens another one that has got its number since",
        Inline(CHOICE);
    Tables "bug-other-holders-overlooked", "open count: others'",
        "a file without a name goes though another process has it open",
        Inline(CHOICE);
    Tables "bug-lock-linked-first", "file locks: linked before filled",
        "a process that dies while it takes a lock cuts others' locks off the chain",
        Sites(&[
            call("file_lock/table.rs", "insert", "runtime.write(FileLockRaw::next.of(off)")
                .behind("file_lock/table.rs", "store(FileLockBucketRaw::first.of(self.off), index + 1)"),
        ]);
    Kill "bug-locks-of-the-dead-stay", "cleaning up: one table left out",
        "the file locks of the dead stay",
        Inline(WORK);
    Tables "bug-waits-of-the-dead-stay", "cleaning up: records half looked at",
        "a process that died waiting for a file lock waits for good",
        Inline(WORK);
    Tables "bug-bucket-stays-locked", "cleaning up: one table left out",
        "a chain of file locks stays locked by the dead",
        Sites(&[store("", "release_locks", "owner::release(pool, bucket)")]);
    Tables "bug-annex-untold", "annexes of tables: intent before bit",
        "a process that dies while a table gets a block leaks it",
        Sites(&[
            store("annex.rs", "lend", "runtime.store(told_slot, slot)"),
            store("annex.rs", "lend", "runtime.store(told_block, block)"),
        ]);
    Tables "bug-annex-count-last", "annexes of tables: count before content",
        "a process that dies while it adds an entry to an annex leaves it where no search reads",
        Inline(ORDER);
    Tables "bug-heir-forgotten", "exec: locks",
        "the locks of a program go with it, though another was to have them",
        Inline(CHOICE);
    Tables "bug-lock-outlives-its-process", "file locks: whose death ends them",
        "a file lock has no slot",
        Inline(VALUE);
    Kill "bug-word-intent-closed-early", "intent: closed before the store",
        "an intent is closed before the word that it names is stored",
        Sites(&[
            call("file/overwrite.rs", "", "self.pool.pm.publish_bytes(off, data)")
                .behind("file/overwrite.rs", "self.lane.clear_intents(); return Ok(())"),
        ]);
    Kill "bug-block-intents-closed-early", "intent: closed before the free",
        "intents are closed before the old block is the lane's spare",
        Sites(&[
            call("file/overwrite.rs", "", "self.lane.keep_spare(old, purpose)")
                .behind("file/overwrite.rs", "self.lane.clear_intents(); if found.level == 0"),
        ]);
    Kill "bug-spare-kept", "intent: what two records say",
        "a lane's spare block stays the spare one after an intent that names it was resolved",
        Sites(&[store("resolve.rs", "", "lane.doubt_spare()")]);
    Tables "bug-pages-of-the-dead-stay", "cleaning up: one table left out",
        "a dead mount has pages for good",
        Inline(WORK);
    Tables "bug-cut-pages-record-stays", "cleaning up: records half made",
        "a record of pages that was being made stays a dead mount's",
        Sites(&[store("", "free_kernel_copies_of", "store(off, KERNEL_COPY_FREE)")]);
    Tables "bug-pages-forgotten-by-all", "mounts' pages: how far to look",
        "a mount that gives pages back makes others' be overlooked",
        Inline(CHOICE);
    Tables "bug-pages-read-past", "mounts' pages: reading",
        "content is read of which a mount has newer pages",
        Inline(CHOICE);
    Tables "bug-pages-written-past", "mounts' pages: writing",
        "content is changed of which a mount has pages",
        Inline(CHOICE);
    Tables "bug-pages-strengthened-unasked", "mounts' pages: opening for writing",
        "a mount may store to pages that others have, too",
        Inline(CHOICE);
    Tables "bug-pages-kind-kept", "mounts' pages: opening for writing",
        "pages that may be stored to count as clean",
        Sites(&[
            store("kernel_copy.rs", "begin_kernel_writing", "store(KernelCopyRaw::kind.of(own"),
        ]);
    Tables "bug-pages-served-uncounted", "mounts' pages: given back",
        "pages that were served meanwhile count as given back",
        Sites(&[store("kernel_copy.rs", "", "store(KernelCopyRaw::generation.of(own")]);
    Kill "bug-grown-leaf-freed", "large leaves: a part written over",
        "all of a large leaf is freed when one block of it is replaced",
        Inline(VALUE);
    OneCall "bug-pages-unfenced", "blocks handed over: order of data and root",
        "the root word names blocks and nodes that are not durable",
        Sites(&[fence("file/pages.rs", "", "fresh.barrier()")]);
    Kill "bug-pages-frees-shared", "blocks handed over: what both trees have",
        "what stands in the new tree too is freed with the old one",
        Inline(VALUE);
    OneCall "bug-merged-before-durable", "defragmenting: barrier before the swing",
        "a large leaf is named before what was copied there is durable",
        Sites(&[fence("pmfs-admin/src/defrag.rs", "swing_whole", "fresh.barrier()")]);
    Kill "bug-moved-freed-first", "defragmenting: order of the pointer and the old block",
        "a block that is moved is free while the tree still names it",
        Sites(&[
            call("pmfs-admin/src/defrag.rs", "", "work.pool.pm.publish(slot, new, durable)")
                .behind("pmfs-admin/src/defrag.rs", "work.lane.clear_intents(); work.reload()"),
        ]);
    OneCall "bug-put-back-missing", "data undo: a write that fails",
        "a write from memory that ends leaves half of itself",
        Sites(&[store("file/overwrite.rs", "", "tx.put_back(range, to, from, len)")]);
    OneCall "bug-put-back-unflushed", "data undo: a write that fails",
        "the log is closed before what was put back is durable",
        Sites(&[
            store("file/overwrite.rs", "", "tx.put_back(range, to, from, len)").by(Cached),
            flush("file/overwrite.rs", "", "tx.put_back(range, to, from, len)"),
        ]);
    Tables "bug-put-back-unclosed", "data undo: a write that fails",
        "the log of a write that was taken back stays open, naming blocks that go to others",
        Inline(WORK);
    Tables "bug-child-marked-last", "fork and exec: order of slot and tables",
        "who dies while he makes a child ready leaves files open for nobody",
        Sites(&[
            call("recovery/inherit.rs", "", "self.mark_slot(successor.holder, token)")
                .behind("recovery/inherit.rs", "self.open_add_for(successor.holder.slot"),
        ]);
    Tables "bug-child-cancelled-with-files", "fork and exec: a child that is not to be",
        "what a child was to have open stays open",
        Inline(WORK);
    Tables "bug-guest-lock-not-bequeathed", "fork and exec: whose a lock is",
        "what a vfork child has locked ends with its parent, though its program goes on",
        Sites(&[store("file_lock/table.rs", "rename", "self.bequeath(record, slot)")]);
}
