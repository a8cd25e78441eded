//! Memory of the program that a preloaded library serves. Its pointers may be invalid, so each copy
//! has a landing pad (docs/adr/0048-program-memory.md).

use crate::access::copy::Copier;
use crate::access::landing;
pub use crate::error::BadAddress;

/// Leaves SIGSEGV and SIGBUS to the face, whose handlers call [`land`] first.
pub fn leave_faults_to_face() {
    landing::leave_to_face();
}

/// Continues behind a copy that faulted, or with zeros where the medium has lost a page. Returns
/// whether the fault was one of these. Async-signal-safe.
///
/// # Safety
/// The pointers are those that the kernel gave to a handler of SIGSEGV or SIGBUS.
pub unsafe fn land(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe { landing::land(signal, info, context) }
}

/// Reports on stderr a store or load that a closed pool refused, if [`land`] did not handle the
/// fault and that is its cause. Async-signal-safe.
///
/// # Safety
/// The arguments of a signal handler, as for [`land`].
pub unsafe fn tell_of_stray(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the caller's promise.
    unsafe { landing::tell_of_stray(signal, info, context) };
}

/// Copies from an address of the program.
///
/// # Errors
/// [`BadAddress`].
#[inline]
pub fn copy_in(to: &mut [u8], from: usize) -> Result<(), BadAddress> {
    let source = std::ptr::with_exposed_provenance::<u8>(from);
    // SAFETY: `to` is the caller's exclusive buffer; a source that is not there ends the copy at
    // its landing.
    unsafe { Copier::best().copy(to.as_mut_ptr(), source, to.len()) }
        .map_err(|(done, _)| BadAddress { done })
}

/// Copies to an address of the program.
///
/// # Errors
/// [`BadAddress`].
///
/// # Safety
/// The program asked for these bytes to be stored there, and nothing else of this process lies
/// there.
#[inline]
pub unsafe fn copy_out(to: usize, from: &[u8]) -> Result<(), BadAddress> {
    let target = std::ptr::with_exposed_provenance_mut::<u8>(to);
    // SAFETY: the caller's promise; a target that is not there ends the copy at its landing.
    unsafe { Copier::best().copy(target, from.as_ptr(), from.len()) }
        .map_err(|(done, _)| BadAddress { done })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_an_answer() {
        landing::install();
        let mut buffer = [1u8; 8];
        assert_eq!(copy_in(&mut buffer, 0), Err(BadAddress { done: 0 }));
        assert_eq!(
            copy_in(&mut buffer, usize::MAX - 2),
            Err(BadAddress { done: 0 })
        );
        let source = [2u8; 8];
        assert_eq!(
            copy_in(&mut buffer, source.as_ptr().expose_provenance()),
            Ok(())
        );
        assert_eq!(buffer, source);
        // SAFETY: a null page, and a buffer of this test.
        unsafe {
            assert_eq!(copy_out(8, &buffer), Err(BadAddress { done: 0 }));
            let at = buffer.as_mut_ptr().expose_provenance();
            assert_eq!(copy_out(at, &[3; 8]), Ok(()));
        }
        assert_eq!(std::hint::black_box(buffer), [3; 8]);
    }
}
