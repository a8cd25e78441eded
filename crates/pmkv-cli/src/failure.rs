//! Errors as a user meets them: the cause, and the way out.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use pmlib::Error;

/// A command that was not done.
#[derive(Debug)]
pub struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// The heap's error. Exit code 1.
    pub fn heap(path: &Path, error: &Error) -> Failure {
        let text = error.to_string();
        let source = error.source().map(|source| format!(" ({source})"));
        let heap = path.display().to_string();
        let place = match text.contains(&heap) {
            true => String::new(),
            false => format!("{heap}: "),
        };
        let way_out = match error {
            Error::Foreign { .. } => {
                format!("; check the path, or make a heap with `pmkv create {heap}.heap`")
            }
            Error::Damaged { .. } => "; take a copy of it from elsewhere".to_owned(),
            Error::TooSmall { .. } => "; give it more with --size".to_owned(),
            _ => String::new(),
        };
        Failure {
            message: format!("{place}{text}{}{way_out}", source.unwrap_or_default()),
            code: 1,
        }
    }

    /// Another exit code.
    pub fn with_code(mut self, code: u8) -> Failure {
        self.code = code;
        self
    }

    /// The code for the shell.
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
        Failure {
            message: format!("writing the result: {error}; see where stdout leads"),
            code: 1,
        }
    }
}
