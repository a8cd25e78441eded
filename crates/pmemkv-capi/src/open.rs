//! How a database is opened: which engine, in which heap.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use pmkv::{Kind, Owned, Store};
use pmlib::{Error, Heap, Options};

use crate::config::Config;
use crate::status::{Answer, Status, fail, told};

/// The size to which memory of a database without one may grow, bytes.
const MEMORY_MAX: u64 = 1 << 40;
/// Its first size.
const MEMORY_FIRST: u64 = 64 << 20;

/// An engine that is open.
pub enum Engine {
    /// It takes everything, and has nothing.
    Blackhole,
    Stored(Stored),
}

/// An engine in a heap.
pub struct Stored {
    pub owned: Owned,
    /// Whether it outlives the process.
    pub lasts: bool,
}

impl Stored {
    pub fn kv(&self) -> &(dyn Store + '_) {
        self.owned.store()
    }

    /// Whether its keys have an order.
    pub fn is_sorted(&self) -> bool {
        self.kv().kind() == Kind::Tree
    }
}

impl Engine {
    /// The engine of one of pmemkv's names.
    pub fn open(name: &[u8], config: &Config) -> Answer<Engine> {
        let (kind, place) = match name {
            b"blackhole" => return Ok(Engine::Blackhole),
            b"cmap" => (Kind::Hash, Place::File("pmemkv")),
            b"robinhood" => (Kind::Hash, Place::File("pmemkv_robinhood")),
            b"csmap" => (Kind::Tree, Place::File("pmemkv_csmap")),
            b"radix" => (Kind::Tree, Place::File("pmemkv_radix")),
            b"stree" => (Kind::Tree, Place::File("pmemkv_stree")),
            b"tree3" => (Kind::Tree, Place::File("pmemkv_tree3")),
            b"vcmap" => (Kind::Hash, Place::Memory("vcmap")),
            b"vsmap" => (Kind::Tree, Place::Memory("vsmap")),
            b"dram_vcmap" => (Kind::Hash, Place::Unbounded),
            b"dram_vcsmap" => (Kind::Tree, Place::Unbounded),
            _ => {
                return told(
                    Status::WrongEngineName,
                    &format!("no engine is called {}", String::from_utf8_lossy(name)),
                );
            }
        };
        // Unsorted engines pass it over, as the original's do.
        if kind == Kind::Tree && config.has(c"comparator") {
            return fail(
                Status::NotSupported,
                c"keys are in the order of their bytes: give no comparator, or use another engine",
            );
        }
        let stored = match place {
            Place::File(root) => in_file(kind, root, config),
            Place::Memory(name) => in_memory(kind, memory_size(name, config)?),
            Place::Unbounded => in_memory(kind, (MEMORY_FIRST, MEMORY_MAX)),
        };
        stored.map(Engine::Stored)
    }
}

/// Where an engine is.
enum Place {
    /// In the file `path`, by this name.
    File(&'static str),
    /// In memory up to `size` bytes. The engine's name, for its errors.
    Memory(&'static str),
    /// In memory of any size.
    Unbounded,
}

/// The first and the largest size of an engine in memory, bytes.
fn memory_size(name: &str, config: &Config) -> Answer<(u64, u64)> {
    let Some(bytes) = config.number(c"size")?.filter(|&bytes| bytes > 0) else {
        return told(Status::InvalidArgument, &format!("{name} needs a size"));
    };
    let Some(path) = config.text(c"path")? else {
        return told(Status::InvalidArgument, &format!("{name} needs a path"));
    };
    if !Path::new(OsStr::from_bytes(path.to_bytes())).is_dir() {
        let words = format!("the path of {name} is no directory");
        return told(Status::InvalidArgument, &words);
    }
    Ok((bytes, bytes))
}

/// A failure to open: the program's arguments, as the original has it.
fn refused<T>(path: &Path, error: &dyn std::error::Error) -> Answer<T> {
    let mut words = format!("{}: {error}", path.display());
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !words.ends_with(&text) {
            words = format!("{words}: {text}");
        }
        source = cause.source();
    }
    told(Status::InvalidArgument, &words)
}

fn in_file(kind: Kind, root: &str, config: &Config) -> Answer<Stored> {
    let path = config.text(c"path")?;
    if config.has(c"oid") {
        if path.is_some() {
            return fail(Status::InvalidArgument, c"a database has a path or an oid");
        }
        return fail(
            Status::NotSupported,
            c"a database can't be in an object of a PMDK pool: give a path",
        );
    }
    let Some(path) = path else {
        return fail(Status::InvalidArgument, c"the database needs a path");
    };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let flag = |key| Ok::<_, crate::status::Failure>(config.number(key)?.unwrap_or(0) != 0);
    let if_missing = flag(c"create_if_missing")?;
    let always = flag(c"create_or_error_if_exists")? || flag(c"force_create")?;
    if if_missing && always {
        return fail(
            Status::InvalidArgument,
            c"create_if_missing and create_or_error_if_exists can't both be set",
        );
    }
    let options = Options::default();
    let create = |bytes: Option<u64>| match bytes {
        Some(bytes) if bytes > 0 => Ok(Heap::create(path, bytes, &options)),
        _ => fail(Status::InvalidArgument, c"a new database needs a size"),
    };
    let is_new = always || if_missing && path.symlink_metadata().is_err();
    let mut opened = match is_new {
        true => create(config.number(c"size")?)?,
        false => Heap::open(path, &options),
    };
    // Another process has made it meanwhile.
    if let Err(Error::Medium(pmem::Error::Exists { .. })) = &opened
        && if_missing
    {
        opened = Heap::open(path, &options);
    }
    let heap = match opened {
        Ok(heap) => Arc::new(heap),
        Err(error) => return refused(path, &error),
    };
    if !always && !if_missing {
        match Kind::of_engine(&heap, root) {
            Ok(Some(_)) => {}
            Ok(None) => {
                return told(
                    Status::InvalidArgument,
                    &format!("{}: the heap has no engine {root}", path.display()),
                );
            }
            Err(error) => return refused(path, &error),
        }
    }
    stored(heap, kind, root, true).or_else(|error| refused(path, &error))
}

fn in_memory(kind: Kind, (bytes, max): (u64, u64)) -> Answer<Stored> {
    let options = Options {
        max,
        ..Options::default()
    };
    let heap = match Heap::private(bytes, &options) {
        Ok(heap) => Arc::new(heap),
        Err(error) => return refused(Path::new("memory"), &error),
    };
    Ok(stored(heap, kind, "pmemkv", false)?)
}

fn stored(heap: Arc<Heap>, kind: Kind, root: &str, lasts: bool) -> pmkv::Result<Stored> {
    let owned = Owned::open(heap, kind, root)?;
    Ok(Stored { owned, lasts })
}
