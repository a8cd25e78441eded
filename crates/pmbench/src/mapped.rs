//! Mapped files: PMFS's figure 9. Random reads and writes of 64 B to 256 KiB on a file that is
//! mapped, with pages of 4 KiB, 2 MiB and 1 GiB; beside files of tmpfs and of ext4 on a block
//! device in the same memory.
//!
//! Method: the same copy routine on each mapping, the candidates in turns. *Independent* reads are
//! at offsets drawn beforehand; of *dependent* ones each offset needs what the last one has read.
//! *Fresh*: mapped anew in the round, so that page faults count, and ext4 mounted anew, so that it
//! has to fetch. Stores are left in the caches, as the paper's are.

use crate::experiments::shell::Cannot;
use crate::ground::Ground;
use crate::measure::{Figures, Report, ratio, time};
use crate::pool::{NODE, map_options};
use crate::random::Random;
use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use pmem::view::View;
use pmfs::{FallocateMode, FileMap, Fs, Ino, MapMode, OpenOptions, ROOT_INO};
use pmfs_admin::MkfsOptions;
use std::path::{Path, PathBuf};
use std::process::Command;

const KIB: usize = 1 << 10;
const SIZES: [usize; 5] = [64, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB];
/// Bytes that a round moves, at most, and operations.
const ROUND_BYTES: usize = 64 << 20;
const ROUND_MAX: u64 = 200_000;

/// The accesses to measure.
#[derive(Args)]
pub struct Options {
    /// Size of the file, in MiB; beside others a quarter of it.
    #[arg(long, default_value_t = 4096)]
    file_mib: u64,
    /// Pages of this size alone, nothing beside them.
    #[arg(long, value_enum, requires = "operation")]
    pages: Option<Pages>,
    /// With them, what is done, by the name that the table has.
    #[arg(long, requires = "pages")]
    operation: Option<String>,
    /// With them: mapped anew in each round.
    #[arg(long, requires = "pages")]
    fresh: bool,
}

/// Sizes of pages.
#[derive(Clone, Copy, ValueEnum)]
enum Pages {
    #[value(name = "4k")]
    Small,
    #[value(name = "2m")]
    Large,
    #[value(name = "1g")]
    Gigantic,
}

/// Mapped bytes.
enum Mapped<'a> {
    Pmfs(FileMap<'a>),
    File(View),
}

impl Mapped<'_> {
    #[inline]
    fn read(&self, at: u64, to: &mut [u8]) -> anyhow::Result<()> {
        match self {
            Mapped::Pmfs(map) => map.read(at, to)?,
            Mapped::File(view) => view.read(at, to)?,
        }
        Ok(())
    }

    #[inline]
    fn write(&self, at: u64, from: &[u8]) -> anyhow::Result<()> {
        match self {
            Mapped::Pmfs(map) => map.write(at, from)?,
            Mapped::File(view) => view.write(at, from)?,
        }
        Ok(())
    }
}

/// A file that can be mapped again and again.
trait Candidate {
    fn name(&self) -> String;
    /// `cold`: nothing of it is in caches that a restart would empty.
    fn map(&self, cold: bool) -> anyhow::Result<Mapped<'_>>;
}

struct OfPool {
    name: &'static str,
    fs: Fs,
    ino: Ino,
    bytes: u64,
    _ground: Ground,
    _pages: Option<Reserved>,
}

impl OfPool {
    fn new(name: &'static str, ground: Ground, bytes: u64) -> anyhow::Result<OfPool> {
        OfPool::of(name, ground, bytes, bytes + (256 << 20), None)
    }

    /// In a pool of `size` bytes; of pages that were put aside for it, the file takes whole ones.
    fn of(
        name: &'static str,
        ground: Ground,
        bytes: u64,
        size: u64,
        pages: Option<Reserved>,
    ) -> anyhow::Result<OfPool> {
        let path = ground.path().join("pool");
        let made = MkfsOptions {
            size: Some(size),
            map: map_options(),
            ..MkfsOptions::default()
        };
        pmfs_admin::mkfs(&path, &made)?;
        let open = OpenOptions {
            map: map_options(),
            ..OpenOptions::default()
        };
        let fs = Fs::open(&path, &open)?;
        let ino = fs.create(ROOT_INO, b"file", &NODE)?.ino;
        if pages.is_some() {
            fs.fallocate(ino, FallocateMode::empty(), 0, bytes)?;
        }
        let block = vec![0; 2 << 20];
        for at in (0..bytes).step_by(block.len()) {
            fs.write(ino, at, &block)?;
        }
        Ok(OfPool {
            name,
            fs,
            ino,
            bytes,
            _ground: ground,
            _pages: pages,
        })
    }
}

impl Candidate for OfPool {
    fn name(&self) -> String {
        format!("PMFS, {}", self.name)
    }

    fn map(&self, _cold: bool) -> anyhow::Result<Mapped<'_>> {
        let map = self.fs.map(self.ino, 0, self.bytes, MapMode::Shared)?;
        Ok(Mapped::Pmfs(map))
    }
}

/// A file of another file system, mapped whole.
struct OfOthers {
    name: &'static str,
    path: PathBuf,
    /// The device that it is mounted from and the directory that it is mounted on, if it can be
    /// mounted anew.
    device: Option<(PathBuf, PathBuf)>,
    _ground: Ground,
}

impl OfOthers {
    fn tmpfs(name: &'static str, ground: Ground, bytes: u64) -> anyhow::Result<OfOthers> {
        let path = ground.path().join("file");
        fill(&path, bytes)?;
        Ok(OfOthers {
            name,
            path,
            device: None,
            _ground: ground,
        })
    }

    /// ext4 on a loop device over a file of the ground.
    fn ext4(ground: Ground, bytes: u64) -> anyhow::Result<OfOthers> {
        let (image, dir) = (ground.path().join("image"), ground.path().join("ext4"));
        std::fs::File::create(&image)?.set_len(bytes + bytes / 8 + (64 << 20))?;
        std::fs::create_dir(&dir)?;
        shell("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), image.as_ref()])?;
        mount_loop(&image, &dir)?;
        let path = dir.join("file");
        let others = OfOthers {
            name: "ext4 on a block device",
            path,
            device: Some((image, dir)),
            _ground: ground,
        };
        fill(&others.path, bytes)?;
        Ok(others)
    }
}

impl Drop for OfOthers {
    fn drop(&mut self) {
        if let Some((_, dir)) = &self.device {
            let _ = shell("umount", &["-l".as_ref(), dir.as_ref()]);
        }
    }
}

impl Candidate for OfOthers {
    fn name(&self) -> String {
        self.name.into()
    }

    fn map(&self, cold: bool) -> anyhow::Result<Mapped<'_>> {
        if let Some((image, dir)) = self.device.as_ref().filter(|_| cold) {
            shell("umount", &[dir.as_ref()])?;
            mount_loop(image, dir)?;
        }
        Ok(Mapped::File(View::of_file(&self.path, 4096)?))
    }
}

fn fill(path: &Path, bytes: u64) -> anyhow::Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(path)?;
    let block = vec![0; 2 << 20];
    for _ in (0..bytes).step_by(block.len()) {
        file.write_all(&block)?;
    }
    Ok(file.sync_all()?)
}

fn mount_loop(image: &Path, dir: &Path) -> anyhow::Result<()> {
    shell(
        "mount",
        &["-o".as_ref(), "loop".as_ref(), image.as_ref(), dir.as_ref()],
    )
}

fn shell(program: &str, arguments: &[&std::ffi::OsStr]) -> anyhow::Result<()> {
    let done = Command::new(program).args(arguments).status();
    let done = done.with_context(|| format!("{program} can't be run"))?;
    anyhow::ensure!(done.success(), "{program} {arguments:?} failed");
    Ok(())
}

/// The work on mapped bytes.
#[derive(Clone, Copy)]
enum Work {
    Read(usize),
    /// 64 bytes each.
    Dependent,
    Write(usize),
}

impl Work {
    fn name(self) -> String {
        let size = |bytes: usize| match bytes {
            ..KIB => format!("{bytes} B"),
            _ => format!("{} KiB", bytes / KIB),
        };
        match self {
            Work::Read(bytes) => format!("read {}", size(bytes)),
            Work::Dependent => "read 64 B, dependent".into(),
            Work::Write(bytes) => format!("write {}", size(bytes)),
        }
    }

    fn size(self) -> usize {
        match self {
            Work::Read(bytes) | Work::Write(bytes) => bytes,
            Work::Dependent => 64,
        }
    }

    fn count(self) -> u64 {
        ROUND_MAX.min((ROUND_BYTES / self.size()) as u64)
    }

    fn run(self, mapped: &Mapped<'_>, bytes: u64, random: &mut Random) -> anyhow::Result<f64> {
        let size = self.size();
        let places = bytes / size as u64;
        let count = self.count();
        let at: Vec<u64> = (0..count)
            .map(|_| random.below(places) * size as u64)
            .collect();
        let mut buffer = vec![1u8; size];
        time(count, || {
            match self {
                Work::Read(_) => at.iter().try_for_each(|&at| mapped.read(at, &mut buffer))?,
                Work::Write(_) => at.iter().try_for_each(|&at| mapped.write(at, &buffer))?,
                Work::Dependent => {
                    let mut last = 0;
                    for at in at {
                        mapped.read((at ^ last << 6) % bytes, &mut buffer)?;
                        // Zero or one, unknown to the processor before the load is done.
                        last = u64::from(buffer[7]);
                    }
                }
            }
            Ok(())
        })
    }
}

const OF_PAGES: [Work; 5] = [
    Work::Read(64),
    Work::Dependent,
    Work::Write(64),
    Work::Read(4 * KIB),
    Work::Write(4 * KIB),
];

/// Measures and prints.
pub fn run(report: &Report, options: &Options) -> anyhow::Result<()> {
    match (options.pages, &options.operation) {
        (Some(pages), Some(operation)) => one(report, options, pages, operation),
        _ => all(report, options.file_mib),
    }
}

/// Measures an operation on pages of one size.
fn one(report: &Report, options: &Options, pages: Pages, operation: &str) -> anyhow::Result<()> {
    let work = OF_PAGES.into_iter().find(|work| work.name() == operation);
    let names = OF_PAGES.map(Work::name).join("; ");
    let work = work.with_context(|| format!("there is no {operation}; there are: {names}"))?;
    let bytes = options.file_mib << 20;
    ensure!(bytes > 0, "a file of 0 MiB can't be mapped");
    let gib = options.file_mib.div_ceil(1024) + 1;
    let candidate: Box<dyn Candidate> = match pages {
        Pages::Small => Box::new(OfPool::new(
            "4 KiB pages",
            Ground::small_pages(gib)?,
            bytes,
        )?),
        Pages::Large => Box::new(OfPool::new("2 MiB pages", Ground::new(gib)?, bytes)?),
        Pages::Gigantic => match gigantic(bytes) {
            Ok(huge) => Box::new(huge),
            Err(why) => return Err(Cannot(format!("pages of 1 GiB: {why:#}")).into()),
        },
    };
    let title = format!("a file of {} MiB", options.file_mib);
    measure(
        report,
        &title,
        &[&*candidate],
        bytes,
        &[work],
        options.fresh,
    )
}

fn all(report: &Report, file_mib: u64) -> anyhow::Result<()> {
    let bytes = file_mib << 20;
    let gib = file_mib.div_ceil(1024) + 1;
    if !report.json {
        println!(
            "{} rounds; ns an operation: median (least-most)",
            report.rounds
        );
    }
    {
        let small = OfPool::new("4 KiB pages", Ground::small_pages(gib)?, bytes)?;
        let large = OfPool::new("2 MiB pages", Ground::new(gib)?, bytes)?;
        let mut all: Vec<&dyn Candidate> = vec![&large, &small];
        let huge = gigantic(bytes);
        match &huge {
            Ok(huge) => all.push(huge),
            Err(why) if !report.json => println!("pages of 1 GiB were not measured: {why:#}"),
            Err(_) => {}
        }
        let title = format!("page sizes, a file of {file_mib} MiB, all of it touched before");
        measure(report, &title, &all, bytes, &OF_PAGES, false)?;
    }
    let bytes = bytes / 4;
    let gib = (file_mib / 4).div_ceil(1024) + 1;
    let pmfs = OfPool::new("2 MiB pages", Ground::new(gib)?, bytes)?;
    let small = OfPool::new("4 KiB pages", Ground::small_pages(gib)?, bytes)?;
    let tmpfs = OfOthers::tmpfs("tmpfs, 2 MiB pages", Ground::new(gib)?, bytes)?;
    let tmpfs_small = OfOthers::tmpfs("tmpfs, 4 KiB pages", Ground::small_pages(gib)?, bytes)?;
    let ext4 = OfOthers::ext4(Ground::new(gib + 1)?, bytes)?;
    let all: [&dyn Candidate; 5] = [&pmfs, &small, &tmpfs, &tmpfs_small, &ext4];
    let works: Vec<Work> = SIZES
        .iter()
        .flat_map(|&size| [Work::Read(size), Work::Write(size)])
        .collect();
    let size = file_mib / 4;
    let title = format!("beside others, a file of {size} MiB, all of it touched before");
    measure(report, &title, &all, bytes, &works, false)?;
    let title = format!("beside others, a file of {size} MiB, fresh");
    measure(report, &title, &all, bytes, &works, true)
}

/// On hugetlbfs with pages of 1 GiB. The pool's own blocks are in the first one and in the last.
fn gigantic(bytes: u64) -> anyhow::Result<OfPool> {
    let wanted = bytes.div_ceil(1 << 30);
    let pages = Reserved::new(wanted + 2)?;
    let ground = Ground::gigantic(wanted + 2)?;
    let size = (wanted + 2) << 30;
    OfPool::of("1 GiB pages", ground, wanted << 30, size, Some(pages))
}

/// Pages of 1 GiB that the kernel has put aside; given back at the end.
struct Reserved {
    before: u64,
}

impl Reserved {
    const PAGES: &'static str = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";

    fn new(wanted: u64) -> anyhow::Result<Reserved> {
        let count = || -> anyhow::Result<u64> {
            let text = std::fs::read_to_string(Reserved::PAGES).context("the kernel has none")?;
            Ok(text.trim().parse()?)
        };
        let before = count()?;
        std::fs::write(Reserved::PAGES, (before + wanted).to_string())?;
        let reserved = Reserved { before };
        let had = count()? - before;
        anyhow::ensure!(had >= wanted, "{had} of {wanted} could be had");
        Ok(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = std::fs::write(Reserved::PAGES, self.before.to_string());
    }
}

/// Bytes of this process's page tables.
fn page_tables() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// All candidates in turns.
fn measure(
    report: &Report,
    title: &str,
    all: &[&dyn Candidate],
    bytes: u64,
    works: &[Work],
    fresh: bool,
) -> anyhow::Result<()> {
    if !report.json {
        println!("\n{title}");
    }
    let mut kept = Vec::new();
    for one in all.iter().filter(|_| !fresh) {
        let before = page_tables();
        let mapped = one.map(false)?;
        let mut block = vec![0; 2 << 20];
        for at in (0..bytes).step_by(block.len()) {
            mapped.read(at, &mut block)?;
        }
        let tables =
            (page_tables().saturating_sub(before) as f64) / (bytes as f64 / f64::from(1 << 30));
        if report.json {
            println!(
                "{}",
                serde_json::json!({"candidate": one.name(), "page_table_bytes_per_gib": tables})
            );
        } else {
            println!(
                "  page tables of {}: {:.0} KiB a GiB",
                one.name(),
                tables / 1024.0
            );
        }
        kept.push(mapped);
    }
    for work in works {
        let mut figures = vec![Figures::default(); all.len()];
        for round in 0..=report.rounds {
            for (at, one) in all.iter().enumerate() {
                let mut random = Random((round * 31 + at) as u64);
                let ns = match kept.get(at) {
                    Some(mapped) => work.run(mapped, bytes, &mut random)?,
                    None => work.run(&one.map(true)?, bytes, &mut random)?,
                };
                // The first round warms up.
                if round > 0 {
                    figures[at].0.push(ns);
                }
            }
        }
        for (one, ns) in all.iter().zip(&figures) {
            let (times, name) = (ratio(ns, &figures[0]), one.name());
            if report.json {
                println!(
                    "{}",
                    serde_json::json!({"part": title, "operation": work.name(), "candidate": name, "ns": ns.0, "median_ns": ns.median(), "times": times})
                );
            } else {
                println!(
                    "  {:<22} {name:<24} {:>30} {times:>8.2}x",
                    work.name(),
                    ns.text()
                );
            }
        }
    }
    Ok(())
}
