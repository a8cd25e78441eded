//! Goal: the bank of the documentation survives `kill -9`. Method: it works in a child, which is
//! killed at some moment, again and again; after each the accounts fit the journal.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

#[path = "../examples/bank.rs"]
mod bank;

/// The bank's file, for a child.
const BANK: &str = "PMLIB_TEST_BANK";

#[test]
fn a_bank_survives_kill_9() {
    if let Some(path) = std::env::var_os(BANK) {
        bank::work(Path::new(&path)).expect("it works until it is killed");
    }
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path: PathBuf = dir.path().join("bank");
    let mut before = bank::look(&path).expect("a new bank");
    for round in 0..10 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["a_bank_survives_kill_9", "--exact"])
            .env(BANK, &path)
            .stdout(Stdio::null())
            .spawn()
            .expect("a child");
        std::thread::sleep(Duration::from_millis(30 + 17 * round));
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");
        let transfers = bank::look(&path).expect("a bank");
        assert!(transfers >= before, "{transfers} after {before}");
        before = transfers;
    }
    println!("{before} transfers");
    assert!(before > 0);
}
