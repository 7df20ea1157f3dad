//! A CPython version as the interpreter states it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `PY_VERSION_HEX` taken apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u32);

impl Version {
    /// Major and minor, as `(3, 12)`.
    #[must_use]
    pub const fn minor(self) -> (u8, u8) {
        ((self.0 >> 24) as u8, (self.0 >> 16) as u8)
    }

    /// Whether this is an alpha or a beta: fields may still move until the first candidate.
    #[must_use]
    pub const fn is_unsettled(self) -> bool {
        self.0 & 0xf0 < 0xc0
    }

    /// Whether this is a final release: alphas, betas and candidates move fields.
    #[must_use]
    pub const fn is_final(self) -> bool {
        self.0 & 0xf0 == 0xf0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.minor();
        write!(f, "{major}.{minor}.{}", (self.0 >> 8) as u8)?;
        let serial = self.0 & 0xf;
        match self.0 & 0xf0 {
            0xf0 => Ok(()),
            0xa0 => write!(f, "a{serial}"),
            0xb0 => write!(f, "b{serial}"),
            _ => write!(f, "rc{serial}"),
        }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
