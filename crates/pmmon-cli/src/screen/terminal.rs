//! A terminal that is one screen as long as a [`Screen`] lives, and what it was before after that,
//! also where the program panics.

use std::io::{self, Stdout, Write, stdout};
use std::panic;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue, terminal};
use ratatui_core::backend::{self, Backend, WindowSize};
use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::Modifier;
use ratatui_core::terminal::Terminal;

/// The screen.
pub(crate) struct Screen(Terminal<Plain>);

impl Screen {
    /// Takes the terminal.
    pub fn open() -> io::Result<Self> {
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            // The message would vanish with the screen.
            let _ = restore();
            earlier(what);
        }));
        enable_raw_mode()?;
        let opened = execute!(stdout(), EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(Plain(stdout())));
        // There is no screen yet that would restore it.
        opened.map(Self).inspect_err(|_| _ = restore())
    }

    /// Shows what is drawn into the buffer.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.0.draw(|frame| draw(frame.buffer_mut())).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = restore();
    }
}

/// Gives the terminal back as it was. Doing it twice is as doing it once.
fn restore() -> io::Result<()> {
    let shown = execute!(stdout(), LeaveAlternateScreen, Show);
    disable_raw_mode().and(shown)
}

/// Ratatui's requests to a terminal without colours. Its own crate for that knows all that there
/// is, and takes longer to build than this program.
struct Plain(Stdout);

impl Backend for Plain {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, cells: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut shown = Modifier::empty();
        for (column, row, cell) in cells {
            queue!(self.0, MoveTo(column, row))?;
            if cell.modifier != shown {
                shown = cell.modifier;
                queue!(self.0, SetAttribute(Attribute::Reset))?;
                for (modifier, attribute) in [
                    (Modifier::BOLD, Attribute::Bold),
                    (Modifier::REVERSED, Attribute::Reverse),
                ] {
                    if shown.contains(modifier) {
                        queue!(self.0, SetAttribute(attribute))?;
                    }
                }
            }
            queue!(self.0, Print(cell.symbol()))?;
        }
        queue!(self.0, SetAttribute(Attribute::Reset))
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        execute!(self.0, Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        execute!(self.0, Show)
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        // Only a screen that is a part of the terminal asks, and this one is the whole.
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        execute!(self.0, MoveTo(x, y))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(backend::ClearType::All)
    }

    fn clear_region(&mut self, region: backend::ClearType) -> io::Result<()> {
        use backend::ClearType as Region;
        let region = match region {
            Region::All => ClearType::All,
            Region::AfterCursor => ClearType::FromCursorDown,
            Region::BeforeCursor => ClearType::FromCursorUp,
            Region::CurrentLine => ClearType::CurrentLine,
            Region::UntilNewLine => ClearType::UntilNewLine,
        };
        execute!(self.0, Clear(region))
    }

    fn size(&self) -> io::Result<Size> {
        terminal::size().map(Size::from)
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        let columns_rows = self.size()?;
        Ok(WindowSize {
            columns_rows,
            pixels: Size::default(),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
