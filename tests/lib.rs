//! Support shared by the integration tests.

mod case;
mod pythons;
mod unwind;

pub use case::{Case, for_each};
pub use pythons::{Place, Python, pythons, versions};
pub use unwind::{Profile, profile, unwind};
