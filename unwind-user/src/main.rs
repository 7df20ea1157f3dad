//! The command `unwind`.
fn main() {}
