//! The known reasons for which a mutant is not caught.

use super::{Mutant, RULES, Rule, What, source};

/// Mutants of a place that nothing catches, and the reason.
struct Reason {
    /// The end of the source file's name.
    file: &'static str,
    /// The source text there.
    text: &'static str,
    /// The accesses of the place.
    what: &'static [What],
    /// The rules by which it is broken.
    rules: &'static [Rule],
    why: &'static str,
}

use What::{Fence, Flush, Store};

const ALL: &[Rule] = &RULES;
const ANY: &[What] = &[Store, Flush, Fence];
const ORDER: &[What] = &[Flush, Fence];
/// Rules that leave out the lines of pending commits of earlier calls, while this call's own lines
/// are flushed.
const LEAVES_PENDING: &[Rule] = &[
    Rule::FirstLine,
    Rule::AllButLast,
    Rule::AtHandover,
    Rule::AtWrap,
    Rule::OneEarly,
];

const TIMES: &str =
    "times of an overwrite may be older after a crash (docs/SEMANTICS.md, exception 1)";
const COUNTS: &str =
    "a count of blocks, which recovery makes anew (docs/SEMANTICS.md, exception 2)";
const PENDING: &str = "it completes the pending commit of an earlier call, which covers other words than those that this call stores to";
const CLOSED: &str =
    "it closes a committed redo record before a store in place; that store is to other words";
const PROGRAMS: &str = "stores of programs to mapped blocks are not recorded";
const COVERED: &str =
    "the call's own transaction flushes the line again, unless it fails before that";
const MOVED: &str =
    "both places read the same; it shows once another thread has the old blocks again";
const PLACEMENT: &str = "it keeps space reserved; the content of the blocks does not matter, as the file reads as zeros there";
const NEIGHBOUR: &str = "once for a write past the end: the bytes beside it flush the line again";
const UNLINKED: &str = "nothing durable names an O_TMPFILE; its link logs the inode";
const GOING: &str = "it closes a committed redo record of a file that goes; its lane's next transaction closes it too, and no workload reuses the block before that";
const TAKEN_BACK: &str = "a log that stays open shows once the blocks that it saved to are reused: bug-put-back-unclosed";

const SHARES: &str = "counts of shares are volatile: a walk counts anew after power loss (docs/adr/0079-shared-blocks.md)";

macro_rules! reasons {
    ($( $file:literal, $text:literal, $what:expr, $rules:expr, $why:expr; )+) => {
        &[ $( Reason { file: $file, text: $text, what: $what, rules: $rules, why: $why } ),+ ]
    };
}

const REASONS: &[Reason] = reasons! {
    "", "lazy_times()", &[Store], ALL, TIMES;
    "", "store_block_count()", &[Store], ALL, COUNTS;
    "file/overwrite.rs", "self.locks.redo(tx,", &[Store], ALL, TIMES;
    "defrag.rs", "publish(swing.slot, swing.new.0, durable)", ANY, ALL, MOVED;
    "defrag.rs", "publish(slot, new, durable)", ANY, ALL, MOVED;
    "dir/split.rs", "pool.pm.publish_early(dir.root_slot()", ORDER, ALL, COVERED;
    "dir/split.rs", "pool.pm.publish(slot, word.0, halves)", ORDER, LEAVES_PENDING, PENDING;
    "dir/split.rs", "let halves = fresh.barrier()", &[Flush], ALL,
        "it flushes a pending commit, before a change of words that this seldom covers";
    "file/allocate.rs", "pm.barrier()", ORDER, ALL, PLACEMENT;
    "file/allocate.rs", "pm.publish_hidden(", ANY, ALL, PLACEMENT;
    "file/allocate.rs", "self.publish_both(&swing, size)", &[Flush], LEAVES_PENDING, PENDING;
    "file/clone.rs", "self.pool.share(self.lane, run, purpose)", &[Store], ALL, SHARES;
    "file/clone.rs", "publish_hidden(found.slot, word.0)", &[Fence], ALL,
        "the barrier before the clone's own pointer comes later, and covers the mark";
    "file/node.rs", "self.pool.share(self.lane, node, |_| purpose)", &[Store], ALL, SHARES;
    "file/node.rs", "self.pool.share(self.lane, room, purpose)", &[Store], ALL, SHARES;
    "file/node.rs", "publish(tree.slot, word, durable)", ANY, ALL,
        "a mark that stays on a node that nobody else names is taken away by the next change";
    "tree/free.rs", "map.let_go(self.lane, run, &told)", &[Store], ALL, SHARES;
    "file/expose.rs", "fresh.barrier()", &[Store], ALL, CLOSED;
    "file/expose.rs", "fresh.barrier()", &[Flush], LEAVES_PENDING, PENDING;
    "file/expose.rs", "publish(found.slot, word, durable)", &[Fence], ALL,
        "a writer of the block, or a process that has it mapped, fences before its content has to be durable";
    "file/extend.rs", "fresh.barrier()", &[Store], ALL, CLOSED;
    "file/extend.rs", "self.swing(Class::Ordinary", &[Flush], LEAVES_PENDING, PENDING;
    "file/extend.rs", "publish_hidden_run(", &[Fence], ALL,
        "pending commits are completed before any store in place; the word of a leaf in a hole is in no log that is pending";
    "file/extend.rs", "zero(0, head)", ORDER, ALL, NEIGHBOUR;
    "file/overwrite.rs", "let durable = fresh.barrier()", &[Flush], LEAVES_PENDING, PENDING;
    "file/overwrite.rs", "self.pool.pm.lazy_write(", &[Fence], LEAVES_PENDING, PENDING;
    "file/overwrite.rs", "self.locks.change(); self.pool.pm.publish_bytes", &[Fence], ALL,
        "the pending commit there is a committed redo record; it matters where the process that stores the word is killed, others see the word, and then the power fails";
    "file/overwrite.rs", "tx.commit(); }", ANY, ALL, TAKEN_BACK;
    "file/overwrite.rs", "tx.put_back(", &[Store], &[Rule::FirstLine],
        "the write that fails has not passed the first line of its data";
    "file/pages.rs", "fresh.barrier()", &[Flush], LEAVES_PENDING, PENDING;
    "file/replace.rs", "fresh.range(off, BLOCK_BYTES).bytes(0, piece)", ORDER, ALL,
        "only a copy that fails in the middle of a line flushes; nothing will name that block";
    "file/truncate.rs", "publish_size(size, durable)", &[Flush], LEAVES_PENDING, PENDING;
    "file/truncate.rs", "self.swing(Class::Privileged", &[Store], LEAVES_PENDING, CLOSED;
    "file/truncate.rs", "self.swing(Class::Privileged", &[Flush], LEAVES_PENDING, PENDING;
    "namespace/create.rs", "FLAG_LINKABLE", ANY, ALL, UNLINKED;
    "namespace/create.rs", "let _ = fresh.barrier()", &[Fence], &[Rule::AtWrap],
        "another lane's link needs it; no workload has one where the lane wraps";
    "open/hold.rs", "let locks = LockSet::take(", &[Store], ALL, GOING;
    "namespace/remove.rs", "let locks = LockSet::take(", &[Store], ALL, GOING;
    "file/pinned.rs", "self.pool.pm.lazy_zero(", &[Store], &[Rule::FirstLine],
        "several pages are zeroed at once past the end alone: the call that exposes them zeroes them again, and only processes that have them mapped see them";
    "pm-store/src/runtime.rs", ".flush(self.area.start", ORDER, ALL,
        "a runtime area of which a line is lost fails the pool's checksum, and is rebuilt";
    "pm-store/src/runtime.rs", "self.mem.fence()", ORDER, ALL,
        "it orders the zeros before loads of other processes; nothing there has to be durable";
    "pin.rs", "self.pm.barrier()", ORDER, ALL, PROGRAMS;
    "pin.rs", "self.pm.flush_mapped(", ORDER, ALL, PROGRAMS;
    "committed_redo.rs", "restore.commit(last)", &[Flush], ALL,
        "a pool at rest has no open log; but its locks keep their pending commits, and the next holder closes the committed redo record";
    "pm-journal/src/undo.rs", "restore.close(", ORDER, ALL,
        "at a mount the superblock's next fence covers it; the kill model needs it";
    "resolve.rs", "pool.free_front(lane, record, same)", ORDER, ALL, PENDING;
    "superblock.rs", "words(CLAIM_OFFSET", ORDER, ALL,
        "a claim that comes back after power loss has another boot's id";
    "superblock.rs", "restore.barrier()", ORDER, ALL,
        "the first change of the pool fences too, unless another thread makes it";
    "superblock.rs", "restore.words(RUN_RECORD_OFFSET", ORDER, ALL,
        "a record that is lost or torn fails its CRC and counts as another boot's";
};

/// The reason for which a mutant is not caught, if it is known.
#[must_use]
pub fn why_unseen(mutant: &Mutant) -> Option<&'static str> {
    let (site, rule) = (&mutant.site, mutant.rule);
    let source = source(site);
    let is_it = |reason: &&Reason| {
        site.place.file().ends_with(reason.file)
            && source.contains(reason.text)
            && reason.what.contains(&site.what)
            && reason.rules.contains(&rule)
    };
    REASONS.iter().find(is_it).map(|reason| reason.why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn sources(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, bare(&text)));
            }
        }
    }

    /// The text without white space, which rustfmt decides.
    fn bare(text: &str) -> String {
        text.split_whitespace().collect()
    }

    /// Goal: a reason goes along when its code moves. Method: the engine has each reason's text, in
    /// a file of that name.
    #[test]
    fn each_reason_has_its_code() {
        let mut all = Vec::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for engine in [
            "pm-store/src",
            "pmshare/src",
            "pm-journal/src",
            "pm-space/src",
            "pmfs/src",
            "pmfs-admin/src",
        ] {
            sources(&crates.join(engine), &mut all);
        }
        let is_there = |reason: &&Reason| {
            let text = bare(reason.text);
            let named = |path: &Path| path.to_string_lossy().ends_with(reason.file);
            all.iter()
                .any(|(path, code)| named(path) && code.contains(&text))
        };
        let gone = REASONS.iter().filter(|reason| !is_there(reason));
        let gone: Vec<_> = gone.map(|reason| (reason.file, reason.text)).collect();
        assert!(gone.is_empty(), "{gone:#?}");
    }
}
