//! Files of measured points: read by column names, each fault with its line.

use std::path::Path;

use pmep::points::{Answerable, Assumed, COLUMNS, Record, question};
use pmep::{BadInput, Result};

/// The most bytes of a row: no published row has a hundredth of it.
const ROW_MAX: usize = 1 << 16;

/// A row of a file.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its line, from 1.
    pub line: u64,
    /// `id`, if the file has it.
    pub id: String,
    /// `rep`
    pub rep: String,
    /// `tier`
    pub tier: String,
    /// `note`
    pub note: String,
    /// `value`, if the file has it.
    pub value: Option<f64>,
    /// The key columns.
    pub record: Record,
    /// The question, or the reason that there is none.
    pub question: Answerable,
}

fn at(path: &Path, line: u64) -> String {
    format!("{}, line {line}", path.display())
}

/// Reads a file. With `needs_values`, each row has to have its measured value.
///
/// # Errors
/// A file that can't be read, columns that are missing, rows that hold no numbers.
pub fn read(path: &Path, assumed: Assumed, needs_values: bool) -> Result<Vec<Row>> {
    let text = std::fs::read(path).map_err(|error| {
        BadInput::new(
            path.display().to_string(),
            error.to_string(),
            "give a CSV file with the key columns",
        )
    })?;
    parse(path, &text, assumed, needs_values)
}

/// Reads a file's bytes; see [`read`].
///
/// # Errors
/// Those of [`read`].
pub fn parse(path: &Path, text: &[u8], assumed: Assumed, needs_values: bool) -> Result<Vec<Row>> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text);
    let header = reader
        .headers()
        .map_err(|error| fault(path, &error))?
        .clone();
    let column = |name: &str| header.iter().position(|known| known == name);
    let needed = |name: &str| {
        column(name).ok_or_else(|| {
            BadInput::new(
                at(path, 1),
                format!("the column `{name}` is missing"),
                format!("give the key columns {}", COLUMNS.join(" ")),
            )
        })
    };
    let mut keys = [0; COLUMNS.len()];
    for (key, name) in keys.iter_mut().zip(COLUMNS) {
        *key = needed(name)?;
    }
    let others = [column("id"), column("rep"), column("tier"), column("note")];
    let value = match needs_values {
        true => Some(needed("value")?),
        false => column("value"),
    };
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| fault(path, &error))?;
        let line = record.position().map_or(0, csv::Position::line);
        let place = at(path, line);
        if record.len() < header.len() || record.as_slice().len() > ROW_MAX {
            return Err(BadInput::new(
                place,
                format!("{} columns of {}", record.len(), header.len()),
                "give each row all columns",
            ));
        }
        let cell = |column: usize| record.get(column).unwrap_or("");
        let other = |which: usize| others[which].map_or("", cell).to_owned();
        let measured = match value.map(cell) {
            Some(text) if needs_values || !text.is_empty() => Some(finite(&place, text)?),
            _ => None,
        };
        let fields = Record::of(keys.map(cell));
        let question = question(&fields, assumed).map_err(|error| {
            let place = format!("{place}, {}", error.place);
            BadInput { place, ..error }
        })?;
        rows.push(Row {
            line,
            id: other(0),
            rep: other(1),
            tier: other(2),
            note: other(3),
            value: measured,
            record: fields,
            question,
        });
    }
    Ok(rows)
}

fn finite(place: &str, text: &str) -> Result<f64> {
    let value = text
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|value| value.is_finite());
    value.ok_or_else(|| {
        BadInput::new(
            place,
            "no number in the column `value`",
            "give the measured value, or leave the row out",
        )
    })
}

fn fault(path: &Path, error: &csv::Error) -> BadInput {
    let line = error.position().map_or(1, csv::Position::line);
    BadInput::new(
        at(path, line),
        error.to_string().replace('\n', " "),
        "give a CSV file in UTF-8 with the key columns",
    )
}
