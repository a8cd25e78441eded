//! Errors as a user meets them: one line, the cause and the way out.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// A command that was not done.
#[derive(Debug)]
pub struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// Exit code 1.
    pub fn new(cause: impl fmt::Display, way_out: impl fmt::Display) -> Failure {
        Failure::whole(format!("{cause}; {way_out}"))
    }

    /// A message that has both parts already. Exit code 1.
    pub fn whole(message: impl fmt::Display) -> Failure {
        Failure {
            message: message.to_string(),
            code: 1,
        }
    }

    /// Another exit code.
    #[must_use]
    pub fn with_code(mut self, code: u8) -> Failure {
        self.code = code;
        self
    }

    /// The exit code for the shell.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Output that could not be written; a reader that went away is not among it.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::new(
            format!("writing the result: {error}"),
            "see where stdout leads",
        )
    }
}
