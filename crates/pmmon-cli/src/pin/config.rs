//! The file of groups for `pmmon pin`.

use std::path::Path;

use pm_cli::Failure;
use pmmon::group::{Cores, Group, Groups, cores};
use serde::Deserialize;

/// The only condition that this version knows.
const WHEN: &str = "writes > 0";
/// The longest expiry, in nanoseconds: a day.
const EXPIRY_MAX: f64 = 86_400e9;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    group: Both,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Both {
    general: General,
    pm: Pm,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct General {
    cpus: String,
    expiry: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pm {
    cpus: String,
    expiry: String,
    #[serde(default)]
    sticky: bool,
    when: Option<String>,
}

/// Reads the groups. `online` are the machine's cores.
pub(crate) fn read(path: &Path, online: &Cores) -> Result<Groups, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::new(
            format!("{}: {error}", path.display()),
            "name a file with [group.general] and [group.pm]; see `pmmon pin --help`",
        )
    })?;
    parse(&text, online).map_err(|cause| Failure::whole(format!("{}: {cause}", path.display())))
}

fn parse(text: &str, online: &Cores) -> Result<Groups, String> {
    let File { group } = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = text[..at.min(text.len())].matches('\n').count() + 1;
        format!("line {line}: {}; see `pmmon pin --help`", error.message())
    })?;
    if let Some(when) = group.pm.when.filter(|when| when != WHEN) {
        return Err(format!(
            "when = \"{when}\": this version knows \"{WHEN}\" alone; take that"
        ));
    }
    Ok(Groups {
        general: one(
            "general",
            &group.general.cpus,
            &group.general.expiry,
            online,
        )?,
        pm: one("pm", &group.pm.cpus, &group.pm.expiry, online)?,
        is_sticky: group.pm.sticky,
    })
}

fn one(name: &str, cpus: &str, expiry: &str, online: &Cores) -> Result<Group, String> {
    let named = cores(cpus)
        .ok_or_else(|| format!("group.{name}: cpus = \"{cpus}\": no list of cores; write 0-2,5"))?;
    if let Some(core) = named.iter().find(|core| !online.contains(core)) {
        return Err(format!(
            "group.{name}: core {core} is not there; take some of {}",
            pmmon::group::listed(online)
        ));
    }
    Ok(Group {
        cores: named,
        expiry_ns: time(expiry).ok_or_else(|| {
            format!("group.{name}: expiry = \"{expiry}\": no time; write 200ms or 60s")
        })?,
    })
}

/// `200ms`, `60s`: nanoseconds.
fn time(text: &str) -> Option<u64> {
    let (number, unit_ns) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e6),
        None => (text.strip_suffix('s')?, 1e9),
    };
    let time_ns = number.trim().parse::<f64>().ok()? * unit_ns;
    (0.0..=EXPIRY_MAX)
        .contains(&time_ns)
        .then_some(time_ns as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
[group.general]
cpus = \"0-3\"
expiry = \"60s\"
[group.pm]
cpus = \"0,2\"
expiry = \"200ms\"
sticky = true
when = \"writes > 0\"
";

    /// Goal: a file is read as it is meant, and errors name the cause and the way out. Method: one
    /// good file, and one change for each error.
    #[test]
    fn files_are_read() {
        let online = (0..4).collect();
        let groups = parse(GOOD, &online).unwrap();
        assert_eq!(groups.pm.cores, Cores::from([0, 2]));
        assert_eq!(groups.pm.expiry_ns, 200_000_000);
        assert_eq!(groups.general.expiry_ns, 60_000_000_000);
        assert!(groups.is_sticky);
        for (good, bad, says) in [
            ("0-3", "0-4", "core 4 is not there; take some of 0-3"),
            ("0-3", "3-0", "no list of cores"),
            ("0-3", "", "no list of cores"),
            ("200ms", "200", "write 200ms"),
            ("200ms", "-1s", "write 200ms"),
            ("writes > 0", "writes > 64M/s", "take that"),
            ("sticky", "stiky", "line 7"),
        ] {
            let said = parse(&GOOD.replace(good, bad), &online).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
    }
}
