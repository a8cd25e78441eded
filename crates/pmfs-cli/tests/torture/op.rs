//! The operations, and how a worker chooses them: from its state and its seed alone, so
//! that a successor can choose the same ones again.

use pmfs::LockClass;
use serde::{Deserialize, Serialize};

use crate::model::{Change, Kind, Model, Node, content};
use crate::random::Random;

/// Workers.
pub const WORKERS: usize = 16;
/// Names that one process at a time can have, by four ways: `lock % 4`.
pub const LOCKS: usize = 8;
/// Counters that file locks guard: see [`GUARDS`].
pub const COUNTERS: usize = LOCKS + GUARDS.len();
/// The things that file locks are taken of: a file, the kind of lock, first byte and length (0: to
/// the end).
pub const GUARDS: [(&str, LockClass, u64, u64); 5] = [
    ("guards/flock", LockClass::Flock, 0, 0),
    ("guards/whole", LockClass::Posix, 0, 0),
    // Neighbours, of two kinds that know of each other.
    ("guards/parts", LockClass::Posix, 100, 100),
    ("guards/parts", LockClass::File, 200, 100),
    ("guards/parts", LockClass::Posix, 300, 0),
];
/// Bytes of a file that a lock is had of from one operation to another; the bytes tell who has it.
pub const RANGES: usize = 6;
/// Bytes of a record in each of the logs.
pub const RECORD_BYTES: [usize; 3] = [64, 192, 4200];
/// Ranges that are always overwritten as a whole: offset and bytes.
pub const STAMPS: [(u64, usize); 8] = [
    (0, 8),
    (64, 64),
    (200, 256),
    (4096 - 24, 64),
    (8192, 4096),
    (16384, 12288),
    (32768 - 1000, 4096),
    (49152 + 2048, 65536),
];
/// Directories between which tokens move.
pub const PLACES: [&str; 4] = ["a", "b", "c", "d"];
/// Tokens: each is in one place. Those with an even number are directories.
pub const TOKENS: usize = 12;
/// Names in the directory where everything may happen.
const RACERS: u64 = 4;

const NAMES_MAX: usize = 40;
const FILE_BYTES_MAX: usize = 48 << 10;
const OPEN_MAX: usize = 6;

/// The next operation of a worker. First come those on its own files, then those among all.
#[derive(Clone, Debug)]
pub enum Op {
    Own(Change),
    /// By a file held open, with or without a name.
    WriteOpen {
        open: usize,
        at: usize,
        len: usize,
        fill: u64,
    },
    Open {
        path: String,
    },
    Close {
        open: usize,
    },
    /// The file has to be what the model says.
    Read {
        path: String,
    },
    ReadOpen {
        open: usize,
    },
    /// One more handle of an open file: they share its offset.
    Dup {
        open: usize,
    },
    Seek {
        open: usize,
        to: usize,
    },
    /// Writes at the open file's offset, which moves.
    WriteNext {
        open: usize,
        len: usize,
        fill: u64,
    },
    ReadNext {
        open: usize,
        len: usize,
    },

    /// A record at the end of a log that all share.
    Record {
        log: usize,
    },
    /// A name that only one can have: tries to have it.
    Acquire {
        lock: usize,
    },
    /// Counts up what the name protects.
    Increment {
        lock: usize,
    },
    Release {
        lock: usize,
    },
    /// Overwrites a range as a whole.
    Stamp {
        range: usize,
    },
    MoveToken {
        token: usize,
        from: usize,
        to: usize,
    },
    ExchangeTokens {
        one: (usize, usize),
        other: (usize, usize),
    },
    /// Something in a directory where everything may happen.
    Race {
        what: u64,
        racer: u64,
        other: u64,
    },
    ReadLog {
        log: usize,
        place: u64,
    },
    ReadCell {
        lock: usize,
    },
    ReadStamp {
        range: usize,
    },
    /// Counts up what a file lock protects, if that can be had.
    Guarded {
        guard: usize,
        /// For the lock, or goes on without.
        waits: bool,
        /// Gives the lock up by closing the file.
        closes: bool,
    },
    /// Tries to lock a range, alone or with others, and keeps it.
    TakeRange {
        range: usize,
        alone: bool,
    },
    /// The contents of the range that is had must be what stood there.
    CheckRange,
    GiveRange,
    /// Writes with a forked child, at an offset that both share; where the face can fork.
    Forked {
        records: usize,
    },
}

/// The operations' names, by [`Op::number`]; then what else a worker may be in the middle of.
pub const NAMES: [&str; 43] = [
    "create",
    "mkdir",
    "symlink",
    "write",
    "append",
    "write to open",
    "truncate",
    "punch",
    "rename",
    "exchange",
    "link",
    "unlink",
    "rmdir",
    "chmod",
    "setxattr",
    "removexattr",
    "open",
    "close",
    "read",
    "read open",
    "dup",
    "seek",
    "write at offset",
    "read at offset",
    "append record",
    "lock by name",
    "count up",
    "unlock",
    "stamp",
    "move token",
    "exchange tokens",
    "race",
    "read log",
    "read counter",
    "read stamp",
    "count up under a file lock",
    "lock range",
    "check range",
    "unlock range",
    "write with a child",
    "attach",
    "verify",
    "detach",
];
/// The number of them that are on a worker's own files.
pub const OWN: u8 = 24;
pub const ATTACH: u8 = 40;
pub const VERIFY: u8 = 41;
pub const DETACH: u8 = 42;

impl Op {
    /// Place in [`NAMES`].
    pub fn number(&self) -> u8 {
        match self {
            Op::Own(change) => match change {
                Change::Create { .. } => 0,
                Change::Mkdir { .. } => 1,
                Change::Symlink { .. } => 2,
                Change::Write { .. } => 3,
                Change::Append { .. } => 4,
                Change::Truncate { .. } => 6,
                Change::Punch { .. } => 7,
                Change::Rename { .. } => 8,
                Change::Exchange { .. } => 9,
                Change::Link { .. } => 10,
                Change::Unlink { .. } => 11,
                Change::Rmdir { .. } => 12,
                Change::Chmod { .. } => 13,
                Change::SetXattr { .. } => 14,
                Change::RemoveXattr { .. } => 15,
            },
            Op::WriteOpen { .. } => 5,
            Op::Open { .. } => 16,
            Op::Close { .. } => 17,
            Op::Read { .. } => 18,
            Op::ReadOpen { .. } => 19,
            Op::Dup { .. } => 20,
            Op::Seek { .. } => 21,
            Op::WriteNext { .. } => 22,
            Op::ReadNext { .. } => 23,
            Op::Record { .. } => 24,
            Op::Acquire { .. } => 25,
            Op::Increment { .. } => 26,
            Op::Release { .. } => 27,
            Op::Stamp { .. } => 28,
            Op::MoveToken { .. } => 29,
            Op::ExchangeTokens { .. } => 30,
            Op::Race { .. } => 31,
            Op::ReadLog { .. } => 32,
            Op::ReadCell { .. } => 33,
            Op::ReadStamp { .. } => 34,
            Op::Guarded { .. } => 35,
            Op::TakeRange { .. } => 36,
            Op::CheckRange => 37,
            Op::GiveRange => 38,
            Op::Forked { .. } => 39,
        }
    }
}

/// All that survives a worker.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct State {
    /// Operations begun, and of those begun the next one's number.
    pub number: u64,
    pub own: Model,
    pub logs: [Log; RECORD_BYTES.len()],
    /// The number of times that this worker counted up.
    pub counted: [u64; COUNTERS],
    /// The name that it has.
    pub lock: Option<usize>,
    /// The range that this incarnation has, and what stands there.
    pub range: Option<(usize, u64)>,
    /// The number of times that the logs were emptied.
    epoch: u64,
}

/// A worker's records in a log.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Log {
    /// Number of the first record since it was emptied.
    pub first: u64,
    /// Number of the next record.
    pub next: u64,
    /// The place where its last record ends: the next one stands behind it.
    pub end: u64,
    /// Records that were in flight at a death and are not there.
    pub lost: Vec<u64>,
}

impl State {
    /// The logs were emptied, all records judged, if this is another epoch.
    pub fn enter(&mut self, epoch: u64) {
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            for log in &mut self.logs {
                log.first = log.next;
                log.end = 0;
                log.lost.clear();
            }
        }
    }

    /// The operation has returned `outcome`.
    pub fn apply(&mut self, op: &Op, outcome: u64) {
        self.number += 1;
        match *op {
            // The log had room: where the record ends.
            Op::Record { log } if outcome > 0 => {
                self.logs[log].next += 1;
                self.logs[log].end = outcome;
            }
            Op::Acquire { lock } if outcome > 0 => self.lock = Some(lock),
            Op::Increment { lock } => self.counted[lock] += 1,
            Op::Release { .. } => self.lock = None,
            Op::Guarded { guard, .. } => self.counted[LOCKS + guard] += outcome,
            Op::TakeRange { range, .. } if outcome > 0 => self.range = Some((range, outcome)),
            Op::GiveRange => self.range = None,
            _ => self.apply_to_own(op),
        }
    }

    /// Does what it makes of the worker's own files.
    pub fn apply_to_own(&mut self, op: &Op) {
        let own = &mut self.own;
        match *op {
            Op::Own(ref change) => own.apply(change),
            Op::Open { ref path } => own.open(path),
            Op::Dup { open } => own.dup(open),
            Op::Close { open } => own.close(open),
            Op::WriteOpen {
                open,
                at,
                len,
                fill,
            } => own.write_open(open, at, &content(fill, len)),
            Op::Seek { open, to } => own.seek(open, to),
            Op::WriteNext { open, len, fill } => {
                own.write_open(open, own.offset(open), &content(fill, len));
                own.move_by(open, len);
            }
            Op::ReadNext { open, len } => own.move_by(open, own.next_bytes(open, len).len()),
            _ => {}
        }
    }
}

/// Chooses operations for a worker.
pub struct Chooser<'a> {
    pub worker: usize,
    pub state: &'a State,
    random: Random,
}

impl<'a> Chooser<'a> {
    /// For the operation that the state is before.
    pub fn new(seed: u64, worker: usize, state: &'a State) -> Chooser<'a> {
        let mut stream = Random::new(seed ^ (worker as u64 + 1) << 48);
        let seed = stream.next() ^ state.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Chooser {
            worker,
            state,
            random: Random::new(seed),
        }
    }

    pub fn choose(mut self) -> Op {
        let op = match self.random.below(100) {
            0..56 => self.own(),
            dice => self.shared(dice),
        };
        op.unwrap_or_else(|| {
            Op::Own(Change::Create {
                path: self.fresh_name(),
            })
        })
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn shared(&mut self, dice: u64) -> Option<Op> {
        Some(match dice {
            56..66 => Op::Record {
                log: match self.below(20) {
                    0..12 => 0,
                    12..19 => 1,
                    _ => 2,
                },
            },
            66..70 => Op::Guarded {
                guard: self.below(GUARDS.len()),
                waits: self.random.below(4) > 0,
                closes: self.random.below(2) == 0,
            },
            70..73 => match self.state.range {
                Some(_) if self.random.below(3) == 0 => Op::GiveRange,
                Some(_) => Op::CheckRange,
                None => Op::TakeRange {
                    range: self.below(RANGES),
                    alone: self.random.below(2) == 0,
                },
            },
            73..81 => match self.state.lock {
                Some(lock) if self.random.below(4) == 0 => Op::Release { lock },
                Some(lock) => Op::Increment { lock },
                None => Op::Acquire {
                    lock: self.below(LOCKS),
                },
            },
            81..84 => Op::Stamp {
                range: self.below(STAMPS.len()),
            },
            84..88 => {
                let from = self.below(PLACES.len());
                Op::MoveToken {
                    token: self.below(TOKENS),
                    from,
                    to: (from + 1 + self.below(PLACES.len() - 1)) % PLACES.len(),
                }
            }
            88 => {
                let one = self.below(TOKENS);
                let other = (one + 1 + self.below(TOKENS - 1)) % TOKENS;
                Op::ExchangeTokens {
                    one: (one, self.below(PLACES.len())),
                    other: (other, self.below(PLACES.len())),
                }
            }
            89..94 => Op::Race {
                what: self.random.below(8),
                racer: self.random.below(RACERS),
                other: self.random.below(RACERS),
            },
            94..96 => Op::ReadLog {
                log: self.below(RECORD_BYTES.len()),
                place: self.random.next(),
            },
            96..98 => Op::ReadCell {
                lock: self.below(LOCKS),
            },
            98 => Op::Forked {
                records: self.below(20) + 1,
            },
            _ => Op::ReadStamp {
                range: self.below(STAMPS.len()),
            },
        })
    }

    fn own(&mut self) -> Option<Op> {
        let names = &self.state.own.names;
        let dice = self.random.below(100);
        if names.len() > NAMES_MAX || names.len() > 20 && dice < 12 {
            return self.removal();
        }
        match dice {
            0..10 => None,
            10..14 => Some(Op::Own(Change::Mkdir {
                path: self.fresh_name(),
            })),
            14..17 => Some(Op::Own(Change::Symlink {
                target: format!("to/{}", self.random.below(1000)),
                path: self.fresh_name(),
            })),
            17..27 => self.rename(),
            27..30 => {
                let (one, other) = (self.file()?, self.file()?);
                (one != other).then_some(Op::Own(Change::Exchange { one, other }))
            }
            30..34 => Some(Op::Own(Change::Link {
                from: self.file()?,
                to: self.fresh_name(),
            })),
            34..37 => Some(Op::Own(Change::Chmod {
                path: self.file()?,
                mode: 0o600 | self.random.below(64) as u32,
            })),
            37..45 => self.attribute(),
            45..50 => self.removal(),
            50..66 => self.with_open(),
            _ => self.data(dice),
        }
    }

    fn data(&mut self, dice: u64) -> Option<Op> {
        let path = self.file()?;
        let len = self.state.own.node(&path).content.len();
        let fill = self.random.next();
        let reach = len.min(FILE_BYTES_MAX);
        Some(match dice {
            66..71 => Op::Own(Change::Truncate {
                path,
                len: self.below(FILE_BYTES_MAX),
            }),
            71..74 => Op::Own(Change::Punch {
                path,
                at: self.below(reach + 1),
                len: self.below(12_000) + 1,
            }),
            74..80 if len < FILE_BYTES_MAX => Op::Own(Change::Append {
                path,
                len: self.below(9000) + 1,
                fill,
            }),
            // Whole blocks, as databases do.
            80..86 if len >= 4096 => Op::Own(Change::Write {
                path,
                at: self.below(len / 4096) * 4096,
                len: 4096,
                fill,
            }),
            86..92 => Op::Own(Change::Write {
                path,
                at: self.below(reach + 1),
                len: self.below(200) + 1,
                fill,
            }),
            92..97 => Op::Own(Change::Write {
                path,
                at: self.below(reach + 1),
                len: self.below(40_000) + 1,
                fill,
            }),
            _ => Op::Read { path },
        })
    }

    fn with_open(&mut self) -> Option<Op> {
        let open = &self.state.own.open;
        let count = open.len();
        let dice = self.random.below(16);
        if count == 0 || dice < 5 && count < OPEN_MAX {
            return Some(Op::Open { path: self.file()? });
        }
        let open = self.below(count);
        let offset = self.state.own.offset(open);
        Some(match dice {
            0..7 => Op::Close { open },
            7..8 => Op::ReadOpen { open },
            8..10 => Op::WriteOpen {
                open,
                at: self.below(FILE_BYTES_MAX),
                len: self.below(6000) + 1,
                fill: self.random.next(),
            },
            10..11 if count < OPEN_MAX => Op::Dup { open },
            11..12 => Op::ReadNext {
                open,
                len: self.below(6000) + 1,
            },
            12.. if offset < FILE_BYTES_MAX => Op::WriteNext {
                open,
                len: self.below(6000) + 1,
                fill: self.random.next(),
            },
            _ => Op::Seek {
                open,
                to: self.below(FILE_BYTES_MAX),
            },
        })
    }

    fn attribute(&mut self) -> Option<Op> {
        let path = self.file()?;
        let name = format!("user.{}", self.random.below(4));
        if self.random.below(3) == 0 && self.state.own.node(&path).xattrs.contains_key(&name) {
            return Some(Op::Own(Change::RemoveXattr { path, name }));
        }
        let len = if self.random.below(8) == 0 { 9000 } else { 100 };
        Some(Op::Own(Change::SetXattr {
            path,
            name,
            len: self.below(len) + 1,
            fill: self.random.next(),
        }))
    }

    fn removal(&mut self) -> Option<Op> {
        let names = &self.state.own.names;
        let nth = self.random.below(names.len().max(1) as u64) as usize;
        let path = names.keys().nth(nth)?.clone();
        if self.state.own.node(&path).kind != Kind::Dir {
            return Some(Op::Own(Change::Unlink { path }));
        }
        let below = format!("{path}/");
        let empty = !names.keys().any(|name| name.starts_with(&below));
        empty.then_some(Op::Own(Change::Rmdir { path }))
    }

    fn rename(&mut self) -> Option<Op> {
        let from = self.file()?;
        let to = if self.random.below(2) == 0 {
            self.file()?
        } else {
            self.fresh_name()
        };
        (from != to).then_some(Op::Own(Change::Rename { from, to }))
    }

    fn one_of(&mut self, wanted: fn(&Node) -> bool) -> Option<String> {
        let own = &self.state.own;
        let names = own
            .names
            .iter()
            .filter(|(_, number)| wanted(&own.nodes[number]));
        let names: Vec<&String> = names.map(|(path, _)| path).collect();
        self.random.pick(&names).map(|path| (*path).clone())
    }

    fn file(&mut self) -> Option<String> {
        self.one_of(|node| node.kind == Kind::File)
    }

    /// In the worker's directory, below one of its own, or in the one that all share.
    fn fresh_name(&mut self) -> String {
        loop {
            let number = self.random.below(100_000);
            let path = match self.random.below(4) {
                0 | 1 => format!("{MIXED}/{}{number}", prefix(self.worker)),
                2 => match self.one_of(|node| node.kind == Kind::Dir) {
                    Some(dir) => format!("{dir}/{number}"),
                    None => continue,
                },
                _ => format!("{}/{number}", home(self.worker)),
            };
            if !self.state.own.names.contains_key(&path) {
                return path;
            }
        }
    }
}

/// The directory in which all have names.
pub const MIXED: &str = "mixed";

/// Returns how a worker's names begin there.
pub fn prefix(worker: usize) -> String {
    format!("{worker}-")
}

/// A worker's directory.
pub fn home(worker: usize) -> String {
    format!("w{worker}")
}
