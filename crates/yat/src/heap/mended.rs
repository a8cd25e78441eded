//! Repairs of a heap as a program to check: a heap is left, damaged and repaired, and a crash in
//! the middle of that is met by another repair.
//!
//! Each attachment repairs first. A repair changes nothing that can be seen. When one has returned,
//! whatever power loss leaves has no damage any more.

use std::fmt;
use std::sync::Arc;

use pmem::Pmem;
use pmem::record::Observer;
use pmlib::Heap;

use super::{Act, HEAP_BYTES, Heaps, Seen, Step, check, look, text, use_all};
use crate::program::{Moment, Program};

/// A part of a heap of this workload that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header, from a byte on.
    Header(u64),
    /// Its copy.
    Copy(u64),
    /// The run's number.
    Run,
    /// The state.
    State,
    /// The word of the first span, or that of the copy.
    Span(bool),
    /// The chunk table, from a byte on.
    Table(u64),
    /// A lane's first line.
    Lane(u64),
    /// The root pointer.
    Root,
    /// The bitmap of the first chunk of objects.
    Bitmap,
}

impl Part {
    fn place(self, first_chunk: u64) -> u64 {
        match self {
            Part::Header(at) => at,
            Part::Copy(at) => 4096 + at,
            Part::Run => 512,
            Part::State => 576,
            Part::Span(false) => 1024,
            Part::Span(true) => 4096 + 1024,
            Part::Root => 640,
            Part::Table(at) => 8192 + at,
            Part::Lane(lane) => 12_288 + lane * 4096,
            Part::Bitmap => first_chunk + 15 * 8,
        }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    /// A transaction.
    Acts(usize, Vec<Act>),
    /// The heap is left clean, and becomes shorter.
    Cuts,
    /// The heap is left, clean or not, bits of words of it are flipped, and it is repaired.
    Mends(bool, Vec<(Part, u64)>),
}

/// A workload of repairs.
#[derive(Clone, Debug)]
pub struct Repairs {
    heap: Heaps,
    steps: Vec<Does>,
    /// It is not repaired: no crash may damage it.
    is_sound: bool,
}

/// A heap, and how much its repair has found.
pub struct Mended {
    heap: Heap,
    found: usize,
}

/// Its content, and that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    seen: Seen,
    found: usize,
}

impl fmt::Display for Does {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Does::Acts(lane, acts) => write!(f, "lane {lane}: {acts:?}"),
            Does::Cuts => f.write_str("made shorter"),
            Does::Mends(clean, parts) => {
                let how = if *clean { "clean" } else { "by a crash" };
                write!(f, "left {how}, damaged in {parts:x?} and repaired")
            }
        }
    }
}

fn repaired(mem: Pmem) -> Result<(Pmem, usize), String> {
    let (report, mem) = Heap::repair_in(mem).map_err(text)?;
    match &report.left[..] {
        [] => Ok((mem, report.repaired.len())),
        [left, ..] => Err(format!("a repair leaves {left}")),
    }
}

impl Repairs {
    fn mend(&self, running: &mut Mended, clean: bool, parts: &[(Part, u64)]) -> Result<(), String> {
        let other = Heap::private(HEAP_BYTES, &self.heap.options()).map_err(text)?;
        let heap = std::mem::replace(&mut running.heap, other);
        let mem = match clean {
            true => heap.close().map_err(text)?,
            false => heap.into_memory(),
        };
        let first_chunk = Heap::volatile(&mem).end.next_multiple_of(1 << 16);
        let window = mem.window();
        for &(part, bits) in parts {
            let place = part.place(first_chunk);
            mem.store(place, mem.load(place) ^ bits);
            mem.flush(place, 8);
        }
        mem.fence();
        drop(window);
        let (mem, _) = repaired(mem)?;
        running.heap = Heap::attach(mem).map_err(text)?;
        Ok(())
    }
}

impl Program for Repairs {
    type Running = Mended;
    type Visible = Found;

    fn name(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(Does::to_string).collect();
        format!("repair: {}", steps.join("; "))
    }

    fn setup(&self) -> Result<Pmem, String> {
        self.heap.setup()
    }

    fn volatile(&self, mem: &Pmem) -> std::ops::Range<u64> {
        Heap::volatile(mem)
    }

    fn attach(&self, mut mem: Pmem, observer: Arc<dyn Observer>) -> Result<Mended, String> {
        mem.observe(Some(observer));
        let (mem, found) = match self.is_sound {
            true => (mem, 0),
            false => repaired(mem)?,
        };
        let heap = Heap::attach(mem).map_err(text)?;
        Ok(Mended { heap, found })
    }

    fn prepare(&self, running: &mut Mended) -> Result<(), String> {
        let acts = |tx: &mut pmlib::Tx<'_>| {
            let directory = tx.alloc(super::SLOTS * 8)?;
            tx.set_root(directory)?;
            let made = [Act::Make(0, 300), Act::Make(1, 64)];
            super::do_all(tx, directory, &made, 900)
        };
        let mut tx = running.heap.begin_on(0);
        acts(&mut tx).map_err(text)?;
        running.heap.commit(tx).map_err(text)
    }

    fn steps(&self) -> usize {
        self.steps.len()
    }

    fn step_name(&self, step: usize) -> String {
        self.steps[step].to_string()
    }

    fn step(&self, running: &mut Mended, step: usize) -> Result<(), String> {
        match &self.steps[step] {
            Does::Mends(clean, parts) => self.mend(running, *clean, parts),
            Does::Cuts => {
                let heap = &mut running.heap;
                heap.free_chunks().map_err(text)?;
                let other = Heap::private(HEAP_BYTES, &self.heap.options()).map_err(text)?;
                let left = std::mem::replace(heap, other).close().map_err(text)?;
                let (bytes, mem) = Heap::cut_in(left).map_err(text)?;
                assert!(bytes > 0, "a cut that does nothing");
                *heap = Heap::attach(mem).map_err(text)?;
                Ok(())
            }
            Does::Acts(lane, acts) => {
                let heap = &running.heap;
                let directory = heap.root_offset().map_err(text)?;
                let mut tx = heap.begin_on(*lane);
                super::do_all(&mut tx, directory, acts, step as u64 + 1).map_err(text)?;
                heap.commit(tx).map_err(text)
            }
        }
    }

    fn inspect(&self, running: &mut Mended) -> Result<Found, String> {
        let seen = look(&running.heap).map_err(text)?;
        let found = running.found;
        Ok(Found { seen, found })
    }

    fn check(&self, running: &mut Mended) -> Result<(), String> {
        check(&running.heap)
    }

    fn accepts(&self, seen: &Found, moment: &Moment<'_, Found>) -> Result<(), String> {
        let is_repair = matches!(self.steps[moment.step], Does::Mends(..));
        if seen.found > 0 && (moment.returned || !is_repair) {
            return Err(format!("{} faults after a repair", seen.found));
        }
        let mut allowed = moment.allowed().iter();
        match allowed.any(|allowed| allowed.seen == seen.seen) {
            true => Ok(()),
            false => Err(format!("{seen:?} is seen of {:?}", moment.allowed())),
        }
    }

    fn go_on(&self, running: &mut Mended) -> Result<(), String> {
        let heap = &running.heap;
        let directory = heap.root_offset().map_err(text)?;
        for lane in [1, 0] {
            let mut tx = heap.begin_on(lane);
            use_all(&mut tx, directory).map_err(text)?;
            heap.commit(tx).map_err(text)?;
        }
        check(heap)
    }

    fn detach(&self, running: Mended) -> Option<Pmem> {
        Some(running.heap.into_memory())
    }
}

/// The workloads: each part alone, and several at once; after transactions of both lanes on one
/// word, of which the last records are open, or closed.
#[must_use]
pub fn mended() -> Vec<Repairs> {
    let mut parts: Vec<Vec<(Part, u64)>> = [
        (Part::Header(16), 1 << 9),
        (Part::Header(120), 0xffff << 20),
        (Part::Copy(0), 0xff),
        (Part::Run, 1 << 3),
        (Part::State, 0xff_ff00),
        (Part::Span(false), 1 << 40),
        (Part::Span(true), 0xff),
        (Part::Table(0), 1),
        (Part::Table(64), 1 << 13),
        (Part::Table(64), 0xff_0000_0000),
        (Part::Table(240), 0x10_0010),
        (Part::Lane(0), 1),
        (Part::Lane(0), 0x7_1234_5678),
        (Part::Lane(1), 0x7_1234_5678),
        (Part::Root, 1 << 4),
        (Part::Bitmap, 1 << 63),
    ]
    .into_iter()
    .map(|part| vec![part])
    .collect();
    parts.push(vec![
        (Part::Header(16), 0xff00),
        (Part::Span(true), 1 << 7),
        (Part::Lane(1), 0x7_1234_5678),
        (Part::Table(240), 0xff),
        (Part::Bitmap, 1 << 63),
    ]);
    let edits = |first: usize| {
        [
            Does::Acts(first, vec![Act::Edit(0, 2)]),
            Does::Acts(1 - first, vec![Act::Edit(0, 1), Act::Edit(1, 1)]),
        ]
    };
    let mut all = Vec::new();
    for parts in parts {
        for (clean, first) in [(true, 0), (false, 0), (false, 1)] {
            let mut steps = edits(first).to_vec();
            steps.push(Does::Mends(clean, parts.clone()));
            all.push(Repairs {
                heap: Heaps {
                    prepared: Vec::<Step>::new(),
                    steps: Vec::new(),
                    lane_bytes: 4096,
                    is_shared: false,
                },
                steps,
                is_sound: false,
            });
        }
    }
    all
}

/// Workloads of heaps that grow and are made shorter: by all that was added, or by a part of it; of
/// which chunks without objects become free first.
#[must_use]
pub fn cut() -> Vec<Repairs> {
    use Act::{Free, Make};
    let fill: Vec<Does> = (2..6)
        .map(|slot| Does::Acts(0, vec![Make(slot, 200_000)]))
        .collect();
    let sequences = [
        vec![Does::Acts(1, vec![Act::Edit(5, 2)])],
        vec![Does::Acts(0, vec![Free(5), Free(4)])],
        vec![
            Does::Acts(1, vec![Free(5)]),
            Does::Acts(0, vec![Free(4), Make(6, 64)]),
        ],
        vec![
            Does::Acts(0, vec![Free(2), Free(3)]),
            Does::Acts(1, vec![Free(5)]),
        ],
    ];
    // The memory has as much behind the heap's end then.
    let more = [70_000, 450_000, 450_000, 450_000];
    let all = sequences
        .into_iter()
        .zip(more)
        .map(|(middle, more)| Repairs {
            heap: Heaps {
                prepared: Vec::new(),
                steps: Vec::new(),
                lane_bytes: 4096,
                is_shared: false,
            },
            steps: [
                fill.clone(),
                middle,
                vec![
                    Does::Cuts,
                    Does::Acts(0, vec![Act::Edit(0, 2)]),
                    Does::Acts(1, vec![Make(7, more)]),
                ],
            ]
            .concat(),
            is_sound: true,
        });
    all.collect()
}
