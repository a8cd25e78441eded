//! A user's rights to a file: `generic_permission()`, `check_sticky()`, `setattr_prepare()` and
//! xattr(7).

use libc::{EACCES, ENODATA, EOPNOTSUPP, EPERM, EROFS};
use pmfs::Attr;
use pmfs::types::mode;

use crate::names::is_dir;
use crate::subject::{Subject, capability};

/// Access to a file for reading. The three are bits of a mode's last digit.
pub const READ: u32 = 4;
/// Access to a file for writing.
pub const WRITE: u32 = 2;
/// Access to a file for executing, and to a directory for looking names up in it.
pub const EXECUTE: u32 = 1;

/// The attribute that holds an inode's access ACL.
pub const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// Refuses to write to content and names of a snapshot, whoever asks. A device, a FIFO or a socket
/// there is written to as ever.
///
/// # Errors
/// EROFS.
pub fn allow_kind(
    attr: &Attr,
    want: u32,
    is_of_snapshot: impl FnOnce() -> bool,
) -> Result<(), i32> {
    let kind = attr.mode & mode::S_IFMT;
    let has_content = matches!(kind, mode::S_IFREG | mode::S_IFDIR | mode::S_IFLNK);
    match want & WRITE != 0 && has_content && is_of_snapshot() {
        true => Err(EROFS),
        false => Ok(()),
    }
}

/// Returns whether `want` is allowed; with an access ACL, which is asked for if it matters, by
/// that.
pub fn may(
    attr: &Attr,
    want: u32,
    who: &impl Subject,
    acl: impl FnOnce() -> Option<Vec<u8>>,
) -> bool {
    let is_dir = is_dir(attr);
    let executable = is_dir || attr.mode & 0o111 != 0;
    if who.has(capability::DAC_OVERRIDE) && (want & EXECUTE == 0 || executable) {
        return true;
    }
    let searches = want == READ || is_dir && want & WRITE == 0;
    if who.has(capability::DAC_READ_SEARCH) && searches {
        return true;
    }
    let bits = attr.mode;
    if who.user() == attr.uid {
        return bits >> 6 & want == want;
    }
    // The group's bits are an ACL's mask: without them a named user or group has no access.
    if bits & 0o070 != 0
        && let Some(acl) = acl()
    {
        return acl_allows(&acl, attr, want, who);
    }
    if who.is_in(attr.gid) {
        bits >> 3 & want == want
    } else {
        bits & want == want
    }
}

/// The order of acl(5): named users, groups of which one is enough, others.
fn acl_allows(acl: &[u8], attr: &Attr, want: u32, who: &impl Subject) -> bool {
    const USER: u16 = 0x02;
    const GROUP_OBJ: u16 = 0x04;
    const GROUP: u16 = 0x08;
    const MASK: u16 = 0x10;
    const OTHER: u16 = 0x20;
    let entries = acl
        .get(4..)
        .unwrap_or_default()
        .chunks_exact(8)
        .map(|entry| {
            let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            let id = u32::from(half(4)) | u32::from(half(6)) << 16;
            (half(0), u32::from(half(2)), id)
        });
    let entries: Vec<(u16, u32, u32)> = entries.collect();
    let of = |tag| {
        entries
            .iter()
            .find(|entry| entry.0 == tag)
            .map(|entry| entry.1)
    };
    let mask = of(MASK).unwrap_or(7);
    let user = entries
        .iter()
        .find(|entry| entry.0 == USER && entry.2 == who.user());
    if let Some(user) = user {
        return user.1 & mask & want == want;
    }
    let mut in_one = false;
    for (tag, allowed, id) in &entries {
        let mine = *tag == GROUP_OBJ && who.is_in(attr.gid) || *tag == GROUP && who.is_in(*id);
        if mine && allowed & mask & want == want {
            return true;
        }
        in_one |= mine;
    }
    !in_one && of(OTHER).unwrap_or(0) & want == want
}

/// Returns whether `who` owns a file, or has an owner's rights by a capability.
pub fn owns(attr: &Attr, who: &impl Subject) -> bool {
    who.user() == attr.uid || who.has(capability::FOWNER)
}

/// Checks that `who` owns a file ([`owns`]).
///
/// # Errors
/// EPERM.
pub fn allow_owner(attr: &Attr, who: &impl Subject) -> Result<(), i32> {
    if owns(attr, who) { Ok(()) } else { Err(EPERM) }
}

/// Checks that `who` may take a name out of a directory: its sticky bit protects other users'
/// files.
///
/// # Errors
/// EPERM.
pub fn allow_removal(dir: &Attr, victim: &Attr, who: &impl Subject) -> Result<(), i32> {
    if dir.mode & mode::S_ISVTX == 0 || who.user() == dir.uid {
        return Ok(());
    }
    allow_owner(victim, who)
}

/// Checks that `who` may give another user's file one more name, where the kernel protects hard
/// links (`fs.protected_hardlinks`): the file is not special or set-id, and `who` may read and
/// write it.
///
/// # Errors
/// EPERM.
pub fn allow_link(
    attr: &Attr,
    who: &impl Subject,
    reads_and_writes: impl FnOnce() -> bool,
) -> Result<(), i32> {
    let group_runs = mode::S_ISGID | 0o010;
    let safe = attr.mode & mode::S_IFMT == mode::S_IFREG
        && attr.mode & mode::S_ISUID == 0
        && attr.mode & group_runs != group_runs
        && reads_and_writes();
    if safe { Ok(()) } else { allow_owner(attr, who) }
}

/// Checks that `who` may follow a link at the end of a path, where the kernel protects them
/// (`fs.protected_symlinks`): in a sticky directory that all may write, only one's own and those of
/// the directory's owner.
///
/// # Errors
/// EACCES.
pub fn allow_following(dir: &Attr, link: &Attr, who: &impl Subject) -> Result<(), i32> {
    const SHARED: u32 = mode::S_ISVTX | 0o002;
    let safe = dir.mode & SHARED != SHARED || link.uid == who.user() || link.uid == dir.uid;
    if safe { Ok(()) } else { Err(EACCES) }
}

/// Checks that `who` may open (O_CREAT) a file of others in a sticky directory that many may write:
/// `may_create_in_sticky()`. `level`: the value of the type's setting, `fs.protected_regular` or
/// `_fifos`.
///
/// # Errors
/// EACCES, also for root.
pub fn allow_opening_to_make(
    dir: &Attr,
    file: &Attr,
    who: &impl Subject,
    level: impl FnOnce(u32) -> u8,
) -> Result<(), i32> {
    if dir.mode & mode::S_ISVTX == 0 || file.uid == dir.uid || file.uid == who.user() {
        return Ok(());
    }
    let kind = file.mode & mode::S_IFMT;
    let (first, second) = match kind {
        mode::S_IFREG | mode::S_IFIFO => {
            let level = level(kind);
            (level >= 1, level >= 2)
        }
        _ => (true, false),
    };
    let refused = first && dir.mode & 0o002 != 0 || second && dir.mode & 0o020 != 0;
    if refused { Err(EACCES) } else { Ok(()) }
}

/// Checks that `who` may give a file another owner or group. A call that changes neither is allowed
/// to all, where it removes no set-user-ID bit.
///
/// # Errors
/// EPERM.
pub fn allow_chown(
    attr: &Attr,
    uid: Option<u32>,
    gid: Option<u32>,
    who: &impl Subject,
) -> Result<(), i32> {
    if who.has(capability::CHOWN) {
        return Ok(());
    }
    let mine = who.user() == attr.uid;
    let user = uid.is_none_or(|uid| mine && uid == attr.uid);
    let group = gid.is_none_or(|gid| mine && (gid == attr.gid || who.is_in(gid)));
    // The bits that go with it are a change of the mode.
    let changes_mode = crate::privileges::gone_with_owner(attr, who) != 0;
    if !user || !group || changes_mode && !owns(attr, who) {
        return Err(EPERM);
    }
    Ok(())
}

/// Checks that `who` may read or write an extended attribute, by its namespace's rules. Returns the
/// access that the file's own bits still have to allow, if any.
///
/// # Errors
/// ENODATA or EPERM, EOPNOTSUPP.
pub fn allow_attribute(
    attr: &Attr,
    name: &[u8],
    want: u32,
    who: &impl Subject,
) -> Result<Option<u32>, i32> {
    let kind = attr.mode & mode::S_IFMT;
    let refused = if want == READ { ENODATA } else { EPERM };
    let admin = who.has(capability::SYS_ADMIN);
    if name.starts_with(b"user.") {
        if kind != mode::S_IFREG && kind != mode::S_IFDIR {
            return Err(refused);
        }
        if kind == mode::S_IFDIR && attr.mode & mode::S_ISVTX != 0 && want == WRITE {
            allow_owner(attr, who)?;
        }
        return Ok(Some(want));
    }
    let allowed = if name.starts_with(b"trusted.") {
        admin
    } else if name.starts_with(b"system.posix_acl_") {
        want == READ || owns(attr, who)
    } else if name.starts_with(b"security.") {
        want == READ || admin
    } else {
        return Err(EOPNOTSUPP);
    };
    match allowed {
        true => Ok(None),
        false if name.starts_with(b"trusted.") => Err(refused),
        false => Err(EPERM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct User(u32);

    impl Subject for User {
        fn user(&self) -> u32 {
            self.0
        }

        fn is_in(&self, _group: u32) -> bool {
            false
        }

        fn has(&self, _capability: u32) -> bool {
            true
        }
    }

    fn attr(mode: u32, uid: u32) -> Attr {
        Attr {
            mode,
            uid,
            ..Attr::default()
        }
    }

    /// Goal: the levels of fs.protected_regular and its kin do what the kernel's do. Method: the
    /// users that are refused another's file, by the directory's mode, the file's type and the
    /// level.
    #[test]
    fn levels_of_what_a_machine_protects() {
        let refused = |dir: u32, kind: u32, level: u8| {
            let (dir, file) = (attr(mode::S_IFDIR | dir, 0), attr(kind | 0o666, 7));
            allow_opening_to_make(&dir, &file, &User(8), |_| level) == Err(EACCES)
        };
        for kind in [mode::S_IFREG, mode::S_IFIFO] {
            for level in 0..3 {
                assert!(!refused(0o777, kind, level), "not sticky");
                assert!(!refused(0o1755, kind, level), "the owner's alone");
                assert_eq!(refused(0o1777, kind, level), level >= 1);
                assert_eq!(refused(0o1775, kind, level), level >= 2);
            }
        }
        assert!(refused(0o1777, mode::S_IFSOCK, 0) && !refused(0o1775, mode::S_IFSOCK, 2));
        let (dir, own) = (attr(mode::S_IFDIR | 0o1777, 0), attr(mode::S_IFREG, 8));
        assert_eq!(allow_opening_to_make(&dir, &own, &User(8), |_| 2), Ok(()));
        let dirs_owner = attr(mode::S_IFREG, 0);
        assert_eq!(
            allow_opening_to_make(&dir, &dirs_owner, &User(8), |_| 2),
            Ok(())
        );
    }
}
