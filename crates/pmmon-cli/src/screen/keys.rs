//! Keys, as a terminal in raw mode sends them. Crossterm has a reader too, which turns for ever
//! when its terminal is closed, and needs more to be built than all the rest of the screen.

use std::io::{self, stdin};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{read, retry_on_intr};

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    /// Ctrl-C.
    Interrupt,
}

/// Bytes that begin a key whose end has not come yet.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pending: Vec<u8>,
}

impl Keys {
    /// The keys since the last call. `None`: the terminal is gone.
    pub fn read(&mut self) -> io::Result<Option<Vec<Key>>> {
        let stdin = stdin();
        let mut looks = [PollFd::new(&stdin, PollFlags::IN)];
        // A new size of the terminal comes as a signal.
        retry_on_intr(|| poll(&mut looks, Some(&Timespec::default())))?;
        let found = looks[0].revents();
        let mut bytes = [0; 256];
        let count = if found.contains(PollFlags::IN) {
            match retry_on_intr(|| read(&stdin, &mut bytes[..]))? {
                0 => return Ok(None),
                count => count,
            }
        } else if found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Ok(None);
        } else {
            0
        };
        Ok(Some(self.take(&bytes[..count])))
    }

    /// The keys that bytes complete. None at all says that no more belong to those before.
    fn take(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        if bytes.is_empty() {
            if self.pending == [ESCAPE] {
                keys.push(Key::Escape);
            }
            self.pending.clear();
            return keys;
        }
        self.pending.extend(bytes);
        let mut left = self.pending.as_slice();
        while !left.is_empty() {
            let Some((key, count)) = first(left) else {
                break;
            };
            keys.extend(key);
            left = &left[count..];
        }
        self.pending = left.to_vec();
        keys
    }
}

const ESCAPE: u8 = 0x1b;

/// The first key and its bytes; no key is one that this program does not know. `None`: its end has
/// not come.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let one = |key| Some((Some(key), 1));
    match bytes {
        [ESCAPE, b'[' | b'O', rest @ ..] => {
            // Parameters, and a letter or a tilde that ends it.
            let count = rest.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
            Some((sequence(&rest[..count], rest[count]), count + 3))
        }
        [ESCAPE] => None,
        [ESCAPE, ..] => one(Key::Escape),
        [0x03, ..] => one(Key::Interrupt),
        [b'\r' | b'\n', ..] => one(Key::Enter),
        [byte @ 0x20..=0x7e, ..] => one(Key::Char(char::from(*byte))),
        _ => Some((None, 1)),
    }
}

fn sequence(parameters: &[u8], end: u8) -> Option<Key> {
    match (parameters, end) {
        (_, b'A') => Some(Key::Up),
        (_, b'B') => Some(Key::Down),
        (_, b'C') => Some(Key::Right),
        (_, b'D') => Some(Key::Left),
        (_, b'H') | (b"1" | b"7", b'~') => Some(Key::Home),
        (_, b'F') | (b"4" | b"8", b'~') => Some(Key::End),
        (b"5", b'~') => Some(Key::PageUp),
        (b"6", b'~') => Some(Key::PageDown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each key is known, whole or in parts, and no byte is lost or ends the program.
    #[test]
    fn bytes_are_keys() {
        let bytes =
            b"q\x1b[A\x1bOB\x1b[1;5C\x1b[D\x1b[5~\x1b[6~\x1b[1~\x1bOF\r\x03\x1b[15~\xc3\xa4?";
        let expected = [
            Key::Char('q'),
            Key::Up,
            Key::Down,
            Key::Right,
            Key::Left,
            Key::PageUp,
            Key::PageDown,
            Key::Home,
            Key::End,
            Key::Enter,
            Key::Interrupt,
            Key::Char('?'),
        ];
        assert_eq!(Keys::default().take(bytes), expected);
        let mut keys = Keys::default();
        let parts: Vec<Key> = bytes.iter().flat_map(|byte| keys.take(&[*byte])).collect();
        assert_eq!(parts, expected);
        assert!(keys.take(b"\x1b").is_empty(), "it may begin an arrow");
        assert_eq!(keys.take(b""), [Key::Escape]);
        assert_eq!(keys.take(b"\x1bq"), [Key::Escape, Key::Char('q')]);
        keys.take(b"\x1b[5");
        assert!(keys.take(b"").is_empty());
        assert_eq!(keys.take(b"q"), [Key::Char('q')]);
        for one in 0..=u8::MAX {
            for other in 0..=u8::MAX {
                let mut keys = Keys::default();
                keys.take(&[ESCAPE, one, other, b'[', other, one]);
                keys.take(b"");
                assert_eq!(keys.take(b"q"), [Key::Char('q')]);
            }
        }
    }
}
