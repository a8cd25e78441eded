//! Goal: a program that panics for a reason of its own, and whose destructors then call the engine,
//! harms neither itself nor others. (A panic of the engine's own leaves everything held for
//! recovery: half a change must not be seen.) Method: unwind through what has a destructor here,
//! and through one of the program's; then go on, in the same attachment and in another.

mod scratch;

use pmfs::{Fs, MapMode, OpenOptions, ROOT_INO, RenameFlags};
use pmfs_admin::Admin;
use scratch::{NODE, Scratch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Notes in a file that it is over, as a program's own guard may.
struct Notes<'a>(&'a Fs, u64);

impl Drop for Notes<'_> {
    fn drop(&mut self) {
        self.0.write(self.1, 0, b"over").unwrap();
        let flags = RenameFlags::empty();
        self.0
            .rename(ROOT_INO, b"a", ROOT_INO, b"b", flags)
            .unwrap();
    }
}

fn unwinds(fs: &Fs, ino: u64) {
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _notes = Notes(fs, ino);
        let _first = fs.map(ino, 0, 8192, MapMode::Shared).unwrap();
        let _second = fs.map(ino, 4096, 4096, MapMode::Shared).unwrap();
        panic!("a mistake of the program's");
    }));
    assert!(unwound.is_err());
}

#[test]
fn a_programs_panic_is_its_own() {
    let Scratch { dir: _dir, path } = Scratch::new(32 << 20);
    // In a thread that may be left behind: what is held for ever is waited for, for ever.
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let open = || Fs::open(&path, &OpenOptions::default()).unwrap();
        let (fs, other) = (open(), open());
        let ino = fs.create(ROOT_INO, b"a", &NODE).unwrap().ino;
        fs.write(ino, 0, &[1; 8192]).unwrap();
        unwinds(&fs, ino);
        for fs in [&fs, &other] {
            assert_eq!(fs.lookup(ROOT_INO, b"b").unwrap().ino, ino);
            fs.write(ino, 4, b" and on").unwrap();
        }
        let mut got = [0; 11];
        other.read(ino, 0, &mut got).unwrap();
        assert_eq!(&got, b"over and on");
        assert!(other.check().unwrap().is_clean());
        fs.close().unwrap();
        other.close().unwrap();
        done.send(()).unwrap();
    });
    is_done
        .recv_timeout(Duration::from_secs(30))
        .expect("it goes on");
}
