//! What the machine protects of links, in `/proc/sys/fs`: asked for once, by the first call that it matters to.

use std::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = u8::MAX;

/// One setting.
pub(crate) struct Setting {
    path: &'static str,
    is_on: AtomicU8,
}

impl Setting {
    const fn new(path: &'static str) -> Setting {
        Setting {
            path,
            is_on: AtomicU8::new(UNKNOWN),
        }
    }

    pub fn is_on(&self) -> bool {
        let known = self.is_on.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return known == 1;
        }
        let is_on = std::fs::read_to_string(self.path).is_ok_and(|text| text.trim() != "0");
        self.is_on.store(is_on.into(), Ordering::Relaxed);
        is_on
    }
}

pub(crate) static HARD_LINKS: Setting = Setting::new("/proc/sys/fs/protected_hardlinks");
pub(crate) static SYMBOLIC_LINKS: Setting = Setting::new("/proc/sys/fs/protected_symlinks");
