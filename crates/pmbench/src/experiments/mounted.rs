//! A target that stands ready for an experiment, and is taken down when it is dropped, however the run ends.

use super::scope::Scope;
use super::shell::{Stop, run};
use anyhow::Context;
use std::time::Duration;

/// Taking down must not hang a run.
const DOWN: Duration = Duration::from_secs(120);

/// Ready.
pub struct Mounted<'a> {
    /// The experiment on it.
    pub scope: Scope<'a>,
}

impl<'a> Mounted<'a> {
    /// Makes and mounts it, and does what the experiment prepares.
    pub fn new(scope: Scope<'a>, stop: &Stop) -> anyhow::Result<Mounted<'a>> {
        std::fs::create_dir_all(&scope.places.place)?;
        // From here on it is taken down, also if a step fails.
        let mounted = Mounted { scope };
        let (target, experiment) = (mounted.scope.target, mounted.scope.experiment);
        let timeout = Duration::from_secs(experiment.timeout_s);
        let make_dir = "mkdir -p {dir}".to_owned();
        let steps = target.make.iter().chain(&target.mount);
        let steps = steps.chain([&make_dir]).chain(&experiment.steps.prepare);
        for step in steps {
            let command = mounted.scope.command(step, None)?;
            let ran = run(&command, timeout, stop);
            ran.with_context(|| format!("making {} ready", target.name))?;
        }
        Ok(mounted)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        for step in &self.scope.target.unmount {
            let command = self.scope.command(step, None);
            let done = command.and_then(|command| run(&command, DOWN, &Stop::default()));
            if let Err(why) = done {
                eprintln!("pmbench: taking {} down: {why:#}", self.scope.target.name);
            }
        }
    }
}
