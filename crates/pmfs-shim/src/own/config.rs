//! The settings that `pmfs run` hands to the programs that it starts: one variable of the
//! environment, a `key=value` a line.

use std::sync::OnceLock;

use pmfs::OpenOptions;
use pmfs_posix::options::from_words;

use crate::own::environment::{Environment, value_of};
use crate::own::log;

/// The variable.
pub(crate) const VARIABLE: &[u8] = b"PMFS_RUN";
/// Tells a program what the one before it in this process has handed over.
pub(crate) const HANDED: &[u8] = b"PMFS_HANDED";
/// The variable that loads this library.
pub(crate) const PRELOAD: &[u8] = b"LD_PRELOAD";

/// The settings.
#[derive(Debug)]
pub(crate) struct Config {
    /// The variable's whole text, for programs that are started from here.
    pub text: Vec<u8>,
    /// The pool file.
    pub pool: Vec<u8>,
    /// The directory that stands for the pool's root: absolute, no slash at its end, no links.
    pub at: Vec<u8>,
    /// `st_dev` of the mount there, or what stands for it where there is none.
    pub device: u64,
    /// Stores to shared mappings reach the file with msync, all at once.
    pub atomic_msync: bool,
    /// The run has no mount.
    pub mountless: bool,
    /// The options of attaching, as text.
    options: Vec<u8>,
    /// The file that the pool is, whatever has its name by now.
    only: Option<pmem::Identity>,
    /// The patched image of libc: a path, or `fd:NUMBER`.
    pub image: Vec<u8>,
    /// Other libraries to be patched: names, and images likewise.
    pub others: Vec<(Vec<u8>, Vec<u8>)>,
    /// Sites are overwritten, and images not mapped.
    pub patch_in_place: bool,
    /// This library's file.
    pub library: Vec<u8>,
    /// The descriptor that the mount's keeper waits for, in a private mount.
    pub keeper: Option<u32>,
    /// The file of totals, if they are wanted.
    pub stats: Option<Vec<u8>>,
    /// The file of traced calls, if they are traced.
    pub trace: Option<Vec<u8>>,
    /// The state that the program before this one in this process has handed over.
    pub handed: Option<Vec<u8>>,
}

impl Config {
    /// Returns whether a number is a descriptor that an image is at.
    pub fn is_image(&self, number: u32) -> bool {
        let others = self.others.iter().map(|(_, image)| image);
        others
            .chain([&self.image])
            .any(|image| descriptor_of(image) == Some(number))
    }

    /// Returns whether any image is at a descriptor.
    pub fn keeps_images(&self) -> bool {
        let others = self.others.iter().map(|(_, image)| image);
        others
            .chain([&self.image])
            .any(|image| descriptor_of(image).is_some())
    }

    /// The options of attaching to the pool.
    pub fn open_options(&self) -> OpenOptions {
        let words = String::from_utf8_lossy(&self.options);
        let options = from_words(&words).unwrap_or_else(|word| {
            log::line(format_args!(
                "the option {word} is not known to this library"
            ));
            OpenOptions::default()
        });
        OpenOptions {
            only: self.only,
            ..options
        }
    }
}

static CONFIG: OnceLock<Config> = OnceLock::new();

/// The settings of a process in which [`read`] found them.
pub(crate) fn get() -> &'static Config {
    CONFIG.get().expect("set before anything is served")
}

/// Finds and keeps the configuration; `None`: this process was not started by `pmfs run`.
pub(crate) fn read(environment: Environment) -> Option<&'static Config> {
    let value = |name: &[u8]| {
        let mut entries = environment;
        entries.find_map(|entry| value_of(entry, name).map(<[u8]>::to_vec))
    };
    let text = value(VARIABLE)?;
    let field = |name: &[u8]| {
        let of = |line: &[u8]| value_of(line, name).map(<[u8]>::to_vec);
        text.split(|byte| *byte == b'\n').find_map(of)
    };
    let device = String::from_utf8(field(b"device")?).ok()?.parse().ok()?;
    let config = Config {
        pool: field(b"pool")?,
        at: field(b"at")?,
        device,
        atomic_msync: field(b"atomic-msync").is_some(),
        mountless: field(b"mountless").is_some(),
        options: field(b"options")?,
        only: field(b"only").and_then(|text| identity(std::str::from_utf8(&text).ok()?)),
        image: field(b"image")?,
        others: lines(&text, b"also"),
        patch_in_place: field(b"patch").as_deref() == Some(b"place"),
        library: field(b"library")?,
        keeper: field(b"keeper").and_then(|text| String::from_utf8(text).ok()?.parse().ok()),
        stats: field(b"stats"),
        trace: field(b"trace"),
        handed: value(HANDED),
        text,
    };
    Some(CONFIG.get_or_init(|| config))
}

/// The values of `name=FIRST SECOND`, of which there may be many.
fn lines(text: &[u8], name: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let two = |line: &[u8]| {
        let value = value_of(line, name)?;
        let blank = value.iter().position(|byte| *byte == b' ')?;
        Some((value[..blank].to_vec(), value[blank + 1..].to_vec()))
    };
    text.split(|byte| *byte == b'\n').filter_map(two).collect()
}

/// The number of an image that is a descriptor which `pmfs run` has left open.
pub(crate) fn descriptor_of(image: &[u8]) -> Option<u32> {
    let number = std::str::from_utf8(image.strip_prefix(b"fd:")?).ok()?;
    number.parse().ok()
}

/// `DEV:INO`.
fn identity(text: &str) -> Option<pmem::Identity> {
    let (dev, ino) = text.split_once(':')?;
    Some(pmem::Identity {
        dev: dev.parse().ok()?,
        ino: ino.parse().ok()?,
    })
}
