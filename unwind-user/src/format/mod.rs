//! Pure encoders: a [`Profile`] in, bytes out.
//!
//! Names come from the target and may hold anything; each format escapes what it must, and keeps
//! the rest as it is. Equal profiles give equal bytes.

pub mod folded;
pub mod pprof;
pub mod text;

mod flamegraph;
mod label;
mod rows;
mod speedscope;
mod title;
mod tree;

pub use label::{Label, LabelError};

use crate::profile::Profile;
use std::io;
use std::path::Path;

/// What the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A flame graph: one interactive SVG.
    Flamegraph,
    /// Folded stacks, a line each; see [`folded`].
    Folded,
    /// pprof's `profile.proto`, gzipped.
    Pprof,
    /// speedscope's JSON.
    Speedscope,
}

/// File name endings and what they stand for; the longer ones first.
const EXTENSIONS: [(&str, Format); 8] = [
    (".speedscope.json", Format::Speedscope),
    (".json", Format::Speedscope),
    (".pb.gz", Format::Pprof),
    (".pprof", Format::Pprof),
    (".folded", Format::Folded),
    (".collapsed", Format::Folded),
    (".txt", Format::Folded),
    (".svg", Format::Flamegraph),
];

impl Format {
    /// The format that a file name asks for; upper and lower case are the same.
    #[must_use]
    pub fn from_extension(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        EXTENSIONS
            .iter()
            .find(|(end, _)| name.ends_with(end))
            .map(|&(_, format)| format)
    }
}

/// What stacks begin with besides their outermost frame.
///
/// With several processes it is the process first, whatever is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Roots {
    /// Nothing: the stacks of all threads count together. pprof has the thread as labels
    /// nevertheless.
    #[default]
    Merged,
    /// The thread. In speedscope each has a profile of its own instead.
    Threads,
}

/// What makes two frames the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lines {
    /// Function and line.
    #[default]
    Line,
    /// The function alone; no lines are written.
    Function,
}

/// What becomes of a frame that equals its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Recursion {
    /// It is a frame like any other.
    #[default]
    Unfolded,
    /// It is shown once, with the callees of all of them.
    Folded,
}

/// Whether it is shown where C code called Python.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Natives {
    /// The caller of that C code stands before what it called.
    #[default]
    Hidden,
    /// [`crate::profile::Marker::Native`] stands between them.
    Shown,
}

/// How to show a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Whether threads are told apart.
    pub roots: Roots,
    /// Whether lines are.
    pub lines: Lines,
    /// Whether frames that equal their caller are.
    pub recursion: Recursion,
    /// Whether it is shown where C code called Python.
    pub natives: Natives,
}

/// Writes `profile` to `out`, which need not be buffered. A profile without samples gives a valid
/// file.
///
/// # Errors
/// Those of `out`.
pub fn write(
    format: Format,
    profile: &Profile,
    options: &Options,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(64 << 10, out);
    match format {
        Format::Flamegraph => flamegraph::write(profile, options, &mut out)?,
        Format::Folded => folded::write(profile, options, &mut out)?,
        Format::Pprof => pprof::write(profile, options, &mut out)?,
        Format::Speedscope => speedscope::write(profile, options, &mut out)?,
    }
    io::Write::flush(&mut out)
}

#[cfg(test)]
mod tests;
