//! Persistent memory, shared by processes: the one crate that touches a pool.
//!
//! Contract:
//! - A [`Pmem`] is one mapping of one pool. Every access names an offset, which
//!   is checked against the mapping; no reference into the mapping is ever
//!   given out, because other processes store to it at any time.
//! - A store is durable once its lines were flushed ([`Pmem::flush`]) and a
//!   [`Pmem::fence`] has returned; non-temporal stores need the fence alone.
//!   What "durable" means depends on the medium: [`Medium::durability`].
//! - A medium that fails under a copy gives a [`Fault`]; under a single load or
//!   store, the page is replaced by zeros and [`Pmem::failed`] says where. The
//!   process lives in both cases.
//! - A pool may be closed ([`Protection`]): a store then has to be made inside a write window ([`Pmem::window`]), a load by a
//!   thread that has entered ([`Pmem::enter`]); any other is the end of the process, and the pool is unharmed.
//! - An offset outside the pool is a mistake of the program and panics.
//!
//! Nothing here knows about files, inodes or the layout of a pool.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_endian = "little")))]
compile_error!("pmem: x86-64 Linux only (16-byte atomics, clwb, non-temporal stores)");

#[cfg(feature = "record")]
mod bad_buffer;
mod copy;
pub mod counters;
mod cpu;
pub mod death;
mod dirty;
mod emulate;
pub mod emulation;
mod error;
mod flush;
mod futex;
mod keys;
mod landing;
pub mod life;
mod load;
mod map;
mod medium;
mod open;
mod order;
mod pages;
#[cfg(feature = "poison")]
mod poison;
mod pool;
pub mod program;
pub mod protection;
mod raw;
#[cfg(feature = "record")]
pub mod record;
mod renew;
pub mod request;
pub mod slots;
#[cfg(feature = "started")]
pub mod started;
mod store;
mod stray;
mod stream;
pub mod thread;
mod ticks;
#[cfg(not(feature = "record"))]
mod unrecorded;
pub mod view;
pub mod watch;
mod window;

pub use emulate::Charged;
pub use emulation::{Emulation, EmulationError};
pub use error::{Error, Fault, Side};
pub use flush::{FlushInstr, FlushMode};
pub use medium::{Durability, Medium, MediumKind};
pub use open::MapOptions;
pub use pool::{Identity, Pmem};
pub use protection::{ProtectMode, Protection};
pub use renew::renew_pages;
pub use window::{Window, Writable};

/// Whether the recorder is compiled in: a build for the checker.
pub const RECORDING: bool = cfg!(feature = "record");
