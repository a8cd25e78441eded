//! Goal: the loops of `pmm-writer` make the stores that they are said to, and no others. Method: a
//! child runs each loop one step of the CPU at a time; before each step its instruction is decoded.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Decoder as Linear, DecoderOptions};
use pmmon::Access;
use pmmon::decode::{Decoder, Registers, When};
use pmmon_sys::{ACCESS_BYTES, Compiled, Kind, Mapping, Op, run, supported};

const FILE_BYTES: usize = 64 << 10;
const OFFSETS: usize = 40;
/// Steps after which a child is said to hang.
const STEPS_MAX: u32 = 200_000;

/// The accesses of a child.
#[derive(Debug, Default)]
struct Steps {
    /// Stores and loads of the mapping, in pieces.
    accesses: usize,
    bytes: u64,
    sites: BTreeSet<u64>,
    /// Stores elsewhere, between the first and the last on the mapping.
    elsewhere: usize,
    pending: usize,
    lines: usize,
}

fn registers_of(child: i32) -> Registers {
    // SAFETY: a structure of integers.
    let mut user: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let to: *mut libc::user_regs_struct = &mut user;
    // SAFETY: the child is stopped, and the kernel fills the structure.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETREGS, child, 0, to) };
    assert_eq!(done, 0, "registers");
    Registers {
        general: [
            user.rax, user.rcx, user.rdx, user.rbx, user.rsp, user.rbp, user.rsi, user.rdi,
            user.r8, user.r9, user.r10, user.r11, user.r12, user.r13, user.r14, user.r15,
        ],
        ip: user.rip,
        flags: user.eflags,
    }
}

/// Code is the same in parent and child.
fn code_at(memory: &std::fs::File, ip: u64) -> [u8; 15] {
    use std::os::unix::fs::FileExt;
    let mut code = [0; 15];
    let got = memory.read_at(&mut code, ip).expect("code");
    assert!(got > 0);
    code
}

impl Steps {
    fn step(&mut self, decoder: &mut Decoder, code: &[u8], registers: &Registers, at: &Range<u64>) {
        let mut linear = Linear::with_ip(64, code, registers.ip, DecoderOptions::NONE);
        let instruction = linear.decode();
        self.lines += usize::from(instruction.mnemonic() == iced_x86::Mnemonic::Clwb);
        for memory in decoder.accesses_at(&instruction, registers, When::Before) {
            let inside = memory.address.is_some_and(|address| at.contains(&address));
            if inside {
                self.accesses += 1;
                self.bytes += u64::from(memory.bytes.max().expect("a size"));
                self.sites.insert(instruction.ip());
                self.elsewhere += std::mem::take(&mut self.pending);
            } else if memory.access == Access::Write && self.accesses > 0 {
                self.pending += 1;
            }
        }
    }
}

/// Runs `work` in a child, one step at a time, and tells its accesses to `at`.
fn traced(at: &Range<u64>, work: impl Fn()) -> Steps {
    // SAFETY: the child only makes accesses and system calls, and ends without its parent's
    // destructors.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        // SAFETY: calls without memory; `_exit` does not return.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            work();
            libc::_exit(0);
        }
    }
    let memory = loop_start(child);
    let mut steps = Steps::default();
    let mut decoder = Decoder::default();
    for _ in 0..STEPS_MAX {
        let registers = registers_of(child);
        let code = code_at(&memory, registers.ip);
        steps.step(&mut decoder, &code, &registers, at);
        // SAFETY: the child is stopped.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) };
        if wait(child).is_none() {
            return steps;
        }
    }
    // SAFETY: the child is ours.
    unsafe { libc::kill(child, libc::SIGKILL) };
    wait(child);
    panic!("the child does not end");
}

fn loop_start(child: i32) -> std::fs::File {
    assert_eq!(wait(child), Some(libc::SIGSTOP));
    std::fs::File::open(format!("/proc/{child}/mem")).expect("the child's memory")
}

/// The signal by which the child has stopped; `None` when it has ended.
fn wait(child: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: waits for our child and fills an integer.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    libc::WIFSTOPPED(status).then(|| libc::WSTOPSIG(status))
}

fn mapping() -> (tempfile::NamedTempFile, Mapping, Range<u64>) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(FILE_BYTES as u64).expect("length");
    let mapping = Mapping::new(file.as_file(), FILE_BYTES).expect("a mapping");
    let start = mapping.address();
    (file, mapping, start..start + FILE_BYTES as u64)
}

fn offsets(bytes: u32) -> Vec<u32> {
    (0..OFFSETS as u32)
        .map(|turn| turn * 7 * bytes % (FILE_BYTES as u32))
        .collect()
}

#[test]
fn each_store_is_counted() {
    let (_file, mapping, at) = mapping();
    let kinds = [
        Op::Read,
        Op::Write(Kind::Temporal),
        Op::Write(Kind::NonTemporal),
        Op::Write(Kind::Flushed),
    ];
    for op in kinds {
        for bytes in ACCESS_BYTES {
            if !supported(op, bytes) {
                continue;
            }
            let offsets = offsets(bytes);
            let steps = traced(&at, || run(&mapping, op, bytes, &offsets));
            let pieces = bytes.div_ceil(64) as usize;
            assert_eq!(
                steps.accesses,
                OFFSETS * pieces,
                "{op:?} {bytes}: {steps:?}"
            );
            assert_eq!(
                steps.bytes,
                OFFSETS as u64 * u64::from(bytes),
                "{op:?} {bytes}"
            );
            assert_eq!(steps.sites.len(), pieces, "{op:?} {bytes}");
            assert_eq!(steps.elsewhere, 0, "{op:?} {bytes}");
            let lines = if op == Op::Write(Kind::Flushed) {
                steps.accesses
            } else {
                0
            };
            assert_eq!(steps.lines, lines, "{op:?} {bytes}");
        }
    }
}

#[test]
fn compiled_loops_too() {
    let (_file, mapping, at) = mapping();
    for op in [
        Op::Read,
        Op::Write(Kind::Temporal),
        Op::Write(Kind::NonTemporal),
    ] {
        for bytes in [1, 2, 4, 8, 16] {
            if !supported(op, bytes) {
                continue;
            }
            let compiled = Compiled::new(op, bytes).expect("a loop");
            let offsets = offsets(bytes);
            let steps = traced(&at, || compiled.run(&mapping, &offsets));
            assert_eq!(steps.accesses, OFFSETS, "{op:?} {bytes}: {steps:?}");
            assert_eq!(
                steps.bytes,
                OFFSETS as u64 * u64::from(bytes),
                "{op:?} {bytes}"
            );
            assert_eq!(steps.elsewhere, 0, "{op:?} {bytes}");
            let code = compiled.range();
            assert!(steps.sites.iter().all(|site| code.contains(site)));
        }
    }
    assert!(Compiled::new(Op::Read, 64).is_err());
}
