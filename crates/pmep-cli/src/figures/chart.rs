//! A chart as inline SVG: dots are measured, lines are the model.

use std::fmt::Write as _;

use super::Panel;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 58.0;
const BOTTOM: f64 = 40.0;
const MARGIN: f64 = 12.0;
/// From this ratio of the greatest to the least on, an axis is logarithmic.
const LOG_FROM: f64 = 20.0;

/// An axis: from values to pixels.
struct Axis {
    least: f64,
    most: f64,
    is_log: bool,
}

impl Axis {
    /// An axis of all values; one of few sizes begins at 0.
    fn of(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        let is_log = least > 0.0 && most / least >= LOG_FROM;
        let least = if is_log { least } else { least.min(0.0) };
        let most = if most > least { most } else { least + 1.0 };
        Axis {
            least,
            most,
            is_log,
        }
    }

    /// The place of a value, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        match self.is_log {
            true => (value / self.least).ln() / (self.most / self.least).ln(),
            false => (value - self.least) / (self.most - self.least),
        }
    }

    /// The value at a place.
    fn value(&self, place: f64) -> f64 {
        match self.is_log {
            true => self.least * (self.most / self.least).powf(place),
            false => self.least + place * (self.most - self.least),
        }
    }
}

/// A number in few digits, bytes in units of 1024.
pub(super) fn short(value: f64, is_bytes: bool) -> String {
    for (unit, name) in [(1_073_741_824.0, "G"), (1_048_576.0, "M"), (1024.0, "K")] {
        if is_bytes && value >= unit {
            return format!("{:.3}", value / unit)
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
                + name;
        }
    }
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Text that HTML shows as it is.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A panel's chart.
pub(super) fn draw(panel: &Panel) -> String {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let across = Axis::of(points().map(|point| point.x));
    let up = Axis::of(points().flat_map(|point| [point.measured, point.model]));
    let x = |value: f64| LEFT + across.place(value) * (WIDTH - LEFT - MARGIN);
    let y = |value: f64| HEIGHT - BOTTOM - up.place(value) * (HEIGHT - BOTTOM - MARGIN);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    grid(&mut svg, panel, (&across, &up));
    for (style, series) in panel.series.iter().enumerate() {
        let line: Vec<String> = (series.points.iter())
            .map(|point| format!("{:.1},{:.1}", x(point.x), y(point.model)))
            .collect();
        let _ = write!(
            svg,
            "<polyline class=\"s{style}\" points=\"{}\"/>",
            line.join(" ")
        );
        for point in &series.points {
            let (x, y) = (x(point.x), y(point.measured));
            let _ = write!(
                svg,
                "<circle class=\"s{style}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
            );
        }
    }
    svg + "</svg>"
}

fn grid(svg: &mut String, panel: &Panel, (across, up): (&Axis, &Axis)) {
    let is_bytes = panel.axis.starts_with("bytes");
    for step in 0..=4 {
        let place = f64::from(step) / 4.0;
        let y = HEIGHT - BOTTOM - place * (HEIGHT - BOTTOM - MARGIN);
        let x = LEFT + place * (WIDTH - LEFT - MARGIN);
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            WIDTH - MARGIN,
            LEFT - 5.0,
            y + 4.0,
            short(up.value(place), false),
            HEIGHT - BOTTOM + 15.0,
            short(across.value(place), is_bytes),
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, WIDTH),
        HEIGHT - 6.0,
        escape(panel.axis)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: places lie within the chart, and lead back to their values. Method: axes of both
    /// kinds.
    #[test]
    fn places_are_those_of_values() {
        for values in [
            vec![1.0, 1e6],
            vec![2.0, 3.0, 4.0],
            vec![5.0],
            vec![0.0, 100.0],
        ] {
            let axis = Axis::of(values.iter().copied());
            for value in &values {
                let place = axis.place(*value);
                assert!((0.0..=1.0).contains(&place), "{values:?}: {place}");
                assert!(
                    (axis.value(place) - value).abs() <= 1e-9 * value.abs(),
                    "{values:?}"
                );
            }
        }
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (64.0, true, "64"),
            (16_384.0, true, "16K"),
            (0.25, false, "0.25"),
        ];
        for (value, is_bytes, text) in cases {
            assert_eq!(short(value, is_bytes), text);
        }
        assert_eq!(short(25_000.0, false), "25000");
    }
}
