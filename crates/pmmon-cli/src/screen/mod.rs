//! The screen of `pmmon top` on a terminal.

pub(crate) mod guard;
mod keys;
mod terminal;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use guard::Guard;
use keys::Keys;
use pm_cli::Failure;
use pmmon::Ledger;
use pmmon::ledger::By;
use pmmon_cli::commands::Top;
use signal_hook::consts::{SIGHUP, SIGQUIT, SIGWINCH};
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
    keys: Keys,
    stop: Arc<AtomicBool>,
    /// The terminal has another size.
    is_resized: Arc<AtomicBool>,
}

/// Shows rounds until a key or a signal ends it.
pub(crate) fn run(arguments: &Top, session: &mut Session) -> Result<(), Failure> {
    let (stop, is_resized) = (session.stop(), Arc::new(AtomicBool::new(false)));
    for (signal, flag) in [(SIGHUP, &stop), (SIGQUIT, &stop), (SIGWINCH, &is_resized)] {
        signal_hook::flag::register(signal, Arc::clone(flag))
            .map_err(|error| Failure::new(format!("signals: {error}"), "try again"))?;
    }
    let mut ledger = Ledger::new(By::Thread);
    let guard = Guard::start().map_err(|error| failed(&error))?;
    let screen = Screen::open().map_err(|error| failed(&error))?;
    let mut shown = Shown {
        screen,
        view: View::new(arguments.threads),
        round: round(&ledger),
        keys: Keys::default(),
        stop,
        is_resized,
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
    drop(shown);
    guard.end();
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
        let keys = self.keys.read().map_err(|error| failed(&error))?;
        let Some(keys) = keys else {
            self.stop.store(true, Relaxed);
            return Ok(());
        };
        let mut draws = self.is_resized.swap(false, Relaxed);
        for key in keys {
            match self.view.press(key, &self.round) {
                Asked::Nothing => {}
                Asked::Drawing => draws = true,
                Asked::Quitting => self.stop.store(true, Relaxed),
            }
        }
        if draws {
            self.draw()?;
        }
        Ok(())
    }
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::new(format!("the terminal: {error}"), "take --plain")
}
