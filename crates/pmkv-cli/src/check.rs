//! `pmkv check`. Exit codes as those of fsck(8): 0 clean, 4 damaged, 8 could not be checked.

use std::process::ExitCode;

use pm_cli::Size;
use pmkv_cli::Check;
use pmlib::{Census, Error};
use serde::Serialize;

use crate::Outcome;
use crate::failure::Failure;
use crate::stat::looked_into;

const DAMAGED: u8 = 4;
const COULD_NOT_RUN: u8 = 8;

/// The JSON is an interface: fields may be added, not renamed.
#[derive(Serialize)]
struct Report {
    heap: String,
    clean: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
    objects: u64,
    object_bytes: u64,
    spare_bytes: u64,
    free_bytes: u64,
    own_bytes: u64,
}

pub fn run(arguments: &Check) -> Outcome {
    let path = &arguments.heap;
    let checked = looked_into(path).and_then(|heap| {
        let census = heap.check()?;
        heap.close()?;
        Ok(census)
    });
    let (census, damage) = match checked {
        Ok(census) => (census, None),
        // Damage that keeps a heap from being opened is a finding as well.
        Err(error @ Error::Damaged { .. }) => (Census::default(), Some(error.to_string())),
        Err(error) => return Err(Failure::heap(path, &error).with_code(COULD_NOT_RUN)),
    };
    let report = Report {
        heap: path.display().to_string(),
        clean: damage.is_none(),
        damage,
        objects: census.objects,
        object_bytes: census.object_bytes,
        spare_bytes: census.spare_bytes,
        free_bytes: census.free_bytes,
        own_bytes: census.own_bytes,
    };
    pm_cli::print(arguments.json, &report, Report::text)?;
    Ok(match report.clean {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DAMAGED),
    })
}

impl Report {
    fn text(&self) -> String {
        let heap = &self.heap;
        match &self.damage {
            Some(damage) => format!("{heap}: {damage}"),
            None => format!(
                "{heap}: clean, {} objects of {} ({} more in their chunks), {} free, {} of the heap's own",
                self.objects,
                Size(self.object_bytes),
                Size(self.spare_bytes),
                Size(self.free_bytes),
                Size(self.own_bytes)
            ),
        }
    }
}
