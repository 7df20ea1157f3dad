//! Support shared by the integration tests.

mod case;
mod pythons;
mod unwind;

pub use case::{Case, for_each};
pub use pythons::{Place, Python, pythons};
pub use unwind::{Profile, profile, unwind};
