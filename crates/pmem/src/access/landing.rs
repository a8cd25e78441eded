//! Landing pads: the handling of faults of the medium and of callers' buffers.
//!
//! One handler for SIGBUS and SIGSEGV:
//! 0. A store in a window that another thread has closed the pages over is done again
//!    ([`crate::protection::pages`]).
//! 1. A fault inside a copy routine ends that copy, which returns a `Fault`.
//! 2. A SIGBUS on a registered mapping elsewhere (a single load or store): the
//!    page is replaced by private zeros, the mapping is marked failed, and the
//!    access is done again.
//! 3. Everything else goes to whoever had the signal before; of a store that a closed pool refused,
//!    a line says so first.
//!
//! The registry of mappings is a list that only grows, read without locks.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, OnceLock};

use crate::access::copy::{Left, landing};
use crate::protection::pages;
use crate::protection::stray;
use crate::raw;

/// No failure yet.
const SOUND: u64 = u64::MAX;

/// A mapping in the registry. The handler may walk the nodes at any time, so they are never freed;
/// a node without a mapping is reused.
#[derive(Debug)]
pub(crate) struct Node {
    /// Odd while the three words below change.
    version: AtomicU64,
    base: AtomicUsize,
    /// Bytes mapped; 0 if the node has no mapping.
    len: AtomicUsize,
    /// Bytes that a replacement page must cover.
    page_size: AtomicUsize,
    /// Pool offset of the first failure, or `SOUND`.
    failed: AtomicU64,
    /// Set once a store has failed.
    lost: AtomicBool,
    used: AtomicBool,
    next: AtomicPtr<Node>,
}

static HEAD: AtomicPtr<Node> = AtomicPtr::new(null_mut());
static REGISTRY: Mutex<()> = Mutex::new(());

impl Node {
    fn set(&self, base: usize, len: usize, page_size: usize) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.base.store(base, Ordering::SeqCst);
        self.len.store(len, Ordering::SeqCst);
        self.page_size.store(page_size, Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// The base, length and page size, read as one consistent state.
    fn get(&self) -> (usize, usize, usize) {
        loop {
            let version = self.version.load(Ordering::SeqCst);
            let all = (
                self.base.load(Ordering::SeqCst),
                self.len.load(Ordering::SeqCst),
                self.page_size.load(Ordering::SeqCst),
            );
            if version.is_multiple_of(2) && self.version.load(Ordering::SeqCst) == version {
                return all;
            }
            std::hint::spin_loop();
        }
    }

    /// Sets the length of the mapping, which has grown.
    pub(crate) fn grow(&self, len: usize) {
        self.len.fetch_max(len, Ordering::SeqCst);
    }

    /// Pool offset of the first failure.
    #[inline]
    pub(crate) fn failed(&self) -> Option<u64> {
        match self.failed.load(Ordering::Acquire) {
            SOUND => None,
            offset => Some(offset),
        }
    }

    /// Returns whether a store has failed.
    pub(crate) fn lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Marks the mapping as lost, from `offset` first. Async-signal-safe.
    pub(crate) fn fail(&self, offset: u64) {
        let _ = self
            .failed
            .compare_exchange(SOUND, offset, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// Adds a mapping to the registry.
pub(crate) fn register(base: *mut u8, len: usize, page_size: usize) -> &'static Node {
    install();
    let _guard = REGISTRY.lock().unwrap_or_else(|e| e.into_inner());
    let mut at = HEAD.load(Ordering::Acquire);
    // SAFETY: nodes are leaked boxes, so every pointer in the list is valid.
    while let Some(node) = unsafe { at.as_ref() } {
        if !node.used.load(Ordering::Acquire) {
            node.used.store(true, Ordering::Release);
            node.failed.store(SOUND, Ordering::Release);
            node.lost.store(false, Ordering::Release);
            node.set(base.addr(), len, page_size);
            return node;
        }
        at = node.next.load(Ordering::Acquire);
    }
    let node: &'static Node = Box::leak(Box::new(Node {
        version: AtomicU64::new(0),
        base: AtomicUsize::new(base.addr()),
        len: AtomicUsize::new(len),
        page_size: AtomicUsize::new(page_size),
        failed: AtomicU64::new(SOUND),
        lost: AtomicBool::new(false),
        used: AtomicBool::new(true),
        next: AtomicPtr::new(HEAD.load(Ordering::Acquire)),
    }));
    HEAD.store(std::ptr::from_ref(node).cast_mut(), Ordering::Release);
    node
}

/// Removes a mapping from the registry, before munmap.
pub(crate) fn unregister(node: &'static Node) {
    let _guard = REGISTRY.lock().unwrap_or_else(|e| e.into_inner());
    node.set(0, 0, 0);
    node.used.store(false, Ordering::Release);
}

/// The previous signal dispositions, saved before ours are installed.
static PREVIOUS: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];

fn previous(signal: libc::c_int) -> &'static OnceLock<libc::sigaction> {
    &PREVIOUS[usize::from(signal == libc::SIGSEGV)]
}

static INSTALLED: Once = Once::new();

/// Leaves the two signals to a face with handlers of its own, which call [`land`] first.
pub(crate) fn leave_to_face() {
    INSTALLED.call_once(|| {});
}

/// Installs the handler once in a process.
pub(crate) fn install() {
    INSTALLED.call_once(|| {
        for signal in [libc::SIGBUS, libc::SIGSEGV] {
            // SAFETY: all-zero is a valid sigaction (default, empty mask); both
            // calls get valid pointers; the handler is async-signal-safe.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut old);
                let _ = previous(signal).set(old);
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = on_fault as *const () as usize;
                new.sa_flags = libc::SA_ONSTACK | libc::SA_SIGINFO;
                libc::sigaction(signal, &new, null_mut());
            }
        }
    });
}

/// Bit of a page fault's error code: the access was a store.
const ERROR_WRITE: i64 = 1 << 1;

/// The last si_code value of SIGBUS, absent from libc: a poisoned page was found early, without an
/// access of this thread.
const BUS_MCEERR_AO: libc::c_int = 5;

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel's pointers.
    if !unsafe { land(signal, info, context) } {
        // SAFETY: as above.
        unsafe { tell_of_stray(signal, info, context) };
        chain(signal, info, context);
    }
}

/// Continues behind a copy that faulted, or with zeros where the medium has lost a page. Returns
/// whether the fault was one of these. Async-signal-safe.
///
/// # Safety
/// The pointers are those that the kernel gave to a handler of SIGSEGV or SIGBUS.
pub(crate) unsafe fn land(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) -> bool {
    // SAFETY: the kernel gives an SA_SIGINFO handler valid pointers.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // A signal of kill(2) or the like is no fault of the interrupted instruction.
    let own = code > 0 && !(signal == libc::SIGBUS && code == BUS_MCEERR_AO);
    if own {
        // SAFETY: as above; the context of this thread is ours to change.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        if stray::is_refused_store(signal, code, registers) && is_reopened(address) {
            return true;
        }
        let rip = registers[libc::REG_RIP as usize] as usize;
        if let Some((land, left)) = landing(rip) {
            let left = match left {
                Left::Rcx => registers[libc::REG_RCX as usize],
                Left::Rdx => registers[libc::REG_RDX as usize],
            };
            registers[libc::REG_RAX as usize] = left;
            registers[libc::REG_RDX as usize] = address as i64;
            registers[libc::REG_RIP as usize] = land as i64;
            return true;
        }
        let stores = registers[libc::REG_ERR as usize] & ERROR_WRITE != 0;
        return signal == libc::SIGBUS && replace_page(address, stores);
    }
    false
}

/// The registered mapping that contains an address, its base and its page size. Async-signal-safe.
fn mapping_at(address: usize) -> Option<(&'static Node, usize, usize)> {
    let mut at = HEAD.load(Ordering::Acquire);
    // SAFETY: nodes are leaked boxes, so every pointer in the list is valid.
    while let Some(node) = unsafe { at.as_ref() } {
        let (base, len, page_size) = node.get();
        if address.wrapping_sub(base) < len {
            return Some((node, base, page_size));
        }
        at = node.next.load(Ordering::Acquire);
    }
    None
}

/// Returns whether the store was inside a window whose pages another thread had closed, and the
/// pages are open again.
fn is_reopened(address: usize) -> bool {
    mapping_at(address).is_some_and(|(node, base, _)| {
        let len = node.len.load(Ordering::SeqCst);
        pages::reopen(base, len)
    })
}

/// The pool offset of an address inside a mapped pool. Async-signal-safe.
fn offset_in_pool(address: usize) -> Option<usize> {
    mapping_at(address).map(|(_, base, _)| address - base)
}

/// Reports a store or load that a pool refused, if that is the cause of the fault.
/// Async-signal-safe.
///
/// # Safety
/// The arguments of a signal handler, as for [`land`].
pub(crate) unsafe fn tell_of_stray(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the caller's promise.
    unsafe { stray::tell(signal, info, context, offset_in_pool) };
}

/// Replaces an inaccessible page of a registered mapping by zeros.
fn replace_page(address: usize, stores: bool) -> bool {
    let Some((node, base, page_size)) = mapping_at(address) else {
        return false;
    };
    let page = address & !(page_size - 1);
    let permissions = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as usize;
    let none = usize::MAX;
    // SAFETY: the page lies in a mapping of ours that can't be reached
    // any more; no reference into it exists.
    let zeros = unsafe {
        raw::call(
            libc::SYS_mmap,
            [page, page_size, permissions, flags, none, 0],
        )
    };
    let done = zeros == page as isize;
    if done {
        node.lost.fetch_or(stores, Ordering::AcqRel);
        node.fail((address - base) as u64);
    }
    done
}

/// Passes a signal on to its previous disposition.
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(old) = previous(signal).get() else {
        return;
    };
    // SAFETY: `info` is valid (see on_fault); a handler in `old` was installed
    // as a handler of the kind that its flags say; sigaction, pthread_sigmask
    // and raise are async-signal-safe.
    unsafe {
        let sent = (*info).si_code <= 0;
        match old.sa_sigaction {
            libc::SIG_IGN if sent => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                // A fault happens again on return, and then kills with the
                // right signal and core; a sent signal has to be sent again.
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, null_mut());
                if sent {
                    libc::raise(signal);
                }
            }
            handler => {
                libc::pthread_sigmask(libc::SIG_BLOCK, &old.sa_mask, null_mut());
                if old.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(
                        libc::c_int,
                        *mut libc::siginfo_t,
                        *mut libc::c_void,
                    ) = std::mem::transmute(handler);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                    handler(signal);
                }
            }
        }
    }
}
