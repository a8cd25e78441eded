//! ACLs as the reference keeps them, and the calls that set them, on both sides.

use crate::apply::{Need, World};
use crate::content::BLOCK;
use crate::random::Random;
use crate::reference::Node;
use pmfs::types::mode::{S_IFDIR, S_IFLNK, S_ISGID};
use pmfs::{Fs, Ino, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;

pub const ACCESS: &[u8] = b"system.posix_acl_access";
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Permissions of each class, of named users and groups, and what bounds those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    owner: u16,
    users: BTreeMap<u32, u16>,
    group: u16,
    groups: BTreeMap<u32, u16>,
    mask: Option<u16>,
    others: u16,
}

/// The value that is handed to `setxattr`.
#[derive(Clone, Debug)]
pub enum Given {
    Acl(Acl),
    /// The attribute is removed.
    Removal,
    /// No bytes, or a header alone: no ACL.
    Nothing(usize),
    /// A valid one, cut to so many bytes.
    Cut(Acl, usize),
    /// Named users without a mask.
    Maskless,
}

impl Acl {
    pub fn random(random: &mut Random) -> Acl {
        let mut bits = || random.below(8) as u16;
        let (owner, group, others) = (bits(), bits(), bits());
        let named = |random: &mut Random| {
            let count = random.below(4);
            (0..count)
                .map(|_| (random.below(2000) as u32, random.below(8) as u16))
                .collect()
        };
        let (mut users, mut groups) = (BTreeMap::new(), BTreeMap::new());
        if !random.one_in(3) {
            (users, groups) = (named(random), named(random));
        }
        let masked = !users.is_empty() || !groups.is_empty() || random.one_in(4);
        Acl {
            owner,
            users,
            group,
            groups,
            mask: masked.then(|| random.below(8) as u16),
            others,
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0];
        let mut entry = |tag: u16, permissions: u16, id: u32| {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        };
        entry(1, self.owner, u32::MAX);
        self.users
            .iter()
            .for_each(|(&id, &bits)| entry(2, bits, id));
        entry(4, self.group, u32::MAX);
        self.groups
            .iter()
            .for_each(|(&id, &bits)| entry(8, bits, id));
        if let Some(mask) = self.mask {
            entry(16, mask, u32::MAX);
        }
        entry(32, self.others, u32::MAX);
        bytes
    }

    fn is_minimal(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.mask.is_none()
    }

    fn mode(&self) -> u32 {
        let group = self.mask.unwrap_or(self.group);
        u32::from(self.owner) << 6 | u32::from(group) << 3 | u32::from(self.others)
    }

    /// chmod.
    pub fn set_mode(&mut self, mode: u32) {
        let bits = |shift: u32| (mode >> shift) as u16 & 7;
        self.owner = bits(6);
        *self.mask.as_mut().unwrap_or(&mut self.group) = bits(3);
        self.others = bits(0);
    }
}

impl Node {
    /// A new node in a directory: its mode and ACLs, by the directory's default ACL or the umask.
    pub fn inherit(&mut self, parent: &Node, umask: u32) {
        if self.kind() == S_IFLNK {
            return;
        }
        let Some(default) = &parent.default_acl else {
            self.mode &= !umask;
            return;
        };
        let mut access = default.clone();
        access.set_mode(self.mode & default.mode());
        self.mode = self.mode & !0o777 | access.mode();
        self.access_acl = Some(access).filter(|access| !access.is_minimal());
        if self.kind() == S_IFDIR {
            self.default_acl = Some(default.clone());
        }
        self.store_acls();
    }

    pub fn chmod(&mut self, mode: u32) {
        self.mode = self.kind() | mode & 0o7777;
        if let Some(acl) = &mut self.access_acl {
            acl.set_mode(mode);
        }
        self.store_acls();
    }

    /// The ACLs stand among the attributes.
    fn store_acls(&mut self) {
        for (name, acl) in [(ACCESS, &self.access_acl), (DEFAULT, &self.default_acl)] {
            match acl {
                Some(acl) => drop(self.xattrs.insert(name.to_vec(), acl.bytes())),
                None => drop(self.xattrs.remove(name)),
            }
        }
    }
}

impl World<'_> {
    /// Sets an ACL, or removes it; `kill` takes set-gid away.
    pub fn set_acl(
        &mut self,
        fs: &Fs,
        ino: Ino,
        name: &[u8],
        given: &Given,
        kill: bool,
    ) -> Result<(), String> {
        let maskless = |entries: &[u8]| [&[2, 0, 0, 0], entries].concat();
        let (bytes, acl, wrong) = match given {
            Given::Acl(acl) => (acl.bytes(), Some(acl), None),
            Given::Removal => (Vec::new(), None, None),
            Given::Nothing(len) => (vec![2, 0, 0, 0][..*len].to_vec(), None, None),
            Given::Cut(acl, len) => (acl.bytes()[..*len].to_vec(), None, Some(Errno::INVAL)),
            Given::Maskless => {
                let entries = b"\x01\0\x06\0\0\0\0\0\x02\0\x06\0\x09\0\0\0\x04\0\x06\0\0\0\0\0\x20\0\0\0\0\0\0\0";
                (maskless(entries), None, Some(Errno::INVAL))
            }
        };
        let answer = if matches!(given, Given::Removal) {
            fs.removexattr(ino, name)
        } else {
            let kill = if kill {
                XattrFlags::KILL_SGID
            } else {
                XattrFlags::empty()
            };
            fs.setxattr(ino, name, &bytes, kill)
        };
        let verdict = match (wrong, self.model.live(ino)) {
            (Some(wrong), _) => Err(wrong),
            (None, Err(errno)) => Err(errno),
            (None, Ok(node)) if node.kind() == S_IFLNK => Err(Errno::OPNOTSUPP),
            (None, Ok(node)) if name == DEFAULT && acl.is_some() && !node.is_dir() => {
                Err(Errno::ACCESS)
            }
            _ => Ok(()),
        };
        let need = Need::Run(2 + bytes.len() as u64 / BLOCK + self.attribute_blocks(ino));
        if self.judge(fs, "setacl", verdict, answer, need)?.is_none() {
            return Ok(());
        }
        let now = self.span();
        let node = self.model.node(ino);
        let there = node.xattrs.contains_key(name);
        if let Some(acl) = acl.filter(|_| name == ACCESS) {
            node.mode = node.mode & !0o777 | acl.mode();
            if kill {
                node.mode &= !S_ISGID;
            }
        }
        if there || acl.is_some() {
            node.ctime = now;
        }
        if name == ACCESS {
            node.access_acl = acl.filter(|acl| !acl.is_minimal()).cloned();
        } else {
            node.default_acl = acl.cloned();
        }
        node.store_acls();
        Ok(())
    }

    /// Blocks that an inode's attributes take.
    pub fn attribute_blocks(&self, ino: Ino) -> u64 {
        let Ok(node) = self.model.live(ino) else {
            return 0;
        };
        let each = |(name, value): (&Vec<u8>, &Vec<u8>)| 8 + name.len() + value.len();
        match node.xattrs.iter().map(each).sum::<usize>() as u64 {
            0 => 0,
            bytes => (8 + bytes).div_ceil(BLOCK),
        }
    }
}
