//! The mixes of Filebench's personalities, by their published parameters: what each thread does
//! over and over, and the files it finds.
//!
//! fileserver: make a file and write it whole; open one and append; open one and read it whole;
//! delete one; look at one. webserver: open and read ten files whole; append to a log. webproxy:
//! delete one; make one and append; open and read five whole; append to a log. varmail: delete one;
//! make one, append, fsync; open one, read it, append, fsync; open one and read it.

use clap::ValueEnum;

const KIB: u64 = 1 << 10;

/// The personalities.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Mix {
    /// The mix of a file server.
    Fileserver,
    /// The mix of a web server.
    Webserver,
    /// The mix of a web proxy.
    Webproxy,
    /// The mix of a mail server.
    Varmail,
    /// The mix of a database: readers, writers and a log.
    Oltp,
}

/// A step of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Makes a file that is not there, and holds it open.
    Create,
    /// Opens a file that is there.
    Open,
    /// Writes the open file whole.
    WriteWhole,
    /// Reads it whole.
    ReadWhole,
    /// Appends up to so many bytes to it.
    Append(u64),
    /// fsync.
    Sync,
    /// Closes it.
    Close,
    /// Deletes a file that is there.
    Delete,
    /// stat of a file that is there.
    Look,
    /// Appends up to so many bytes to the log, which is open all the time.
    Log(u64),
}

/// Files and threads, as Filebench has them unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Names.
    pub files: u64,
    /// The part of these that are there at the start, in hundredths.
    pub there: u64,
    /// Bytes of a file, in the mean; they are distributed like Filebench's, by a gamma distribution
    /// of shape 1.5.
    pub mean_bytes: u64,
    /// Files in a directory.
    pub width: u64,
    /// Bytes read or written at a time.
    pub at_once: u64,
    /// Threads.
    pub threads: usize,
}

const READ: [Step; 3] = [Step::Open, Step::ReadWhole, Step::Close];
const FILESERVER: &[Step] = &[
    Step::Create,
    Step::WriteWhole,
    Step::Close,
    Step::Open,
    Step::Append(16 * KIB),
    Step::Close,
    Step::Open,
    Step::ReadWhole,
    Step::Close,
    Step::Delete,
    Step::Look,
];
const MADE: [Step; 4] = [
    Step::Delete,
    Step::Create,
    Step::Append(16 * KIB),
    Step::Close,
];
const VARMAIL: &[Step] = &[
    Step::Delete,
    Step::Create,
    Step::Append(16 * KIB),
    Step::Sync,
    Step::Close,
    Step::Open,
    Step::ReadWhole,
    Step::Append(16 * KIB),
    Step::Sync,
    Step::Close,
    Step::Open,
    Step::ReadWhole,
    Step::Close,
];

impl Mix {
    /// Returns what a thread does over and over.
    pub fn steps(self) -> Vec<Step> {
        let log = [Step::Log(16 * KIB)];
        match self {
            Mix::Fileserver => FILESERVER.to_vec(),
            Mix::Webserver => [READ.repeat(10).as_slice(), &log].concat(),
            Mix::Webproxy => [&MADE, READ.repeat(5).as_slice(), &log].concat(),
            Mix::Varmail => VARMAIL.to_vec(),
            Mix::Oltp => Vec::new(),
        }
    }

    /// Files and threads.
    pub fn shape(self) -> Shape {
        let shape = |files, there, mean_kib: u64, width, threads| Shape {
            files,
            there,
            mean_bytes: mean_kib * KIB,
            width,
            at_once: 1 << 20,
            threads,
        };
        match self {
            Mix::Fileserver => shape(10_000, 80, 128, 20, 50),
            Mix::Webserver => shape(1000, 100, 16, 20, 100),
            Mix::Webproxy => shape(10_000, 80, 16, 1_000_000, 100),
            Mix::Varmail => shape(1000, 80, 16, 1_000_000, 16),
            Mix::Oltp => shape(10, 100, 10 * KIB, 1024, 211),
        }
    }
}
