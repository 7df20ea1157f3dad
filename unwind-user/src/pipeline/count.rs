//! Counts the samples of a batch once it is proved.

use super::batch::{Cold, Known, Waiting};
use super::target::Target;
use crate::profile::{Marker, Profile, StackId};
use crate::python::frame::RawFrame;

impl Target {
    pub(super) fn count_warm(&mut self, profile: &mut Profile) {
        let warm = std::mem::take(&mut self.batch.warm);
        let all_hold = self.touched.iter().all(|&code| self.holds(code));
        for (waiting, stack) in &warm {
            let Some(entry) = self.stacks.entry(*stack) else {
                continue;
            };
            let simple = waiting.cut.is_none();
            if simple && (all_hold || entry.codes.iter().all(|&code| self.holds(code))) {
                profile.add(waiting.thread, entry.stack, 1);
                continue;
            }
            let mut codes = entry.codes.iter().copied();
            let frames = entry.raw.iter().map(|frame| {
                let known = match frame.marker() {
                    Some(marker) => Known::Marker(marker),
                    None => codes
                        .next()
                        .filter(|&code| self.holds(code))
                        .map_or(Known::Freed, Known::Vouched),
                };
                (*frame, known)
            });
            let frames: Box<[_]> = frames.collect();
            let id = self.resolve(*waiting, &frames, profile);
            profile.add(waiting.thread, id, 1);
        }
        self.batch.warm = warm;
        self.batch.warm.clear();
    }

    pub(super) fn count_cold(&mut self, profile: &mut Profile) {
        for mut cold in std::mem::take(&mut self.batch.cold) {
            for (_, known) in &mut cold.frames {
                if let Known::Vouched(code) = *known
                    && !self.holds(code)
                {
                    *known = Known::Freed;
                }
            }
            let is_uncertain = |(_, known): &_| matches!(known, Known::Uncertain(_));
            if cold.frames.iter().any(is_uncertain) {
                self.held.push(cold);
            } else {
                self.count(&cold, profile);
            }
        }
    }

    /// Counts a sample of whose frames all is known that ever will be.
    pub(super) fn count(&mut self, cold: &Cold, profile: &mut Profile) {
        let id = self.resolve(cold.waiting, &cold.frames, profile);
        profile.add(cold.waiting.thread, id, 1);
        self.remember(cold, id);
    }

    /// Puts a stack into the cache once all of its code objects are vouched for.
    fn remember(&mut self, cold: &Cold, id: StackId) {
        if cold.waiting.cut.is_some() {
            return;
        }
        let mut codes = Vec::with_capacity(cold.frames.len());
        let mut since = 0;
        for (frame, known) in &cold.frames {
            if matches!(known, Known::Marker(_)) {
                continue;
            }
            let Some(index) = known.index() else { return };
            let Some(entry) = self.codes.entry(index) else {
                return;
            };
            if entry.since == u64::MAX || self.codes.at(frame.code) != Some(index) {
                return;
            }
            since = since.max(entry.since);
            codes.push(index);
        }
        let raw: Vec<RawFrame> = cold.frames.iter().map(|(frame, _)| *frame).collect();
        self.stacks.insert(&raw, &codes, id, since);
    }

    /// The stack in the profile's tables, outermost first, with markers where frames are missing.
    fn resolve(
        &mut self,
        waiting: Waiting,
        frames: &[(RawFrame, Known)],
        profile: &mut Profile,
    ) -> StackId {
        let tables = &mut profile.tables;
        self.frames.clear();
        let mut is_python = false;
        if let Some(marker) = waiting.cut {
            self.frames.push(tables.marker(marker));
        }
        for (frame, known) in frames.iter().rev() {
            if let Known::Marker(marker) = *known {
                self.frames.push(tables.marker(marker));
                continue;
            }
            let entry = known.index().and_then(|index| self.codes.entry(index));
            let id = match entry {
                Some(entry) if entry.code.is_hidden() => continue,
                Some(entry) => {
                    let location = entry.code.location(&self.layout, frame.instr);
                    tables.frame(entry.function, location)
                }
                None => {
                    self.stats.freed_frames += 1;
                    tables.marker(Marker::FreedCode)
                }
            };
            is_python = true;
            self.frames.push(id);
        }
        // Where outer frames are missing, some may be there.
        if !is_python && waiting.cut.is_none() {
            self.frames.clear();
            self.frames.push(tables.marker(Marker::NoPythonFrames));
        }
        tables.stack(self.frames.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Version, v3_12};
    use crate::memory::Process;
    use crate::profile::{Frame, ThreadKey};

    /// What is shown of these frames, none of whose code objects is known.
    fn shown(cut: Option<Marker>, raw: &[RawFrame]) -> Vec<Marker> {
        let nobody = Box::new(Process::new(i32::MAX));
        let mut target = Target::new(0, v3_12(Version(0x030c_01f0)), nobody);
        let mut profile = Profile::default();
        let thread = ThreadKey {
            pid: 1,
            image: 0,
            tid: 1,
        };
        let known = |frame: &RawFrame| frame.marker().map_or(Known::Freed, Known::Marker);
        let frames: Vec<_> = raw.iter().map(|frame| (*frame, known(frame))).collect();
        let stack = target.resolve(Waiting { thread, cut }, &frames, &mut profile);
        let frames = profile.tables.frames_of(stack);
        let markers = frames.iter().map(|&id| match profile.tables.frame_at(id) {
            Frame::Marker(marker) => marker,
            Frame::Python { .. } => unreachable!("no code is known"),
        });
        markers.collect()
    }

    #[test]
    fn a_cut_stack_says_so_even_if_nothing_of_it_is_left() {
        let fault = Some(Marker::PageFault);
        assert_eq!(shown(fault, &[]), [Marker::PageFault]);
        assert_eq!(
            shown(fault, &[RawFrame::NATIVE]),
            [Marker::PageFault, Marker::Native]
        );
        assert_eq!(shown(None, &[]), [Marker::NoPythonFrames]);
        assert_eq!(shown(None, &[RawFrame::NATIVE]), [Marker::NoPythonFrames]);
    }
}
