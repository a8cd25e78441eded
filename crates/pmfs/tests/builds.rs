//! Goal: a build whose tables stand elsewhere never shares a pool with this one: whoever comes
//! second is told what to do, and has the pool when the first is gone, cleanly or not. Method: the
//! engine is built once more, with another layout, and both take turns.

mod scratch;

use pmfs::{Error, Fs, NewNode, OpenOptions, ROOT_INO, RecoveryKind};
use pmfs_admin::{Admin, Inspector, PoolState};
use scratch::Scratch;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};

/// Builds the other one; answers its program.
fn other_build() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--message-format=json", "--package=pmfs"])
        .args(["--example=holder", "--features=other-layout"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut programs = messages.lines().filter_map(|message| {
        let (_, rest) = message.split_once("\"executable\":\"")?;
        let (program, _) = rest.split_once('"')?;
        Some(PathBuf::from(program))
    });
    programs.next().expect("a program was built")
}

/// The other build, which has the pool or was refused.
struct Other {
    child: Child,
    said: String,
}

impl Other {
    fn start(program: &Path, pool: &Path) -> Other {
        let mut child = Command::new(program)
            .arg(pool)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the other build");
        let mut said = String::new();
        let output = child.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut said).expect("a line");
        Other { child, said }
    }

    fn close(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "{}", self.said);
    }

    fn kill(mut self) {
        self.child.kill().expect("a child");
        self.child.wait().expect("a child");
    }
}

fn open(pool: &Path) -> pmfs::Result<Fs> {
    Fs::open(pool, &OpenOptions::default())
}

#[test]
fn never_both_at_once() {
    let other = other_build();
    let Scratch {
        dir: _dir,
        path: pool,
    } = Scratch::new(4 << 20);

    let fs = open(&pool).expect("ours");
    fs.create(ROOT_INO, b"ours", &NODE).expect("a file");
    let refused = Other::start(&other, &pool);
    for word in ["another PMFS version", "use the same version"] {
        assert!(refused.said.contains(word), "{}", refused.said);
    }
    refused.kill();
    fs.lookup(ROOT_INO, b"ours").expect("undisturbed");
    fs.close().expect("clean");

    for ends in [Other::close, Other::kill] {
        let theirs = Other::start(&other, &pool);
        assert_eq!(theirs.said.trim(), "open");
        let refused = open(&pool).err();
        assert!(
            matches!(&refused, Some(error @ Error::UnlikeBuild { theirs })
                if *theirs == pmfs_format::runtime::LAYOUT + 1 && error.to_string().contains("the same version")),
            "{refused:?}"
        );
        ends(theirs);
        // The tables of the other build are not believed.
        let fs = open(&pool).expect("ours again");
        assert_eq!(fs.recovery().kind, RecoveryKind::Walk);
        fs.lookup(ROOT_INO, b"ours").expect("what was there");
        assert_eq!(fs.check().expect("a check").findings, []);
        fs.close().expect("clean");
    }
}

/// Goal: a pool that another build left, or a crash, is shown without attaching it, whatever words
/// its runtime area has. Method: all of that area is overwritten by bytes of one kind.
#[test]
fn a_pool_with_foreign_words_is_shown() {
    for byte in [0xff, 0x7f, 0x01] {
        let scratch = Scratch::new(64 << 20);
        let regions = Inspector::open(&scratch.path).unwrap().details().regions;
        let area = regions.iter().find(|region| region.0 == "runtime area");
        let &(_, start, len) = area.expect("it is there");
        let file = std::fs::OpenOptions::new().write(true).open(&scratch.path);
        let words = vec![byte; len as usize];
        file.unwrap().write_all_at(&words, start).unwrap();
        let pool = Inspector::open(&scratch.path).unwrap();
        assert_eq!(pool.state(), PoolState::NeedsRecovery);
        let (info, _) = (pool.info(), pool.details());
        // Whole groups of 8,192.
        let most = |units: u64| units.next_multiple_of(8192) + u64::from(info.lanes);
        assert!(info.blocks_free <= most(info.blocks), "{byte:#x}");
        assert!(info.inodes_free <= most(info.inodes), "{byte:#x}");
        let _ = (pool.processes(), pool.holdings(), pool.locked());
    }
}
