//! Goal: structs of what may be kept in a heap may be kept there, by a crate without unsafe code;
//! what they are is told by a fingerprint that changes whenever their bytes mean something else.
//! Method: structs that differ in one thing each.
#![forbid(unsafe_code)]

use pmlib::{P, PmSafe, RawP};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// A struct with all derives.
macro_rules! kept {
    ($(#[$attribute:meta])* $name:ident { $($field:ident: $ty:ty),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        struct $name {
            $($field: $ty),*
        }
    };
}

kept!(Node {
    value: u64,
    next: P<Node>,
    both: [P<Node>; 2],
});

kept!(Tree {
    root: Node,
    size: f64,
    small: [u32; 3],
    rest: i32,
});

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(transparent)]
struct Meters(f64);

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(16))]
struct Pair(u64, Meters);

fn traced(of: &impl PmSafe) -> Vec<u64> {
    let mut seen = Vec::new();
    of.trace(&mut |RawP(offset)| seen.push(offset));
    seen
}

#[test]
fn pointers_are_found_wherever_they_stand() {
    let mut tree = Tree::new_zeroed();
    assert_eq!(traced(&tree), [0; 0], "nowhere is no place");
    tree.root.value = 4096;
    tree.root.next = P::at(RawP(64));
    tree.root.both[1] = P::at(RawP(128));
    tree.size = 5e300;
    assert_eq!(traced(&tree), [64, 128]);
    // The value as bytes, and back.
    let again = Tree::read_from_bytes(tree.as_bytes()).unwrap();
    assert_eq!(traced(&again), [64, 128]);
    assert_eq!((again.size, again.root.value), (5e300, 4096));
    assert_eq!(traced(&Pair(1, Meters(2.0))), [0; 0]);
}

#[test]
fn a_pointer_is_an_offset_or_nothing() {
    let mut to: P<Node> = P::default();
    assert!(to.is_none() && to.get().is_none() && to == P::NONE);
    assert_eq!(to.or(P::at(RawP(8))), P::at(RawP(8)));
    assert_eq!(to.replace(P::at(RawP(192))), P::NONE);
    assert_eq!(
        (to.get(), to.as_bytes()),
        (Some(RawP(192)), 192u64.as_bytes())
    );
    assert_eq!(format!("{to:?} {:?}", P::<u8>::NONE), "P(0xc0) P(none)");
    assert_eq!((to.take(), to.is_some()), (P::at(RawP(192)), false));
}

kept!(Account {
    balance: u64,
    opened: u64,
});

mod other {
    use super::*;
    kept!(Account2 {
        balance: u64,
        opened: u64
    });
    kept!(Swapped {
        opened: u64,
        balance: u64
    });
    kept!(Renamed {
        balance: u64,
        closed: u64
    });
    kept!(Signed {
        balance: i64,
        opened: u64
    });
    kept!(Floating {
        balance: u64,
        opened: f64
    });
    kept!(Longer {
        balance: u64,
        opened: u64,
        more: u64
    });
    kept!(Shorter { balance: u64 });
    kept!(Nested {
        balance: Shorter,
        opened: u64
    });
    kept!(Array {
        balance: [u64; 1],
        opened: u64
    });
    kept!(Pointing { balance: P<u64>, opened: u64 });
    kept!(
        #[repr(align(32))]
        Aligned {
            balance: u64,
            opened: u64,
            rest: [u64; 2]
        }
    );
    kept!(Unaligned {
        balance: u64,
        opened: u64,
        rest: [u64; 2]
    });

    pub fn all() -> Vec<u64> {
        vec![
            Swapped::FINGERPRINT,
            Renamed::FINGERPRINT,
            Signed::FINGERPRINT,
            Floating::FINGERPRINT,
            Longer::FINGERPRINT,
            Shorter::FINGERPRINT,
            Nested::FINGERPRINT,
            Array::FINGERPRINT,
            Pointing::FINGERPRINT,
            Unaligned::FINGERPRINT,
            <[u64; 2]>::FINGERPRINT,
            <[u64; 3]>::FINGERPRINT,
            <[u32; 4]>::FINGERPRINT,
            u64::FINGERPRINT,
            Node::FINGERPRINT,
        ]
    }

    pub fn same() -> [u64; 2] {
        assert_eq!(
            Aligned::FINGERPRINT,
            Unaligned::FINGERPRINT,
            "nothing moved"
        );
        [Account::FINGERPRINT, Account2::FINGERPRINT]
    }
}

#[test]
fn a_fingerprint_changes_with_what_it_is_of() {
    let mut all = other::all();
    let [first, second] = other::same();
    assert_eq!(first, second, "what it is called is its author's");
    all.push(first);
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "one for each");
}

/// Heaps keep fingerprints: a build that makes others would take them for other types.
#[test]
fn fingerprints_stay() {
    assert_eq!(u64::FINGERPRINT, 0x1f52_6112_eaf6_919f);
    assert_eq!(Account::FINGERPRINT, 0x7dba_96de_1462_8e7b);
    assert_eq!(Tree::FINGERPRINT, 0xfae4_fb80_29e5_6db8);
}
