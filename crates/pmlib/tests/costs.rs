//! Goal: what each transaction stores, flushes and waits for is counted and bounded; a change that
//! makes one dearer fails here, and `docs/HEAP.md` shows the same numbers. Method: pmem's counters
//! around single transactions on a warm heap. `PMLIB_WRITE_DOCS=1` writes the table.

use std::cell::Cell;
use std::fmt::Write;
use std::path::Path;

use pmem::counters::{Counters, snapshot};
use pmlib::{Error, Heap, Options};

const LINE: u64 = 64;
/// Objects are allocated from one chunk, and found in another.
const LINES: u64 = 512;
/// Transactions before the one that counts: the lane has its chunks then.
const WARM: usize = 12;

const BEGIN: &str = "<!-- heap costs: begin -->\n";
const END: &str = "<!-- heap costs: end -->\n";

struct Objects {
    heap: Heap,
    area: u64,
    slots: u64,
    next: Cell<u64>,
}

impl Objects {
    fn new() -> Objects {
        let options = Options {
            lanes: 2,
            seed: 7,
            ..Options::default()
        };
        let heap = Heap::private(8 << 20, &options).unwrap();
        let made = heap.tx(|tx| Ok::<_, Error>((tx.alloc(LINES * LINE)?, tx.alloc(LINES * LINE)?)));
        let (area, slots) = made.unwrap();
        Objects {
            heap,
            area,
            slots,
            next: Cell::new(0),
        }
    }

    /// The next line, and its number, which is never 0.
    fn line(&self) -> (u64, u64) {
        let number = self.next.get() + 1;
        self.next.set(number);
        (number % LINES * LINE, number)
    }

    fn write(&self, ranges: usize) -> Result<(), Error> {
        self.heap.tx(|tx| {
            (0..ranges).try_for_each(|_| {
                let (at, number) = self.line();
                tx.write_bytes(self.area, at, &[number as u8 | 1; LINE as usize])
            })
        })
    }

    fn edit(&self, ranges: usize) -> Result<(), Error> {
        self.heap.tx(|tx| {
            (0..ranges).try_for_each(|_| {
                let (at, _) = self.line();
                let bytes = tx.edit_bytes(self.area, at, LINE)?;
                bytes
                    .iter_mut()
                    .for_each(|byte| *byte = byte.wrapping_add(1));
                Ok(())
            })
        })
    }

    /// Makes an object that a slot names.
    fn make(&self, at: u64) -> Result<(), Error> {
        self.heap.tx(|tx| {
            let object = tx.alloc(LINE)?;
            tx.edit_bytes(object, 0, LINE)?.fill(1);
            tx.write_bytes(self.slots, at, &object.to_le_bytes())
        })
    }

    /// Frees the object of a slot.
    fn free(&self, at: u64) -> Result<(), Error> {
        self.heap.tx(|tx| {
            let slot = tx.edit_bytes(self.slots, at, 8)?;
            let object = u64::from_le_bytes(std::array::from_fn(|at| slot[at]));
            slot.fill(0);
            tx.free(object)
        })
    }
}

/// Figures of a call when the one before was the same.
fn cost(objects: &Objects, call: impl Fn(&Objects) -> Result<(), Error>) -> Counters {
    for _ in 0..WARM {
        call(objects).unwrap();
    }
    let before = snapshot();
    call(objects).unwrap();
    snapshot() - before
}

/// Each transaction, with the most lines that it may store or flush.
fn rows() -> Vec<(&'static str, u64, Counters)> {
    let objects = &Objects::new();
    let mut rows = vec![
        (
            "64 bytes written over",
            3,
            cost(objects, |all| all.write(1)),
        ),
        (
            "10 times 64 bytes written over",
            22,
            cost(objects, |all| all.write(10)),
        ),
        ("64 bytes edited", 3, cost(objects, |all| all.edit(1))),
        (
            "10 times 64 bytes edited",
            22,
            cost(objects, |all| all.edit(10)),
        ),
    ];
    let made = cost(objects, |all| all.make(all.line().0));
    // Those that were just made.
    objects.next.set(objects.next.get() - WARM as u64 - 1);
    let freed = cost(objects, |all| all.free(all.line().0));
    rows.push(("an object of 64 bytes made, and a pointer to it", 5, made));
    rows.push((
        "an object of 64 bytes freed, and the pointer to it",
        4,
        freed,
    ));
    rows
}

#[test]
fn transactions_cost_what_the_page_says() {
    let mut table = String::new();
    table.push_str("| transaction | lines past the caches | lines flushed | waits |\n");
    table.push_str("|---|---|---|---|\n");
    for (name, lines_max, cost) in rows() {
        let streamed = cost.nt_bytes.div_ceil(LINE);
        let _ = writeln!(
            table,
            "| {name} | {streamed} | {} | {} |",
            cost.lines_flushed, cost.fences
        );
        assert_eq!(cost.fences, 1, "{name}");
        let lines = streamed + cost.lines_flushed;
        assert!(lines <= lines_max, "{name}: {lines} lines");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/HEAP.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).expect("the table's beginning");
    let (there, tail) = rest.split_once(END).expect("the table's end");
    if std::env::var_os("PMLIB_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{BEGIN}{table}{END}{tail}")).unwrap();
        return;
    }
    assert_eq!(there, table, "PMLIB_WRITE_DOCS=1 writes it");
}

/// Goal: what a long record has stored is flushed before the lane's next fence, though its thread
/// keeps no list of the places. Method: a transaction of many ranges, and the lines that the next
/// one flushes.
#[test]
fn a_long_record_is_flushed_by_the_next_one() {
    let objects = Objects::new();
    let ranges = 10_000;
    let wide = objects.heap.tx(|tx| tx.alloc(2 * ranges * LINE)).unwrap();
    let heap = &objects.heap;
    heap.tx(|tx| (0..ranges).try_for_each(|nth| tx.write_bytes(wide, 2 * nth * LINE, &[1; 8])))
        .unwrap();
    let before = snapshot();
    objects.write(1).unwrap();
    let flushed = (snapshot() - before).lines_flushed;
    assert!(flushed >= ranges, "{flushed} of {ranges} lines");
}
