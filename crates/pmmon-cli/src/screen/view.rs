//! The look of a round on a screen, and the keys that change it. Neither touches a terminal.
//!
//! Lines are those of the text output. A line that is wider than the screen ends in `>` there, so
//! that no figure is taken for another, and the arrows move to what is hidden.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use pmmon::Access;
use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::Span;

use super::keys::Key;
use crate::rows::{ProcessRow, Round};

/// Columns by which an arrow moves.
const SHIFT: usize = 8;
/// Rows by which a page moves, if nothing was drawn yet.
const PAGE: usize = 10;
const KEYS: &str = "q quit  Enter threads  s sort  ? keys";
const HELP: [&str; 10] = [
    "q, ctrl-C     quit",
    "up, down      choose a row; also k and j, Page Up, Page Down, Home, End",
    "Enter         show or hide the threads of a process",
    "t             show or hide all threads",
    "s             sort by the next column",
    "w r p c       sort by bytes written, by bytes read, by PID, by command",
    "left, right   show what a narrow terminal hides",
    "?, Esc        this list, and back",
    "",
    "Figures are totals since it began; +- is the half of an interval of 95 %.",
];

/// The answer to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Nothing,
    Drawing,
    Quitting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Written,
    Read,
    Pid,
    Command,
}

impl Sort {
    fn name(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Read => "read",
            Self::Pid => "PID",
            Self::Command => "command",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Written => Self::Read,
            Self::Read => Self::Pid,
            Self::Pid => Self::Command,
            Self::Command => Self::Written,
        }
    }

    /// The largest figures come first, and the lowest names. Equal rows stay where they are.
    fn compare(self, one: &ProcessRow, other: &ProcessRow) -> Ordering {
        let size = |row: &ProcessRow, access| row.size(access).unwrap_or(-1.0);
        let by = |access| size(other, access).total_cmp(&size(one, access));
        match self {
            Self::Written => by(Access::Write),
            Self::Read => by(Access::Read),
            Self::Pid => one.pid.cmp(&other.pid),
            Self::Command => one.command.cmp(&other.command),
        }
        .then_with(|| (one.pid, one.start_ns).cmp(&(other.pid, other.start_ns)))
    }
}

/// A process: numbers are used anew.
type Id = (u32, u64);

/// A row that can be chosen.
struct Row {
    process: Id,
    /// The thread's place in its process, since its number may come twice.
    thread: Option<usize>,
    text: String,
}

/// The state of the screen.
pub(super) struct View {
    sort: Sort,
    /// All processes show their threads, but those in `turned`; otherwise these alone do.
    all_threads: bool,
    turned: BTreeSet<Id>,
    /// The chosen row: what it is, and where it was.
    chosen: Option<(Id, Option<usize>)>,
    at: usize,
    /// The first row that is shown, and the rows that there is place for.
    first: usize,
    page: usize,
    shift: usize,
    is_help: bool,
}

impl View {
    pub fn new(all_threads: bool) -> Self {
        Self {
            sort: Sort::Written,
            all_threads,
            turned: BTreeSet::new(),
            chosen: None,
            at: 0,
            first: 0,
            page: PAGE,
            shift: 0,
            is_help: false,
        }
    }

    fn rows(&self, round: &Round) -> Vec<Row> {
        let mut processes: Vec<&ProcessRow> = round.processes.iter().collect();
        processes.sort_by(|one, other| self.sort.compare(one, other));
        let mut rows = Vec::new();
        for process in processes {
            let key = (process.pid, process.start_ns);
            let mut push = |thread, text| {
                rows.push(Row {
                    process: key,
                    thread,
                    text,
                });
            };
            let beside = round.has_calls_beside();
            push(None, process.text(beside));
            if self.all_threads != self.turned.contains(&key) {
                let threads = process.threads.iter().map(|row| row.text(beside));
                threads
                    .enumerate()
                    .for_each(|(place, text)| push(Some(place), text));
            }
        }
        rows
    }

    /// The place of the chosen row, which may have moved, or have gone.
    fn place(&mut self, rows: &[Row]) {
        let is_chosen = |row: &Row| Some((row.process, row.thread)) == self.chosen;
        let found = rows.iter().position(is_chosen);
        let last = rows.len().saturating_sub(1);
        self.choose(found.unwrap_or(self.at.min(last)), rows);
    }

    fn choose(&mut self, at: usize, rows: &[Row]) {
        self.at = at.min(rows.len().saturating_sub(1));
        // Until a key chooses one, it is the first row, whatever that is.
        let is_first = self.at == 0 && self.chosen.is_none();
        if !is_first {
            let row = rows.get(self.at);
            self.chosen = row.map(|row| (row.process, row.thread));
        }
    }

    /// Does what a key means.
    pub fn press(&mut self, key: Key, round: &Round) -> Asked {
        match key {
            Key::Char('q') | Key::Interrupt => return Asked::Quitting,
            Key::Char('?') => self.is_help = !self.is_help,
            Key::Escape => self.is_help = false,
            Key::Char('s') => self.sort = self.sort.next(),
            Key::Char('w') => self.sort = Sort::Written,
            Key::Char('r') => self.sort = Sort::Read,
            Key::Char('p') => self.sort = Sort::Pid,
            Key::Char('c') => self.sort = Sort::Command,
            Key::Char('t') => {
                self.all_threads = !self.all_threads;
                self.turned.clear();
            }
            Key::Left => self.shift = self.shift.saturating_sub(SHIFT),
            Key::Right => {
                let rows = self.rows(round);
                let widths = rows.iter().map(|row| row.text.chars().count());
                let notes = round.notes();
                let widest = widths.chain(notes.iter().map(|note| note.chars().count()));
                self.shift = (self.shift + SHIFT).min(widest.max().unwrap_or(0));
            }
            key => return self.go(key, round),
        }
        Asked::Drawing
    }

    /// The keys that choose a row, or turn one.
    fn go(&mut self, key: Key, round: &Round) -> Asked {
        let rows = self.rows(round);
        self.place(&rows);
        let at = match key {
            Key::Up | Key::Char('k') => self.at.saturating_sub(1),
            Key::Down | Key::Char('j') => self.at + 1,
            Key::PageUp => self.at.saturating_sub(self.page),
            Key::PageDown => self.at + self.page,
            Key::Home => 0,
            Key::End => rows.len(),
            Key::Enter | Key::Char(' ') => {
                if let Some(Row { process, .. }) = rows.get(self.at) {
                    if !self.turned.remove(process) {
                        self.turned.insert(*process);
                    }
                    // The threads of a row of one of them are hidden: the process is left.
                    self.chosen = Some((*process, None));
                }
                return Asked::Drawing;
            }
            _ => return Asked::Nothing,
        };
        self.chosen = rows.first().map(|row| (row.process, row.thread));
        self.choose(at, &rows);
        Asked::Drawing
    }

    /// Draws a round. The buffer is empty, and of any size.
    pub fn draw(&mut self, round: &Round, buffer: &mut Buffer) {
        let height = usize::from(buffer.area.height);
        let (bold, reverse) = (Modifier::BOLD, Modifier::REVERSED);
        let plain = Modifier::empty();
        let (has_keys, has_title) = (height >= 2, height >= 3);
        let mut lines = Vec::new();
        if has_title {
            lines.push((self.title(round), bold));
        }
        let below = usize::from(has_keys);
        if self.is_help {
            lines.extend(HELP.iter().map(|line| ((*line).to_owned(), plain)));
        } else {
            lines.push((round.header(), bold));
            let notes = round.notes();
            let place = height.saturating_sub(lines.len() + below);
            let notes_shown = notes.len().min(place / 3 + usize::from(place > 0));
            let rows = self.rows(round);
            self.place(&rows);
            self.page = place.saturating_sub(notes_shown).max(1);
            self.first = self.first.min(rows.len().saturating_sub(self.page));
            self.first = self
                .first
                .min(self.at)
                .max((self.at + 1).saturating_sub(self.page));
            let page = rows.iter().enumerate().skip(self.first).take(self.page);
            lines.extend(page.map(|(at, row)| {
                let is_chosen = at == self.at;
                (row.text.clone(), if is_chosen { reverse } else { plain })
            }));
            lines.extend(
                notes
                    .into_iter()
                    .take(notes_shown)
                    .map(|note| (note, plain)),
            );
        }
        lines.truncate(height.saturating_sub(below));
        for (row, (text, style)) in lines.iter().enumerate() {
            let is_title = has_title && row == 0;
            put(
                buffer,
                row,
                text,
                if is_title { 0 } else { self.shift },
                *style,
            );
        }
        if has_keys {
            put(buffer, height - 1, KEYS, 0, reverse);
        }
    }

    fn title(&self, round: &Round) -> String {
        let count = round.processes.len();
        let noun = if count == 1 { "process" } else { "processes" };
        let sort = self.sort.name();
        format!("{}: {count} {noun}, sorted by {sort}", round.title())
    }
}

/// Writes the part of a line that the screen shows.
fn put(buffer: &mut Buffer, row: usize, text: &str, shift: usize, style: Modifier) {
    let (Ok(row), width) = (u16::try_from(row), buffer.area.width) else {
        return;
    };
    if width == 0 || row >= buffer.area.height {
        return;
    }
    let style = Style::new().add_modifier(style);
    let (left, top) = (buffer.area.x, buffer.area.y + row);
    let shown: String = text.chars().skip(shift).collect();
    buffer.set_stringn(left, top, &shown, usize::from(width), style);
    if Span::raw(shown).width() > usize::from(width) {
        buffer.set_stringn(left + width - 1, top, ">", 1, style);
    }
}

#[cfg(test)]
mod tests;
