//! Each figure as an SVG file of its own, for a paper or slides: all its panels, its key and its
//! unit, in the colours of the page by day.

use super::chart::{self, escape, legend_mark};
use super::page::{self, panels};
use super::summary::{Figure, Summary};
use anyhow::Context;
use std::fmt::Write;
use std::path::Path;

/// Between panels, and around all, in pixels.
const GAP: f64 = 22.0;
/// A line of text.
const LINE: f64 = 17.0;
/// Panels beside each other, at most.
const COLUMNS: usize = 2;

/// Writes `NAME.svg` of each figure into a directory, which is made if need be.
pub fn write(summary: &Summary, dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("{} can't be made", dir.display()))?;
    let style = style();
    for figure in &summary.figures {
        let path = dir.join(format!("{}.svg", figure.experiment.name));
        let written = std::fs::write(&path, svg(figure, &style));
        written.with_context(|| format!("{} can't be written", path.display()))?;
    }
    Ok(())
}

/// The rules of charts, with colours for the page's variables: few programs but browsers know
/// those.
fn style() -> String {
    let mut style = chart::STYLE.replace('\n', "");
    // The first block of variables is that of the day.
    let day = page::STYLE.split(['{', '}']).nth(1).unwrap_or("");
    for (name, colour) in day.split(';').filter_map(|line| line.split_once(':')) {
        style = style.replace(&format!("var({})", name.trim()), colour.trim());
    }
    style
}

fn svg(figure: &Figure, style: &str) -> String {
    let experiment = &figure.experiment;
    let panels = panels(figure);
    let columns = panels.len().clamp(1, COLUMNS) as f64;
    let width = 2.0 * GAP + columns * chart::WIDTH + (columns - 1.0) * GAP;
    let mut inside = String::new();
    let mut y = GAP;
    let text = |inside: &mut String, class: &str, x: f64, y: f64, text: &str| {
        let (class, y, text) = (class, y + 12.0, escape(text));
        let _ = write!(
            inside,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>"
        );
    };
    let source = format!("{}, {}", experiment.source, experiment.figure);
    text(&mut inside, "name", GAP, y, &experiment.title);
    text(&mut inside, "tick", GAP, y + LINE, &source);
    text(&mut inside, "tick", GAP, y + 2.0 * LINE, &experiment.unit);
    y += 3.5 * LINE;
    for series in &figure.series {
        let at = format!("<svg x=\"{GAP}\" y=\"{y}\"");
        inside.push_str(&legend_mark(series.style).replacen("<svg", &at, 1));
        text(&mut inside, "value", GAP + 24.0, y - 1.0, &series.name);
        y += LINE;
    }
    for row in panels.chunks(COLUMNS) {
        y += GAP;
        for (column, (name, points)) in row.iter().enumerate() {
            let x = GAP + column as f64 * (chart::WIDTH + GAP);
            text(&mut inside, "name", x, y, name.as_deref().unwrap_or(""));
            let height = chart::height(figure, points);
            let at = format!(
                "<svg x=\"{x}\" y=\"{}\" width=\"{}\" height=\"{height}\"",
                y + LINE,
                chart::WIDTH
            );
            // The class's width is that of a chart which stands alone.
            let drawn = chart::draw(figure, points).replacen(" class=\"chart\"", "", 1);
            inside.push_str(&drawn.replacen("<svg", &at, 1));
        }
        let heights = row.iter().map(|(_, points)| chart::height(figure, points));
        y += LINE + heights.fold(0.0, f64::max);
    }
    let height = y + GAP;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\">\
         <style>svg{{font-family:\"DejaVu Sans\",sans-serif}}{style}.chart{{max-width:none}}</style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>{inside}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a file needs nothing but itself. Method: no variable of the page is left in its rules,
    /// and the colours are.
    #[test]
    fn no_variable_is_left() {
        let style = style();
        assert!(!style.contains("var("), "{style}");
        assert!(style.contains(".b0 { fill: #b3261e; }"), "{style}");
        assert!(style.contains(".grid { stroke: #d9dce0;"), "{style}");
    }
}
