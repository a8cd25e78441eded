//! Store and load sites of a process, found once and remembered.

use std::collections::HashMap;
use std::time::Duration;

use iced_x86::{Decoder as Linear, DecoderOptions, Instruction};

use super::ending::{CODE_BEFORE, Candidate, INSTRUCTION_BYTES_MAX, ending};
use super::{Decoder, Memory, Registers, When};
use crate::Access;

/// After this time a site is read anew: a compiler at run time may have changed it.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// Sites that are remembered; all are forgotten at once when there are more.
const SITES_MAX: usize = 65_536;
/// Bytes of a watched word.
const WORD_BYTES: u64 = 8;

/// A hit of a watched word.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// The sample's IP: behind the instruction, or at it between two iterations.
    pub ip: u64,
    /// The word's address.
    pub word: u64,
    /// The registers at the trap.
    pub registers: &'a Registers,
    /// Loads trap too.
    pub reads_trap: bool,
}

/// The instruction that made a hit.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Its address.
    pub ip: u64,
    /// Its accesses that may have touched the word.
    pub accesses: Vec<Memory>,
}

#[derive(Debug)]
struct Site {
    candidates: Vec<Candidate>,
    at: Option<Instruction>,
    found_ns: u64,
}

/// The sites of one process.
#[derive(Debug, Default)]
pub struct Sites {
    known: HashMap<u64, Site>,
    decoder: Decoder,
}

impl Sites {
    /// Forgets all sites: the process has another image.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// The instruction that made a hit at `now_ns`; `None` if none fits. `read` fills a buffer with
    /// the process's memory from an address on and says whether it could.
    pub fn resolve(
        &mut self,
        hit: &Hit<'_>,
        now_ns: u64,
        read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<Resolved> {
        self.look(hit.ip, now_ns, read);
        let site = self.known.get(&hit.ip)?;
        choose(&mut self.decoder, site, hit)
    }

    /// The accesses to addresses that `is_wanted` takes, of the instruction at `ip`, or else of the
    /// one that ends there: a clock's tick comes before the one or behind the other.
    pub fn touching(
        &mut self,
        ip: u64,
        registers: &Registers,
        now_ns: u64,
        read: impl FnMut(u64, &mut [u8]) -> bool,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Option<Resolved> {
        self.look(ip, now_ns, read);
        let site = self.known.get(&ip)?;
        let at = site.at.map(|instruction| (instruction, When::Before));
        let ended = site.candidates.first();
        let ended = ended.map(|ended| (ended.instruction, When::Behind));
        for (instruction, when) in at.into_iter().chain(ended) {
            let mut accesses = self.decoder.accesses_at(&instruction, registers, when);
            accesses.retain(|memory| memory.address.is_some_and(&is_wanted));
            if !accesses.is_empty() {
                return Some(Resolved {
                    ip: instruction.ip(),
                    accesses,
                });
            }
        }
        None
    }

    /// Reads a site, unless it is known and fresh.
    fn look(&mut self, ip: u64, now_ns: u64, read: impl FnMut(u64, &mut [u8]) -> bool) {
        let fresh = FRESH_FOR.as_nanos() as u64;
        let is_fresh = |site: &Site| now_ns.saturating_sub(site.found_ns) < fresh;
        if self.known.get(&ip).is_some_and(is_fresh) {
            return;
        }
        if self.known.len() >= SITES_MAX {
            self.known.clear();
        }
        self.known.insert(ip, find(ip, now_ns, read));
    }
}

/// Reads and decodes what is before an address, and the instruction at it.
fn find(ip: u64, now_ns: u64, mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Site {
    let mut before = [0; CODE_BEFORE as usize];
    let mut length = CODE_BEFORE;
    // A mapping may begin closely before the instruction.
    while length > 0 && !read(ip.wrapping_sub(length), &mut before[..length as usize]) {
        length -= 1;
    }
    let mut at = [0; INSTRUCTION_BYTES_MAX as usize];
    let mut ahead = INSTRUCTION_BYTES_MAX as usize;
    while ahead > 0 && !read(ip, &mut at[..ahead]) {
        ahead -= 1;
    }
    let instruction = Linear::with_ip(64, &at[..ahead], ip, DecoderOptions::NONE).decode();
    Site {
        candidates: ending(&before[..length as usize], ip),
        at: (!instruction.is_invalid()).then_some(instruction),
        found_ns: now_ns,
    }
}

/// The likeliest candidate whose address covers the word; otherwise the likeliest of all, if its
/// address is not known.
fn choose(decoder: &mut Decoder, site: &Site, hit: &Hit<'_>) -> Option<Resolved> {
    let mut unknown = None;
    let ended = site
        .candidates
        .iter()
        .map(|candidate| candidate.instruction);
    let repeated = site
        .at
        .filter(|at| at.is_string_instruction() && (at.has_rep_prefix() || at.has_repne_prefix()));
    for (order, instruction) in ended.chain(repeated).enumerate() {
        let all = decoder.accesses_at(&instruction, hit.registers, When::Behind);
        let wanted = |memory: &&Memory| hit.reads_trap || memory.access == Access::Write;
        let wanted: Vec<Memory> = all.iter().filter(wanted).copied().collect();
        let covering: Vec<Memory> = wanted
            .iter()
            .filter(|memory| covers(memory, hit.word))
            .copied()
            .collect();
        if !covering.is_empty() {
            return Some(Resolved {
                ip: instruction.ip(),
                accesses: covering,
            });
        }
        let blind: Vec<Memory> = wanted
            .into_iter()
            .filter(|memory| memory.address.is_none())
            .collect();
        if order == 0 && !blind.is_empty() {
            unknown = Some(Resolved {
                ip: instruction.ip(),
                accesses: blind,
            });
        }
    }
    unknown
}

fn covers(memory: &Memory, word: u64) -> bool {
    let bytes = u64::from(memory.bytes.max().unwrap_or(1));
    memory.address.is_some_and(|address| {
        address < word.saturating_add(WORD_BYTES) && word < address.saturating_add(bytes)
    })
}
