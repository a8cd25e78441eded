//! Goal: a monitor's events make the same table live and from a recording, threads' numbers may be
//! used anew, and broken recordings are refused. Method: a backend that is a script, on this
//! process.

use std::io::{self, Cursor};
use std::ops::Range;

use pmmon::calls::Calls;
use pmmon::ledger::By;
use pmmon::regions::{Region, Why};
use pmmon::{
    Access, Arm, Coverage, Drained, Event, Exposure, Lacking, Ledger, Monitor, Origin, Sample,
    Sampler, Thread, Tid, Wanted, recording,
};

/// A backend that sees one store of 8 bytes by each thread each time.
#[derive(Default)]
struct Script {
    threads: Vec<Tid>,
    arms: u64,
    lacks: bool,
}

impl Sampler for Script {
    fn what(&self) -> Coverage {
        Coverage {
            backend: "script",
            reads: false,
            writes: true,
            counts: true,
        }
    }

    fn regions(&mut self, _pid: u32, _regions: &[Range<u64>]) -> io::Result<()> {
        Ok(())
    }

    fn follow(&mut self, thread: Thread) -> Result<(), Lacking> {
        if self.lacks {
            return Err(Lacking {
                backend: "script",
                cause: "No space left on device".to_owned(),
                remedy: "end the debugger",
                gone: false,
            });
        }
        self.threads.push(thread.tid);
        Ok(())
    }

    fn leave(&mut self, tid: Tid) {
        self.threads.retain(|other| *other != tid);
    }

    fn drain(&mut self, to: &mut Vec<Sample>) -> Drained {
        let mut drained = Drained::default();
        for tid in &self.threads {
            self.arms += 1;
            to.push(stored(*tid, self.arms));
            drained.arms.push(arm(*tid, self.arms));
            drained.ran.push((*tid, self.arms * 1_000_000));
        }
        drained
    }
}

fn stored(tid: Tid, number: u64) -> Sample {
    Sample {
        tid,
        time_ns: number,
        ip: 0x5010,
        address: 0x1000,
        access: Access::Write,
        bytes: 8,
        exposure: Exposure::Word {
            address: 0x1000,
            arm: number,
        },
        origin: Origin::Mapped,
    }
}

fn arm(tid: Tid, number: u64) -> Arm {
    Arm {
        number,
        tid,
        words: 512,
        ran_ns: 1_000_000,
        beside: 1,
        watched_ns: 1_000_000,
        hits: 1,
        traps: 1,
        round_traps: 1,
        stopped: false,
        neighbour: None,
    }
}

fn found() -> (Vec<Region>, Vec<Region>) {
    let region = |start, path: &str, why| Region {
        start,
        end: start + 0x1000,
        offset: 0x2000,
        path: path.to_owned(),
        why,
    };
    (
        vec![region(0x1000, "/pool", Why::Pool)],
        vec![region(0x5000, "/bin/it", Why::Code)],
    )
}

fn events(script: Script) -> Vec<Event> {
    let own = Wanted::Pids(vec![std::process::id()]);
    let mut monitor = Monitor::new(script, own, |_| Ok(found()));
    let mut events = vec![monitor.begin(0.0, 0)];
    for time in 1..5 {
        monitor.step(time, &mut events);
    }
    monitor.end(5, &mut events);
    events
}

fn ledger(events: &[Event], by: By) -> Ledger {
    let mut ledger = Ledger::new(by);
    events.iter().for_each(|event| ledger.take(event));
    ledger
}

#[test]
fn a_recording_makes_the_same_table() {
    let events = events(Script::default());
    let mut file = Vec::new();
    recording::write(&events, &mut file).unwrap();
    let mut again = Vec::new();
    let whole = recording::read(&mut Cursor::new(&file), |event| again.push(event));
    assert!(whole.unwrap());
    assert_eq!(again, events);
    let ledger = ledger(&again, By::Thread);
    let [process] = ledger.processes() else {
        panic!("{ledger:?}")
    };
    assert_eq!(process.pid, std::process::id());
    assert!(!process.threads.is_empty());
    let usage = ledger.usage(&process.threads, Access::Write).unwrap();
    assert!(usage.bytes.value > 0.0 && usage.bytes.high > usage.bytes.low);
    assert!(ledger.usage(&process.threads, Access::Read).is_none());
    assert_eq!(usage.sizes.keys().copied().collect::<Vec<_>>(), [8]);
}

#[test]
fn names_of_sites_and_files() {
    let events = events(Script::default());
    for (by, name) in [(By::Site, "/bin/it+0x2010 (8 bytes)"), (By::File, "/pool")] {
        let ledger = ledger(&events, by);
        let threads = &ledger.processes()[0].threads;
        let named = ledger.named(threads, Access::Write);
        assert_eq!(named.len(), 1, "{named:?}");
        assert_eq!(named[0].0, name);
        let all = ledger.usage(threads, Access::Write).unwrap();
        assert_eq!(named[0].1.value, all.bytes.value);
    }
}

/// Goal: a thread that has the number of one that has ended is another one, and the totals of both
/// stay. Method: events by hand.
#[test]
fn a_number_used_anew_is_another_thread() {
    let process = |start_ns| Event::Process {
        pid: 7,
        start_ns,
        command: "it".to_owned(),
        inner_pid: None,
        was_running: false,
    };
    let batch = |number| Event::Batch {
        time_ns: number,
        samples: vec![stored(7, number)],
        drained: Drained {
            arms: vec![arm(7, number)],
            ran: vec![(7, 1_000_000)],
            ..Drained::default()
        },
    };
    let thread = Event::Thread { pid: 7, tid: 7 };
    let begin = Monitor::new(Script::default(), Wanted::All, |_| Ok(found())).begin(0.0, 0);
    let ledger = ledger(
        &[
            begin,
            process(1),
            thread.clone(),
            batch(1),
            Event::Ended { pid: 7 },
            process(2),
            thread,
            batch(2),
        ],
        By::Thread,
    );
    assert_eq!(ledger.processes().len(), 2);
    let bytes = |at: usize| {
        let threads = &ledger.processes()[at].threads;
        ledger.usage(threads, Access::Write).unwrap().bytes.value
    };
    // A hit of 8 bytes on one of 512 words.
    assert_eq!((bytes(0), bytes(1)), (4096.0, 4096.0));
    assert!(ledger.processes()[0].ended && !ledger.processes()[1].ended);
}

#[test]
fn what_is_not_seen_is_told_with_the_way_out() {
    let lacks = Script {
        lacks: true,
        ..Script::default()
    };
    let ledger = ledger(&events(lacks), By::Thread);
    let told: Vec<_> = ledger
        .not_seen()
        .map(|(cause, remedy, _)| (cause, remedy))
        .collect();
    let expected = ("script: No space left on device", "end the debugger");
    assert!(told.contains(&expected), "{told:?}");
    let own = Wanted::Pids(vec![std::process::id()]);
    let denied = |_| Err(io::Error::from_raw_os_error(13));
    let mut monitor = Monitor::new(Script::default(), own, denied);
    let mut events = Vec::new();
    for time in 0..3 {
        monitor.step(time, &mut events);
    }
    let denials: Vec<_> = events
        .iter()
        .filter(
            |event| matches!(event, Event::NotSeen { remedy, .. } if remedy.contains("same user")),
        )
        .collect();
    assert_eq!(denials.len(), 1, "told once: {events:?}");
    let mut told = Ledger::new(By::Thread);
    told.take(&monitor.begin(0.0, 0));
    events.iter().for_each(|event| told.take(event));
    let process = &told.processes()[0];
    assert!(process.is_refused() && !process.ended, "{process:?}");
    // Where all processes are wanted, one that may not be looked at may have no such memory.
    let mut monitor = Monitor::new(Script::default(), Wanted::All, denied);
    let mut events = Vec::new();
    monitor.step(0, &mut events);
    let are_denials = |event: &Event| matches!(event, Event::NotSeen { .. });
    assert!(
        !events.is_empty() && events.iter().all(are_denials),
        "{events:?}"
    );
}

/// Goal: no recording leads to a panic or to a wrong answer. Method: a recording cut at each byte,
/// and lines of other kinds.
#[test]
fn broken_recordings_are_refused() {
    let mut file = Vec::new();
    recording::write(&events(Script::default()), &mut file).unwrap();
    file.truncate(20_000);
    let first = file.iter().position(|byte| *byte == b'\n').unwrap();
    for end in 0..file.len() {
        let read = recording::read(&mut Cursor::new(&file[..end]), |_| ());
        assert_eq!(read.is_ok(), end >= first, "{end}: {read:?}");
    }
    for text in [
        "",
        "{}\n",
        "PERFILE2",
        "{\"event\":\"end\",\"time_ns\":1}\n",
        "{\"event\":\"begin\",\"schema\":2,\"backend\":\"x\",\"reads\":true,\"counts\":true,\
         \"trap_ns\":1,\"time_ns\":1}\n",
    ] {
        let error = recording::read(&mut Cursor::new(text), |_| ()).unwrap_err();
        assert!(error.to_string().contains("; take"), "{error}");
    }
    let mut broken = file[..=first].to_vec();
    broken.extend_from_slice(b"nonsense\n");
    let error = recording::read(&mut Cursor::new(broken), |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("line 2:"), "{error}");
}

/// Goal: calls that one backend tells after the other has told the process's end are not lost, and
/// a thread that both tell is one.
#[test]
fn last_calls_come_after_the_end() {
    let begin = |backend: &str| Event::Begin {
        schema: 1,
        backend: backend.to_owned(),
        reads: true,
        counts: false,
        trap_ns: 0.0,
        time_ns: 0,
    };
    let process = || Event::Process {
        pid: 7,
        start_ns: 1,
        command: "c".to_owned(),
        inner_pid: None,
        was_running: false,
    };
    let thread = |tid| Event::Thread { pid: 7, tid };
    let calls = |tid, written_bytes| {
        let calls = Calls {
            written_bytes,
            ..Calls::default()
        };
        (tid, calls)
    };
    let mut all = vec![
        begin("clock"),
        begin("engine"),
        process(),
        thread(7),
        process(),
    ];
    all.extend([thread(7), Event::Ended { pid: 7 }, thread(8)]);
    all.push(Event::Calls {
        time_ns: 5,
        calls: vec![calls(7, 10), calls(8, 100)],
    });
    all.push(Event::Ended { pid: 7 });
    let ledger = ledger(&all, By::Thread);
    let [process] = ledger.processes() else {
        panic!("one process: {:?}", ledger.processes())
    };
    let tids: Vec<Tid> = process.threads.iter().map(|life| life.tid).collect();
    assert_eq!(tids, [7, 8]);
    assert!(process.ended);
    assert_eq!(ledger.calls(&process.threads).unwrap().written_bytes, 110);
}
