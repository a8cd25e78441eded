//! Pools that aren't, aren't any more, or aren't yet: what each command says of them,
//! and what fsck makes good.

mod bench;

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use bench::Bench;

const SUPERBLOCK_BYTES: usize = 256;

/// CRC-32C, bit by bit: the superblock's checksum, by other code than the engine's.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

/// Changes both superblocks and makes their checksums right.
fn edit_superblocks(bench: &Bench, edit: impl Fn(&mut [u8])) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(bench.path("pool"))
        .unwrap();
    let len = file.metadata().unwrap().len();
    for at in [0, len - 4096] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut bytes, at).unwrap();
        assert_eq!(
            crc32c(&bytes[..252]).to_le_bytes(),
            bytes[252..],
            "the format's checksum"
        );
        edit(&mut bytes);
        let crc = crc32c(&bytes[..252]);
        bytes[252..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&bytes, at).unwrap();
    }
}

fn damage(bench: &Bench, from_end: bool) {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(bench.path("pool"))
        .unwrap();
    let len = file.metadata().unwrap().len();
    let at = if from_end { len - 4096 } else { 0 };
    file.write_all_at(&[0xee; 64], at + 64).unwrap();
}

/// All commands that open a pool refuse it, fsck with 8, and say `why`.
fn refused(bench: &Bench, why: &str) {
    for (code, arguments) in [
        (8, vec!["fsck", "pool"]),
        (8, vec!["fsck", "--repair", "pool"]),
        (1, vec!["info", "pool"]),
        (1, vec!["mount", "pool", "mnt"]),
        (1, vec!["ls", "pool"]),
    ] {
        let said = bench.fails(code, &arguments);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}

#[test]
fn an_empty_file_is_no_pool() {
    let bench = Bench::empty();
    fs::write(bench.path("pool"), b"").unwrap();
    refused(&bench, "is it a pool");
}

#[test]
fn a_truncated_pool_says_so() {
    let bench = Bench::pool();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(bench.path("pool"))
        .unwrap();
    file.set_len(32 << 20).unwrap();
    refused(&bench, "truncated");
    // Below the smallest pool as well.
    file.set_len(4096).unwrap();
    refused(&bench, "not a PMFS pool");
}

#[test]
fn another_file_system_is_refused_and_left_alone() {
    let bench = Bench::empty();
    let image = bench.path("pool");
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F"])
        .arg(&image)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: mkfs.ext4 is missing");
        return;
    }
    let before = fs::read(&image).unwrap();
    refused(&bench, "not a PMFS pool");
    let said = bench.fails(1, &["mkfs", "--size", "16M", "pool"]);
    assert!(said.contains("--force"), "{said}");
    assert!(
        fs::read(&image).unwrap() == before,
        "the image was written to"
    );
}

#[test]
fn a_newer_version_is_refused_by_number() {
    let bench = Bench::pool();
    edit_superblocks(&bench, |bytes| {
        bytes[8..12].copy_from_slice(&99u32.to_le_bytes())
    });
    refused(&bench, "format 99 is newer");
}

#[test]
fn features_that_are_not_known_are_refused() {
    let bench = Bench::pool();
    edit_superblocks(&bench, |bytes| bytes[48] |= 0x80);
    refused(&bench, "features that this build does not know (0x80)");
}

#[test]
fn impossible_numbers_with_a_right_checksum_are_refused() {
    for (at, value) in [
        (56, 0u64),
        (56, u64::MAX),
        (72, u64::MAX),
        (80, 1),
        (112, 0),
        (96, 0),
    ] {
        let bench = Bench::pool();
        edit_superblocks(&bench, |bytes| {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes())
        });
        bench.fails(8, &["fsck", "pool"]);
        bench.fails(1, &["info", "pool"]);
    }
}

#[test]
fn either_superblock_serves_and_fsck_rebuilds_the_other() {
    for (from_end, number) in [(false, 1), (true, 2)] {
        let bench = Bench::pool();
        fs::write(bench.path("text"), "kept").unwrap();
        bench.ok(&["put", "pool", "text", "/text"]);
        damage(&bench, from_end);
        let output = bench.run(&["fsck", "--json", "pool"]);
        assert_eq!(output.status.code(), Some(4));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["findings"][0]["number"], number);
        // The pool serves all the same.
        assert_eq!(bench.ok(&["get", "pool", "/text", "-"]), "kept");
        let output = bench.run(&["fsck", "--repair", "--json", "pool"]);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{}",
            bench::text(&output.stderr)
        );
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["repaired"][0]["number"], number);
        bench.ok(&["fsck", "pool"]);
        // The one that was damaged now serves by itself.
        damage(&bench, !from_end);
        assert_eq!(bench.ok(&["get", "pool", "/text", "-"]), "kept");
    }
}

#[test]
fn without_both_superblocks_nothing_serves() {
    let bench = Bench::pool();
    damage(&bench, false);
    damage(&bench, true);
    refused(&bench, "superblock");
}

#[test]
fn too_long_names_and_paths_are_refused() {
    let bench = Bench::pool();
    fs::write(bench.path("text"), "x").unwrap();
    let long = format!("/{}", "n".repeat(256));
    let said = bench.fails(1, &["put", "pool", "text", &long]);
    assert!(said.contains("too long"), "{said}");
    bench.ok(&["put", "pool", "text", &long[..256]]);
    bench.ok(&["fsck", "pool"]);
}
