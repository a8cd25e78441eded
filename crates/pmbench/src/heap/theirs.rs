//! libpmemobj of Debian, by a loop in C that stays there between the rounds.

use super::{Candidate, How};
use crate::experiments::shell::Cannot;
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SOURCE: &str = include_str!("../../../../bench/heap/pmemobj.c");
const HEADER: &str = "/usr/include/libpmemobj.h";

/// The loop's process.
pub struct Theirs {
    child: Child,
    asked: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Theirs {
    /// Compiles the loop and has it make a pool.
    pub fn new(dir: &Path, mib: u64) -> anyhow::Result<Theirs> {
        if !Path::new(HEADER).exists() {
            let why = format!("{HEADER} is missing: apt-get install libpmemobj-dev");
            return Err(Cannot(why).into());
        }
        // A file system whose files may not be executed can be the place of pools.
        let built = tempfile::tempdir()?;
        let (source, program) = (built.path().join("pmemobj.c"), built.path().join("pmemobj"));
        std::fs::write(&source, SOURCE)?;
        let mut compiler = Command::new("cc");
        compiler.arg("-O2").arg("-o").arg(&program).arg(&source);
        let Ok(compiled) = compiler.arg("-lpmemobj").output() else {
            return Err(Cannot("cc is missing: apt-get install gcc".into()).into());
        };
        let errors = String::from_utf8_lossy(&compiled.stderr);
        ensure!(compiled.status.success(), "cc: {errors}");
        let mut command = Command::new(&program);
        command.arg(dir.join("libpmemobj")).arg(mib.to_string());
        command.env("PMEM_IS_PMEM_FORCE", "1");
        // All candidates flush, even on a machine whose caches survive power loss.
        command.env("PMEM_NO_FLUSH", "0");
        let settings = "sds.at_create=0;prefault.at_create=1;prefault.at_open=1";
        command.env("PMEMOBJ_CONF", settings);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("the loop of libpmemobj")?;
        let asked = child.stdin.take();
        let said = child.stdout.take().context("it has an output")?;
        let mut theirs = Theirs {
            child,
            asked,
            said: BufReader::new(said),
        };
        let first = theirs.line()?;
        ensure!(first == "ready", "the loop of libpmemobj: {first}");
        Ok(theirs)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the loop of libpmemobj has ended");
        Ok(line.trim_end().to_owned())
    }

    fn ask(&mut self, what: &str) -> anyhow::Result<String> {
        let asked = self.asked.as_mut().context("it is there until dropped")?;
        asked.write_all(what.as_bytes())?;
        asked.write_all(b"\n")?;
        asked.flush()?;
        self.line()
    }
}

impl Candidate for Theirs {
    fn change(&mut self, how: How, ranges: u64, count: u64) -> anyhow::Result<f64> {
        let how = match how {
            How::Write => "write",
            How::Add => "add",
        };
        Ok(self.ask(&format!("{how} {ranges} {count}"))?.parse()?)
    }

    fn churn(&mut self, count: u64) -> anyhow::Result<[f64; 2]> {
        let said = self.ask(&format!("churn {count}"))?;
        let two = said.split_once(' ').context("two times")?;
        Ok([two.0.parse()?, two.1.parse()?])
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // The end of its input is its end.
        self.asked = None;
        let _ = self.child.wait();
    }
}
