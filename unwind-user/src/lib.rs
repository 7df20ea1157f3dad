//! User half of unwind.
