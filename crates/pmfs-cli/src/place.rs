//! Where `pmfs run` has the pool: at a mount that is there, at a private one, or, where FUSE can't be had, at a name alone.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use pmfs::Fs;
use pmfs_fuse::{MountError, mounts};

use crate::cli::{Mount, Run};
use crate::failure::Failure;
use crate::mount::Request;
use crate::{daemon, run};

/// A pool and a directory.
pub struct Place {
    pub pool: PathBuf,
    pub dir: PathBuf,
    pub kind: Kind,
}

/// How they belong together.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// It was mounted before.
    Mounted,
    /// This command has mounted it.
    Private,
    /// It is not mounted; why.
    Mountless(String),
}

impl Place {
    pub fn find(arguments: &Run) -> Result<Place, Failure> {
        let all = mounts::pool_mounts()?;
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
                kind: Kind::Mounted,
            });
        };
        let pool = resolve(pool)?;
        if arguments.no_mount {
            return Place::mountless(arguments, pool, dir, "--no-mount".to_owned());
        }
        let dir = resolve(dir)?;
        if all
            .iter()
            .any(|mount| mount.dir == dir && mount.pool == pool)
        {
            let kind = Kind::Mounted;
            return Ok(Place { pool, dir, kind });
        }
        match mount(arguments, &pool, &dir) {
            Ok(()) => {
                let kind = Kind::Private;
                Ok(Place { pool, dir, kind })
            }
            Err(failure) if failure.lacks_fuse() => {
                Place::mountless(arguments, pool, &dir, failure.to_string())
            }
            Err(failure) => Err(failure),
        }
    }

    fn mountless(
        arguments: &Run,
        pool: PathBuf,
        dir: &Path,
        why: String,
    ) -> Result<Place, Failure> {
        let dir = name_for_pool(dir)?;
        let options = run::options(arguments)?;
        // What is wrong with it is told here, and not by a program that finds no files.
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
        // One that no file system has, for the kernel counts from 0, and the same for a pool as long as its file lives.
        const FIRST: u32 = 0x8_0000;
        let file = fs::metadata(&self.pool)?;
        let mixed = (file.dev().rotate_left(32) ^ file.ino()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let minor = FIRST | (mixed >> 45) as u32;
        Ok(rustix::fs::makedev(0, minor))
    }
}

fn resolve(path: &Path) -> Result<PathBuf, Failure> {
    fs::canonicalize(path).map_err(|error| {
        Failure::new(
            format!("{}: {error}", path.display()),
            "name one that is there",
        )
    })
}

/// A directory that need not be there, and else has nothing in it that the pool would hide from some programs and not from others.
fn name_for_pool(dir: &Path) -> Result<PathBuf, Failure> {
    let Ok(there) = fs::canonicalize(dir) else {
        let whole = std::path::absolute(dir)?;
        let (Some(above), Some(name)) = (whole.parent(), whole.file_name()) else {
            return Err(Failure::new(
                format!("{} can't stand for a pool", dir.display()),
                "name another directory",
            ));
        };
        return Ok(resolve(above)?.join(name));
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

fn mount(arguments: &Run, pool: &Path, dir: &Path) -> Result<(), Failure> {
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
    };
    let request = Request::new(&mount)?;
    daemon::start(&mount, &request).map(drop)
}
