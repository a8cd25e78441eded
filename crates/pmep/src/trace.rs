//! Traces of accesses as text: `time_ns stream r|w|nt|clwb|fence address bytes`, a line an access.
//! Lines that are empty or begin with `#` are left out. A trace of any length takes constant
//! memory. [`binary`] has the recorder's form of the same steps.

pub mod binary;

use crate::error::{BadInput, Result};
use crate::pattern::{ACCESS_MAX, Op};
use crate::sim::{Access, STREAMS_MAX};

/// The longest line.
pub const LINE_MAX: usize = 4096;
/// The latest time, ns: a year.
const TIME_MAX: f64 = 3.2e16;

/// A line of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// An access.
    Access(Access),
    /// A fence of a stream: it waits until its stores are in the controllers.
    Fence {
        /// The stream.
        stream: u32,
        /// Its time, ns.
        time_ns: f64,
    },
}

/// A reader of lines, which sees that time does not go back.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    line: u64,
    last_ns: f64,
}

fn whole(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl Trace {
    /// Lines read so far.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.line
    }

    /// The step of the next line; `None` if it has none.
    ///
    /// # Errors
    /// A line that is no step, or whose time is before the last one's.
    pub fn step(&mut self, text: &str) -> Result<Option<Step>> {
        self.line = self.line.saturating_add(1);
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        let (cause, way_out) = match self.parse(text) {
            Ok(step) => return Ok(Some(step)),
            Err(why) => why,
        };
        Err(BadInput::new(format!("line {}", self.line), cause, way_out))
    }

    fn parse(&mut self, text: &str) -> std::result::Result<Step, Why> {
        let mut words = text.split_ascii_whitespace();
        let time = words.next().and_then(|word| word.parse::<f64>().ok());
        let stream = words.next().and_then(whole);
        let word = match words.next() {
            Some("r") => Some(Word::Access(Op::Load)),
            Some("w") => Some(Word::Access(Op::Store)),
            Some("nt") => Some(Word::Access(Op::NtStore)),
            Some("clwb") => Some(Word::Access(Op::StoreClwb)),
            Some("fence") => Some(Word::Fence),
            _ => None,
        };
        let fields = Fields {
            time_ns: time,
            stream,
            word,
            address: words.next().and_then(whole),
            bytes: words.next().and_then(whole),
        };
        accept(&mut self.last_ns, &fields)
    }
}

/// A cause and a way out.
type Why = (String, String);

/// The third word of a step.
#[derive(Clone, Copy, Debug)]
enum Word {
    Access(Op),
    Fence,
}

/// The words of a step, none of them checked; `None` is missing or no number.
#[derive(Clone, Copy, Debug)]
struct Fields {
    time_ns: Option<f64>,
    stream: Option<u64>,
    word: Option<Word>,
    address: Option<u64>,
    bytes: Option<u64>,
}

/// The step of these words, in either form. The time of the last step becomes this one's.
fn accept(last_ns: &mut f64, fields: &Fields) -> std::result::Result<Step, Why> {
    let form = || "write `time_ns stream r|w|nt|clwb|fence address bytes`".to_owned();
    let bad = |cause: &str| (cause.to_owned(), form());
    let is_time = |time: &f64| (0.0..=TIME_MAX).contains(time);
    let time_ns = fields.time_ns.filter(is_time);
    let time_ns = time_ns.ok_or_else(|| bad("the time is no count of ns"))?;
    if time_ns < *last_ns {
        let cause = format!("time goes back from {last_ns} ns to {time_ns} ns");
        return Err((cause, "sort the trace by time".to_owned()));
    }
    let stream = fields.stream.and_then(|stream| u32::try_from(stream).ok());
    let stream = stream.filter(|stream| *stream < STREAMS_MAX);
    let stream = stream.ok_or_else(|| {
        let way_out = format!("number streams from 0 to {}", STREAMS_MAX - 1);
        ("no such stream".to_owned(), way_out)
    })?;
    let op = match fields.word.ok_or_else(|| bad("no such operation"))? {
        Word::Access(op) => op,
        Word::Fence => {
            *last_ns = time_ns;
            return Ok(Step::Fence { stream, time_ns });
        }
    };
    let address = fields.address;
    let address = address.ok_or_else(|| bad("the address is no number"))?;
    let bytes = fields
        .bytes
        .filter(|bytes| (1..=ACCESS_MAX).contains(bytes));
    let bytes = bytes.ok_or_else(|| {
        let way_out = format!("give 1 to {ACCESS_MAX} bytes");
        ("no such count of bytes".to_owned(), way_out)
    })?;
    if address.checked_add(bytes).is_none() {
        return Err(bad("the access ends beyond the address space"));
    }
    *last_ns = time_ns;
    Ok(Step::Access(Access {
        time_ns,
        stream,
        op,
        address,
        bytes,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read() {
        let mut trace = Trace::default();
        assert_eq!(trace.step("# nothing").unwrap(), None);
        let step = trace.step("10 0 r 0x40 64").unwrap();
        assert!(matches!(step, Some(Step::Access(access)) if access.address == 64));
        assert!(matches!(
            trace.step("10 1 fence").unwrap(),
            Some(Step::Fence { stream: 1, .. })
        ));
        let back = trace.step("9 0 r 0 64").unwrap_err();
        assert_eq!(back.place, "line 4");
        assert!(back.cause.contains("goes back"));
    }

    #[test]
    fn what_is_no_step_is_refused() {
        let lines = [
            "x 0 r 0 64",
            "NaN 0 r 0 64",
            "inf 0 r 0 64",
            "-1 0 r 0 64",
            "1 99999999 r 0 64",
            "1 0 q 0 64",
            "1 0 r 0",
            "1 0 r 0 0",
            "1 0 r 0xffffffffffffffff 64",
            "1 0 r 0 99999999999",
            "1",
        ];
        for line in lines {
            let error = Trace::default().step(line).unwrap_err();
            assert_eq!(error.place, "line 1", "{line}");
        }
    }
}
