//! The machine that a run was made on, as far as it matters to figures.

use super::experiment::Experiment;
use super::needs::{find_program, search_path};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// The contents of `machine.json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// The time when the run began.
    pub date: String,
    /// The processor's own name, and how many the system sees.
    pub processor: String,
    /// The number of processors that the system sees.
    pub processors: usize,
    /// A virtual machine's kind, if it is one.
    pub virtual_machine: Option<String>,
    /// All memory.
    pub memory_mib: u64,
    /// The version of the kernel.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// Bytes of the pages that the processor and kernel have.
    pub page_bytes: Vec<u64>,
    /// The kernel's settings for large pages, of memory and of shared memory.
    pub large_pages: BTreeMap<String, String>,
    /// The load when the run began: of the last minute.
    pub load: String,
    /// The program that is measured.
    pub pmfs: String,
    /// The commit of the sources.
    pub commit: Option<String>,
    /// The versions of the packages that the experiments use.
    pub versions: BTreeMap<String, String>,
}

impl Machine {
    /// Describes this machine.
    pub fn describe(pmfs: &Path, experiments: &[&Experiment]) -> Machine {
        let cpu = read("/proc/cpuinfo");
        let of_cpu = |key: &str| field(&cpu, key, ':');
        let programs = experiments.iter().flat_map(|one| &one.needs.programs);
        let versions = programs.filter_map(|(program, package)| version_of(program, package));
        let pmfs = pmfs.to_string_lossy();
        Machine {
            date: said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_default(),
            processor: of_cpu("model name").unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            virtual_machine: virtual_machine(&cpu),
            memory_mib: memory_mib("MemTotal"),
            kernel: said("uname", &["-r"]).unwrap_or_default(),
            system: field(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or_default(),
            page_bytes: page_bytes(),
            large_pages: large_pages(),
            load: read("/proc/loadavg").split(' ').next().unwrap_or("").into(),
            pmfs: said(&pmfs, &["--version"]).unwrap_or_else(|| format!("{pmfs} is missing")),
            commit: commit(),
            versions: versions.collect(),
        }
    }
}

/// The commit of the sources that this was built from, with a plus if they were changed since.
/// Nothing if they are gone.
pub fn commit() -> Option<String> {
    let sources = ["-C", env!("CARGO_MANIFEST_DIR")];
    let git = |words: &[&str]| said("git", &[&sources, words].concat());
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(format!(
        "{commit}{}",
        if changed.is_empty() { "" } else { "+" }
    ))
}

/// A figure of /proc/meminfo.
pub fn memory_mib(key: &str) -> u64 {
    let kib = field(&read("/proc/meminfo"), key, ':');
    let kib = kib.and_then(|kib| kib.split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Returns what stands behind a key in lines of key and value.
fn field(text: &str, key: &str, between: char) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(between));
    let (_, value) = pairs.find(|(found, _)| found.trim() == key)?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// Returns what a program says; nothing if it fails.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", search_path());
    let output = command.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// A package and its version: the one that an experiment names, or where that is not installed, the
/// one that has the program instead.
fn version_of(program: &str, package: &str) -> Option<(String, String)> {
    let version = |package: &str| {
        said("dpkg-query", &["-W", "-f", "${Version}", package]).filter(|told| !told.is_empty())
    };
    if let Some(version) = version(package) {
        return Some((package.to_owned(), version));
    }
    let file = find_program(program)?.canonicalize().ok()?;
    let told = said("dpkg-query", &["-S", &file.to_string_lossy()])?;
    let (owner, _) = told.split_once(": ")?;
    Some((owner.to_owned(), version(owner)?))
}

fn virtual_machine(cpu: &str) -> Option<String> {
    let flags = field(cpu, "flags", ':').unwrap_or_default();
    flags.split(' ').find(|flag| *flag == "hypervisor")?;
    Some(said("systemd-detect-virt", &["--vm"]).unwrap_or_else(|| "of an unknown kind".into()))
}

fn page_bytes() -> Vec<u64> {
    let kib = |name: String| {
        name.strip_prefix("hugepages-")?
            .strip_suffix("kB")?
            .parse()
            .ok()
    };
    let entries = std::fs::read_dir("/sys/kernel/mm/hugepages")
        .into_iter()
        .flatten();
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let large = names.filter_map(kib).map(|kib: u64| kib << 10);
    let mut all: Vec<u64> = large.chain([rustix::param::page_size() as u64]).collect();
    all.sort_unstable();
    all
}

fn large_pages() -> BTreeMap<String, String> {
    let chosen = |name: &str| {
        let text = read(&format!("/sys/kernel/mm/transparent_hugepage/{name}"));
        let chosen = text.split(['[', ']']).nth(1)?.to_owned();
        Some((name.to_owned(), chosen))
    };
    ["enabled", "shmem_enabled"]
        .into_iter()
        .filter_map(chosen)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{said, version_of};

    /// Goal: a machine whose Java is another package's than an experiment names tells that one.
    /// Method: a program that every Debian has.
    #[test]
    fn a_program_of_another_package_is_told_by_that_one() {
        if said("dpkg-query", &["-W", "perl-base"]).is_none() {
            return;
        }
        let (package, version) = version_of("perl", "no-such-package").expect("perl-base");
        assert_eq!(package, "perl-base");
        assert!(version.starts_with("5."), "{version}");
        assert_eq!(version_of("no-such-program", "no-such-package"), None);
    }
}
