//! A run as one HTML file that needs nothing else: where PMFS loses first, then each figure beside
//! what its source claims.

use super::chart::{STYLE as CHARTS, draw, escape, legend_mark};
use super::summary::{Cell, Figure, Loss, Measured, Series, Summary, Times};
use super::table::{figure as digits, times as times_text};
use crate::experiments::experiment::{Better, Point};
use anyhow::Context;
use std::fmt::Write;
use std::path::Path;

/// The page's own rules, which may change those of charts.
pub(super) const STYLE: &str = include_str!("page.css");
/// The number of a figure's losses that are told before the rest is folded away.
const TOLD: usize = 5;
/// The target that is PMFS through its mount.
const MOUNT: &str = "pmfs-mount";

/// Writes it.
pub fn write(summary: &Summary, path: &Path) -> anyhow::Result<()> {
    let written = std::fs::write(path, html(summary));
    written.with_context(|| format!("{} can't be written", path.display()))
}

fn html(summary: &Summary) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>PMFS: the papers' experiments, redone</title>\
         <style>{CHARTS}{STYLE}</style></head><body><main>\n<h1>PMFS: the papers' experiments, redone</h1>\n"
    );
    let machine = &summary.machine;
    let kind = kind(summary);
    let virtual_machine = machine
        .virtual_machine
        .as_deref()
        .map_or(String::new(), |kind| {
            format!(", a virtual machine ({kind})")
        });
    let _ = writeln!(
        page,
        "<p class=\"lead\">{}; {kind}. {} processors of {}{}, {:.0} GiB, Linux {}. DRAM stands in for persistent memory unless a figure says otherwise.</p>",
        escape(&machine.date),
        machine.processors,
        escape(&machine.processor),
        escape(&virtual_machine),
        machine.memory_mib as f64 / 1024.0,
        escape(&machine.kernel),
    );
    overview(&mut page, summary);
    for figure in &summary.figures {
        section(&mut page, figure, summary.asked.quick);
    }
    about(&mut page, summary);
    page.push_str("</main></body></html>\n");
    page
}

/// Returns what kind of run it was, and whether of everything.
fn kind(summary: &Summary) -> String {
    let sizes = match summary.asked.quick {
        true => "a quick run: small sizes, few rounds",
        false => "a full run",
    };
    let (some, all) = (summary.figures.len(), summary.experiments);
    match some < all {
        true => format!("part of {sizes}, {some} of {all} experiments"),
        false => sizes.into(),
    }
}

/// All ratios in one table: each figure against each peer.
fn overview(page: &mut String, summary: &Summary) {
    page.push_str(
        "<h2>Where PMFS loses, and wins</h2>\n<p>At how many points another is better than PMFS, whose calls are served in the program; how many times as good \
         PMFS is, in the median of all points, and from the worst to the best; at how many it loses through its mount.</p>\n<div class=\"wide\"><table><thead><tr>\
         <th>figure</th><th>against</th><th>loses</th><th>median</th><th>worst to best</th><th>mount loses</th></tr></thead><tbody>\n",
    );
    // Figures of the memory alone have no winner.
    let beside = |figure: &&Figure| !figure.ours().is_empty();
    for figure in summary.figures.iter().filter(beside) {
        for peer in figure.peers() {
            overview_row(page, figure, peer);
        }
    }
    page.push_str("</tbody></table></div>\n");
    let _ = writeln!(
        page,
        "<p class=\"noise\">How quiet the machine was: {}.</p>",
        escape(&summary.noise.text())
    );
}

fn overview_row(page: &mut String, figure: &Figure, peer: usize) {
    let (name, ours) = (&figure.experiment.name, figure.ours());
    let medians = |ours: &usize| {
        let all = figure.all_times(*ours, peer);
        let mut medians: Vec<f64> = all.iter().map(|(_, times)| times.median).collect();
        medians.sort_by(f64::total_cmp);
        medians
    };
    let of_program = ours.first().map(medians).unwrap_or_default();
    let mount = ours.iter().find(|at| figure.series[**at].name == MOUNT);
    let of_mount = mount.map(medians).unwrap_or_default();
    let peer_name = escape(&figure.series[peer].name);
    let _ = write!(
        page,
        "<tr><td><a href=\"#{name}\">{name}</a></td><td>{peer_name}</td>"
    );
    let (Some(least), Some(most)) = (of_program.first(), of_program.last()) else {
        let why = escape(&why_not(figure, peer));
        let _ = writeln!(page, "<td colspan=\"4\">{why}</td></tr>");
        return;
    };
    let _ = writeln!(
        page,
        "{}<td>{}</td><td>{} to {}</td>{}</tr>",
        lost(
            &of_program,
            ours.first().map_or(0, |ours| figure.unmeasured(*ours))
        ),
        // The worse of two in the middle counts.
        times_text(of_program[(of_program.len() - 1) / 2]),
        times_text(*least),
        times_text(*most),
        lost(&of_mount, mount.map_or(0, |at| figure.unmeasured(*at))),
    );
}

/// At how many points, of how many; a point at which PMFS itself was not measured is no win.
fn lost(medians: &[f64], unmeasured: usize) -> String {
    let lost = medians.iter().filter(|times| **times < 1.0).count();
    let class = match lost + unmeasured {
        0 => "",
        _ => " class=\"bad\"",
    };
    let missing = match unmeasured {
        0 => String::new(),
        points => format!(", {points} failed"),
    };
    match medians.len() {
        0 => "<td>-</td>".into(),
        all => format!("<td{class}>{lost} of {all}{missing}</td>"),
    }
}

/// Returns why a series has no values.
fn why_not(figure: &Figure, series: usize) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for point in &figure.points {
        if let Cell::Nothing(why) = &point.cells[series]
            && !reasons.contains(&why.as_str())
        {
            reasons.push(why);
        }
    }
    reasons.join("; ")
}

fn section(page: &mut String, figure: &Figure, quick: bool) {
    let experiment = &figure.experiment;
    let better = match experiment.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    };
    let _ = writeln!(
        page,
        "<section id=\"{}\"><h2>{}</h2>\n<p class=\"source\">{}, {} <code>{0}</code></p>",
        experiment.name,
        escape(&experiment.title),
        escape(&experiment.source),
        escape(&experiment.figure),
    );
    losses(page, figure);
    why(page, figure);
    let _ = writeln!(
        page,
        "<dl><dt>The source</dt><dd>{}</dd>",
        escape(&experiment.claim)
    );
    claims(page, figure);
    let _ = writeln!(
        page,
        "<dt>Sizes there</dt><dd>{}</dd><dt>Sizes here</dt><dd>{}</dd>",
        escape(&experiment.theirs),
        escape(&experiment.ours(quick)),
    );
    if !experiment.method.is_empty() {
        let _ = writeln!(
            page,
            "<dt>Method</dt><dd>{}</dd>",
            escape(&experiment.method)
        );
    }
    page.push_str("</dl>\n<ul class=\"legend\">");
    for series in &figure.series {
        let _ = write!(
            page,
            "<li>{} <b>{}</b> {}</li>",
            legend_mark(series.style),
            escape(&series.name),
            escape(&series.title)
        );
    }
    let _ = writeln!(
        page,
        "</ul>\n<p class=\"unit\">{}; {better}. Bars and points are medians, thin lines go from the least to the most.</p>",
        escape(&experiment.unit)
    );
    charts(page, figure);
    skipped(page, figure);
    table(page, figure);
    let names: Vec<&str> = figure
        .series
        .iter()
        .map(|one| one.name.as_str())
        .filter(|name| !name.starts_with("dir:"))
        .collect();
    let quick = if quick { " --quick" } else { "" };
    let _ = writeln!(
        page,
        "<p>Again: <code>pmbench run {}{quick} --targets {}</code></p>\n</section>",
        experiment.name,
        escape(&names.join(","))
    );
}

fn losses(page: &mut String, figure: &Figure) {
    if figure.ours().is_empty() {
        page.push_str(match figure.experiment.only_these {
            true => "<p>This is the memory alone, without a file system.</p>\n",
            false => "<p class=\"lost\">PMFS was not measured.</p>\n",
        });
    }
    if figure.peers().is_empty() {
        return;
    }
    for (number, ours) in figure.ours().into_iter().enumerate() {
        let losses = figure.losses(ours);
        let name = escape(&figure.series[ours].name);
        let unmeasured = figure.unmeasured(ours);
        if unmeasured > 0 {
            let _ = writeln!(
                page,
                "<p class=\"lost\">At {unmeasured} of {} points {name} was not measured; why is below.</p>",
                figure.points.len()
            );
        }
        if losses.is_empty() && unmeasured > 0 {
            continue;
        }
        if losses.is_empty() {
            let _ = writeln!(
                page,
                "<p class=\"won\">No other is better than {name} at any point.</p>"
            );
            continue;
        }
        // The mount is known to be slow, so less of it is told at once.
        let told = if number == 0 { TOLD } else { 1 }.min(losses.len());
        let _ = write!(
            page,
            "<div class=\"lost\"><p>Where {name} loses ({} of {}), the worst first:</p>",
            losses.len(),
            figure.points.len() * figure.peers().len(),
        );
        list(page, &losses[..told]);
        if losses.len() > told {
            let more = losses.len() - told;
            let _ = write!(page, "<details><summary>and {more} more</summary>");
            list(page, &losses[told..]);
            page.push_str("</details>");
        }
        page.push_str("</div>\n");
    }
}

/// Tells where the time goes, for those that fall short.
fn why(page: &mut String, figure: &Figure) {
    for ours in figure.ours() {
        let Series { name, why, .. } = &figure.series[ours];
        if why.is_empty() || !figure.falls_short(ours) {
            continue;
        }
        let _ = write!(page, "<div class=\"why\"><h3>Why {}</h3>", escape(name));
        for paragraph in why.split("\n\n") {
            let _ = write!(page, "<p>{}</p>", escape(paragraph.trim()));
        }
        page.push_str("</div>\n");
    }
}

fn list(page: &mut String, losses: &[Loss<'_>]) {
    page.push_str("<ul>");
    for loss in losses {
        let _ = write!(page, "<li>{}</li>", escape(&loss.text()));
    }
    page.push_str("</ul>");
}

fn claims(page: &mut String, figure: &Figure) {
    for (claim, here) in figure.claims() {
        let (class, here) = match here {
            None => ("", "not measured here".to_owned()),
            Some(times) => {
                let met = times.median >= claim.times;
                let verdict = if met { "met" } else { "missed" };
                let class = if met { "good" } else { "bad" };
                (
                    class,
                    format!("here {} ({verdict})", times_text(times.median)),
                )
            }
        };
        let of = claim
            .of
            .as_ref()
            .map_or(String::new(), |of| format!("{} ", escape(of)));
        let _ = writeln!(
            page,
            "<dd class=\"claim\">{}, {of}against {}: there {}x, <span class=\"{class}\">{here}</span></dd>",
            escape(&Point::text(&claim.at)),
            escape(&claim.against),
            claim.times,
        );
    }
}

/// The points of each panel, and its name if there are several.
pub(super) fn panels(figure: &Figure) -> Vec<(Option<String>, Vec<&Measured>)> {
    let panel_of = |point: &Measured| {
        let key = figure.experiment.chart.panel.as_ref()?;
        point.labels.get(key).cloned()
    };
    let mut panels: Vec<(Option<String>, Vec<&Measured>)> = Vec::new();
    for point in &figure.points {
        let panel = panel_of(point);
        match panels.iter_mut().find(|(name, _)| *name == panel) {
            Some((_, points)) => points.push(point),
            None => panels.push((panel, vec![point])),
        }
    }
    panels
}

fn charts(page: &mut String, figure: &Figure) {
    page.push_str("<div class=\"panels\">\n");
    for (name, points) in panels(figure) {
        let name = name.map_or(String::new(), |name| {
            format!("<figcaption>{}</figcaption>", escape(&name))
        });
        let _ = writeln!(page, "<figure>{name}{}</figure>", draw(figure, &points));
    }
    page.push_str("</div>\n");
}

/// Tells why there are no values: the first line at once, the rest folded away.
fn skipped(page: &mut String, figure: &Figure) {
    for (at, series) in figure.series.iter().enumerate() {
        let why = why_not(figure, at);
        let first = why.lines().next().unwrap_or("");
        let name = escape(&series.name);
        if why.len() > first.len() {
            let _ = writeln!(
                page,
                "<details class=\"lost\"><summary>{name}: {}</summary><pre>{}</pre></details>",
                escape(first),
                escape(&why)
            );
        } else if !why.is_empty() {
            let _ = writeln!(page, "<p class=\"lost\">{name}: {}</p>", escape(&why));
        }
    }
}

fn table(page: &mut String, figure: &Figure) {
    let (ours, peers) = (figure.ours(), figure.peers());
    page.push_str("<details><summary>All figures</summary><div class=\"wide\"><table><thead><tr><th>point</th>");
    for series in &figure.series {
        let _ = write!(page, "<th>{}</th>", escape(&series.name));
    }
    for peer in &peers {
        if let Some(first) = ours.first() {
            let _ = write!(
                page,
                "<th>{} : {}</th>",
                escape(&figure.series[*first].name),
                escape(&figure.series[*peer].name)
            );
        }
    }
    page.push_str("</tr></thead><tbody>\n");
    for point in &figure.points {
        let _ = write!(page, "<tr><td>{}</td>", escape(&Point::text(&point.labels)));
        for cell in &point.cells {
            let _ = write!(
                page,
                "<td>{}</td>",
                cell.spread().map_or("-".into(), spread_text)
            );
        }
        for peer in &peers {
            let times = ours
                .first()
                .and_then(|first| figure.times(point, *first, *peer));
            let class = if times.is_some_and(|times| times.median < 1.0) {
                " class=\"bad\""
            } else {
                ""
            };
            let text = times.map_or("-".into(), |times| times_text(times.median));
            let _ = write!(page, "<td{class}>{text}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div></details>\n");
}

fn spread_text(spread: Times) -> String {
    format!(
        "{} <small>({} to {})</small>",
        digits(spread.median),
        digits(spread.least),
        digits(spread.most)
    )
}

fn about(page: &mut String, summary: &Summary) {
    let machine = &summary.machine;
    let list = |pairs: &std::collections::BTreeMap<String, String>| {
        let pairs = pairs.iter().map(|(name, value)| format!("{name} {value}"));
        escape(&pairs.collect::<Vec<_>>().join(", "))
    };
    let pages = machine
        .page_bytes
        .iter()
        .map(|bytes| format!("{} KiB", bytes >> 10));
    let _ = writeln!(
        page,
        "<section><h2>How</h2>\n<p>The targets take turns at each point, in each round another one first. A ratio is the median of the rounds' ratios. \
         Before and after each measurement a loop of fixed work runs; where it strays by more than 10 % from its median, the measurement is made again, three times at most. \
         Pools, block devices and tmpfs stand in the same memory; PMFS flushes and fences as on persistent memory.</p>\n\
         <p>{}; {}; commit {}; {}. Pages: {}; large pages: {}. Load when it began: {}.</p></section>",
        escape(&machine.system),
        escape(&machine.pmfs),
        escape(machine.commit.as_deref().unwrap_or("unknown")),
        list(&machine.versions),
        pages.collect::<Vec<_>>().join(", "),
        list(&machine.large_pages),
        escape(&machine.load),
    );
}
