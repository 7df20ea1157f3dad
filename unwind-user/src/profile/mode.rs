//! Which time samples stand for.

use serde::{Deserialize, Serialize};

/// Which time of a thread samples stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// What it used of a CPU.
    #[default]
    Cpu,
    /// All, waiting included.
    Wall,
    /// What it held its interpreter's GIL.
    Gil,
    /// What it raised or handled an exception.
    Exception,
}

impl Mode {
    /// Whether it is CPU time.
    #[must_use]
    pub fn is_cpu(&self) -> bool {
        *self == Self::Cpu
    }

    /// Its name, which is that of the sample type in formats that have one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wall => "wall",
            Self::Gil => "gil",
            Self::Exception => "exception",
        }
    }

    /// What a second of it is a second of.
    #[must_use]
    pub const fn time(self) -> &'static str {
        match self {
            Self::Cpu => "CPU time",
            Self::Wall => "a thread's time",
            Self::Gil => "a thread's time with the GIL",
            Self::Exception => "a thread's time with an exception",
        }
    }
}
