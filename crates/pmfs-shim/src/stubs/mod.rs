//! libc's text with patched call sites: its mapping, and the entry that its stubs lead to.

pub(crate) mod empty_name;
pub(crate) mod patch;

// These are assembly, above all code that serves (`entry`).
unsafe extern "C" {
    static pmfs_shim_entry: u8;
    static pmfs_shim_entry_leaving: u8;
    static pmfs_shim_entry_end: u8;
    static pmfs_shim_entry_plain: u8;
    static pmfs_shim_entry_plain_leaving: u8;
    static pmfs_shim_entry_plain_end: u8;
    static pmfs_shim_restorer: u8;
}

/// One of the two entries, in the code of this library.
pub(crate) struct Entry {
    /// The address that stubs jump to.
    pub start: usize,
    /// From here on the thread counts as outside again.
    pub leaving: usize,
    pub end: usize,
}

/// The entry that keeps the vector registers, and the one that does not.
pub(crate) fn entries() -> [Entry; 2] {
    let at = |label: *const u8| label.expose_provenance();
    [
        Entry {
            start: at(&raw const pmfs_shim_entry),
            leaving: at(&raw const pmfs_shim_entry_leaving),
            end: at(&raw const pmfs_shim_entry_end),
        },
        Entry {
            start: at(&raw const pmfs_shim_entry_plain),
            leaving: at(&raw const pmfs_shim_entry_plain_leaving),
            end: at(&raw const pmfs_shim_entry_plain_end),
        },
    ]
}

/// The address that a handler returns to if the program did not install it.
pub(crate) fn restorer() -> usize {
    (&raw const pmfs_shim_restorer).expose_provenance()
}
