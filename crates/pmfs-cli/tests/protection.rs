//! `--protect`: by the mount and by `pmfs run`, told by both and by `info`, refused
//! with the way out; files come out as they went in, whatever closes the pool. That it
//! keeps stray stores away is shown by `run/stray.rs`.

mod bench;

use bench::installed::install;
use bench::{Bench, text};

fn has_keys() -> bool {
    pmem::protection::keys().is_ok()
}

#[test]
fn a_mount_says_what_closes_its_pool() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    let usual = if has_keys() { "keys" } else { "none" };
    let info = bench.json(&["info", "--json", "pool"]);
    assert_eq!(info["protection"], usual);
    let said = bench.ok(&["info", "pool"]);
    assert!(said.contains(&format!("protection  {usual}")), "{said}");
    bench.umount();
    for (arguments, wanted) in [
        (["--protect", "auto"], usual),
        (["--protect", "none"], "none"),
        (["-o", "noatime,protect=pages"], "pages"),
    ] {
        let report = bench.mount(&arguments);
        assert_eq!(report["protection"], wanted);
        let name = format!("file-{wanted}");
        std::fs::write(bench.file(&name), [1; 5000]).unwrap();
        std::fs::rename(bench.file(&name), bench.file("renamed")).unwrap();
        assert_eq!(std::fs::read(bench.file("renamed")).unwrap(), [1; 5000]);
        bench.umount();
    }
    // The mode that is given later, and apart, holds.
    let report = bench.mount(&["-o", "protect=pages", "--protect", "none"]);
    assert_eq!(report["protection"], "none");
    let refused = bench.fails(
        1,
        &["mount", "-o", "remount", "--protect=pages", "pool", "mnt"],
    );
    assert!(refused.contains("mount it anew"), "{refused}");
    bench.umount();
    bench.ok(&["fsck", "pool"]);
}

#[test]
fn what_can_not_be_had_is_refused() {
    let bench = Bench::pool();
    let refused = bench.run(&["mount", "--protect", "key", "pool", "mnt"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("auto, none, keys or pages"), "{said}");
    if !has_keys() && bench::can_mount() {
        let refused = bench.fails(1, &["mount", "--protect", "keys", "pool", "mnt"]);
        assert!(refused.contains("can't be protected as asked"), "{refused}");
        assert!(refused.contains("ask for auto"), "{refused}");
        // Nothing of it is left.
        bench.ok(&["fsck", "pool"]);
    }
}

#[test]
fn programs_run_in_a_closed_pool() {
    let bench = Bench::pool();
    let pmfs = install(&bench.path("bin"));
    for protect in ["none", "pages", "auto"] {
        let script =
            "echo text > mnt/file && mv mnt/file mnt/other && cat mnt/other && rm mnt/other";
        let output = std::process::Command::new(&pmfs)
            .args(["run", "--no-mount", "--pool", "pool", "--at", "mnt"])
            .args(["--protect", protect, "--", "sh", "-c", script])
            .current_dir(bench.path(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "text\n");
    }
    bench.ok(&["fsck", "pool"]);
}
