//! Bytes that others have chosen, as text in a line: names of programs and files, keys.

use std::fmt::Write as _;

/// Bytes in a line: what would break it, or is an order to a terminal, is escaped, and can be told
/// from the rest.
#[must_use]
pub fn escaped(bytes: &[u8]) -> String {
    let mut line = String::with_capacity(bytes.len());
    for part in bytes.utf8_chunks() {
        for letter in part.valid().chars() {
            match letter {
                '\\' => line.push_str("\\\\"),
                '\n' | '\r' | '\t' => line.extend(letter.escape_default()),
                _ if letter.is_control() => {
                    let mut utf8 = [0; 4];
                    hex_escapes(&mut line, letter.encode_utf8(&mut utf8).as_bytes());
                }
                _ => line.push(letter),
            }
        }
        hex_escapes(&mut line, part.invalid());
    }
    line
}

fn hex_escapes(line: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(line, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_lines() {
        for (bytes, line) in [
            (&b"plain text"[..], "plain text"),
            ("h\u{e9}".as_bytes(), "h\u{e9}"),
            (b"a\tb\nc\rd\\n", r"a\tb\nc\rd\\n"),
            (b"\x00\x1b[1m\x7f\xff\xc3", r"\x00\x1b[1m\x7f\xff\xc3"),
            ("\u{9b}".as_bytes(), r"\xc2\x9b"),
            (b"", ""),
        ] {
            assert_eq!(escaped(bytes), line);
        }
    }
}
