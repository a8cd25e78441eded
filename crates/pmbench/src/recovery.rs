//! Mounting: after a clean close, after a kill with the memory intact, after a crash that took the runtime area.

use crate::ground::Ground;
use crate::measure::{Figures, Report};
use crate::pool::{NODE, map_options};
use anyhow::ensure;
use pmfs::{FallocateMode, Fs, MkfsOptions, OpenOptions, ROOT_INO, RecoveryKind};
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

/// Runs and prints. `sparse`: so many GiB of pool, in which the files' bytes are allocated and not written, so
/// that it may be larger than the memory.
pub fn run(report: &Report, files: u64, mib: u64, sparse: Option<u64>) -> anyhow::Result<()> {
    let ground = if sparse.is_some() {
        Ground::small_pages(20)?
    } else {
        Ground::new(mib / 1024 + 6)?
    };
    let path = ground.path().join("pool");
    let size = match sparse {
        Some(gib) => gib << 30,
        None => (mib << 20) + (mib << 20) / 50 + (1 << 30),
    };
    let mkfs = MkfsOptions {
        size: Some(size),
        inodes: Some(files + files / 500 + 1000),
        sparse: sparse.is_some(),
        map: map_options(),
        ..MkfsOptions::default()
    };
    let info = Fs::mkfs(&path, &mkfs)?;
    let (fs, _) = open(&path)?;
    let each = (mib << 20) / files;
    let data = vec![5u8; if sparse.is_some() { 0 } else { each as usize }];
    let mut dir = ROOT_INO;
    for n in 0..files {
        if n % 1000 == 0 {
            dir = fs
                .mkdir(ROOT_INO, format!("dir-{n}").as_bytes(), &NODE)?
                .ino;
        }
        let file = fs.create(dir, format!("file-{n}").as_bytes(), &NODE)?.ino;
        if sparse.is_some() {
            fs.fallocate(file, FallocateMode::empty(), 0, each)?;
        } else {
            fs.write(file, 0, &data)?;
        }
    }
    drop(fs);
    let (mut kill, mut crash, mut clean) =
        (Figures::default(), Figures::default(), Figures::default());
    for _ in 0..report.rounds {
        // Dropped without a close: as a killed process leaves it.
        let (fs, ms) = open(&path)?;
        ensure!(
            fs.recovery().kind == RecoveryKind::Slots,
            "a kill is recovered by slots"
        );
        kill.0.push(ms);
        drop(fs);
        // Under another identity the runtime area is not trusted: as after power loss.
        let moved = ground.path().join("moved");
        std::fs::hard_link(&path, &moved)?;
        forget_boot(&path)?;
        let (fs, ms) = open(&path)?;
        ensure!(
            fs.recovery().kind == RecoveryKind::Walk,
            "a crash is recovered by a walk"
        );
        crash.0.push(ms);
        std::fs::remove_file(&moved)?;
        fs.close()?;
        let (fs, ms) = open(&path)?;
        ensure!(
            fs.recovery().kind == RecoveryKind::None,
            "a clean pool needs nothing"
        );
        clean.0.push(ms);
        drop(fs);
    }
    let (fs, _) = open(&path)?;
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
    let check = start.elapsed().as_secs_f64();
    fs.close()?;
    println!(
        "{files} files, {mib} MiB, pool overhead {:.2} % of {size} bytes",
        info.overhead_bytes as f64 * 100.0 / size as f64
    );
    for (name, figures) in [
        ("clean", clean),
        ("after a kill", kill),
        ("after a crash", crash),
    ] {
        println!("mount {name:14} {:>20} ms", figures.text());
    }
    println!(
        "check {check:.1} s, {} inodes, {} directories; most private memory {} MiB",
        checked.inodes,
        checked.directories,
        most_kib >> 10
    );
    Ok(())
}

/// This process's private memory; the pool's own pages are not in it.
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
