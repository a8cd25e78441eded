//! `pmfs defrag`, also of a pool that is mounted, and killed on the way.

mod bench;

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use bench::Bench;

const NODE: pmfs::NewNode = pmfs::NewNode {
    mode: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// The pool may be mounted, too.
#[test]
fn defrag_makes_large_pages_of_small_ones() {
    let bench = Bench::empty();
    bench.ok(&["mkfs", "--size", "64M", "pool"]);
    let bytes: Vec<u8> = (0..5 << 20).map(|at: u32| (at >> 5) as u8).collect();
    fs::write(bench.path("file"), &bytes).unwrap();
    bench.ok(&["put", "pool", "file", "/"]);
    let before = bench.json(&["info", "--json", "pool", "file"]);
    let (small, large) = (&before["in_4k_pages_bytes"], &before["in_2m_pages_bytes"]);
    assert_eq!(before["size_bytes"], 5 << 20);
    assert_eq!(
        (small.as_u64(), large.as_u64()),
        (Some(5 << 20), Some(0)),
        "{before}"
    );
    bench.ok(&["mount", "pool", "mnt"]);
    let would = bench.json(&["defrag", "--dry-run", "--json", "pool"]);
    assert_eq!(would["merged"], 2, "{would}");
    let unchanged = bench.json(&["info", "--json", "pool", "file"]);
    assert_eq!(unchanged, before);
    let done = bench.json(&["defrag", "--json", "pool", "/"]);
    assert_eq!(done["merged"], 2, "{done}");
    let after = bench.json(&["info", "--json", "pool", "file"]);
    assert_eq!(after["in_2m_pages_bytes"], 4 << 20, "{after}");
    assert!(fs::read(bench.path("mnt/file")).unwrap() == bytes);
    let text = bench.ok(&["info", "pool", "file"]);
    assert!(text.contains("in pages of 2 MiB  4 MiB (80.0 %)"), "{text}");
    assert!(bench.ok(&["defrag", "pool"]).contains("merged  0 pages"));
    bench.ok(&["umount", "mnt"]);
    bench.ok(&["fsck", "pool"]);
    let clone = |name: &str| {
        let fs = pmfs::Fs::open(&bench.path("pool"), &pmfs::OpenOptions::default()).unwrap();
        let find = |name: &[u8]| fs.lookup(pmfs::ROOT_INO, name).unwrap().ino;
        let other = find(b"file");
        let to = fs
            .create(pmfs::ROOT_INO, name.as_bytes(), &NODE)
            .unwrap()
            .ino;
        fs.clone_range((other, 0), (to, 0), 4 << 20).unwrap();
        fs.close().unwrap();
    };
    clone("clone");
    let shared = bench.json(&["info", "--json", "pool", "file"]);
    assert_eq!(shared["shared_bytes"], 4 << 20, "{shared}");
    let text = bench.ok(&["info", "pool", "file"]);
    assert!(text.contains("shared  4 MiB (80.0 %)"), "{text}");
    let error = bench.fails(1, &["defrag", "pool", "nothing"]);
    assert!(error.contains("pmfs ls -R"), "{error}");
    let free = bench.json(&["info", "--json", "pool"]);
    assert!(free["free_2m_share"].as_f64().unwrap() > 0.8, "{free}");
}

/// Returns what a file holds: no two are alike.
fn content(number: u8) -> Vec<u8> {
    let words =
        (0..5 << 17).map(|at: u32| at.wrapping_mul(2 * u32::from(number) + 1).to_le_bytes());
    words.flatten().collect()
}

/// Goal: a defrag that is killed leaves every file as it was, and the next one does
/// what was left. Method: a pool with many gaps, mounted; kill -9 a little later each
/// time, until one comes to its end.
#[test]
fn a_defrag_that_is_killed_loses_nothing() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    // Two at a time, so that neither has a region for itself; of half of them little stays.
    let write = |number: u8, from: usize, to: usize| {
        let mut file = fs::File::options();
        file.create(true).append(true);
        let mut file = file.open(bench.file(&number.to_string())).unwrap();
        std::io::Write::write_all(&mut file, &content(number)[from..to]).unwrap();
    };
    let len = content(0).len();
    for pair in 0..9 {
        for at in (0..len).step_by(len / 8) {
            write(2 * pair, at, at + len / 8);
            write(2 * pair + 1, at, at + len / 8);
        }
    }
    let kept = |number: u8| if number % 2 == 1 { 100_000 } else { len };
    for number in (1..18).step_by(2) {
        let mut file = fs::File::options();
        file.write(true);
        let file = file.open(bench.file(&number.to_string())).unwrap();
        file.set_len(kept(number) as u64).unwrap();
    }
    let mut kills = 0;
    for wait_us in (0..).step_by(200) {
        let mut defrag = bench.command(&["defrag", "pool"]);
        let mut child = defrag.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(wait_us));
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        for number in 0..18 {
            let got = fs::read(bench.file(&number.to_string())).unwrap();
            assert!(
                got == content(number)[..kept(number)],
                "{number}, killed after {wait_us} us"
            );
        }
        if ended.success() {
            break;
        }
        kills += 1;
    }
    assert!(kills > 0, "none was killed");
    bench.umount();
    bench.ok(&["fsck", "pool"]);
    bench.ok(&["defrag", "pool"]);
    for number in (0..18).step_by(2) {
        let info = bench.json(&["info", "--json", "pool", &number.to_string()]);
        assert_eq!(info["in_2m_pages_bytes"], 2 << 20, "{number}: {info}");
    }
    bench.ok(&["fsck", "pool"]);
    println!("{kills} kills");
}
