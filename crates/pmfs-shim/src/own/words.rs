//! The state of a thread for the entry's code and this library: words of the one block that `pmem`
//! has for it.

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
    /// The signal mask to go back to then.
    pub const MASK: usize = FACE + 40;
    /// The value of STATE at the end: OUTSIDE or GUEST.
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

/// Runs `body` with this thread counting as inside, as calls of the library's own have
/// to be outside of a dispatch.
pub(crate) fn inside<T>(body: impl FnOnce() -> T) -> T {
    let before = get(word::STATE);
    set(word::STATE, INSIDE);
    let answer = body();
    set(word::STATE, before);
    answer
}
