//! The heaps in which a thread has a transaction: it has one of each at most.

use std::cell::{Cell, RefCell};

use pmem::Identity;

/// A heap, and the process, which may be a copy.
type In = (Identity, u64);

thread_local! {
    /// The heap in which this thread has a transaction, mostly the only one.
    static IN: Cell<Option<In>> = const { Cell::new(None) };
    /// Others in which it has one.
    static ALSO_IN: RefCell<Vec<In>> = const { RefCell::new(Vec::new()) };
}

/// Notes that this thread has a transaction of a heap; `false`: it has one.
pub(crate) fn enters(heap: In) -> bool {
    let first = IN.get();
    if first == Some(heap) || ALSO_IN.with_borrow(|also| also.contains(&heap)) {
        return false;
    }
    match first {
        None => IN.set(Some(heap)),
        Some(_) => ALSO_IN.with_borrow_mut(|also| also.push(heap)),
    }
    true
}

/// The transaction of that heap has ended.
pub(crate) fn leaves(heap: In) {
    if IN.get() == Some(heap) {
        IN.set(None);
    } else {
        // A thread that ends may have lost its list already.
        let _ = ALSO_IN.try_with(|also| also.borrow_mut().retain(|&other| other != heap));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whichever of several is left first, the others are still noted.
    #[test]
    fn one_of_each_heap() {
        let heap = |ino| (Identity { dev: 7, ino }, 1);
        for order in [[1, 2, 3], [2, 3, 1], [3, 1, 2]] {
            assert!((1..=3).all(|ino| enters(heap(ino))));
            for (at, &ino) in order.iter().enumerate() {
                assert!(order[at..].iter().all(|&ino| !enters(heap(ino))));
                leaves(heap(ino));
                assert!(enters(heap(ino)));
                leaves(heap(ino));
            }
        }
    }
}
