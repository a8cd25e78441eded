//! Sites: every place in the source that flushes or fences, taken out one at a time. Some workload must then have a
//! crash state that is neither before nor after; else the place is not needed, or what shows it is missing here.

use crate::explore::{Explorer, Options, Recording, Violation, record};
use crate::files::FileSystem;
use crate::files::tree::Tree;
use crate::program::Program;
use crate::trace::{Event, Place};
use std::collections::{BTreeMap, BTreeSet};

/// What a site does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Begins the write-back of a line.
    Flush,
    /// Waits for what was flushed and streamed.
    Fence,
}

/// A place that flushes or fences.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// What it does.
    pub what: What,
    /// Where in the source.
    pub place: Place,
}

/// A recorded workload and the sites in it.
pub struct Recorded {
    program: FileSystem,
    recording: Recording<Tree>,
    sites: BTreeSet<String>,
}

fn site_of(event: &Event) -> Option<Site> {
    match *event {
        Event::Flush { at, .. } => Some(Site {
            what: What::Flush,
            place: at,
        }),
        Event::Fence { at, .. } => Some(Site {
            what: What::Fence,
            place: at,
        }),
        _ => None,
    }
}

impl Site {
    /// What tells it from others, and sorts it by place.
    #[must_use]
    pub fn key(&self) -> String {
        let what = match self.what {
            What::Flush => "flush",
            What::Fence => "fence",
        };
        let (file, line, column) = (self.place.file(), self.place.line(), self.place.column());
        format!("{file}:{line:05}:{column:03} {what}")
    }
}

impl Recorded {
    /// Runs a workload.
    ///
    /// # Errors
    /// A step that failed.
    pub fn of(program: FileSystem) -> Result<Recorded, String> {
        let recording = record(&program)?;
        let events = recording.trace.events.iter();
        // What comes before the first step is not crashed.
        let events = events.skip_while(|event| !matches!(event, Event::Return { .. }));
        let sites = events.filter_map(site_of).map(|site| site.key()).collect();
        Ok(Recorded {
            program,
            recording,
            sites,
        })
    }

    /// The sites of the recorded steps.
    pub fn sites(&self) -> BTreeMap<String, Site> {
        let events = self.recording.trace.events.iter();
        let sites = events.filter_map(site_of).map(|site| (site.key(), site));
        sites.filter(|(key, _)| self.sites.contains(key)).collect()
    }

    /// Explores it without a site; none if the site is not in it, or not missed.
    #[must_use]
    pub fn without(&self, site: &Site) -> Option<Box<Violation>> {
        if !self.sites.contains(&site.key()) {
            return None;
        }
        let options = Options {
            without: Some(site.place),
            ..Options::default()
        };
        let explorer = Explorer::new(&self.program, &self.recording, options);
        explorer.run().err()
    }

    /// The workload's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.program.name()
    }
}
