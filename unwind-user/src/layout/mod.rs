//! Where one build of CPython keeps what we read: the only place that knows how versions differ.
//!
//! Facts, not versions: nobody asks "is it 3.14?", they apply [`FrameLayout::code_tag`].
//! From 3.13 on the facts come from the offsets that the interpreter publishes
//! (`_Py_DebugOffsets`, `Include/internal/pycore_debug_offsets.h`); for 3.11 and 3.12 from tables.
//! Offsets and sizes are in bytes.

pub mod debug_offsets;
mod error;
mod fields;
mod kernel;
mod tables;
#[cfg(test)]
mod tests;
mod unpublished;
mod validate;
mod version;
mod words;

pub use error::LayoutError;
pub use tables::{table, v3_11, v3_12};
pub use validate::{CODE_BYTES_MAX, HEAD_BYTES_MAX, STATE_BYTES_MAX};
pub use version::Version;

use serde::{Deserialize, Serialize};
use unwind_ebpf::abi::IDENTITY_OBJECTS;

/// Everything we know of one build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The version that the interpreter states.
    pub version: Version,
    /// `_PyRuntimeState`.
    pub runtime: RuntimeLayout,
    /// `PyInterpreterState`.
    pub interp: InterpLayout,
    /// `PyThreadState`.
    pub thread: ThreadLayout,
    /// `_PyInterpreterFrame`.
    pub frame: FrameLayout,
    /// `PyCodeObject`.
    pub code: CodeLayout,
    /// `PyUnicodeObject`.
    pub unicode: UnicodeLayout,
    /// `PyBytesObject`.
    pub bytes: BytesLayout,
}

impl Layout {
    /// Whether a sub-interpreter's thread state keeps the ids of the thread that made it, whichever
    /// runs it: so it is in `_xxsubinterpreters` of the versions that have cframes.
    #[must_use]
    pub const fn sub_states_keep_ids(&self) -> bool {
        matches!(self.thread.current, CurrentFrame::CFrame { .. })
    }
}

/// `_PyRuntimeState`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeLayout {
    /// `interpreters.head`.
    pub interpreters_head: u64,
    /// `ceval.gil.last_holder`, with `locked` 8 bytes on, where the runtime has the one GIL (3.11).
    pub gil_holder: Option<u64>,
}

/// `PyInterpreterState`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterpLayout {
    /// `next`.
    pub next: u64,
    /// `id`.
    pub id: u64,
    /// `threads.head`.
    pub threads_head: u64,
    /// `ceval.gil`: pointer to the GIL, whose `last_holder` is at 8 and `locked` at 16 (3.12+).
    pub gil: Option<u64>,
    /// `gc.collecting`.
    pub collecting: u64,
    /// `gc.frame` (3.15).
    pub gc_frame: Option<u64>,
    /// `_code_object_generation` (3.14+).
    pub code_generation: Option<u64>,
}

/// `PyThreadState`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLayout {
    /// `prev`; older recordings do not have it, and replay does not ask.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub prev: u64,
    /// `next`.
    pub next: u64,
    /// `interp`.
    pub interp: u64,
    /// `thread_id`: `pthread_self()`.
    pub thread_id: u64,
    /// `native_thread_id`, a number of the target's own PID namespace.
    pub native_thread_id: u64,
    /// Where the innermost frame is found.
    pub current: CurrentFrame,
    /// `datastack_chunk`, followed by `datastack_top` and `datastack_limit`.
    pub datastack_chunk: u64,
    /// `holds_gil`, a byte-sized flag (3.14+).
    pub holds_gil: Option<u64>,
    /// `gil_requested`, an `int` (3.15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gil_requested: Option<u64>,
    /// Where its exceptions are; none where the build does not tell. Older recordings have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exceptions: Option<ExceptionLayout>,
}

/// The exceptions of a `PyThreadState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExceptionLayout {
    /// `current_exception` (3.11: `curexc_type`): the one being raised, or NULL.
    pub current: u64,
    /// `exc_info`: pointer to the newest `_PyErr_StackItem`, the one being handled.
    pub info: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_absent(offset: &u64) -> bool {
    *offset == 0
}

/// Where a thread state keeps its innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CurrentFrame {
    /// `tstate->cframe->current_frame`; `root_cframe` ends the list of cframes (3.11, 3.12).
    CFrame {
        /// `PyThreadState.cframe`.
        cframe: u64,
        /// `_PyCFrame.current_frame`.
        current_frame: u64,
        /// `_PyCFrame.previous`.
        previous: u64,
        /// `PyThreadState.root_cframe`; older recordings do not have it, and replay does not ask.
        #[serde(default, skip_serializing_if = "is_absent")]
        root: u64,
    },
    /// `tstate->current_frame` (3.13, 3.14).
    Direct(u64),
    /// `tstate->current_frame`, with a sentinel `tstate->base_frame` at the bottom (3.15).
    Based {
        /// `PyThreadState.current_frame`.
        current_frame: u64,
        /// `PyThreadState.base_frame`.
        base_frame: u64,
    },
}

/// `_PyInterpreterFrame`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameLayout {
    /// `localsplus`: the header is what lies before it.
    pub localsplus: u64,
    /// `f_code` or `f_executable`.
    pub code: u64,
    /// Bits of that reference which are not address (3.14+: 3).
    pub code_tag: u64,
    /// `previous`.
    pub previous: u64,
    /// `f_func` or `f_funcobj`, with the same bits. Older recordings do not have it; in all versions
    /// that need it, it is here.
    #[serde(default = "f_funcobj")]
    pub function: u64,
    /// The instruction pointer.
    pub instr: Instr,
    /// `owner`, one byte.
    pub owner: u64,
    /// How frames that are no Python function's are told apart.
    pub entry: Entry,
    /// Largest owner this version has.
    pub owner_max: u8,
}

const fn f_funcobj() -> u64 {
    16
}

/// What a frame's instruction pointer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Instr {
    /// `prev_instr`: the last code unit that was started (3.11, 3.12).
    Previous(u64),
    /// `instr_ptr`: the instruction being executed (3.13+).
    Current(u64),
}

/// How an entry from C into the interpreter shows in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// A flag byte in the Python frame itself (3.11).
    Flag(u64),
    /// A frame of its own, with this owner or a larger one (3.12+).
    Owner(u8),
}

/// `PyCodeObject`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeLayout {
    /// `co_filename`.
    pub filename: u64,
    /// `co_name`.
    pub name: u64,
    /// `co_qualname`.
    pub qualname: u64,
    /// `co_linetable`.
    pub linetable: u64,
    /// `co_firstlineno`, an `int`.
    pub firstlineno: u64,
    /// `co_flags`, an `int`.
    pub flags: u64,
    /// `co_code_adaptive`: the bytecode.
    pub bytecode: u64,
    /// `Py_SIZE(code)`: code units of bytecode.
    pub code_units: u64,
    /// What tells a code object from a later one at the same address.
    pub identity: Identity,
}

impl CodeLayout {
    /// Where a code object's identity begins, word aligned, and its length in words.
    #[must_use]
    pub const fn identity_words(&self) -> (u64, u64) {
        match self.identity {
            Identity::Version(offset) => (offset & !7, 1),
            Identity::Fields => {
                let start = self.firstlineno & !7;
                (start, (self.linetable + 8 - start) / 8)
            }
        }
    }

    /// The objects whose start belongs to the identity; none where versions exist. The pointers to
    /// them lie within [`Self::identity_words`].
    #[must_use]
    pub const fn identity_objects(&self) -> Option<[IdentityObject; IDENTITY_OBJECTS]> {
        match self.identity {
            Identity::Version(_) => None,
            Identity::Fields => Some([
                IdentityObject::Str(self.qualname),
                IdentityObject::Str(self.filename),
                IdentityObject::Bytes(self.linetable),
            ]),
        }
    }
}

/// An object whose start belongs to the identity of a code object, by the offset of the pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityObject {
    /// A `str`.
    Str(u64),
    /// A `bytes`.
    Bytes(u64),
}

impl IdentityObject {
    /// Offset in the code object of the pointer to it.
    #[must_use]
    pub const fn pointer(self) -> u64 {
        match self {
            Self::Str(offset) | Self::Bytes(offset) => offset,
        }
    }
}

/// What tells a code object from a later one at the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// `co_version`, a `u32` that no two code objects of an interpreter share (3.12+); 0: none left.
    Version(u64),
    /// No version (3.11): the fields from `co_firstlineno` to `co_linetable`, and the start of the
    /// qualified name, of the file's name and of the line table.
    Fields,
}

/// `PyUnicodeObject` (`PyASCIIObject`, `PyCompactUnicodeObject`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnicodeLayout {
    /// `length`, in characters.
    pub length: u64,
    /// `state`: a word of bit fields.
    pub state: u64,
    /// Mask of `state.kind`; the kind is the masked value shifted down.
    pub kind_mask: u32,
    /// Mask of `state.compact`.
    pub compact_mask: u32,
    /// Mask of `state.ascii`.
    pub ascii_mask: u32,
    /// Characters of a compact ASCII string.
    pub ascii_data: u64,
    /// Characters of any other compact string.
    pub compact_data: u64,
}

/// `PyBytesObject`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BytesLayout {
    /// `ob_size`.
    pub size: u64,
    /// `ob_sval`.
    pub data: u64,
}
