//! `/dev/fuse`: where messages come from and answers go to.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use pmfs::INODE_NAME;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::reply::{
    InvalEntryOut, InvalInodeOut, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, NOTIFY_PRUNE, OutHeader,
    PruneOut,
};

const PATH: &str = "/dev/fuse";

/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`.
const CLONE: u32 = 0x8004_e500;

/// The number by which the kernel names the root.
pub(crate) const ROOT_NODE: u64 = 1;

/// In the number of an INTERRUPT, and of the answer to one.
const INTERRUPT_BIT: u64 = 1;

/// A descriptor of a mount's connection. A message read from it has to be answered through it.
#[derive(Debug)]
pub(crate) struct Device(File);

impl Device {
    /// Another descriptor for the connection that `of` belongs to, with a list of its own: workers
    /// that read from different ones don't meet. If the device can't be opened (fusermount3 may
    /// open it where this process may not), the descriptor is a duplicate with the same list.
    pub(crate) fn of(of: BorrowedFd<'_>) -> io::Result<Device> {
        let mut options = OpenOptions::new();
        let cloned = options.read(true).write(true).open(PATH).and_then(|file| {
            let source = std::os::fd::AsRawFd::as_raw_fd(&of) as u32;
            pmem::request::request_with_word(file.as_fd(), CLONE, source)?;
            Ok(file)
        });
        match cloned {
            Ok(file) => Ok(Device(file)),
            Err(error) => {
                log::info!("cloning {PATH}: {error}; the workers share it");
                Ok(Device(File::from(of.try_clone_to_owned()?)))
            }
        }
    }

    /// The device of an open file.
    pub(crate) fn from_file(file: File) -> Device {
        Device(file)
    }

    /// Returns the descriptor as a file.
    pub(crate) fn into_file(self) -> File {
        self.0
    }

    /// For another descriptor of the connection.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The next message; its length. `None`: the mount is gone.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(len) => return Ok(Some(len)),
                // ENOENT: the caller was killed before the message was taken.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Answers a request. An answer for which no caller waits any more is no error.
    pub(crate) fn answer(&self, unique: u64, outcome: Result<&[u8], Errno>) {
        let (payload, error) = match outcome {
            Ok(payload) => (payload, 0),
            Err(errno) => (&[][..], -errno.raw_os_error()),
        };
        let header = OutHeader {
            len: (size_of::<OutHeader>() + payload.len()) as u32,
            error,
            unique,
        };
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(payload)];
        match rustix::io::writev(&self.0, &parts) {
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(errno) => {
                log::error!("answering request {unique}: {errno}");
                if !payload.is_empty() {
                    // The kernel took nothing of the answer, and the caller waits.
                    self.answer(unique, Err(Errno::IO));
                }
            }
        }
    }

    /// Has the kernel drop all pages that it holds of an inode. Returns when no program
    /// has them mapped any more, and dirty ones are written back, by requests.
    ///
    /// # Errors
    /// ENOENT: the kernel does not know the inode. Others: the mount is gone.
    pub(crate) fn drop_pages(&self, node: u64) -> Result<(), Errno> {
        let whole = InvalInodeOut {
            ino: node,
            off: 0,
            len: 0,
        };
        self.notify(NOTIFY_INVAL_INODE, &[whole.as_bytes()])
    }

    /// Has the kernel let go of names by which it still finds an inode that has none, unless
    /// a program is there: the name that means the inode by its number, and, from Linux 6.18
    /// on, all. Returns when nothing waits for these names' directories any more.
    ///
    /// # Errors
    /// EINVAL: the kernel can do the first alone.
    pub(crate) fn drop_names(&self, node: u64) -> Result<(), Errno> {
        let name = [INODE_NAME, node.to_string().as_bytes(), b"\0"].concat();
        let entry = InvalEntryOut {
            parent: ROOT_NODE,
            namelen: name.len() as u32 - 1,
            flags: 0,
        };
        // Most have no such name.
        let _ = self.notify(NOTIFY_INVAL_ENTRY, &[entry.as_bytes(), &name]);
        let one = PruneOut {
            count: 1,
            padding: 0,
            spare: 0,
        };
        self.notify(NOTIFY_PRUNE, &[one.as_bytes(), node.as_bytes()])
    }

    /// Tells the kernel something that it did not ask for.
    fn notify(&self, what: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let header = OutHeader {
            len: (size_of::<OutHeader>() + len) as u32,
            error: what,
            unique: 0,
        };
        let head = IoSlice::new(header.as_bytes());
        let rest = parts.iter().map(|part| IoSlice::new(part));
        let all: Vec<IoSlice<'_>> = std::iter::once(head).chain(rest).collect();
        rustix::io::writev(&self.0, &all).map(drop)
    }

    /// Asks the kernel to say again that the request `unique` is interrupted. Nothing
    /// happens if that request was not read through this descriptor, or is answered.
    pub(crate) fn interrupt_again(&self, unique: u64) {
        let header = OutHeader {
            len: size_of::<OutHeader>() as u32,
            error: -Errno::AGAIN.raw_os_error(),
            unique: unique | INTERRUPT_BIT,
        };
        let _ = rustix::io::write(&self.0, header.as_bytes());
    }
}
