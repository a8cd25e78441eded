//! The needs of an experiment or a target on the machine, and those that are missing.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The things that have to be there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Needs {
    /// Programs, and Debian's names of the packages that have them (nothing: no package has).
    pub programs: BTreeMap<String, String>,
    /// Directories of the cache, and the shell commands by which `pmbench setup` makes them: each
    /// fills `{new}`, with the experiment's files in `{shared}`. Steps find them in `{cache}`.
    pub cached: BTreeMap<String, String>,
    /// Root.
    pub root: bool,
    /// A /dev/fuse that can be opened.
    pub fuse: bool,
    /// File systems of the kernel.
    pub filesystems: Vec<String>,
    /// A persistent memory device that may be formatted.
    pub device: bool,
}

impl Needs {
    /// Returns why this can't be done here; nothing if it can.
    pub fn missing(&self, device: Option<&Path>) -> Option<String> {
        if self.root && !rustix::process::geteuid().is_root() {
            return Some("it takes root".into());
        }
        if self.fuse && std::fs::File::open("/dev/fuse").is_err() {
            return Some("/dev/fuse can't be opened".into());
        }
        if self.device {
            match device {
                None if !Path::new("/dev/pmem0").exists() => {
                    return Some("this machine has no /dev/pmem".into());
                }
                None => {
                    return Some(
                        "no device may be formatted: name one with --device /dev/pmemN".into(),
                    );
                }
                Some(device) if !device.exists() => {
                    return Some(format!("there is no {}", device.display()));
                }
                Some(_) => {}
            }
        }
        let of_kernel = self.filesystems.iter().find(|name| !kernel_has(name));
        if let Some(name) = of_kernel {
            return Some(format!("the kernel has no {name}"));
        }
        if let Some((program, package)) = self.missing_programs().next() {
            return Some(match package {
                "" => format!("{program} is missing"),
                package => {
                    format!("{program} is missing (pmbench setup, or apt-get install {package})")
                }
            });
        }
        let (name, _) = self.missing_cached().next()?;
        let dir = cache_dir().join(name);
        Some(format!("{} is missing (pmbench setup)", dir.display()))
    }

    /// Directories of the cache that are not there, and what makes them.
    pub fn missing_cached(&self) -> impl Iterator<Item = (&str, &str)> {
        let missing = |(name, _): &(&String, &String)| !cache_dir().join(name).is_dir();
        let missing = self.cached.iter().filter(missing);
        missing.map(|(name, command)| (name.as_str(), command.as_str()))
    }

    /// Programs that are not there, and their packages.
    pub fn missing_programs(&self) -> impl Iterator<Item = (&str, &str)> {
        let programs = self.programs.iter();
        let missing = programs.filter(|(program, _)| find_program(program).is_none());
        missing.map(|(program, package)| (program.as_str(), package.as_str()))
    }
}

/// Returns the directory for what `pmbench setup` gets that is no package of the system: where the
/// user has caches.
pub fn cache_dir() -> PathBuf {
    let absolute = |name: &str| {
        let dir = PathBuf::from(std::env::var_os(name)?);
        dir.is_absolute().then_some(dir)
    };
    let home = || Some(absolute("HOME")?.join(".cache"));
    let base = absolute("XDG_CACHE_HOME").or_else(home);
    base.unwrap_or_else(|| "/var/cache".into()).join("pmbench")
}

/// Directories of programs, root's too.
pub fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into());
    format!("{path}:/usr/sbin:/sbin")
}

/// Returns where a program is.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let found = |path: PathBuf| path.is_file().then_some(path);
    if name.contains('/') {
        return found(name.into());
    }
    std::env::split_paths(&search_path()).find_map(|dir| found(dir.join(name)))
}

fn kernel_has(name: &str) -> bool {
    let listed = || {
        let all = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        all.lines()
            .any(|line| line.split_whitespace().last() == Some(name))
    };
    if listed() {
        return true;
    }
    // The module may not be loaded yet.
    let mut load = Command::new("modprobe");
    load.arg("-q").arg(name).env("PATH", search_path());
    load.stdout(Stdio::null()).stderr(Stdio::null());
    load.status().is_ok_and(|ended| ended.success()) && listed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let programs = [("sh", "dash"), ("no-such-program", "its-package")];
        let programs = programs.map(|(a, b)| (a.to_owned(), b.to_owned()));
        let needs = Needs {
            programs: programs.into(),
            ..Needs::default()
        };
        let why = needs.missing(None).unwrap();
        assert!(why.contains("no-such-program") && why.contains("its-package"));
        assert!(Needs::default().missing(None).is_none());
    }

    #[test]
    fn a_device_is_never_taken_unasked() {
        let needs = Needs {
            device: true,
            ..Needs::default()
        };
        assert!(needs.missing(None).is_some());
        assert!(needs.missing(Some(Path::new("/dev/null"))).is_none());
    }
}
