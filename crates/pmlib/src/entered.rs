//! The heaps in which a thread has a transaction: it has one of each at most.

use std::cell::{Cell, RefCell};

use pmem::Identity;

/// A heap, and the process, which may be a copy.
type In = (Identity, u64);

thread_local! {
    /// The heap in which this thread has a transaction, mostly the only one. Nobody knows of others
    /// while there is none.
    static IN: Cell<Option<In>> = const { Cell::new(None) };
    /// How many others there are in which it has one.
    static OTHERS: Cell<usize> = const { Cell::new(0) };
    static ALSO_IN: RefCell<Vec<In>> = const { RefCell::new(Vec::new()) };
}

/// Notes that this thread has a transaction of a heap; `false`: it has one.
#[inline]
pub(crate) fn enters(heap: In) -> bool {
    match IN.get() {
        None => {
            IN.set(Some(heap));
            true
        }
        Some(first) => first != heap && enters_also(heap),
    }
}

#[cold]
fn enters_also(heap: In) -> bool {
    ALSO_IN.with_borrow_mut(|also| {
        let is_new = !also.contains(&heap);
        if is_new {
            also.push(heap);
            OTHERS.set(also.len());
        }
        is_new
    })
}

/// Whether this thread has a transaction of a heap.
pub(crate) fn is_in(heap: In) -> bool {
    let first = IN.get();
    first == Some(heap) || first.is_some() && ALSO_IN.with_borrow(|also| also.contains(&heap))
}

/// The transaction of that heap has ended.
#[inline]
pub(crate) fn leaves(heap: In) {
    if IN.get() == Some(heap) && OTHERS.get() == 0 {
        IN.set(None);
    } else {
        leaves_one(heap);
    }
}

#[cold]
fn leaves_one(heap: In) {
    // A thread that ends may have lost its list already.
    let _ = ALSO_IN.try_with(|also| {
        let mut also = also.borrow_mut();
        if IN.get() == Some(heap) {
            IN.set(also.pop());
        } else {
            also.retain(|&other| other != heap);
        }
        OTHERS.set(also.len());
    });
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
