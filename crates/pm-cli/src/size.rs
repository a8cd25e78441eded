//! Sizes as people write them: 4096, 512M, 1.5G, 1GiB.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    /// A number, with K, M, G or T (powers of 1024) and `B` or `iB` behind it if wanted.
    fn from_str(text: &str) -> Result<Size, String> {
        let usage = || format!("'{text}' is not a size; write it like 512M or 1G");
        let unit_at = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let shift = match unit.to_ascii_uppercase().as_str() {
            "" | "B" => 0,
            "K" | "KB" | "KIB" => 10,
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            "T" | "TB" | "TIB" => 40,
            _ => return Err(usage()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            let bytes = whole.checked_mul(1 << shift).ok_or_else(usage)?;
            return Ok(Size(bytes));
        }
        let value: f64 = number.parse().map_err(|_| usage())?;
        let bytes = value * (1u64 << shift) as f64;
        if shift == 0 || !bytes.is_finite() || bytes >= u64::MAX as f64 {
            return Err(usage());
        }
        Ok(Size(bytes as u64))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = "bytes";
        for larger in units {
            if value < 1024.0 {
                break;
            }
            value /= 1024.0;
            unit = larger;
        }
        if value.fract() == 0.0 {
            write!(f, "{value} {unit}")
        } else {
            write!(f, "{value:.1} {unit}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_and_shown() {
        for (text, bytes, shown) in [
            ("4096", 4096, "4 KiB"),
            ("512M", 512 << 20, "512 MiB"),
            ("1.5g", 3 << 29, "1.5 GiB"),
            ("2GiB", 2 << 30, "2 GiB"),
            ("1T", 1 << 40, "1 TiB"),
            ("100", 100, "100 bytes"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size, Size(bytes), "{text}");
            assert_eq!(size.to_string(), shown);
        }
        for bad in ["", "G", "1X", "1.5", "-1G", "1 G", "99999999999T", "1..5G"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
