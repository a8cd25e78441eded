//! Goal: what `load` makes is what `save` saw, and nothing that has been tampered with makes a
//! pool. Method: a small pool with all kinds of files, saved once; each bit of every structure of
//! the stream and some of its content flipped, the stream cut at each structure's ends and between,
//! runs left out, doubled, swapped.

use pmfs::{Error, Fs, NewNode, OpenOptions, ROOT_INO};
use pmfs_admin::{Admin, LoadOptions, MkfsOptions, load};
use std::path::{Path, PathBuf};

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn count(&self) -> usize {
        std::fs::read_dir(self.0.path()).unwrap().count()
    }
}

fn pool(path: &Path) -> Vec<u8> {
    let options = MkfsOptions {
        size: Some(1 << 20),
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(path, &options).unwrap();
    let fs = Fs::open(path, &OpenOptions::default()).unwrap();
    for number in 0..20u8 {
        let name = format!("file-{number}");
        let file = fs.create(ROOT_INO, name.as_bytes(), &NODE).unwrap();
        let content = vec![number + 1; 3000 * usize::from(number % 5)];
        fs.write(file.ino, 0, &content).unwrap();
    }
    fs.unlink(ROOT_INO, b"file-7").unwrap();
    let mut image = Vec::new();
    let mut told = (0, 0);
    let report = fs
        .save(&mut image, &mut |done, of| told = (done, of))
        .unwrap();
    assert_eq!(report.bytes, image.len() as u64);
    assert!(told.0 > 0 && told.0 <= told.1, "{told:?}");
    fs.close().unwrap();
    image
}

fn try_load(image: &[u8], path: &Path) -> Result<(), Error> {
    let options = LoadOptions {
        sparse: true,
        ..LoadOptions::default()
    };
    load(&mut &image[..], path, &options, &mut |_, _| {}).map(|_| ())
}

/// Offsets of the runs' headers, the trailer's last.
fn runs(image: &[u8]) -> Vec<usize> {
    let mut at = 64;
    let mut found = Vec::new();
    loop {
        found.push(at);
        let count = u32::from_le_bytes(image[at + 8..at + 12].try_into().unwrap());
        if count == 0 {
            return found;
        }
        at += 32 + count as usize * 4096;
    }
}

#[test]
fn the_same_files_come_out() {
    let place = Place::new();
    let image = pool(&place.path("pool"));
    assert!(image.len() < 400_000, "{} bytes", image.len());
    try_load(&image, &place.path("copy")).unwrap();
    let [one, two] = ["pool", "copy"].map(|name| {
        let fs = Fs::open(&place.path(name), &OpenOptions::default()).unwrap();
        assert_eq!(fs.check().unwrap().findings, []);
        fs
    });
    assert_eq!(two.recovery().kind, pmfs::RecoveryKind::None);
    assert_eq!(one.info().uuid, two.info().uuid);
    assert_eq!(one.info().blocks_free, two.info().blocks_free);
    for number in 0..20 {
        let name = format!("file-{number}");
        if number == 7 {
            assert!(two.lookup(ROOT_INO, name.as_bytes()).is_err());
            continue;
        }
        let [a, b] = [&one, &two].map(|fs| {
            let attr = fs.lookup(ROOT_INO, name.as_bytes()).unwrap();
            let mut content = vec![0; attr.size as usize];
            fs.read(attr.ino, 0, &mut content).unwrap();
            let attr = fs.getattr(attr.ino).unwrap();
            (
                content,
                attr.mode,
                attr.uid,
                attr.mtime_ns,
                attr.generation,
                attr.sectors,
            )
        });
        assert_eq!(a, b, "{name}");
    }
    one.close().unwrap();
    two.close().unwrap();
}

#[test]
fn no_flipped_bit_goes_through() {
    let place = Place::new();
    let image = pool(&place.path("pool"));
    let runs = runs(&image);
    assert!(runs.len() > 3);
    let mut places: Vec<usize> = (0..64).collect();
    for run in runs {
        places.extend(run..run + 32);
    }
    places.extend((64..image.len()).step_by(1009));
    for (number, at) in places.into_iter().enumerate() {
        let mut hurt = image.clone();
        hurt[at] ^= 1 << (number % 8);
        let error = try_load(&hurt, &place.path("copy")).unwrap_err();
        assert!(matches!(error, Error::BadImage(_)), "byte {at}: {error}");
        assert_eq!(place.count(), 1, "byte {at}: something is left");
    }
}

#[test]
fn no_end_may_be_missing_and_nothing_follow() {
    let place = Place::new();
    let image = pool(&place.path("pool"));
    let mut cuts: Vec<usize> = (0..image.len()).step_by(1511).collect();
    for run in runs(&image) {
        cuts.extend([run - 1, run, run + 1, run + 31]);
    }
    cuts.push(image.len() - 1);
    for cut in cuts {
        let error = try_load(&image[..cut], &place.path("copy")).unwrap_err();
        assert!(matches!(error, Error::BadImage(_)), "{cut}: {error}");
        assert_eq!(place.count(), 1, "{cut}: something is left");
    }
    let mut longer = image.clone();
    longer.push(0);
    assert!(try_load(&longer, &place.path("copy")).is_err());
    assert_eq!(place.count(), 1);
}

#[test]
fn runs_can_not_be_left_out_doubled_or_swapped() {
    let place = Place::new();
    let image = pool(&place.path("pool"));
    let runs = runs(&image);
    let piece = |at: usize| &image[runs[at]..runs[at + 1]];
    let end = &image[*runs.last().unwrap()..];
    for at in 0..runs.len() - 2 {
        let (before, after) = (&image[..runs[at]], &image[runs[at + 2]..]);
        let without = [before, piece(at + 1), after].concat();
        let doubled = [before, piece(at), piece(at), piece(at + 1), after].concat();
        let swapped = [before, piece(at + 1), piece(at), after].concat();
        let cut = [before, end].concat();
        for hurt in [without, doubled, swapped, cut] {
            let error = try_load(&hurt, &place.path("copy")).unwrap_err();
            assert!(matches!(error, Error::BadImage(_)), "run {at}: {error}");
        }
    }
    assert_eq!(place.count(), 1);
}

#[test]
fn what_is_there_is_kept_unless_told() {
    let place = Place::new();
    let image = pool(&place.path("pool"));
    std::fs::write(place.path("there"), "mine").unwrap();
    let error = try_load(&image, &place.path("there")).unwrap_err();
    assert!(matches!(error, Error::NotEmptyFile), "{error}");
    let force = LoadOptions {
        force: true,
        ..LoadOptions::default()
    };
    let there = place.path("there");
    let cut = &image[..image.len() - 1];
    assert!(load(&mut &cut[..], &there, &force, &mut |_, _| {}).is_err());
    assert_eq!(std::fs::read(&there).unwrap(), b"mine");
    let fs = Fs::open(&place.path("pool"), &OpenOptions::default()).unwrap();
    let held = load(&mut &image[..], &place.path("pool"), &force, &mut |_, _| {});
    assert!(matches!(held, Err(Error::Held { .. })), "{held:?}");
    fs.close().unwrap();
    load(&mut &image[..], &there, &force, &mut |_, _| {}).unwrap();
    Fs::open(&there, &OpenOptions::default())
        .unwrap()
        .close()
        .unwrap();
    assert_eq!(place.count(), 2);
}

/// Nobody attaches to a pool that is being copied.
#[test]
fn a_frozen_pool_is_waited_for() {
    let place = Place::new();
    pool(&place.path("pool"));
    let freeze = pmfs::Freeze::take(&place.path("pool")).unwrap();
    assert!(matches!(
        pmfs::Freeze::take(&place.path("pool")),
        Err(Error::Frozen)
    ));
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| Fs::open(&place.path("pool"), &OpenOptions::default()));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!opener.is_finished());
        drop(freeze);
        opener.join().unwrap().unwrap().close().unwrap();
    });
}
