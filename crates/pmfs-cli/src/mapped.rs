//! Use of a pool by loads and stores on mappings, as the program `pmmon` tells it: this program has
//! no part of a monitor, and needs none to show calls.

use std::env;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use pm_cli::Size;

/// The monitor's program.
const PROGRAM: &str = "pmmon";
/// The exit code of "nothing here can measure this", of both programs.
const NOTHING: u8 = 77;

/// A round of the monitor. Figures are totals since it began.
#[derive(Default, Deserialize)]
pub struct Told {
    pub seconds: f64,
    pub backend: Vec<String>,
    processes: Vec<Mapped>,
}

/// A process that has the pool mapped. `null` is not measured.
#[derive(Clone, Serialize, Deserialize)]
pub struct Mapped {
    pub pid: u64,
    pub command: String,
    /// The process's number for itself, if that is another.
    inner_pid: Option<u64>,
    pub ended: bool,
    written: Option<Bytes>,
    read: Option<Bytes>,
    /// Time in stores and loads, where those are not counted.
    time: Option<Times>,
    /// Calls as the process counts them while it is asked, if it may be.
    calls: Option<Calls>,
    /// Its threads.
    #[serde(default)]
    threads: Vec<Thread>,
}

/// A thread's figures.
#[derive(Clone, Serialize, Deserialize)]
struct Thread {
    tid: u64,
    calls: Option<Calls>,
}

/// Exact counts of calls, since the monitor began.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Calls {
    read_bytes: u64,
    written_bytes: u64,
    reads: u64,
    changes: u64,
}

/// Bytes with an interval of 95 %.
#[derive(Clone, Serialize, Deserialize)]
struct Bytes {
    bytes: f64,
    low: f64,
    high: f64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Times {
    writing: Seconds,
    reading: Seconds,
}

/// Seconds of threads with an interval of 95 %.
#[derive(Clone, Serialize, Deserialize)]
struct Seconds {
    value: f64,
    low: f64,
    high: f64,
}

impl Told {
    /// The use by a process of which the pool knows the number.
    pub fn of(&self, pid: u64) -> Option<&Mapped> {
        let mut living = self.processes.iter().filter(|one| !one.ended);
        living.find(|one| one.inner_pid.unwrap_or(one.pid) == pid)
    }

    /// Processes that have the pool mapped and are none of these, nor this one.
    pub fn others(&self, known: impl Fn(u64) -> bool) -> Vec<Mapped> {
        let own = u64::from(std::process::id());
        let others = self
            .processes
            .iter()
            .filter(|one| one.inner_pid.unwrap_or(one.pid) != own);
        let living = others.filter(|one| !one.ended);
        let others = living.filter(|one| !known(one.inner_pid.unwrap_or(one.pid)));
        others.cloned().collect()
    }
}

impl Mapped {
    /// A line for each thread that has made calls, with what it has read and written each second.
    pub fn threads(&self, seconds: f64) -> Vec<String> {
        let busy = |thread: &&Thread| {
            let calls = thread.calls.as_ref();
            calls.is_some_and(|calls| calls.reads + calls.changes > 0)
        };
        let line = |thread: &Thread| {
            let calls = thread.calls?;
            let rate = |count: u64| count as f64 / seconds;
            let bytes = |count: u64| Size(rate(count).round() as u64).to_string();
            // Above all numbers of threads is the sum of those without one.
            let name = match thread.tid < 1 << 31 {
                true => format!("thread {}", thread.tid),
                false => "others".to_owned(),
            };
            Some(format!(
                "{:>8} {name:<15} {:>10.0} {:>10.0} {:>11} {:>11}",
                "",
                rate(calls.reads),
                rate(calls.changes),
                bytes(calls.read_bytes),
                bytes(calls.written_bytes)
            ))
        };
        self.threads.iter().filter(busy).filter_map(line).collect()
    }

    /// The columns: stores and loads, each second.
    pub fn cells(&self, seconds: f64) -> String {
        let bytes = |way: &Bytes| match way.bytes > 0.0 {
            true => {
                let half = (way.high - way.low) / 2.0 / way.bytes * 100.0;
                format!(
                    "{} +-{half:.0} %",
                    Size((way.bytes / seconds).round() as u64)
                )
            }
            false => format!("0 (below {})", Size((way.high / seconds).round() as u64)),
        };
        let time = |time: &Seconds| format!("{:.1} % of a core", time.value / seconds * 100.0);
        let cell = |way: Option<&Bytes>, its_time: Option<&Seconds>| {
            let way = way.map(bytes).or_else(|| its_time.map(time));
            way.unwrap_or_else(|| "not measured".to_owned())
        };
        let times = self.time.as_ref();
        format!(
            "{:>21} {:>21}",
            cell(self.written.as_ref(), times.map(|times| &times.writing)),
            cell(self.read.as_ref(), times.map(|times| &times.reading))
        )
    }
}

/// The monitor while it runs. It ends with this.
pub struct Monitor {
    child: Child,
    rounds: BufReader<ChildStdout>,
}

impl Monitor {
    /// Starts the monitor that is installed with this program, or else the one that is found.
    pub fn start(pool: &Path, backend: &str, interval: Duration) -> Result<Self, Failure> {
        let beside = env::current_exe()
            .ok()
            .map(|own| own.with_file_name(PROGRAM));
        let program = beside.filter(|path| path.exists());
        let program = program.unwrap_or_else(|| PathBuf::from(PROGRAM));
        let mut command = Command::new(program);
        command.args(["top", "--json", "--reads", "--calls", "--backend", backend]);
        command
            .arg("--interval")
            .arg(interval.as_secs_f64().to_string());
        command
            .args(["--count", &u64::MAX.to_string(), "--pool"])
            .arg(pool);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            let way_out = match error.kind() {
                ErrorKind::NotFound => {
                    "install it beside pmfs (cargo build --release -p pmmon-cli), or leave \
                     --mapped out"
                }
                _ => "leave --mapped out",
            };
            Failure::new(format!("--mapped: {PROGRAM}: {error}"), way_out)
        })?;
        let rounds = child.stdout.take();
        let rounds = rounds.ok_or_else(|| Failure::whole("--mapped: no pipe; try again"))?;
        Ok(Self {
            child,
            rounds: BufReader::new(rounds),
        })
    }

    /// Waits for the next round.
    pub fn next(&mut self) -> Result<Told, Failure> {
        let mut line = String::new();
        let told = self.rounds.read_line(&mut line);
        if told.is_err() || line.is_empty() {
            let status = self.child.wait().ok();
            let code = status.and_then(|status| status.code());
            let cause = format!("--mapped: {PROGRAM} has ended");
            let failure = pm_cli::Failure::new(cause, "see its message, or leave --mapped out");
            let is_nothing = code == Some(i32::from(NOTHING));
            return Err(failure
                .with_code(if is_nothing { NOTHING } else { 1 })
                .into());
        }
        serde_json::from_str(&line).map_err(|error| {
            let cause = format!("--mapped: {PROGRAM} tells something else: {error}");
            Failure::new(cause, "take both programs of one version")
        })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // It has ended already where this fails, and has nothing to give back.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: figures of the monitor are shown for the right processes, each second. Method: a line
    /// as the monitor prints it, with fields that this program does not know.
    #[test]
    fn rounds_are_read() {
        let line = r#"{"schema":1,"seconds":4.0,"backend":["watch"],"lost":0,"processes":[
            {"pid":7,"start_ns":1,"command":"old","inner_pid":null,"ended":true,"written":null,
             "read":null,"time":null},
            {"pid":7,"start_ns":2,"command":"new","inner_pid":null,"ended":false,
             "written":{"bytes":8192.0,"low":7372.8,"high":9011.2,"hits":9},
             "read":{"bytes":0.0,"low":0.0,"high":4096.0},"time":null,"threads":[]},
            {"pid":70,"command":"boxed","inner_pid":8,"ended":false,"written":null,"read":null,
             "time":{"writing":{"value":1.0,"low":0.9,"high":1.1},
                     "reading":{"value":0.0,"low":0.0,"high":0.1}}}]}"#;
        let told: Told = serde_json::from_str(line).unwrap();
        let new = told.of(7).unwrap();
        assert_eq!(new.command, "new", "the one that lives");
        let cells = new.cells(told.seconds);
        assert!(cells.contains("2 KiB +-10 %"), "{cells}");
        assert!(cells.ends_with("0 (below 1 KiB)"), "{cells}");
        assert!(new.threads(told.seconds).is_empty(), "not asked");
        let boxed = told.of(8).unwrap().cells(told.seconds);
        assert!(boxed.contains("25.0 % of a core"), "{boxed}");
        assert!(
            told.of(70).is_none(),
            "70 is another one's number for the pool"
        );
        let others = told.others(|pid| pid == 7);
        assert_eq!(others.len(), 1);
        assert_eq!(others[0].pid, 70);
    }
}
