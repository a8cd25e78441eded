//! Violations as people read them, and crashes as a command line takes them.

use crate::explore::{Crash, Violation};
use std::fmt;
use std::str::FromStr;

/// `STEP@FENCE:CHOICES`, and for each crash of a recovery `/FENCE:CHOICES`; a fence `r` is the return of the step or
/// the end of the recovery.
impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.step)?;
        for (depth, (fence, image)) in self.fences.iter().zip(&self.images).enumerate() {
            let slash = if depth == 0 { "" } else { "/" };
            match fence {
                Some(fence) => write!(f, "{slash}{fence}:")?,
                None => write!(f, "{slash}r:")?,
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
            crash.fences.push(match fence {
                "r" => None,
                fence => Some(fence.parse().map_err(|_| bad())?),
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
        let depth = self.crash.fences.len() - 1;
        match (self.crash.fences.first(), depth) {
            (Some(Some(fence)), _) => write!(f, "crash in `{}`, at its fence {fence}", self.step)?,
            _ => write!(f, "crash after `{}` returned", self.step)?,
        }
        for fence in self.crash.fences.iter().skip(1) {
            match fence {
                Some(fence) => write!(f, ", then in the recovery, at its fence {fence}")?,
                None => write!(f, ", then after the recovery")?,
            }
        }
        match self.place {
            Some(place) => writeln!(f, " ({place})")?,
            None => writeln!(f)?,
        }
        writeln!(f, "{}", self.text)?;
        writeln!(f, "not durable for certain at the crash:")?;
        for (off, place, there) in &self.stores {
            let there = match there {
                Some(true) => "persisted",
                Some(false) => "lost",
                None => "either",
            };
            writeln!(f, "  {off:#9x} {there:9} stored at {place}")?;
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
        for text in ["2@1:0,1,3", "0@r:", "4@0:1/r:0,0/2:"] {
            assert_eq!(text.parse::<Crash>().unwrap().to_string(), text);
        }
        assert!("2@x:0".parse::<Crash>().is_err());
    }
}
