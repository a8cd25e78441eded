//! Pools for tests: in a directory of their own in memory, gone with the guard.

use pmfs::{Clock, DataMode, Fs, LargePages, MapOptions, OpenOptions, ProtectMode};
use pmfs_admin::MkfsOptions;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Once};

/// The first of the clock's steps: a day of 2001.
const CLOCK_START_NS: i64 = 1_000_000_000_000_000_000;

/// Beginning of the directories' names; the process's number follows.
const PREFIX: &str = "pmfs-model-";
static SWEEP: Once = Once::new();

/// Removes what runs left that were killed: no guard of theirs ran.
fn sweep() {
    for entry in std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A pool file and the clock that its instances share.
pub struct TestPool {
    pub path: PathBuf,
    dir: tempfile::TempDir,
    clock: Arc<AtomicI64>,
    protect: ProtectMode,
    /// Each one has another page-size hint.
    opens: AtomicUsize,
}

impl TestPool {
    /// Makes a pool of `bytes`; the same `seed` gives the same one.
    pub fn new(bytes: u64, inodes: Option<u64>, seed: u64) -> TestPool {
        SWEEP.call_once(sweep);
        let dir = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", std::process::id()))
            .tempdir_in("/dev/shm")
            .expect("a temporary directory");
        let pool = TestPool {
            path: dir.path().join("pool"),
            dir,
            clock: Arc::new(AtomicI64::new(CLOCK_START_NS)),
            protect: ProtectMode::Auto,
            opens: AtomicUsize::new(0),
        };
        let options = MkfsOptions {
            size: Some(bytes),
            inodes,
            uuid: Some([7; 16]),
            hash_key: Some([seed, !seed]),
            root: Some((11, 22, 0o755)),
            clock: pool.clock(),
            ..MkfsOptions::default()
        };
        pmfs_admin::mkfs(&pool.path, &options).expect("mkfs");
        pool
    }

    /// The same pool, closed in this way where it is opened from now on.
    pub fn closed(mut self, protect: ProtectMode) -> TestPool {
        self.protect = protect;
        self
    }

    fn clock(&self) -> Clock {
        Clock::Steps(Arc::clone(&self.clock))
    }

    /// The next time that the clock will tell.
    pub fn now_ns(&self) -> i64 {
        self.clock.load(Ordering::SeqCst)
    }

    pub fn options(&self, data: DataMode, shared: bool) -> OpenOptions {
        const HINTS: [LargePages; 3] = [LargePages::Grow, LargePages::Always, LargePages::Never];
        let opens = self.opens.fetch_add(1, Ordering::Relaxed);
        OpenOptions {
            data,
            large: HINTS[opens % HINTS.len()],
            exclusive: !shared,
            clock: self.clock(),
            map: MapOptions {
                protect: self.protect,
                ..MapOptions::default()
            },
            ..OpenOptions::default()
        }
    }

    pub fn open(&self, data: DataMode, shared: bool) -> Result<Fs, String> {
        Fs::open(&self.path, &self.options(data, shared)).map_err(|error| format!("open: {error}"))
    }

    /// A copy of the pool file as it stands, under a name of its own: another identity.
    pub fn copy(&self) -> PathBuf {
        let path = self.dir.path().join("copy");
        std::fs::copy(&self.path, &path).expect("copy the pool file");
        path
    }
}
