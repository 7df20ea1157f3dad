//! What the kernel half is told of a layout.

use unwind_ebpf::abi::{BOTTOM_BASE_FRAME, BOTTOM_ENTRY_NULL, BOTTOM_NULL, ProcConfig};

use super::{CurrentFrame, Entry, IdentityObject, Instr, Layout};
use crate::memory::Addr;

/// `last_holder` in `struct _gil_runtime_state` (3.12+); `locked` follows.
const GIL_HOLDER: u64 = 8;
/// 3.11: `co_nlocalsplus` + `co_stacksize` + `FRAME_SPECIALS_SIZE` words.
const FRAME_SIZE_3_11: (u64, u64, u64) = (76, 68, 9);
/// 3.12: `co_framesize` words.
const FRAME_SIZE_3_12: (u64, u64, u64) = (76, 0, 0);
/// From `gi_frame_state` to `gi_iframe` in a `PyGenObject` (3.11: 75 and 80).
const GENERATOR_STATE: u64 = 5;
/// An owner that no frame has: every frame is a Python function's.
const NO_ENTRY_OWNER: u64 = 255;

impl Layout {
    /// The layout part of a process's configuration; `slot`, `ready`, `follow`, `salt` and `paths`
    /// are left at their defaults. `runtime` is the address of `_PyRuntime`.
    #[must_use]
    pub fn kernel_config(&self, runtime: Addr) -> ProcConfig {
        let (interp, thread, frame) = (&self.interp, &self.thread, &self.frame);
        let mut config = ProcConfig {
            tstate_words: self.tstate_words(),
            interp: thread.interp,
            thread_id: thread.thread_id,
            datastack_chunk: thread.datastack_chunk,
            frame_words: frame.localsplus / 8,
            frame_code: frame.code,
            frame_previous: frame.previous,
            frame_owner: frame.owner,
            owner_max: frame.owner_max.into(),
            code_tag: frame.code_tag,
            collecting: interp.collecting,
            gc_frame: interp.gc_frame.unwrap_or(0),
            ..ProcConfig::default()
        };
        (config.identity, config.identity_words) = self.code.identity_words();
        if let Some(objects) = self.code.identity_objects() {
            config.identity_objects = objects.map(IdentityObject::pointer);
        }
        let (Instr::Previous(instr) | Instr::Current(instr)) = frame.instr;
        config.frame_instr = instr;
        match frame.entry {
            Entry::Flag(offset) => {
                config.is_entry = offset;
                config.entry_owner = NO_ENTRY_OWNER;
                config.bottom = BOTTOM_NULL;
                config.generator_state = GENERATOR_STATE;
            }
            Entry::Owner(owner) => {
                config.entry_owner = owner.into();
                config.bottom = BOTTOM_ENTRY_NULL;
            }
        }
        match thread.current {
            CurrentFrame::CFrame {
                cframe,
                current_frame,
                // The next word, in both versions that have it: a test of the tables says so.
                previous: _,
                root,
            } => {
                config.has_cframe = 1;
                config.root_cframe = root;
                config.current_frame = cframe;
                config.cframe_current = current_frame;
                (
                    config.frame_size,
                    config.frame_size_more,
                    config.frame_size_fixed,
                ) = match frame.entry {
                    Entry::Flag(_) => FRAME_SIZE_3_11,
                    Entry::Owner(_) => FRAME_SIZE_3_12,
                };
            }
            CurrentFrame::Direct(current_frame) => config.current_frame = current_frame,
            CurrentFrame::Based {
                current_frame,
                base_frame,
            } => {
                config.current_frame = current_frame;
                config.base_frame = base_frame;
                config.bottom = BOTTOM_BASE_FRAME;
            }
        }
        if let Some(offset) = thread.holds_gil {
            config.has_gil_flag = 1;
            config.holds_gil = offset;
        } else if let Some(pointer) = interp.gil {
            config.gil_pointer = pointer;
            config.gil_holder = GIL_HOLDER;
        } else if let Some(holder) = self.runtime.gil_holder {
            config.gil_holder = runtime.add(holder).0;
        }
        config
    }

    /// Words of `PyThreadState` from its start that cover all that is read of it.
    fn tstate_words(&self) -> u64 {
        let thread = &self.thread;
        let current = match thread.current {
            CurrentFrame::CFrame { cframe, .. } => cframe,
            CurrentFrame::Direct(current_frame) => current_frame,
            CurrentFrame::Based {
                current_frame,
                base_frame,
            } => current_frame.max(base_frame),
        };
        let chunk_limit = thread.datastack_chunk + 16;
        let words = [thread.interp, thread.thread_id, current, chunk_limit];
        let flag = thread.holds_gil.unwrap_or(0);
        words.into_iter().fold(flag, u64::max) / 8 + 1
    }
}
