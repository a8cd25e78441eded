//! The commands that look into a pool, and the one that makes it larger.

mod bench;

use std::fs;
use std::os::unix::fs::FileExt;

use bench::{Bench, text};
use serde_json::Value;

/// A pool with a directory of 300 names and a file of 20 blocks.
fn filled() -> Bench {
    let bench = Bench::empty();
    bench.ok(&["mkfs", "--size", "16M", "pool"]);
    fs::create_dir(bench.path("dir")).unwrap();
    for number in 0..300 {
        fs::write(bench.path(&format!("dir/name-{number}")), "x").unwrap();
    }
    fs::write(bench.path("file"), vec![3; 20 * 4096]).unwrap();
    bench.ok(&["put", "-r", "pool", "dir", "/"]);
    bench.ok(&["put", "pool", "file", "/"]);
    bench
}

fn ino(bench: &Bench, name: &str) -> String {
    let list = bench.json(&["ls", "--json", "pool"]);
    let entry = list["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["path"] == name);
    entry.unwrap()["ino"].to_string()
}

#[test]
fn dump_shows_every_part() {
    let bench = filled();
    let (dir, file) = (ino(&bench, "dir"), ino(&bench, "file"));
    let before = fs::read(bench.path("pool")).unwrap();
    let superblock = bench.json(&["dump", "--json", "pool", "superblock"]);
    assert_eq!(superblock["verdict"], "usable");
    assert!(superblock["state"].as_str().unwrap().starts_with("clean"));
    for at in [0, 1] {
        assert_eq!(superblock["superblocks"][at]["checksum"], "good");
        assert_eq!(superblock["superblocks"][at]["blocks"], 4096);
    }
    let inode = bench.json(&["dump", "--json", "pool", "inode", &file]);
    assert_eq!(inode["type"], "file");
    assert_eq!(inode["size"], 20 * 4096);
    let tree = bench.json(&["dump", "--json", "pool", "tree", &file]);
    let blocks: u64 = tree["pieces"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|piece| piece["what"] == "leaf")
        .map(|piece| piece["blocks"].as_u64().unwrap())
        .sum();
    assert_eq!(blocks, 20);
    let directory = bench.json(&["dump", "--json", "pool", "dir", &dir]);
    assert_eq!(directory["entries"], 300);
    let names: usize = directory["buckets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bucket| bucket["records"].as_array().unwrap().len())
        .sum();
    assert_eq!(names, 300);
    let root = bench.ok(&["dump", "pool", "dir", "2"]);
    assert!(
        root.contains("type directory") && root.contains("name dir"),
        "{root}"
    );
    let lanes = bench.json(&["dump", "--json", "pool", "lane"]);
    let lanes = lanes["lane"].as_array().unwrap();
    assert!(
        lanes.iter().all(|lane| lane["owner"] == "nobody"),
        "{lanes:?}"
    );
    assert!(
        lanes.iter().any(|lane| lane["log"] == "closed"),
        "{lanes:?}"
    );
    assert!(
        bench
            .ok(&["dump", "pool", "lane", "0"])
            .contains("log entries")
    );
    let slots = bench.json(&["dump", "--json", "pool", "slots"]);
    assert_eq!(slots["slot"][0]["state"], "free");
    assert!(
        bench
            .ok(&["dump", "pool", "tree", "1"])
            .contains("what node")
    );
    assert!(
        before == fs::read(bench.path("pool")).unwrap(),
        "dump has changed the pool"
    );
}

#[test]
fn dump_refuses_what_there_is_not() {
    let bench = filled();
    let file = ino(&bench, "file");
    for wrong in [
        &["dump", "pool", "inode"][..],
        &["dump", "pool", "slots", "3"],
        &["dump", "pool", "nothing"],
        &["dump", "pool"],
    ] {
        assert_eq!(bench.run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    bench.fails(1, &["dump", "pool", "inode", "999999999999"]);
    bench.fails(1, &["dump", "pool", "lane", "5000"]);
    bench.fails(1, &["dump", "pool", "dir", &file]);
    bench.fails(1, &["dump", "absent", "superblock"]);
}

#[test]
fn dump_shows_damage() {
    let bench = filled();
    let dir = ino(&bench, "dir");
    let file = fs::File::options()
        .write(true)
        .open(bench.path("pool"))
        .unwrap();
    let directory = bench.json(&["dump", "--json", "pool", "dir", &dir]);
    let bucket = directory["buckets"][0]["bucket"].as_u64().unwrap();
    let line = directory["buckets"][0]["records"][0]["line"]
        .as_u64()
        .unwrap();
    // A letter of the first record's name.
    file.write_all_at(b"?", bucket + line * 64 + 16).unwrap();
    let hurt = bench.ok(&["dump", "pool", "dir", &dir]);
    assert!(hurt.contains("damage the hash is not the name's"), "{hurt}");
    file.write_all_at(&[0xff; 8], 100).unwrap();
    let hurt = bench.json(&["dump", "--json", "pool", "superblock"]);
    assert_eq!(hurt["verdict"], "usable");
    assert!(
        hurt["superblocks"][0]["checksum"]
            .as_str()
            .unwrap()
            .starts_with("is 0x")
    );
    file.write_all_at(&[0xff; 8], (16 << 20) - 4096).unwrap();
    let hurt = bench.json(&["dump", "--json", "pool", "superblock"]);
    assert!(
        hurt["verdict"].as_str().unwrap().contains("checksums"),
        "{hurt}"
    );
    let error = bench.fails(1, &["dump", "pool", "slots"]);
    assert!(error.contains("checksums"), "{error}");
}

#[test]
fn dump_leaves_a_mounted_pool_alone() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let error = bench.fails(1, &["dump", "pool", "slots"]);
    assert!(error.contains("pmfs umount"), "{error}");
}

#[test]
fn info_tells_history_space_and_regions() {
    let bench = filled();
    let info = bench.json(&["info", "--json", "pool"]);
    assert_eq!(info["state"], "clean");
    // ls by filled's put, twice, and nothing else has attached.
    assert_eq!(info["runs"], 2);
    assert_eq!(info["recoveries"], 0);
    assert_eq!(info["free_4k_pages"], info["blocks_free"]);
    let large = info["free_2m_pages"].as_u64().unwrap();
    assert!((4..8).contains(&large), "{info}");
    assert_eq!(info["free_1g_pages"], 0);
    let regions = info["regions"].as_array().unwrap();
    let mut at = 0;
    for region in regions {
        assert_eq!(region["start"], at, "{regions:?}");
        at += region["bytes"].as_u64().unwrap();
    }
    assert_eq!(at, 16 << 20);
    assert!(bench.ok(&["info", "pool"]).contains("2 times"));
    bench.ok(&["mkfs", "--size", "2100M", "--sparse", "big"]);
    let big = bench.json(&["info", "--json", "big"]);
    assert_eq!(big["free_1g_pages"], 1, "{big}");
}

#[test]
fn info_looks_at_a_mounted_pool() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    let before = bench.json(&["info", "--json", "pool"]);
    assert_eq!(before["state"], "mounted");
    assert_eq!(before["mounted_on"], bench.path("mnt").to_str().unwrap());
    assert_eq!(before["pid"], bench.daemon().as_raw_nonzero().get());
    assert_eq!(before["attached"], 1);
    fs::write(bench.file("big"), vec![1; 8 << 20]).unwrap();
    let after = bench.json(&["info", "--json", "pool"]);
    let free = |info: &Value| info["free_4k_pages"].as_u64().unwrap();
    assert!(free(&before) - free(&after) >= 2048, "{after}");
    assert!(bench.ok(&["info", "pool"]).contains("only looked at"));
    rustix::process::kill_process(bench.daemon(), rustix::process::Signal::KILL).unwrap();
    let pid = bench.daemon().as_raw_nonzero().get() as u32;
    bench::wait_until("the daemon is gone", || !bench::is_daemon(pid));
    bench.ok(&["umount", "--lazy", "mnt"]);
    let recovered = bench.json(&["info", "--json", "pool"]);
    assert_eq!(recovered["state"], "recovered");
    assert!(
        recovered["recovery"]
            .as_str()
            .unwrap()
            .contains("killed process")
    );
    assert_eq!(bench.json(&["info", "--json", "pool"])["state"], "clean");
    bench.mount(&[]);
    assert_eq!(text(&fs::read(bench.file("big")).unwrap()[..1]), "\u{1}");
    umount(&bench);
}

#[test]
fn grow_makes_room_and_says_so() {
    let bench = filled();
    let before = bench.json(&["info", "--json", "pool"]);
    let grown = bench.json(&["grow", "--json", "pool", "40M"]);
    assert_eq!(grown["old_size_bytes"], 16 << 20);
    assert_eq!(grown["size_bytes"], 40 << 20);
    let info = bench.json(&["info", "--json", "pool"]);
    for same in [
        "size_bytes",
        "blocks",
        "blocks_free",
        "inodes",
        "overhead_bytes",
    ] {
        assert_eq!(info[same], grown[same], "{same}");
    }
    assert_eq!(info["uuid"], before["uuid"]);
    let gained = info["blocks_free"].as_u64().unwrap() - before["blocks_free"].as_u64().unwrap();
    assert!(gained > 6000 && gained < 6144, "{gained}");
    assert!(info["regions"].to_string().contains("given up"));
    fs::write(bench.path("large"), vec![8; 24 << 20]).unwrap();
    bench.ok(&["put", "pool", "large", "/"]);
    assert_eq!(bench.json(&["fsck", "--json", "pool"])["clean"], true);
    assert!(
        bench
            .ok(&["grow", "pool", "80M"])
            .contains("from 40 MiB to 80 MiB")
    );
    assert_eq!(bench.json(&["fsck", "--json", "pool"])["clean"], true);
    bench.ok(&["get", "pool", "large", "back"]);
    assert!(fs::read(bench.path("back")).unwrap() == vec![8; 24 << 20]);
    // The pool comes back as it was saved.
    bench.ok(&["save", "pool", "saved"]);
    bench.ok(&["load", "saved", "loaded"]);
    assert_eq!(bench.json(&["fsck", "--json", "loaded"])["clean"], true);
    let error = bench.fails(1, &["grow", "pool", "40M"]);
    assert!(error.contains("smaller"), "{error}");
    bench.fails(1, &["grow", "absent", "40M"]);
    assert_eq!(bench.run(&["grow", "pool", "big"]).status.code(), Some(2));
}

#[test]
fn a_grown_pool_is_mounted_like_any() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::write(bench.file("a"), "a").unwrap();
    let error = bench.fails(1, &["grow", "pool", "128M"]);
    assert!(error.contains("pmfs umount"), "{error}");
    umount(&bench);
    bench.ok(&["grow", "pool", "128M"]);
    bench.mount(&[]);
    fs::write(bench.file("large"), vec![4; 90 << 20]).unwrap();
    rustix::process::kill_process(bench.daemon(), rustix::process::Signal::KILL).unwrap();
    let pid = bench.daemon().as_raw_nonzero().get() as u32;
    bench::wait_until("the daemon is gone", || !bench::is_daemon(pid));
    bench.ok(&["umount", "--lazy", "mnt"]);
    let report = bench.mount(&[]);
    assert_eq!(report["recovery"]["kind"], "slots");
    assert!(fs::read(bench.file("large")).unwrap() == vec![4; 90 << 20]);
    assert_eq!(text(&fs::read(bench.file("a")).unwrap()), "a");
    umount(&bench);
    assert_eq!(bench.json(&["fsck", "--json", "pool"])["clean"], true);
}

/// Goal: a growing that is killed leaves the pool as before or as after. Method: killed after each
/// of its barriers, at it and some instructions later, so between the stores of the superblock too.
#[test]
fn grow_may_be_killed_at_any_barrier() {
    let bench = filled();
    let mut torn = 0;
    // The second from a pool that has grown before.
    for size in ["20M", "40M"] {
        fs::copy(bench.path("pool"), bench.path("base")).unwrap();
        let mut sizes = std::collections::BTreeSet::new();
        let (mut barrier, mut switched) = (0, 0);
        let mut ended = false;
        while !ended {
            barrier += 1;
            for later in [0, 4, 12, 25, 60] {
                fs::copy(bench.path("base"), bench.path("cut")).unwrap();
                let mut command = bench.command(&["grow", "--sparse", "cut", size]);
                command.env("PMFS_CRASH_AFTER_BARRIERS", format!("{barrier}+{later}"));
                ended = command.output().unwrap().status.success();
                let at = format!("{barrier}+{later}");
                let fsck: Value =
                    serde_json::from_slice(&bench.run(&["fsck", "--json", "cut"]).stdout).unwrap();
                for finding in fsck["findings"].as_array().unwrap() {
                    assert!(finding["number"].as_u64().unwrap() <= 2, "{at}: {fsck}");
                }
                assert_eq!(fsck["inodes"], 303, "{at}");
                sizes.insert(bench.json(&["info", "--json", "cut"])["size_bytes"].as_u64());
                if later == 0 && sizes.len() == 1 {
                    switched = barrier;
                }
                bench.ok(&["grow", "cut", size]);
                let fsck = bench.json(&["fsck", "--json", "cut"]);
                assert_eq!(fsck["clean"], true, "{at}: {fsck}");
                assert_eq!(fsck["inodes"], 303, "{at}");
                assert!(bench.run(&["get", "cut", "file", "-"]).stdout == vec![3; 20 * 4096]);
            }
        }
        assert_eq!(sizes.len(), 2, "{sizes:?}");
        assert!(barrier > 8, "only {barrier} barriers");
        torn += torn_between(&bench, size, switched);
        bench.ok(&["grow", "pool", size]);
    }
    assert!(torn > 0, "no kill fell into the superblock's store");
}

/// Kills a growing of `base` after each single instruction around the store of the superblock in
/// block 0, which lies between barrier `barrier` and the next. Answers how often it was torn.
fn torn_between(bench: &Bench, size: &str, barrier: u32) -> u32 {
    let cut_at = |later: u32| {
        fs::copy(bench.path("base"), bench.path("cut")).unwrap();
        let mut command = bench.command(&["grow", "--sparse", "cut", size]);
        command.env("PMFS_CRASH_AFTER_BARRIERS", format!("{barrier}+{later}"));
        command.output().unwrap();
        let shown = bench.json(&["dump", "--json", "cut", "superblock"]);
        assert_eq!(shown["verdict"], "usable", "{barrier}+{later}: {shown}");
        let first = &shown["superblocks"][0];
        (first["checksum"] == "good", first["blocks"].as_u64())
    };
    let old = cut_at(1);
    let near = (1..200)
        .map(|step| step * 16)
        .find(|&later| cut_at(later) != old);
    let near: u32 = near.expect("the superblock is stored");
    // Wide: the number of instructions differs a little from run to run.
    let torn = (near.saturating_sub(80)..near + 16).filter(|&later| !cut_at(later).0);
    torn.count() as u32
}

/// Unmounts. A child that another test of this process forks meanwhile may hold a file
/// of the mount for a moment.
fn umount(bench: &Bench) {
    bench::wait_until("unmounted", || {
        bench.run(&["umount", "mnt"]).status.success()
    });
}
