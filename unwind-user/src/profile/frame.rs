//! What a frame can be.

use super::FunctionId;

/// Where in its file a frame was executing. Unknown parts are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// First line of the instruction's source, from 1.
    pub line: Option<u32>,
    /// Last line of it.
    pub end_line: Option<u32>,
    /// Column in `line` where it begins: UTF-8 bytes, from 0, as `co_positions()` has it.
    pub column: Option<u32>,
    /// Column in `end_line` where it ends (exclusive).
    pub end_column: Option<u32>,
}

impl Location {
    /// Only a line is known.
    #[must_use]
    pub const fn at_line(line: u32) -> Self {
        Self {
            line: Some(line),
            end_line: None,
            column: None,
            end_column: None,
        }
    }
}

/// Stands in a stack for what could not be, or need not be, a Python frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Marker {
    /// Outer frames are missing: the stack is deeper than the budget.
    Truncated,
    /// Outer frames are missing: the chain ended where no stack can end.
    Incomplete,
    /// Outer frames are missing: a page they lie on was not resident.
    PageFault,
    /// A frame whose code object was gone, or replaced, before it could be identified.
    FreedCode,
    /// The thread was running, but no Python code.
    NoPythonFrames,
    /// A frame whose code object cannot be read.
    Unreadable,
    /// The cyclic garbage collector.
    Gc,
    /// Native code.
    Native,
    /// The profile's tables were full when this stack came first; its samples still count.
    ProfileFull,
}

impl Marker {
    /// Every marker.
    pub const ALL: [Self; 9] = [
        Self::Truncated,
        Self::Incomplete,
        Self::PageFault,
        Self::FreedCode,
        Self::NoPythonFrames,
        Self::Unreadable,
        Self::Gc,
        Self::Native,
        Self::ProfileFull,
    ];

    /// How every output prints it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Truncated => "[truncated]",
            Self::Incomplete => "[incomplete]",
            Self::PageFault => "[page fault]",
            Self::FreedCode => "<freed code>",
            Self::NoPythonFrames => "[no Python frames]",
            Self::Unreadable => "<unreadable>",
            Self::Gc => "<GC>",
            Self::Native => "<native>",
            Self::ProfileFull => "[profile full]",
        }
    }
}

/// A function as the target names it: unescaped, possibly empty, at most
/// [`super::NAME_BYTES_MAX`] bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Function<'a> {
    /// Qualified name.
    pub name: &'a str,
    /// File as the code object has it.
    pub file: &'a str,
    /// Line of its `def`, from 1; 0 when unknown.
    pub first_line: u32,
}

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// Python code.
    Python {
        /// Its function.
        function: FunctionId,
        /// Where it was executing.
        location: Location,
    },
    /// Something else.
    Marker(Marker),
}
