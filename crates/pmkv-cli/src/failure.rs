//! Errors of a heap as a user meets them: the cause, and the way out.

use std::error::Error as _;
use std::path::Path;

use pm_cli::Failure;
use pmlib::Error;

/// The heap's error. Exit code 1.
pub fn of_heap(path: &Path, error: &Error) -> Failure {
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
        Error::Damaged { .. } => format!("; mend it with `pmkv repair {heap}`"),
        Error::TooSmall { .. } => "; give it more with --size".to_owned(),
        _ => String::new(),
    };
    Failure::whole(format!(
        "{place}{text}{}{way_out}",
        source.unwrap_or_default()
    ))
}

/// An engine's error. Exit code 1.
pub fn of_engine(path: &Path, error: &pmkv::Error) -> Failure {
    let heap = path.display();
    let way_out = match error {
        pmkv::Error::Heap(error) => return of_heap(path, error),
        pmkv::Error::Corrupt { .. } => {
            return Failure::whole(format!(
                "{heap}: {error}; its key has lost its value, and the other keys are as they were; \
                 to use the key again: pmkv scrub --drop {heap}"
            ));
        }
        pmkv::Error::TooLarge { .. } => "; divide what is to be kept",
        pmkv::Error::Damaged { .. } => "; copy what `pmkv scan` still shows, to a new heap",
        _ => "",
    };
    Failure::whole(format!("{heap}: {error}{way_out}"))
}
