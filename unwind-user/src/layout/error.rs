//! Why a layout is refused.

use super::Version;

/// Why a build's layout cannot be used, in words that a user can act on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The bytes do not begin with the cookie of `_Py_DebugOffsets`.
    #[error("no `xdebugpy` cookie: the interpreter publishes no offsets here")]
    NoCookie,
    /// The bytes end inside the table.
    #[error("the offset table of CPython {version} has {needed} bytes, only {got} are there")]
    Short {
        /// Version that the table states.
        version: Version,
        /// Bytes of that version's table.
        needed: usize,
        /// Bytes given.
        got: usize,
    },
    /// Objects and frames of free-threaded builds look different.
    #[error("free-threaded builds are not supported yet (this one is CPython {0})")]
    FreeThreaded(Version),
    /// An alpha or a beta.
    #[error("CPython {0} is a pre-release: its layout is known to no table; use a final release")]
    PreRelease(Version),
    /// A version that we neither have a table for nor can read one from.
    #[error("CPython {0} is not supported: 3.11 to 3.15 are")]
    Unsupported(Version),
    /// A field reaches beyond its struct, or beyond what a sample reads of it.
    #[error("{field}: offset {offset} with {width} bytes exceeds the limit of {limit}")]
    Outside {
        /// The field, as `Struct.field`.
        field: &'static str,
        /// Its offset.
        offset: u64,
        /// Bytes read at the offset.
        width: u64,
        /// First byte that may not be touched.
        limit: u64,
    },
    /// A field lies where its C type cannot.
    #[error("{field}: offset {offset} is not a multiple of {align}")]
    Misaligned {
        /// The field, as `Struct.field`.
        field: &'static str,
        /// Its offset.
        offset: u64,
        /// Alignment of its type.
        align: u64,
    },
    /// Two fields would share bytes.
    #[error("{field}: offset {offset} lies in {other}")]
    Overlap {
        /// The field, as `Struct.field`.
        field: &'static str,
        /// The other.
        other: &'static str,
        /// Offset of the first.
        offset: u64,
    },
    /// A value that can only be one thing is another.
    #[error("{field}: {found}, should be (or be bounded by) {expected}")]
    Unexpected {
        /// What the value is.
        field: &'static str,
        /// The value.
        found: u64,
        /// What it must be, or the bound that it breaks.
        expected: u64,
    },
}
