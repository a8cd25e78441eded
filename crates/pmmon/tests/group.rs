//! Goal: writers are on the cores of writers for exactly as long as they shall be, and all masks
//! are in the end as they were, unless the program itself has changed them. Method: random looks,
//! times and changes by the program, on masks in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use pmmon::Tid;
use pmmon::group::{Affinity, Cores, Group, Groups, Place, Specialiser, cores, listed};
use proptest::prelude::*;

const EXPIRY: u64 = 200;
const GENERAL: u64 = 1000;
const THREADS: Tid = 4;
/// The thread whose cpuset has none of the cores of writers.
const BOUND: Tid = 3;

#[derive(Debug, Default)]
struct Masks(BTreeMap<Tid, Cores>);

impl Affinity for Masks {
    fn get(&self, tid: Tid) -> io::Result<Cores> {
        let found = self.0.get(&tid).cloned();
        found.ok_or_else(|| io::Error::from_raw_os_error(3))
    }

    fn set(&mut self, tid: Tid, cores: &Cores) -> io::Result<()> {
        if tid == BOUND && cores.iter().all(|core| *core < 3) {
            return Err(io::Error::from_raw_os_error(22));
        }
        self.0.insert(tid, cores.clone());
        Ok(())
    }
}

fn own(tid: Tid) -> Cores {
    (tid..16).collect()
}

fn groups(is_sticky: bool) -> Groups {
    let group = |cores: std::ops::Range<u32>, expiry_ns| Group {
        cores: cores.collect(),
        expiry_ns,
    };
    Groups {
        general: group(3..16, GENERAL),
        pm: group(0..3, EXPIRY),
        is_sticky,
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Threads seen to write, and the time since the last look.
    Look(BTreeSet<Tid>, u64),
    /// The program sets a mask itself.
    Program(Tid),
}

fn step() -> impl Strategy<Value = Step> {
    let seen = proptest::collection::btree_set(0..THREADS, 0..4);
    prop_oneof![
        8 => (seen, 1..300u64).prop_map(|(seen, time)| Step::Look(seen, time)),
        1 => (0..BOUND).prop_map(Step::Program),
    ]
}

/// Masks that both the program and the groups can set would be taken for the groups'.
fn by_program() -> Cores {
    BTreeSet::from([15])
}

fn check(is_sticky: bool, steps: &[Step]) {
    let masks = Masks((0..THREADS).map(|tid| (tid, own(tid))).collect());
    let shared = std::rc::Rc::new(std::cell::RefCell::new(masks));
    let mut specialiser = Specialiser::new(groups(is_sticky), Shared(shared.clone()));
    let (mut now, mut sights, mut changed) = (0, BTreeMap::new(), BTreeSet::new());
    for step in steps {
        match step {
            Step::Look(seen, time) => {
                now += time;
                specialiser.look(seen, now);
                sights.extend(seen.iter().map(|tid| (*tid, now)));
                for tid in (0..BOUND).filter(|tid| !changed.contains(tid)) {
                    let since = sights.get(&tid).map(|sight| now - sight);
                    let stays =
                        since.is_some_and(|since| since == 0 || is_sticky && since < EXPIRY);
                    let place = specialiser.place(tid);
                    assert_eq!(matches!(place, Place::Pm(_)), stays, "{tid} at {now}");
                    let mask = &shared.borrow().0[&tid];
                    let expected = match place {
                        Place::Own => own(tid),
                        Place::General(_) => groups(is_sticky).general.cores,
                        Place::Pm(_) => groups(is_sticky).pm.cores,
                    };
                    assert_eq!(*mask, expected, "{tid} in {place:?}");
                }
            }
            Step::Program(tid) => {
                changed.insert(*tid);
                shared.borrow_mut().0.insert(*tid, by_program());
            }
        }
        assert_eq!(shared.borrow().0[&BOUND], own(BOUND));
    }
    let (_, failed) = specialiser.end();
    assert!(failed.is_empty());
    for tid in 0..THREADS {
        let mask = &shared.borrow().0[&tid];
        let by_itself = changed.contains(&tid) && *mask == by_program();
        assert!(by_itself || *mask == own(tid), "{tid}: {mask:?}");
    }
}

#[derive(Debug)]
struct Shared(std::rc::Rc<std::cell::RefCell<Masks>>);

impl Affinity for Shared {
    fn get(&self, tid: Tid) -> io::Result<Cores> {
        self.0.borrow().get(tid)
    }

    fn set(&mut self, tid: Tid, cores: &Cores) -> io::Result<()> {
        self.0.borrow_mut().set(tid, cores)
    }
}

proptest! {
    #[test]
    fn masks_follow_and_come_back(
        is_sticky: bool,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        check(is_sticky, &steps);
    }
}

/// Goal: the way out of the groups, by time. Method: one sight, and looks at the edges.
#[test]
fn a_writer_leaves_by_steps() {
    let masks = Masks(BTreeMap::from([(1, own(1))]));
    let mut specialiser = Specialiser::new(groups(true), masks);
    let none = BTreeSet::new();
    specialiser.look(&BTreeSet::from([1, 77]), 0);
    for (time, place) in [
        (EXPIRY - 1, Place::Pm(EXPIRY)),
        (EXPIRY, Place::General(EXPIRY + GENERAL)),
        (EXPIRY + GENERAL - 1, Place::General(EXPIRY + GENERAL)),
        (EXPIRY + GENERAL, Place::Own),
    ] {
        specialiser.look(&none, time);
        assert_eq!(specialiser.place(1), place, "at {time}");
    }
    let (masks, failed) = specialiser.end();
    assert_eq!((masks.0[&1].clone(), failed), (own(1), vec![]));
}

/// Goal: a thread that a writer has started, and which has the writer's mask by that, gets the
/// writer's own mask in the end. Method: one is born within each group, one elsewhere, and one of
/// another process.
#[test]
fn a_thread_born_in_a_group_leaves_it() {
    let masks = Masks(BTreeMap::from([(1, own(1)), (4, own(4))]));
    let shared = std::rc::Rc::new(std::cell::RefCell::new(masks));
    let mut specialiser = Specialiser::new(groups(true), Shared(shared.clone()));
    specialiser.look(&BTreeSet::from([1]), 0);
    let kin = BTreeSet::from([1]);
    for (tid, cores) in [
        (10, groups(true).pm.cores),
        (11, groups(true).general.cores),
        (12, own(1)),
    ] {
        shared.borrow_mut().0.insert(tid, cores);
        specialiser.born(tid, &kin);
    }
    shared.borrow_mut().0.insert(13, groups(true).pm.cores);
    specialiser.born(13, &BTreeSet::from([4]));
    assert!(matches!(specialiser.place(10), Place::Pm(_)));
    specialiser.look(&BTreeSet::new(), EXPIRY);
    specialiser.look(&BTreeSet::new(), EXPIRY + GENERAL);
    for tid in [1, 10, 11, 12] {
        assert_eq!(shared.borrow().0[&tid], own(1), "{tid}");
    }
    assert_eq!(shared.borrow().0[&13], groups(true).pm.cores);
}

/// Goal: threads follow when writers get other cores, a thread that was born with the cores before
/// is known for a writer's child, and all get their own masks in the end. Method: fewer and more
/// cores, and a thread that is met only after the change.
#[test]
fn writers_follow_to_other_cores() {
    let masks = Masks(BTreeMap::from([(1, own(1)), (2, own(2))]));
    let shared = std::rc::Rc::new(std::cell::RefCell::new(masks));
    let mut specialiser = Specialiser::new(groups(true), Shared(shared.clone()));
    let seen = BTreeSet::from([1, 2]);
    specialiser.look(&seen, 0);
    let before = groups(true).pm.cores;
    for (time, cores) in [(1, Cores::from([0])), (2, Cores::from([0, 1]))] {
        specialiser.set_pm_cores(cores.clone());
        assert_eq!(specialiser.groups().pm.cores, cores);
        let moved = specialiser.look(&BTreeSet::new(), time);
        assert_eq!(moved, [], "they stay in their group");
        for tid in [1, 2] {
            assert_eq!(shared.borrow().0[&tid], cores, "{tid} at {time}");
        }
    }
    shared.borrow_mut().0.insert(10, before);
    specialiser.born(10, &BTreeSet::from([1]));
    specialiser.look(&BTreeSet::from([10]), 3);
    assert_eq!(shared.borrow().0[&10], Cores::from([0, 1]));
    let (masks, failed) = specialiser.end();
    assert!(failed.is_empty());
    for (tid, mask) in [(1, own(1)), (2, own(2)), (10, own(1))] {
        assert_eq!(masks.get(tid).unwrap(), mask, "{tid}");
    }
}

/// Goal: lists of cores are read and written as the kernel does.
#[test]
fn cores_are_listed() {
    for text in ["0", "0-2", "0-2,5", "1,3,5-7,1023"] {
        assert_eq!(listed(&cores(text).unwrap()), text);
    }
    for text in ["", "a", "2-1", "1024", "0,", "0--1", "4294967296"] {
        assert_eq!(cores(text), None, "{text}");
    }
}
