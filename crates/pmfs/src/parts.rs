//! The structures that `pmfs-admin` checks, repairs and shows. No other crate may use them: a pool
//! is changed by [`crate::Fs`].

/// See `dir/`.
pub mod dir {
    pub use crate::dir::{Name, bucket, bucket_of, hash, is_name, split};
}

/// See `file/`.
pub mod file {
    pub use crate::file::{Work, is_direct};
}

/// See `inode/`.
pub mod inode {
    pub use crate::inode::{Inode, NewInode, PER_BLOCK, is_kind, plausible, usage, xattr};
}

/// See `namespace/`.
pub mod namespace {
    pub use crate::namespace::{create, find, inode_table, named_dir};
}

/// See `open/`.
pub mod open {
    pub use crate::open::file_lock;
}

/// See `pool.rs`.
pub mod pool {
    pub use crate::pool::Pool;
}

/// See `purpose.rs`.
pub mod purpose {
    pub use crate::purpose::{Claim, Lane, Purpose};
}

/// See `recovery/`.
pub mod recovery {
    pub use crate::recovery::{attach, rebuild};
}

/// See `resolve.rs`.
pub mod resolve {
    pub use crate::resolve::intend_subtree;
}

/// See `tables/`.
pub mod tables {
    pub use crate::tables::{annex, open_table, shares};
}

/// See `tree/`.
pub mod tree {
    pub use crate::tree::{Found, NEITHER, Tree, edit, entry, visit};
}
