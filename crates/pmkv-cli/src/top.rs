//! `pmkv top`: the calls of each process on a heap, from the counts that it keeps there. No process
//! is asked or slowed down.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pm_cli::{Size, escaped, print_round};
use pmkv_cli::Top;
use pmlib::{Totals, User, Users};
use serde::Serialize;

use crate::Outcome;
use crate::failure::of_heap;

/// A round. Rates are per second, over the time since the round before; in the first one since the
/// process opened the heap. The JSON is an interface: fields may be added, not renamed.
#[derive(Serialize)]
struct Round {
    heap: String,
    seconds: f64,
    processes: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    pid: u64,
    command: String,
    slot: u64,
    since_ns: i64,
    /// false: the process died, and the next one that meets what it held cleans up.
    alive: bool,
    rates: Rates,
    totals: TotalsReport,
    #[serde(skip)]
    age: f64,
}

#[derive(Serialize)]
struct Rates {
    gets: f64,
    puts: f64,
    deletes: f64,
    scans: f64,
    batches: f64,
    got_bytes: f64,
    put_bytes: f64,
    waits: f64,
    /// Share of the time that was spent waiting, all threads together: 1 is one thread
    /// all the time.
    waiting: f64,
}

#[derive(Serialize)]
struct TotalsReport {
    gets: u64,
    puts: u64,
    deletes: u64,
    scans: u64,
    batches: u64,
    got_bytes: u64,
    put_bytes: u64,
    waits: u64,
    waited_ns: u64,
    recoveries: u64,
}

impl From<&Totals> for TotalsReport {
    fn from(totals: &Totals) -> TotalsReport {
        TotalsReport {
            gets: totals.gets,
            puts: totals.puts,
            deletes: totals.deletes,
            scans: totals.walks,
            batches: totals.batches,
            got_bytes: totals.got_bytes,
            put_bytes: totals.put_bytes,
            waits: totals.waits,
            waited_ns: totals.waited_ns,
            recoveries: totals.recoveries,
        }
    }
}

impl Rates {
    fn new(now: &Totals, before: &Totals, seconds: f64) -> Rates {
        let rate = |count: fn(&Totals) -> u64| {
            let more = count(now).saturating_sub(count(before));
            more as f64 / seconds.max(1e-9)
        };
        Rates {
            gets: rate(|totals| totals.gets),
            puts: rate(|totals| totals.puts),
            deletes: rate(|totals| totals.deletes),
            scans: rate(|totals| totals.walks),
            batches: rate(|totals| totals.batches),
            got_bytes: rate(|totals| totals.got_bytes),
            put_bytes: rate(|totals| totals.put_bytes),
            waits: rate(|totals| totals.waits),
            waiting: rate(|totals| totals.waited_ns) / 1e9,
        }
    }
}

/// The totals of the round before, by slot and the moment at which its process came.
type Before = HashMap<(u64, i64), Totals>;

pub fn run(arguments: &Top) -> Outcome {
    let path = &arguments.heap;
    let interval = Duration::from_secs_f64(arguments.interval);
    let live = io::stdout().is_terminal() && !arguments.json;
    // Into a file or a pipe one round is enough, unless more are asked for.
    let rounds = arguments.count.or((!live && !arguments.json).then_some(1));
    let users = Users::of(path).map_err(|error| of_heap(path, &error))?;
    let mut before = Before::new();
    let mut since: Option<Instant> = None;
    let mut done = 0;
    loop {
        let elapsed = since.map(|since| since.elapsed().as_secs_f64());
        since = Some(Instant::now());
        let now = users.now().map_err(|error| of_heap(path, &error))?;
        let round = Round::new(path.display().to_string(), &now, &before, elapsed);
        let is_read = round.show(live, arguments.json)?;
        before = now
            .iter()
            .map(|user| ((user.slot, user.since_ns), user.totals))
            .collect();
        done += 1;
        if !is_read || rounds.is_some_and(|rounds| done >= rounds) {
            return Ok(ExitCode::SUCCESS);
        }
        thread::sleep(interval);
    }
}

impl Round {
    fn new(heap: String, users: &[User], before: &Before, elapsed: Option<f64>) -> Round {
        let now_ns = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_nanos() as i64);
        let row = |user: &User| {
            let age = now_ns.saturating_sub(user.since_ns) as f64 / 1e9;
            let known = before.get(&(user.slot, user.since_ns));
            let (earlier, seconds) = match (known, elapsed) {
                (Some(earlier), Some(elapsed)) => (*earlier, elapsed),
                _ => (Totals::default(), age),
            };
            Row {
                pid: user.pid,
                command: user.command.clone(),
                slot: user.slot,
                since_ns: user.since_ns,
                alive: user.is_alive,
                rates: Rates::new(&user.totals, &earlier, seconds),
                totals: (&user.totals).into(),
                age,
            }
        };
        let mut rows: Vec<Row> = users.iter().map(row).collect();
        rows.sort_by(|one, other| other.calls().total_cmp(&one.calls()));
        Round {
            heap,
            seconds: elapsed.unwrap_or(0.0),
            processes: rows,
        }
    }

    /// Prints it. Returns whether somebody reads it still.
    fn show(&self, live: bool, json: bool) -> io::Result<bool> {
        print_round(json, self, |round| match live {
            // Home, and what follows is cleared.
            true => format!("\x1b[H\x1b[J{}", round.text()),
            false => round.text(),
        })
    }

    fn text(&self) -> String {
        let count = self.processes.len();
        let word = if count == 1 { "process" } else { "processes" };
        let mut lines = vec![format!("{}: {count} {word}; each second:", self.heap)];
        let cells = |start: [&str; 3], cells: [String; 9]| {
            let [pid, command, age] = start;
            let [gets, puts, deletes, scans, batches, got, put, waits, share] = cells;
            format!(
                "{pid:>8} {command:<15} {age:>7} {gets:>10} {puts:>10} {deletes:>9} {scans:>8} \
                 {batches:>8} {got:>11} {put:>11} {waits:>7} {share:>6}"
            )
        };
        let names = [
            "GETS", "PUTS", "DELETES", "SCANS", "BATCHES", "GOT", "PUT", "WAITS", "WAIT%",
        ];
        lines.push(cells(
            ["PID", "COMMAND", "AGE"],
            names.map(|name| name.to_owned()),
        ));
        for row in &self.processes {
            let command = escaped(row.command.as_bytes());
            let (pid, age) = (row.pid.to_string(), told_age(row.age));
            let dead = if row.alive { "" } else { "  dead" };
            let each_second = cells([&pid, &command, &age], row.rates.cells());
            lines.push(each_second + dead);
            lines.push(cells(["", "in total", ""], row.totals.cells()));
        }
        lines.join("\n")
    }
}

impl Row {
    fn calls(&self) -> f64 {
        let rates = &self.rates;
        rates.gets + rates.puts + rates.deletes + rates.scans
    }
}

impl Rates {
    fn cells(&self) -> [String; 9] {
        let count = |rate: f64| format!("{rate:.0}");
        let bytes = |rate: f64| Size(rate.round() as u64).to_string();
        [
            count(self.gets),
            count(self.puts),
            count(self.deletes),
            count(self.scans),
            count(self.batches),
            bytes(self.got_bytes),
            bytes(self.put_bytes),
            count(self.waits),
            format!("{:.1}", self.waiting * 100.0),
        ]
    }
}

impl TotalsReport {
    fn cells(&self) -> [String; 9] {
        [
            self.gets.to_string(),
            self.puts.to_string(),
            self.deletes.to_string(),
            self.scans.to_string(),
            self.batches.to_string(),
            Size(self.got_bytes).to_string(),
            Size(self.put_bytes).to_string(),
            self.waits.to_string(),
            String::new(),
        ]
    }
}

/// An age in the largest unit of which there are two.
fn told_age(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let told = [-1.0, 0.9, 119.0, 120.0, 7199.0, 7200.0, 172_800.0, f64::MAX].map(told_age);
        let expected = ["0 s", "0 s", "119 s", "2 min", "119 min", "2 h", "2 d"];
        assert_eq!(told[..7], expected);
    }

    /// Goal: a rate is of the time since the round before, and of a process that came since of its
    /// own; counts that go back are no rate. Method: two rounds of totals.
    #[test]
    fn rates_are_differences() {
        let totals = |gets, puts| {
            let mut totals = Totals::default();
            (totals.gets, totals.puts) = (gets, puts);
            totals
        };
        let rates = Rates::new(&totals(300, 5), &totals(100, 7), 2.0);
        assert_eq!((rates.gets, rates.puts), (100.0, 0.0));
        let rates = Rates::new(&totals(u64::MAX, 1), &totals(0, 0), 0.0);
        assert!(rates.gets.is_finite() && rates.puts.is_finite());
    }
}
