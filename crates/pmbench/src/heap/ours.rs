//! The heap.

use super::{Candidate, Content, How, LINE, Sequence};
use crate::measure::time;
use crate::pool::map_options;
use pmem::protection::ProtectMode;
use pmlib::{Error, Heap, Options};
use std::path::Path;

/// Slots that one transaction fills when the heap is made.
const FILLED: u64 = 256;

/// A heap with an area, and objects named by slots, a line each.
pub struct Ours {
    heap: Heap,
    area: u64,
    table: u64,
    lines: Sequence,
    freed: Sequence,
    made: Sequence,
    content: Content,
}

impl Ours {
    /// Makes one with an area of so many MiB, which stray stores are kept from in this way.
    pub fn new(dir: &Path, mib: u64, protect: ProtectMode) -> anyhow::Result<Ours> {
        let mut options = Options {
            map: map_options(),
            ..Options::default()
        };
        options.map.protect = protect;
        let bytes = mib << 20;
        let path = dir.join(format!("pmlib-{protect}"));
        // The heap is as long as the pool beside it.
        let heap = Heap::create(&path, 4 * bytes + (64 << 20), &options)?;
        let make = |bytes| heap.tx(|tx| tx.alloc(bytes));
        let (area, table) = (make(bytes)?, make(bytes)?);
        let count = bytes / LINE;
        let mut slots = Sequence::new(count);
        for _ in 0..count / FILLED {
            heap.tx(|tx| {
                (0..FILLED).try_for_each(|_| {
                    let object = tx.alloc(LINE)?;
                    let slot = tx.edit_bytes(table, slots.line() * LINE, 8)?;
                    slot.copy_from_slice(&object.to_le_bytes());
                    Ok::<_, Error>(())
                })
            })?;
        }
        Ok(Ours {
            heap,
            area,
            table,
            lines: Sequence::new(count),
            freed: Sequence::new(count),
            made: Sequence::new(count),
            content: Content::default(),
        })
    }

    /// Medium and flush instruction.
    pub fn describe(&self) -> String {
        let medium = self.heap.medium();
        format!("on {}, flushed by {}", medium.kind, medium.flush)
    }
}

impl Candidate for Ours {
    fn change(&mut self, how: How, ranges: u64, count: u64) -> anyhow::Result<f64> {
        let (heap, area) = (&self.heap, self.area);
        time(count, || {
            for _ in 0..count {
                let content = self.content.next();
                heap.tx(|tx| {
                    for _ in 0..ranges {
                        let at = self.lines.line() * LINE;
                        match how {
                            How::Write => tx.write_bytes(area, at, &content)?,
                            How::Add => {
                                let (words, _) =
                                    tx.edit_bytes(area, at, LINE)?.as_chunks_mut::<8>();
                                for word in words {
                                    *word = (u64::from_ne_bytes(*word) + 1).to_ne_bytes();
                                }
                            }
                        }
                    }
                    Ok::<_, Error>(())
                })?;
            }
            Ok(())
        })
    }

    fn churn(&mut self, count: u64) -> anyhow::Result<[f64; 2]> {
        let (heap, table) = (&self.heap, self.table);
        let freed = time(count, || {
            for _ in 0..count {
                let at = self.freed.line() * LINE;
                heap.tx(|tx| {
                    let slot = tx.edit_bytes(table, at, 8)?;
                    let object = u64::from_le_bytes(std::array::from_fn(|at| slot[at]));
                    slot.fill(0);
                    tx.free(object)
                })?;
            }
            Ok(())
        })?;
        let made = time(count, || {
            for _ in 0..count {
                let at = self.made.line() * LINE;
                let content = self.content.next();
                heap.tx(|tx| {
                    let object = tx.alloc(LINE)?;
                    tx.edit_bytes(object, 0, LINE)?.copy_from_slice(&content);
                    tx.write_bytes(table, at, &object.to_le_bytes())
                })?;
            }
            Ok(())
        })?;
        Ok([freed, made])
    }
}
