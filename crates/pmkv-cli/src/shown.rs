//! Bytes of any kind as text: in a line of their own, or in JSON.

use std::fmt::Write as _;

pub use pm_cli::escaped;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_json() {
        let json = |entry| serde_json::to_string(&entry).expect("JSON");
        let entry = Entry::of_key(b"\xff\x00").with_value(b"a\n");
        assert_eq!(json(entry), r#"{"key_hex":"ff00","value":"a\n"}"#);
        let entry = Entry::of_key(b"").with_length(&[1; 7]);
        assert_eq!(json(entry), r#"{"key":"","value_bytes":7}"#);
    }
}
