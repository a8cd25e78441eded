//! `pmep convert`

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use pmep::trace::binary;
use pmep::{BadInput, Result};
use pmep_cli::Convert;

use crate::{Outcome, replay};

fn fault(place: &Path, error: &std::io::Error) -> BadInput {
    let way_out = "give a place that can be written";
    BadInput::new(place.display().to_string(), error.to_string(), way_out)
}

fn write(trace: &Path, output: &Path) -> Result<()> {
    let io = |error| fault(output, &error);
    let file = File::create(output).map_err(io)?;
    let mut writer = BufWriter::with_capacity(1 << 18, file);
    writer.write_all(&binary::header()).map_err(io)?;
    replay::steps(trace, |step| {
        writer.write_all(&binary::encode(&step)).map_err(io)
    })?;
    writer.flush().map_err(io)
}

pub fn run(arguments: &Convert) -> Outcome {
    let (trace, output) = (&arguments.trace, &arguments.output);
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    if real(trace).is_some_and(|path| real(output) == Some(path)) {
        return Err(BadInput::new(
            output.display().to_string(),
            "it is the trace itself",
            "give another file",
        ));
    }
    let done = write(trace, output);
    // Part of a trace would look like a whole one.
    if done.is_err() && std::fs::symlink_metadata(output).is_ok_and(|data| data.is_file()) {
        std::fs::remove_file(output).map_err(|error| fault(output, &error))?;
    }
    done.map(|()| ExitCode::SUCCESS)
}
