//! Persistent memory, shared by processes: the one crate that touches a pool.
//!
//! Contract:
//! - A [`Pmem`] is one mapping of one pool. Every access names an offset, which
//!   is checked against the mapping; no reference into the mapping is ever
//!   given out, because other processes store to it at any time.
//! - A mapping may grow ([`Pmem::extend`]), where it is: what was inside of it once always is.
//! - A store is durable once its lines were flushed ([`Pmem::flush`]) and a
//!   [`Pmem::fence`] has returned; non-temporal stores need the fence alone.
//!   The meaning of "durable" depends on the medium: [`Medium::durability`].
//! - A medium that fails under a copy gives a [`Fault`]; under a single load or
//!   store, the page is replaced by zeros and [`Pmem::failed`] says where. The
//!   process lives in both cases.
//! - A pool may be closed ([`Protection`]): a store then has to be made inside a write window
//!   ([`Pmem::window`]), a load by a thread that has entered ([`Pmem::enter`]); any other is the
//!   end of the process, and the pool is unharmed.
//! - An offset outside the pool is a mistake of the program and panics. Behind the end of a
//!   mapping that may grow it is the end of the process, where debug assertions are off: what comes
//!   from elsewhere is to be checked against [`Pmem::len`].
//!
//! Nothing here knows about files, inodes or the layout of a pool.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_endian = "little")))]
compile_error!("pmem: x86-64 Linux only (16-byte atomics, clwb, non-temporal stores)");

mod access;
mod address_space;
mod cpu;
mod emulate;
mod error;
mod mapping;
mod medium;
mod pagemap;
pub mod planted;
mod processes;
pub mod program;
pub mod protection;
mod raw;
mod recorder;

pub use emulate::emulation;
pub use mapping::view;
pub use processes::counters;
pub use processes::death;
pub use processes::life;
pub use processes::published;
pub use processes::request;
pub use processes::slots;
#[cfg(feature = "started")]
pub use processes::started;
pub use processes::thread;
pub use processes::watch;
#[cfg(feature = "record")]
pub use recorder::record;

pub use access::stage::Stage;
pub use cpu::FlushInstr;
pub use emulate::device::{DIMMS_MAX, Modules};
pub use emulate::emulation::{Emulation, EmulationError};
pub use emulate::{Charged, MediumWords};
pub use error::{Error, Fault, Side};
pub use mapping::growth::lengthen_file;
pub use mapping::open::MapOptions;
pub use mapping::pool::{Identity, Pmem};
pub use mapping::renew::renew_pages;
pub use medium::{Durability, FlushMode, Medium, MediumKind};
pub use protection::window::{Burst, Window, Writable};
pub use protection::{ProtectMode, Protection};

/// `true` in a build for the checker, which contains the recorder.
pub const RECORDING: bool = cfg!(feature = "record");
