//! The kernel's side of a mount: the FUSE protocol as `linux/fuse.h` defines it (7.31 and
//! later; kernels 6.1 to 6.18), and the device that carries it. Nothing here knows about files.
//!
//! - [`opcode`]: what the kernel may ask for.
//! - [`request`]: the fixed parts of what it sends; [`reply`]: of what it gets.
//! - [`message`]: one message, read piece by piece; every length is checked.
//! - [`device`]: `/dev/fuse`, read and answered.
//!
//! A message comes whole or not at all, by one read; an answer goes by one write, over
//! the same descriptor: each clone of the device keeps its own list of what it has
//! handed out and not got back.

pub(crate) mod device;
pub(crate) mod message;
pub(crate) mod opcode;
pub(crate) mod reply;
pub(crate) mod request;
