//! Where libc's system calls arrive, and how they go on.
//!
//! A patched call site jumps to its stub, which jumps here: rax has the number, the arguments are
//! where the kernel wants them, rcx is the stub's `pass`. Only rcx and r11 are free, as `syscall`
//! destroys them, and the program's stack is not touched: its red zone is in use, and there may be
//! little of it (docs/adr/0049-stack-and-thread-locals.md). The answer is a jump to
//! - `pass`: the kernel is to do it;
//! - `pass + 2`, behind that `syscall`: it is done, rax is the answer;
//! - `pass - 13`, where the stub jumped here: it is to be done again, after a signal's handler has run.
//!
//! What may concern us goes to [`dispatch`](crate::entry::dispatch::dispatch), on a stack of the library's own, one for each thread. Meanwhile the thread counts as
//! *inside*: system calls of the library itself go straight to the kernel, and signals are put off to the end (`signals.rs`).

pub(crate) mod dispatch;
pub(crate) mod gate;
pub(crate) mod parked;
pub(crate) mod signals;

use std::arch::global_asm;

use crate::call::class;
use crate::call::{FRAME, NUMBERS};
use crate::descriptors;
use crate::maps;
use crate::names::empty_name;
use crate::own::thread;
use crate::own::words::{GUEST, INSIDE, OUTSIDE, word};

global_asm!(
    ".text",
    ".macro PMFS_ENTRY name, vectors",
    ".p2align 6",
    ".globl \\name",
    ".hidden \\name",
    "\\name:",
    "   cmp rax, {NUMBERS}",
    "   jae 9f",
    "   mov r11, qword ptr [rip + pmem_thread@GOTTPOFF]",
    "   cmp qword ptr fs:[r11 + {STATE}], {OUTSIDE}",
    "   jne 8f",
    "   lea r11, [rip + {class}]",
    "   movzx r11d, byte ptr [r11 + rax]",
    "   test r11d, r11d",
    "   jz 9f",
    "   cmp r11d, {LOOK}",
    "   je 3f",
    "   jb 2f",
    "   cmp r11d, {LOOK_AND_SETTLE}",
    "   je 5f",
    "   cmp r11d, {MEMORY}",
    "   je 20f",
    "   cmp dword ptr [rip + {watching}], 0",
    "   jne 5f",
    "   cmp r11d, {SETTLE}",
    "   je 20f",
    "2: mov r11d, edi",
    "   cmp r11d, {DESCRIPTORS}",
    "   jae 20f",
    "   bt dword ptr [rip + {ours}], r11d",
    "   jc 5f",
    // The kernel's, which may be given memory that is not there yet.
    "20: cmp dword ptr [rip + {lazy}], 0",
    "   jne 5f",
    "9: jmp rcx",
    // libc's fstat is by descriptor too (`empty_name.rs`); any other call by path is to be looked at, and AT_FDCWD is no descriptor.
    "3: cmp eax, {FSTATAT}",
    "   jne 5f",
    "   cmp r10d, {EMPTY_PATH}",
    "   jne 5f",
    "   mov r11, rsi",
    "   sub r11, qword ptr [rip + {empty_from}]",
    "   cmp r11, qword ptr [rip + {empty_bytes}]",
    "   jae 5f",
    "   cmp byte ptr [rsi], 0",
    "   jne 5f",
    "   test edi, edi",
    "   jns 2b",
    "   jmp 5f",
    // Inside already, or in a child that has a table of its own.
    "8: cmp qword ptr fs:[r11 + {STATE}], {GUEST}",
    "   je 5f",
    // Whoever is inside calls from the library's stack, or has none yet. From anywhere else it is the program: a child that
    // shares our memory became another program, or was killed, while it was inside, and left the word so to its parent.
    "   mov r11, qword ptr fs:[r11 + {STACK}]",
    "   test r11, r11",
    "   jz 9b",
    "   sub r11, rsp",
    "   cmp r11, {STACK_BYTES}",
    "   jb 9b",
    "5: mov r11, qword ptr [rip + pmem_thread@GOTTPOFF]",
    "   mov qword ptr fs:[r11 + {STATE}], {INSIDE}",
    "   cmp qword ptr fs:[r11 + {STACK}], 0",
    "   je 4f",
    "6: mov qword ptr fs:[r11 + {PROGRAM_STACK}], rsp",
    "   mov qword ptr fs:[r11 + {PASS}], rcx",
    "   mov rsp, qword ptr fs:[r11 + {STACK}]",
    "   sub rsp, {FRAME}",
    "   mov qword ptr [rsp], rax",
    "   mov qword ptr [rsp + 8], rdi",
    "   mov qword ptr [rsp + 16], rsi",
    "   mov qword ptr [rsp + 24], rdx",
    "   mov qword ptr [rsp + 32], r10",
    "   mov qword ptr [rsp + 40], r8",
    "   mov qword ptr [rsp + 48], r9",
    ".if \\vectors",
    "   movaps xmmword ptr [rsp + 64], xmm0",
    "   movaps xmmword ptr [rsp + 80], xmm1",
    "   movaps xmmword ptr [rsp + 96], xmm2",
    "   movaps xmmword ptr [rsp + 112], xmm3",
    "   movaps xmmword ptr [rsp + 128], xmm4",
    "   movaps xmmword ptr [rsp + 144], xmm5",
    "   movaps xmmword ptr [rsp + 160], xmm6",
    "   movaps xmmword ptr [rsp + 176], xmm7",
    "   movaps xmmword ptr [rsp + 192], xmm8",
    "   movaps xmmword ptr [rsp + 208], xmm9",
    "   movaps xmmword ptr [rsp + 224], xmm10",
    "   movaps xmmword ptr [rsp + 240], xmm11",
    "   movaps xmmword ptr [rsp + 256], xmm12",
    "   movaps xmmword ptr [rsp + 272], xmm13",
    "   movaps xmmword ptr [rsp + 288], xmm14",
    "   movaps xmmword ptr [rsp + 304], xmm15",
    ".endif",
    "   mov rdi, rsp",
    "   call {dispatch}",
    // rax: what to add to rcx.
    ".if \\vectors",
    "   movaps xmm0, xmmword ptr [rsp + 64]",
    "   movaps xmm1, xmmword ptr [rsp + 80]",
    "   movaps xmm2, xmmword ptr [rsp + 96]",
    "   movaps xmm3, xmmword ptr [rsp + 112]",
    "   movaps xmm4, xmmword ptr [rsp + 128]",
    "   movaps xmm5, xmmword ptr [rsp + 144]",
    "   movaps xmm6, xmmword ptr [rsp + 160]",
    "   movaps xmm7, xmmword ptr [rsp + 176]",
    "   movaps xmm8, xmmword ptr [rsp + 192]",
    "   movaps xmm9, xmmword ptr [rsp + 208]",
    "   movaps xmm10, xmmword ptr [rsp + 224]",
    "   movaps xmm11, xmmword ptr [rsp + 240]",
    "   movaps xmm12, xmmword ptr [rsp + 256]",
    "   movaps xmm13, xmmword ptr [rsp + 272]",
    "   movaps xmm14, xmmword ptr [rsp + 288]",
    "   movaps xmm15, xmmword ptr [rsp + 304]",
    ".endif",
    "   mov r11, qword ptr [rip + pmem_thread@GOTTPOFF]",
    "   mov rcx, qword ptr fs:[r11 + {PASS}]",
    "   add rcx, rax",
    "   mov rax, qword ptr [rsp]",
    "   mov rdi, qword ptr [rsp + 8]",
    "   mov rsi, qword ptr [rsp + 16]",
    "   mov rdx, qword ptr [rsp + 24]",
    "   mov r10, qword ptr [rsp + 32]",
    "   mov r8, qword ptr [rsp + 40]",
    "   mov r9, qword ptr [rsp + 48]",
    "   mov rsp, qword ptr fs:[r11 + {PROGRAM_STACK}]",
    "   push qword ptr fs:[r11 + {AFTERWARDS}]",
    "   pop qword ptr fs:[r11 + {STATE}]",
    ".globl \\name\\()_leaving",
    ".hidden \\name\\()_leaving",
    "\\name\\()_leaving:",
    "   cmp qword ptr fs:[r11 + {PUT_OFF}], 0",
    "   jne 7f",
    "   jmp rcx",
    // The signals that were put off are let through, and handled before this goes on.
    "7: lea rsp, [rsp - 128]",
    "   push rcx",
    "   push rax",
    "   push rdi",
    "   push rsi",
    "   push rdx",
    "   push r10",
    "   push r8",
    "   push r9",
    "   push qword ptr fs:[r11 + {MASK}]",
    "   mov qword ptr fs:[r11 + {PUT_OFF}], 0",
    "   mov eax, 14",
    "   mov edi, 2",
    "   mov rsi, rsp",
    "   xor edx, edx",
    "   mov r10d, 8",
    "   syscall",
    "   add rsp, 8",
    "   pop r9",
    "   pop r8",
    "   pop r10",
    "   pop rdx",
    "   pop rsi",
    "   pop rdi",
    "   pop rax",
    "   pop rcx",
    "   lea rsp, [rsp + 128]",
    "   jmp rcx",
    // A thread's first call.
    "4: lea rsp, [rsp - 128]",
    "   push rax",
    "   push rcx",
    "   push rdi",
    "   push rsi",
    "   push rdx",
    "   push r10",
    "   push r8",
    "   push r9",
    "   push rbp",
    "   mov rbp, rsp",
    "   and rsp, -16",
    "   call {begin}",
    "   mov rsp, rbp",
    "   pop rbp",
    "   pop r9",
    "   pop r8",
    "   pop r10",
    "   pop rdx",
    "   pop rsi",
    "   pop rdi",
    "   pop rcx",
    "   pop rax",
    "   lea rsp, [rsp + 128]",
    "   mov r11, qword ptr [rip + pmem_thread@GOTTPOFF]",
    "   jmp 6b",
    ".globl \\name\\()_end",
    ".hidden \\name\\()_end",
    "\\name\\()_end:",
    ".endm",
    "PMFS_ENTRY pmfs_shim_entry, 1",
    "PMFS_ENTRY pmfs_shim_entry_plain, 0",
    // What the kernel's signal frames return to: libc's own may not be there yet.
    ".p2align 4",
    ".globl pmfs_shim_restorer",
    ".hidden pmfs_shim_restorer",
    "pmfs_shim_restorer:",
    "   mov rax, 15",
    "   syscall",
    NUMBERS = const NUMBERS,
    DESCRIPTORS = const descriptors::COUNT,
    LOOK = const class::LOOK,
    LOOK_AND_SETTLE = const class::LOOK_AND_SETTLE,
    SETTLE = const class::SETTLE,
    MEMORY = const class::MEMORY,
    lazy = sym maps::LAZY,
    watching = sym parked::WATCHING,
    FSTATAT = const libc::SYS_newfstatat,
    EMPTY_PATH = const libc::AT_EMPTY_PATH,
    OUTSIDE = const OUTSIDE,
    INSIDE = const INSIDE,
    GUEST = const GUEST,
    FRAME = const FRAME,
    STACK_BYTES = const thread::STACK_BYTES,
    STATE = const word::STATE,
    STACK = const word::STACK,
    PROGRAM_STACK = const word::PROGRAM_STACK,
    PASS = const word::PASS,
    PUT_OFF = const word::PUT_OFF,
    MASK = const word::MASK,
    AFTERWARDS = const word::AFTERWARDS,
    class = sym class::CLASS,
    ours = sym descriptors::OURS,
    empty_from = sym empty_name::FROM,
    empty_bytes = sym empty_name::BYTES,
    dispatch = sym dispatch::dispatch,
    begin = sym thread::begin,
);

unsafe extern "C" {
    static pmfs_shim_entry: u8;
    static pmfs_shim_entry_leaving: u8;
    static pmfs_shim_entry_end: u8;
    static pmfs_shim_entry_plain: u8;
    static pmfs_shim_entry_plain_leaving: u8;
    static pmfs_shim_entry_plain_end: u8;
    static pmfs_shim_restorer: u8;
}

/// One of the two, in the code of this library.
pub(crate) struct Entry {
    /// Where stubs jump.
    pub start: usize,
    /// From here on the thread counts as outside again.
    pub leaving: usize,
    pub end: usize,
}

/// The one that keeps the vector registers, and the one that does not.
pub(crate) fn entries() -> [Entry; 2] {
    let at = |label: *const u8| label.expose_provenance();
    [
        Entry {
            start: at(&raw const pmfs_shim_entry),
            leaving: at(&raw const pmfs_shim_entry_leaving),
            end: at(&raw const pmfs_shim_entry_end),
        },
        Entry {
            start: at(&raw const pmfs_shim_entry_plain),
            leaving: at(&raw const pmfs_shim_entry_plain_leaving),
            end: at(&raw const pmfs_shim_entry_plain_end),
        },
    ]
}

/// Where a handler that the program did not install returns to.
pub(crate) fn restorer() -> usize {
    (&raw const pmfs_shim_restorer).expose_provenance()
}
