//! The time to map a file, and to touch its pages for the first time: figure 10 of the thesis on
//! PMDK. By plain system calls, so that any target can be below it.
//!
//! A byte of each page of 4 KiB is read, in random order. One fault may bring several pages, so the
//! kernel's count of faults tells how many of the reads met one: the slowest ones.

use crate::measure::Figures;
use crate::random::Random;
use anyhow::ensure;
use clap::{Args, ValueEnum};
use pmem::view::View;
use std::path::PathBuf;
use std::time::Instant;

const PAGE: u64 = 4096;

/// The mappings to measure.
#[derive(Args)]
pub struct Options {
    /// The file.
    #[arg(long)]
    file: PathBuf,
    #[arg(long, value_enum)]
    what: What,
    /// The number of times that it is mapped anew.
    #[arg(long, default_value_t = 5)]
    times: usize,
}

/// The figure.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum What {
    /// To open the file and map all of it.
    Map,
    /// To read a byte of each page of 4 KiB for the first time; a page.
    Touch,
    /// The median page fault of these.
    Fault,
}

/// Measures and prints.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut figures = Figures::default();
    for number in 0..options.times.max(1) {
        figures.0.push(once(options, number as u64)?);
    }
    println!(
        "{}",
        serde_json::json!({"what": format!("{:?}", options.what), "us": figures.median() / 1e3})
    );
    Ok(())
}

/// ns.
fn once(options: &Options, number: u64) -> anyhow::Result<f64> {
    // The file's pages in a page cache are given back: a fault has to fetch.
    let file = std::fs::File::open(&options.file)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    drop(file);
    let start = Instant::now();
    let view = View::of_file(&options.file, 2 << 20)?;
    let map_ns = start.elapsed().as_nanos() as f64;
    let order = shuffled(view.len() / PAGE, number);
    match options.what {
        What::Map => Ok(map_ns),
        What::Touch => touch(&view, &order),
        What::Fault => fault(&view, &order),
    }
}

fn touch(view: &View, order: &[u64]) -> anyhow::Result<f64> {
    let mut byte = [0];
    let start = Instant::now();
    for page in order {
        view.read(page * PAGE, &mut byte)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / order.len() as f64)
}

fn fault(view: &View, order: &[u64]) -> anyhow::Result<f64> {
    let mut byte = [0];
    let mut all = vec![0.0; order.len()];
    let before = faults_so_far()?;
    for (page, ns) in order.iter().zip(&mut all) {
        let start = Instant::now();
        view.read(page * PAGE, &mut byte)?;
        *ns = start.elapsed().as_nanos() as f64;
    }
    let faults = faults_so_far()? - before;
    ensure!(faults > 0, "the kernel has counted no page fault");
    Ok(slowest(all, faults as usize).median())
}

fn slowest(mut all: Vec<f64>, count: usize) -> Figures {
    all.sort_by(|a, b| b.total_cmp(a));
    all.truncate(count);

    Figures(all)
}

fn shuffled(pages: u64, number: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..pages).collect();
    let mut random = Random(number);
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    order
}

/// Page faults of this process, with and without input and output.
fn faults_so_far() -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name, in parentheses, may have spaces. Behind it minflt is the eighth field, majflt the
    // tenth.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<u64> = behind
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    ensure!(fields.len() > 9, "/proc/self/stat can't be read: {stat}");
    Ok(fields[7] + fields[9])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each page is read once, and reading it makes a fault. Method: the order, and the
    /// faults of a file whose pages are small.
    #[test]
    fn each_page_is_read_once() {
        let mut order = shuffled(1024, 3);
        assert!(!order.is_sorted());
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, vec![1; 4 << 20]).unwrap();
        let view = View::of_file(&file, 2 << 20).unwrap();
        let before = faults_so_far().unwrap();
        assert!(touch(&view, &order).unwrap() > 0.0);
        // Sixteen pages a fault if the kernel maps those around it, two huge pages at the least.
        assert!(faults_so_far().unwrap() >= before + 2);
        order.sort_unstable();
        assert_eq!(order, (0..1024).collect::<Vec<_>>());
    }

    #[test]
    fn faults_are_the_slowest_reads() {
        let all = vec![10.0, 900.0, 12.0, 1000.0, 11.0, 9.0, 1100.0];
        assert_eq!(slowest(all, 3).median(), 1000.0);
    }
}
