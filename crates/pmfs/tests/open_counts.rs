//! An unlinked file that somebody holds is there, however many others of the process take hold of
//! it and let it go meanwhile.

mod scratch;

use pmfs::{Fs, NewNode, OpenOptions, ROOT_INO};
use scratch::Scratch;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(700);
const OTHERS: usize = 6;

#[test]
fn a_held_file_is_never_missed() {
    let Scratch { dir: _dir, path } = Scratch::new(16 << 20);
    let fs = Fs::open(&path, &OpenOptions::default()).unwrap();
    let node = NewNode {
        mode: 0o644,
        uid: 1,
        gid: 2,
        umask: 0,
    };
    let ino = fs.create(ROOT_INO, b"gone", &node).unwrap().ino;
    fs.write(ino, 0, b"still here").unwrap();
    fs.hold(ino).unwrap();
    fs.unlink(ROOT_INO, b"gone").unwrap();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..OTHERS {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    fs.hold(ino).unwrap();
                    fs.release(ino).unwrap();
                }
            });
        }
        let since = Instant::now();
        let mut missed = 0;
        let mut looks = 0u64;
        while since.elapsed() < LOOK {
            for _ in 0..1000 {
                missed += u64::from(fs.read(ino, 0, &mut [0; 10]).is_err());
                looks += 1;
            }
        }
        ends.store(true, Ordering::Relaxed);
        println!("{missed} of {looks} missed");
        assert_eq!(missed, 0, "of {looks} looks");
    });
    fs.release(ino).unwrap();
    fs.close().unwrap();
}
