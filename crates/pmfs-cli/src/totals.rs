//! The output of `pmfs run --stats` at the end: counts that all programs of the run keep in one
//! page.

use std::fs;
use std::io;
use std::path::Path;

use pmem::Emulation;
use serde_json::{Map, Value};

/// The page.
pub struct Totals {
    file: tempfile::NamedTempFile,
}

/// The words in the library's order.
const WORDS: [&str; 8] = [
    "served",
    "passed",
    "promoted",
    "read_bytes",
    "written_bytes",
    "barriers",
    "lines_flushed",
    "processes",
];

/// The uses that were refused because there is no mount, in the library's order, after the others.
const REFUSED: [(&str, &str); 9] = [
    ("sent", "open files sent to other processes"),
    (
        "strangers",
        "open files or scripts for programs that can't load the library",
    ),
    ("special", "FIFOs and devices opened"),
    ("mappings", "shared mappings"),
    ("roots", "directories made the root"),
    ("filters", "filters of system calls"),
    ("sockets", "names of sockets"),
    (
        "ways",
        "ways to resolve names, and questions of the real user",
    ),
    (
        "parts",
        "children that share descriptors without memory, or memory without descriptors",
    ),
];

impl Totals {
    pub fn new() -> io::Result<Totals> {
        let file = tempfile::NamedTempFile::with_prefix("pmfs-run-")?;
        file.as_file().set_len(4096)?;
        Ok(Totals { file })
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// `mountless`: why there was no mount.
    pub fn show(&self, json: bool, mountless: Option<&str>, emulates: Emulation) -> io::Result<()> {
        let bytes = fs::read(self.path())?;
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        let (counts, refused) = words.split_at(WORDS.len());
        let refused = REFUSED.iter().zip(refused);
        if json {
            let counts = WORDS.iter().zip(counts);
            let mut all: Map<String, Value> = counts
                .map(|(name, count)| ((*name).to_owned(), (*count).into()))
                .collect();
            let emulates = (!emulates.is_off()).then(|| emulates.to_string());
            all.insert("emulates".to_owned(), emulates.into());
            if let Some(why) = mountless {
                let refused: Map<String, Value> = refused
                    .map(|((name, _), count)| ((*name).to_owned(), (*count).into()))
                    .collect();
                all.insert("mountless".to_owned(), why.into());
                all.insert("refused".to_owned(), refused.into());
            }
            eprintln!("{}", Value::Object(all));
            return Ok(());
        }
        for (name, count) in WORDS.iter().zip(counts) {
            eprintln!("pmfs: {:<14} {count}", name.replace('_', " "));
        }
        if !emulates.is_off() {
            eprintln!("pmfs: {:<14} {emulates}", "emulates");
        }
        if let Some(why) = mountless {
            eprintln!("pmfs: without a mount: {why}");
            for ((_, what), count) in refused.filter(|(_, count)| **count > 0) {
                eprintln!("pmfs: {:<14} {count} ({what})", "refused");
            }
        }
        Ok(())
    }
}
