//! A target that stands ready for an experiment, and is taken down when it is dropped, however the
//! run ends.

use super::results::Outcome;
use super::scope::Scope;
use super::shell::{Stop, run};
use std::time::Duration;

/// Taking down must not hang a run.
const DOWN: Duration = Duration::from_secs(120);

/// Ready.
pub struct Mounted<'a> {
    /// The experiment on it.
    pub scope: Scope<'a>,
}

impl<'a> Mounted<'a> {
    /// Makes and mounts it, sees whether it can do what is measured, and does what the experiment
    /// prepares.
    pub fn new(scope: Scope<'a>, stop: &Stop) -> Result<Mounted<'a>, Outcome> {
        // From here on it is taken down, also if a step fails.
        let mounted = Mounted { scope };
        let (target, steps) = (mounted.scope.target, &mounted.scope.experiment.steps);
        let failed = |why: anyhow::Error| {
            let reason = format!("making {} ready: {why:#}", target.name);
            Outcome::Error { reason }
        };
        let make_dir = "mkdir -p {dir}".to_owned();
        std::fs::create_dir_all(&mounted.scope.places.place).map_err(|why| failed(why.into()))?;
        let made = target.make.iter().chain(&target.mount);
        mounted
            .each(made.chain([&make_dir]), stop)
            .map_err(failed)?;
        mounted.each(&steps.trial, stop).map_err(|why| {
            let reason = format!("{} can't do this: {why:#}", target.name);
            Outcome::Skipped { reason }
        })?;
        mounted.each(&steps.prepare, stop).map_err(failed)?;
        Ok(mounted)
    }

    fn each<'b>(
        &self,
        steps: impl IntoIterator<Item = &'b String>,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        let timeout = Duration::from_secs(self.scope.experiment.timeout_s);
        for step in steps {
            run(&self.scope.command(step, None)?, timeout, stop)?;
        }
        Ok(())
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
