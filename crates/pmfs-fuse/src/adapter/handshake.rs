//! The first request, INIT, which `fuser` answers: what is asked of the kernel, and what it offers.

use std::io;
use std::sync::{Arc, OnceLock};

use fuser::{Filesystem, InitFlags, KernelConfig, Request};
use rustix::io::Errno;

use crate::wire::reply::PAST_PAGES;
use pmfs_posix::mount_options::Paged;

/// Bytes a request may carry; a larger write is cut by the kernel, in order.
pub(super) const WRITE_MAX: u32 = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The flags that each file is opened with, `FOPEN_*`.
    pub(super) open_flags: u32,
    /// The kernel enforces ACLs.
    pub(super) acls: bool,
}

/// The part of the mount that `fuser` sees: it makes the terms, and gets no other request.
pub(super) struct Handshake {
    pub(super) terms: Arc<OnceLock<Terms>>,
    pub(super) paged: Paged,
}

impl Filesystem for Handshake {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(WRITE_MAX);
        // Without it SETXATTR has another form, and does not say what becomes of
        // set-gid (Linux 5.12).
        if config
            .add_capabilities(InitFlags::FUSE_SETXATTR_EXT)
            .is_err()
        {
            return Err(io::Error::from(Errno::PROTO));
        }
        // AUTO_INVAL_DATA: pages of mappings are dropped once size or mtime say they are old.
        for wish in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_HAS_IOCTL_DIR,
            // Handles of files outlive what the kernel remembers: it looks numbers up
            // by the name ".".
            InitFlags::FUSE_EXPORT_SUPPORT,
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
        ] {
            if config.add_capabilities(wish).is_err() {
                log::info!("the kernel does not offer {wish:?}");
            }
        }
        // The umask comes along, because a default ACL takes its place.
        let acls = config
            .add_capabilities(InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK)
            .is_ok();
        if !acls {
            log::info!("the kernel does not offer ACLs");
        }
        let can_map = self.paged != Paged::Always
            && config
                .add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
                .is_ok();
        let is_past_pages = can_map || self.paged == Paged::Never;
        if self.paged == Paged::Auto && !is_past_pages {
            log::info!("before Linux 6.6 files can't be mapped under direct I/O: cached instead");
        }
        let open_flags = if is_past_pages { PAST_PAGES } else { 0 };
        let _ = self.terms.set(Terms { open_flags, acls });
        Ok(())
    }
}
