//! The page: charts with their errors, and the rows that are furthest off.

use std::fmt::Write as _;

use pmep::score::quantile;

use super::chart::{draw, escape, short};
use super::{Panel, Point, Series};

const STYLE: &str = "body{font:14px/1.45 sans-serif;max-width:1130px;margin:2em auto;padding:0 1em}\
main{display:flex;flex-wrap:wrap;gap:1.5em}figure{margin:0;width:520px}\
svg text{font-size:11px;fill:#555}svg line{stroke:#ddd}polyline{fill:none;stroke-width:1.6}\
polyline.s0{stroke:#b3261e}polyline.s1{stroke:#1f5fa8}polyline.s2{stroke:#2e7d32}polyline.s3{stroke:#8e44ad}\
polyline.s4{stroke:#b26a00}polyline.s5{stroke:#444}circle.s0,b.s0{fill:#b3261e;color:#b3261e}\
circle.s1,b.s1{fill:#1f5fa8;color:#1f5fa8}circle.s2,b.s2{fill:#2e7d32;color:#2e7d32}\
circle.s3,b.s3{fill:#8e44ad;color:#8e44ad}circle.s4,b.s4{fill:#b26a00;color:#b26a00}\
circle.s5,b.s5{fill:#444;color:#444}td,th{padding:.1em .7em;text-align:right}\
td:first-child,th:first-child{text-align:left}";

/// The whole page.
pub(super) fn page(
    device: &str,
    panels: &[Panel],
    here: &str,
    worst: &[(&Panel, &Series, &Point)],
) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>pmep: {0}</title>\
         <style>{STYLE}</style><h1>{0}: measured and modelled</h1>\
         <p>Dots are measured, lines are the model. {1}</p><main>",
        escape(device),
        escape(here)
    );
    for panel in panels {
        figure(&mut page, panel);
    }
    page.push_str(
        "</main><h2>Furthest off</h2><table><tr><th>chart<th>series<th>at<th>measured\
         <th>model<th>error<th>line",
    );
    for (panel, series, point) in worst {
        let _ = write!(
            page,
            "<tr><td>{}<td>{}<td>{}<td>{} {unit}<td>{} {unit}<td>{:+.0} %<td>{}",
            escape(&panel.title),
            escape(&series.name),
            short(point.x, panel.axis.starts_with("bytes")),
            short(point.measured, false),
            short(point.model, false),
            point.error() * 100.0,
            point.line,
            unit = escape(panel.unit),
        );
    }
    page + "</table></html>\n"
}

fn figure(page: &mut String, panel: &Panel) {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let mut errors: Vec<f64> = points().map(|point| point.error().abs() * 100.0).collect();
    errors.sort_by(f64::total_cmp);
    let _ = write!(
        page,
        "<figure><h3>{}</h3>{}<figcaption>{}; error {:.1} % in the median, {:.1} % at the 90th \
         percentile of {} points<br>",
        escape(&panel.title),
        draw(panel),
        escape(panel.unit),
        quantile(&errors, 0.5).unwrap_or(0.0),
        quantile(&errors, 0.9).unwrap_or(0.0),
        errors.len()
    );
    for (style, series) in panel.series.iter().enumerate() {
        let _ = write!(
            page,
            "<b class=\"s{style}\">&#9679; {}</b> ",
            escape(&series.name)
        );
    }
    page.push_str("</figcaption></figure>");
}
