//! `cargo run -p xtask -- man DIR`, `... completions DIR`

#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["man", dir] => xtask::man::write(Path::new(dir)),
        ["completions", dir] => xtask::completions::write(Path::new(dir)),
        _ => bail!("usage: xtask man DIR | xtask completions DIR"),
    }
}
