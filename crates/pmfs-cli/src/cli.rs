//! The command line. Each argument is defined once, here; help and parsing read the same lines.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use pmem::{Emulation, ProtectMode};

use pm_cli::Size;

/// PMFS: a crash-consistent file system on persistent memory (or tmpfs, huge pages, a plain file),
/// in user space.
///
/// A pool is one file that holds a whole file system. To try it:
///
///   pmfs mkfs --size 1G /dev/shm/pool
///   mkdir /tmp/mnt
///   pmfs mount /dev/shm/pool /tmp/mnt
///   (use /tmp/mnt)
///   pmfs umount /tmp/mnt
#[derive(Parser)]
#[command(name = "pmfs", version, verbatim_doc_comment, max_term_width = 100)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Make a pool
    Mkfs(Mkfs),
    /// Mount a pool on a directory
    Mount(Mount),
    /// Unmount, and wait until the pool is closed
    Umount(Umount),
    /// Run a program whose files below a directory are in a pool, without system calls
    #[command(after_help = "\
Example: a build in a pool, and its effect on the pool:

  pmfs run --pool /dev/shm/pool --at /mnt/pool --stats -- make -C /mnt/pool/src

And one whose temporary files are in a pool that is made for it, and removed after it:

  pmfs run --temp 2G -- make test

The program, and every program that it starts, reaches these files by load and store. Programs that can't (static and \
set-uid programs, for example) use the mount. It is made for the time of the run if there is none. The exit code is the \
program's; 126: it can't be run, 127: there is none of that name.

Without FUSE, and with --no-mount, there is no mount. DIR is then a name for these programs alone, and calls that need a \
mount are refused (docs/SEMANTICS.md, Without a mount).

PMFS_LOG names a log file: why a program uses the mount, and the calls refused without one. PMFS_PATCH names \
further libraries that make system calls of their own, with colons between. PMFS_PATCH_MODE=place overwrites their calls \
instead of mapping patched images. PMFS_MONITOR=1 counts calls by thread from the start on, for pmmon(1).")]
    Run(Run),
    /// Check a pool that is not mounted, and repair it
    #[command(
        after_help = "Exit codes: 0 clean, 1 repaired, 4 findings left, 8 could not be checked.\n\
                      Findings have numbers, which docs/FSCK.md explains. A repair throws away impossible data:\n\
                      copy a valuable pool file first (cp --sparse=always POOL COPY)."
    )]
    Fsck(Fsck),
    /// Show a pool's size, space, medium and durability
    #[command(after_help = "\
Example: the free space in pages of 2 MiB, of a pool that may be mounted:

  pmfs info --json /dev/shm/pool | jq .free_2m_pages

A pool that is mounted or in use is only read. A pool that a crash has left is recovered first.")]
    Info(Info),
    /// Show each process's load on a pool: calls, bytes, barriers, waits
    #[command(after_help = "\
Example: the processes with most changes, and the part of their time that they wait for others:

  pmfs top /dev/shm/pool
  pmfs top --json --count 2 /dev/shm/pool | jq '.processes[] | {pid, command, rates}'

On a terminal it runs until Ctrl-C. Otherwise it shows one round, over the time since each process opened the pool.")]
    Top(Top),
    /// List files of a pool
    Ls(Ls),
    /// Copy files out of a pool
    Get(Get),
    /// Copy files into a pool
    Put(Put),
    /// Clone a file or tree inside a pool, at one instant; the clone shares its blocks
    Clone(CloneTree),
    /// Make, list, delete and restore snapshots: trees as they were, which nobody can change
    Snapshot(SnapshotArgs),
    /// List pools and heaps: mounted pools, and files of both in the usual places
    List(List),
    /// Delete pools that are not in use
    Rm(Rm),
    /// Write a pool, mounted or not, to a file: its state at one instant
    Save(Save),
    /// Make a pool from a file of save
    Load(Load),
    /// Part of a mount: its stdin is a socket to the daemon, its stdout the device
    #[command(hide = true)]
    DropPages,
    /// Show structures of a pool without changing it
    Dump(Dump),
    /// Make a pool that is not mounted larger
    Grow(Grow),
    /// Make large pages of small ones and whole regions of free space, while the pool is in use
    Defrag(Defrag),
    /// Check this machine for the needs of PMFS, and say how to meet them
    #[command(
        after_help = "Exit codes: 0 every need is met, 1 one is missing. Nothing is changed.\n\
                      Optional parts are not needed to make and mount pools; \"missing\" ones are. Below each is the\n\
                      command that installs it."
    )]
    Doctor(Doctor),
}

/// `pmfs mkfs`
#[derive(Args)]
pub struct Mkfs {
    /// The pool file: on tmpfs, hugetlbfs, a DAX file system or any other; or a DAX device
    pub pool: PathBuf,
    /// Size of the pool, like 512M, 1G, 1.5T; optional if the file has one
    #[arg(long, short, value_name = "SIZE")]
    pub size: Option<Size>,
    /// Overwrite a pool, or any other file that is not empty
    #[arg(long, short)]
    pub force: bool,
    /// Don't allocate the file now; space is taken when it is used, and may run out
    #[arg(long)]
    pub sparse: bool,
    /// The most files that the pool can have [default: by size]
    #[arg(long, value_name = "N")]
    pub inodes: Option<u64>,
    /// The open files, and half as many locks, for which tables have room before they take free
    /// space: 168 bytes each, and a longer end of each program [default: by size]
    #[arg(long, value_name = "N")]
    pub open_files: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs mount`
#[derive(Args)]
#[command(after_help = option_help())]
pub struct Mount {
    /// The pool file
    pub pool: PathBuf,
    /// The directory to mount it on
    pub dir: PathBuf,
    /// Mount options, comma-separated; may be given several times (see below)
    #[arg(short = 'o', value_name = "OPT,OPT=...")]
    pub options: Vec<String>,
    /// Be as slow as another medium: dram, pmep-2014, optane-100, cxl-nvcmm, or figures, like
    /// read=300ns,write-bandwidth=9.5G,barrier=100ns, or a modelled device, like
    /// device:optane-100,dimms=6; loads through mappings are not delayed (docs/EMULATION.md)
    #[arg(long, value_name = "MEDIUM")]
    pub emulate: Option<Emulation>,
    /// Protection of the pool against stray stores: auto (keys, where there are any), none, keys
    /// (protection keys), or pages (mprotect around each change: slow, for comparison)
    #[arg(long, value_name = "HOW")]
    pub protect: Option<ProtectMode>,
    /// Stay in the foreground, with the log on stderr; Ctrl-C unmounts
    #[arg(short, long)]
    pub foreground: bool,
    /// Write the log of the background process to this file
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Make all checks that need no mount, and mount nothing (mount -f)
    #[arg(long, hide = true)]
    pub fake: bool,
    /// This process is the background process; its stdout is a pipe to the one that started it.
    #[arg(long, hide = true)]
    pub daemon: bool,
    /// The mount lasts as long as a `pmfs run` uses it.
    #[arg(long, hide = true)]
    pub while_used: bool,
    /// Remove these files and empty directories when the mount has ended.
    #[arg(long, hide = true)]
    pub and_remove: Vec<PathBuf>,
    /// mount(8) asks: it leaves out its own defaults, which are suid and dev.
    #[arg(long, hide = true)]
    pub by_mount8: bool,
}

/// `pmfs umount`
#[derive(Args)]
pub struct Umount {
    /// The directory that a pool is mounted on
    pub dir: PathBuf,
    /// Detach it while it is in use; it ends when the last open file is closed
    #[arg(long, short)]
    pub lazy: bool,
    /// Seconds that the serving process may take to close the pool
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub wait: u32,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs run`
#[derive(Args)]
#[command(group(ArgGroup::new("which").args(["pool", "temp"])))]
pub struct Run {
    /// The pool file [default: of the mount that this directory is in, or the only one]
    #[arg(long, requires = "at")]
    pub pool: Option<PathBuf>,
    /// The directory whose files are in the pool [default with --temp: a new one, which TMPDIR
    /// names]
    #[arg(long, value_name = "DIR", requires = "which")]
    pub at: Option<PathBuf>,
    /// Make a pool of this size for the run, and DIR if it is missing; both are removed after the
    /// last program. Space is taken when it is used
    #[arg(long, value_name = "SIZE")]
    pub temp: Option<Size>,
    /// The directory for the pool of --temp [default: /dev/shm, memory]
    #[arg(long, value_name = "PATH", requires = "temp")]
    pub on: Option<PathBuf>,
    /// Make the pool of --temp under this name, and keep it
    #[arg(long, value_name = "POOL", requires = "temp", conflicts_with = "on")]
    pub keep: Option<PathBuf>,
    /// Options as of `pmfs mount`: atomicity of writes, flushes, updates of atime
    #[arg(short = 'o', value_name = "OPT,OPT=...")]
    pub options: Vec<String>,
    /// Be as slow as another medium: dram, pmep-2014, optane-100, cxl-nvcmm, or figures, like
    /// read=300ns,write-bandwidth=9.5G,barrier=100ns, or a modelled device, like
    /// device:optane-100,dimms=6; loads through mappings are not delayed (docs/EMULATION.md)
    #[arg(long, value_name = "MEDIUM")]
    pub emulate: Option<Emulation>,
    /// Stores to shared mappings reach the file with msync, all or nothing: after a crash the file
    /// is as of some msync. Until then others don't see them; one process at a time may map a file
    /// so
    #[arg(long)]
    pub atomic_msync: bool,
    /// Protection of the pool against stray stores of the programs: auto (keys, where there are
    /// any), none, keys (protection keys), or pages (mprotect around each change: slow, for
    /// comparison)
    #[arg(long, value_name = "HOW")]
    pub protect: Option<ProtectMode>,
    /// Do not mount: DIR, which need not exist, is a name for these programs alone
    #[arg(long, requires = "which")]
    pub no_mount: bool,
    /// Print at the end the calls served and their cost
    #[arg(long)]
    pub stats: bool,
    /// Write a line for each call that concerns the pool to this file
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print the totals of --stats as JSON
    #[arg(long, requires = "stats")]
    pub json: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<std::ffi::OsString>,
}

/// `pmfs fsck`
#[derive(Args)]
pub struct Fsck {
    /// The pool file
    pub pool: PathBuf,
    /// Repair the findings; also -y, -a and -p, as fsck(8) asks for it
    #[arg(long, short = 'y', short_aliases = ['a', 'p'])]
    pub repair: bool,
    /// Read every block first, and name the files with unreadable blocks; with --repair such blocks
    /// are replaced, except those with bytes of files
    #[arg(long)]
    pub badblocks: bool,
    /// Only check (the default)
    #[arg(long, short = 'n', conflicts_with = "repair")]
    pub no_repair: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs info`
#[derive(Args)]
pub struct Info {
    /// The pool file
    pub pool: PathBuf,
    /// A file in it: show its pages by size, and how much of it others share
    #[arg(conflicts_with_all = ["open", "locks"])]
    pub path: Option<PathBuf>,
    /// Show the processes of the pool and their open files
    #[arg(long)]
    pub open: bool,
    /// Show the processes of the pool, and the file locks that they hold or wait for
    #[arg(long)]
    pub locks: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs top`
#[derive(Args)]
pub struct Top {
    /// The pool file
    pub pool: PathBuf,
    /// Seconds between two rounds
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0, value_parser = pm_cli::interval)]
    pub interval: f64,
    /// End after N rounds
    #[arg(long, short = 'n', value_name = "N")]
    pub count: Option<u64>,
    /// Show loads and stores on mappings beside calls, by the program pmmon; see pmmon(1) for the
    /// ways to measure
    #[arg(long, value_name = "WAY", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "auto")]
    pub mapped: Option<MappedBy>,
    /// Print each round as a line of JSON, with totals
    #[arg(long)]
    pub json: bool,
}

/// The way to measure use of mappings.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum MappedBy {
    /// Bytes where that can harm no program, else the time that accesses take
    Auto,
    /// Bytes, by hardware breakpoints
    Watch,
    /// The time that accesses take
    Clock,
}

impl MappedBy {
    /// The name by which pmmon takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Watch => "watch",
            Self::Clock => "clock",
        }
    }
}

/// `pmfs ls`
#[derive(Args)]
#[command(after_help = "\
Example: /home of a pool and everything below, with owners, sizes and times (UTC):

  pmfs ls -lR /dev/shm/pool home

With -R each line is a path from PATH, so that grep finds it whole.")]
pub struct Ls {
    /// The pool file
    pub pool: PathBuf,
    /// A file or directory in it
    #[arg(default_value = "/", hide_default_value = true)]
    pub path: PathBuf,
    /// Type, permissions, links, owner, group, bytes, time
    #[arg(long, short)]
    pub long: bool,
    /// Everything below too
    #[arg(long, short = 'R')]
    pub recursive: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs get`
#[derive(Args)]
#[command(after_help = "\
Examples: one file to read, and a whole tree into a directory:

  pmfs get /dev/shm/pool etc/motd - | less
  pmfs get -r /dev/shm/pool home /tmp/rescued

Permissions, times, holes and hard links are kept; owners too, by root.")]
pub struct Get {
    /// The pool file
    pub pool: PathBuf,
    /// A file in it; with -r a directory too
    pub path: PathBuf,
    /// The destination: a new name, a directory, or - for stdout [default: its name, here]
    pub dest: Option<PathBuf>,
    /// A directory with everything below; links stay links
    #[arg(long, short)]
    pub recursive: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs put`
#[derive(Args)]
#[command(after_help = "\
Examples: one file, the output of a program, and a whole tree:

  pmfs put /dev/shm/pool notes.txt /
  date | pmfs put /dev/shm/pool - stamp
  pmfs put -r /dev/shm/pool ~/project src

A file appears under its name when it is complete, in place of the old one.
Permissions, times, holes and hard links are kept; owners too, by root.")]
pub struct Put {
    /// The pool file
    pub pool: PathBuf,
    /// A file, or - for stdin; with -r a directory too
    pub src: PathBuf,
    /// The destination in the pool: a new name, or a directory
    pub path: PathBuf,
    /// A directory with everything below; links stay links
    #[arg(long, short)]
    pub recursive: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs clone`
#[derive(Args)]
#[command(after_help = "\
Examples: a tree before an experiment, and the whole pool under a name of its own:

  pmfs clone /dev/shm/pool project project-before
  pmfs clone /dev/shm/pool / snapshot-monday

The pool may be mounted and in use: the clone has all files as they are at one instant, for which changes wait.
It takes no room but for names, inodes and what leads to blocks, until either side is changed. DST is there
whole or not at all, also after a crash. Permissions, owners, times, ACLs and hard links are kept.")]
pub struct CloneTree {
    /// The pool file
    pub pool: PathBuf,
    /// A file or directory in the pool
    #[arg(value_name = "SRC")]
    pub src: PathBuf,
    /// The clone: a new name, or a directory
    #[arg(value_name = "DST")]
    pub dest: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs snapshot`
#[derive(Args)]
#[command(after_help = "\
Example: all files every day, and one tree back as it was on Monday:

  pmfs snapshot create /dev/shm/pool monday
  pmfs snapshot list /dev/shm/pool
  pmfs snapshot restore /dev/shm/pool monday monday-again

A snapshot is a clone (`pmfs clone`) below /.snapshots that does not change: every call that would change it fails
with \"read-only file system\" (EROFS), for root too. A mount and `pmfs run` show it like other files. The pool may
be mounted and in use.")]
pub struct SnapshotArgs {
    /// The command.
    #[command(subcommand)]
    pub command: SnapshotCommand,
}

/// The commands of `pmfs snapshot`.
#[derive(Subcommand)]
pub enum SnapshotCommand {
    /// Make a snapshot of all files, or of a tree, as they are at one instant
    Create(SnapshotCreate),
    /// List the snapshots, the oldest first
    List(SnapshotList),
    /// Delete snapshots
    Delete(SnapshotDelete),
    /// Clone a snapshot to a place where it can be changed
    Restore(SnapshotRestore),
}

/// `pmfs snapshot create`
#[derive(Args)]
pub struct SnapshotCreate {
    /// The pool file
    pub pool: PathBuf,
    /// The snapshot's name
    pub name: String,
    /// The directory in the pool, with all below it
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub of: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs snapshot list`
#[derive(Args)]
pub struct SnapshotList {
    /// The pool file
    pub pool: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs snapshot delete`
#[derive(Args)]
pub struct SnapshotDelete {
    /// The pool file
    pub pool: PathBuf,
    /// The snapshots' names
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs snapshot restore`
#[derive(Args)]
pub struct SnapshotRestore {
    /// The pool file
    pub pool: PathBuf,
    /// The snapshot's name
    pub name: String,
    /// The new place in the pool
    #[arg(value_name = "DST")]
    pub dest: PathBuf,
    /// Have it take the place of what is at DST, at one instant; that is deleted
    #[arg(long)]
    pub replace: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs list`
#[derive(Args)]
#[command(after_help = "\
Example: the pools on a DAX file system:

  pmfs list /mnt/pmem

Without DIR it shows all mounted pools, and searches /dev/shm, the top of each tmpfs, hugetlbfs and DAX
mount, and the current directory. States: mounted, in use (by a program without a mount), clean, needs recovery
(the next mount does it), damaged (see `pmfs fsck` and `pmfs dump POOL superblock`). Heaps are files of
`pmkv`, which checks and shows them.")]
pub struct List {
    /// Directories to search, or files of pools or heaps
    #[arg(value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs rm`
#[derive(Args)]
#[command(after_help = "\
Example: the end of an experiment:

  pmfs umount /tmp/mnt && pmfs rm /dev/shm/pool

Everything in the pool is lost. If one of several can't be deleted, none is.")]
pub struct Rm {
    /// The pool files
    #[arg(required = true, value_name = "POOL")]
    pub pools: Vec<PathBuf>,
    /// Delete it even if it is not a pool, or no longer one
    #[arg(long, short)]
    pub force: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs save`
#[derive(Args)]
#[command(after_help = "\
Examples: a backup of a pool in use, and a compressed one:

  pmfs save /dev/shm/pool /backup/monday.pmfs
  pmfs save /dev/shm/pool - | zstd > /backup/monday.pmfs.zst

The file holds the whole pool at one instant. While it is copied, calls on the mount that make a change
wait, and reads continue. If this command dies, the calls continue at once. So FILE must not be on that
mount, nor may the reader of the output write to it. `pmfs load` makes a pool of it again.

With --snapshot the file holds one snapshot, and with --base only what is not in the other one, which
`pmfs load --onto` needs: a backup each day costs what has changed.

  pmfs save --snapshot monday /dev/shm/pool /backup/monday
  pmfs save --snapshot tuesday --base monday /dev/shm/pool /backup/tuesday")]
pub struct Save {
    /// The pool file
    pub pool: PathBuf,
    /// The file to write, or - for stdout
    pub file: PathBuf,
    /// Replace FILE if it exists
    #[arg(long, short)]
    pub force: bool,
    /// Write this snapshot alone (`pmfs snapshot`); the pool stays in use
    #[arg(long, value_name = "NAME")]
    pub snapshot: Option<String>,
    /// Write only what differs from this snapshot, which the reader has
    #[arg(long, value_name = "NAME", requires = "snapshot")]
    pub base: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs load`
#[derive(Args)]
#[command(after_help = "\
Examples: restore a backup, and copy a pool from another machine:

  pmfs load /backup/monday.pmfs /dev/shm/pool
  ssh host pmfs save /dev/shm/pool - | pmfs load - /dev/shm/copy

FILE is checked while it is read: if a bit has flipped or its end is missing, no pool is made.

With --onto, FILE is one of `pmfs save --snapshot`, and the snapshot comes into a pool that is there and may be in
use. It is there whole, or not at all. Owners, modes and devices are as in FILE: load only what you trust.

  pmfs load --onto /backup/tuesday /dev/shm/copy")]
pub struct Load {
    /// A file of `pmfs save`, or - for stdin
    pub file: PathBuf,
    /// The pool to make; with --onto, one that is there
    pub pool: PathBuf,
    /// Add the snapshot in FILE to the pool
    #[arg(long, conflicts_with_all = ["force", "sparse"])]
    pub onto: bool,
    /// Replace a pool, or any other file that is not empty
    #[arg(long, short)]
    pub force: bool,
    /// Don't allocate the file now; space is taken when it is used, and may run out
    #[arg(long)]
    pub sparse: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs dump`
#[derive(Args)]
#[command(after_help = "\
Examples: the root directory, and the log that an unfinished transaction left:

  pmfs dump /dev/shm/pool dir 2
  pmfs dump /dev/shm/pool lane

Inode 2 is the root directory, tree 1 the inode table; `pmfs ls --json` shows other numbers. No recovery
takes place, so a pool that a crash has left is shown as it was left. Damage is shown and marked.
docs/FORMAT.md explains the fields.")]
pub struct Dump {
    /// The pool file
    pub pool: PathBuf,
    /// The part to show
    pub part: DumpPart,
    /// The number of the inode or lane [lane: all of them, in a line each]
    pub number: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Parts of a pool.
#[derive(Clone, Copy, ValueEnum)]
pub enum DumpPart {
    /// Both superblocks, the run record and the state
    Superblock,
    /// An inode's fields and attributes
    Inode,
    /// A directory's buckets and records
    Dir,
    /// The nodes and leaves of an inode's tree
    Tree,
    /// A lane of the journal: its log and its intents
    Lane,
    /// The processes that have been attached
    Slots,
}

/// `pmfs grow`
#[derive(Args)]
#[command(after_help = "\
Example: twice the room:

  pmfs umount /tmp/mnt && pmfs grow /dev/shm/pool 2G && pmfs mount /dev/shm/pool /tmp/mnt

SIZE is the new size of the pool, not the difference. Files stay in place. After an interruption the pool
is as before or as after; run it once more then.")]
pub struct Grow {
    /// The pool file
    pub pool: PathBuf,
    /// New size of the pool, like 512M, 1G, 1.5T
    #[arg(
        required_unless_present = "size_option",
        conflicts_with = "size_option"
    )]
    size: Option<Size>,
    /// The same, as `pmfs mkfs` takes it
    #[arg(id = "size_option", long = "size", short, value_name = "SIZE")]
    size_option: Option<Size>,
    /// Don't allocate the file's space now; it is taken when it is used, and may run out
    #[arg(long)]
    pub sparse: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

impl Grow {
    /// The size, in either form.
    pub fn size(&self) -> Size {
        self.size.or(self.size_option).unwrap_or(Size(0))
    }
}

/// `pmfs defrag`
#[derive(Args)]
#[command(after_help = "\
Examples: the possible gain, a whole pool, and the files of a database alone:

  pmfs defrag --dry-run /dev/shm/pool
  pmfs defrag /dev/shm/pool
  pmfs defrag /dev/shm/pool srv/db

Each 2 MiB of a file in small pages become one large page. Without PATH, regions with little in use are emptied too. The
pool may be in use meanwhile; other processes wait no longer than a copy of 2 MiB takes. Files that programs have mapped
are left alone. In `atomic` mode an overwrite of a part of such a page splits it again. An interruption undoes nothing.")]
pub struct Defrag {
    /// The pool file
    pub pool: PathBuf,
    /// Files in it, and directories with everything below [default: the whole pool]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Show the possible work, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs doctor`
#[derive(Args)]
pub struct Doctor {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

fn option_help() -> String {
    let mut help = String::from("Mount options (-o):\n");
    for known in pmfs_posix::mount_options::KNOWN {
        let name = match known.values {
            Some(values) => format!("{}={}", known.name, values.replace(" or ", "|")),
            None => known.name.to_owned(),
        };
        help.push_str(&format!("  {name:<22} {}\n", known.about));
    }
    help
}

/// The whole definition, for manual pages and completions.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}
