//! Goal: values come back as they were put; a pointer that is wrong is an error of its cause.
//! Method: the public face, in a crate without unsafe code.
#![forbid(unsafe_code)]

use pmem::Pmem;
use pmlib::{Error, Heap, Options, P, PmSafe, RawP, field};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Account {
    balance: u64,
    small: [u16; 4],
    next: P<Account>,
}

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Wide {
    value: u128,
}

fn account(balance: u64) -> Account {
    Account {
        balance,
        small: [1, 2, 3, 4],
        next: P::NONE,
    }
}

fn options() -> Options {
    Options {
        lanes: 2,
        lane_bytes: 4096,
        seed: 7,
        ..Options::default()
    }
}

fn heap() -> Heap {
    Heap::private(1 << 20, &options()).unwrap()
}

fn reopened(heap: Heap) -> Heap {
    Heap::attach(heap.into_memory()).unwrap()
}

#[test]
fn values_are_made_read_and_edited() {
    let heap = heap();
    let [first, second] = heap
        .tx(|tx| {
            let first = tx.new(account(5))?;
            let second = tx.new(Account {
                next: first,
                ..account(6)
            })?;
            tx.edit(first)?.balance += 1;
            assert_eq!(tx.read(first)?.balance, 6, "its own changes");
            Ok::<_, Error>([first, second])
        })
        .unwrap();
    assert_eq!(heap.read(first).unwrap(), account(6));
    let failed: Result<(), Error> = heap.tx(|tx| {
        tx.edit(first)?.balance = 0;
        tx.free(second)?;
        Err(Error::Deadlock)
    });
    assert!(failed.is_err());
    heap.tx(|tx| {
        tx.lock_all([second, first])?;
        tx.lock(first)?;
        let from = tx.edit(first)?;
        let mut from = from;
        from.balance -= 2;
        tx.edit(second)?.balance += 2;
        // One field alone.
        tx.edit(field!(second, Account, small))?[3] = 9;
        *tx.edit(field!(first, Account, next))? = second;
        Ok::<_, Error>(())
    })
    .unwrap();
    let heap = reopened(heap);
    let [one, two] = [first, second].map(|p| heap.read(p).unwrap());
    assert_eq!((one.balance, two.balance, one.next), (4, 8, second));
    assert_eq!(heap.read(two.next).unwrap(), one);
    assert_eq!(
        heap.read(field!(second, Account, small)).unwrap(),
        [1, 2, 3, 9]
    );
    heap.tx(|tx| tx.free(first)).unwrap();
    assert!(matches!(heap.read(first), Err(Error::NoObject { .. })));
}

#[test]
fn a_part_of_a_slice_is_edited() {
    let heap = heap();
    let words = heap
        .tx(|tx| tx.new_slice(&[1u16, 2, 3, 4, 5, 6, 7]))
        .unwrap();
    heap.tx(|tx| {
        tx.edit_range(words, 1..4)?.fill(9);
        assert_eq!(tx.read_range(words, 0..5)?, [1, 9, 9, 9, 5]);
        tx.edit_range(words, 6..7)?[0] += 1;
        Ok::<_, Error>(())
    })
    .unwrap();
    let heap = reopened(heap);
    assert_eq!(heap.read_range(words, 0..7).unwrap(), [1, 9, 9, 9, 5, 6, 8]);
    assert_eq!(heap.read_range(words, 3..3).unwrap(), [0u16; 0]);
    let accounts = heap.tx(|tx| tx.new([account(1), account(2)])).unwrap();
    heap.tx(|tx| {
        tx.edit_range(accounts.slice(), 1..2)?[0].balance = 7;
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(heap.read(accounts).unwrap(), [account(1), account(7)]);
    #[expect(clippy::reversed_empty_ranges, reason = "an error is asked for")]
    let wrong = [4..3, 0..9, 8..9, 0..u64::MAX, u64::MAX..u64::MAX];
    for range in wrong {
        let edited = heap.tx(|tx| tx.edit_range(words, range.clone()).map(drop));
        assert!(matches!(edited, Err(Error::Range { .. })), "{range:?}");
        let read = heap.read_range(words, range.clone());
        assert!(matches!(read, Err(Error::Range { .. })), "{range:?}");
    }
}

#[test]
fn a_value_of_any_alignment_is_written() {
    let heap = heap();
    let wide = heap.tx(|tx| tx.new(Wide { value: 1 << 100 })).unwrap();
    heap.tx(|tx| tx.write(wide, &Wide { value: 3 << 90 }))
        .unwrap();
    assert_eq!(heap.read(wide).unwrap().value, 3 << 90);
    heap.tx(|tx| tx.write(field!(wide, Wide, value), &5))
        .unwrap();
    assert_eq!(heap.read(wide).unwrap().value, 5);
}

/// Goal: pointers that were made up, that are of another heap, of what was freed, or of what has
/// another class of sizes, are errors, of every call.
#[test]
fn wrong_pointers_are_errors() {
    let heap = heap();
    let (small, large, run) = heap
        .tx(|tx| Ok::<_, Error>((tx.alloc(16)?, tx.alloc(500)?, tx.alloc(100_000)?)))
        .unwrap();
    let calls = |p: P<Account>| {
        [
            heap.read(p).map(drop),
            heap.tx(|tx| tx.read(p).map(drop)),
            heap.tx(|tx| tx.edit(p).map(drop)),
            heap.tx(|tx| tx.write(p, &account(1))),
            heap.view(|view| view.read(p).map(drop)),
        ]
    };
    let by_class = |found: &Result<(), Error>| matches!(found, Err(Error::Class { .. }));
    let no_object = |found: &Result<(), Error>| matches!(found, Err(Error::NoObject { .. }));
    for offset in [small, large, run] {
        let all = calls(P::at(RawP(offset)));
        assert!(all.iter().all(by_class), "{offset:#x}: {all:?}");
    }
    let wrong = [
        0,
        1,
        8,
        4096,
        small + 8,
        small + 16,
        run + 65_536,
        1 << 21,
        1 << 50,
        u64::MAX,
    ];
    for offset in wrong {
        let p = P::<Account>::at(RawP(offset));
        let all = calls(p);
        assert!(all.iter().all(no_object), "{offset:#x}: {all:?}");
        assert!(no_object(&heap.tx(|tx| tx.free(p))), "{offset:#x}");
        let slice = P::<[Account]>::at(RawP(offset));
        assert!(no_object(&heap.read_range(slice, 0..1).map(drop)));
        assert!(no_object(
            &heap.tx(|tx| tx.edit_range(slice, 0..1).map(drop))
        ));
    }
    // A field that leaves its object.
    let beyond = field!(P::<Account>::at(RawP(small)), Account, next);
    assert!(matches!(heap.read(beyond), Err(Error::Range { .. })));
    // Another heap, whose objects lie elsewhere.
    let other = Heap::private(4 << 20, &Options::default()).unwrap();
    let its = other.tx(|tx| tx.new(account(1))).unwrap();
    let all = calls(its);
    assert!(all.iter().all(|found| found.is_err()), "{all:?}");
}

#[test]
fn roots_have_a_name_and_a_type() {
    let heap = heap();
    let bank = heap.root::<Account>("bank").unwrap();
    assert_eq!(heap.read(bank).unwrap().balance, 0, "made of zeros");
    heap.tx(|tx| {
        tx.edit(bank)?.balance = 5;
        let other = tx.root::<u64>("other")?;
        *tx.edit(other)? = 3;
        assert_eq!(tx.root::<u64>("other")?, other, "found where it was made");
        tx.set_root(0)
    })
    .unwrap();
    let failed: Result<(), Error> = heap.tx(|tx| {
        tx.root::<u64>("never")?;
        Err(Error::Deadlock)
    });
    assert!(failed.is_err());
    let heap = reopened(heap);
    assert_eq!(heap.root::<Account>("bank").unwrap(), bank);
    assert_eq!(heap.read(bank).unwrap().balance, 5);
    let objects = heap.check().unwrap().objects;
    match heap.root::<[u64; 4]>("bank") {
        Err(Error::Type {
            name,
            expected,
            found,
        }) => {
            let prints = (<[u64; 4]>::FINGERPRINT, Account::FINGERPRINT);
            assert_eq!(
                (name.as_str(), expected, found),
                ("bank", prints.0, prints.1)
            );
        }
        other => panic!("{other:?}"),
    }
    for name in ["", &"x".repeat(256)] {
        let named = heap.root::<u64>(name);
        assert!(matches!(named, Err(Error::Name { .. })), "{named:?}");
    }
    assert_eq!(heap.check().unwrap().objects, objects, "nothing was made");
    heap.root::<u64>(&"x".repeat(255)).unwrap();
    let inside = heap.tx(|_| heap.root::<u64>("missing"));
    assert!(matches!(inside, Err(Error::Nested)));
    let inside = heap.tx(|_| heap.root::<Account>("bank"));
    assert_eq!(inside.unwrap(), bank, "what is there is found by anybody");
}

/// Threads that ask for the same missing roots get the same ones.
#[test]
fn a_root_is_made_once() {
    let heap = Heap::private(4 << 20, &Options::default()).unwrap();
    let found: Vec<Vec<P<u64>>> = std::thread::scope(|scope| {
        let ask = || {
            (0..50)
                .map(|nth| heap.root(&format!("root {nth}")).unwrap())
                .collect()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(found.iter().all(|each| *each == found[0]));
    assert_eq!(heap.check().unwrap().objects, 100);
}

/// Each byte of a root's entry damaged is an error, with its place.
#[test]
fn a_damaged_root_is_an_error() {
    let heap = heap();
    heap.root::<Account>("a root's name").unwrap();
    let mut bytes = vec![0; 1 << 20];
    heap.into_memory().copy_out(0, &mut bytes).unwrap();
    let name = bytes
        .windows(13)
        .rposition(|window| window == b"a root's name")
        .unwrap();
    for at in name - 40..name + 13 {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        let mem = Pmem::private(1 << 20);
        mem.write_nt(0, &bad).unwrap();
        let heap = Heap::attach(mem).unwrap();
        let found = heap.root::<Account>("a root's name");
        let is_damage = matches!(found, Err(Error::Damaged { offset, .. }) if offset > 0);
        assert!(is_damage, "{at}: {found:?}");
    }
}
