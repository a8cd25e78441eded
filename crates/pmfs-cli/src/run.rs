//! `pmfs run`: a program whose files below a directory are in a pool, served in its own process.
//!
//! The command finds or makes the mount, has libc's patched image made if there is none, and starts the program with the library
//! preloaded. Everything else happens there (`pmfs-shim`).

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use pmem::Emulation;
use pmfs::{AtimeMode, DataMode, OpenOptions};
use pmfs_fuse::{MountOptions, mounts};
use pmfs_patch::Images;

use crate::cli::{Mount, Run};
use crate::failure::Failure;
use crate::keeper::Keeper;
use crate::mount::Request;
use crate::{Outcome, daemon, preload};

/// Tells the library what to do: a name that it knows too.
const VARIABLE: &str = "PMFS_RUN";

/// The library's file.
const LIBRARY: &str = "libpmfs_shim.so";

/// What a shell answers for a program that it can't run, and one that it can't find.
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

pub fn run(arguments: &Run) -> Outcome {
    let library = library()?;
    let image = image()?;
    let place = Place::find(arguments)?;
    let keeper = if place.is_private {
        Some(Keeper::start(&place.dir)?)
    } else {
        None
    };
    let started = start(arguments, &place, &library, &image, keeper.as_ref());
    if let Some(keeper) = keeper {
        keeper.end();
    }
    started
}

/// Where the pool is mounted.
struct Place {
    pool: PathBuf,
    dir: PathBuf,
    /// This command has mounted it.
    is_private: bool,
}

impl Place {
    fn find(arguments: &Run) -> Result<Place, Failure> {
        let all = mounts::pool_mounts()?;
        let resolve = |path: &Path| {
            fs::canonicalize(path).map_err(|error| {
                Failure::new(
                    format!("{}: {error}", path.display()),
                    "name one that is there",
                )
            })
        };
        let (Some(pool), Some(dir)) = (&arguments.pool, &arguments.at) else {
            let here = env::current_dir()?;
            let around = all.iter().rev().find(|mount| here.starts_with(&mount.dir));
            let found = around.or(if all.len() == 1 { all.first() } else { None });
            let found = found.ok_or_else(|| {
                Failure::new(
                    "which pool? none is mounted here, nor is there just one".to_owned(),
                    "name it: pmfs run --pool POOL --at DIR -- PROGRAM",
                )
            })?;
            return Ok(Place {
                pool: found.pool.clone(),
                dir: found.dir.clone(),
                is_private: false,
            });
        };
        let (pool, dir) = (resolve(pool)?, resolve(dir)?);
        if all
            .iter()
            .any(|mount| mount.dir == dir && mount.pool == pool)
        {
            return Ok(Place {
                pool,
                dir,
                is_private: false,
            });
        }
        let mount = Mount {
            pool: pool.clone(),
            dir: dir.clone(),
            options: arguments.options.clone(),
            emulate: arguments.emulate,
            foreground: false,
            log: None,
            quiet: true,
            json: false,
            fake: false,
            daemon: false,
        };
        let request = Request::new(&mount)?;
        daemon::start(&mount, &request)?;
        Ok(Place {
            pool,
            dir,
            is_private: true,
        })
    }
}

/// Starts the program and waits for it, or becomes it where nothing is to be done after it.
fn start(
    arguments: &Run,
    place: &Place,
    library: &Path,
    image: &Path,
    keeper: Option<&Keeper>,
) -> Outcome {
    let totals = arguments.stats.then(Totals::new).transpose()?;
    let options = options(arguments)?;
    let mut config = config(arguments, &options, place, library, image, totals.as_ref())?;
    if let Some(keeper) = keeper {
        config.push(format!("keeper={}\n", keeper.number()));
    }
    let Some((program, rest)) = arguments.program.split_first() else {
        return Err(Failure::new(
            "no program".to_owned(),
            "pmfs run -- PROGRAM ARGUMENTS",
        ));
    };
    let mut command = Command::new(program);
    command.args(rest);
    match preload::value(library, program) {
        Some(value) => command.env(VARIABLE, config).env(preload::VARIABLE, value),
        None => command.env_remove(VARIABLE),
    };
    if !place.is_private && totals.is_none() {
        return Ok(refused(program, &command.exec()));
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(refused(program, &error)),
    };
    let status = child.wait()?;
    if let Some(totals) = totals {
        totals.show(arguments.json, options.emulate)?;
    }
    // As a shell has it: the signal's number and 128.
    let signal = status.signal().map(|signal| 128 + signal);
    Ok(ExitCode::from(status.code().or(signal).unwrap_or(1) as u8))
}

fn refused(program: &OsStr, error: &io::Error) -> ExitCode {
    eprintln!("pmfs: {}: {error}", program.display());
    let missing = error.kind() == io::ErrorKind::NotFound;
    ExitCode::from(if missing { NOT_FOUND } else { NOT_RUNNABLE })
}

/// What the library is told: a `key=value` a line.
fn config(
    arguments: &Run,
    options: &MountOptions,
    place: &Place,
    library: &Path,
    image: &Path,
    totals: Option<&Totals>,
) -> Result<OsString, Failure> {
    let device = fs::metadata(&place.dir)?.dev().to_string();
    let mut fields: Vec<(&str, &OsStr)> = vec![
        ("pool", place.pool.as_os_str()),
        ("at", place.dir.as_os_str()),
        ("device", device.as_ref()),
        ("image", image.as_os_str()),
        ("library", library.as_os_str()),
    ];
    let options = words(options);
    fields.push(("options", options.as_ref()));
    if let Some(totals) = totals {
        fields.push(("stats", totals.file.path().as_os_str()));
    }
    let trace = arguments
        .trace
        .as_deref()
        .map(std::path::absolute)
        .transpose()?;
    if let Some(trace) = &trace {
        fields.push(("trace", trace.as_os_str()));
    }
    let mut text = Vec::new();
    for (key, value) in fields {
        if value.as_bytes().contains(&b'\n') {
            return Err(Failure::new(
                format!("a line break in {}", value.display()),
                "give it another name",
            ));
        }
        text.extend_from_slice(key.as_bytes());
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text.push(b'\n');
    }
    Ok(OsString::from_vec(text))
}

/// What was asked for.
fn options(arguments: &Run) -> Result<MountOptions, Failure> {
    let mut options = MountOptions::new(rustix::process::geteuid().is_root());
    for list in &arguments.options {
        options.parse(list)?;
    }
    options.emulate = arguments.emulate.unwrap_or(options.emulate);
    Ok(options)
}

/// How the library is to attach, as words that it knows.
fn words(options: &MountOptions) -> String {
    let OpenOptions {
        read_only,
        data,
        atime,
        nodiratime,
        map,
        ..
    } = options.open_options();
    let atime = match atime {
        AtimeMode::Relatime => "relatime",
        AtimeMode::Strictatime => "strictatime",
        AtimeMode::Noatime => "noatime",
    };
    let mut words = vec![atime.to_owned(), format!("flush={}", map.flush)];
    if !map.emulate.is_off() {
        words.push(format!("emulate={}", map.emulate.as_option()));
    }
    for (word, wanted) in [
        ("ro", read_only),
        ("ordered", data == DataMode::Ordered),
        ("nodiratime", nodiratime),
        ("durable", map.durable),
    ] {
        if wanted {
            words.push(word.to_owned());
        }
    }
    words.join(",")
}

/// The library: beside this program, or where it is installed.
fn library() -> Result<PathBuf, Failure> {
    let program = env::current_exe()?;
    let beside = program.with_file_name(LIBRARY);
    let installed = program
        .parent()
        .and_then(Path::parent)
        .map(|prefix| prefix.join("lib/pmfs").join(LIBRARY));
    let mut places = [Some(beside.clone()), installed].into_iter().flatten();
    places.find(|place| place.is_file()).ok_or_else(|| {
        Failure::new(
            format!("{} is not there", beside.display()),
            "install PMFS whole, or build it: cargo build -p pmfs-shim",
        )
    })
}

/// The patched image of the libc that programs here have: this program's own.
fn image() -> Result<PathBuf, Failure> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let named = maps.lines().find_map(|line| {
        let at = line.find('/')?;
        line.ends_with("/libc.so.6")
            .then(|| PathBuf::from(&line[at..]))
    });
    let libc = named.ok_or_else(|| {
        Failure::new(
            "this program has no libc.so.6".to_owned(),
            "use the mount: pmfs mount",
        )
    })?;
    let failed = |error: pmfs_patch::PatchError| {
        Failure::new(error.to_string(), "use the mount: pmfs mount")
    };
    Images::of_user()
        .and_then(|images| images.find_or_make(&libc))
        .map_err(failed)
}

/// The page that all processes of a run count in.
struct Totals {
    file: tempfile::NamedTempFile,
}

/// As the library has them.
const WORDS: [&str; 7] = [
    "served",
    "passed",
    "promoted",
    "read_bytes",
    "written_bytes",
    "barriers",
    "processes",
];

impl Totals {
    fn new() -> io::Result<Totals> {
        let file = tempfile::NamedTempFile::with_prefix("pmfs-run-")?;
        file.as_file().set_len(4096)?;
        Ok(Totals { file })
    }

    fn show(&self, json: bool, emulates: Emulation) -> io::Result<()> {
        let bytes = fs::read(self.file.path())?;
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .take(WORDS.len())
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        let emulates = (!emulates.is_off()).then(|| emulates.to_string());
        if json {
            let mut all: serde_json::Map<String, serde_json::Value> = WORDS
                .iter()
                .zip(&words)
                .map(|(name, value)| ((*name).to_owned(), (*value).into()))
                .collect();
            all.insert("emulates".to_owned(), emulates.into());
            eprintln!("{}", serde_json::Value::Object(all));
            return Ok(());
        }
        for (name, value) in WORDS.iter().zip(&words) {
            eprintln!("pmfs: {:<14} {value}", name.replace('_', " "));
        }
        if let Some(medium) = emulates {
            eprintln!("pmfs: {:<14} {medium}", "emulates");
        }
        Ok(())
    }
}
