//! Pools that somebody made to harm: the bytes of a sound one, edited on purpose and with right
//! checksums. It knows the format and nothing of the engine, so that the tests of every face can
//! make the same pools.

use pmfs_format::directory::{BUCKET_LINES, FINGERPRINT_MORE, HASH_FIRST};
use pmfs_format::inode::ROOT_INO;
use pmfs_format::superblock::{RUN_RECORD_OFFSET, STATE_CLEAN, STATE_OFFSET};
use pmfs_format::tree::{BLOCK_MASK, FANOUT, NODE, PRESENT};
use pmfs_format::{BLOCK_BYTES, DentryRaw, InodeRaw, SuperblockRaw};
use siphasher::sip::SipHasher13;
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::ops::Range;

const BLOCK: usize = BLOCK_BYTES as usize;
const LINE: usize = 64;
/// Values that belong nowhere, and some that nearly do.
const VALUES: [u64; 10] = [
    0,
    1,
    2,
    47,
    u64::MAX,
    i64::MAX as u64,
    1 << 63,
    1 << 48,
    // The owner word of the first thread of a pool's first process.
    1 << 32 | 1 << 44 | 1,
    // The owner word of a process that is not there.
    9 << 32 | 1,
];
/// Names that no call makes.
const NAMES: [&[u8]; 9] = [
    b"../../esc/owned",
    b"a/b",
    b"/",
    b".",
    b"..",
    b"\0",
    b"a\0b",
    b"",
    b"more",
];

/// The indexes of pointers by their owners.
const TABLE: usize = 0;
const ROOTS: usize = 1;
const ENTRIES: usize = 2;

fn word(image: &[u8], at: usize) -> u64 {
    let bytes = image.get(at..at + 8).unwrap_or(&[0; 8]);
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn put(image: &mut [u8], at: usize, value: u64) {
    if let Some(bytes) = image.get_mut(at..at + 8) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// The places of things in a sound pool, byte offsets.
#[derive(Default)]
pub struct Places {
    /// Words that name a block: of the inode table's nodes, of inodes, of nodes of files and
    /// directories.
    pointers: [Vec<usize>; 3],
    buckets: Vec<usize>,
    inodes: Vec<usize>,
    records: Vec<usize>,
    nodes: Vec<usize>,
    data: Vec<usize>,
    runtime: Range<usize>,
    journal: Range<usize>,
    key: [u64; 2],
}

impl Places {
    /// Reads the pool's structures.
    ///
    /// # Panics
    /// If it is not sound.
    #[must_use]
    pub fn of(image: &[u8]) -> Places {
        let region = |at| {
            let [start, blocks] = [at, at + 8].map(|at| word(image, at) as usize);
            start * BLOCK..(start + blocks) * BLOCK
        };
        let mut places = Places {
            runtime: region(64),
            journal: region(80),
            key: [120, 128].map(|at| word(image, at)),
            ..Places::default()
        };
        let table = word(image, 112) as usize * BLOCK;
        let mut leaves = Vec::new();
        places.node(image, table, TABLE, &mut leaves);
        for block in leaves {
            for at in (block..block + BLOCK).step_by(InodeRaw::SIZE as usize) {
                if word(image, at + InodeRaw::links.offset() as usize) as u32 > 0 {
                    places.inode(image, at);
                }
            }
        }
        places
    }

    fn inode(&mut self, image: &[u8], at: usize) {
        self.inodes.push(at);
        let slot = at + InodeRaw::root.offset() as usize;
        let root = word(image, slot);
        let mode = word(image, at + InodeRaw::mode.offset() as usize) as u32 & 0o170_000;
        if root & PRESENT == 0 || !matches!(mode, 0o040_000 | 0o100_000 | 0o120_000) {
            return;
        }
        self.pointers[ROOTS].push(slot);
        let mut leaves = Vec::new();
        let block = (root & BLOCK_MASK) as usize;
        match root & NODE {
            0 => leaves.push(block),
            _ => self.node(image, block, ENTRIES, &mut leaves),
        }
        if mode != 0o040_000 {
            return self.data.extend(leaves);
        }
        for bucket in leaves.into_iter().collect::<BTreeSet<usize>>() {
            self.buckets.push(bucket);
            let lines = (1..BUCKET_LINES).filter(|line| image[bucket + line] > FINGERPRINT_MORE);
            self.records.extend(lines.map(|line| bucket + line * LINE));
        }
    }

    fn node(&mut self, image: &[u8], at: usize, of: usize, leaves: &mut Vec<usize>) {
        self.nodes.push(at);
        for slot in (at..at + BLOCK).step_by(8).take(FANOUT as usize) {
            let entry = word(image, slot);
            if entry & PRESENT == 0 {
                continue;
            }
            self.pointers[of].push(slot);
            let block = (entry & BLOCK_MASK) as usize;
            match entry & NODE {
                0 => leaves.push(block),
                _ => self.node(image, block, of, leaves),
            }
        }
    }
}

/// `splitmix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn value(&mut self) -> u64 {
        match self.below(3) {
            0 => self.next(),
            1 => self.next() % 5000,
            _ => self.of(&VALUES),
        }
    }
}

/// The kinds of edits that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edits {
    /// Whole words of the trees: pointers swapped, led to blocks of any class, led in circles.
    Pointers,
    /// Those, and whatever a pool consists of.
    All,
}

/// An image in the making.
struct Craft<'a> {
    image: Vec<u8>,
    places: &'a Places,
    random: Random,
    said: Vec<String>,
}

/// The pool with a few edits, the same ones for the same number, and what was done to it.
#[must_use]
pub fn craft(image: &[u8], places: &Places, edits: Edits, number: u64) -> (Vec<u8>, String) {
    let mut craft = Craft {
        image: image.to_vec(),
        places,
        random: Random(number),
        said: Vec::new(),
    };
    for _ in 0..=craft.random.below(3) {
        match edits {
            Edits::Pointers => craft.pointer(),
            Edits::All => craft.edit(),
        }
    }
    if craft.random.below(8) > 0 {
        craft.seal();
    }
    (craft.image, craft.said.join("; "))
}

/// The pool with each record that is not of a name of several lines renamed, as if by a call.
#[must_use]
pub fn renamed(image: &[u8], places: &Places, name: &[u8]) -> Vec<u8> {
    let mut craft = Craft {
        image: image.to_vec(),
        places,
        random: Random(0),
        said: Vec::new(),
    };
    for &at in places.records.iter().filter(|&&at| image[at + 6] == 1) {
        craft.rename(at, name, true);
    }
    craft.seal();
    craft.image
}

impl Craft<'_> {
    fn put(&mut self, what: &str, at: usize, value: u64) {
        let old = word(&self.image, at);
        self.said
            .push(format!("{what} at {at:#x}: {old:#x} becomes {value:#x}"));
        put(&mut self.image, at, value);
    }

    fn edit(&mut self) {
        match self.random.below(9) {
            0 | 1 => self.pointer(),
            2 => self.name(),
            3 => self.record(),
            4 => self.header(),
            5 | 6 => self.inode(),
            7 => self.superblock(),
            _ => self.tables(),
        }
    }

    fn any_pointer(&mut self) -> usize {
        let of = self.random.below(self.places.pointers.len());
        self.random.of(&self.places.pointers[of])
    }

    fn pointer(&mut self) {
        let places = self.places;
        let at = self.any_pointer();
        let old = word(&self.image, at);
        if self.random.below(3) == 0 {
            let other = self.any_pointer();
            let theirs = word(&self.image, other);
            self.put("pointer", at, theirs);
            return self.put("pointer", other, old);
        }
        let len = self.image.len();
        let block = match self.random.below(11) {
            0 => 0,
            1 => places.runtime.start,
            2 => places.journal.start,
            3 => places.nodes[0],
            4 => self.random.of(&places.nodes),
            5 => self.random.of(&places.buckets),
            6 => self.random.of(&places.data),
            7 => self.random.of(&places.inodes),
            // A circle.
            8 => at,
            9 => len - BLOCK,
            _ => self.random.below(len + BLOCK),
        } as u64;
        let mut flags = old & !BLOCK_MASK;
        if self.random.below(4) == 0 {
            flags ^= 1 << self.random.below(8);
        }
        self.put("pointer", at, block & BLOCK_MASK | flags);
    }

    fn name(&mut self) {
        let at = self.random.of(&self.places.records);
        let name = self.random.of(&NAMES);
        let hashed = self.random.below(4) > 0;
        self.rename(at, name, hashed);
        if self.random.below(8) == 0 {
            self.image[at + 4] = self.random.below(256) as u8;
        }
    }

    /// Another name in place of a record's own, the hash its own or not.
    fn rename(&mut self, at: usize, name: &[u8], hashed: bool) {
        let mut bytes = [0; 48];
        bytes[..name.len()].copy_from_slice(name);
        self.said
            .push(format!("name at {at:#x}: {}", name.escape_ascii()));
        self.image[at + 4] = name.len() as u8;
        self.image[at + 6] = 1;
        self.image[at + 16..at + LINE].copy_from_slice(&bytes);
        if hashed {
            let [first, second] = self.places.key;
            let mut hasher = SipHasher13::new_with_keys(first, second);
            hasher.write(name);
            let hash = (hasher.finish() >> 1).max(HASH_FIRST);
            put(&mut self.image, at + 8, hash);
            let (bucket, line) = (at / BLOCK * BLOCK, at % BLOCK / LINE);
            self.image[bucket + line] = 2 + ((hash & 0xffff) % 254) as u8;
        }
    }

    fn record(&mut self) {
        let places = self.places;
        let at = self.random.of(&places.records);
        match self.random.below(4) {
            0 => {
                let other = self.random.of(&places.records);
                let inos = [1, ROOT_INO, word(&self.image, other) & 0xffff_ffff];
                let ino = self.random.of(&inos);
                let first = word(&self.image, at) & !0xffff_ffff | ino;
                self.put("record", at, first);
            }
            1 => {
                let byte = self.random.below(8);
                let flipped = word(&self.image, at) ^ (self.random.next() & 0xff) << (8 * byte);
                self.put("record", at, flipped);
            }
            _ => {
                let field = self.random.below(DentryRaw::SIZE as usize / 8) * 8;
                let value = self.random.value();
                self.put("record", at + field, value);
            }
        }
    }

    fn header(&mut self) {
        let at = self.random.of(&self.places.buckets) + self.random.below(8) * self.random.below(8);
        let byte = self.random.of(&[0, 1, 2, 9, 10, 64, 200, 255]);
        self.said.push(format!("bucket header at {at:#x}: {byte}"));
        self.image[at] = byte;
    }

    fn inode(&mut self) {
        const MODE: u64 = InodeRaw::mode.offset();
        let places = self.places;
        let at = self.random.of(&places.inodes);
        let field = self.random.below(InodeRaw::SIZE as usize / 8) * 8;
        let value = match (field as u64, self.random.below(2)) {
            (MODE, 0) => {
                let kind = self.random.below(32) as u64;
                word(&self.image, at + field) & !0xf000 | kind << 12
            }
            (_, 0) => {
                let other = self.random.of(&places.inodes);
                word(&self.image, other + field)
            }
            _ => self.random.value(),
        };
        self.put("inode", at + field, value);
    }

    /// A field of one superblock, or of both.
    fn superblock(&mut self) {
        let at = self.random.below(22) * 8 + 32;
        let (value, half) = (self.random.value(), self.random.below(3));
        let old = word(&self.image, at);
        let near = old.wrapping_add(self.random.of(&[1, u64::MAX, 1 << 32, 8]));
        let value = match half {
            0 => value,
            1 => old & !0xffff_ffff | value & 0xffff_ffff,
            _ => near,
        };
        let copy = self.image.len() - BLOCK;
        let both = self.random.below(2) == 0;
        for start in [0, copy].into_iter().take(1 + usize::from(both)) {
            self.put("superblock", start + at, value);
            let size = SuperblockRaw::SIZE as usize;
            let crc = crc32c::crc32c(&self.image[start..start + size - 4]);
            self.image[start + size - 4..start + size].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// A word of the runtime area, the journal, or the run record.
    fn tables(&mut self) {
        let (runtime, journal) = (self.places.runtime.clone(), self.places.journal.clone());
        let run = RUN_RECORD_OFFSET as usize;
        let area = match self.random.below(8) {
            0 => journal,
            1 => run..run + LINE,
            _ => runtime,
        };
        let words = area.len() / 8;
        // Mostly one that begins a line: an owner, a state.
        let step = self.random.of(&[1, 8]);
        let at = area.start + self.random.below(words / step) * step * 8;
        let value = self.random.value();
        self.put("table", at, value);
        if at / LINE == run / LINE {
            let crc = u64::from(crc32c::crc32c(&self.image[run..run + 56]));
            put(&mut self.image, run + 56, crc);
        }
    }

    /// Makes the runtime area one that was left clean.
    fn seal(&mut self) {
        let crc = u64::from(crc32c::crc32c(&self.image[self.places.runtime.clone()]));
        put(
            &mut self.image,
            STATE_OFFSET as usize,
            STATE_CLEAN | crc << 32,
        );
    }
}
