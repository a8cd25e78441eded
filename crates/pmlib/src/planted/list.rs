//! The list of all planted bugs of this crate.

pmem::bugs! {
    "bug-redo-log-unfenced",
        "a transaction returns before its record is durable";
    "bug-redo-in-place-before-fence",
        "what a record changes is stored before the record is durable";
    "bug-homes-unflushed",
        "what a record has changed in place is not written back";
    "bug-flushed-by-older-places",
        "a thread flushes what its own last record of a lane stored, not what the lane's last one did";
    "bug-closed-before-homes",
        "a record closes the one before it, whose changes are durable with it at the soonest";
    "bug-drained-unflushed",
        "a lane at rest closes its last record, whose changes were not written back";
    "bug-closed-forgotten",
        "a record of another lane that this one supersedes is left open";
    "bug-stamp-without-pending",
        "a record's stamp does not come after those of the chunks that it changes";
    "bug-ring-reused-early",
        "the ring of a lane overwrites records that are not closed durably";
    "bug-bit-set-absolute",
        "a record has the word of a bitmap as it was at the reservation, not the bit";
    "bug-freed-place-reused-before-durable",
        "a place is given out again in the transaction that frees it";
    "bug-wide-free-locks-its-bit-alone",
        "an object in several chunks is freed without the locks of those that its bit is not in";
    "bug-fresh-object-unchecked",
        "recovery believes a record whose new object is not there";
    "bug-fresh-object-always-checked",
        "recovery drops a record whose new object a later record has changed";
    "bug-recovery-unfenced",
        "recovery closes records before what it redid is durable";
    "bug-recovery-out-of-order",
        "recovery redoes the lanes one after the other, not by their stamps";
    "bug-recovery-closes-at-once",
        "recovery closes the lanes in no order";
    "bug-unsettled-chunk-given-out",
        "a chunk's freed places are given out before the record that freed them is closed";
    "bug-session-of-any-era",
        "a session reads the era before it is announced, and not again";
    "bug-session-looks-beside-a-writer",
        "a session believes what a lock covers while somebody has the lock";
    "bug-session-of-the-dead-kept",
        "a dead process's sessions stay open";
    "bug-session-never-ended",
        "a session that lasts longer than it may stays open";
    "bug-rescue-unlocks-first",
        "the locks of the dead are opened before their records are in place";
    "bug-record-of-the-dead-left",
        "a durable record of a dead process is not put in place";
    "bug-record-of-the-dead-open",
        "a record of a dead process that was not done is left for recovery to find";
    "bug-rescue-unflushed",
        "what the dead stored in place is closed without a flush";
    "bug-reserved-of-the-dead-kept",
        "chunks that the dead had reserved stay theirs";
    "bug-grown-before-table",
        "a heap has more chunks before their table is durable";
    "bug-root-named-before-record",
        "the list of named roots leads to one that is not there yet";
    "bug-vec-length-before-record",
        "a vector's length is stored in place before the record is durable";
    "bug-string-head-before-record",
        "a text's head is stored in place before the record is durable";
    "bug-log-unfenced",
        "an append returns before its record is durable";
    "bug-log-length-believed",
        "a log's record is one if it has a length";
    "bug-segment-hashed",
        "recovery compares a log's segment with what it was when it was made";
    "bug-cut-before-lengths",
        "what a heap is to lose is gone before its length says so";
    "bug-hole-before-free",
        "what is freed becomes a hole before its record is durable";
    "bug-entries-in-the-span-before",
        "entries of chunks of a second span are written behind those of the first";
    "bug-hole-in-anothers-chunk",
        "chunks become holes that another process has taken meanwhile";
    "bug-mended-unflushed",
        "what a repair has mended is not written back";
    "bug-queue-front-before-record",
        "a queue's front is stored in place before the record is durable";
    "bug-vec-bytes-in-place",
        "an element's new bytes are stored over the old ones before the record is durable";
    "bug-map-count-before-record",
        "a map's count is stored in place before the record is durable";
    "bug-map-split-drops-entries",
        "the entries that one more bucket of a map takes are in no chain";
    "bug-map-merge-drops-entries",
        "the entries of a bucket that a map takes away are in no chain";
    "bug-map-bytes-in-place",
        "a key's new bytes are stored over the old ones before the record is durable";
    "bug-tree-root-before-record",
        "a tree's root is stored in place before the record is durable";
    "bug-tree-separator-forgotten",
        "a tree's node is split, and the one above does not know of it";
    "bug-tree-split-drops-an-entry",
        "an entry is in neither half of a tree's node that was split";
    "bug-tree-join-drops-an-entry",
        "an entry of a tree's node is lost when the node is joined with a neighbour";
    "bug-view-of-two-moments",
        "a view is believed though a commit came between";
    "bug-end-settled-unflushed",
        "a log's end that was looked for is told before its last record is durable";
}
