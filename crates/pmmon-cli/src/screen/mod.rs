//! The screen of `pmmon top` on a terminal.

mod terminal;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crossterm::event::{self, Event};
use pm_cli::Failure;
use pmmon::Ledger;
use pmmon::ledger::By;
use pmmon_cli::commands::Top;
use signal_hook::consts::{SIGHUP, SIGQUIT};
use terminal::Screen;
use view::{Asked, View};

use crate::rows::{Round, round};
use crate::session::{Session, now_ns};

/// The time between two looks at the keys, when there is nothing else to look at any more.
const STEP: Duration = Duration::from_millis(20);

/// A screen with what it shows.
struct Shown {
    screen: Screen,
    view: View,
    round: Round,
    stop: Arc<AtomicBool>,
}

/// Shows rounds until a key or a signal ends it.
pub(crate) fn run(arguments: &Top, session: &mut Session) -> Result<(), Failure> {
    let stop = session.stop();
    for signal in [SIGHUP, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::new(format!("signals: {error}"), "try again"))?;
    }
    let mut ledger = Ledger::new(By::Thread);
    let screen = Screen::open().map_err(|error| failed(&error))?;
    let mut shown = Shown {
        screen,
        view: View::new(arguments.threads),
        round: round(&ledger),
        stop,
    };
    // The first screen does not wait for a whole round.
    let mut time = Duration::ZERO;
    loop {
        let goes_on = session.run(time, &mut |events| {
            events.iter().for_each(|event| ledger.take(event));
            shown.keys()
        })?;
        if !goes_on {
            session.end().iter().for_each(|event| ledger.take(event));
        }
        ledger.at(now_ns());
        shown.round = round(&ledger);
        shown.draw()?;
        if !goes_on {
            break;
        }
        time = Duration::from_secs_f64(arguments.interval);
    }
    // The last figures of processes that have ended stay until somebody has read them.
    while !shown.stop.load(Relaxed) {
        shown.keys()?;
        std::thread::sleep(STEP);
    }
    Ok(())
}

impl Shown {
    fn draw(&mut self) -> Result<(), Failure> {
        let (view, round) = (&mut self.view, &self.round);
        self.screen
            .draw(|buffer| view.draw(round, buffer))
            .map_err(|error| failed(&error))
    }

    /// Does what the keys ask for that were pressed since.
    fn keys(&mut self) -> Result<(), Failure> {
        while event::poll(Duration::ZERO).map_err(|error| failed(&error))? {
            let asked = match event::read().map_err(|error| failed(&error))? {
                Event::Key(key) => self.view.press(key, &self.round),
                Event::Resize(..) => Asked::Drawing,
                _ => Asked::Nothing,
            };
            match asked {
                Asked::Nothing => {}
                Asked::Drawing => self.draw()?,
                Asked::Quitting => self.stop.store(true, Relaxed),
            }
        }
        Ok(())
    }
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::new(format!("the terminal: {error}"), "take --plain")
}
