//! The program's descriptors that are open files of the pool.
//!
//! Each is a descriptor of the kernel's too, so that dup, close-on-exec, poll, fork and exec keep
//! their meaning: a *placeholder*, a duplicate of one description of a sealed, empty memory file,
//! open for writing. A call that reaches it past this library gets an error: reading gives EBADF,
//! writing EPERM (docs/adr/0045-placeholders.md).

pub(crate) mod kept;
pub(crate) mod parked;
mod placeholders;
pub(crate) mod pool;
pub(crate) mod promote;
mod reserved;
pub(crate) mod spare;
mod table;

pub(crate) use placeholders::placeholder;
pub(crate) use reserved::{is_own, numbers as own_numbers};
pub(crate) use table::{
    COUNT, OURS, all, choose_floor, get, has_open, inode_at, is_placeholder, likely_inode, none,
    number, on_exec, remove, serves_place, set, set_on_exec, tables,
};
