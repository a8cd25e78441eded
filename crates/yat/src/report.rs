//! Violations as people read them, and crashes as a command line takes them.

use crate::explore::{Crash, Violation, When};
use crate::trace::Place;
use std::fmt;
use std::str::FromStr;

/// `STEP@FENCE:CHOICES`, and for each crash of a recovery `/FENCE:CHOICES`; a fence `r` is the
/// return of the step or the end of the recovery, and `u` that of what was done with the recovered
/// pool.
impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.step)?;
        for (depth, (when, image)) in self.when.iter().zip(&self.images).enumerate() {
            let slash = if depth == 0 { "" } else { "/" };
            match when {
                When::Fence(fence) => write!(f, "{slash}{fence}:")?,
                When::Return => write!(f, "{slash}r:")?,
                When::Use => write!(f, "{slash}u:")?,
            }
            let choices: Vec<String> = image.iter().map(u32::to_string).collect();
            f.write_str(&choices.join(","))?;
        }
        Ok(())
    }
}

impl FromStr for Crash {
    type Err = String;

    fn from_str(text: &str) -> Result<Crash, String> {
        let bad = || format!("{text:?} is no crash: STEP@FENCE:CHOICE,CHOICE,...");
        let (step, rest) = text.split_once('@').ok_or_else(bad)?;
        let mut crash = Crash {
            step: step.parse().map_err(|_| bad())?,
            ..Crash::default()
        };
        for one in rest.split('/') {
            let (fence, choices) = one.split_once(':').ok_or_else(bad)?;
            crash.when.push(match fence {
                "r" => When::Return,
                "u" if !crash.when.is_empty() => When::Use,
                fence => When::Fence(fence.parse().map_err(|_| bad())?),
            });
            let choices = choices.split(',').filter(|choice| !choice.is_empty());
            let choices: Result<Vec<u32>, _> = choices.map(str::parse).collect();
            crash.images.push(choices.map_err(|_| bad())?);
        }
        Ok(crash)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "violation in {}", self.workload)?;
        if let Some(longer) = &self.shrunk_from {
            writeln!(f, "found first in {longer}")?;
        }
        match self.crash.when.first() {
            Some(When::Fence(fence)) => {
                write!(f, "crash in `{}`, at its fence {fence}", self.step)?;
            }
            _ => write!(f, "crash after `{}` returned", self.step)?,
        }
        for when in self.crash.when.iter().skip(1) {
            match when {
                When::Fence(fence) => write!(f, ", then in the recovery, at its fence {fence}")?,
                When::Return => write!(f, ", then after the recovery")?,
                When::Use => write!(f, ", then after the recovered pool was used")?,
            }
        }
        match self.place {
            Some(place) => writeln!(f, " ({place})")?,
            None => writeln!(f)?,
        }
        writeln!(f, "{}", self.text)?;
        writeln!(f, "not durable for certain at the crash:")?;
        // Words beside each other that came from one place and went the same way are one line.
        let same = |a: &(u64, Place, Option<bool>), b: &(u64, Place, Option<bool>)| {
            a.0 + 8 == b.0 && a.1 == b.1 && a.2 == b.2
        };
        for words in self.stores.chunk_by(same) {
            let (off, place, there) = words[0];
            let there = match there {
                Some(true) => "persisted",
                Some(false) => "lost",
                None => "either",
            };
            let words = match words.len() {
                1 => String::new(),
                words => format!(", {words} words"),
            };
            writeln!(f, "  {off:#9x} {there:9} stored at {place}{words}")?;
        }
        write!(f, "found after {} images", self.after_images)
    }
}

#[cfg(test)]
mod tests {
    use super::Crash;

    /// Goal: a crash survives the command line. Method: there and back.
    #[test]
    fn crashes_are_read_as_they_are_written() {
        for text in ["2@1:0,1,3", "0@r:", "4@0:1/r:0,0/2:", "0@1:/u:1"] {
            assert_eq!(text.parse::<Crash>().unwrap().to_string(), text);
        }
        assert!("2@x:0".parse::<Crash>().is_err());
        assert!("2@u:0".parse::<Crash>().is_err());
    }
}
