//! The records, tables and limits shared by the two halves; the only description of these bytes.
//!
//! Everything is `repr(C)`, little-endian, without padding, enums or bools: the other side is
//! another program. Sizes are pinned by asserts.

/// Version of this layout. A recording made with another one is refused.
pub const ABI_VERSION: u16 = 1;

/// Frames (entry frames included) that one sample follows before it says [`TRUNCATED`].
///
/// Twice the 1,024 that we promise, since every call from C back into Python costs an entry frame.
pub const FRAMES_MAX: u32 = 2048;
/// Most bytes copied of a data-stack chunk at once. CPython's usual chunk is 16 KiB.
pub const WINDOW_BYTES: usize = 32 << 10;
/// Copies of chunks for one sample, the newest chunk's aside; frames beyond are read one by one.
pub const SLIDES_MAX: u64 = 64;
/// Used bytes up to which a record carries the only chunk whole; beyond it, frame heads, which
/// are 40 bytes a frame: from some thirty frames on that is less to write, and to read again.
pub const WHOLE_BYTES: usize = 4 << 10;
/// Longest frame header (bytes before `localsplus`) of any supported build, in words.
pub const FRAME_WORDS_MAX: usize = 12;
/// Longest prefix of a `PyThreadState` that is read, in words.
pub const TSTATE_WORDS_MAX: usize = 48;
/// Longest identity of a code object, in words.
pub const IDENTITY_WORDS_MAX: usize = 12;
/// Objects whose start belongs to the identity of a code object where versions do not exist.
pub const IDENTITY_OBJECTS: usize = 3;
/// Words of such an object, after its `ob_type`, that are taken.
pub const OBJECT_WORDS: usize = 8;
/// Most words of record body.
pub const BODY_WORDS: usize = 16 << 10;
/// Slots of the table of vouched code addresses; a power of two.
pub const VOUCHED_SLOTS: u32 = 1 << 14;
/// Processes that can be profiled at once: rows of the counter table.
pub const PROCESSES_MAX: u32 = 1024;
/// Ways to the thread state that are tried for one thread.
pub const PATHS_MAX: usize = 3;

/// How an interrupt in a profiled process ended. Each ends in exactly one.
pub type Outcome = u32;
/// The chain was followed to its bottom.
pub const OK: Outcome = 0;
/// Deeper than [`FRAMES_MAX`]: the innermost frames are there.
pub const TRUNCATED: Outcome = 1;
/// The chain ended where no stack can end, or held an owner that the layout does not know.
pub const INCOMPLETE: Outcome = 2;
/// Met between two instructions of an entry from C where the chain is not linked yet (3.11, 3.12).
pub const ENTERING: Outcome = 3;
/// A page of the thread state or of a frame was not resident.
pub const PAGE_FAULT: Outcome = 4;
/// The thread has no Python thread state.
pub const NO_STATE: Outcome = 5;
/// A thread state was found, but it belongs to another thread.
pub const FOREIGN_STATE: Outcome = 6;
/// The ring buffer had no room.
pub const RING_FULL: Outcome = 7;
/// User space has not finished attaching to this process.
pub const ATTACHING: Outcome = 8;
/// There is no scratch for this CPU: it came online after the start.
pub const NO_SCRATCH: Outcome = 9;
/// Sampled from outside: it ran or changed its CPU each time that it was looked at.
pub const MOVING: Outcome = 10;
/// Sampled from outside: it was met on a CPU too seldom for the CPU time that it used.
pub const MISSED: Outcome = 11;
/// Number of outcomes.
pub const OUTCOMES: usize = 12;

/// Names of the outcomes, in order: metric label values and words in the summary.
pub const OUTCOME_NAMES: [&str; OUTCOMES] = [
    "ok",
    "truncated",
    "incomplete",
    "entering",
    "page_fault",
    "no_python_state",
    "foreign_state",
    "ring_full",
    "attaching",
    "no_scratch",
    "moving",
    "missed",
];

/// Kinds of record in the ring.
pub type RecordKind = u16;
/// A stack sample.
pub const SAMPLE: RecordKind = 1;
/// A profiled process forked; `pid` is the parent, `tid` the child's process id.
pub const FORK: RecordKind = 2;
/// A profiled process replaced its program.
pub const EXEC: RecordKind = 3;
/// A profiled process ended (its last thread).
pub const EXIT: RecordKind = 4;

/// Sample flags: the thread holds the GIL.
pub const HOLDS_GIL: u32 = 1;
/// Sample flags: the interpreter is collecting garbage.
pub const COLLECTING: u32 = 2;
/// Sample flags: the body carries the used chunks whole.
pub const WHOLE: u32 = 4;
/// Sample flags: the body carries the identity of code objects not vouched for.
pub const IDENTITIES: u32 = 8;

/// Head of every record in the ring; `body_words` words follow.
///
/// The body is a run of segments, each two words of head ([`segment_tag`]) and its payload.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHeader {
    /// [`ABI_VERSION`].
    pub abi: u16,
    /// [`SAMPLE`], [`FORK`], …
    pub kind: RecordKind,
    /// Words of body after this header.
    pub body_words: u32,
    /// `CLOCK_MONOTONIC`, ns.
    pub time: u64,
    /// Thread group id in the initial PID namespace.
    pub pid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// [`Outcome`] of a sample.
    pub outcome: Outcome,
    /// [`HOLDS_GIL`] | [`COLLECTING`] | [`WHOLE`] | [`IDENTITIES`].
    pub flags: u32,
    /// The thread's `PyThreadState`.
    pub tstate: u64,
    /// Its `PyInterpreterState`.
    pub interp: u64,
    /// Innermost frame.
    pub frame: u64,
    /// Address of the sentinel frame at the bottom; 0 where the version has none.
    pub base_frame: u64,
    /// Frame that triggered the running collection (3.15); else 0.
    pub gc_frame: u64,
    /// Thread state that last held this interpreter's GIL; 0 where not read.
    pub gil_holder: u64,
    /// Frames followed, entry frames included.
    pub frames: u32,
    /// CPU of the interrupt.
    pub cpu: u32,
    /// Newest data-stack chunk.
    pub chunk: u64,
}
/// Words of a [`RecordHeader`].
pub const HEADER_WORDS: usize = 12;
const _: () = assert!(size_of::<RecordHeader>() == HEADER_WORDS * 8);

/// Segment: a range of target memory at `addr`; the payload is its bytes.
pub const SEGMENT_RANGE: u64 = 1;
/// Segment: a frame's head at `addr`; the payload is code, previous, instruction pointer.
pub const SEGMENT_HEAD: u64 = 2;
/// Payload words of a [`SEGMENT_HEAD`].
pub const HEAD_WORDS: usize = 3;

/// The second word of a segment's head: kind, payload length in words, owner byte of a frame head.
#[inline(always)]
#[must_use]
pub const fn segment_tag(kind: u64, words: u64, owner: u64) -> u64 {
    kind | (words << 8) | (owner << 40)
}

/// Splits a [`segment_tag`] into kind, payload words and owner.
#[inline(always)]
#[must_use]
pub const fn split_tag(tag: u64) -> (u64, u64, u8) {
    (tag & 0xff, (tag >> 8) & 0xffff_ffff, (tag >> 40) as u8)
}

/// One way from the thread pointer to the thread state: `steps` times add an offset and load.
///
/// One step: static TLS. Two: a pthread key's second-level block. Three: a dynamic TLS vector.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TstatePath {
    /// 1 to 3; 0 marks an unused entry.
    pub steps: u64,
    /// Byte offsets added before each load.
    pub offsets: [i64; 3],
}

/// How the bottom of a chain is recognised.
pub type Bottom = u64;
/// `previous` is NULL in any frame (3.11).
pub const BOTTOM_NULL: Bottom = 1;
/// `previous` is NULL in an entry frame (3.12 to 3.14).
pub const BOTTOM_ENTRY_NULL: Bottom = 2;
/// The chain reaches the thread state's base frame (3.15).
pub const BOTTOM_BASE_FRAME: Bottom = 3;

/// What the kernel half needs to know of one process: offsets in bytes, 0 where a build has none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcConfig {
    /// Row of the counter table.
    pub slot: u32,
    /// 1 once attached; 0 counts every interrupt as [`ATTACHING`].
    pub ready: u32,
    /// Follow children into the process table.
    pub follow: u32,
    /// The GIL flag in the thread state is one byte at [`Self::holds_gil`].
    pub has_gil_flag: u32,
    /// Keeps entries of the vouched table apart between processes; not known to the target.
    pub salt: u64,
    /// Ways to the thread state, best first.
    pub paths: [TstatePath; PATHS_MAX],

    /// Words of `PyThreadState` to read.
    pub tstate_words: u64,
    /// `PyThreadState.interp`.
    pub interp: u64,
    /// `PyThreadState.thread_id`.
    pub thread_id: u64,
    /// `PyThreadState.current_frame`, or `.cframe` where [`Self::has_cframe`].
    pub current_frame: u64,
    /// `PyThreadState.base_frame` with [`BOTTOM_BASE_FRAME`].
    pub base_frame: u64,
    /// `PyThreadState.datastack_chunk`; `_top` and `_limit` are the next two words.
    pub datastack_chunk: u64,
    /// Byte offset of `PyThreadState.holds_gil`.
    pub holds_gil: u64,

    /// The current frame is behind `PyThreadState.cframe` (3.11, 3.12).
    pub has_cframe: u64,
    /// `_PyCFrame.current_frame`; `previous` is the next word.
    pub cframe_current: u64,
    /// `PyThreadState.root_cframe`, the outermost one.
    pub root_cframe: u64,
    /// Byte offset in a code object of an `int` that counts words of its frames: `co_nlocalsplus`
    /// (3.11), `co_framesize` (3.12).
    pub frame_size: u64,
    /// Of another to be added, `co_stacksize` (3.11); else 0.
    pub frame_size_more: u64,
    /// Words to be added: `FRAME_SPECIALS_SIZE` (3.11).
    pub frame_size_fixed: u64,
    /// Byte offset of `is_entry` in a frame (3.11); 0 where entry frames are frames of their own.
    pub is_entry: u64,

    /// Bytes from a generator's `gi_frame_state` to its frame, where a NULL `previous` alone does not
    /// mark the bottom of a chain (3.11); else 0.
    pub generator_state: u64,

    /// `_PyInterpreterFrame` bytes up to `localsplus`, in words.
    pub frame_words: u64,
    /// `f_code` / `f_executable`.
    pub frame_code: u64,
    /// `previous`.
    pub frame_previous: u64,
    /// `prev_instr` / `instr_ptr`.
    pub frame_instr: u64,
    /// Byte offset of `owner`.
    pub frame_owner: u64,
    /// Smallest owner that marks an entry frame; 255 where there are none.
    pub entry_owner: u64,
    /// Largest owner of this version.
    pub owner_max: u64,
    /// [`Bottom`].
    pub bottom: Bottom,

    /// Bits of a code reference that are not address.
    pub code_tag: u64,
    /// First byte of a code object's identity, word aligned.
    pub identity: u64,
    /// Words of it.
    pub identity_words: u64,
    /// Pointers in a code object to objects whose start belongs to the identity (3.11); else 0.
    pub identity_objects: [u64; IDENTITY_OBJECTS],

    /// `PyInterpreterState.gc.collecting`; 0 skips it.
    pub collecting: u64,
    /// `PyInterpreterState.gc.frame`; 0 where there is none.
    pub gc_frame: u64,
    /// Offset in the interpreter of a pointer to the GIL (3.12+); 0 where not.
    pub gil_pointer: u64,
    /// Offset of `last_holder` in the GIL, or its address where there is one GIL (3.11).
    pub gil_holder: u64,
}
const _: () = assert!(size_of::<ProcConfig>() == 24 + PATHS_MAX * 32 + 33 * 8);

/// What the kernel half counts for one process on one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Interrupts by [`Outcome`].
    pub outcomes: [u64; OUTCOMES],
    /// Time spent in the program for this process, ns.
    pub run_ns: u64,
    /// Bytes submitted.
    pub bytes: u64,
    /// Frames read one by one because they lie outside the chunks.
    pub frames_off_chunk: u64,
    /// Code identities read in the interrupt.
    pub identities: u64,
}
const _: () = assert!(size_of::<Counters>() == (OUTCOMES + 4) * 8);

/// Slot in the vouched table of a code object.
#[inline(always)]
#[must_use]
pub const fn vouched_slot(code: u64, salt: u64) -> u32 {
    let mixed = ((code >> 4) ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as u32 & (VOUCHED_SLOTS - 1)
}

/// What the slot holds when the code object is vouched for.
#[inline(always)]
#[must_use]
pub const fn vouched_mark(code: u64, salt: u64) -> u64 {
    code ^ salt
}
