//! Goal: what each call logs, flushes and waits for is counted and bounded; a change that makes one
//! dearer fails here, and `docs/SEMANTICS.md` shows the same numbers. Method: pmem's counters
//! around single calls on a warm pool, which is closed by page permissions, so that windows are
//! counted on any machine. `PMFS_WRITE_DOCS=1` writes the table.

mod scratch;

use pmem::counters::{Counters, snapshot};
use pmfs::{
    AtimeMode, FallocateMode, Fs, Ino, MapOptions, OpenOptions, ProtectMode, ROOT_INO, RenameFlags,
    Result, SetAttr, XattrFlags,
};
use scratch::{NODE, Scratch};

/// Bounds: bytes logged and barriers. The paper's table 3 allows touch 512, mkdir 320, mv 384
/// bytes.
struct Cost {
    name: &'static str,
    logged_max: u64,
    barriers_max: u64,
    call: fn(&Fs, &Files) -> Result<()>,
}

/// Owner rw-, user 7 r-x, group r--, mask rwx, others ---.
const ACL: &[u8] =
    b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x05\0\x07\0\0\0\x04\0\x04\0\xff\xff\xff\xff\
    \x10\0\x07\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";

struct Files {
    /// A directory with a default ACL and a name in it.
    heirs: Ino,
    dir: Ino,
    other: Ino,
    file: Ino,
}

fn size(size: u64) -> SetAttr {
    SetAttr {
        size: Some(size),
        ..SetAttr::default()
    }
}

macro_rules! costs {
    ($( $name:literal, $logged:literal, $barriers:literal, |$fs:ident, $f:pat_param| $body:expr; )+) => {
        vec![ $( Cost {
            name: $name, logged_max: $logged, barriers_max: $barriers,
            call: |$fs, $f| { $body; Ok(()) },
        } ),+ ]
    };
}

fn costs() -> Vec<Cost> {
    costs! {
        "create (touch)", 128, 3, |fs, f| fs.create(f.dir, b"touched", &NODE)?;
        "mkdir", 192, 3, |fs, f| fs.mkdir(f.dir, b"made", &NODE)?;
        "symlink", 128, 3, |fs, f| fs.symlink(f.dir, b"sym", b"target", &NODE)?;
        "link", 192, 3, |fs, f| fs.link(f.file, f.dir, b"hard")?;
        "rename in a directory", 192, 3,
            |fs, f| fs.rename(f.dir, b"touched", f.dir, b"renamed", RenameFlags::empty())?;
        "rename to another directory (mv)", 256, 3,
            |fs, f| fs.rename(f.dir, b"renamed", f.other, b"moved", RenameFlags::empty())?;
        "rename over a file", 256, 3,
            |fs, f| fs.rename(f.other, b"moved", f.dir, b"hard", RenameFlags::empty())?;
        "rename that leaves a whiteout", 256, 3,
            |fs, f| fs.rename(f.dir, b"sym", f.dir, b"mys", RenameFlags::WHITEOUT)?;
        "unlink", 192, 3, |fs, f| fs.unlink(f.dir, b"hard")?;
        "rmdir", 192, 3, |fs, f| fs.rmdir(f.dir, b"made")?;
        "chmod", 128, 3,
            |fs, f| fs.setattr(f.file, &SetAttr { mode: Some(0o600), ..SetAttr::default() })?;
        "setxattr", 128, 3, |fs, f| fs.setxattr(f.file, b"user.a", b"1", XattrFlags::empty())?;
        "set an access ACL", 128, 3,
            |fs, f| fs.setxattr(f.file, b"system.posix_acl_access", ACL, XattrFlags::empty())?;
        "chmod with an ACL", 128, 3,
            |fs, f| fs.setattr(f.file, &SetAttr { mode: Some(0o640), ..SetAttr::default() })?;
        "create under a default ACL", 128, 3, |fs, f| fs.create(f.heirs, b"heir", &NODE)?;
        "append inside a block", 0, 2, |fs, f| fs.append(f.file, &[1; 64])?;
        "append of a block", 0, 2, |fs, f| fs.append(f.file, &[1; 4096])?;
        "overwrite of up to 8 bytes in a word", 0, 1, |fs, f| fs.write(f.file, 8, &[2; 8])?;
        "overwrite of 64 bytes", 192, 3, |fs, f| fs.write(f.file, 64, &[2; 64])?;
        "overwrite of a block", 0, 2, |fs, f| fs.write(f.file, 4096, &[2; 4096])?;
        "overwrite of 64 KiB", 256, 3, |fs, f| fs.write(f.file, 4096, &[2; 65536])?;
        "write over the end", 128, 3, |fs, f| {
            let end = fs.getattr(f.file)?.size;
            fs.write(f.file, end - 10, &[3; 100])?
        };
        "truncate, shrinking", 0, 3, |fs, f| fs.setattr(f.file, &size(100_000))?;
        "truncate, growing", 0, 2, |fs, f| fs.setattr(f.file, &size(200_000))?;
        "punch a hole", 0, 2, |fs, f| fs.fallocate(
            f.file, FallocateMode::KEEP_SIZE | FallocateMode::PUNCH_HOLE, 8192, 8192)?;
        "collapse a range", 128, 3, |fs, f| fs.collapse_range(f.file, 8192, 8192)?;
        "insert a range", 128, 3, |fs, f| fs.insert_range(f.file, 8192, 8192)?;
        "read, lookup, getattr, readdir", 0, 0, |fs, f| {
            fs.read(f.file, 0, &mut [0; 4096])?;
            fs.lookup(ROOT_INO, b"dir")?;
            fs.getattr(f.file)?;
            fs.readdir(f.dir, 0, &mut |_| true)?
        };
    }
}

fn measure() -> Vec<(Cost, Counters)> {
    let Scratch { dir: _dir, path } = Scratch::new(64 << 20);
    let closed = OpenOptions {
        map: MapOptions {
            protect: ProtectMode::Pages,
            ..MapOptions::default()
        },
        exclusive: true,
        // Due or not by the clock.
        atime: AtimeMode::Noatime,
        ..OpenOptions::default()
    };
    let fs = Fs::open(&path, &closed).expect("open");
    let dir = fs.mkdir(ROOT_INO, b"dir", &NODE).expect("mkdir").ino;
    let other = fs.mkdir(ROOT_INO, b"other", &NODE).expect("mkdir").ino;
    let file = fs.create(dir, b"file", &NODE).expect("create").ino;
    fs.create(other, b"there", &NODE).expect("create");
    fs.write(file, 0, &[7; 150_000]).expect("write");
    let heirs = fs.mkdir(ROOT_INO, b"heirs", &NODE).expect("mkdir").ino;
    fs.create(heirs, b"there", &NODE).expect("create");
    fs.setxattr(heirs, b"system.posix_acl_default", ACL, XattrFlags::empty())
        .expect("setxattr");
    let files = Files {
        heirs,
        dir,
        other,
        file,
    };
    costs()
        .into_iter()
        .map(|cost| {
            let before = snapshot();
            (cost.call)(&fs, &files).unwrap_or_else(|error| panic!("{}: {error}", cost.name));
            let counters = snapshot() - before;
            (cost, counters)
        })
        .collect()
}

fn table(measured: &[(Cost, Counters)]) -> String {
    let mut text = String::from(
        "| call | logged bytes | barriers | lines flushed | bytes past the caches | windows |\n|---|---|---|---|---|---|\n",
    );
    for (cost, counters) in measured {
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            cost.name,
            counters.logged_bytes,
            counters.fences,
            counters.lines_flushed,
            counters.nt_bytes,
            counters.windows
        ));
    }
    text
}

#[test]
fn calls_cost_what_semantics_says() {
    let measured = measure();
    let table = table(&measured);
    println!("{table}");
    for (cost, counters) in &measured {
        assert!(
            counters.logged_bytes <= cost.logged_max && counters.fences <= cost.barriers_max,
            "{}: {counters:?}, at most {} logged bytes and {} barriers",
            cost.name,
            cost.logged_max,
            cost.barriers_max
        );
        // One opens and closes; a call that reads has none.
        let windows_max = u64::from(counters.fences > 0);
        assert!(
            counters.windows <= windows_max,
            "{}: {counters:?}",
            cost.name
        );
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SEMANTICS.md");
    let text = std::fs::read_to_string(path).expect("docs/SEMANTICS.md");
    let (begin, end) = ("<!-- costs: begin -->\n", "<!-- costs: end -->");
    let from = text.find(begin).expect("the begin mark") + begin.len();
    let to = text.find(end).expect("the end mark");
    if std::env::var_os("PMFS_WRITE_DOCS").is_some() {
        let text = format!("{}{table}{}", &text[..from], &text[to..]);
        std::fs::write(path, text).expect("docs/SEMANTICS.md is writable");
    } else {
        assert_eq!(
            &text[from..to],
            table,
            "PMFS_WRITE_DOCS=1 cargo test -p pmfs --test costs"
        );
    }
}
