//! Goal: the processes of any shared memory follow the rules of a pool's. Method: a heap of a few
//! words, attached several times.

mod heap;

use heap::{Scratch, lock};
use pmshare::owner::{self, Held};
use pmshare::{Dead, Shared, patrol, rescue};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Goal: a waiter gets the lock of a process that died with it, after the heap's own rescue has
/// run; a call that holds nothing frees the slot.
#[test]
fn a_dead_holder_is_cleaned_up_after() {
    let scratch = Scratch::new();
    let (living, dead) = (scratch.open(), scratch.open());
    let slot = dead.holder().slot;
    let _writable = living.mem().writable();
    owner::acquire(&dead, lock(3));
    assert!(!owner::try_acquire(&living, lock(3)));
    // The slot's bytes of the file are unlocked, as after the end of its process.
    drop(dead);
    let held = Held::new(&living, lock(3));
    assert_eq!(*living.rescued.lock().unwrap(), [Dead::Slot(slot)]);
    drop(held);
    assert!(living.is_marked(slot));
    patrol::writable(&living).expect("it may change the heap");
    assert!(!living.is_marked(slot));
    assert_eq!(scratch.open().holder().slot, slot);
}

/// Goal: the same for a dead thread of the same process.
#[test]
fn a_dead_thread_is_cleaned_up_after() {
    let scratch = Scratch::new();
    let place = scratch.open();
    let _writable = place.mem().writable();
    thread::scope(|scope| {
        let dies = scope.spawn(|| {
            let _writable = place.mem().writable();
            owner::acquire(&place, lock(5));
        });
        dies.join().expect("it ends");
    });
    drop(Held::new(&place, lock(5)));
    assert!(matches!(
        place.rescued.lock().unwrap()[..],
        [Dead::Thread(_), ..]
    ));
}

/// Goal: a living holder is waited for.
#[test]
fn a_living_holder_is_waited_for() {
    let scratch = Scratch::new();
    let (first, second) = (scratch.open(), scratch.open());
    let _writable = first.mem().writable();
    owner::acquire(&first, lock(0));
    let (has_it, got) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _writable = second.mem().writable();
            let held = Held::new(&second, lock(0));
            has_it.send(()).unwrap();
            drop(held);
        });
        assert!(got.recv_timeout(Duration::from_millis(100)).is_err());
        owner::release(&first, lock(0));
        got.recv_timeout(Duration::from_secs(10))
            .expect("it is free");
    });
    assert!(second.rescued.lock().unwrap().is_empty());
}

/// Goal: if the dead have all slots, a newcomer cleans up and gets one.
#[test]
fn a_newcomer_finds_a_slot() {
    let scratch = Scratch::new();
    let all: Vec<_> = (1..16).map(|_| scratch.open()).collect();
    drop(all);
    let place = scratch.open();
    assert_eq!(place.rescued.lock().unwrap().len(), 15);
    assert_eq!(place.marked_slots(), [place.holder().slot]);
    place.leave();
}

/// Goal: a successor gets its locks and its slot as text, and then owns the slot.
#[test]
fn a_successor_moves_in() {
    let scratch = Scratch::new();
    let place = scratch.open();
    let _writable = place.mem().writable();
    let reserved = place.reserve(&scratch.path).expect("a slot");
    let next = reserved.holder;
    place.mark_slot(next, 0);
    assert!(place.is_held_as(next) && !place.slot_dead(next.slot));
    place.adopt(&scratch.path, reserved).expect("it moves in");
    assert_eq!(place.holder(), next);
    assert_eq!(rescue::recover_dead(&place).expect("none fails").slots, 1);
}
