//! The set-id bits and file capabilities that calls remove: `file_remove_privs()`,
//! `chown_common()`, `setattr_prepare()` and `vfs_prepare_mode()` of Linux.
//!
//! A set-gid bit without group execution was the mark of mandatory locks, and stays where one with
//! group execution goes, unless the caller is outside the file's group.

use pmfs::types::mode::{S_IFMT, S_IFREG, S_ISGID, S_ISUID};
use pmfs::{Attr, SetAttr};

use crate::names::is_dir;
use crate::subject::{Subject, capability::FSETID};

/// The attribute that holds a file's capabilities. Any change of the content or the owner takes it
/// away, root's too.
pub const CAPABILITY: &[u8] = b"security.capability";

/// The set-user-ID and set-group-ID bits.
pub const SET_ID: u32 = S_ISUID | S_ISGID;

const GROUP_EXECUTES: u32 = 0o010;

fn keeps_group(group: u32, who: &impl Subject) -> bool {
    who.is_in(group) || who.has(FSETID)
}

fn set_gid_goes(attr: &Attr, who: &impl Subject) -> bool {
    attr.mode & S_ISGID != 0 && (attr.mode & GROUP_EXECUTES != 0 || !keeps_group(attr.gid, who))
}

/// The set-id bits that a change of the content takes away: write, truncate, O_TRUNC,
/// fallocate, copy_file_range. A store through a mapping takes none.
#[must_use]
pub fn gone_with_content(attr: &Attr, who: &impl Subject) -> u32 {
    if attr.mode & S_IFMT != S_IFREG || attr.mode & SET_ID == 0 || who.has(FSETID) {
        return 0;
    }
    let group = if set_gid_goes(attr, who) { S_ISGID } else { 0 };
    attr.mode & S_ISUID | group
}

/// The bits that chown removes, also one that changes nothing, and one by root.
#[must_use]
pub fn gone_with_owner(attr: &Attr, who: &impl Subject) -> u32 {
    if is_dir(attr) {
        return 0;
    }
    let group = if set_gid_goes(attr, who) { S_ISGID } else { 0 };
    attr.mode & S_ISUID | group
}

/// Returns the bits that chmod sets of those asked for: only a member of the file's group can set
/// set-gid.
#[must_use]
pub fn bits_by_chmod(bits: u32, group: u32, who: &impl Subject) -> u32 {
    let gone = if keeps_group(group, who) { 0 } else { S_ISGID };
    bits & 0o7777 & !gone
}

/// Returns the bits of a new file in a directory, before the umask: in a set-gid directory, only a
/// member of the group can make a file set-gid that the group may execute. Directories are exempt,
/// as they inherit the bit.
#[must_use]
pub fn bits_of_new(bits: u32, dir: &Attr, who: &impl Subject) -> u32 {
    let both = S_ISGID | GROUP_EXECUTES;
    if bits & both != both || dir.mode & S_ISGID == 0 || keeps_group(dir.gid, who) {
        return bits;
    }
    bits & !S_ISGID
}

/// Returns whether setting an access ACL clears the file's set-gid bit.
#[must_use]
pub fn acl_takes_set_gid(attr: &Attr, who: &impl Subject) -> bool {
    !keeps_group(attr.gid, who)
}

/// A change that takes bits away of the mode as it is.
#[must_use]
pub fn without(attr: &Attr, gone: u32) -> SetAttr {
    let kept = attr.mode & !gone;
    SetAttr {
        mode: (kept != attr.mode).then_some(kept),
        ..SetAttr::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Somebody {
        groups: &'static [u32],
        capabilities: &'static [u32],
    }

    impl Subject for Somebody {
        fn user(&self) -> u32 {
            7
        }

        fn is_in(&self, group: u32) -> bool {
            self.groups.contains(&group)
        }

        fn has(&self, capability: u32) -> bool {
            self.capabilities.contains(&capability)
        }
    }

    const INSIDE: Somebody = Somebody {
        groups: &[5],
        capabilities: &[],
    };
    const OUTSIDE: Somebody = Somebody {
        groups: &[6],
        capabilities: &[],
    };
    const ABLE: Somebody = Somebody {
        groups: &[],
        capabilities: &[FSETID],
    };

    fn file(bits: u32) -> Attr {
        Attr {
            mode: S_IFREG | bits,
            gid: 5,
            ..Attr::default()
        }
    }

    #[test]
    fn bits_that_go_with_the_content() {
        for (bits, inside, outside) in [
            (0o6775, SET_ID, SET_ID),
            (0o6765, S_ISUID, SET_ID),
            (0o2765, 0, S_ISGID),
            (0o0777, 0, 0),
        ] {
            assert_eq!(gone_with_content(&file(bits), &INSIDE), inside);
            assert_eq!(gone_with_content(&file(bits), &OUTSIDE), outside);
            assert_eq!(gone_with_content(&file(bits), &ABLE), 0);
        }
    }

    #[test]
    fn bits_that_go_with_the_owner() {
        assert_eq!(gone_with_owner(&file(0o6775), &ABLE), SET_ID);
        assert_eq!(gone_with_owner(&file(0o6765), &ABLE), S_ISUID);
        assert_eq!(gone_with_owner(&file(0o6765), &OUTSIDE), SET_ID);
    }
}
