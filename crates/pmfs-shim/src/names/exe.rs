//! The program's own name, the target of `/proc/self/exe`.

use std::sync::OnceLock;

use crate::own::kernel::{self, PATH};

/// This program's name in the pool, if the kernel runs a copy of it.
static OWN_NAME: OnceLock<Vec<u8>> = OnceLock::new();

pub(crate) fn own_name() -> Option<&'static [u8]> {
    OWN_NAME.get().map(Vec::as_slice)
}

/// Keeps the name that the previous program has handed over, and tells it to the kernel, for ps.
pub(crate) fn set_own_name(name: &[u8]) {
    let from = name.iter().rposition(|byte| *byte == b'/');
    let short = [&name[from.map_or(0, |at| at + 1)..], b"\0"].concat();
    let args = [libc::PR_SET_NAME as u64, PATH, 0, 0, 0, 0];
    kernel::with_path(libc::SYS_prctl, args, &short);
    let _ = OWN_NAME.set(name.to_vec());
}
