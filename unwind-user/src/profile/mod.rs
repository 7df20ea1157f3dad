//! Counted stacks of a time window: what every output format is made of.
//!
//! [`Tables`] give each name, function, frame and stack a small number once; a [`Profile`] counts
//! those numbers. Names are kept as the target has them: whoever prints them escapes them.

mod frame;
mod hash;
mod intern;
mod mode;
mod name;
mod samples;
mod tables;
mod top;

pub use frame::{Frame, Function, Location, Marker};
pub use hash::IdHash;
pub use mode::Mode;
pub use name::NAME_BYTES_MAX;
pub use samples::{ProcessInfo, ProcessKey, Profile, ThreadInfo, ThreadKey};
pub use tables::{FrameId, FunctionId, Limits, StackId, Tables};
pub use top::Top;

pub(crate) use intern::Interner;
