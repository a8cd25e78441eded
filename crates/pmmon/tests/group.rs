//! Goal: writers are on the cores of writers for exactly as long as they shall be, and all masks
//! are in the end as they were, unless the program itself has changed them. Method: random looks,
//! times and changes by the program, on masks in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use pmmon::Tid;
use pmmon::group::{Affinity, Cores, Group, Groups, Place, Specialiser};
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
