//! Protection of a mapped pool: only this crate may store to it, inside a write window (PMFS
//! section 3.3).
//!
//! - **Keys**: the mapping carries a protection key (pkeys(7)). A thread has no right to it at
//!   first, and a signal handler never; an entry ([`Pmem::enter`](crate::Pmem::enter)) lets the
//!   thread read, a window lets it store, and is closed by one instruction.
//! - **Pages**: the mapping is read-only, and a window makes it writable by mprotect(2), for all
//!   threads of the process. Slow, and weaker: while any thread is in a window, all may store. For
//!   comparison, and for machines without keys.

pub(crate) mod keys;
pub(crate) mod pages;
pub(crate) mod stray;
pub(crate) mod window;

use std::fmt;
use std::io;
use std::ops::Range;
use std::str::FromStr;

use crate::address_space::Mapping;
use crate::protection::keys::Key;
use crate::protection::pages::Pages;

/// The requested protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProtectMode {
    /// Keys where the CPU and the kernel have them, otherwise none.
    #[default]
    Auto,
    /// None, even where keys exist.
    None,
    /// Keys; an error where there are none.
    Keys,
    /// Page permissions.
    Pages,
}

impl fmt::Display for ProtectMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProtectMode::Auto => "auto",
            ProtectMode::None => "none",
            ProtectMode::Keys => "keys",
            ProtectMode::Pages => "pages",
        })
    }
}

impl FromStr for ProtectMode {
    type Err = String;

    fn from_str(s: &str) -> Result<ProtectMode, String> {
        match s {
            "auto" => Ok(ProtectMode::Auto),
            "none" => Ok(ProtectMode::None),
            "keys" => Ok(ProtectMode::Keys),
            "pages" => Ok(ProtectMode::Pages),
            _ => Err(format!(
                "protection is auto, none, keys or pages, not {s:?}"
            )),
        }
    }
}

/// The protection that keeps stray stores from a mapped pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// No protection.
    None,
    /// A protection key.
    Keys,
    /// Page permissions.
    Pages,
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protection::None => "none",
            Protection::Keys => "keys",
            Protection::Pages => "pages",
        })
    }
}

/// Checks that a pool can be protected by keys here.
///
/// # Errors
/// The CPU or the kernel has none, or the program has taken them all.
pub fn keys() -> io::Result<()> {
    Key::of_process().map(drop)
}

/// The protection of one mapping.
#[derive(Debug)]
pub(crate) enum Guard {
    None,
    Keys(Key),
    Pages(Box<Pages>),
}

impl Guard {
    /// Closes a writable mapping in the requested way.
    ///
    /// # Errors
    /// [`ProtectMode::Keys`] is requested, and there are no keys.
    pub(crate) fn close(mapping: &Mapping, mode: ProtectMode) -> io::Result<Guard> {
        match mode {
            ProtectMode::None => Ok(Guard::None),
            ProtectMode::Keys => closed_by_key(mapping),
            ProtectMode::Auto => Ok(closed_by_key(mapping).unwrap_or(Guard::None)),
            ProtectMode::Pages => Ok(Guard::Pages(Box::new(Pages::close(mapping)?))),
        }
    }

    /// The permissions for mapping more of a mapping with permissions `open`, until the new part is
    /// closed: no store may happen before.
    pub(crate) fn before_closing(&self, open: libc::c_int) -> libc::c_int {
        match self {
            Guard::None => open,
            Guard::Keys(_) => libc::PROT_NONE,
            Guard::Pages(_) => libc::PROT_READ,
        }
    }

    /// Closes these bytes too, by which the mapping has grown.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn close_more(&self, mapping: &Mapping, bytes: Range<usize>) -> io::Result<()> {
        match self {
            Guard::None => {}
            Guard::Keys(key) => key.give(mapping, bytes)?,
            Guard::Pages(pages) => pages.grow(bytes.end),
        }
        Ok(())
    }

    pub(crate) fn kind(&self) -> Protection {
        match self {
            Guard::None => Protection::None,
            Guard::Keys(_) => Protection::Keys,
            Guard::Pages(_) => Protection::Pages,
        }
    }
}

fn closed_by_key(mapping: &Mapping) -> io::Result<Guard> {
    let key = Key::of_process()?;
    key.give(mapping, 0..mapping.len())?;
    key.admit();
    Ok(Guard::Keys(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_shown() {
        use ProtectMode::{Auto, Keys, None, Pages};
        for mode in [Auto, None, Keys, Pages] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("key".parse::<ProtectMode>().is_err());
    }
}
