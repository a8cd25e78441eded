//! Gives pages of the mount's kernel back to processes that ask for them
//! (docs/adr/0008-pages-are-taken-back.md), and ends the mount's lease for an arriving process
//! (docs/adr/0015-leases.md). The revoker also makes the kernel forget inodes without names that
//! the kernel has kept.
//!
//! The revoker is a thread of its own: the kernel, told to drop a file's pages, writes dirty ones
//! back by requests to the workers, and waits for pages that READs are about to fill. The thread
//! therefore holds nothing that an answer to a request needs.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pmfs::{Ino, WantedPages};
use rustix::io::Errno;

use super::dropper::{Drop, Dropper};
use crate::server::Server;

/// The least time for which a mount keeps pages, so that the program that faulted them in gets to
/// use them.
const TENURE: Duration = Duration::from_micros(500);

/// Rounds after which READs of the pages are held up, because each finds that some were
/// served since the last.
const ROUNDS_FREE: u32 = 3;

/// Longest sleep; a request wakes the thread.
const SLEEP: Duration = Duration::from_secs(1);

/// Starts the thread, which ends with the server.
pub(super) fn start(server: Arc<Server>, mut dropper: Dropper) -> io::Result<()> {
    let revoker = thread::Builder::new().name("pmfs-revoker".to_owned());
    let revoker = revoker.spawn(move || {
        let mut seen = 0;
        let mut looked = Instant::now();
        while let Ok((asked, wanted)) = server.wait_for_askers(seen, SLEEP) {
            seen = asked;
            if server.tend_lease().is_err() {
                return;
            }
            for pages in wanted {
                if take_back(&server, &mut dropper, pages).is_err() {
                    return;
                }
            }
            if looked.elapsed() >= SLEEP {
                looked = Instant::now();
                drop_names(&server, &mut dropper);
            }
        }
    });
    revoker.map(drop)
}

/// Has the kernel drop a file's pages until none was served meanwhile.
fn take_back(server: &Server, dropper: &mut Dropper, mut wanted: WantedPages) -> pmfs::Result<()> {
    thread::sleep(TENURE.saturating_sub(wanted.age));
    for round in 0_u32.. {
        if round >= ROUNDS_FREE {
            server.hold_up_reads(wanted.ino, round);
        }
        drop_pages(dropper, wanted.ino);
        if server.give_pages_back(&wanted, round)? {
            return Ok(());
        }
        match server.still_wanted(wanted.ino)? {
            Some(again) => wanted = again,
            None => return Ok(()),
        }
    }
    Ok(())
}

/// Has the kernel let go of files without a name that no program has open. The kernel does so by
/// itself, except where it has kept a name that another process has taken away, or one that a
/// program below `pmfs run` has looked up by the inode's number.
fn drop_names(server: &Server, dropper: &mut Dropper) {
    for ino in server.long_held() {
        // An older kernel keeps some dentries, and reports an error for those that are gone.
        let _ = dropper.drop(Drop::Names(ino));
    }
}

/// Has the kernel drop pages. A kernel that does not know the file, or is gone, has none.
fn drop_pages(dropper: &mut Dropper, ino: Ino) {
    match dropper.drop(Drop::Pages(ino)) {
        Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN) => {}
        Err(errno) => log::error!("taking back the pages of inode {ino}: {errno}"),
    }
}
