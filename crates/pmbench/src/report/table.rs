//! A run on a terminal.

use super::summary::{Cell, Figure, Summary};
use crate::experiments::experiment::Point;

/// Prints it.
pub fn print(summary: &Summary) {
    for figure in &summary.figures {
        print_figure(figure);
    }
    println!("\n{}", summary.noise.text());
}

fn print_figure(figure: &Figure) {
    let experiment = &figure.experiment;
    println!(
        "\n{}: {} ({})",
        experiment.name, experiment.title, experiment.unit
    );
    let names = figure.series.iter().map(|one| format!("{:>22}", one.name));
    println!("{:<32}{}", "", names.collect::<String>());
    for point in &figure.points {
        let cells = point
            .cells
            .iter()
            .map(|cell| format!(" {:>21}", text(cell)));
        println!(
            "{:<32}{}",
            Point::text(&point.labels),
            cells.collect::<String>()
        );
    }
    for (number, ours) in figure.ours().into_iter().enumerate() {
        let losses = figure.losses(ours);
        for loss in losses
            .iter()
            .take(if number == 0 { losses.len() } else { 1 })
        {
            println!("  {}", loss.text());
        }
        if number > 0 && losses.len() > 1 {
            println!("  and {} more like this", losses.len() - 1);
        }
    }
}

fn text(cell: &Cell) -> String {
    match cell.spread() {
        Some(spread) => format!(
            "{} ({}-{})",
            figure(spread.median),
            figure(spread.least),
            figure(spread.most)
        ),
        None => "-".into(),
    }
}

/// A figure with three digits that count.
pub fn figure(value: f64) -> String {
    let digits = 2 - value.abs().max(1e-6).log10().floor() as i32;
    match digits {
        ..=0 => format!("{value:.0}"),
        digits => format!("{value:.*}", digits as usize),
    }
}

/// Formats a factor, with as many digits as are worth reading.
pub fn times(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}x"),
        10.0.. => format!("{value:.1}x"),
        _ => format!("{value:.2}x"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_have_three_digits() {
        for (value, text) in [
            (1234.5, "1234"),
            (123.4, "123"),
            (1.234, "1.23"),
            (0.012_34, "0.0123"),
        ] {
            assert_eq!(super::figure(value), text);
        }
    }
}
