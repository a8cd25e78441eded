//! The list of all planted bugs of this crate.

pmem::bugs! {
    "bug-record-unfenced",
        "a record is stored after the fence of its slot";
    "bug-put-unfenced",
        "a put returns before its record and its slot are durable";
    "bug-slot-unflushed",
        "a put does not write its slot back";
    "bug-state-live-before-fence",
        "a put's slot is live before its record is durable";
    "bug-old-slot-cleared-before-fence",
        "the older version's slot is cleared before the new version is durable";
    "bug-delete-unflushed",
        "a delete does not write its slot back";
    "bug-delete-visible-before-fence",
        "a delete is seen before it is durable";
    "bug-put-seen-before-fence",
        "a reader sees a put that is under way";
    "bug-instance-not-compared",
        "a slot's former record is taken for its own";
    "bug-instance-kept",
        "a place's next record has the instance of its last one";
    "bug-place-read-after-its-owner",
        "a chunk is seen to be the engine's before it is seen that a place of it is free";
    "bug-place-of-a-session-free",
        "a place is free at once that a reader's session looks at";
    "bug-held-place-free-at-once",
        "a place that a session holds is freed in the era in which it was held";
    "bug-put-believed-unchecked",
        "a put under way is done though its record is torn";
    "bug-torn-value-believed",
        "a put under way is done though its value is torn: its head and key are verified alone";
    "bug-key-unchecked",
        "a delete does not verify head and key";
    "bug-least-key-unchecked",
        "a chunk's least key is taken from an entry whose check does not fit";
    "bug-older-version-unnamed",
        "a record does not name the slot of the version before";
    "bug-lower-version-wins",
        "the older one of two versions stays";
    "bug-next-version-in-other-line",
        "a key's next version goes into any line, as if it were in the same";
    "bug-moved-slot-unflushed",
        "an older version in another line is cleared, and that is not durable";
    "bug-record-of-the-dead-only-flushed",
        "a dead process's record is flushed, and not stored again";
    "bug-split-drops-a-slot",
        "a slot is in neither half of a chunk that was split";
    "bug-chunk-with-records-given-back",
        "a chunk is given back to the heap though a record is in it";
    "bug-ttl-not-durable",
        "the moment at which a record expires is stored after its fence";
    "bug-batch-slots-before-fence",
        "a batch stores its slots before its records and its journal are durable";
    "bug-batch-over-before-slots",
        "a batch is over before its slots are durable";
    "bug-batch-over-unfenced",
        "a batch returns before it is durably over, and may be redone later";
    "bug-batch-records-unchecked",
        "a batch is redone though a record of it is torn";
    "bug-batch-not-redone",
        "a batch that power loss has left is not redone";
    "bug-batch-mark-ignored",
        "a chunk is used though a dead process's batch has to be redone in it";
    "bug-snapshot-unsettled",
        "a snapshot has slots as a dead process has left them";
    "bug-snapshot-of-half-a-batch",
        "a snapshot has a part of a dead process's batch";
    "bug-snapshot-chunk-by-chunk",
        "a snapshot's chunks are locked one by one, and so of several instants";
    "bug-snapshot-holds-too-late",
        "a snapshot's session begins when writers go on already";
    "bug-snapshot-believed-after-its-end",
        "a snapshot is not asked whether it was ended";
    "bug-directory-before-record",
        "a new directory is the engine's before it is durable";
    "bug-fence-of-the-lower-key",
        "a leaf's range begins with the greatest key that stays below it";
    "bug-leaf-before-its-content",
        "a new leaf's word is stored before its slots are durable";
    "bug-leaf-unflushed",
        "a new leaf's word is not durable before its slots are cleared in the old leaf";
    "bug-moved-slots-unflushed",
        "a split is over before the slots that were moved are durably cleared";
    "bug-join-unmarked",
        "a leaf's slots are copied into another one before its word says so";
    "bug-joined-slots-unflushed",
        "a leaf is no more before its slots in another one are durable";
    "bug-join-unfenced",
        "a leaf's slots are cleared before it is durably no more";
    "bug-leaf-split-not-mended",
        "the slots of a split under way stay in both leaves";
    "bug-leaves-of-another-chunk-kept",
        "a chunk keeps the leaves that its split gave away";
    "bug-order-of-other-slots",
        "a walk believes the order that a leaf had before its slots changed";
    "bug-moved-keys-missed",
        "a walk does not ask whether keys of its leaf have moved since it came there";
    "bug-record-behind-used-places",
        "a place behind the used ones is free though a put cut short has its record there";
}
