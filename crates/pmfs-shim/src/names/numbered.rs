//! The kernel's names for descriptors: below `/proc/self/fd` and `/dev/fd`, and `/dev/stdin` and
//! the like. For the kernel a descriptor of the pool is an empty placeholder, so such names are
//! resolved here (docs/adr/0052-other-names.md).

use crate::names::place::AtEnd;
use crate::own::kernel::{self, PATH};

/// The parts of such a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbered {
    pub number: u64,
    /// The position in the path where the rest begins.
    pub rest: usize,
    /// The name is the list's own entry, and no link to it.
    pub is_entry: bool,
}

/// The names of a path, each with the position behind it.
struct Parts<'a> {
    path: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = (&'a [u8], usize);

    fn next(&mut self) -> Option<Self::Item> {
        let slashes = |byte: &&u8| **byte == b'/';
        let start = self.at + self.path[self.at..].iter().take_while(slashes).count();
        let len = self.path[start..]
            .iter()
            .take_while(|byte| **byte != b'/')
            .count();
        self.at = start + len;
        (len > 0).then(|| (&self.path[start..self.at], self.at))
    }
}

/// The first bytes that the first name of such a path can have; a slash, because there may be
/// several.
pub(crate) const BEGINS: &[u8] = b"pd./";

/// The descriptor of this process that an absolute path names first.
pub(crate) fn descriptor(path: &[u8]) -> Option<Numbered> {
    // Most paths end the search here.
    let begins = path
        .strip_prefix(b"/")?
        .iter()
        .find(|byte| **byte != b'/')?;
    if !BEGINS.contains(begins) {
        return None;
    }
    // Five names are enough for /proc/self/task/NUMBER/fd.
    let mut stack: [&[u8]; 5] = [b""; 5];
    let mut depth = 0usize;
    for (part, rest) in (Parts { path, at: 0 }) {
        match part {
            b"." => continue,
            b".." => {
                depth = depth.saturating_sub(1);
                continue;
            }
            _ => {}
        }
        if let (1, b"dev") = (depth, stack[0]) {
            let standard = [&b"stdin"[..], b"stdout", b"stderr"];
            if let Some(number) = standard.iter().position(|name| *name == part) {
                return Some(Numbered {
                    number: number as u64,
                    rest,
                    is_entry: false,
                });
            }
        }
        if is_list(&stack[..depth]) {
            return Some(Numbered {
                number: decimal(part)?,
                rest,
                is_entry: true,
            });
        }
        *stack.get_mut(depth)? = part;
        depth += 1;
    }
    None
}

/// Returns whether [`descriptor`] or [`is_placeholder_of_another`] may recognize a path.
pub(crate) fn may_be(path: &[u8]) -> bool {
    descriptor(path).is_some() || path.starts_with(b"/proc/")
}

/// The name NAME in `/proc/self/NAME`, or with this process's number, and the rest of the path.
pub(crate) fn own_link(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = Parts {
        path: path.strip_prefix(b"/proc")?,
        at: 0,
    };
    let (process, _) = parts.next()?;
    let own = process == b"self"
        || process == b"thread-self"
        || decimal(process) == Some(kernel::process().into());
    let (name, end) = parts.next().filter(|_| own)?;
    Some((name, &parts.path[end..]))
}

/// Returns whether a path names the list of this process's descriptors itself.
pub(crate) fn is_list_itself(path: &[u8]) -> bool {
    // A further name would be an entry of the list.
    path.starts_with(b"/")
        && path.ends_with(b"fd") | path.ends_with(b"fd/")
        && descriptor(&[path, b"/0"].concat())
            .is_some_and(|named| named.is_entry && named.rest == path.len() + 2)
}

/// The kernel's path of that list.
pub(crate) const LIST: &[u8] = b"/proc/self/fd/";

/// Returns whether a path leads through a descriptor of another process that is an open file of a
/// pool there, and a placeholder for the kernel.
pub(crate) fn is_placeholder_of_another(path: &[u8], at_end: AtEnd) -> bool {
    if !path.starts_with(b"/proc/") {
        return false;
    }
    let mut parts = Parts { path, at: 0 }.skip(1);
    let is_number =
        |part: Option<(&[u8], usize)>| part.is_some_and(|(part, _)| decimal(part).is_some());
    if !is_number(parts.next()) {
        return false;
    }
    let list = match parts.next() {
        Some((b"task", _)) if is_number(parts.next()) => parts.next(),
        other => other,
    };
    let (Some((b"fd", _)), Some((number, end))) = (list, parts.next()) else {
        return false;
    };
    if decimal(number).is_none() || at_end.stays_at(&path[end..]) {
        return false;
    }
    let link = [&path[..end], b"\0"].concat();
    let mut target = [0u8; PLACEHOLDER.len()];
    let to = target.as_mut_ptr().expose_provenance() as u64;
    let args = [libc::AT_FDCWD as u64, PATH, to, target.len() as u64, 0, 0];
    let len = kernel::with_path(libc::SYS_readlinkat, args, &link);
    let target = std::hint::black_box(target);
    len == PLACEHOLDER.len() as i64 && target == *PLACEHOLDER
}

/// The name that the kernel shows for placeholders.
const PLACEHOLDER: &[u8; 21] = b"/memfd:pmfs (deleted)";

/// Returns whether a directory lists this process's descriptors.
fn is_list(parts: &[&[u8]]) -> bool {
    let own = |part: &[u8]| {
        part == b"self" || part == b"thread-self" || decimal(part) == Some(kernel::process().into())
    };
    match parts {
        [b"dev", b"fd"] => true,
        [b"proc", process, b"fd"] => own(process),
        // Threads share the table.
        [b"proc", process, b"task", _, b"fd"] => own(process),
        _ => false,
    }
}

pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: u32 = text.parse().ok()?;
    // The kernel writes numbers without leading zeros.
    (number.to_string() == text).then_some(number.into())
}
