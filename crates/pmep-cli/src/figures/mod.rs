//! `pmep figures`: measured points and the model on one page. The points stay in their file: the
//! page is its reader's own.

mod chart;
mod page;
mod panels;

use std::path::PathBuf;
use std::process::ExitCode;

use pmep::points::Assumed;
use pmep::{BadInput, Result};
use pmep_cli::{Figures, table};

use crate::{Outcome, fitting};

/// Rows that are listed with the greatest errors.
const WORST: usize = 20;

/// A measured point and the model's answer.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    /// The place on the axis: bytes, threads, ns of delay.
    x: f64,
    measured: f64,
    model: f64,
    /// The row's line in the file.
    line: u64,
}

impl Point {
    /// The error by the measured value, a share.
    fn error(&self) -> f64 {
        self.model / self.measured - 1.0
    }
}

/// Points that a line joins.
#[derive(Clone, Debug, PartialEq)]
struct Series {
    name: String,
    points: Vec<Point>,
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
struct Panel {
    title: String,
    axis: &'static str,
    unit: &'static str,
    series: Vec<Series>,
}

pub fn run(arguments: &Figures) -> Outcome {
    let device = fitting::load(&arguments.device)?;
    if device.plain.is_some() {
        return Err(BadInput::new(
            "--device",
            format!("`{}` is not fitted to points", device.name),
            "give a device of modules, like optane-100",
        ));
    }
    let named = std::env::var_os("PMEP_DATA").map(PathBuf::from);
    let data = arguments.data.clone().or(named).ok_or_else(|| {
        BadInput::new(
            "--data",
            "no measured points",
            "give a CSV file, or name it in PMEP_DATA",
        )
    })?;
    let rows = table::read(&data, Assumed::default(), true)?;
    let mut all = panels::of(&rows, &device.numbers);
    all.extend(panels::write_ratio(&rows, &device.numbers));
    if all.is_empty() {
        return Err(BadInput::new(
            data.display().to_string(),
            "no row that the model answers belongs to a figure",
            "give a file of published points with the column `figure`",
        ));
    }
    all.push(panels::memory_mode()?);
    let page = page::page(&device.name, &all, &here(), &worst(&all));
    write(arguments, &page)?;
    eprintln!("{} charts", all.len());
    Ok(ExitCode::SUCCESS)
}

fn write(arguments: &Figures, page: &str) -> Result<()> {
    std::fs::write(&arguments.output, page).map_err(|error| {
        let place = arguments.output.display().to_string();
        BadInput::new(place, error.to_string(), "give a place that can be written")
    })
}

/// This machine's memory, in words.
fn here() -> String {
    let memory = crate::doctor::memory();
    format!(
        "This machine's memory: {:.0} ns for a random read, {:.1} GiB/s for sequential reads of one thread.",
        memory.random_ns, memory.read_gib_s
    )
}

/// The points with the greatest errors, greatest first, with their panel's and series's names.
fn worst(panels: &[Panel]) -> Vec<(&Panel, &Series, &Point)> {
    let mut all: Vec<_> = (panels.iter())
        .flat_map(|panel| panel.series.iter().map(move |series| (panel, series)))
        .flat_map(|(panel, series)| {
            series
                .points
                .iter()
                .map(move |point| (panel, series, point))
        })
        .filter(|(.., point)| point.measured > 0.0)
        .collect();
    let far = |point: &Point| (point.model / point.measured).ln().abs();
    all.sort_by(|a, b| far(b.2).total_cmp(&far(a.2)).then(a.2.line.cmp(&b.2.line)));
    all.truncate(WORST);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the rows that are furthest off are listed, too high or too low.
    #[test]
    fn the_worst_come_first() {
        let point = |line, model| Point {
            x: 1.0,
            measured: 10.0,
            model,
            line,
        };
        let panel = Panel {
            title: String::new(),
            axis: "",
            unit: "",
            series: vec![Series {
                name: String::new(),
                points: (1..40)
                    .map(|line| point(line, 10.0 + line as f64))
                    .chain([point(99, 0.1)])
                    .collect(),
            }],
        };
        let panels = [panel];
        let worst = worst(&panels);
        assert_eq!(worst.len(), WORST);
        assert_eq!((worst[0].2.line, worst[1].2.line), (99, 39));
    }
}
