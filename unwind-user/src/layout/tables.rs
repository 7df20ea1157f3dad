//! Layouts of the versions that publish none: 3.11 and 3.12, x86-64 release builds.
//!
//! Offsets as `offsetof` gives them for the headers that interpreters install; `tests/layouts.rs`
//! compiles that question against every interpreter it finds and compares.

use super::{
    BytesLayout, CodeLayout, CurrentFrame, Entry, ExceptionLayout, FrameLayout, Identity, Instr,
    InterpLayout, Layout, LayoutError, RuntimeLayout, ThreadLayout, UnicodeLayout, Version,
};

/// The table of a version that publishes no offsets.
///
/// # Errors
/// [`LayoutError::Unsupported`] for any minor version but 3.11 and 3.12, and
/// [`LayoutError::PreRelease`] for alphas and betas of these, whose fields moved.
pub fn table(version: Version) -> Result<Layout, LayoutError> {
    if version.is_unsettled() {
        return Err(LayoutError::PreRelease(version));
    }
    match version.minor() {
        (3, 11) => Ok(v3_11(version)),
        (3, 12) => Ok(v3_12(version)),
        _ => Err(LayoutError::Unsupported(version)),
    }
}

/// CPython 3.11: frames linked through a `_PyCFrame` on the C stack, one GIL in the runtime.
#[must_use]
pub const fn v3_11(version: Version) -> Layout {
    Layout {
        version,
        runtime: RuntimeLayout {
            interpreters_head: 40,
            gil_holder: Some(0x170),
        },
        interp: InterpLayout {
            next: 0,
            id: 48,
            threads_head: 16,
            gil: None,
            collecting: 648 + 200,
            gc_frame: None,
            code_generation: None,
        },
        thread: ThreadLayout {
            prev: 0,
            next: 8,
            interp: 16,
            thread_id: 152,
            native_thread_id: 160,
            current: CurrentFrame::CFrame {
                cframe: 56,
                current_frame: 8,
                previous: 16,
                root: 336,
            },
            datastack_chunk: 296,
            holds_gil: None,
            gil_requested: None,
            exceptions: Some(ExceptionLayout {
                current: 96,
                info: 120,
            }),
        },
        frame: FrameLayout {
            localsplus: 72,
            code: 32,
            code_tag: 0,
            previous: 48,
            function: 0,
            instr: Instr::Previous(56),
            owner: 69,
            entry: Entry::Flag(68),
            owner_max: 2,
        },
        code: CodeLayout {
            filename: 112,
            name: 120,
            qualname: 128,
            linetable: 136,
            firstlineno: 72,
            flags: 48,
            bytecode: 184,
            code_units: 16,
            identity: Identity::Fields,
        },
        unicode: UnicodeLayout {
            ascii_data: 48,
            compact_data: 72,
            ..UNICODE
        },
        bytes: BYTES,
    }
}

/// CPython 3.12: entry frames of their own, a GIL for each interpreter, `co_version`.
#[must_use]
pub const fn v3_12(version: Version) -> Layout {
    Layout {
        version,
        runtime: RuntimeLayout {
            interpreters_head: 40,
            gil_holder: None,
        },
        interp: InterpLayout {
            next: 0,
            id: 8,
            threads_head: 72,
            gil: Some(384),
            collecting: 112 + 200,
            gc_frame: None,
            code_generation: None,
        },
        thread: ThreadLayout {
            prev: 0,
            next: 8,
            interp: 16,
            thread_id: 136,
            native_thread_id: 144,
            current: CurrentFrame::CFrame {
                cframe: 56,
                current_frame: 0,
                previous: 8,
                root: 272,
            },
            datastack_chunk: 232,
            holds_gil: None,
            gil_requested: None,
            exceptions: Some(ExceptionLayout {
                current: 96,
                info: 104,
            }),
        },
        frame: FrameLayout {
            localsplus: 72,
            code: 0,
            code_tag: 0,
            previous: 8,
            function: 16,
            instr: Instr::Previous(56),
            owner: 70,
            entry: Entry::Owner(3),
            owner_max: 3,
        },
        code: CodeLayout {
            filename: 112,
            name: 120,
            qualname: 128,
            linetable: 136,
            firstlineno: 68,
            flags: 48,
            bytecode: 192,
            code_units: 16,
            identity: Identity::Version(92),
        },
        unicode: UNICODE,
        bytes: BYTES,
    }
}

/// `str` objects of 3.12 and of every later build with a GIL.
pub(super) const UNICODE: UnicodeLayout = UnicodeLayout {
    length: 16,
    state: 32,
    kind_mask: 0x1c,
    compact_mask: 0x20,
    ascii_mask: 0x40,
    ascii_data: 40,
    compact_data: 56,
};

/// `bytes` objects, the same in every build with a GIL.
const BYTES: BytesLayout = BytesLayout { size: 16, data: 32 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cframe_can_be_read_in_one_piece() {
        for layout in [v3_11(Version(0x030b_07f0)), v3_12(Version(0x030c_01f0))] {
            let CurrentFrame::CFrame {
                current_frame,
                previous,
                ..
            } = layout.thread.current
            else {
                panic!("{} has cframes", layout.version);
            };
            assert_eq!(previous, current_frame + 8, "{}", layout.version);
        }
    }
}
