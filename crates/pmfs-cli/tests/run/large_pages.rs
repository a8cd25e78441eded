//! Goal: a medium that has large pages alone is mapped by them. Method: a pool on
//! hugetlbfs, mounted in a mount namespace of its own, and a program that asks the
//! kernel which pages it has. (DAX devices: tests/media.)

use std::fs;
use std::path::PathBuf;

use crate::program::Run;

/// Pages of a size that the kernel may hand out; as it was when this is dropped.
struct Allowed {
    file: PathBuf,
    before: u64,
}

impl Allowed {
    /// `how` is the file of the kernel's that counts them. `None`: they can't be had.
    fn new(kib: u64, how: &str, pages: u64) -> Option<Allowed> {
        let file = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/{how}"));
        let count = || fs::read_to_string(&file).ok()?.trim().parse::<u64>().ok();
        let before = count()?;
        fs::write(&file, (before + pages).to_string()).ok()?;
        let had = count().unwrap_or(before);
        let allowed = Allowed { file, before };
        (had >= before + pages).then_some(allowed)
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, self.before.to_string());
    }
}

/// A file of so many MiB, mapped by pages of `kib`, in a pool of `pages` of them.
fn mapped(kib: u64, how: &str, pages: u64, file_mib: u64) {
    let allowed = Allowed::new(kib, how, pages);
    let (Some(_allowed), true) = (allowed, rustix::process::geteuid().is_root()) else {
        eprintln!(
            "skipped: {pages} pages of {kib} KiB can't be had (root, and memory that lies together)"
        );
        return;
    };
    let Some(run) = Run::new() else { return };
    let program = run.build("large.c", &[]);
    let script = r#"mkdir huge && mount -t hugetlbfs -o "pagesize=$2K" none huge &&
        "$0" mkfs --size "$3K" huge/pool && "$0" run --pool huge/pool --at mnt -- "$1" "$2" "$4" "$PWD/mnt" && "$0" fsck huge/pool"#;
    let size = kib * pages;
    let said = run.in_a_namespace(script, &program, &[kib, size, file_mib]);
    assert_eq!(said.code, Some(0), "{}\n{}", said.text, run.log());
}

#[test]
fn of_two_mebibytes() {
    mapped(2048, "nr_overcommit_hugepages", 128, 64);
}

#[test]
fn of_a_gibibyte() {
    mapped(1 << 20, "nr_hugepages", 3, 1024);
}
