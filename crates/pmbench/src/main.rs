//! pmbench: what PMFS costs beside tmpfs and beside the memory itself, and the experiments of the
//! papers that measured such file systems, redone (`experiments`, `report`; the others are drivers
//! that need the engine as a library).
//!
//! Every figure is a median over rounds in which the candidates take turns, with its spread:
//! machines are noisy, and a ratio within a round is worth more than two figures from two hours.
//! Pool and baseline stand on one tmpfs mounted huge=always, and the pool flushes and fences as on
//! persistent memory (flush=always).
#![forbid(unsafe_code)]

mod acct;
mod bounded;
mod directory;
mod drivers;
mod emulate;
mod experiments;
mod ground;
mod heap;
mod intercepted;
mod limit;
mod mapped;
mod measure;
mod mount;
mod pool;
mod processor;
mod random;
mod reader;
mod recovery;
mod report;
mod rows;
mod sharing;
mod tmpfs;
mod windows;

use clap::{Parser, Subcommand};
use experiments::shell::{CANNOT, Cannot};

#[derive(Parser)]
#[command(
    name = "pmbench",
    about = "Measures PMFS beside tmpfs and the memory itself"
)]
struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// Rounds; each figure is the median over them [default: 9; of experiments, their own].
    #[arg(long, global = true)]
    rounds: Option<usize>,
    /// Print a JSON object for each row instead of a table.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    #[command(flatten)]
    Experiments(experiments::Command),
    #[command(flatten)]
    Driver(drivers::Driver),
    /// The rows of docs/design/targets.md: the engine as a library, tmpfs by system calls, the
    /// memory's own limit.
    Rows {
        /// Size of the file that is read and written, in MiB.
        #[arg(long, default_value_t = 1024)]
        file_mib: u64,
        /// Only rows whose name contains this.
        #[arg(long)]
        only: Option<String>,
    },
    /// Create, lookup and unlink in a directory of 10 k and of many entries.
    Directory {
        /// Entries of the large one.
        #[arg(long, default_value_t = 1_000_000)]
        entries: u64,
    },
    /// Mounting after a crash, and after a kill with the memory intact.
    Recovery {
        /// Files.
        #[arg(long, default_value_t = 100_000)]
        files: u64,
        /// Bytes in all of them, in MiB.
        #[arg(long, default_value_t = 10_240)]
        mib: u64,
        /// A sparse pool of so many GiB, whose files' bytes are allocated and not written.
        #[arg(long, value_name = "GIB")]
        sparse: Option<u64>,
        /// One file in so many is written, in small blocks; the others are clones of it.
        #[arg(long, value_name = "N", conflicts_with = "sparse")]
        clones: Option<u64>,
    },
    /// Check whether an emulated medium is as slow as it was asked to be, by its own probes.
    Emulate {
        /// The medium.
        #[arg(long, default_value = emulate::DEFAULT)]
        emulate: pmem::Emulation,
    },
    /// A process of `emulate`.
    #[command(hide = true)]
    EmulatedWriter {
        /// The pool.
        pool: std::path::PathBuf,
        /// The medium.
        emulate: pmem::Emulation,
        /// The number of the process.
        number: u64,
    },
    /// One, two, four and eight processes on one pool, on files and directories of their own and on
    /// the same ones.
    Sharing,
    /// The rows of docs/design/targets.md as a program below `pmfs run` has them, what it pays for
    /// other files, and starting.
    Intercepted {
        /// The program `pmfs`, with the library beside it.
        pmfs: std::path::PathBuf,
        /// Size of the file that is read and written, in MiB.
        #[arg(long, default_value_t = 1024)]
        file_mib: u64,
    },
    /// The program of `intercepted`.
    #[command(hide = true)]
    Inside {
        /// A directory in the pool.
        pool: std::path::PathBuf,
        /// One on tmpfs.
        tmpfs: std::path::PathBuf,
        /// The size, as there.
        #[arg(long)]
        file_mib: u64,
        /// Only the calls on tmpfs that it makes dearer.
        #[arg(long)]
        others: bool,
    },
    /// Reads and writes of a mapped file, by page size, and beside tmpfs and ext4 on a block device
    /// (PMFS's figure 9).
    Mapped(mapped::Options),
    /// The cost of keeping stray stores away: none, protection keys, page permissions (PMFS's
    /// figure 11).
    Windows(windows::Options),
    /// Transactions of the persistent heap, beside libpmemobj's and the memory's own limit.
    Heap(heap::Options),
    /// Opening a persistent heap that was left clean, by a kill or by power loss.
    HeapOpen(heap::opening::Options),
    /// Figures of a thesis on the accounting of persistent memory, simulated.
    Acct(acct::Options),
    /// A process of `sharing`.
    #[command(hide = true)]
    Worker {
        /// The pool.
        pool: std::path::PathBuf,
        /// The number of the process.
        number: usize,
    },
    /// A command that has so much memory, page cache included.
    #[command(hide = true)]
    Bounded(bounded::Options),
    /// Calls through a PMFS mount (a directory on it), beside the same on tmpfs.
    Mount {
        /// A directory on the mount.
        dir: std::path::PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match reader::until_it_stops(|| run(arguments)) {
        Err(why) if why.is::<Cannot>() => {
            println!("{why}");
            std::process::exit(CANNOT);
        }
        ended => ended,
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let report = measure::Report {
        rounds: arguments.rounds.unwrap_or(9).max(1),
        json: arguments.json,
    };
    match arguments.what {
        None => rows::run(&report, 1024, None),
        Some(What::Driver(driver)) => driver.run(),
        Some(What::Experiments(command)) => command.run(arguments.rounds, arguments.json),
        Some(What::Rows { file_mib, only }) => rows::run(&report, file_mib, only.as_deref()),
        Some(What::Directory { entries }) => directory::run(&report, entries),
        Some(What::Recovery {
            files,
            mib,
            sparse,
            clones,
        }) => recovery::run(
            &report,
            &recovery::Load {
                files,
                mib,
                sparse,
                clones,
            },
        ),
        Some(What::Intercepted { pmfs, file_mib }) => intercepted::run(&report, &pmfs, file_mib),
        Some(What::Inside {
            others: true,
            tmpfs,
            ..
        }) => intercepted::others(&tmpfs),
        Some(What::Inside {
            pool,
            tmpfs,
            file_mib,
            ..
        }) => intercepted::inside(&report, &pool, &tmpfs, file_mib),
        Some(What::Emulate { emulate }) => emulate::run(&report, emulate),
        Some(What::EmulatedWriter {
            pool,
            emulate,
            number,
        }) => emulate::writer(&pool, emulate, number),
        Some(What::Sharing) => sharing::run(&report),
        Some(What::Mapped(options)) => mapped::run(&report, &options),
        Some(What::Windows(options)) => windows::run(&report, &options),
        Some(What::Heap(options)) => heap::run(&report, &options),
        Some(What::HeapOpen(options)) => heap::opening::run(&report, &options),
        Some(What::Acct(options)) => acct::run(&options),
        Some(What::Worker { pool, number }) => sharing::worker(&pool, number),
        Some(What::Bounded(options)) => bounded::run(&options),
        Some(What::Mount { dir }) => mount::run(&report, &dir),
    }
}
