//! `pmmon export`: totals in the text form of Prometheus, over HTTP on a loopback address or in a
//! file.

mod metrics;
mod serve;

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::Metrics;
use pm_cli::Failure;
use pmmon::Ledger;
use pmmon::ledger::By;
use pmmon_cli::commands::Export;

use crate::session::Session;

pub(crate) fn run(arguments: &Export) -> Result<ExitCode, Failure> {
    let page = Arc::new(Mutex::new(String::new()));
    let mut session = Session::open(&arguments.look)?;
    if let Some(address) = arguments.listen {
        let at = serve::start(address, Arc::clone(&page))?;
        eprintln!("pmmon: http://{at}/metrics");
    }
    let mut ledger = Ledger::new(By::Thread);
    let keep = Duration::from_secs_f64(arguments.keep);
    let mut metrics = Metrics::new(arguments.per_thread, arguments.max_series, keep);
    let mut round = 0;
    let mut goes_on = true;
    while goes_on && arguments.count.is_none_or(|count| round < count) {
        // The first page does not wait for a whole round.
        let seconds = if round == 0 { 0.0 } else { arguments.interval };
        round += 1;
        let mut take = |events: Vec<_>| {
            events.iter().for_each(|event| ledger.take(event));
            Ok(())
        };
        goes_on = session.run(Duration::from_secs_f64(seconds), &mut take)?;
        if !goes_on {
            take(session.end())?;
        }
        let text = metrics.text(&mut ledger, Instant::now());
        if let Some(path) = &arguments.output {
            replace(path, &text).map_err(|error| {
                let cause = format!("{}: {error}", path.display());
                Failure::new(cause, "name a file in a folder that may be written")
            })?;
        }
        *page.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces a file at once, so that a reader never has a part of it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    fs::write(&name, text)?;
    fs::rename(&name, path).inspect_err(|_| {
        let _ = fs::remove_file(&name);
    })
}
