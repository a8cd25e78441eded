//! The user on whose behalf a call is made.

/// Capabilities, as capabilities(7) numbers them.
pub mod capability {
    #![allow(missing_docs)]
    pub const CHOWN: u32 = 0;
    pub const DAC_OVERRIDE: u32 = 1;
    pub const DAC_READ_SEARCH: u32 = 2;
    pub const FOWNER: u32 = 3;
    pub const FSETID: u32 = 4;
    pub const IPC_LOCK: u32 = 14;
    pub const SYS_ADMIN: u32 = 21;
    pub const MKNOD: u32 = 27;
}

/// A thread's identity, as far as files are concerned.
pub trait Subject {
    /// The caller's file system user.
    fn user(&self) -> u32;

    /// Returns whether it is in the group, by its file system group or one of the others.
    fn is_in(&self, group: u32) -> bool;

    /// Returns whether it has the capability in effect.
    fn has(&self, capability: u32) -> bool;
}
