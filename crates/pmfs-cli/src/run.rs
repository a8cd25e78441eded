//! `pmfs run`: a program whose files below a directory are in a pool, served in its own process.
//!
//! The command finds or makes the mount (`place`), has libc's patched image made if there is none,
//! and starts the program with the library preloaded. Everything else happens there (`pmfs-shim`).

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions as FileOptions;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pmfs_fuse::{MountError, served};
use pmfs_posix::mount_options::MountOptions;
use pmfs_posix::options::to_words;

use crate::cli::Run;
use crate::failure::Failure;
use crate::images::Patched;
use crate::place::{Kind, Place};
use crate::program::{self, Ended, Program};
use crate::temp::Temp;
use crate::totals::Totals;
use crate::{Outcome, preload};

/// Tells the library what to do: a name that it knows too.
const VARIABLE: &str = "PMFS_RUN";

/// Names the file that the library logs to.
const LOG: &str = "PMFS_LOG";

/// `place`: libraries are patched where they are, and images not mapped. For tests, and
/// where mapping one is a problem.
const PATCH_MODE: &str = "PMFS_PATCH_MODE";

/// The library's file.
const LIBRARY: &str = "libpmfs_shim.so";

/// A shell's exit codes for a program that it can't run, and one that it can't find.
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

pub fn run(arguments: &Run) -> Outcome {
    // Wrong options are reported before anything is made.
    options(arguments)?;
    let library = library()?;
    let mut temp = Temp::make(arguments)?;
    let place = Place::find(arguments, temp.as_mut())?;
    let mountless = matches!(place.kind, Kind::Mountless(_));
    if let Kind::Mountless(why) = &place.kind {
        tell_log(&format!("without a mount: {why}"));
    }
    let patched = Patched::make(mountless)?;
    for why in &patched.failed {
        tell_log(&format!("not patched: {why}"));
    }
    let started = start(arguments, &place, &library, &patched, temp.as_ref());
    if let Kind::Private(keeper) = place.kind {
        keeper.end();
    }
    started.map(|ended| ended.as_code())
}

/// Starts the program and waits for it, or becomes it where nothing is to be done after it.
fn start(
    arguments: &Run,
    place: &Place,
    library: &Path,
    patched: &Patched,
    temp: Option<&Temp>,
) -> Result<Ended, Failure> {
    let totals = arguments.stats.then(Totals::new).transpose()?;
    let mut config = config(arguments, place, library, patched, totals.as_ref())?;
    if let Kind::Private(keeper) = &place.kind {
        config.push(format!("keeper={}\n", keeper.number()?));
    }
    let Some((name, rest)) = arguments.program.split_first() else {
        return Err(Failure::new(
            "no program".to_owned(),
            "pmfs run -- PROGRAM ARGUMENTS",
        ));
    };
    // The kernel does not see a program in the pool; the preloaded library does.
    let is_hidden = matches!(place.kind, Kind::Mountless(_))
        && !preload::is_found(name)
        && preload::may_be_below(&place.dir, name);
    let mut program = match is_hidden {
        true => Program::by_shell(name, rest),
        false => Program::new(name, rest),
    };
    if let Some(why) = preload::stranger(program.name()) {
        let instead = if matches!(place.kind, Kind::Mountless(_)) {
            "nothing serves it"
        } else {
            "the mount serves it"
        };
        tell_log(&format!("{} {why}; {instead}", program.name().display()));
    }
    match preload::value(library, program.name()) {
        Some(value) => {
            program.set(VARIABLE, config);
            program.set(preload::VARIABLE, value);
        }
        None => program.unset(VARIABLE),
    }
    if let Some(temp) = temp.filter(|temp| temp.is_told) {
        program.set("TMPDIR", temp.dir.as_os_str().to_owned());
    }
    if !matches!(place.kind, Kind::Private(_)) && totals.is_none() && temp.is_none() {
        return Ok(refused(program.name(), &program.exec()));
    }
    let ended = match program.start() {
        Ok(pid) => program::wait(pid)?,
        Err(error) => return Ok(refused(program.name(), &error)),
    };
    if let Some(totals) = totals {
        let why = match &place.kind {
            Kind::Mountless(why) => Some(why.as_str()),
            _ => None,
        };
        totals.show(arguments.json, why, options(arguments)?.emulate)?;
    }
    Ok(ended)
}

/// A line where the library has its own: what the run lacks is no word for the program's outputs.
fn tell_log(text: &str) {
    let Some(path) = env::var_os(LOG).filter(|path| !path.is_empty()) else {
        return;
    };
    let mut options = FileOptions::new();
    let opened = options.create(true).append(true).mode(0o600).open(path);
    // Nor is it one that it can't be told.
    if let Ok(mut file) = opened {
        let _ = writeln!(file, "{} {text}", std::process::id());
    }
}

fn refused(program: &OsStr, error: &io::Error) -> Ended {
    eprintln!("pmfs: {}: {error}", program.display());
    let missing = error.kind() == io::ErrorKind::NotFound;
    Ended::Code(if missing { NOT_FOUND } else { NOT_RUNNABLE })
}

/// The settings for the library: a `key=value` a line.
fn config(
    arguments: &Run,
    place: &Place,
    library: &Path,
    patched: &Patched,
    totals: Option<&Totals>,
) -> Result<OsString, Failure> {
    let device = place.device()?.to_string();
    let mut fields: Vec<(&str, &OsStr)> = vec![
        ("pool", place.pool.as_os_str()),
        ("at", place.dir.as_os_str()),
        ("device", device.as_ref()),
        ("image", &patched.libc),
        ("library", library.as_os_str()),
    ];
    let others: Vec<OsString> = patched
        .others
        .iter()
        .map(|(name, image)| [name, OsStr::new(" "), image].into_iter().collect())
        .collect();
    fields.extend(others.iter().map(|other| ("also", other.as_os_str())));
    let mode = env::var_os(PATCH_MODE);
    if let Some(mode) = &mode {
        fields.push(("patch", mode));
    }
    let only = served::identity_of(&place.pool).map(|file| format!("{}:{}", file.dev, file.ino));
    if let Some(only) = &only {
        fields.push(("only", only.as_ref()));
    }
    let options = to_words(&options(arguments)?.open_options());
    fields.push(("options", options.as_ref()));
    if let Some(totals) = totals {
        fields.push(("stats", totals.path().as_os_str()));
    }
    if arguments.atomic_msync {
        fields.push(("atomic-msync", OsStr::new("1")));
    }
    if matches!(place.kind, Kind::Mountless(_)) {
        fields.push(("mountless", OsStr::new("1")));
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

/// The given options, as those of a mount.
pub fn options(arguments: &Run) -> Result<MountOptions, Failure> {
    let mut options = MountOptions::new(rustix::process::geteuid().is_root());
    for list in &arguments.options {
        options.parse_for_run(list).map_err(MountError::from)?;
    }
    options.emulate = arguments.emulate.unwrap_or(options.emulate);
    options.protect = arguments.protect.unwrap_or(options.protect);
    Ok(options)
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
