//! Counted stacks of a time window: what every output format is made of.
