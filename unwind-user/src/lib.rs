//! User half of unwind: turns what the kernel half captured into profiles.
//!
//! Data moves one way: a [`sample::Record`] from the ring, a walk of its frames ([`python`]) over
//! [`memory`] as a [`layout`] describes it, resolution through the [`cache`]s, counting in a
//! [`profile`], and an output [`mod@format`]. [`pipeline`] joins these, [`run`] drives them.
//! [`remote`] takes stacks from outside, for [`dump`].

pub mod bpf;
pub mod cache;
pub mod cli;
pub mod dump;
pub mod format;
pub mod layout;
pub mod memory;
pub mod metrics;
mod patience;
pub mod pipeline;
pub mod process;
pub mod profile;
pub mod python;
pub mod record;
pub mod remote;
pub mod run;
pub mod sample;
pub mod sampler;
pub mod sys;
