//! Mounting: after a clean close, after a kill with the memory intact, after a crash that took the
//! runtime area.

use crate::ground::Ground;
use crate::measure::{Figures, Report};
use crate::pool::{NODE, map_options};
use anyhow::ensure;
use pmfs::{FallocateMode, Fs, OpenOptions, ROOT_INO, RecoveryKind};
use pmfs_admin::{Admin, MkfsOptions, PoolInfo};
use std::path::Path;
use std::time::Instant;

fn open(path: &Path) -> anyhow::Result<(Fs, f64)> {
    let options = OpenOptions {
        map: map_options(),
        ..OpenOptions::default()
    };
    let start = Instant::now();
    let fs = Fs::open(path, &options)?;
    Ok((fs, start.elapsed().as_secs_f64() * 1e3))
}

/// The load to measure with.
pub struct Load {
    pub files: u64,
    /// MiB in all files together.
    pub mib: u64,
    /// Size of the pool, GiB, in which the files' bytes are allocated and not written, so that it
    /// may be larger than the memory.
    pub sparse: Option<u64>,
    /// One file in so many is written, in small blocks, and the others are its clones.
    pub clones: Option<u64>,
}

impl Load {
    /// MiB that are written.
    fn written(&self) -> u64 {
        self.mib.div_ceil(self.clones.unwrap_or(1))
    }
}

/// Bytes that a file grows by, so that its blocks are small.
const PIECE: usize = 64 << 10;

/// Makes the pool and fills it; leaves it as a killed process does.
fn fill(load: &Load, path: &Path) -> anyhow::Result<PoolInfo> {
    let mkfs = MkfsOptions {
        size: Some(match load.sparse {
            Some(gib) => gib << 30,
            // A clone has its nodes, of 8 bytes a block.
            None => (load.written() << 20) * 51 / 50 + (load.mib << 20) / 400 + (1 << 30),
        }),
        inodes: Some(load.files + load.files / 500 + 1000),
        sparse: load.sparse.is_some(),
        map: map_options(),
        ..MkfsOptions::default()
    };
    let info = pmfs_admin::mkfs(path, &mkfs)?;
    let (fs, _) = open(path)?;
    let each = (load.mib << 20) / load.files;
    let data = match (load.sparse, load.clones) {
        (Some(_), _) => Vec::new(),
        (None, None) => vec![5u8; each as usize],
        (None, Some(_)) => vec![5u8; PIECE],
    };
    let mut dir = ROOT_INO;
    let mut written = ROOT_INO;
    for n in 0..load.files {
        if n % 1000 == 0 {
            let name = format!("dir-{n}");
            dir = fs.mkdir(ROOT_INO, name.as_bytes(), &NODE)?.ino;
        }
        let file = fs.create(dir, format!("file-{n}").as_bytes(), &NODE)?.ino;
        match load.clones {
            _ if load.sparse.is_some() => fs.fallocate(file, FallocateMode::empty(), 0, each)?,
            Some(clones) if n % clones > 0 => fs.clone_range((written, 0), (file, 0), 0)?,
            _ => {
                written = file;
                let pieces = each.div_ceil(data.len().max(1) as u64);
                (0..pieces).try_for_each(|_| fs.append(file, &data).map(drop))?;
            }
        }
    }
    Ok(info)
}

/// ms to mount after a clean close, after a kill, after a crash; the pool was left by a kill, and
/// is again.
fn round(path: &Path) -> anyhow::Result<[f64; 3]> {
    let (fs, kill) = open(path)?;
    ensure!(
        fs.recovery().kind == RecoveryKind::Slots,
        "a kill is recovered by slots"
    );
    // Dropped without a close: as a killed process leaves it.
    drop(fs);
    // Under another identity the runtime area is not trusted: as after power loss.
    forget_boot(path)?;
    let (fs, crash) = open(path)?;
    ensure!(
        fs.recovery().kind == RecoveryKind::Walk,
        "a crash is recovered by a walk"
    );
    fs.close()?;
    let (fs, clean) = open(path)?;
    ensure!(
        fs.recovery().kind == RecoveryKind::None,
        "a clean pool needs nothing"
    );
    drop(fs);
    Ok([clean, kill, crash])
}

/// Checks the pool; tells how long it takes and how much memory.
fn check(path: &Path) -> anyhow::Result<()> {
    let (fs, _) = open(path)?;
    let start = Instant::now();
    let mut most_kib = 0;
    let mut step = 0;
    let checked = fs.check_watched(&mut |_, _| {
        step += 1;
        if step % 1000 == 0 {
            most_kib = most_kib.max(private_kib());
        }
    })?;
    ensure!(checked.is_clean(), "the pool is sound");
    println!(
        "check {:.1} s, {} inodes, {} directories; most private memory {} MiB",
        start.elapsed().as_secs_f64(),
        checked.inodes,
        checked.directories,
        most_kib >> 10
    );
    fs.close()?;
    Ok(())
}

/// Runs and prints.
pub fn run(report: &Report, load: &Load) -> anyhow::Result<()> {
    let ground = match load.sparse {
        Some(_) => Ground::small_pages(20)?,
        None => Ground::new(load.written() / 1024 + load.mib / 400 / 1024 + 6)?,
    };
    let path = ground.path().join("pool");
    let info = fill(load, &path)?;
    let mut figures: [Figures; 3] = Default::default();
    for _ in 0..report.rounds {
        for (ms, figures) in round(&path)?.into_iter().zip(&mut figures) {
            figures.0.push(ms);
        }
    }
    if let Some(clones) = load.clones {
        println!("one file in {clones} is written, the others are clones");
    }
    println!(
        "{} files, {} MiB, pool overhead {:.2} % of {} bytes",
        load.files,
        load.mib,
        info.overhead_bytes as f64 * 100.0 / info.size as f64,
        info.size
    );
    for (name, figures) in ["clean", "after a kill", "after a crash"]
        .iter()
        .zip(&figures)
    {
        println!("mount {name:14} {:>20} ms", figures.text());
    }
    check(&path)
}

/// Returns this process's private memory, KiB; the pool's own pages are not in it.
fn private_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let words = line.and_then(|line| line.split_whitespace().nth(1));
    words.and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// Makes the run record another boot's: its first bytes are the boot id, in a line of its own.
fn forget_boot(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&[0; 16], 512)?;
    Ok(())
}
