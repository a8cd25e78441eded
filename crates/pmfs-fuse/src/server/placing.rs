//! The place of a WRITE.
//!
//! The kernel turns an append into an offset, by the size that it was told last, and tells only
//! that the file was opened with O_APPEND. `pwritev2(2)` can ask for the opposite (RWF_APPEND,
//! RWF_NOAPPEND), which a FUSE request does not carry. The lack does no harm while only this
//! mount's kernel has changed the file's size: the offset in the request is the end. Otherwise the
//! caller's system call is read while the caller waits in it ([`Caller::appends`]).

use pmfs::{Error, Ino, Result};

use super::Server;
use crate::caller::Caller;

/// The kind of a write, from the request's flags.
#[derive(Clone, Copy, Debug)]
pub struct WriteKind {
    /// The file was opened with O_APPEND.
    pub append: bool,
    /// The caller that writes.
    pub writer: Caller,
    /// The writer has no right to keep set-id bits.
    pub kill_set_id: bool,
}

impl WriteKind {
    /// A write to the place that it names.
    #[cfg(test)]
    pub fn by(writer: Caller) -> WriteKind {
        WriteKind {
            append: false,
            writer,
            kill_set_id: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// To the offset that the kernel sent.
    There,
    /// To the end, which is elsewhere.
    End,
}

impl Server {
    /// Writes where the caller means.
    ///
    /// # Errors
    /// Those of the engine's calls; [`Error::Stale`] where an append to a place that is not the end
    /// any more can't be told from a write to there.
    pub(super) fn write_placed(
        &self,
        ino: Ino,
        handle: u64,
        offset: u64,
        data: &[u8],
        kind: &WriteKind,
    ) -> Result<usize> {
        loop {
            let size = self.fs.getattr(ino)?.size;
            if offset == size {
                // The two possible meanings are the same, if the end is still there.
                if let Some(written) = self.write_at_end(ino, handle, offset, data)? {
                    return Ok(written);
                }
                continue;
            }
            return match self.place(ino, offset, size, kind)? {
                Place::There => self.write_there(ino, handle, offset, data),
                Place::End => self.write_elsewhere(ino, handle, data),
            };
        }
    }

    /// The meaning of an offset that is not the end of the file, which has this size.
    fn place(&self, ino: Ino, offset: u64, size: u64, kind: &WriteKind) -> Result<Place> {
        let end = self.known.end_of(ino, size);
        if end.is_certain {
            // An append would have come with the true end.
            return Ok(Place::There);
        }
        let place = |appends| if appends { Place::End } else { Place::There };
        match kind.writer.appends(kind.append) {
            Some(appends) => Ok(place(appends)),
            None if !kind.append && offset == end.told => Err(Error::Stale),
            None => Ok(place(kind.append)),
        }
    }

    fn write_at_end(&self, ino: Ino, handle: u64, end: u64, data: &[u8]) -> Result<Option<usize>> {
        if self.is_past_pages(handle) {
            return self.past_pages(ino, || self.fs.write_at_end(ino, end, data));
        }
        self.note_cached_write(ino)?;
        self.fs.write_at_end(ino, end, data)
    }

    fn write_there(&self, ino: Ino, handle: u64, offset: u64, data: &[u8]) -> Result<usize> {
        if self.is_past_pages(handle) {
            return self.past_pages(ino, || self.fs.write(ino, offset, data));
        }
        self.note_cached_write(ino)?;
        self.fs.write(ino, offset, data)
    }

    /// Appends where the kernel does not expect it: it has dropped no pages there.
    fn write_elsewhere(&self, ino: Ino, handle: u64, data: &[u8]) -> Result<usize> {
        if self.is_cached && !self.is_past_pages(handle) {
            // The kernel has put the data into its pages, which are locked until the answer.
            self.note_cached_write(ino)?;
            let (_, written) = self.fs.append(ino, data)?;
            self.fs.want_own_pages(ino)?;
            return Ok(written);
        }
        self.past_pages(ino, || Ok(self.fs.append(ino, data)?.1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{made, server};
    use super::*;

    /// By a caller that can't be looked at.
    fn kind(append: bool) -> WriteKind {
        WriteKind {
            append,
            ..WriteKind::by(Caller {
                uid: 0,
                gid: 0,
                pid: 0,
            })
        }
    }

    fn content(server: &Server, node: u64) -> Vec<u8> {
        let mut content = vec![0; 64];
        let len = server.read(node, (0, true), 0, &mut content).unwrap();
        content.truncate(len);
        content
    }

    /// An offset that is not the end is meant while the kernel knows the end, also of a file opened
    /// with O_APPEND.
    #[test]
    fn a_kernel_that_knows_the_end_means_what_it_says() {
        let dir = crate::temporary::dir();
        let server = server(&dir);
        let node = made(&server, b"a");
        let write = |at, data: &[u8], append| {
            let written = server.write(node, 0, at, data, &kind(append));
            assert_eq!(written.unwrap(), data.len());
        };
        write(0, b"first", false);
        write(5, b"second", true);
        write(0, b"F", true);
        write(1, b"I", false);
        assert_eq!(content(&server, node), b"FIrstsecond");
    }

    /// Goal: an append writes over no other process's bytes. Method: another process makes the file
    /// longer, and then the kernel sends the old end.
    #[test]
    fn what_may_be_an_append_goes_to_the_true_end_or_nowhere() {
        let dir = crate::temporary::dir();
        let server = server(&dir);
        let node = made(&server, b"a");
        server.write(node, 0, 0, b"ours", &kind(false)).unwrap();
        server.fs.append(node, b"theirs").unwrap();
        let refused = server.write(node, 0, 4, b"more", &kind(false));
        assert!(matches!(refused, Err(Error::Stale)), "{refused:?}");
        server.write(node, 0, 4, b"more", &kind(true)).unwrap();
        assert_eq!(content(&server, node), b"ourstheirsmore");
        // No append goes to a place that never was the end.
        server.write(node, 0, 1, b"U", &kind(false)).unwrap();
        // Once it knows the end again it may say so.
        let size = server.getattr(node).unwrap().size;
        server.write(node, 0, size, b"!", &kind(false)).unwrap();
        assert_eq!(content(&server, node), b"oUrstheirsmore!");
    }
}
