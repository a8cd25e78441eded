//! `pmfs snapshot`: by the command, and by programs through the mount and below `pmfs run`.

mod bench;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use bench::Bench;
use bench::installed::install;

#[test]
fn by_the_command() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    assert!(
        bench
            .ok(&["snapshot", "list", "pool"])
            .contains("no snapshots")
    );
    fs::create_dir(bench.file("tree")).unwrap();
    fs::write(bench.file("tree/file"), "before").unwrap();
    fs::write(bench.file("apart"), "apart").unwrap();
    let text = bench.ok(&["snapshot", "create", "pool", "all"]);
    assert!(
        text.starts_with("snapshot /.snapshots/all: 2 files ("),
        "{text}"
    );
    let json = bench.json(&[
        "snapshot", "create", "--json", "pool", "part", "--of", "tree",
    ]);
    assert_eq!(
        (&json["path"], &json["files"]),
        (&"/tree".into(), &1.into()),
        "{json}"
    );
    let listed = bench.json(&["snapshot", "list", "--json", "pool"]);
    let lines = listed["snapshots"].as_array().unwrap();
    let seen: Vec<[&str; 3]> = lines
        .iter()
        .map(|line| ["name", "of", "path"].map(|key| line[key].as_str().unwrap()))
        .collect();
    assert_eq!(
        seen,
        [
            ["all", "/", "/.snapshots/all"],
            ["part", "/tree", "/.snapshots/part"]
        ]
    );
    restores(&bench);
    wrong_words(&bench);
    bench.ok(&["snapshot", "delete", "pool", "all", "part"]);
    assert_eq!(fs::read_dir(bench.file(".snapshots")).unwrap().count(), 0);
    bench.umount();
    bench.ok(&["fsck", "pool"]);
}

fn restores(bench: &Bench) {
    fs::write(bench.file("tree/file"), "after").unwrap();

    let error = bench.fails(1, &["snapshot", "restore", "pool", "part", "tree"]);
    assert!(error.contains("--replace"), "{error}");
    bench.ok(&["snapshot", "restore", "pool", "part", "again"]);
    assert_eq!(fs::read(bench.file("again/file")).unwrap(), b"before");
    bench.ok(&["snapshot", "restore", "--replace", "pool", "part", "tree"]);
    assert_eq!(fs::read(bench.file("tree/file")).unwrap(), b"before");
    fs::write(bench.file("tree/file"), "changed").unwrap();
}

fn wrong_words(bench: &Bench) {
    for (code, words, way_out) in [
        (1, vec!["create", "pool", "all"], "name another place"),
        (1, vec!["create", "pool", "a/b"], "without a slash"),
        (
            1,
            vec!["create", "pool", "file", "--of", "apart"],
            "pmfs clone pool /apart",
        ),
        (
            1,
            vec!["delete", "pool", "all", "none"],
            "pmfs snapshot list ",
        ),
        (
            1,
            vec!["restore", "pool", "none", "new"],
            "pmfs snapshot list ",
        ),
        (
            1,
            vec!["restore", "--replace", "pool", "all", ".snapshots"],
            "name another place",
        ),
    ] {
        let error = bench.fails(code, &[&["snapshot"][..], &words].concat());
        assert!(error.contains(way_out), "{words:?}: {error}");
    }
}

/// Goal: programs see a snapshot, and all that they try to change is EROFS, for root too. Method:
/// calls by the library through the mount, and tools there and below `pmfs run`.
#[test]
fn programs_can_only_read() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::create_dir(bench.file("tree")).unwrap();
    fs::write(bench.file("tree/file"), "before").unwrap();
    bench.ok(&["snapshot", "create", "pool", "one", "--of", "tree"]);
    let inside = bench.file(".snapshots/one/file");
    assert_eq!(fs::read(&inside).unwrap(), b"before");
    let refused = |done: std::io::Result<()>| {
        let error = done.expect_err("a change of a snapshot");
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{error}");
    };
    refused(OpenOptions::new().write(true).open(&inside).map(drop));
    refused(OpenOptions::new().append(true).open(&inside).map(drop));
    refused(File::create(bench.file(".snapshots/one/new")).map(drop));
    refused(fs::create_dir(bench.file(".snapshots/one/new")));
    refused(fs::remove_file(&inside));
    refused(fs::hard_link(&inside, bench.file("linked")));
    refused(fs::rename(&inside, bench.file("moved")));
    refused(fs::rename(bench.file("tree/file"), &inside));
    refused(fs::set_permissions(
        &inside,
        fs::metadata(bench.file("tree")).unwrap().permissions(),
    ));

    let script = r#"
        s=$1/.snapshots/one
        test "$(cat $s/file)" = before || exit 10
        # A mount's kernel answers access(2) by the mode alone, also the first one of a program.
        test -e $s/file
        test "$2" = mount || test ! -w $s/file -a ! -w $s || exit 11
        number=20
        for change in "touch $s/file" "truncate -s 1 $s/file" "dd if=/dev/zero of=$s/file status=none count=1" \
            "mkdir $s/new" "rm $s/file" "mv $s/file $1/moved" "chmod 777 $s/file" "ln $s/file $1/linked" \
            "cp $1/tree/file $s/new" "rm -rf $s" "setfattr -n user.a $s/file" "mv $s $1/away"; do
            number=$((number + 1))
            said=$($change 2>&1) && exit $number
            case $said in *"ead-only file system"*) ;; *) echo "$change: $said"; exit $number ;; esac
        done
        cp -r $s $1/copy && echo more >>$1/copy/file"#;
    let directory = bench.path("mnt");
    let by_mount = Command::new("sh")
        .args(["-c", script, "sh"])
        .args([directory.as_os_str(), "mount".as_ref()])
        .output()
        .unwrap();
    assert!(by_mount.status.success(), "{by_mount:?}");
    fs::remove_dir_all(bench.file("copy")).unwrap();
    let mut run = Command::new(install(&bench.path("bin")));
    run.args([
        "run", "--pool", "pool", "--at", "mnt", "--", "sh", "-c", script, "sh",
    ])
    .arg(&directory)
    .current_dir(bench.path("."));
    let by_run = run.output().unwrap();
    assert!(by_run.status.success(), "{by_run:?}");
    assert_eq!(fs::read(&inside).unwrap(), b"before");
    bench.umount();
    bench.ok(&["fsck", "pool"]);
}

/// Goal: a backup of each day costs what has changed, while the pool is in use. Method: two
/// snapshots of a mounted pool, by files and by a pipe, into another mounted pool.
#[test]
fn saved_by_what_differs() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::create_dir(bench.file("tree")).unwrap();
    for number in 0..50u8 {
        fs::write(bench.file(&format!("tree/{number}")), vec![number; 20_000]).unwrap();
    }
    bench.ok(&["snapshot", "create", "pool", "one"]);
    fs::write(bench.file("tree/7"), "changed").unwrap();
    fs::rename(bench.file("tree/8"), bench.file("moved")).unwrap();
    bench.ok(&["snapshot", "create", "pool", "two"]);
    bench.ok(&["save", "--snapshot", "one", "pool", "one.saved"]);
    let words = [
        "save",
        "--json",
        "--snapshot",
        "two",
        "--base",
        "one",
        "pool",
        "two.saved",
    ];
    let saved = bench.json(&words);
    assert_eq!(saved["content_bytes"], 7, "{saved}");
    assert_eq!(saved["same_bytes"], 20_000, "{saved}");
    assert!(
        fs::metadata(bench.path("two.saved")).unwrap().len() < 3000,
        "{saved}"
    );

    bench.ok(&["mkfs", "--size", "32M", "copy"]);
    let error = bench.fails(1, &["load", "--onto", "two.saved", "copy"]);
    assert!(
        error.contains("'one'") && error.contains("load that one first"),
        "{error}"
    );
    let text = bench.ok(&["load", "--onto", "one.saved", "copy"]);
    assert!(text.starts_with("loaded snapshot one into"), "{text}");
    let error = bench.fails(1, &["load", "--onto", "one.saved", "copy"]);
    assert!(error.contains("pmfs snapshot delete"), "{error}");
    let pmfs = env!("CARGO_BIN_EXE_pmfs");
    let pipe = format!("{pmfs} save --snapshot two --base one pool - | {pmfs} load --onto - copy");
    let by_pipe = Command::new("sh")
        .args(["-c", &pipe])
        .current_dir(bench.path("."))
        .output();
    let by_pipe = by_pipe.unwrap();
    assert!(by_pipe.status.success(), "{by_pipe:?}");
    bench.ok(&["get", "-r", "copy", ".snapshots/two", "out"]);
    assert_eq!(fs::read(bench.path("out/tree/7")).unwrap(), b"changed");
    assert_eq!(fs::read(bench.path("out/moved")).unwrap(), [8; 20_000]);
    assert_eq!(fs::read(bench.path("out/tree/49")).unwrap(), [49; 20_000]);
    bench.ok(&["fsck", "copy"]);

    wrong_ways(&bench);
    bench.umount();
}

fn wrong_ways(bench: &Bench) {
    for (words, way_out) in [
        (
            vec!["save", "--snapshot", "none", "pool", "x"],
            "pmfs snapshot list",
        ),
        (
            vec!["save", "--snapshot", "one", "pool", "one.saved"],
            "--force",
        ),
        (vec!["load", "one.saved", "new"], "no pool was made"),
    ] {
        let error = bench.fails(1, &words);
        assert!(error.contains(way_out), "{words:?}: {error}");
    }
    for words in [
        &["save", "--base", "one", "pool", "x"][..],
        &["load", "--onto", "--force", "one.saved", "copy"],
    ] {
        assert_eq!(bench.run(words).status.code(), Some(2), "{words:?}");
    }
    bench.ok(&["save", "copy", "whole.saved"]);
    let error = bench.fails(1, &["load", "--onto", "whole.saved", "copy"]);
    assert!(error.contains("leave out --onto"), "{error}");
}

/// Goal: a load that is killed, or whose input ends early, leaves no snapshot and a sound pool, and
/// can be made again. Method: input through a pipe, up to each of some places.
#[test]
fn a_load_is_killed_midway() {
    let bench = Bench::pool();
    fs::create_dir(bench.path("files")).unwrap();
    for number in 0..60u8 {
        let name = bench.path(&format!("files/{number}"));
        fs::write(name, vec![number; 9_000]).unwrap();
    }
    bench.ok(&["put", "-r", "pool", "files", "tree"]);
    bench.ok(&["snapshot", "create", "pool", "one"]);
    bench.ok(&["save", "--snapshot", "one", "pool", "one.saved"]);
    let saved = fs::read(bench.path("one.saved")).unwrap();
    bench.ok(&["mkfs", "--size", "32M", "copy"]);
    for part in [0, 1, 20, 50, 80, 99] {
        for killed in [true, false] {
            let mut load = Command::new(env!("CARGO_BIN_EXE_pmfs"))
                .args(["load", "--onto", "-", "copy"])
                .current_dir(bench.path("."))
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut input = load.stdin.take().unwrap();
            input.write_all(&saved[..saved.len() * part / 100]).unwrap();
            if killed {
                // Time in which some of it may be worked on.
                std::thread::sleep(Duration::from_millis(30));
                load.kill().unwrap();
            }
            drop(input);
            let ended = load.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert_ne!(ended.status.code(), Some(0), "{part} %: {said}");
            if !killed {
                assert_eq!(ended.status.code(), Some(1), "{said}");
                assert!(said.contains("no snapshot was made"), "{said}");
            }
            let list = bench.ok(&["snapshot", "list", "copy"]);
            assert!(list.contains("no snapshots"), "{part} %: {list}");
            bench.ok(&["fsck", "copy"]);
        }
    }
    bench.ok(&["load", "--onto", "one.saved", "copy"]);
    bench.ok(&["get", "-r", "copy", ".snapshots/one", "out"]);
    for number in 0..60u8 {
        let name = bench.path(&format!("out/tree/{number}"));
        let bytes = fs::read(name).unwrap();
        assert_eq!(bytes, [number; 9_000]);
    }
    bench.ok(&["fsck", "copy"]);
    // Nothing of the loads that were cut short is left.
    bench.ok(&["get", "-r", "copy", ".snapshots", "all"]);
    let names = fs::read_dir(bench.path("all")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["one"]);
}
