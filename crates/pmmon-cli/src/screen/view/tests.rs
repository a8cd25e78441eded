//! Goal: a screen shows what a round has, on a terminal of any size, and keys change it as the help
//! says. Method: rounds of made events, Ratatui's test backend, and each key.

use pmmon::ledger::By;
use pmmon::{Drained, Event, Exposure, Ledger, Origin, Sample, event};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use super::*;
use crate::rows::round;

/// A process of the round: its number, its name, and each thread's stores and loads of 8 bytes.
type Made<'a> = (u32, &'a str, &'a [(u64, u64)]);

/// Two programs, of which the second writes more, and a third that only reads.
const PROGRAMS: [Made<'_>; 3] = [
    (700, "quiet", &[(1, 40)]),
    (800, "busy", &[(300, 2), (200, 1)]),
    (900, "able", &[(0, 500)]),
];

fn sample(tid: u32, access: Access) -> Sample {
    Sample {
        tid,
        time_ns: 0,
        ip: 0x40_0000,
        address: 0x7000_0000,
        access,
        bytes: 8,
        exposure: Exposure::Probability(0.5),
        origin: Origin::Mapped,
    }
}

fn made(programs: &[Made<'_>]) -> Round {
    let mut ledger = Ledger::new(By::Thread);
    let begin = Event::Begin {
        schema: event::SCHEMA,
        backend: "watch".to_owned(),
        reads: true,
        counts: true,
        trap_ns: 0.0,
        time_ns: 0,
    };
    ledger.take(&begin);
    for (pid, command, threads) in programs {
        ledger.take(&Event::Process {
            pid: *pid,
            start_ns: 1,
            command: (*command).to_owned(),
            inner_pid: None,
            was_running: false,
        });
        for (tid, (writes, reads)) in (*pid..).zip(*threads) {
            ledger.take(&Event::Thread { pid: *pid, tid });
            let of = |access, count: &u64| (0..*count).map(move |_| sample(tid, access));
            ledger.take(&Event::Batch {
                time_ns: 2_000_000_000,
                samples: of(Access::Write, writes)
                    .chain(of(Access::Read, reads))
                    .collect(),
                drained: Drained::default(),
            });
        }
    }
    round(&ledger)
}

/// The lines of a screen.
fn drawn(view: &mut View, round: &Round, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw = |frame: &mut ratatui_core::terminal::Frame<'_>| view.draw(round, frame.buffer_mut());
    terminal.draw(draw).unwrap();
    let cells = terminal.backend().buffer().content();
    let rows = cells.chunks(usize::from(width.max(1)));
    let text = |row: &[ratatui_core::buffer::Cell]| {
        let line: String = row.iter().map(ratatui_core::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    };
    rows.map(text).collect()
}

fn press(view: &mut View, round: &Round, keys: &[Key]) -> Asked {
    let mut asked = Asked::Nothing;
    for key in keys {
        asked = view.press(*key, round);
    }
    asked
}

/// The numbers in front of the rows: processes, and threads with a minus.
fn order(view: &mut View, round: &Round) -> Vec<i64> {
    let lines = drawn(view, round, 120, 30);
    let numbers = lines.iter().filter_map(|line| {
        let mut words = line.split_whitespace();
        match (words.next()?, words.next()?) {
            ("thread", tid) => tid.parse::<i64>().ok().map(|tid| -tid),
            (pid, _) => pid.parse().ok(),
        }
    });
    numbers.collect()
}

#[test]
fn a_screen_shows_the_text_output() {
    let round = made(&PROGRAMS);
    let lines = drawn(&mut View::new(false), &round, 100, 8);
    assert_eq!(lines[0], "2.0 s by watch: 3 processes, sorted by written");
    assert_eq!(lines[1], round.header());
    // 500 stores of 8 bytes, of which each second one was seen.
    assert!(lines[2].starts_with("     800  busy "), "{lines:?}");
    assert!(lines[2].contains("7.81 KiB +-"), "{lines:?}");
    let plain = round.text(false);
    for line in &lines[2..5] {
        assert!(plain.lines().any(|other| other == line), "{line}");
    }
    assert_eq!(lines[5..], ["", "", KEYS]);
    let nobody = drawn(&mut View::new(false), &made(&[]), 100, 8);
    assert!(nobody[2].starts_with("no process has"), "{nobody:?}");
}

#[test]
fn rows_open_to_threads() {
    let (mut view, round) = (View::new(false), made(&PROGRAMS));
    assert_eq!(order(&mut view, &round), [800, 700, 900]);
    press(&mut view, &round, &[Key::Enter]);
    assert_eq!(order(&mut view, &round), [800, -800, -801, 700, 900]);
    // A thread's row closes its process, which then is the chosen one.
    press(&mut view, &round, &[Key::Down, Key::Down, Key::Enter]);
    assert_eq!(order(&mut view, &round), [800, 700, 900]);
    assert_eq!(view.at, 0);
    press(&mut view, &round, &[Key::End, Key::Char('t')]);
    assert_eq!(
        order(&mut view, &round),
        [800, -800, -801, 700, -700, 900, -900]
    );
    assert_eq!(view.at, 5, "the chosen row is followed");
    press(&mut view, &round, &[Key::Enter]);
    assert_eq!(order(&mut view, &round), [800, -800, -801, 700, -700, 900]);
    assert_eq!(order(&mut View::new(true), &round).len(), 7);
}

#[test]
fn rows_are_sorted_by_each_key() {
    let (mut view, round) = (View::new(false), made(&PROGRAMS));
    for (key, expected) in [
        ('r', [900, 700, 800]),
        ('p', [700, 800, 900]),
        ('c', [900, 800, 700]),
        ('w', [800, 700, 900]),
    ] {
        press(&mut view, &round, &[Key::Char(key)]);
        assert_eq!(order(&mut view, &round), expected, "{key}");
    }
    for expected in [
        [900, 700, 800],
        [700, 800, 900],
        [900, 800, 700],
        [800, 700, 900],
    ] {
        press(&mut view, &round, &[Key::Char('s')]);
        assert_eq!(order(&mut view, &round), expected);
    }
}

#[test]
fn keys_quit_and_help() {
    let (mut view, round) = (View::new(false), made(&PROGRAMS));
    for key in [Key::Char('q'), Key::Interrupt] {
        assert_eq!(press(&mut view, &round, &[key]), Asked::Quitting);
    }
    let unknown = [Key::Char('x')];
    assert_eq!(press(&mut view, &round, &unknown), Asked::Nothing);
    assert_eq!(press(&mut view, &round, &[Key::Char('?')]), Asked::Drawing);
    let lines = drawn(&mut view, &round, 80, 20);
    assert!(
        HELP.iter()
            .all(|line| lines.iter().any(|shown| shown == line))
    );
    press(&mut view, &round, &[Key::Escape]);
    assert_eq!(order(&mut view, &round).len(), 3);
}

/// Goal: a figure is whole or visibly cut, and what is hidden can be reached.
#[test]
fn narrow_terminals_hide_nothing_for_good() {
    let (mut view, round) = (View::new(false), made(&PROGRAMS));
    let lines = drawn(&mut view, &round, 20, 5);
    assert_eq!(lines[0], "2.0 s by watch: 3 p>");
    assert_eq!(lines[1], "     PID  COMMAND  >");
    assert_eq!(lines[2], "     800  busy     >");
    assert_eq!(lines.len(), 5);
    let mut seen = Vec::new();
    for _ in 0..12 {
        seen.push(drawn(&mut view, &round, 20, 5)[2].clone());
        press(&mut view, &round, &[Key::Right]);
    }
    let is_seen = |text| seen.iter().any(|line| line.contains(text));
    assert!(is_seen("7.81 KiB") && is_seen("48.00 B"), "{seen:?}");
    for _ in 0..12 {
        press(&mut view, &round, &[Key::Left]);
    }
    assert_eq!(drawn(&mut view, &round, 20, 5), lines);
}

/// Goal: the chosen row is on the screen, however far it is.
#[test]
fn the_chosen_row_is_shown() {
    let names: Vec<String> = (0..50).map(|number| format!("program{number}")).collect();
    let programs = (1000..).zip(&names);
    let programs: Vec<Made<'_>> = programs
        .map(|(pid, name)| (pid, name.as_str(), &[(1, 1)][..]))
        .collect();
    let (mut view, round) = (View::new(false), made(&programs));
    let top = |view: &mut View| drawn(view, &round, 100, 9)[2].clone();
    assert!(top(&mut view).contains("program0 "));
    press(&mut view, &round, &[Key::End]);
    let lines = drawn(&mut view, &round, 100, 9);
    assert!(lines[7].contains("program49"), "{lines:?}");
    press(&mut view, &round, &[Key::PageUp]);
    assert!(top(&mut view).contains("program43"));
    press(&mut view, &round, &[Key::Home]);
    assert!(top(&mut view).contains("program0 "));
    // The rows become fewer: the next one there is chosen.
    press(&mut view, &round, &[Key::End]);
    let fewer = made(&programs[..3]);
    let lines = drawn(&mut view, &fewer, 100, 9);
    assert!(lines[4].contains("program2 ") && view.at == 2, "{lines:?}");
}

/// Goal: no size of a terminal, no name and no key ends the program.
#[test]
fn any_size_is_drawn() {
    let strange: [Made<'_>; 2] = [
        (1, "\u{1b}[2J\u{7}\n漢字漢字漢字漢字", &[(1, 1)]),
        (u32::MAX - 9, "e\u{301}\u{200d}\u{1f468}", &[(1, 1), (2, 2)]),
    ];
    let keys = [
        Key::Enter,
        Key::Right,
        Key::Down,
        Key::PageDown,
        Key::End,
        Key::Char('t'),
        Key::Up,
        Key::Char('?'),
    ];
    for round in [made(&PROGRAMS), made(&strange), made(&[])] {
        for height in 0..12 {
            for width in (0..12).chain([20, 80, 300]) {
                let mut view = View::new(false);
                drawn(&mut view, &round, width, height);
                for key in keys {
                    press(&mut view, &round, &[key]);
                    let lines = drawn(&mut view, &round, width, height);
                    assert!(!lines.concat().contains('\u{1b}'));
                }
            }
        }
    }
    assert!(!made(&strange).text(true).contains(['\u{1b}', '\u{7}']));
}
