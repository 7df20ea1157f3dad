//! Support shared by the integration tests.

mod case;
mod pythons;

pub use case::Case;
pub use pythons::{Place, Python, pythons};
