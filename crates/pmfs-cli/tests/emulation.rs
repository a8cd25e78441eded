//! `--emulate`: by the mount and by `pmfs run`, told by `info` and `--stats`, refused
//! with the way out.

mod bench;

use bench::installed::install;
use bench::{Bench, text};

const MEDIUM: &str = "read=300ns,write-bandwidth=9.5G,barrier=100ns";

#[test]
fn a_mount_says_what_it_emulates() {
    let Some(mut bench) = Bench::mounted(&["--emulate", MEDIUM]) else {
        return;
    };
    let info = bench.json(&["info", "--json", "pool"]);
    assert_eq!(info["emulated"][0]["medium"], MEDIUM);
    assert_eq!(info["emulated"][0]["processes"], 1);
    let said = bench.ok(&["info", "pool"]);
    let line = format!("emulated    {MEDIUM}, by 1 of 1 processes");
    assert!(said.contains(&line), "{said}");
    std::fs::write(bench.file("file"), [1; 5000]).unwrap();
    assert_eq!(std::fs::read(bench.file("file")).unwrap(), [1; 5000]);
    bench.umount();
    // The emulation is an option of the mount, with a medium's name.
    let report = bench.mount(&["-o", "noatime,emulate=pmep-2014:read=0"]);
    assert_eq!(report["emulates"], "write-bandwidth=9.5G,barrier=100ns");
    bench.umount();
    let device = "device:optane-100,dimms=6,power=12.5W";
    let report = bench.mount(&["-o", "emulate=device:optane-100:dimms=6:power=12.5W"]);
    assert_eq!(report["emulates"], device);
    let info = bench.json(&["info", "--json", "pool"]);
    assert_eq!(info["emulated"][0]["medium"], device);
    std::fs::write(bench.file("file"), [2; 5000]).unwrap();
    assert_eq!(std::fs::read(bench.file("file")).unwrap(), [2; 5000]);
    let refused = bench.fails(
        1,
        &["mount", "-o", "remount,emulate=pmep-2014", "pool", "mnt"],
    );
    assert!(refused.contains("mount it anew"), "{refused}");
    bench.umount();
    let report = bench.mount(&["--emulate", "dram"]);
    assert!(report["emulates"].is_null());
    let said = bench.ok(&["info", "pool"]);
    assert!(!said.contains("emulated"), "{said}");
    bench.umount();
    bench.ok(&["fsck", "pool"]);
}

#[test]
fn a_run_says_what_it_emulates() {
    if !bench::can_mount() {
        return;
    }
    let bench = Bench::pool();
    let pmfs = install(&bench.path("bin"));
    let run = |more: &[&str], script: &str| {
        let output = std::process::Command::new(&pmfs)
            .args(["run", "--pool", "pool", "--at", "mnt"])
            .args(more)
            .args(["--", "sh", "-c", script])
            .current_dir(bench.path(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    // The shell is served itself, the mount beside it emulates too.
    let look = "echo text > mnt/file; read word < mnt/file; exec 5> mnt/open; bin/pmfs info pool | grep emulated; echo $word";
    let (said, _) = run(&["--emulate", MEDIUM], look);
    let told = format!("emulated    {MEDIUM}, by ");
    assert!(said.contains(&told) && said.ends_with("text\n"), "{said}");
    let both = said
        .split("by ")
        .nth(1)
        .and_then(|rest| rest.chars().next());
    assert!(both.is_some_and(|count| count >= '2'), "{said}");
    let (_, stats) = run(
        &["--emulate", "read=7ns", "--stats"],
        "echo text > mnt/file",
    );
    assert!(stats.contains("pmfs: emulates       read=7ns\n"), "{stats}");
    let (_, stats) = run(&["--stats", "--json"], "true");
    assert!(stats.contains("\"emulates\":null"), "{stats}");
    bench.ok(&["fsck", "pool"]);
}

#[test]
fn what_is_no_medium_is_refused() {
    let bench = Bench::pool();
    for command in ["mount", "run"] {
        let all = match command {
            "mount" => vec!["mount", "--emulate", "optane", "pool", "mnt"],
            _ => vec![
                "run",
                "--pool",
                "pool",
                "--at",
                "mnt",
                "--emulate",
                "optane",
                "--",
                "true",
            ],
        };
        let output = bench.run(&all);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(
            said.contains("optane-100") && said.contains("read=300ns"),
            "{said}"
        );
    }
    for (asked, way_out) in [
        ("device:optane-300", "optane-100, optane-200"),
        (
            "device:optane-100,ranks=2",
            "dimms=6, interleave=4K or power=15W",
        ),
        ("device:optane-100,dimms=17", "dimms=1 to dimms=16"),
    ] {
        let output = bench.run(&["mount", "--emulate", asked, "pool", "mnt"]);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains(way_out), "{said}");
    }
    let said = bench.fails(1, &["mount", "-o", "emulate=read=1", "pool", "mnt"]);
    assert!(said.contains("read=300ns:barrier=100ns"), "{said}");
    let help = bench.ok(&["mount", "--help"]);
    assert!(
        help.contains("--emulate") && help.contains("docs/EMULATION.md"),
        "{help}"
    );
}
