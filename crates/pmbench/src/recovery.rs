//! Mounting: after a clean close, after a kill with the memory intact, after a crash that took the runtime area.

use crate::ground::Ground;
use crate::measure::{Figures, Report};
use crate::pool::{NODE, map_options};
use anyhow::ensure;
use pmfs::{Fs, MkfsOptions, OpenOptions, ROOT_INO, RecoveryKind};
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

/// Runs and prints.
pub fn run(report: &Report, files: u64, mib: u64) -> anyhow::Result<()> {
    let ground = Ground::new(mib / 1024 + 6)?;
    let path = ground.path().join("pool");
    let size = (mib << 20) + (mib << 20) / 50 + (1 << 30);
    let mkfs = MkfsOptions {
        size: Some(size),
        map: map_options(),
        ..MkfsOptions::default()
    };
    let info = Fs::mkfs(&path, &mkfs)?;
    let (fs, _) = open(&path)?;
    let each = (mib << 20) / files;
    let data = vec![5u8; each as usize];
    let mut dir = ROOT_INO;
    for n in 0..files {
        if n % 1000 == 0 {
            dir = fs
                .mkdir(ROOT_INO, format!("dir-{n}").as_bytes(), &NODE)?
                .ino;
        }
        let file = fs.create(dir, format!("file-{n}").as_bytes(), &NODE)?.ino;
        fs.write(file, 0, &data)?;
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
    Ok(())
}

/// Makes the run record another boot's: its first bytes are the boot id, in a line of its own.
fn forget_boot(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&[0; 16], 512)?;
    Ok(())
}
