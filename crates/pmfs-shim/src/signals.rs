//! Signals: no handler of the program runs while the library is in the middle of a call
//! (docs/adr/0047-signals.md).
//!
//! Every handler is installed behind one of ours. One that comes while a thread is inside is
//! put off: it is blocked in the mask that the interrupted code goes back to, and sent to the
//! thread again, so that the kernel delivers it, as it was, when the entry opens the mask at
//! the end. glibc's own two (for pthread_cancel and setuid) are handlers like others.
//!
//! Handlers and unwinders see a thread that is in a stub, or in the entry's own code, at the place
//! in libc that this stands for.

use std::arch::global_asm;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::{
    SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_IGN, SIGBUS, SIGKILL, SIGSEGV,
    SIGSTOP,
};

use crate::call::Verdict;
use crate::descriptors::parked;
use crate::maps;
use crate::own::kernel::{self, Action};
use crate::own::words::{self, GUEST, INSIDE, word};
use crate::program;
use crate::stubs;
use crate::stubs::patch;
use crate::thread::gate;
use crate::thread::{self, Inner};

const SIGNALS: usize = 65;
/// SA_RESTORER of the kernel's interface.
const RESTORER: u64 = 0x0400_0000;
/// Bits of a mask.
const FAULTS: u64 = 1 << (SIGSEGV - 1) | 1 << (SIGBUS - 1);

/// Bit of the word PUT_OFF: a signal was put off, so a wait that it ends does not restart.
const WAS: u64 = 1;
const ENDS: u64 = 2;

/// The program's actions for the signals that it has set.
struct Wanted {
    known: AtomicBool,
    words: [AtomicU64; 4],
}

static WANTED: [Wanted; SIGNALS] = [const {
    Wanted {
        known: AtomicBool::new(false),
        words: [const { AtomicU64::new(0) }; 4],
    }
}; SIGNALS];

impl Wanted {
    fn get(&self) -> Action {
        let [handler, flags, restorer, mask] = &self.words;
        Action {
            handler: handler.load(Ordering::Acquire),
            flags: flags.load(Ordering::Relaxed),
            restorer: restorer.load(Ordering::Relaxed),
            mask: mask.load(Ordering::Relaxed),
        }
    }

    fn set(&self, action: &Action) {
        let [handler, flags, restorer, mask] = &self.words;
        flags.store(action.flags, Ordering::Relaxed);
        restorer.store(action.restorer, Ordering::Relaxed);
        mask.store(action.mask, Ordering::Relaxed);
        handler.store(action.handler, Ordering::Release);
        self.known.store(true, Ordering::Release);
    }
}

fn is_handler(value: u64) -> bool {
    value != SIG_DFL as u64 && value != SIG_IGN as u64
}

fn is_fault(signal: i32) -> bool {
    signal == SIGSEGV || signal == SIGBUS
}

/// The kernel's sigaction.
fn install(signal: i32, new: Option<&Action>, old: Option<&mut Action>) -> i64 {
    let new = new.map_or(0, |new| std::ptr::from_ref(new).expose_provenance() as u64);
    let old = old.map_or(0, |old| std::ptr::from_mut(old).expose_provenance() as u64);
    // SAFETY: the kernel reads and fills structures of its own shape.
    unsafe { kernel::call(libc::SYS_rt_sigaction, [signal as u64, new, old, 8, 0, 0]) }
}

/// The kernel's action for a signal, given the program's action.
fn behind(signal: i32, wanted: &Action) -> Action {
    let mut flags = wanted.flags | SA_SIGINFO as u64;
    flags &= !(SA_RESETHAND as u32 as u64);
    if is_fault(signal) {
        flags |= SA_ONSTACK as u64;
    }
    Action {
        handler: (&raw const pmfs_shim_on_signal).expose_provenance() as u64,
        flags,
        restorer: wanted.restorer,
        // Handlers run one at a time: a handler must interrupt the program or this library, never
        // another handler, whose mask belongs to nobody. `deliver` opens the mask again.
        mask: !FAULTS,
    }
}

/// Installs handlers for the two signals of a bad pointer.
pub(crate) fn start() {
    pmem::program::leave_faults_to_face();
    for signal in [SIGSEGV, SIGBUS] {
        let default = Action {
            flags: RESTORER,
            restorer: stubs::restorer() as u64,
            ..Action::default()
        };
        install(signal, Some(&behind(signal, &default)), None);
    }
}

/// rt_sigaction(2).
pub(crate) fn action(args: [u64; 6], room: &mut Inner) -> Verdict {
    let signal = args[0] as i32;
    let refused = !(1..SIGNALS as i32).contains(&signal) || signal == SIGKILL || signal == SIGSTOP;
    if refused || args[3] != 8 {
        return Verdict::Pass;
    }
    let mut set = || {
        let wanted = &WANTED[signal as usize];
        let new: Option<Action> = if args[1] == 0 {
            None
        } else {
            Some(program::read(args[1])?)
        };
        let guests = room.guest_of.is_some().then_some(&mut room.guest_actions);
        let own = guests.as_ref().and_then(|list| {
            let own = list.iter().flatten().find(|(other, _)| *other == signal);
            own.map(|(_, action)| *action)
        });
        let mut before = own.unwrap_or_else(|| wanted.get());
        if own.is_none() && !wanted.known.load(Ordering::Acquire) {
            install(signal, None, Some(&mut before));
            before = std::hint::black_box(before);
            if is_fault(signal) {
                // The kernel has our action, and the program has set none.
                before = Action::default();
            }
        }
        if let Some(new) = new {
            match guests {
                Some(list) => {
                    let list = list.get_or_insert_default();
                    list.retain(|(other, _)| *other != signal);
                    list.push((signal, new));
                }
                None => wanted.set(&new),
            }
            let kernels = if is_handler(new.handler) {
                behind(signal, &new)
            } else if is_fault(signal) {
                let default = Action {
                    flags: RESTORER,
                    restorer: stubs::restorer() as u64,
                    ..new
                };
                behind(signal, &default)
            } else {
                new
            };
            let answer = install(signal, Some(&kernels), None);
            if answer < 0 {
                return Err(-answer as i32);
            }
        }
        if args[2] != 0 {
            program::write(args[2], &before)?;
        }
        Ok(0)
    };
    Verdict::done(set())
}

/// Serves rt_sigprocmask(2): the two signals of a bad pointer are never blocked.
pub(crate) fn mask(args: [u64; 6], room: &Inner) -> Verdict {
    rearm(room);
    if args[1] == 0 || args[0] as i32 == libc::SIG_UNBLOCK || args[3] != 8 {
        return Verdict::Pass;
    }
    match program::read::<u64>(args[1]) {
        Err(errno) => Verdict::done(Err(errno)),
        Ok(set) if set & FAULTS == 0 => Verdict::Pass,
        Ok(set) => {
            let set = set & !FAULTS;
            let at = (&raw const set).expose_provenance() as u64;
            // SAFETY: the program's own call, with a mask of ours.
            let answer =
                unsafe { kernel::call(libc::SYS_rt_sigprocmask, [args[0], at, args[2], 8, 0, 0]) };
            Verdict::done(crate::call::kernel_answer(answer))
        }
    }
}

/// struct stack_t of the kernel: address, flags, bytes.
type Stack = [u64; 3];
const DISABLED: u64 = libc::SS_DISABLE as u64;
/// SS_AUTODISARM: no alternate stack while a handler runs on it.
const DISARM: u64 = 1 << 31;

/// Serves sigaltstack(2). A signal in the middle of a call interrupts the library's stack, so the
/// kernel would put its frame over that of a handler on the alternate stack. The kernel therefore
/// has no alternate stack while a handler runs on it.
pub(crate) fn stack(args: [u64; 6], room: &mut Inner) -> Verdict {
    let mut set = || {
        let on_it = is_on_own_stack(room);
        let [at, bytes] = room.signal_stack;
        let flags = match (on_it, bytes) {
            (true, _) => libc::SS_ONSTACK as u64,
            (_, 0) => DISABLED,
            _ => 0,
        };
        if args[0] != 0 {
            let [at, flags, bytes]: Stack = program::read(args[0])?;
            let flags = flags & u64::from(u32::MAX);
            if on_it {
                return Err(libc::EPERM);
            }
            let off = flags & DISABLED != 0;
            set_stack(&[at, if off { flags } else { flags | DISARM }, bytes])?;
            room.signal_stack = if off { [0; 2] } else { [at, bytes] };
        }
        if args[1] != 0 {
            program::write(args[1], &[at, flags, bytes])?;
        }
        Ok(0)
    };
    Verdict::done(set())
}

/// Returns whether the program made the call from its alternate stack.
fn is_on_own_stack(room: &Inner) -> bool {
    let [at, bytes] = room.signal_stack;
    bytes != 0 && words::get(word::PROGRAM_STACK).wrapping_sub(at + 1) < bytes
}

fn set_stack(stack: &Stack) -> Result<(), i32> {
    let at = stack.as_ptr().expose_provenance() as u64;
    // SAFETY: the kernel reads the structure; the stack is the program's, or none.
    let answer = unsafe { kernel::call(libc::SYS_sigaltstack, [at, 0, 0, 0, 0, 0]) };
    crate::call::kernel_answer(answer).map(drop)
}

/// Restores the kernel's alternate stack. A jump out of a handler does not do so, but it restores
/// the mask, which comes here.
fn rearm(room: &Inner) {
    let [at, bytes] = room.signal_stack;
    if bytes != 0 && !is_on_own_stack(room) {
        let _ = set_stack(&[at, DISARM, bytes]);
    }
}

/// Returns whether a signal waits for the end of this call, or another thread does.
pub(crate) fn waiting() -> bool {
    words::get(word::PUT_OFF) != 0 || gate::is_closed()
}

/// Returns whether a wait that a put-off signal ended restarts.
pub(crate) fn restarts() -> bool {
    words::get(word::PUT_OFF) & ENDS == 0
}

/// Returns whether this is a child that shares its parent's memory, running the program's code. The
/// word alone does not tell: such a child may have left it to its parent.
fn is_guest() -> bool {
    if words::get(word::STATE) != GUEST {
        return false;
    }
    // SAFETY: this thread's room; a number in it.
    let parent = unsafe { (*thread::room()).guest_of };
    parent.is_some_and(|parent| parent != kernel::thread())
}

/// Waits until a signal ends the wait, also one that has come since this call began. `body` gets
/// the address of the mask to wait with, and lets no signal through before. `None`: a signal waits
/// for this call.
pub(crate) fn wait_with<T>(body: impl FnOnce(u64) -> T) -> Option<T> {
    let own = change_mask(!FAULTS);
    if words::get(word::PUT_OFF) != 0 {
        return None;
    }
    let answer = body((&raw const own).expose_provenance() as u64);
    if words::get(word::PUT_OFF) == 0 {
        change_mask(own);
    } else {
        // The entry restores this mask; changes of it within `body` were noted.
        words::set(word::MASK, own & !FAULTS);
    }
    Some(answer)
}

/// Sets this thread's mask and returns the previous one.
fn change_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = (
        (&raw const mask).expose_provenance() as u64,
        (&raw mut before).expose_provenance() as u64,
    );
    let args = [libc::SIG_SETMASK as u64, new, old, 8, 0, 0];
    // SAFETY: the kernel reads a mask and fills another.
    unsafe { kernel::call(libc::SYS_rt_sigprocmask, args) };
    std::hint::black_box(before)
}

/// The program's action for a signal; a guest has actions of its own.
fn wanted(signal: i32) -> Action {
    if is_guest() {
        // SAFETY: this thread's room; it is in the program's code, so nobody changes the list.
        let list = unsafe { &(*thread::room()).guest_actions };
        let own = list.iter().flatten().find(|(other, _)| *other == signal);
        if let Some((_, action)) = own {
            return *action;
        }
    }
    WANTED[signal as usize].get()
}

// This assembly stands between the kernel and every handler of the program: glibc cancels a thread
// by unwinding it from within a handler, and must not meet a frame of Rust.
global_asm!(
    ".text",
    ".p2align 4",
    ".globl pmfs_shim_on_signal",
    ".hidden pmfs_shim_on_signal",
    ".type pmfs_shim_on_signal, @function",
    "pmfs_shim_on_signal:",
    "   .cfi_startproc",
    "   push rbx",
    "   .cfi_def_cfa_offset 16",
    "   .cfi_offset rbx, -16",
    "   push r12",
    "   .cfi_def_cfa_offset 24",
    "   .cfi_offset r12, -24",
    "   push r13",
    "   .cfi_def_cfa_offset 32",
    "   .cfi_offset r13, -32",
    "   sub rsp, {DELIVERY}",
    "   .cfi_def_cfa_offset 32 + {DELIVERY}",
    "   mov rbx, rdi",
    "   mov r12, rsi",
    "   mov r13, rdx",
    "   mov rcx, rsp",
    "   call {prepare}",
    "   test rax, rax",
    "   jz 2f",
    "   mov rdi, rbx",
    "   mov rsi, r12",
    "   mov rdx, r13",
    "   call rax",
    "   mov rdi, r13",
    "   mov rsi, rsp",
    "   call {finish}",
    "2: add rsp, {DELIVERY}",
    "   .cfi_def_cfa_offset 32",
    "   pop r13",
    "   .cfi_def_cfa_offset 24",
    "   pop r12",
    "   .cfi_def_cfa_offset 16",
    "   pop rbx",
    "   .cfi_def_cfa_offset 8",
    "   ret",
    "   .cfi_endproc",
    ".size pmfs_shim_on_signal, . - pmfs_shim_on_signal",
    DELIVERY = const size_of::<Delivery>(),
    prepare = sym prepare,
    finish = sym finish,
);

unsafe extern "C" {
    static pmfs_shim_on_signal: u8;
}

/// The state that is restored after the program's handler; it lies on the assembly's stack.
#[repr(C)]
#[derive(Default)]
struct Delivery {
    kept: [u64; KEPT.len()],
    /// The interrupted place, and the place that the handler saw; 0 if both are the same.
    from: Where,
    to: Where,
    unused: [u64; 3],
}

// The size keeps the stack aligned.
const _: () = assert!(size_of::<Delivery>().is_multiple_of(16));

/// Returns the program's handler if it must be called now, else 0.
extern "C" fn prepare(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    delivery: &mut Delivery,
) -> u64 {
    // SAFETY: the kernel's pointers.
    if is_fault(signal) && unsafe { pmem::program::land(signal, info, context) } {
        return 0;
    }
    let outside = words::get(word::STATE) != INSIDE;
    // SAFETY: as above.
    let (address, code) = unsafe { ((*info).si_addr().addr() as u64, (*info).si_code) };
    // SAFETY: as above; the context is this thread's to change.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    // A page that the medium has lost has another code.
    let nothing_there = signal == SIGBUS && code == libc::BUS_ADRERR;
    let may_be_ours = nothing_there || signal == SIGSEGV && waits(context);
    if may_be_ours && outside && maps::fault(address) {
        return 0;
    }
    // SAFETY: the kernel's pointers.
    unsafe { pmem::program::tell_of_stray(signal, info, (&raw mut *context).cast()) };
    let wanted = wanted(signal);
    let sent = code <= 0;
    if words::get(word::STATE) == INSIDE && (sent || !is_fault(signal)) {
        put_off(signal, info, context, &wanted);
    } else if is_handler(wanted.handler) && words::get(word::STATE) != INSIDE {
        *delivery = deliver(signal, context, &wanted);
        return wanted.handler;
    } else if wanted.handler == SIG_DFL as u64 || !sent {
        // The fault happens again on return, or the signal is sent again, and then ends the process
        // as without this library.
        install(signal, Some(&Action::default()), None);
        if sent {
            send_again(signal, info);
        }
    }
    0
}

/// Returns whether the fault was a store that an msync may have blocked.
fn waits(context: &libc::ucontext_t) -> bool {
    const STORE: i64 = 0b10;
    maps::may_wait() && context.uc_mcontext.gregs[libc::REG_ERR as usize] & STORE != 0
}

fn send_again(signal: i32, info: *mut libc::siginfo_t) {
    let (process, number) = (kernel::process(), kernel::thread());
    let at = info.expose_provenance() as u64;
    let args = [process.into(), number.into(), signal as u64, at, 0, 0];
    // SAFETY: the kernel reads the structure that it gave.
    unsafe { kernel::call(libc::SYS_rt_tgsigqueueinfo, args) };
}

/// Puts the signal off to the end of the call.
fn put_off(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: &mut libc::ucontext_t,
    wanted: &Action,
) {
    let mask = (&raw mut context.uc_sigmask).cast::<u64>();
    // SAFETY: the kernel's mask is the first word of libc's larger one.
    let before = unsafe { mask.read() };
    let mut word = words::get(word::PUT_OFF);
    if word == 0 {
        words::set(word::MASK, before & !FAULTS);
    }
    word |= WAS;
    if wanted.flags & SA_RESTART as u64 == 0 {
        word |= ENDS;
    }
    words::set(word::PUT_OFF, word);
    // SAFETY: as above.
    unsafe { mask.write(before | 1 << (signal - 1)) };
    send_again(signal, info);
}

/// Words of the thread that a handler's own calls change.
const KEPT: [usize; 5] = [
    word::PROGRAM_STACK,
    word::PASS,
    word::PUT_OFF,
    word::MASK,
    word::AFTERWARDS,
];

fn deliver(signal: i32, context: &mut libc::ucontext_t, wanted: &Action) -> Delivery {
    if wanted.flags & SA_RESETHAND as u32 as u64 != 0 {
        if !is_guest() {
            WANTED[signal as usize].set(&Action::default());
        }
        install(signal, Some(&Action::default()), None);
    }
    let mut delivery = Delivery {
        kept: KEPT.map(words::get),
        ..Delivery::default()
    };
    if let Some((from, to)) = show_place_in_libc(context) {
        delivery.from = from;
        delivery.to = to;
    }
    words::set(word::PUT_OFF, 0);
    let_through(signal, context, wanted);
    delivery
}

/// Restores the state after the program's handler.
extern "C" fn finish(context: &mut libc::ucontext_t, delivery: &Delivery) {
    // The handler may have interrupted a call between its check and the kernel.
    parked::flush_parked();
    for (word, value) in KEPT.into_iter().zip(delivery.kept) {
        words::set(word, value);
    }
    let registers = &mut context.uc_mcontext.gregs;
    if delivery.to != [0; 2] && [registers[RIP], registers[RSP]] == delivery.to {
        [registers[RIP], registers[RSP]] = delivery.from;
    }
}

/// The mask for the program's handler.
fn let_through(signal: i32, context: &libc::ucontext_t, wanted: &Action) {
    // SAFETY: the kernel's mask is the first word of libc's larger one.
    let mut mask = unsafe { (&raw const context.uc_sigmask).cast::<u64>().read() } | wanted.mask;
    if wanted.flags & libc::SA_NODEFER as u64 == 0 {
        mask |= 1 << (signal - 1);
    }
    let mask = mask & !FAULTS;
    let at = (&raw const mask).expose_provenance() as u64;
    // SAFETY: the kernel reads the mask.
    unsafe {
        kernel::call(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_SETMASK as u64, at, 0, 8, 0, 0],
        )
    };
}

const RIP: usize = libc::REG_RIP as usize;
const RSP: usize = libc::REG_RSP as usize;

/// Program counter and stack pointer.
type Where = [i64; 2];

/// Moves the context of a thread in a stub, or in the entry, to the place in libc that the code
/// stands for. Returns both places.
fn show_place_in_libc(context: &mut libc::ucontext_t) -> Option<(Where, Where)> {
    let registers = &mut context.uc_mcontext.gregs;
    let from = [registers[RIP], registers[RSP]];
    let at = from[0] as usize;
    let mut entries = stubs::entries().into_iter();
    let inside = entries.find(|entry| (entry.start..entry.end).contains(&at));
    let to = if let Some(entry) = inside {
        let leaving = at >= entry.leaving;
        let (pass, stack) = if leaving {
            (
                words::get(word::PASS) as usize,
                words::get(word::PROGRAM_STACK) as i64,
            )
        } else {
            (registers[libc::REG_RCX as usize] as usize, from[1])
        };
        [patch::place_in_libc(pass)? as i64, stack]
    } else {
        [patch::place_in_libc(at)? as i64, from[1]]
    };
    [registers[RIP], registers[RSP]] = to;
    Some((from, to))
}
