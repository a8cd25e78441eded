//! The library that `pmfs run` preloads: what a program does with files below a directory is done in its own process, by the
//! engine, without a system call.
//!
//! - `start`: the constructor; `config`: what `pmfs run` says; `patch`: the image of libc whose call sites lead here.
//! - `entry`: where calls arrive, and the stack that they are served on; `thread`: what each thread has; `signals`: what may
//!   interrupt.
//! - `class`, `dispatch`: which calls concern us, and who serves them; `calls`: those who do.
//! - `descriptors`: which numbers are ours; `names`: where a path leads, `numbered`: by way of a descriptor; `credentials`: who may, `limits`: how much; `pool`: the attachment.
//! - `process`, `guest`, `exec`, `target`, `gate`: fork, vfork, threads, the next program. `promote`: what the mount has to do, `mapped_size`: what it has to know; `maps`: the pool's blocks in the program's memory; `retire`: everything is its. `program`: the program's memory; `memory`: our own.
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
mod start;

/// The program's malloc may be what is calling us.
#[global_allocator]
static MEMORY: own::memory::Memory = own::memory::Memory::new();
