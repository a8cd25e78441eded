//! `pmep check`

use std::process::ExitCode;

use pmep::Result;
use pmep::device::{Key, Numbers};
use pmep::observe::{Assumptions, Observation, observations};
use pmep::points::Assumed;
use pmep::score::{Statistic, Verdict};
use pmep_cli::study::{self, Planted};
use pmep_cli::{Check, table};
use serde::Serialize;

use crate::speed::{Speed, speeds};
use crate::{Outcome, fitting, predict};

#[derive(Serialize)]
struct Report {
    observations: Vec<Observation>,
    speeds: Vec<Speed>,
    parts: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    part: &'static str,
    goals: Vec<Verdict>,
}

fn print(part: &Part) {
    out!("{}", part.part);
    for verdict in &part.goals {
        let mark = match verdict.met {
            true => "met   ",
            false => "MISSED",
        };
        let (got, unit) = match (verdict.got, verdict.statistic) {
            (None, _) => ("no rows".to_owned(), ""),
            (Some(got), Statistic::Median | Statistic::P90) => (format!("{got:.2}"), " %"),
            (Some(got), _) => (format!("{got:.4}"), ""),
        };
        let statistic = format!("{:?}", verdict.statistic).to_lowercase();
        out!(
            "  {mark} {:<26} {statistic:<9} {got}{unit} (limit {}, {} rows)",
            verdict.name,
            verdict.limit,
            verdict.rows
        );
    }
}

fn print_observations(all: &[Observation]) {
    out!("observations of Izraelevitz et al. 2019, and anchors of Yang et al. 2020");
    for it in all {
        let mark = match it.met {
            true => "met   ",
            false => "MISSED",
        };
        out!(
            "  {mark} {:<50} {:.4} ({} to {})",
            it.name,
            it.got,
            it.low,
            it.high
        );
    }
}

fn print_speed(it: &Speed) {
    let mark = match it.met {
        true => "met   ",
        false => "MISSED",
    };
    out!(
        "  {mark} {}: {:.2} {} (limit {})",
        it.name,
        it.got,
        it.unit,
        it.limit
    );
}

/// Answers by those that are asked for: 1, unless units are mixed up on purpose.
fn scale(arguments: &Check) -> f64 {
    match arguments.planted {
        Some(Planted::Gigabytes) => pmep::analytic::GIB_S,
        _ => 1.0,
    }
}

/// The goals on measured rows, and those of the cross-validation.
fn on_data(
    arguments: &Check,
    numbers: &Numbers,
    assumed: Assumed,
    parts: &mut Vec<Part>,
) -> Result<()> {
    let Some(data) = &arguments.data else {
        return Ok(());
    };
    let mut rows = table::read(data, assumed, true)?;
    if arguments.planted == Some(Planted::SwappedColumns) {
        swap(&mut rows, assumed)?;
    }
    parts.push(Part {
        part: "measured rows",
        goals: study::goals(&rows, numbers, scale(arguments)),
    });
    if !arguments.quick && arguments.planted.is_none() {
        parts.push(Part {
            part: "the same, held out: five fits, by configuration",
            goals: study::cross_validated(&rows, numbers),
        });
        parts.push(Part {
            part: "one model by the other",
            goals: vec![study::events(&rows, numbers)?],
        });
    }
    Ok(())
}

fn swap(rows: &mut [table::Row], assumed: Assumed) -> Result<()> {
    for row in rows
        .iter_mut()
        .filter(|row| row.record.figure == "fast20-4-optane6")
    {
        row.record.op = match row.record.op.as_str() {
            "ntstore" => "store+clwb".to_owned(),
            "store+clwb" => "ntstore".to_owned(),
            other => other.to_owned(),
        };
        row.question = pmep::points::question(&row.record, assumed)?;
    }
    Ok(())
}

pub fn run(arguments: &Check) -> Outcome {
    let mut numbers = fitting::load(&arguments.device)?.numbers;
    if arguments.planted == Some(Planted::Buffer32) {
        numbers.set(Key::BufferLines, 32.0);
    }
    let mut assumed = Assumed::default();
    if arguments.planted == Some(Planted::Interleave8k) {
        assumed.interleave = 8192;
    }
    let taken = Assumptions {
        interleave: assumed.interleave,
        scale: scale(arguments),
        swapped: arguments.planted == Some(Planted::SwappedColumns),
    };
    let mut report = Report {
        observations: observations(&numbers, taken)?,
        speeds: match arguments.speed {
            true => speeds(&numbers)?,
            false => Vec::new(),
        },
        parts: Vec::new(),
    };
    on_data(arguments, &numbers, assumed, &mut report.parts)?;
    match arguments.json {
        true => predict::print_json(&report)?,
        false => {
            print_observations(&report.observations);
            report.speeds.iter().for_each(print_speed);
            report.parts.iter().for_each(print);
        }
    }
    let mut goals = report.parts.iter().flat_map(|part| &part.goals);
    let is_met = report.observations.iter().all(|it| it.met)
        && report.speeds.iter().all(|it| it.met)
        && goals.all(|goal| goal.met);
    Ok(match is_met {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}
