//! POSIX ACLs: their form on the medium, their validity, and their relation to the mode. All are
//! plain functions; the transaction is the caller's.
//!
//! An ACL stands among an inode's extended attributes in the form that `setxattr(2)` takes (version
//! 2): u32 version, then for each entry u16 tag, u16 permissions, u32 id; little-endian. An access
//! ACL that says no more than the mode is never stored, so the mode's group bits and the ACL's mask
//! are the same thing twice: a call that changes one changes the other in the same transaction.

use crate::types::mode;
use pm_journal::error::{Error, Result};

/// The attribute that holds the ACL of the inode itself.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory that holds what is made in it starts with.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// Id of the entries that name no user or group.
const NOBODY: u32 = u32::MAX;
const PERMISSIONS: u16 = 0o7;

/// Tags, as Linux numbers them.
mod tag {
    pub const USER_OBJ: u16 = 0x01;
    pub const USER: u16 = 0x02;
    pub const GROUP_OBJ: u16 = 0x04;
    pub const GROUP: u16 = 0x08;
    pub const MASK: u16 = 0x10;
    pub const OTHER: u16 = 0x20;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A valid ACL: owner, named users, group, named groups, a mask if a user or group is named,
/// others; in that order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

/// Reads an ACL as `setxattr(2)` hands it over; `None` if it has no entries, which stands for no
/// ACL.
///
/// # Errors
/// Those of Linux: `Invalid` for what is malformed or not a valid ACL, `NotSupported` for another
/// version.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Acl>> {
    let bad = Error::Invalid(&"not a valid ACL");
    if bytes.is_empty() {
        return Ok(None);
    }
    let Some((head, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(bad);
    };
    if head != VERSION.to_le_bytes() {
        return Err(Error::NotSupported(&"this version of ACLs"));
    }
    if !rest.len().is_multiple_of(ENTRY_BYTES) {
        return Err(bad);
    }
    let entry = |bytes: &[u8]| Entry {
        tag: u16::from_le_bytes([bytes[0], bytes[1]]),
        permissions: u16::from_le_bytes([bytes[2], bytes[3]]),
        id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    };
    let mut entries: Vec<Entry> = rest.chunks_exact(ENTRY_BYTES).map(entry).collect();
    if entries.is_empty() {
        return Ok(None);
    }
    if !is_valid(&entries) {
        return Err(bad);
    }
    for entry in &mut entries {
        if !matches!(entry.tag, tag::USER | tag::GROUP) {
            entry.id = NOBODY;
        }
    }
    Ok(Some(Acl(entries)))
}

/// Returns whether the entries are complete, in order, and have a mask if they need one.
fn is_valid(entries: &[Entry]) -> bool {
    let mut expected = tag::USER_OBJ;
    let mut names = false;
    for entry in entries {
        if entry.permissions & !PERMISSIONS != 0 {
            return false;
        }
        let named = matches!(entry.tag, tag::USER | tag::GROUP);
        if named && entry.id == NOBODY {
            return false;
        }
        names |= named;
        expected = match (expected, entry.tag) {
            (tag::USER_OBJ, tag::USER_OBJ) | (tag::USER, tag::USER) => tag::USER,
            (tag::USER, tag::GROUP_OBJ) | (tag::GROUP, tag::GROUP) => tag::GROUP,
            (tag::GROUP, tag::MASK) => tag::OTHER,
            (tag::OTHER, tag::OTHER) => 0,
            (tag::GROUP, tag::OTHER) if !names => 0,
            _ => return false,
        };
    }
    expected == 0
}

impl Acl {
    /// The form that is stored, and handed out.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend_from_slice(&entry.tag.to_le_bytes());
            bytes.extend_from_slice(&entry.permissions.to_le_bytes());
            bytes.extend_from_slice(&entry.id.to_le_bytes());
        }
        bytes
    }

    /// Returns whether the mode alone says the same.
    pub fn is_mode(&self) -> bool {
        self.0
            .iter()
            .all(|entry| matches!(entry.tag, tag::USER_OBJ | tag::GROUP_OBJ | tag::OTHER))
    }

    /// A mode with this access ACL's permissions: its group bits are the mask, if there is one.
    pub fn to_mode(&self, old: u32) -> u32 {
        let mut bits = 0;
        for entry in &self.0 {
            let permissions = u32::from(entry.permissions);
            match entry.tag {
                tag::USER_OBJ => bits |= permissions << 6,
                tag::GROUP_OBJ => bits |= permissions << 3,
                tag::MASK => bits = bits & !0o070 | permissions << 3,
                tag::OTHER => bits |= permissions,
                _ => {}
            }
        }
        old & !0o777 | bits
    }

    /// chmod of an inode with this access ACL.
    pub fn set_mode(&mut self, mode: u32) {
        self.each_class(|class, permissions| {
            *permissions = (mode >> class.shift()) as u16 & PERMISSIONS
        });
    }

    /// Makes the access ACL of a new inode out of this default ACL: each class gets no more than
    /// the mode that was asked for has. Answers the mode that is left.
    pub fn limit(&mut self, mode: u32) -> u32 {
        let mut left = mode;
        self.each_class(|class, permissions| {
            *permissions &= (mode >> class.shift()) as u16;
            left &= !(0o7 << class.shift()) | u32::from(*permissions) << class.shift();
        });
        left
    }

    /// Shows the three entries that the mode's classes stand for: the mask in place of the group if
    /// there is one.
    fn each_class(&mut self, mut change: impl FnMut(Class, &mut u16)) {
        let masked = self.0.iter().any(|entry| entry.tag == tag::MASK);
        for entry in &mut self.0 {
            let class = match entry.tag {
                tag::USER_OBJ => Class::Owner,
                tag::MASK => Class::Group,
                tag::GROUP_OBJ if !masked => Class::Group,
                tag::OTHER => Class::Others,
                _ => continue,
            };
            change(class, &mut entry.permissions);
        }
    }
}

#[derive(Clone, Copy)]
enum Class {
    Owner,
    Group,
    Others,
}

impl Class {
    fn shift(self) -> u32 {
        match self {
            Class::Owner => 6,
            Class::Group => 3,
            Class::Others => 0,
        }
    }
}

/// Returns whether an attribute's name means an ACL.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// Refuses the ACLs that an inode of these type bits can't have.
///
/// # Errors
/// Those of Linux: `NotSupported` for a symlink, `Denied` for a default ACL of anything but a
/// directory.
pub(crate) fn check_kind(name: &[u8], kind: u32) -> Result<()> {
    if kind == mode::S_IFLNK {
        return Err(Error::NotSupported(&"symbolic links have no ACL"));
    }
    if name == DEFAULT && kind != mode::S_IFDIR {
        return Err(Error::Denied(&"only directories have a default ACL"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let entry = |&(tag, permissions, id)| Entry {
            tag,
            permissions,
            id,
        };
        Acl(entries.iter().map(entry).collect()).encode()
    }

    const OWNER: (u16, u16, u32) = (tag::USER_OBJ, 6, NOBODY);
    const GROUP: (u16, u16, u32) = (tag::GROUP_OBJ, 4, NOBODY);
    const OTHER: (u16, u16, u32) = (tag::OTHER, 1, NOBODY);
    const MASK: (u16, u16, u32) = (tag::MASK, 5, NOBODY);
    const NAMED: (u16, u16, u32) = (tag::USER, 7, 1000);
    const NAMED_GROUP: (u16, u16, u32) = (tag::GROUP, 2, 50);

    #[test]
    fn the_bytes_are_those_of_linux() {
        // The bytes are those that `setfacl -m u:1000:rwx` hands to the kernel for a file of mode
        // 0640.
        let bytes = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x07\0\xe8\x03\0\0\
            \x04\0\x04\0\xff\xff\xff\xff\x10\0\x07\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
        let read = decode(bytes).unwrap().unwrap();
        assert_eq!(read.encode(), bytes);
        assert!(!read.is_mode());
        assert_eq!(read.to_mode(0o102_640), 0o102_670);
    }

    #[test]
    fn ids_that_mean_nothing_are_not_kept() {
        let sent = acl(&[(tag::USER_OBJ, 6, 7), (tag::GROUP_OBJ, 4, 8), OTHER]);
        let read = decode(&sent).unwrap().unwrap();
        assert_eq!(read.encode(), acl(&[OWNER, GROUP, OTHER]));
        assert!(read.is_mode());
        assert_eq!(read.to_mode(0), 0o641);
    }

    #[test]
    fn malformed_ones_are_refused() {
        let valid = acl(&[OWNER, NAMED, GROUP, NAMED_GROUP, MASK, OTHER]);
        assert!(decode(&valid).unwrap().is_some());
        assert!(decode(b"").unwrap().is_none());
        assert!(decode(b"\x02\0\0\0").unwrap().is_none());
        let refused = |bytes: &[u8]| matches!(decode(bytes), Err(Error::Invalid(_)));
        assert!(refused(b"\x02\0\0"));
        assert!(refused(&valid[..valid.len() - 1]));
        assert!(matches!(decode(b"\x01\0\0\0"), Err(Error::NotSupported(_))));
        let bad: &[&[(u16, u16, u32)]] = &[
            &[OWNER, GROUP],
            &[GROUP, OTHER],
            &[OWNER, OTHER],
            &[OWNER, NAMED, GROUP, OTHER],
            &[OWNER, GROUP, NAMED_GROUP, OTHER],
            &[OWNER, GROUP, NAMED, MASK, OTHER],
            &[OWNER, OWNER, GROUP, OTHER],
            &[OWNER, GROUP, MASK, MASK, OTHER],
            &[OWNER, GROUP, OTHER, OTHER],
            &[OWNER, GROUP, MASK],
            &[(tag::USER_OBJ, 8, NOBODY), GROUP, OTHER],
            &[OWNER, (tag::USER, 7, NOBODY), GROUP, MASK, OTHER],
            &[OWNER, GROUP, OTHER, (0x40, 0, NOBODY)],
        ];
        for entries in bad {
            assert!(refused(&acl(entries)), "{entries:?}");
        }
    }

    #[test]
    fn chmod_rewrites_mask_or_group() {
        let mut masked = decode(&acl(&[OWNER, NAMED, GROUP, MASK, OTHER]))
            .unwrap()
            .unwrap();
        masked.set_mode(0o104_532);
        assert_eq!(
            masked.encode(),
            acl(&[
                (tag::USER_OBJ, 5, NOBODY),
                NAMED,
                GROUP,
                (tag::MASK, 3, NOBODY),
                (tag::OTHER, 2, NOBODY)
            ])
        );
        let mut plain = decode(&acl(&[OWNER, GROUP, OTHER])).unwrap().unwrap();
        plain.set_mode(0o532);
        assert_eq!(plain.to_mode(0o1000), 0o1532);
    }

    #[test]
    fn a_new_inode_gets_no_more_than_asked_for() {
        let mut given = decode(&acl(&[
            (tag::USER_OBJ, 7, NOBODY),
            NAMED,
            (tag::GROUP_OBJ, 7, NOBODY),
            (tag::MASK, 7, NOBODY),
            (tag::OTHER, 5, NOBODY),
        ]))
        .unwrap()
        .unwrap();
        assert_eq!(given.limit(0o102_666), 0o102_664);
        assert_eq!(
            given.encode(),
            acl(&[
                (tag::USER_OBJ, 6, NOBODY),
                NAMED,
                (tag::GROUP_OBJ, 7, NOBODY),
                (tag::MASK, 6, NOBODY),
                (tag::OTHER, 4, NOBODY),
            ])
        );
        let mut plain = decode(&acl(&[OWNER, (tag::GROUP_OBJ, 7, NOBODY), OTHER]))
            .unwrap()
            .unwrap();
        assert_eq!(plain.limit(0o752), 0o650);
        assert!(plain.is_mode());
    }
}
