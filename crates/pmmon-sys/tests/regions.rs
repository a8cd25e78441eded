//! Goal: pools, heaps and what the user names are persistent memory, other files are not. Method:
//! files that this process maps, also deleted ones and such as become pools later.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::Duration;

use pmmon::regions::Why;
use pmmon_sys::{Finder, Mapping};

fn file(head: &[u8]) -> (tempfile::NamedTempFile, Mapping) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(head).unwrap();
    file.as_file().set_len(8192).unwrap();
    let mapping = Mapping::new(file.as_file(), 8192).unwrap();
    (file, mapping)
}

/// The verdict on a mapping.
fn why(finder: &mut Finder, mapping: &Mapping) -> Option<Why> {
    let (regions, code) = finder.find(std::process::id()).unwrap();
    assert!(!code.is_empty());
    let found = regions
        .iter()
        .find(|region| region.start == mapping.address());
    found.map(|region| {
        assert_eq!(region.end - region.start, 8192);
        region.why
    })
}

#[test]
fn files_are_told_apart() {
    let mut finder = Finder::default();
    let (pool, pool_mapping) = file(b"PMFSPOOL");
    let (_heap, heap_mapping) = file(b"PMHEAP01");
    let (other, other_mapping) = file(b"nothing!");
    assert_eq!(why(&mut finder, &pool_mapping), Some(Why::Pool));
    assert_eq!(why(&mut finder, &heap_mapping), Some(Why::Heap));
    assert_eq!(why(&mut finder, &other_mapping), None);
    let mut told = Finder::new(vec![other.path().to_owned()]);
    assert_eq!(why(&mut told, &other_mapping), Some(Why::Told));
    // A name that only begins alike is another file.
    let begin = other.path().to_str().unwrap();
    let mut alike = Finder::new(vec![begin[..begin.len() - 1].into()]);
    assert_eq!(why(&mut alike, &other_mapping), None);
    // Deleted files stay mapped.
    let mut fresh = Finder::default();
    drop(pool);
    assert_eq!(why(&mut fresh, &pool_mapping), Some(Why::Pool));
    // A pool may be made in a file that is mapped already.
    other.as_file().write_all_at(b"PMFSPOOL", 0).unwrap();
    sleep(Duration::from_millis(1100));
    assert_eq!(why(&mut finder, &other_mapping), Some(Why::Pool));
}

/// Goal: of named files alone, whatever they are, and no other.
#[test]
fn only_named_files_are_looked_at() {
    let (_pool, pool_mapping) = file(b"PMFSPOOL");
    let (other, other_mapping) = file(b"nothing!");
    let mut finder = Finder::default();
    finder.only(other.path()).unwrap();
    assert_eq!(why(&mut finder, &pool_mapping), None);
    assert_eq!(why(&mut finder, &other_mapping), Some(Why::Told));
    let missing = finder.only("/no/such/file".as_ref()).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn private_mappings_are_none() {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(text.contains("r--p"));
    let (regions, _) = Finder::new(vec!["/".into()])
        .find(std::process::id())
        .unwrap();
    for region in regions {
        let line = format!("{:x}-{:x} ", region.start, region.end);
        let line = text.lines().find(|other| other.starts_with(&line));
        assert!(
            line.is_none_or(|line| line[..40].contains('s')),
            "{region:?}"
        );
    }
    let missing = Finder::default().find(0x3fff_ffff).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
}
