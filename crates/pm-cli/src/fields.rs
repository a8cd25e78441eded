//! Structures of a pool or a heap as a dump shows them: as text, or as JSON.

use serde_json::{Map, Value as Json};

/// A field's value.
#[derive(Clone, Debug)]
pub enum Shown {
    /// A word, and the same in JSON.
    Word(String, Json),
    /// Structures of one kind.
    List(Vec<Fields>),
}

/// The fields of a structure, in order.
#[derive(Clone, Debug, Default)]
pub struct Fields(pub Vec<(&'static str, Shown)>);

impl Fields {
    /// An object of JSON. Spaces in names become underscores.
    #[must_use]
    pub fn json(&self) -> Json {
        let mut object = Map::new();
        for (name, value) in &self.0 {
            let value = match value {
                Shown::Word(_, json) => json.clone(),
                Shown::List(list) => list.iter().map(Fields::json).collect(),
            };
            object.insert(name.replace(' ', "_"), value);
        }
        Json::Object(object)
    }

    /// A line a field; in a list, a line an item, and its own lists below it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        self.lines(0, &mut lines);
        lines.join("\n")
    }

    fn lines(&self, depth: usize, lines: &mut Vec<String>) {
        let indent = "  ".repeat(depth);
        let names = self.0.iter().map(|(name, _)| name.len());
        let width = names.max().unwrap_or(0);
        for (name, value) in &self.0 {
            match value {
                Shown::Word(text, _) => lines.push(format!("{indent}{name:width$}  {text}")),
                Shown::List(list) if list.is_empty() => {}
                Shown::List(list) => {
                    lines.push(format!("{indent}{name}"));
                    for item in list {
                        item.line(depth + 1, lines);
                    }
                }
            }
        }
    }

    /// An item of a list.
    fn line(&self, depth: usize, lines: &mut Vec<String>) {
        let plain = |(name, value): &(&'static str, Shown)| match value {
            Shown::Word(text, _) => Some(format!("{name} {text}")),
            Shown::List(_) => None,
        };
        let words: Vec<String> = self.0.iter().filter_map(plain).collect();
        lines.push(format!("{}{}", "  ".repeat(depth), words.join(", ")));
        let lists = self
            .0
            .iter()
            .filter(|(_, value)| matches!(value, Shown::List(_)));
        Fields(lists.cloned().collect()).lines(depth + 1, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(name: &'static str, number: u64) -> (&'static str, Shown) {
        (name, Shown::Word(number.to_string(), number.into()))
    }

    #[test]
    fn lists_stand_below_their_names() {
        let inner = Fields(vec![word("deep", 3)]);
        let item = Fields(vec![
            word("a", 1),
            ("inner", Shown::List(vec![inner])),
            word("b", 2),
        ]);
        let all = Fields(vec![
            word("long name", 0),
            ("items", Shown::List(vec![item])),
            ("none", Shown::List(Vec::new())),
        ]);
        let expected = "long name  0\nitems\n  a 1, b 2\n    inner\n      deep 3";
        assert_eq!(all.text(), expected);
        let json = r#"{"items":[{"a":1,"b":2,"inner":[{"deep":3}]}],"long_name":0,"none":[]}"#;
        let expected: Json = serde_json::from_str(json).unwrap();
        assert_eq!(all.json(), expected);
    }
}
