//! A set of addresses in the text.

/// A set of addresses: a mark for each byte of the text. Addresses outside of it are never in the
/// set.
pub(crate) struct Addresses {
    vaddr: u64,
    marks: Vec<bool>,
}

impl Addresses {
    /// None of `len` addresses from `vaddr` on.
    pub(crate) fn new(vaddr: u64, len: usize) -> Self {
        Addresses {
            vaddr,
            marks: vec![false; len],
        }
    }

    /// Ignored outside of the text.
    pub(crate) fn add(&mut self, address: u64) {
        let at = usize::try_from(address.wrapping_sub(self.vaddr));
        if let Some(mark) = at.ok().and_then(|at| self.marks.get_mut(at)) {
            *mark = true;
        }
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        let at = usize::try_from(address.wrapping_sub(self.vaddr));
        at.is_ok_and(|at| self.marks.get(at) == Some(&true))
    }
}
