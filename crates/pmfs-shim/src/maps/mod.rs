//! Mappings of the pool's own blocks (docs/adr/0010-pins.md): the addresses, and the bytes of files
//! that they show.
//!
//! A mapping is one of the pool's file, piece by piece as the file's blocks lie. Their file is
//! pinned in the pool as long as any address shows it. Pages past its end, or not there yet, show
//! an empty file, so that a touch is SIGBUS, as it has to be; before a program sees that signal,
//! the library checks whether the file has become longer since.
//!
//! Other mappings go through the mount: a file of which a mount's kernel has pages, one whose
//! blocks lie too scattered, and on a medium with large pages (hugetlbfs, most DAX devices) all but
//! shared memory of whole ones.

mod apart;
mod calls;
mod holes;
mod lazy;
mod locked;
pub(crate) mod mapped_size;
mod place;
mod rarer;
mod shown;
mod stretch;
mod table;

pub(crate) use apart::may_wait;
pub(crate) use calls::{
    advise, change_protection, copied, load, may_be_loading, mmap, mmap_of_others, move_mapping,
    sync, unmap,
};
pub(crate) use holes::LAZY;
pub(crate) use lazy::before;
pub(crate) use locked::lock_all;
pub(crate) use rarer::{advise_by_vectors, attach_segment, give_to_pipe, remap, seal};
pub(crate) use shown::{
    FAULT, any, fault, follow_all, for_children, forget, leave, refuse_write, serve_fault,
};
