//! The last names of open files without a name: a descriptor's link below /proc says `NAME
//! (deleted)` of them, as the kernel does.
//!
//! A call of this process that removes a name notes it, if the file is open here. Names removed by
//! other processes, or before exec, are unknown: such a file is shown by its number.

use std::sync::{Mutex, PoisonError};

use pmfs::{Attr, Fs, Ino};

use crate::descriptors;
use crate::descriptors::promote;
use crate::names::is_dir;

/// The most names that are kept. Those of closed files are dropped first, then the oldest.
const COUNT: usize = 64;

/// The number of an inode, and the generation that distinguishes it from later inodes of the same
/// number.
type Who = (Ino, u32);

fn who(attr: &Attr) -> Who {
    (attr.ino, attr.generation)
}

struct Gone {
    who: Who,
    /// The directory, whose own name may still change.
    dir: Who,
    /// The name in the directory; or a path, if directories on the way are removed too.
    name: Vec<u8>,
}

static NAMES: Mutex<Vec<Gone>> = Mutex::new(Vec::new());

/// Notes a removed name; `attr` is from before.
pub(crate) fn note(dir: &Attr, name: &[u8], attr: &Attr) {
    let was_last = is_dir(attr) || attr.links == 1;
    if !was_last {
        return;
    }
    let is_open = descriptors::has_open(attr.ino);
    if !is_open && !is_dir(attr) {
        return;
    }
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    for below in names.iter_mut().filter(|gone| gone.dir == who(attr)) {
        below.dir = who(dir);
        below.name = [name, b"/", &below.name].concat();
    }
    if is_open {
        put(&mut names, dir, name.to_vec(), attr);
    }
}

/// Notes an open file that never had a name.
pub(crate) fn note_unnamed(dir: &Attr, attr: &Attr) {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    put(&mut names, dir, format!("#{}", attr.ino).into(), attr);
}

fn put(names: &mut Vec<Gone>, dir: &Attr, name: Vec<u8>, attr: &Attr) {
    names.retain(|gone| gone.who.0 != attr.ino);
    if names.len() >= COUNT {
        names.retain(|gone| descriptors::has_open(gone.who.0));
    }
    if names.len() >= COUNT {
        names.remove(0);
    }
    names.push(Gone {
        who: who(attr),
        dir: who(dir),
        name,
    });
}

/// The last path of a file; `None` if it is unknown, or its directory was removed.
pub(crate) fn path(fs: &Fs, attr: &Attr) -> Option<Vec<u8>> {
    let (dir, name) = {
        let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = names.iter().find(|gone| gone.who == who(attr))?;
        (gone.dir, gone.name.clone())
    };
    let above = fs.getattr(dir.0).ok()?;
    if who(&above) != dir {
        return None;
    }
    let mut path = promote::directory(dir.0).ok()?;
    path.pop();
    path.push(b'/');
    path.extend_from_slice(&name);
    Some(path)
}
