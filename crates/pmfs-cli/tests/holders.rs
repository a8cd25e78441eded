//! `pmfs info --open --locks` and `pmfs top`: who has a pool and what for. The test itself is one who has it.

mod bench;

use bench::Bench;
use pmfs::{Fs, LockClass, LockKind, LockOwner, LockRange, NewNode, OpenOptions, ROOT_INO};

const NODE: NewNode = NewNode {
    mode: 0o755,
    uid: 1,
    gid: 2,
    umask: 0,
};

#[test]
fn who_has_what() {
    let bench = Bench::pool();
    assert!(
        bench
            .ok(&["info", "--open", "--locks", "pool"])
            .contains("open        0")
    );
    let open = || Fs::open(&bench.path("pool"), &OpenOptions::default()).unwrap();
    let (fs, other) = (open(), open());
    let dir = fs.mkdir(ROOT_INO, b"dir", &NODE).unwrap().ino;
    let ino = fs.create(dir, b"file", &NODE).unwrap().ino;
    fs.write(ino, 0, &[7; 100_000]).unwrap();
    let file = fs.open_file(ino, 0).unwrap();
    assert_eq!(fs.read_file(file, &mut [0; 1000]).unwrap(), 1000);
    let gone = fs.create(ROOT_INO, b"gone", &NODE).unwrap().ino;
    other.hold(gone).unwrap();
    fs.unlink(ROOT_INO, b"gone").unwrap();
    let owner = LockOwner {
        class: LockClass::Posix,
        id: 0,
    };
    let range = LockRange { start: 5, end: 9 };
    fs.lock(ino, owner, LockKind::Write, range, 4321).unwrap();
    other
        .lock(gone, owner, LockKind::Read, LockRange::WHOLE, 0)
        .unwrap();

    let report = bench.json(&["info", "--json", "--open", "--locks", "pool"]);
    let me = u64::from(std::process::id());
    let processes = report["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2);
    assert!(
        processes
            .iter()
            .all(|process| process["pid"] == me && process["alive"] == true)
    );
    let open = report["open"].as_array().unwrap();
    assert_eq!(open.len(), 2, "{report}");
    assert_eq!(
        (open[0]["path"].as_str(), open[0]["offset"].as_u64()),
        (Some("/dir/file"), Some(1000))
    );
    assert_eq!(
        (open[1]["path"].as_str(), open[1]["inode"].as_u64()),
        (None, Some(gone))
    );
    let locks = report["locks"].as_array().unwrap();
    let posix = locks.iter().find(|lock| lock["inode"] == ino).unwrap();
    assert_eq!(
        (posix["pid"].as_u64(), posix["class"].as_str()),
        (Some(4321), Some("posix"))
    );
    assert_eq!(
        (posix["start"].as_u64(), posix["end"].as_u64()),
        (Some(5), Some(9))
    );
    let shared = locks.iter().find(|lock| lock["inode"] == gone).unwrap();
    assert_eq!(
        (shared["kind"].as_str(), shared["end"].is_null()),
        (Some("read"), true)
    );
    // Nobody has to be told by whom a lock is held to see it.
    assert_eq!(shared["pid"], me);
    let text = bench.ok(&["info", "--open", "--locks", "pool"]);
    assert!(
        text.contains("/dir/file, at byte 1000") && text.contains("bytes 5 to 9"),
        "{text}"
    );
    assert!(bench.json(&["info", "--json", "pool"])["processes"].is_null());

    // One that dies is shown as dead until somebody cleans up.
    drop(other);
    let report = bench.json(&["info", "--json", "--open", "pool"]);
    let dead = report["processes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["alive"] == false);
    assert!(dead.count() <= 1);
    fs.close_file(file).unwrap();
    fs.close().unwrap();
}

#[test]
fn what_they_do() {
    let bench = Bench::pool();
    let fs = Fs::open(&bench.path("pool"), &OpenOptions::default()).unwrap();
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    for _ in 0..10 {
        fs.append(ino, &[7; 1000]).unwrap();
    }
    assert_eq!(fs.read(ino, 0, &mut [0; 4096]).unwrap(), 4096);
    fs.getattr(ino).unwrap();
    // Another thread of the process counts too.
    std::thread::scope(|scope| {
        scope.spawn(|| fs.getattr(ino).unwrap());
    });
    let round = bench.json(&["top", "--json", "--count", "1", "pool"]);
    let totals = &round["processes"][0]["totals"];
    assert_eq!(
        (totals["changes"].as_u64(), totals["reads"].as_u64()),
        (Some(11), Some(3))
    );
    assert_eq!(totals["written_bytes"], 10_000);
    assert_eq!(totals["read_bytes"], 4096);
    assert!(totals["barriers"].as_u64() >= Some(23), "{totals}");
    assert!(totals["logged_bytes"].as_u64() > Some(0), "{totals}");
    assert!(round["processes"][0]["rates"]["changes"].as_f64() > Some(0.0));
    let two = bench.ok(&["top", "--json", "--count", "2", "--interval", "0.1", "pool"]);
    assert_eq!(two.lines().count(), 2);
    let text = bench.ok(&["top", "pool"]);
    assert!(
        text.contains("1 process") && text.contains(&std::process::id().to_string()),
        "{text}"
    );
    fs.close().unwrap();
    assert!(bench.ok(&["top", "pool"]).contains("0 processes"));
}
