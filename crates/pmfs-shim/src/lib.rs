//! The library that `pmfs run` preloads: what a program does with files below a
//! directory is done in its own process, by the engine, without a system call.
//!
//! Storeys, lowest first; imports run downward alone (`xtask/tests/storeys.rs`):
//!
//! - `call`: a system call, which there are (`class`), what becomes of one.
//! - `own`: the library's own system calls, memory, settings, log and counts.
//! - `thread`: what each thread has: a stack, its identity, what a child that shares its memory has
//!   otherwise (`guest`); and the `gate` that a thread is inside of during a call.
//! - `program`: the program's memory, who it is (`credentials`, `umask`), how much it
//!   may (`limits`).
//! - `descriptors`: which numbers are the pool's; the attachment (`pool`); the mount's
//!   descriptors in place of ours (`promote`).
//! - `stubs`: the image of libc whose call sites lead here (`patch`).
//! - `maps`: the pool's blocks in the program's memory.
//! - `names`: where a path leads; by way of a descriptor (`numbered`), and without a
//!   mount (`outside`).
//! - `signals`: what may interrupt a call.
//! - `process`: fork, `vfork`, threads, the next program (`exec`), stepping back (`retire`).
//! - `calls`: the calls, by what they are about.
//! - `entry`: where calls arrive, and who serves them (`dispatch`).
//! - `start`: the constructor.
//!
//! Rules (docs/adr/0047-signals.md, docs/adr/0048-program-memory.md,
//! docs/adr/0049-stack-and-thread-locals.md, docs/adr/0050-own-descriptors.md): system calls of our
//! own are made directly (`kernel`), or while the thread counts as inside; no thread-locals but the
//! one block of `pmem::thread`; an allocator of our own; no unwinder.
//! Absent on purpose: anything that the engine could decide, and starting a mount (the command's
//! affair).

mod call;
mod calls;
mod descriptors;
mod entry;
#[allow(dead_code)]
#[path = "../../pmfs-patch/src/header.rs"]
mod header;
#[path = "../../pmfs-patch/src/loading.rs"]
mod loading;
mod maps;
mod names;
mod own;
mod process;
mod program;
mod signals;
mod start;
mod stubs;
mod thread;

/// The caller may be the program's malloc, so the library has an allocator of its own.
#[global_allocator]
static MEMORY: own::memory::Memory = own::memory::Memory::new();
