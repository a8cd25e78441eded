//! `yat replay`.

use super::Mode;
use super::show::say;
use clap::Args;
use yat::explore::{Crash, Explorer, Options, Violation, record};
use yat::files::FileSystem;
use yat::files::call;
use yat::files::kinds::kinds;
use yat::files::trees;

#[derive(Debug, Args)]
pub struct Replay {
    /// The workload, as a report gives it: a kind of call, or calls with semicolons between
    workload: String,
    /// The crash, as a report gives it: STEP@FENCE:CHOICES
    crash: String,
    /// Data mode of the pool
    #[arg(long, value_enum, default_value_t = Mode::Atomic)]
    mode: Mode,
}

/// The command that replays a violation.
pub fn command(violation: &Violation) -> String {
    let (mode, workload) = violation
        .workload
        .split_once(": ")
        .unwrap_or(("Atomic", &violation.workload));
    let mode = mode.to_lowercase();
    format!(
        "yat replay --mode {mode} '{workload}' '{}'",
        violation.crash
    )
}

pub fn run(replay: &Replay, json: bool) -> Result<bool, String> {
    let crash: Crash = replay.crash.parse()?;
    let kind = kinds()
        .into_iter()
        .chain(trees::kinds())
        .find(|kind| kind.name == replay.workload);
    let mut sound = true;
    for &mode in replay.mode.modes() {
        let program = match &kind {
            Some(kind) => FileSystem::of_kind(kind, mode),
            None => FileSystem::of_calls(&call::parse(&replay.workload)?, mode),
        };
        let recording = record(&program)?;
        let options = Options {
            depth: crash.images.len() - 1,
            ..Options::default()
        };
        match Explorer::new(&program, &recording, options).replay(&crash) {
            Ok(()) if json => say!("{}", serde_json::json!({ "violation": null })),
            Ok(()) => say!("{mode:?}: nothing is wrong after this crash"),
            Err(violation) => {
                sound = false;
                if json {
                    say!(
                        "{}",
                        serde_json::json!({ "violation": violation.to_string() })
                    );
                } else {
                    say!("{violation}");
                }
            }
        }
    }
    Ok(sound)
}
