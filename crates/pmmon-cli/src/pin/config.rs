//! The file of groups for `pmmon pin`.

use std::path::Path;

use pm_cli::Failure;
use pmep::{Device, Op};
use pmmon::adapt::Model;
use pmmon::group::{Cores, Group, Groups, cores};
use serde::Deserialize;

/// The only condition that this version knows.
const WHEN: &str = "writes > 0";
/// The device and the way to store, where the file says none.
const DEVICE: &str = "optane-100";
const STORE: Op = Op::NtStore;
/// The longest expiry, in nanoseconds: a day.
const EXPIRY_MAX: f64 = 86_400e9;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    group: Both,
    model: Option<Medium>,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Medium {
    device: Option<String>,
    modules: u32,
    store: Option<String>,
}

/// The groups, and the device model if the file names one.
pub(crate) type Config = (Groups, Option<Model>);

/// Reads a file. `online` are the machine's cores.
pub(crate) fn read(path: &Path, online: &Cores) -> Result<Config, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::new(
            format!("{}: {error}", path.display()),
            "name a file with [group.general] and [group.pm]; see `pmmon pin --help`",
        )
    })?;
    parse(&text, online).map_err(|cause| Failure::whole(format!("{}: {cause}", path.display())))
}

fn parse(text: &str, online: &Cores) -> Result<Config, String> {
    let File { group, model } = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = text[..at.min(text.len())].matches('\n').count() + 1;
        format!("line {line}: {}; see `pmmon pin --help`", error.message())
    })?;
    if let Some(when) = group.pm.when.filter(|when| when != WHEN) {
        return Err(format!(
            "when = \"{when}\": this version knows \"{WHEN}\" alone; take that"
        ));
    }
    let General { cpus, expiry } = &group.general;
    let groups = Groups {
        general: one("general", cpus, expiry, online)?,
        pm: one("pm", &group.pm.cpus, &group.pm.expiry, online)?,
        is_sticky: group.pm.sticky,
    };
    Ok((groups, model.map(medium).transpose()?))
}

fn medium(asked: Medium) -> Result<Model, String> {
    let name = asked.device.as_deref().unwrap_or(DEVICE);
    let store = asked.store.as_deref().map(|store| {
        let way_out = "give ntstore, store+clwb, store+clflushopt or store";
        Op::named(store).ok_or_else(|| format!("no operation `{store}`; {way_out}"))
    });
    let model = device(name).and_then(|device| {
        let store = store.transpose()?.unwrap_or(STORE);
        Model::new(device, asked.modules, store).map_err(|error| error.to_string())
    });
    model.map_err(|error| format!("model: {error}"))
}

fn device(name: &str) -> Result<Device, String> {
    if !name.ends_with(".toml") {
        return Device::named(name).map_err(|error| error.to_string());
    }
    let text = std::fs::read_to_string(name);
    let text = text.map_err(|error| format!("{name}: {error}; give a device's file"))?;
    Device::parse(&text, name).map_err(|error| error.to_string())
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
        let (groups, model) = parse(GOOD, &online).unwrap();
        assert!(model.is_none());
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

    /// Goal: the device is read, and what no model knows is answered. Method: lines of the table.
    #[test]
    fn devices_are_read() {
        let online = (0..4).collect();
        let with = |lines: &str| parse(&format!("{GOOD}[model]\n{lines}"), &online);
        let model = with("modules = 6").unwrap().1.unwrap();
        assert_eq!((model.device(), model.modules()), ("optane-100", 6));
        let model = with("modules = 2\ndevice = \"dram\"\nstore = \"store\"");
        assert_eq!(model.unwrap().1.unwrap().device(), "dram");
        for (lines, says) in [
            ("", "missing field `modules`"),
            ("modules = 0", "give 1 to 64"),
            ("modules = 6\ndevice = \"ssd\"", "give one of optane-100"),
            ("modules = 6\ndevice = \"/no.toml\"", "give a device's file"),
            ("modules = 6\nstore = \"load\"", "give ntstore"),
            ("modules = 6\nstore = \"movnti\"", "give ntstore"),
        ] {
            let said = with(lines).map(|_| ()).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
    }
}
