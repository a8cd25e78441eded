//! Completions for bash, zsh and fish, each under the name by which its shell looks for it.

use std::fs::{self, File};
use std::path::Path;

use anyhow::Result;
use clap::Command;
use clap_complete::{Generator, Shell, generate};

/// Writes `pmfs` (bash), `_pmfs` (zsh) and `pmfs.fish` into `dir`, which is made if need be, and
/// the same of the other programs.
///
/// # Errors
/// Files that can't be written.
pub fn write(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    for program in crate::programs() {
        let called = program.get_name().to_owned();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let name = match shell {
                Shell::Bash => called.clone(),
                other => other.file_name(&called),
            };
            let mut file = File::create(dir.join(name))?;
            generate(shell, &mut shown(&program), &called, &mut file);
        }
    }
    Ok(())
}

/// Without what help doesn't show either: clap_complete offers all.
fn shown(command: &Command) -> Command {
    let mut copy = Command::new(kept(command.get_name()))
        .args(command.get_arguments().filter(|it| !it.is_hide_set()))
        .subcommands(
            command
                .get_subcommands()
                .filter(|it| !it.is_hide_set())
                .map(shown),
        );
    let has = |id| copy.get_arguments().any(|it| it.get_id() == id);
    let groups = command.get_groups();
    let whole: Vec<_> = groups
        .filter(|group| group.get_args().all(has))
        .cloned()
        .collect();
    copy = copy.groups(whole);
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        copy = copy.version(kept(version));
    }
    copy
}

/// clap wants names for ever, and this program ends soon.
fn kept(name: &str) -> &'static str {
    name.to_owned().leak()
}
