//! The state of a thread for the entry's code and this library: words in the block that `pmem` has
//! for each thread.

/// Words of [`pmem::thread::Thread::face`], as offsets into the thread's block.
pub(crate) mod word {
    use pmem::thread::FACE;

    /// [`super::OUTSIDE`], [`super::INSIDE`] or [`super::GUEST`].
    pub const STATE: usize = FACE;
    /// Top of the library's stack for this thread; 0 before it has one.
    pub const STACK: usize = FACE + 8;
    /// The program's stack pointer at the last entry.
    pub const PROGRAM_STACK: usize = FACE + 16;
    /// The stub's `pass` at the last entry.
    pub const PASS: usize = FACE + 24;
    /// Not 0 if signals were put off.
    pub const PUT_OFF: usize = FACE + 32;
    /// The signal mask to restore then.
    pub const MASK: usize = FACE + 40;
    /// The value of STATE after the call: OUTSIDE or GUEST.
    pub const AFTERWARDS: usize = FACE + 48;
}

/// The thread runs code of the program.
pub(crate) const OUTSIDE: u64 = 0;
/// The thread runs code of this library.
pub(crate) const INSIDE: u64 = 1;
/// The thread runs code of the program in a child that shares its parent's memory (vfork).
pub(crate) const GUEST: u64 = 2;

fn face(offset: usize) -> usize {
    (offset - pmem::thread::FACE) / 8
}

pub(crate) fn get(offset: usize) -> u64 {
    pmem::thread::with(|thread| thread.face[face(offset)].get())
}

pub(crate) fn set(offset: usize, value: u64) {
    pmem::thread::with(|thread| thread.face[face(offset)].set(value));
}

/// Runs `body` while this thread counts as inside, as the library's own calls outside of a dispatch
/// must.
pub(crate) fn inside<T>(body: impl FnOnce() -> T) -> T {
    let before = get(word::STATE);
    set(word::STATE, INSIDE);
    let answer = body();
    set(word::STATE, before);
    answer
}
