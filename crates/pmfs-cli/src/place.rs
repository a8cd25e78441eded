//! The place where `pmfs run` shows the pool: an existing mount, a private one, or, where FUSE is
//! missing, a name alone.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use pmfs::Fs;
use pmfs_fuse::mounts::PoolMount;
use pmfs_fuse::{MountError, mounts, unmount};
use rustix::fs::{FlockOperation, flock};

use crate::cli::{Mount, Run};
use crate::failure::Failure;
use crate::keeper::{Found, Keeper};
use crate::mount::Request;
use crate::temp::Temp;
use crate::{daemon, run, umount};

/// A pool and a directory.
pub struct Place {
    pub pool: PathBuf,
    pub dir: PathBuf,
    pub kind: Kind,
}

/// The relation of the place to a mount.
#[derive(Debug)]
pub enum Kind {
    /// The pool was mounted before.
    Mounted,
    /// The pool is mounted for as long as a run uses it.
    Private(Box<Keeper>),
    /// The pool is not mounted, for this reason.
    Mountless(String),
}

impl Place {
    /// `temp`: of what was made for this run.
    pub fn find(arguments: &Run, mut temp: Option<&mut Temp>) -> Result<Place, Failure> {
        let (pool, dir) = match (&temp, &arguments.pool, &arguments.at) {
            (Some(temp), ..) => (&temp.pool.clone(), &temp.dir.clone()),
            (None, Some(pool), Some(dir)) => (pool, dir),
            _ => return Place::around(),
        };
        let pool = resolve(pool, "make it first: pmfs mkfs --size 1G")?;
        if arguments.no_mount {
            return Place::mountless(arguments, pool, dir, "--no-mount".to_owned());
        }
        let dir = resolve_mount_point(dir)?;
        loop {
            if let Some(place) = Place::mounted(&pool, &dir)? {
                return Ok(place);
            }
            // If several begin at once, one makes the mount, and the others use it.
            let below = File::open(&dir);
            let locked = below.and_then(|below| {
                let exclusive = FlockOperation::LockExclusive;
                flock(&below, exclusive)
                    .map(|()| below)
                    .map_err(io::Error::from)
            });
            if mounts::pool_mount_at(&dir)?.is_some() {
                continue;
            }
            let goes = temp.as_ref().map_or(&[][..], |temp| temp.goes());
            match mount(arguments, &pool, &dir, goes) {
                Ok(()) => {
                    if let Some(temp) = &mut temp {
                        temp.hand_over();
                    }
                }
                Err(failure) if failure.lacks_fuse() => {
                    return Place::mountless(arguments, pool, &dir, failure.to_string());
                }
                Err(failure) => return Err(failure),
            }
            drop(locked);
        }
    }

    /// The mount that this directory is in, or the only one.
    fn around() -> Result<Place, Failure> {
        let here = env::current_dir()?;
        loop {
            let all = mounts::pool_mounts()?;
            let around = all.iter().rev().find(|mount| here.starts_with(&mount.dir));
            let found = around.or(if all.len() == 1 { all.first() } else { None });
            let found = found.ok_or_else(|| {
                Failure::new(
                    "which pool? none is mounted here, nor is there just one".to_owned(),
                    "name it (pmfs run --pool POOL --at DIR -- PROGRAM), or have one for the time: pmfs run --temp 1G -- PROGRAM",
                )
            })?;
            if let Some(kind) = kind_of(found)? {
                return Ok(Place {
                    pool: found.pool_now(),
                    dir: found.dir.clone(),
                    kind,
                });
            }
        }
    }

    /// The pool's mount on the directory, if it is there.
    fn mounted(pool: &Path, dir: &Path) -> Result<Option<Place>, Failure> {
        let Some(there) = mounts::pool_mount_at(dir)? else {
            return Ok(None);
        };
        if !there.serves(pool) {
            return Err(MountError::AlreadyMounted {
                pool: there.pool_now(),
                dir: dir.to_owned(),
            }
            .into());
        }
        Ok(kind_of(&there)?.map(|kind| Place {
            pool: pool.to_owned(),
            dir: dir.to_owned(),
            kind,
        }))
    }

    fn mountless(
        arguments: &Run,
        pool: PathBuf,
        dir: &Path,
        why: String,
    ) -> Result<Place, Failure> {
        let dir = name_for_pool(dir)?;
        let options = run::options(arguments)?;
        // A fault of the pool is reported here, and not by a program that finds no files.
        let failed = |error| Failure::engine(&pool, &error);
        let fs = Fs::open(&pool, &options.open_options()).map_err(failed)?;
        fs.detach().map_err(failed)?;
        let kind = Kind::Mountless(why);
        Ok(Place { pool, dir, kind })
    }

    /// `st_dev` of files there.
    pub fn device(&self) -> io::Result<u64> {
        if !matches!(self.kind, Kind::Mountless(_)) {
            return Ok(fs::metadata(&self.dir)?.dev());
        }
        // A device number that no file system has, for the kernel counts from 0, and the same for a
        // pool as long as its file lives.
        const FIRST: u32 = 0x8_0000;
        let file = fs::metadata(&self.pool)?;
        let mixed = (file.dev().rotate_left(32) ^ file.ino()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let minor = FIRST | (mixed >> 45) as u32;
        Ok(rustix::fs::makedev(0, minor))
    }
}

/// `None`: it was a private one that is gone by now.
fn kind_of(mount: &PoolMount) -> Result<Option<Kind>, Failure> {
    Ok(match Keeper::join(mount)? {
        Found::Kept(keeper) => Some(Kind::Private(keeper)),
        Found::Stays => Some(Kind::Mounted),
        Found::Gone => None,
    })
}

/// A mount whose daemon was killed is not served any more.
fn resolve_mount_point(dir: &Path) -> Result<PathBuf, Failure> {
    if umount::is_gone(dir) {
        let dead = umount::mount_point(dir);
        if mounts::pool_mount_at(&dead)?.is_some() {
            unmount::unmount(&dead, true)?;
        }
    }
    resolve(dir, MAKE_DIR)
}

/// `make`: how to get one, but for its name.
fn resolve(path: &Path, make: &str) -> Result<PathBuf, Failure> {
    fs::canonicalize(path).map_err(|error| {
        let way_out = match error.kind() {
            io::ErrorKind::NotFound => format!("{make} {}", path.display()),
            _ => "check the permissions of the directories above it".to_owned(),
        };
        Failure::new(format!("{}: {error}", path.display()), way_out)
    })
}

const MAKE_DIR: &str = "create it first: mkdir -p";

/// A directory that need not be there, and else has nothing in it that the pool would
/// hide from some programs and not from others.
fn name_for_pool(dir: &Path) -> Result<PathBuf, Failure> {
    let Ok(there) = fs::canonicalize(dir) else {
        let whole = std::path::absolute(dir)?;
        let (Some(above), Some(name)) = (whole.parent(), whole.file_name()) else {
            return Err(Failure::new(
                format!("{} can't stand for a pool", dir.display()),
                "name another directory",
            ));
        };
        return Ok(resolve(above, MAKE_DIR)?.join(name));
    };
    let entries = fs::read_dir(&there).map(|mut entries| entries.next().is_none());
    match entries {
        Ok(true) => Ok(there),
        Ok(false) => Err(Failure::new(
            format!("{} is not empty, and can't be mounted on", dir.display()),
            "name an empty directory, or one that is not there",
        )),
        Err(error) => Err(Failure::new(
            format!("{}: {error}", dir.display()),
            "name a directory",
        )),
    }
}

fn mount(arguments: &Run, pool: &Path, dir: &Path, goes: &[PathBuf]) -> Result<(), Failure> {
    /// Major and minor number.
    const FUSE: (u32, u32) = (10, 229);
    let device = fs::metadata("/dev/fuse").is_ok_and(|file| {
        let number = (
            rustix::fs::major(file.rdev()),
            rustix::fs::minor(file.rdev()),
        );
        file.file_type().is_char_device() && number == FUSE
    });
    if !device {
        return Err(MountError::NoDevice.into());
    }
    let mount = Mount {
        pool: pool.to_owned(),
        dir: dir.to_owned(),
        options: arguments.options.clone(),
        emulate: arguments.emulate,
        protect: arguments.protect,
        foreground: false,
        log: None,
        quiet: true,
        json: false,
        fake: false,
        daemon: false,
        while_used: true,
        by_mount8: false,
        and_remove: goes.to_vec(),
    };
    let request = Request::new(&mount)?;
    daemon::start(&mount, &request).map(drop)
}
