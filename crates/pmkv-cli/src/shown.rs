//! Bytes of any kind as text: in a line of their own, or in JSON.

use std::fmt::Write as _;

use serde::Serialize;

/// A key, with its value or what is known of it. The JSON is an interface: fields may be added, not
/// renamed.
#[derive(Serialize, Default)]
pub struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_bytes: Option<u64>,
}

impl Entry {
    pub fn of_key(key: &[u8]) -> Entry {
        let (key, key_hex) = text_or_hex(key);
        Entry {
            key,
            key_hex,
            ..Entry::default()
        }
    }

    pub fn with_value(mut self, value: &[u8]) -> Entry {
        (self.value, self.value_hex) = text_or_hex(value);
        self
    }

    pub fn with_length(mut self, value: &[u8]) -> Entry {
        self.value_bytes = Some(value.len() as u64);
        self
    }
}

/// Bytes as text, or else in hexadecimal.
fn text_or_hex(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => {
            let mut hex = String::with_capacity(bytes.len() * 2);
            for byte in bytes {
                // A string takes everything.
                let _ = write!(hex, "{byte:02x}");
            }
            (None, Some(hex))
        }
    }
}

/// Bytes in a line: what would break it, or a terminal, is escaped, and can be told from the rest.
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

    #[test]
    fn bytes_are_json() {
        let json = |entry| serde_json::to_string(&entry).expect("JSON");
        let entry = Entry::of_key(b"\xff\x00").with_value(b"a\n");
        assert_eq!(json(entry), r#"{"key_hex":"ff00","value":"a\n"}"#);
        let entry = Entry::of_key(b"").with_length(&[1; 7]);
        assert_eq!(json(entry), r#"{"key":"","value_bytes":7}"#);
    }
}
