//! The command line of `pmkv` as data: for the program itself, and for manual pages and
//! completions, which are made of the same definitions. The commands' work is in the program alone.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pm_cli::Size;

/// pmkv: persistent heaps in files on persistent memory (or tmpfs, huge pages, a plain file).
///
/// A heap is one file of objects that outlive their programs (docs/HEAP.md). Among them are
/// key-value engines, which keep values by keys (docs/KV.md). To try it:
///
///   pmkv create --size 64M /dev/shm/heap
///   pmkv put /dev/shm/heap ada 1815
///   pmkv get /dev/shm/heap ada
///   pmkv scan /dev/shm/heap
///   pmkv stat /dev/shm/heap
#[derive(Parser)]
#[command(name = "pmkv", version, verbatim_doc_comment, max_term_width = 100)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Make a heap
    Create(Create),
    /// Keep a value by a key, durably
    #[command(after_help = "\
Examples:

  pmkv put /dev/shm/heap ada 1815
  pmkv put /dev/shm/heap photo <photo.jpg
  pmkv put /dev/shm/heap --engine users -- -key- -value-
  pmkv put /dev/shm/heap --ttl 3600 session 7f3a
  pmkv put /dev/shm/heap --engine years --kind tree 1815 Ada

When it ends, the value is durable, as far as the medium is (`pmkv stat` tells). An old value of the
key is replaced. The heap must be there (`pmkv create`); the engine is made by its first put. Keys
have up to 64 KiB, values up to 4 GiB, of any bytes.

Exit codes: 0 done, 8 could not be done.")]
    Put(Put),
    /// Show the value of a key
    #[command(after_help = "\
The value is written as it is, without a line end of its own.

Examples:

  pmkv get /dev/shm/heap ada
  pmkv get /dev/shm/heap photo >photo.jpg
  pmkv get /dev/shm/heap ada >/dev/null || echo unknown

Exit codes: 0 done, 1 the key is not there (nothing is said then), 8 could not be done.")]
    Get(Get),
    /// Take a key away, with its value
    #[command(after_help = "\
Exit codes: 0 done, 1 the key is not there (nothing is said then), 8 could not be done.")]
    Del(Del),
    /// Show keys with their values; those of a tree in order
    #[command(after_help = "\
A line a key: the key, a tab, the value. Bytes that would break a line or are no UTF-8 are written
as \\n, \\t, \\r, \\\\ and \\xff. With --json, a line is an object with `key` and `value`; bytes that are no
UTF-8 are in `key_hex` and `value_hex` instead, in hexadecimal.

Keys of a tree come in the order of their bytes; those of a hash in no order, and --prefix, --from
and --to look at all of them.

Examples:

  pmkv scan /dev/shm/heap | sort
  pmkv scan /dev/shm/heap --engine years --from 1900 --to 1950

A damaged record is told on stderr, and the other keys are shown.

Exit codes: 0 done, 8 could not be done, or not wholly.")]
    Scan(Scan),
    /// Verify the records of an engine: each byte of its keys and values
    #[command(after_help = "\
A line for each damaged record: its offset, and its key, if that can still be told. With --drop they
are taken away, and their keys can be used again; without it their keys are errors for `get`, `put`
and `del`. Others may use the engine meanwhile.

Examples:

  pmkv scrub /dev/shm/heap
  pmkv scrub /dev/shm/heap --drop

Exit codes: 0 all are whole, 1 damaged ones were dropped, 4 damaged ones are left, 8 could not be
done.")]
    Scrub(Scrub),
    /// Write all keys of an engine, with their values and expiries, to stdout
    #[command(after_help = "\
The stream has a check for each entry. Others may use the engine meanwhile: a key that is there
throughout is in it.

Examples:

  pmkv save /dev/shm/heap >users.pmkv
  pmkv save /dev/shm/heap | ssh other pmkv load /dev/shm/heap

Exit codes: 0 done, 1 the engine is not there, 8 could not be done: a damaged record is an error.")]
    Save(Save),
    /// Read keys, with their values and expiries, from stdin, as `pmkv save` writes them
    #[command(after_help = "\
The engine is made, if it is missing, of the kind that was saved, or of --kind. Keys that are there
stay, or get the values of the stream. Keys are put a thousand at a time. A damaged stream is loaded
up to the damage.

Examples:

  pmkv load /dev/shm/heap <users.pmkv
  pmkv load /dev/shm/heap --engine sorted --kind tree <users.pmkv

Exit codes: 0 done, 8 could not be done, or not wholly.")]
    Load(Load),
    /// Copy all engines of a heap, with values and expiries, to a new heap of this version
    #[command(after_help = "\
Each engine is copied as it is at one instant; others may use it meanwhile. The old heap stays as it
is. Objects that programs keep beside engines are not copied. An engine of another version is told,
and nothing is made: the pmkv that made it has to save it. Pools of PMDK are not heaps, and are
refused.

Examples:

  pmkv migrate /dev/shm/heap /mnt/pmem/heap
  pmkv migrate --size 4G old new

Exit codes: 0 done, 8 could not be done: a damaged record is an error, and the new heap is removed.")]
    Migrate(Migrate),
    /// Measure calls of an engine on this machine, in a new heap that is removed again
    #[command(after_help = "\
One thread does each call so many times, on keys of 16 bytes in a mixed order. Without a path the
heap is in memory alone. Another process on the machine changes the figures.

Examples:

  pmkv bench
  pmkv bench /mnt/pmem/bench --kind tree --json

Exit codes: 0 done, 8 could not be done.")]
    Bench(Bench),
    /// Show a heap's size, space, medium, durability and engines
    #[command(after_help = "\
Example: the bytes that are free, without growth:

  pmkv stat --json /dev/shm/heap | jq .free_bytes

A heap that a crash has left is recovered first.")]
    Stat(Stat),
    /// Show the processes that use a heap, and their calls: gets, puts, deletes, bytes, waits
    #[command(after_help = "\
A process has two lines: its calls of each second, and all since it opened the heap. Gets are keys
that were looked for, and deletes keys that were to be taken away; both are counted whether the key
was there or not. Puts and deletes of a batch are counted too. A scan is a walk over keys, and the
values that it shows are among the bytes got. A process that was killed is shown as dead until
another one has cleaned up after it.

Examples:

  pmkv top /dev/shm/heap
  pmkv top --json --count 2 /dev/shm/heap | jq '.processes[] | {pid, command, rates}'

On a terminal it runs until Ctrl-C. Otherwise it shows one round, over the time since each process
opened the heap; with --json it runs until --count. No process is disturbed, and the right to read
the heap is enough.

Exit codes: 0 done, 1 could not be done.")]
    Top(Top),
    /// Check a heap: every byte of it is accounted for
    #[command(after_help = "\
Exit codes: 0 clean, 4 damaged, 8 could not be checked.

docs/HEAP-CHECK.md explains the findings.")]
    Check(Check),
    /// Mend a damaged heap that nobody uses
    #[command(after_help = "\
Exit codes: 0 clean, 1 repaired, 4 damage left, 8 could not be done. With --dry-run: 4 if there is
something to repair.

Nothing that can be read is dropped; still, copy a valuable heap first. docs/HEAP-CHECK.md tells
what is done about each finding.")]
    Repair(Repair),
    /// Give room back that a heap does not need: chunks without objects or records become free, and
    /// the file becomes shorter by the free chunks at its end
    #[command(after_help = "\
A heap that others have keeps its length. Free runs of 2 MiB in the middle become holes of the file,
which get space again when they are needed.")]
    Compact(Compact),
    /// Make a heap longer; it does so by itself when it is full
    Grow(Grow),
    /// Show a heap's structures as they stand
    #[command(after_help = "\
Examples:

  pmkv dump /dev/shm/heap
  pmkv dump /dev/shm/heap chunks
  pmkv dump /dev/shm/heap chunk 5
  pmkv dump /dev/shm/heap lane 0 --json
  pmkv dump /dev/shm/heap bytes 0x50040 64

It works on damaged heaps and on heaps in use, of which parts may be of several moments.
docs/FORMAT.md explains the fields.")]
    Dump(Dump),
}

/// `pmkv create`
#[derive(Args)]
pub struct Create {
    /// The heap's file, not there yet: on tmpfs, hugetlbfs, a DAX file system or any other; or a
    /// DAX device
    pub heap: PathBuf,
    /// Size of the heap, like 64M or 1G; it grows when it is full
    #[arg(long, short, value_name = "SIZE", default_value = "64M")]
    pub size: Size,
    /// Transactions that can go on at once [default: by the size]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub lanes: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The kinds of engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EngineKind {
    /// Keys in no order: the fastest for single keys
    Hash,
    /// Keys in the order of their bytes
    Tree,
}

impl From<EngineKind> for pmkv::Kind {
    fn from(kind: EngineKind) -> pmkv::Kind {
        match kind {
            EngineKind::Hash => pmkv::Kind::Hash,
            EngineKind::Tree => pmkv::Kind::Tree,
        }
    }
}

/// The engine that a command is about.
#[derive(Args)]
pub struct Engine {
    /// The engine's name; a heap can have several
    #[arg(long, short, value_name = "NAME", default_value = "kv")]
    pub engine: String,
}

/// `pmkv put`
#[derive(Args)]
pub struct Put {
    /// The heap
    pub heap: PathBuf,
    /// The key
    pub key: OsString,
    /// The value; read from stdin, as it is, if it is missing or `-`
    pub value: Option<OsString>,
    /// The kind of an engine that is made: hash, unless it is said; one that is there keeps its own
    #[arg(long)]
    pub kind: Option<EngineKind>,
    /// Have the key be missing after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub ttl: Option<u64>,
    /// The engine
    #[command(flatten)]
    pub engine: Engine,
    /// Print JSON: the key, and the value's length
    #[arg(long)]
    pub json: bool,
}

/// `pmkv get`
#[derive(Args)]
pub struct Get {
    /// The heap
    pub heap: PathBuf,
    /// The key
    pub key: OsString,
    /// The engine
    #[command(flatten)]
    pub engine: Engine,
    /// Print JSON: the key and the value; bytes that are no UTF-8 as `value_hex`, in hexadecimal
    #[arg(long)]
    pub json: bool,
}

/// `pmkv del`
#[derive(Args)]
pub struct Del {
    /// The heap
    pub heap: PathBuf,
    /// The key
    pub key: OsString,
    /// The engine
    #[command(flatten)]
    pub engine: Engine,
    /// Print JSON: the key, if it was there
    #[arg(long)]
    pub json: bool,
}

/// `pmkv scan`
#[derive(Args)]
pub struct Scan {
    /// The heap
    pub heap: PathBuf,
    /// Only keys that begin so
    #[arg(
        long,
        short,
        value_name = "PREFIX",
        default_value = "",
        hide_default_value = true
    )]
    pub prefix: OsString,
    /// Only keys from this one on
    #[arg(long, value_name = "KEY")]
    pub from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    pub to: Option<OsString>,
    /// Only the keys, without their values
    #[arg(long, short)]
    pub keys: bool,
    /// All keys as they are at one instant
    #[arg(long)]
    pub snapshot: bool,
    /// The engine
    #[command(flatten)]
    pub engine: Engine,
    /// Print JSON, a line a key
    #[arg(long)]
    pub json: bool,
}

/// `pmkv scrub`
#[derive(Args)]
pub struct Scrub {
    /// The heap
    pub heap: PathBuf,
    /// Take damaged records away
    #[arg(long)]
    pub drop: bool,
    /// The engine
    #[command(flatten)]
    pub engine: Engine,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmkv save`
#[derive(Args)]
pub struct Save {
    /// The heap
    pub heap: PathBuf,
    /// The engine
    #[command(flatten)]
    pub engine: Engine,
}

/// `pmkv load`
#[derive(Args)]
pub struct Load {
    /// The heap
    pub heap: PathBuf,
    /// The engine
    #[command(flatten)]
    pub engine: Engine,
    /// The kind of an engine that is made: the one that was saved, unless it is said
    #[arg(long)]
    pub kind: Option<EngineKind>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmkv migrate`
#[derive(Args)]
pub struct Migrate {
    /// The heap
    pub from: PathBuf,
    /// The new heap's file, not there yet
    pub to: PathBuf,
    /// Size of the new heap, like 64M or 1G [default: that of the old one]
    #[arg(long)]
    pub size: Option<Size>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmkv bench`
#[derive(Args)]
pub struct Bench {
    /// A file, not there yet, for the heap
    pub heap: Option<PathBuf>,
    /// The kind of the engine
    #[arg(long, default_value = "hash")]
    pub kind: EngineKind,
    /// Keys
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub keys: u64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    pub value: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmkv stat`
#[derive(Args)]
pub struct Stat {
    /// The heap
    pub heap: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmkv top`
#[derive(Args)]
pub struct Top {
    /// The heap
    pub heap: PathBuf,
    /// Seconds between two rounds
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0, value_parser = pm_cli::interval)]
    pub interval: f64,
    /// End after N rounds
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Print each round as a line of JSON, with totals
    #[arg(long)]
    pub json: bool,
}

/// `pmkv check`
#[derive(Args)]
pub struct Check {
    /// The heap
    pub heap: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmkv repair`
#[derive(Args)]
pub struct Repair {
    /// The heap
    pub heap: PathBuf,
    /// Change nothing: repair a copy in memory, and tell what was done to it
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmkv compact`
#[derive(Args)]
pub struct Compact {
    /// The heap
    pub heap: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmkv grow`
#[derive(Args)]
pub struct Grow {
    /// The heap
    pub heap: PathBuf,
    /// Its new size, like 64M or 1G; one that is smaller than the heap changes nothing
    pub size: Size,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmkv dump`
#[derive(Args)]
pub struct Dump {
    /// The heap
    pub heap: PathBuf,
    /// The part to show
    #[arg(default_value = "header")]
    pub part: DumpPart,
    /// Which lane or chunk, or the offset of the first byte
    #[arg(value_parser = number)]
    pub number: Option<u64>,
    /// How many bytes
    #[arg(value_parser = number)]
    pub bytes: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The parts of a heap that can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DumpPart {
    /// The header, the spans and where the roots are
    Header,
    /// The first line of each lane
    Lanes,
    /// A lane with its records
    Lane,
    /// The kinds of the chunks
    Chunks,
    /// A chunk with its objects
    Chunk,
    /// Named roots, with their types
    Roots,
    /// Bytes, in hexadecimal
    Bytes,
}

/// A number, in decimal or after `0x` in hexadecimal.
fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("'{text}' is not a number; write it like 4096 or 0x1000"))
}

/// The whole definition, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}
