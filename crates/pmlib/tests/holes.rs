//! Goal: a heap whose objects died gives their space back to the file system while it is open, and
//! takes it again: no byte of an object is lost, and a medium without room is an answer. Method:
//! two handles on one heap; the file's blocks are counted; a small tmpfs of a process's own, which
//! another file fills.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use pmlib::{Error, Heap, Options};

const MIB: u64 = 1 << 20;
/// The directory for the test's second part, which runs in a process of its own.
const DIR: &str = "PMLIB_HOLES_DIR";

fn space(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

fn make(heap: &Heap, bytes: u64, value: u8) -> Result<u64, Error> {
    heap.tx(|tx| {
        let object = tx.alloc(bytes)?;
        tx.edit_bytes(object, 0, bytes)?.fill(value);
        Ok(object)
    })
}

fn holds(heap: &Heap, object: u64, bytes: u64, value: u8) -> bool {
    let mut content = vec![0; bytes as usize];
    heap.read_bytes(object, 0, &mut content).unwrap();
    content.iter().all(|&byte| byte == value)
}

#[test]
fn space_goes_back_and_is_taken_again() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let heap = Heap::create(&path, 64 * MIB, &Options::default()).unwrap();
    let other = Heap::open(&path, &Options::default()).unwrap();
    let objects: Vec<u64> = (0..100)
        .map(|_| make(&heap, 512 << 10, 1).unwrap())
        .collect();
    let small: Vec<u64> = (0..500).map(|_| make(&heap, 8000, 2).unwrap()).collect();
    let before = space(&path);
    assert!(before >= 64 * MIB);
    let nothing = heap.give_back().unwrap();
    assert!(nothing <= 8 * MIB, "{nothing}: what was never used");
    assert_eq!(space(&path), before - nothing);
    for (nth, &object) in objects.iter().enumerate().filter(|(nth, _)| nth % 25 != 7) {
        let freer = if nth % 2 == 0 { &heap } else { &other };
        freer.tx(|tx| tx.free(object)).unwrap();
    }
    for &object in &small {
        heap.tx(|tx| tx.free(object)).unwrap();
    }
    let given = heap.give_back().unwrap();
    assert!(given >= 36 * MIB, "{given}");
    assert_eq!(space(&path), before - nothing - given);
    assert_eq!(
        other.give_back().unwrap(),
        0,
        "all of them are holes already"
    );
    let kept: Vec<u64> = objects.into_iter().skip(7).step_by(25).collect();
    assert!(kept.iter().all(|&kept| holds(&other, kept, 512 << 10, 1)));

    // A user that did not make the holes takes the space again.
    let low = space(&path);
    let large = make(&other, 20 * MIB, 9).unwrap();
    assert!(
        space(&path) >= low + 20 * MIB - 4 * MIB,
        "some were no holes"
    );
    let at_rest = space(&path);
    heap.tx(|tx| tx.edit_bytes(large, 0, 20 * MIB).map(|bytes| bytes.fill(3)))
        .unwrap();
    assert_eq!(space(&path), at_rest, "all of its space was there");
    heap.check().unwrap();
    heap.close().unwrap();
    other.close().unwrap();
    let heap = Heap::open(&path, &Options::default()).unwrap();
    assert!(holds(&heap, large, 20 * MIB, 3));
    assert!(kept.iter().all(|&kept| holds(&heap, kept, 512 << 10, 1)));
    heap.check().unwrap();
}

/// A heap without a file, or with one that has no holes, gives nothing back, and says so.
#[test]
fn memory_has_no_holes() {
    let heap = Heap::private(8 * MIB, &Options::default()).unwrap();
    assert_eq!(heap.give_back().unwrap(), 0);
    let object = make(&heap, 4 * MIB, 1).unwrap();
    assert!(holds(&heap, object, 4 * MIB, 1));
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let heap = Heap::create(&path, 8 * MIB, &Options::default()).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(heap.give_back().unwrap(), 0, "its name is gone");
    let object = make(&heap, 4 * MIB, 1).unwrap();
    assert!(holds(&heap, object, 4 * MIB, 1));
}

#[test]
fn a_medium_without_room_is_an_answer() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mount = "mount -t tmpfs -o size=10m pmlib-test \"$1\" && shift && exec \"$0\" \"$@\"";
    let run = Command::new("unshare")
        .args(["-rm", "sh", "-c", mount])
        .arg(std::env::current_exe().unwrap())
        .arg(dir.path())
        .args(["--exact", "on_a_small_medium", "--nocapture"])
        .env(DIR, dir.path())
        .output()
        .expect("unshare, of the package util-linux");
    let said = String::from_utf8_lossy(&run.stderr);
    if said.contains("unshare") || said.contains("mount:") {
        eprintln!("skipped: no tmpfs of its own: {said}");
        return;
    }
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{told}{said}");
    assert!(told.contains("on a small medium: right"), "{told}");
}

/// No test: the second part of the one above.
#[test]
fn on_a_small_medium() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let path = Path::new(&dir).join("heap");
    let options = Options {
        max: 8 * MIB,
        ..Options::default()
    };
    let heap = Heap::create(&path, 8 * MIB, &options).unwrap();
    let other = Heap::open(&path, &options).unwrap();
    let large = make(&heap, 5 * MIB, 1).unwrap();
    heap.tx(|tx| tx.free(large)).unwrap();
    let given = heap.give_back().unwrap();
    assert!(given >= 4 * MIB, "{given}");
    // Another file takes all that there is.
    let filler = Path::new(&dir).join("filler");
    let full = std::fs::write(&filler, vec![7; 16 * MIB as usize]);
    assert!(full.is_err(), "more than there is");
    let refused = make(&other, 5 * MIB, 2);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    other.check().unwrap();
    std::fs::remove_file(&filler).unwrap();
    let large = make(&other, 5 * MIB, 3).unwrap();
    assert!(holds(&heap, large, 5 * MIB, 3));
    heap.check().unwrap();
    println!("on a small medium: right");
}
