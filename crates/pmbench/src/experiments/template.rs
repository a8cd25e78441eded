//! `{name}` in a command or a text is replaced by a value, whose own names are replaced in turn.
//!
//! Only a lower-case word right between braces is a name, so that the shell's `${x}` and awk's `{
//! print }` stay. A name without a value is an error: a command with a hole in it must not run.

use anyhow::{bail, ensure};
use std::collections::BTreeMap;

/// Names and what stands for them.
pub type Values = BTreeMap<String, String>;

/// Values that name each other in a circle would never end.
const DEPTH_MAX: usize = 16;

/// Replaces every name.
pub fn fill(text: &str, values: &Values) -> anyhow::Result<String> {
    let mut text = text.to_owned();
    for _ in 0..DEPTH_MAX {
        let (next, replaced) = fill_once(&text, values)?;
        if !replaced {
            return Ok(next);
        }
        text = next;
    }
    bail!("values name each other in a circle: {text}");
}

fn fill_once(text: &str, values: &Values) -> anyhow::Result<(String, bool)> {
    let (mut out, mut rest, mut replaced) = (String::new(), text, false);
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        out.push_str(before);
        let name = from[1..].split('}').next().unwrap_or("");
        let closed = from.len() > name.len() + 1;
        if !closed || !is_name(name) || before.ends_with('$') {
            out.push('{');
            rest = &from[1..];
            continue;
        }
        let value = values.get(name);
        ensure!(
            value.is_some(),
            "nothing is called {{{name}}} here: in `{text}`"
        );
        out.push_str(value.map_or("", String::as_str));
        rest = &from[name.len() + 2..];
        replaced = true;
    }
    out.push_str(rest);
    Ok((out, replaced))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn names_are_replaced_and_the_shells_braces_are_not() {
        let values = values(&[("dir", "{place}/mnt"), ("place", "/p"), ("empty", "")]);
        let filled = fill("{empty}ls {dir} ${dir} {} {A} | awk '{ print }' {", &values);
        assert_eq!(
            filled.unwrap(),
            "ls /p/mnt ${dir} {} {A} | awk '{ print }' {"
        );
    }

    #[test]
    fn holes_and_circles_are_errors() {
        let unknown = fill("ls {dri}", &values(&[("dir", "/")])).unwrap_err();
        assert!(unknown.to_string().contains("{dri}"), "{unknown}");
        let circle = fill("{a}", &values(&[("a", "{b}"), ("b", "{a}")])).unwrap_err();
        assert!(circle.to_string().contains("circle"), "{circle}");
    }
}
