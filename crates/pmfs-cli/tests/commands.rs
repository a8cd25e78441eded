//! The commands without a mount: what they print, how they fail, what they exit with.

mod bench;

use std::fs;

use bench::Bench;

#[test]
fn help_names_commands_and_mount_options() {
    let bench = Bench::empty();
    let help = bench.ok(&["--help"]);
    for command in ["mkfs", "mount", "umount", "fsck", "info"] {
        assert!(
            help.contains(&format!("\n  {command} ")),
            "{command} in {help}"
        );
    }
    let help = bench.ok(&["mount", "--help"]);
    for option in pmfs_posix::mount_options::KNOWN {
        assert!(
            help.contains(&format!("\n  {}", option.name)),
            "{} in {help}",
            option.name
        );
    }
    assert!(!help.contains("--daemon"));
}

#[test]
fn wrong_usage_exits_2() {
    let bench = Bench::empty();
    for arguments in [
        &["mkfs"][..],
        &["frobnicate"],
        &["mkfs", "--size", "12Q", "pool"],
        &["mount", "pool"],
    ] {
        assert_eq!(bench.run(arguments).status.code(), Some(2), "{arguments:?}");
    }
    assert!(!bench.path("pool").exists());
}

#[test]
fn mkfs_says_what_it_made() {
    let bench = Bench::empty();
    let made = bench.json(&["mkfs", "--size", "64M", "--json", "pool"]);
    assert_eq!(made["size_bytes"], 64 << 20);
    assert_eq!(made["pool"], bench.path("pool").to_str().unwrap());
    assert_eq!(fs::metadata(bench.path("pool")).unwrap().len(), 64 << 20);
    for number in [
        "blocks",
        "blocks_free",
        "inodes",
        "inodes_free",
        "lanes",
        "overhead_bytes",
    ] {
        assert!(made[number].as_u64().unwrap() > 0, "{number} in {made}");
    }
    for word in ["uuid", "medium", "durability", "flush"] {
        assert!(!made[word].as_str().unwrap().is_empty(), "{word} in {made}");
    }
    let info = bench.json(&["info", "pool", "--json"]);
    for same in [
        "uuid",
        "version",
        "size_bytes",
        "blocks",
        "inodes",
        "lanes",
        "overhead_bytes",
    ] {
        assert_eq!(made[same], info[same], "{same}");
    }
    let text = bench.ok(&["info", "pool"]);
    assert!(
        text.contains("64 MiB") && text.contains(info["durability"].as_str().unwrap()),
        "{text}"
    );
}

#[test]
fn mkfs_takes_the_size_of_a_file() {
    let bench = Bench::empty();
    let error = bench.fails(1, &["mkfs", "pool"]);
    assert!(error.contains("--size"), "{error}");
    assert!(!bench.path("pool").exists());
    fs::File::create(bench.path("pool"))
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    assert_eq!(
        bench.json(&["mkfs", "--json", "pool"])["size_bytes"],
        64 << 20
    );
}

#[test]
fn mkfs_overwrites_only_when_told() {
    let bench = Bench::empty();
    fs::write(bench.path("pool"), vec![b'x'; 64 << 20]).unwrap();
    let error = bench.fails(1, &["mkfs", "pool"]);
    assert!(error.contains("--force"), "{error}");
    bench.fails(1, &["mkfs", "--size", "64M", "pool"]);
    assert_eq!(fs::read(bench.path("pool")).unwrap()[..4], *b"xxxx");
    let first = bench.json(&["mkfs", "--force", "--json", "pool"]);
    bench.fails(1, &["mkfs", "pool"]);
    let second = bench.json(&["mkfs", "--force", "--json", "pool"]);
    assert_ne!(first["uuid"], second["uuid"]);
}

#[test]
fn mkfs_too_small_says_so() {
    let bench = Bench::empty();
    bench.fails(1, &["mkfs", "--size", "4K", "pool"]);
    assert!(!bench.path("pool").exists(), "a failed mkfs left a file");
}

#[test]
fn fsck_exit_codes() {
    let bench = Bench::pool();
    let report = bench.json(&["fsck", "--json", "pool"]);
    assert_eq!(report["clean"], true);
    assert_eq!(report["findings"].as_array().unwrap().len(), 0);
    assert_eq!(report["recovery"]["kind"], "none");
    assert!(bench.ok(&["fsck", "pool"]).contains("clean"));
    assert!(bench.ok(&["fsck", "--badblocks", "pool"]).contains("clean"));

    fs::write(bench.path("other"), vec![0; 1 << 20]).unwrap();
    let error = bench.fails(8, &["fsck", "other"]);
    assert!(
        error.contains("not a PMFS pool") && error.contains("mkfs"),
        "{error}"
    );
    bench.fails(8, &["fsck", "absent"]);
}

#[test]
fn what_is_no_pool_is_refused_by_name() {
    let bench = Bench::empty();
    fs::write(bench.path("text"), "hello").unwrap();
    for arguments in [
        &["info", "text"][..],
        &["info", "absent"],
        &["mount", "absent", "mnt"],
    ] {
        let error = bench.fails(1, arguments);
        assert!(
            error.contains("text") || error.contains("absent"),
            "{error}"
        );
    }
    if bench::can_mount() {
        let error = bench.fails(1, &["mount", "text", "mnt"]);
        assert!(error.contains("text"), "{error}");
    }
}

#[test]
fn mount_refuses_before_it_touches_the_pool() {
    let bench = Bench::pool();
    let error = bench.fails(1, &["mount", "-o", "ro,frob", "pool", "mnt"]);
    assert!(
        error.contains("'frob'") && error.contains("noatime"),
        "{error}"
    );
    let error = bench.fails(1, &["mount", "-o", "data=maybe", "pool", "mnt"]);
    assert!(error.contains("atomic or ordered"), "{error}");
    let error = bench.fails(1, &["mount", "pool", "nowhere"]);
    assert!(
        error.contains("nowhere") && error.contains("mkdir"),
        "{error}"
    );
    fs::write(bench.path("file"), "").unwrap();
    let error = bench.fails(1, &["mount", "pool", "file"]);
    assert!(error.contains("not a directory"), "{error}");
    let error = bench.fails(1, &["umount", "mnt"]);
    assert!(error.contains("not a PMFS mount"), "{error}");
    assert!(bench.mounts().is_empty());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let bench = Bench::pool();
    let pool = bench.path("pool");
    let script = format!(
        "'{}' info '{}' | true",
        env!("CARGO_BIN_EXE_pmfs"),
        pool.display()
    );
    let output = std::process::Command::new("sh")
        .arg("-c")
        .arg(script)
        .output()
        .unwrap();
    assert_eq!(bench::text(&output.stderr), "");
}
