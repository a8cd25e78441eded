//! The options of opening a pool as text: in this form they reach the library in a program.

use pmfs::{AtimeMode, DataMode, LargePages, OpenOptions, Stalled};

/// Returns the options that differ from the defaults as words with commas between; a word is `name`
/// or `name=value`, as in `-o` of a mount.
#[must_use]
pub fn to_words(options: &OpenOptions) -> String {
    let map = &options.map;
    let mut words = vec![
        format!("flush={}", map.flush),
        format!("protect={}", map.protect),
    ];
    if !map.emulate.is_off() {
        words.push(format!("emulate={}", map.emulate.as_option()));
    }
    words.extend(
        SWITCHES
            .iter()
            .filter(|switch| (switch.is_on)(options))
            .map(|switch| switch.word.to_owned()),
    );
    words.join(",")
}

/// Returns the options that such words stand for.
///
/// # Errors
/// The unknown word.
pub fn from_words(words: &str) -> Result<OpenOptions, String> {
    let mut options = OpenOptions::default();
    for word in words.split(',').filter(|word| !word.is_empty()) {
        let known = match word.split_once('=') {
            Some(("flush", value)) => value.parse().map(|flush| options.map.flush = flush).is_ok(),
            Some(("protect", value)) => {
                value.parse().map(|mode| options.map.protect = mode).is_ok()
            }
            Some(("emulate", value)) => value
                .parse()
                .map(|medium| options.map.emulate = medium)
                .is_ok(),
            _ => match SWITCHES.iter().find(|switch| switch.word == word) {
                Some(switch) => {
                    (switch.turn_on)(&mut options);
                    true
                }
                None => false,
            },
        };
        if !known {
            return Err(word.to_owned());
        }
    }
    Ok(options)
}

/// A word that stands for a value of its own.
struct Switch {
    word: &'static str,
    is_on: fn(&OpenOptions) -> bool,
    turn_on: fn(&mut OpenOptions),
}

macro_rules! switches {
    ($($word:literal: $($field:ident).+ = $value:expr;)*) => {
        &[$(Switch {
            word: $word,
            is_on: |options| options.$($field).+ == $value,
            turn_on: |options| options.$($field).+ = $value,
        }),*]
    };
}

const SWITCHES: &[Switch] = switches! {
    "ro": read_only = true;
    "data=ordered": data = DataMode::Ordered;
    "large=never": large = LargePages::Never;
    "large=always": large = LargePages::Always;
    "noatime": atime = AtimeMode::Noatime;
    "strictatime": atime = AtimeMode::Strictatime;
    "nodiratime": nodiratime = true;
    "durable": map.durable = true;
    "stalled=kill": stalled = Stalled::Kill;
    "adopt": adopt = true;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_what_they_were_made_of() {
        for switch in SWITCHES {
            let mut options = OpenOptions::default();
            (switch.turn_on)(&mut options);
            let words = to_words(&options);
            assert!(words.split(',').any(|word| word == switch.word), "{words}");
            let again = from_words(&words).expect("words of its own");
            assert!((switch.is_on)(&again), "{words}");
            assert_eq!(to_words(&again), words);
        }
    }

    #[test]
    fn what_nobody_knows_is_said() {
        for bad in ["nonsense", "flush=perhaps", "data=fast", "stalled"] {
            assert_eq!(from_words(&format!("ro,{bad}")).err().as_deref(), Some(bad));
        }
    }
}
