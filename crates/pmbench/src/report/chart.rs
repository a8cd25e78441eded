//! Charts as inline SVG, as wide as a phone, in the colours of the page (classes, CSS variables),
//! so that they follow light, dark and print.
//!
//! No library draws them, as drawing libraries use fixed colours. Values are written beside bars,
//! and lines have marks of different shapes, so that a reader need not tell colours apart.

use super::summary::{Figure, Measured, STYLES};
use super::table::figure as digits;
use crate::experiments::experiment::Kind;
use std::fmt::Write;

/// The rules that charts need, in variables of the page.
pub const STYLE: &str = include_str!("chart.css");
/// Width in pixels of CSS: fits a phone as it is.
pub const WIDTH: f64 = 352.0;
/// The heights of a bar, of the name above a point's bars, and of the gap below them.
const BAR: f64 = 13.0;
const NAME: f64 = 17.0;
const GAP: f64 = 9.0;
/// The height of a panel of lines.
const LINES_HEIGHT: f64 = 262.0;
/// From this ratio of the largest to the smallest on, lines get a logarithmic axis.
const LOG_FROM: f64 = 12.0;

/// Draws a panel: the points that have one value of the panel's parameter.
pub fn draw(figure: &Figure, points: &[&Measured]) -> String {
    match figure.experiment.chart.kind {
        Kind::Bars => bars(figure, points),
        Kind::Lines => lines(figure, points),
    }
}

/// Returns how high a panel is, in the same pixels.
pub fn height(figure: &Figure, points: &[&Measured]) -> f64 {
    match figure.experiment.chart.kind {
        Kind::Bars => group(figure) * points.len() as f64,
        Kind::Lines => LINES_HEIGHT,
    }
}

/// The height of a point's name and bars.
fn group(figure: &Figure) -> f64 {
    NAME + BAR * figure.series.len() as f64 + GAP
}

/// A series's mark, as legends show it.
pub fn legend_mark(style: usize) -> String {
    let shape = mark(style, 9.0, 7.0);
    format!(
        "<svg class=\"key\" width=\"18\" height=\"14\" viewBox=\"0 0 18 14\" aria-hidden=\"true\">{shape}</svg>"
    )
}

fn label<'a>(figure: &Figure, point: &'a Measured) -> &'a str {
    point
        .labels
        .get(&figure.experiment.chart.x)
        .map_or("", String::as_str)
}

fn largest(points: &[&Measured]) -> f64 {
    let cells = points.iter().flat_map(|point| &point.cells);
    cells
        .filter_map(|cell| Some(cell.spread()?.most))
        .fold(0.0, f64::max)
}

fn smallest(points: &[&Measured]) -> f64 {
    let cells = points.iter().flat_map(|point| &point.cells);
    cells
        .filter_map(|cell| Some(cell.spread()?.least))
        .fold(f64::INFINITY, f64::min)
}

fn open(height: f64, title: &str) -> String {
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">",
        escape(title)
    )
}

fn bars(figure: &Figure, points: &[&Measured]) -> String {
    // Room for the value behind the longest bar.
    const LONGEST: f64 = WIDTH - 84.0;
    let group = group(figure);
    let mut svg = open(height(figure, points), &figure.experiment.title);
    let scale = LONGEST / largest(points).max(f64::MIN_POSITIVE);
    for (number, point) in points.iter().enumerate() {
        let top = number as f64 * group;
        let _ = write!(
            svg,
            "<text class=\"name\" x=\"0\" y=\"{:.1}\">{}</text>",
            top + 12.0,
            escape(label(figure, point))
        );
        for (series, cell) in point.cells.iter().enumerate() {
            let y = top + NAME + series as f64 * BAR;
            let text_y = y + 9.5;
            let Some(spread) = cell.spread() else {
                let _ = write!(
                    svg,
                    "<text class=\"value none\" x=\"3\" y=\"{text_y:.1}\">not measured</text>"
                );
                continue;
            };
            let [least, median, most] =
                [spread.least, spread.median, spread.most].map(|value| value * scale);
            let class = class('b', figure.series[series].style);
            let ours = if figure.series[series].ours {
                " ours"
            } else {
                ""
            };
            let _ = write!(
                svg,
                "<rect class=\"{class}{ours}\" x=\"0\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
                 <path class=\"spread\" d=\"M{least:.1} {mid:.1}H{most:.1}\"/>\
                 <text class=\"value{ours}\" x=\"{:.1}\" y=\"{text_y:.1}\">{}</text>",
                median.max(1.0),
                BAR - 2.0,
                most.max(median) + 4.0,
                digits(spread.median),
                mid = y + 5.5,
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

/// Values to heights.
struct Axis {
    log: bool,
    least: f64,
    most: f64,
}

impl Axis {
    const TOP: f64 = 10.0;
    const BOTTOM: f64 = 216.0;
    const LEFT: f64 = 44.0;
    const RIGHT: f64 = WIDTH - 10.0;

    fn of(points: &[&Measured]) -> Axis {
        let (least, most) = (smallest(points), largest(points));
        let log = most / least > LOG_FROM;
        Axis {
            log,
            least: if log { least / 1.3 } else { 0.0 },
            most: most * if log { 1.3 } else { 1.05 },
        }
    }

    fn y(&self, value: f64) -> f64 {
        let part = match self.log {
            true => (value / self.least).ln() / (self.most / self.least).ln(),
            false => (value - self.least) / (self.most - self.least),
        };
        Axis::BOTTOM - part * (Axis::BOTTOM - Axis::TOP)
    }

    /// Round values between the ends.
    fn ticks(&self) -> Vec<f64> {
        let decade = 10f64.powf(self.most.log10().floor());
        let steps: Vec<f64> = match self.log {
            true => {
                let decades = (-12..=12).map(|power| 10f64.powi(power));
                let wide = self.most / self.least > 200.0;
                let each: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
                decades
                    .flat_map(|decade| each.iter().map(move |by| decade * by))
                    .collect()
            }
            false => {
                let step = [0.2, 0.5, 1.0, 2.0].map(|by| by * decade);
                let step = step
                    .into_iter()
                    .find(|step| self.most / step <= 6.0)
                    .unwrap_or(decade);
                (0..=6).map(|number| f64::from(number) * step).collect()
            }
        };
        steps
            .into_iter()
            .filter(|value| (self.least..=self.most).contains(value))
            .collect()
    }
}

fn lines(figure: &Figure, points: &[&Measured]) -> String {
    let mut svg = open(LINES_HEIGHT, &figure.experiment.title);
    if largest(points) <= 0.0 {
        svg.push_str("<text class=\"value none\" x=\"3\" y=\"20\">not measured</text></svg>");
        return svg;
    }
    let axis = Axis::of(points);
    for tick in axis.ticks() {
        let y = axis.y(tick);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{} {y:.1}H{}\"/><text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            Axis::LEFT,
            Axis::RIGHT,
            Axis::LEFT - 5.0,
            y + 3.5,
            short(tick),
        );
    }
    let x_of = |number: usize| {
        let step = (Axis::RIGHT - Axis::LEFT - 24.0) / (points.len().max(2) - 1) as f64;
        Axis::LEFT + 12.0 + number as f64 * step
    };
    for (number, point) in points.iter().enumerate() {
        // Names of many points would run into each other.
        let lower = if points.len() > 5 && number % 2 == 1 {
            12.0
        } else {
            0.0
        };
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x_of(number),
            Axis::BOTTOM + 15.0 + lower,
            escape(label(figure, point)),
        );
    }
    let title = escape(&figure.experiment.chart.x_title);
    let _ = write!(
        svg,
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{title}</text>",
        (Axis::LEFT + Axis::RIGHT) / 2.0,
        LINES_HEIGHT - 5.0
    );
    // PMFS last, above the others.
    for series in (0..figure.series.len()).rev() {
        svg.push_str(&line(figure, points, &axis, series, &x_of));
    }
    svg.push_str("</svg>");
    svg
}

fn line(
    figure: &Figure,
    points: &[&Measured],
    axis: &Axis,
    series: usize,
    x_of: &dyn Fn(usize) -> f64,
) -> String {
    let style = figure.series[series].style;
    let (mut path, mut marks) = (String::new(), String::new());
    for (number, point) in points.iter().enumerate() {
        let Some(spread) = point.cells[series].spread() else {
            continue;
        };
        let (x, y) = (x_of(number), axis.y(spread.median));
        let _ = write!(
            path,
            "{}{x:.1} {y:.1}",
            if path.is_empty() { "M" } else { "L" }
        );
        let (low, high) = (axis.y(spread.least), axis.y(spread.most));
        let _ = write!(
            marks,
            "<path class=\"l{}\" d=\"M{x:.1} {low:.1}V{high:.1}\"/>{}",
            style % STYLES,
            mark(style, x, y)
        );
    }
    let ours = if figure.series[series].ours {
        " ours"
    } else {
        ""
    };
    let class = class('l', style);
    format!("<path class=\"line {class}{ours}\" d=\"{path}\"/>{marks}")
}

/// The classes of a series's bars and lines.
fn class(kind: char, style: usize) -> String {
    let second = if style < STYLES { "" } else { " second" };
    format!("{kind}{}{second}", style % STYLES)
}

fn mark(style: usize, x: f64, y: f64) -> String {
    // Marks of the first set are filled but for one, those of the second set hollow but for that.
    let is_hollow = (style < STYLES) == (style % STYLES == 1);
    let class = match is_hollow {
        true => format!("class=\"hollow l{}\"", style % STYLES),
        false => format!("class=\"b{}\"", style % STYLES),
    };
    match style % STYLES {
        0 => format!("<circle {class} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
        1 => format!("<circle {class} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"),
        2 => format!(
            "<rect {class} x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\"/>",
            x - 3.5,
            y - 3.5
        ),
        3 => format!("<path {class} d=\"M{x:.1} {:.1}l4.5 8h-9z\"/>", y - 4.5),
        4 => format!("<path {class} d=\"M{x:.1} {:.1}l5 5-5 5-5-5z\"/>", y - 5.0),
        5 => format!("<path {class} d=\"M{x:.1} {:.1}l4.5-8h-9z\"/>", y + 4.5),
        6 => format!(
            "<path {class} d=\"M{:.1} {:.1}h9v3h-9z\"/>",
            x - 4.5,
            y - 1.5
        ),
        _ => format!(
            "<path {class} d=\"M{:.1} {:.1}h3v9h-3z\"/>",
            x - 1.5,
            y - 4.5
        ),
    }
}

/// A tick in few letters.
fn short(value: f64) -> String {
    match value {
        1e9.. => format!("{}G", value / 1e9),
        1e6.. => format!("{}M", value / 1e6),
        1e4.. => format!("{}k", value / 1e3),
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

/// Escapes a text for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_between_the_ends() {
        let log = Axis {
            log: true,
            least: 30.0,
            most: 9000.0,
        };
        assert_eq!(log.ticks(), [100.0, 1000.0]);
        let linear = Axis {
            log: false,
            least: 0.0,
            most: 1.05,
        };
        assert_eq!(
            linear.ticks(),
            [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
        );
        for tick in log.ticks() {
            assert!((Axis::TOP..=Axis::BOTTOM).contains(&log.y(tick)));
        }
    }
}
