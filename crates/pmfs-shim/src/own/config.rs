//! The settings from `pmfs run` for its programs: one environment variable, with a `key=value` on
//! each line.

use std::sync::OnceLock;

use pmfs::OpenOptions;
use pmfs_posix::options::from_words;

use crate::own::environment::{Environment, value_of};
use crate::own::log;

/// The variable.
pub(crate) const VARIABLE: &[u8] = b"PMFS_RUN";
/// The variable with the state that the previous program in this process has handed over.
pub(crate) const HANDED: &[u8] = b"PMFS_HANDED";
/// The variable that loads this library.
pub(crate) const PRELOAD: &[u8] = b"LD_PRELOAD";

/// The settings.
#[derive(Debug)]
pub(crate) struct Config {
    /// The variable's whole text, for programs that this one starts.
    pub text: Vec<u8>,
    /// The pool file.
    pub pool: Vec<u8>,
    /// The directory that stands for the pool's root: absolute, without a slash at its end and
    /// without links.
    pub at: Vec<u8>,
    /// `st_dev` of the mount there, or a number in its place without a mount.
    pub device: u64,
    /// Stores to shared mappings reach the file at msync, all at once.
    pub atomic_msync: bool,
    /// The run has no mount.
    pub mountless: bool,
    /// The options of attaching, as text.
    options: Vec<u8>,
    /// The identity of the pool's file, in case its name belongs to another file later.
    only: Option<pmem::Identity>,
    /// The patched image of libc: a path, or `fd:NUMBER`.
    pub image: Vec<u8>,
    /// Other libraries to be patched: names, and images in the same form.
    pub others: Vec<(Vec<u8>, Vec<u8>)>,
    /// Call sites are overwritten in place of mapping images.
    pub patch_in_place: bool,
    /// This library's file.
    pub library: Vec<u8>,
    /// The descriptor that the keeper of a private mount waits for.
    pub keeper: Option<u32>,
    /// The file of totals, if any.
    pub stats: Option<Vec<u8>>,
    /// The file of traced calls, if any.
    pub trace: Option<Vec<u8>>,
    /// The state that the previous program in this process has handed over.
    pub handed: Option<Vec<u8>>,
}

impl Config {
    /// Returns whether a number is the descriptor of an image.
    pub fn is_image(&self, number: u32) -> bool {
        let others = self.others.iter().map(|(_, image)| image);
        others
            .chain([&self.image])
            .any(|image| descriptor_of(image) == Some(number))
    }

    /// Returns whether any image is given as a descriptor.
    pub fn keeps_images(&self) -> bool {
        let others = self.others.iter().map(|(_, image)| image);
        others
            .chain([&self.image])
            .any(|image| descriptor_of(image).is_some())
    }

    /// The options for attaching to the pool.
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

/// The settings, in a process in which [`read`] found them.
pub(crate) fn get() -> &'static Config {
    CONFIG.get().expect("set before anything is served")
}

/// Finds and keeps the settings; `None` if `pmfs run` did not start this process.
pub(crate) fn read(environment: Environment) -> Option<&'static Config> {
    let value = |name: &[u8]| {
        let mut entries = environment;
        entries.find_map(|entry| value_of(entry, name).map(<[u8]>::to_vec))
    };
    let text = value(VARIABLE)?;
    let lines = Lines::of(&text);
    let config = Config {
        pool: lines.pool?.to_vec(),
        at: lines.at?.to_vec(),
        device: number(lines.device?)?,
        atomic_msync: lines.atomic_msync.is_some(),
        mountless: lines.mountless.is_some(),
        options: lines.options?.to_vec(),
        only: lines
            .only
            .and_then(|only| identity(std::str::from_utf8(only).ok()?)),
        image: lines.image?.to_vec(),
        others: lines.also,
        patch_in_place: lines.patch == Some(b"place"),
        library: lines.library?.to_vec(),
        keeper: lines.keeper.and_then(number),
        stats: lines.stats.map(<[u8]>::to_vec),
        trace: lines.trace.map(<[u8]>::to_vec),
        handed: value(HANDED),
        text,
    };
    Some(CONFIG.get_or_init(|| config))
}

/// The values of the variable's lines.
#[derive(Default)]
struct Lines<'a> {
    pool: Option<&'a [u8]>,
    at: Option<&'a [u8]>,
    device: Option<&'a [u8]>,
    atomic_msync: Option<&'a [u8]>,
    mountless: Option<&'a [u8]>,
    options: Option<&'a [u8]>,
    only: Option<&'a [u8]>,
    image: Option<&'a [u8]>,
    also: Vec<(Vec<u8>, Vec<u8>)>,
    patch: Option<&'a [u8]>,
    library: Option<&'a [u8]>,
    keeper: Option<&'a [u8]>,
    stats: Option<&'a [u8]>,
    trace: Option<&'a [u8]>,
}

impl<'a> Lines<'a> {
    /// Parses all lines in one pass, because every program's start pays for it. If a name has two
    /// lines, the first counts.
    fn of(text: &'a [u8]) -> Lines<'a> {
        let mut lines = Lines::default();
        for line in text.split(|byte| *byte == b'\n') {
            let Some((name, value)) = halves(line, b'=') else {
                continue;
            };
            let field = match name {
                b"pool" => &mut lines.pool,
                b"at" => &mut lines.at,
                b"device" => &mut lines.device,
                b"atomic-msync" => &mut lines.atomic_msync,
                b"mountless" => &mut lines.mountless,
                b"options" => &mut lines.options,
                b"only" => &mut lines.only,
                b"image" => &mut lines.image,
                b"patch" => &mut lines.patch,
                b"library" => &mut lines.library,
                b"keeper" => &mut lines.keeper,
                b"stats" => &mut lines.stats,
                b"trace" => &mut lines.trace,
                b"also" => {
                    let two = halves(value, b' ');
                    lines
                        .also
                        .extend(two.map(|(first, second)| (first.to_vec(), second.to_vec())));
                    continue;
                }
                _ => continue,
            };
            field.get_or_insert(value);
        }
        lines
    }
}

/// The parts before and after the first `byte`.
fn halves(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|other| *other == byte)?;
    Some((&text[..at], &text[at + 1..]))
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The number of an image that is a descriptor left open by `pmfs run`.
pub(crate) fn descriptor_of(image: &[u8]) -> Option<u32> {
    number(image.strip_prefix(b"fd:")?)
}

/// Parses `DEV:INO`.
fn identity(text: &str) -> Option<pmem::Identity> {
    let (dev, ino) = text.split_once(':')?;
    Some(pmem::Identity {
        dev: dev.parse().ok()?,
        ino: ino.parse().ok()?,
    })
}
