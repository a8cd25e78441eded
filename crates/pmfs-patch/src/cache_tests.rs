//! Goal: an image is used only if no other user can have written it and it is of this library; else
//! it is made anew. Method: a directory of the test's own, and this process's libc.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::thread;

use tempfile::TempDir;

use super::*;
use crate::header::VERSION;
use crate::patched_text::tests::libc_path;

/// A cache that holds libc's image.
struct Kept {
    _guard: TempDir,
    images: PatchedTexts,
    image: PathBuf,
    good: Vec<u8>,
}

fn kept() -> Kept {
    let guard = TempDir::new().expect("a directory");
    let images = PatchedTexts::of(guard.path().join("a/images"));
    let image = images.find_or_make(&libc_path()).expect("an image");
    Kept {
        good: fs::read(&image).expect("the image"),
        _guard: guard,
        images,
        image,
    }
}

impl Kept {
    fn inode(&self) -> u64 {
        fs::symlink_metadata(&self.image).expect("the image").ino()
    }

    /// Asks again; returns whether the file was made anew. The file is good afterwards in any case.
    fn is_made_anew(&self) -> bool {
        // Held open, so that a new file can't get its number.
        let held = File::open(&self.image);
        let before = self.inode();
        let again = self.images.find_or_make(&libc_path()).expect("an image");
        drop(held);
        assert_eq!(again, self.image);
        let status = fs::symlink_metadata(&again).expect("the image");
        assert!(status.is_file());
        assert_eq!(status.mode() & WRITE_OF_OTHERS, 0);
        assert!(fs::read(&again).expect("the image") == self.good);
        let names = fs::read_dir(&self.images.dir).expect("the directory");
        assert_eq!(names.count(), 1, "nothing temporary is left");
        self.inode() != before
    }

    fn chmod(&self, path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    }
}

#[test]
fn found_again() {
    let kept = kept();
    assert!(!kept.is_made_anew());
    let name = kept.image.file_name().expect("a name");
    let name = name.to_str().expect("plain letters");
    assert!(name.ends_with(&format!(".v{VERSION}.image")));
}

#[test]
fn damaged_cut_or_longer() {
    let kept = kept();
    let mut flipped = kept.good.clone();
    flipped[40] ^= 1;
    let mut patched = kept.good.clone();
    patched[0x2_0000] ^= 1;
    let longer = [&kept.good[..], &[0; 4096]].concat();
    let cut = &kept.good[..kept.good.len() - 4096];
    let uneven = &kept.good[..5000];
    for bytes in [&flipped, &patched, &longer, cut, uneven, b""] {
        fs::write(&kept.image, bytes).expect("damaging it");
        assert!(kept.is_made_anew(), "{} bytes", bytes.len());
        assert!(!kept.is_made_anew());
    }
}

#[test]
fn writable_by_others() {
    let kept = kept();
    for mode in [0o664, 0o646] {
        kept.chmod(&kept.image, mode);
        assert!(kept.is_made_anew());
    }
}

/// A link, even to a good image, is replaced and not followed.
#[test]
fn a_symbolic_link() {
    let kept = kept();
    let elsewhere = kept._guard.path().join("elsewhere");
    fs::rename(&kept.image, &elsewhere).expect("moving it");
    symlink(&elsewhere, &kept.image).expect("a link");
    assert!(kept.is_made_anew());
    assert!(fs::read(&elsewhere).expect("left alone") == kept.good);
}

#[test]
fn a_fifo_does_not_hold_it_up() {
    let kept = kept();
    fs::remove_file(&kept.image).expect("removing it");
    let mode = Mode::from_raw_mode(0o600);
    let kind = FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &kept.image, kind, mode, 0).expect("a fifo");
    let before = kept.inode();
    kept.images.find_or_make(&libc_path()).expect("an image");
    assert_ne!(kept.inode(), before);
    assert!(fs::read(&kept.image).expect("the image") == kept.good);
}

#[test]
fn a_directory_that_others_may_write() {
    let kept = kept();
    kept.chmod(&kept.images.dir, 0o777);
    let refused = kept.images.find_or_make(&libc_path());
    assert!(matches!(refused, Err(PatchError::OpenCache { .. })));
}

#[test]
fn a_directory_behind_a_link() {
    let kept = kept();
    let link = kept._guard.path().join("link");
    symlink(&kept.images.dir, &link).expect("a link");
    let refused = PatchedTexts::of(&link).find_or_make(&libc_path());
    assert!(matches!(
        refused,
        Err(PatchError::Cache { what: "open", .. })
    ));
}

#[test]
fn no_directory_can_be_made() {
    let kept = kept();
    let below_a_file = PatchedTexts::of(kept.image.join("images"));
    let refused = below_a_file.find_or_make(&libc_path());
    assert!(matches!(
        refused,
        Err(PatchError::Cache { what: "make", .. })
    ));
}

#[test]
fn no_library() {
    let kept = kept();
    let refused = kept.images.find_or_make(Path::new("/nowhere/libc.so.6"));
    assert!(matches!(refused, Err(PatchError::Read { .. })));
    assert!(!kept.is_made_anew());
}

/// Goal: a verified image is not read again, until one of the two files or the record has changed
/// in any way.
#[test]
fn verified_until_something_changes() {
    let mut kept = kept();
    let library = kept._guard.path().join("libc.so.6");
    fs::copy(libc_path(), &library).expect("a copy");
    let verified = |kept: &Kept| {
        let dir = kept.images.open_dir().expect("the directory");
        let file = File::open(&library).expect("the library");
        let status = rustix::fs::fstat(&file).expect("its status");
        let path = &library;
        kept.images.verified(&dir, &Seen { path, status })
    };
    let ask = |kept: &Kept| {
        let image = kept.images.find_or_make(&library).expect("an image");
        assert_eq!(image, kept.image);
        assert!(fs::read(&image).expect("the image") == kept.good);
    };
    ask(&kept);
    assert_eq!(verified(&kept), None, "all of it is fresh");
    kept.images.stable_after = Duration::ZERO;
    ask(&kept);
    let name = verified(&kept).expect("a record");
    assert_eq!(kept.image.file_name(), Some(name.as_ref()));
    ask(&kept);

    let record = || {
        let names = fs::read_dir(&kept.images.dir).expect("the directory");
        let mut paths = names.map(|entry| entry.expect("an entry").path());
        let is_record = |path: &PathBuf| path.extension().is_some_and(|end| end == "verified");
        paths.find(is_record).expect("a record")
    };
    let whole = fs::read(record()).expect("the record");
    assert_eq!(
        verified::patched_text_name("ab.v0.image\n"),
        None,
        "older rules"
    );
    let mut damaged = kept.good.clone();
    damaged[0x2_0000] ^= 1;
    let changes: [(&str, &dyn Fn()); 7] = [
        ("library", &|| {
            fs::write(&library, fs::read(libc_path()).unwrap()).unwrap()
        }),
        ("library's mode", &|| kept.chmod(&library, 0o700)),
        ("image", &|| fs::write(&kept.image, &damaged).unwrap()),
        ("image that others may write", &|| {
            kept.chmod(&kept.image, 0o666)
        }),
        ("record cut", &|| fs::write(record(), &whole[..20]).unwrap()),
        ("record of another", &|| {
            fs::write(record(), b"../x\n\n\n").unwrap()
        }),
        ("record that others may write", &|| {
            kept.chmod(&record(), 0o666)
        }),
    ];
    for (what, change) in changes {
        assert!(verified(&kept).is_some(), "before: {what}");
        change();
        assert_eq!(verified(&kept), None, "{what}");
        ask(&kept);
        // An image that was made anew is verified at the next request.
        ask(&kept);
    }
}

/// The owner of a file decides. A test can't give files away everywhere, so the system's
/// answer is made up here.
#[test]
fn whose_file_it_is() {
    let kept = kept();
    let file = File::open(&kept.image).expect("the image");
    let status = rustix::fs::fstat(&file).expect("its status");
    assert!(may_be_used(&status));
    let mut foreign = status;
    foreign.st_uid = rustix::process::geteuid().as_raw().wrapping_add(1);
    assert!(!may_be_used(&foreign));
    assert!(!owned_by_us(&foreign));
    let mut of_root = status;
    of_root.st_uid = 0;
    assert!(may_be_used(&of_root));
}

/// Eight at once, three times, on an empty cache and on a damaged image: all get the
/// same good file.
#[test]
fn many_at_once() {
    let kept = kept();
    for round in 0..3 {
        fs::write(&kept.image, format!("round {round}")).expect("damaging it");
        thread::scope(|scope| {
            let ask = || kept.images.find_or_make(&libc_path()).expect("an image");
            let all: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            for one in all {
                assert_eq!(one.join().expect("no panic"), kept.image);
            }
        });
        assert!(!kept.is_made_anew());
    }
}

#[test]
fn where_a_users_images_are() {
    let path = |text: &str| Some(PathBuf::from(text));
    assert_eq!(user_dir(true, path("/c"), path("/h")), path(ROOT_DIR));
    assert_eq!(
        user_dir(false, path("/c"), path("/h")),
        path("/c/pmfs/images")
    );
    assert_eq!(
        user_dir(false, None, path("/h")),
        path("/h/.cache/pmfs/images")
    );
    assert_eq!(user_dir(false, None, None), None);
}
