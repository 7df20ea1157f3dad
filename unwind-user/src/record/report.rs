//! `unwind report`: a recording in, any output out.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use thiserror::Error;

use super::reader::{Damage, RecordingError};
use super::{copy_scrubbed, replay};
use crate::format::{self, Format};
use crate::run::output::{Pending, WriteError, write_to};

/// What to make of a recording.
#[derive(Clone, Debug)]
pub struct Report {
    /// The recording.
    pub recording: PathBuf,
    /// Where to write; `-` is standard output.
    pub output: PathBuf,
    /// What to write; none is a scrubbed copy.
    pub format: Option<Format>,
    /// How to write it.
    pub shape: format::Options,
}

/// Why there is no report.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The recording cannot be read.
    #[error("cannot read {}", path.display())]
    Recording {
        /// Which.
        path: PathBuf,
        /// Why.
        source: RecordingError,
    },
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] WriteError),
}

/// Makes an output of a recording; returns why a part of the recording is missing in it, if so.
///
/// # Errors
/// [`ReportError`]
pub fn report(report: &Report) -> Result<Option<Damage>, ReportError> {
    let failed = |source: RecordingError| {
        let path = report.recording.clone();
        ReportError::Recording { path, source }
    };
    let file = File::open(&report.recording).map_err(|error| failed(error.into()))?;
    let input = BufReader::with_capacity(64 << 10, file);
    let Some(format) = report.format else {
        let mut out = Pending::create(&report.output)?;
        let damage = copy_scrubbed(input, &mut out).map_err(failed)?;
        out.commit()?;
        return Ok(damage);
    };
    let replayed = replay(input).map_err(failed)?;
    write_to(&report.output, &mut |out| {
        format::write(format, &replayed.profile, &report.shape, out)
    })?;
    Ok(replayed.damage)
}
