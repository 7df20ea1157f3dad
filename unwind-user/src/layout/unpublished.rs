//! Facts that `_Py_DebugOffsets` leaves out, by minor version: the only place for them.
//!
//! Each stands beside fields that are published. Where those are not at their usual places, the
//! struct was changed and nothing here can be relied on: [`Unpublished::expect`] refuses that.

use super::{ExceptionLayout, LayoutError};

/// What 3.13 and later do not publish.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unpublished {
    /// `PyCodeObject.co_flags`.
    pub(super) code_flags: u64,
    /// `PyCodeObject.co_version`.
    pub(super) code_version: u64,
    /// `_PyInterpreterFrame.f_funcobj`.
    pub(super) frame_function: u64,
    /// `PyThreadState.holds_gil`, published from 3.15 on.
    pub(super) holds_gil: Option<u64>,
    /// `FRAME_OWNED_BY_CSTACK` (3.13), `FRAME_OWNED_BY_INTERPRETER` (3.14+): an entry from C.
    pub(super) entry_owner: u8,
    /// Largest `enum _frameowner`.
    pub(super) owner_max: u8,
    /// `Py_TAG_BITS` of a `_PyStackRef`; 3.13 keeps plain pointers in frames.
    pub(super) code_tag: u64,
}

impl Unpublished {
    /// The facts of 3.`minor`; a newer version than is known is taken for the newest known.
    pub(super) const fn of(minor: u8) -> Self {
        let common = Self {
            code_flags: 48,
            code_version: 92,
            frame_function: 16,
            holds_gil: None,
            entry_owner: 3,
            owner_max: 3,
            code_tag: 3,
        };
        match minor {
            0..=13 => Self {
                code_tag: 0,
                ..common
            },
            14 => Self {
                holds_gil: Some(36),
                owner_max: 4,
                ..common
            },
            _ => common,
        }
    }

    /// `current_exception` and `exc_info`, published from 3.15 on; none where `thread_id`, which
    /// follows them, is not at its place.
    #[expect(clippy::unused_self, reason = "says whose fact it is")]
    pub(super) const fn exceptions(self, thread_id: u64) -> Option<ExceptionLayout> {
        match thread_id {
            152 => Some(ExceptionLayout {
                current: 112,
                info: 120,
            }),
            _ => None,
        }
    }

    /// Refuses a table in which a neighbour of these facts is not where they were learnt.
    #[expect(clippy::unused_self, reason = "says whose condition it is")]
    pub(super) const fn expect(
        self,
        field: &'static str,
        found: u64,
        expected: u64,
    ) -> Result<(), LayoutError> {
        if found == expected {
            Ok(())
        } else {
            Err(LayoutError::Unexpected {
                field,
                found,
                expected,
            })
        }
    }
}
