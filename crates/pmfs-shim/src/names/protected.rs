//! The machine's protections in directories that many may write (`/proc/sys/fs/protected_*`), read
//! once by the first call that needs them.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::descriptors::spare;

const UNKNOWN: u8 = u8::MAX;

/// One setting.
pub(crate) struct Setting {
    path: &'static str,
    level: AtomicU8,
}

impl Setting {
    const fn new(path: &'static str) -> Setting {
        Setting {
            path,
            level: AtomicU8::new(UNKNOWN),
        }
    }

    /// The level of protection; 0: none, or the setting can't be read.
    pub fn level(&self) -> u8 {
        let known = self.level.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return known;
        }
        let text = spare::text_of(self.path);
        let level = text.trim().parse().unwrap_or(0).min(UNKNOWN - 1);
        self.level.store(level, Ordering::Relaxed);
        level
    }

    pub fn is_on(&self) -> bool {
        self.level() != 0
    }
}

pub(crate) static HARD_LINKS: Setting = Setting::new("/proc/sys/fs/protected_hardlinks");
pub(crate) static SYMBOLIC_LINKS: Setting = Setting::new("/proc/sys/fs/protected_symlinks");
pub(crate) static FILES: Setting = Setting::new("/proc/sys/fs/protected_regular");
pub(crate) static FIFOS: Setting = Setting::new("/proc/sys/fs/protected_fifos");
