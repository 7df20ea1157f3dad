//! Samples that are counted later: they hold code of which is not certain yet that what was read is
//! its own. As soon as a sample meets it again, it is.

use std::collections::VecDeque;

use super::batch::{Cold, Known};
use super::target::Target;
use crate::profile::Profile;

/// Frames held of one process, 24 bytes each. Hundreds of samples; most are held for one batch.
const FRAMES_MAX: usize = 1 << 14;

/// The samples of one process that are held, oldest first.
#[derive(Debug, Default)]
pub(super) struct Held {
    samples: VecDeque<Cold>,
    frames: usize,
    /// State of the code cache in which nothing more can be told of them.
    looked_at: Option<u64>,
}

impl Held {
    pub(super) fn push(&mut self, cold: Cold) {
        self.frames += cold.frames.len();
        self.samples.push_back(cold);
        self.looked_at = None;
    }

    /// What was held the longest, while there is more than may be.
    fn pop_excess(&mut self) -> Option<Cold> {
        if self.frames <= FRAMES_MAX {
            return None;
        }
        let cold = self.samples.pop_front()?;
        self.frames -= cold.frames.len();
        Some(cold)
    }
}

impl Target {
    /// Counts those held samples of which all is known by now, and what is too much to hold.
    pub(super) fn count_held(&mut self, profile: &mut Profile) {
        let state = self.codes.certainty();
        if self.held.looked_at.replace(state) != Some(state) {
            for mut cold in std::mem::take(&mut self.held.samples) {
                self.held.frames -= cold.frames.len();
                if self.decide(&mut cold) {
                    self.count(&cold, profile);
                } else {
                    self.held.push(cold);
                }
            }
            self.held.looked_at = Some(state);
        }
        while let Some(cold) = self.held.pop_excess() {
            self.count_as_known(cold, profile);
        }
    }

    /// Counts all that is held, with what is known by now.
    pub(super) fn count_all_held(&mut self, profile: &mut Profile) {
        for mut cold in std::mem::take(&mut self.held).samples {
            self.decide(&mut cold);
            self.count_as_known(cold, profile);
        }
    }

    fn count_as_known(&mut self, mut cold: Cold, profile: &mut Profile) {
        for (_, known) in &mut cold.frames {
            if matches!(known, Known::Uncertain(_)) {
                *known = Known::Freed;
            }
        }
        self.count(&cold, profile);
    }

    /// Decides what can be decided; whether that is all.
    fn decide(&self, cold: &mut Cold) -> bool {
        let mut is_all = true;
        for (_, known) in &mut cold.frames {
            let Known::Uncertain(index) = *known else {
                continue;
            };
            match self.codes.is_certain(index) {
                Some(true) => *known = Known::Proved(index),
                Some(false) => is_all = false,
                None => *known = Known::Freed,
            }
        }
        is_all
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Waiting;
    use super::*;
    use crate::cache::code::CodeIndex;
    use crate::layout::{Version, v3_12};
    use crate::memory::{Addr, Process};
    use crate::profile::{Frame, Marker, ThreadKey};
    use crate::python::alive::Reading;
    use crate::python::code::Code;
    use crate::python::frame::RawFrame;

    const ADDR: Addr = Addr(0x1000);

    fn target() -> Target {
        let nobody = Box::new(Process::new(i32::MAX));
        Target::new(0, v3_12(Version(0x030c_01f0)), nobody)
    }

    fn learn(target: &mut Target, profile: &mut Profile) -> CodeIndex {
        let function = profile.tables.function("f", "f.py", 1);
        let reading = Reading {
            code: Code::unreadable(),
            is_certain: false,
        };
        target.codes.insert(ADDR, reading, function, 1)
    }

    fn hold(target: &mut Target, index: CodeIndex, frames: usize) {
        let raw = RawFrame {
            code: ADDR,
            instr: ADDR,
        };
        let thread = ThreadKey {
            pid: 1,
            image: 0,
            tid: 1,
        };
        target.held.push(Cold {
            waiting: Waiting { thread, cut: None },
            frames: vec![(raw, Known::Uncertain(index)); frames].into(),
        });
    }

    /// Samples counted, and frames of them that are shown as freed.
    fn counted(profile: &Profile) -> (u64, usize) {
        let is_freed = |frame: &_| matches!(frame, Frame::Marker(Marker::FreedCode));
        let frames = profile
            .sorted_samples()
            .into_iter()
            .flat_map(|(_, stack, _)| {
                let frames = profile.tables.frames_of(stack);
                frames
                    .iter()
                    .map(|&id| profile.tables.frame_at(id))
                    .collect::<Vec<_>>()
            });
        (profile.total(), frames.filter(is_freed).count())
    }

    #[test]
    fn what_is_met_again_is_shown() {
        let (mut target, mut profile) = (target(), Profile::default());
        let index = learn(&mut target, &mut profile);
        hold(&mut target, index, 1);
        target.count_held(&mut profile);
        target.count_held(&mut profile);
        assert_eq!(counted(&profile), (0, 0));
        target.codes.settle(index);
        target.count_held(&mut profile);
        assert_eq!(counted(&profile), (1, 0));
        assert_eq!(target.held.frames, 0);
    }

    #[test]
    fn what_is_dropped_or_never_met_again_is_not() {
        let (mut target, mut profile) = (target(), Profile::default());
        let index = learn(&mut target, &mut profile);
        hold(&mut target, index, 1);
        target.codes.forget(index);
        target.count_held(&mut profile);
        assert_eq!(counted(&profile), (1, 1));
        let index = learn(&mut target, &mut profile);
        hold(&mut target, index, 1);
        target.count_held(&mut profile);
        assert_eq!(profile.total(), 1);
        target.count_all_held(&mut profile);
        assert_eq!(profile.total(), 2);
    }

    #[test]
    fn the_oldest_make_room() {
        let (mut target, mut profile) = (target(), Profile::default());
        let index = learn(&mut target, &mut profile);
        for _ in 0..3 {
            hold(&mut target, index, FRAMES_MAX / 2);
            target.count_held(&mut profile);
        }
        assert_eq!((profile.total(), target.held.frames), (1, FRAMES_MAX));
    }
}
