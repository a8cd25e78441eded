//! `yat lines`.

use super::show::say;
use clap::Args;
use yat::lines::SCENES;

/// Lists the lines that two processes both write, in calls on things of their own and on the same
/// ones.
#[derive(Debug, Args)]
pub struct Lines {}

pub fn run(_lines: &Lines, json: bool) -> Result<bool, String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    for scene in &SCENES {
        let (shared, all) = scene.play(dir.path()).map_err(|error| error.to_string())?;
        if json {
            let lines: Vec<_> = shared
                .iter()
                .map(|line| serde_json::json!({ "name": line.name, "stores": line.stores }))
                .collect();
            let name = scene.name;
            say!(
                "{}",
                serde_json::json!({ "scene": name, "lines": all, "both": lines })
            );
            continue;
        }
        say!(
            "{}: {all} lines written, {} of them by both",
            scene.name,
            shared.len()
        );
        for line in shared {
            let [first, second] = line.stores;
            say!(
                "    {:<32} {first:.1} and {second:.1} stores a call",
                line.name
            );
        }
    }
    Ok(true)
}
