//! `pmmon top`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pm_cli::Failure;
use pmmon::Ledger;
use pmmon::ledger::By;
use pmmon_cli::commands::{Backend, Top};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::rows::round;
use crate::session::{Session, now_ns};
use crate::{pages, screen};

pub(crate) fn run(arguments: &Top) -> Result<ExitCode, Failure> {
    if arguments.guard {
        screen::guard::run()
            .map_err(|error| Failure::new(format!("the terminal: {error}"), "leave --guard out"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.look.backend == Backend::Pages {
        return pages::run(arguments);
    }
    let mut session = Session::open(&arguments.look)?;
    let is_watched = std::io::stdout().is_terminal();
    let wants_lines = arguments.plain || arguments.json || arguments.count.is_some();
    if is_watched && std::io::stdin().is_terminal() && !wants_lines {
        screen::run(arguments, &mut session)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut ledger = Ledger::new(By::Thread);
    let stop = session.stop();
    let rounds = arguments.count.unwrap_or(match is_watched {
        true => u64::MAX,
        false => 1,
    });
    for _ in 0..rounds {
        let mut take = |events: Vec<_>| {
            events.iter().for_each(|event| ledger.take(event));
            if has_no_reader() {
                stop.store(true, Relaxed);
            }
            Ok(())
        };
        let goes_on = session.run(Duration::from_secs_f64(arguments.interval), &mut take)?;
        if !goes_on {
            take(session.end())?;
        }
        ledger.at(now_ns());
        pm_cli::print(arguments.json, &round(&ledger), |round| {
            round.text(arguments.threads)
        })?;
        if !goes_on {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The pipe to which lines go has no reader any more, as where the program that wanted them was
/// killed: nobody else would end this one.
pub(crate) fn has_no_reader() -> bool {
    let stdout = std::io::stdout();
    let mut looks = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec::default();
    poll(&mut looks, Some(&at_once)).is_ok() && looks[0].revents().contains(PollFlags::ERR)
}
