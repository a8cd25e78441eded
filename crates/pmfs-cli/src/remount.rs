//! `pmfs mount -o remount,...`: other flags for a mount that is there, as mount(8) asks for it.

use std::fs;
use std::io;
use std::process::ExitCode;

use pmem::ProtectMode;
use pmfs::AtimeMode;
use pmfs_fuse::{MountError, mounts, remount};
use pmfs_posix::mount_options::MountOptions;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};

use crate::cli::Mount;
use crate::failure::Failure;
use crate::{Outcome, trust};

pub fn run(arguments: &Mount) -> Outcome {
    let dir = fs::canonicalize(&arguments.dir).unwrap_or_else(|_| arguments.dir.clone());
    let mount = mounts::pool_mount_at(&dir)?.ok_or_else(|| MountError::NotMounted {
        path: arguments.dir.clone(),
    })?;
    // Options that are not given stay as they are.
    let mut options = MountOptions::new(true);
    (options.suid, options.dev) = (true, true);
    options.parse(&mount.options).map_err(MountError::from)?;
    let had = (options.suid, options.dev);
    for list in &arguments.options {
        options.parse(list).map_err(MountError::from)?;
    }
    if options.suid && !had.0 || options.dev && !had.1 {
        trust::is_roots(&mount.pool)?;
    }
    if arguments.emulate.is_some() || !options.emulate.is_off() {
        return Err(Failure::new(
            "a mount that is there stays as slow as it is".to_owned(),
            "unmount it, and mount it anew with --emulate",
        ));
    }
    if arguments.protect.is_some() || options.protect != ProtectMode::default() {
        return Err(Failure::new(
            "a mount that is there keeps the protection that it has".to_owned(),
            "unmount it, and mount it anew with --protect",
        ));
    }
    mount_remount(&dir, flags(&options), c"").map_err(|errno| {
        let way_out = match errno {
            Errno::BUSY => "close the files that are open for writing, and unlinked ones",
            _ => "do it as root",
        };
        Failure::new(format!("remounting {}: {errno}", dir.display()), way_out)
    })?;
    // The kernel has its flags; the daemon is to know as well.
    let told = fs::File::open(&dir).and_then(|root| remount::tell(&root, &options));
    told.map_err(|error| {
        let why = format!("{}: the daemon stays as it was: {error}", dir.display());
        let way_out = match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => "the pool is damaged: pmfs fsck",
            _ => "unmount, and mount anew",
        };
        Failure::new(why, way_out)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn flags(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::NODIRATIME, options.nodiratime);
    match options.atime {
        AtimeMode::Noatime => flags |= MountFlags::NOATIME,
        AtimeMode::Relatime => flags |= MountFlags::RELATIME,
        AtimeMode::Strictatime => flags |= MountFlags::STRICTATIME,
    }
    flags
}
