//! Walks a frame chain.

use unwind_ebpf::abi::RecordHeader;

use crate::layout::{CurrentFrame, Entry, FrameLayout, Instr, Layout};
use crate::memory::{Addr, Fault, Memory};
use crate::profile::Marker;

/// Frames followed at most, so that a cycle ends; what the kernel half follows, too.
pub const DEPTH_MAX: u32 = unwind_ebpf::abi::FRAMES_MAX;

/// The parts of a `_PyInterpreterFrame` that a walk needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameHead {
    /// Code object, tag bits included.
    pub code: Addr,
    /// The caller's frame.
    pub previous: Addr,
    /// `prev_instr` or `instr_ptr`.
    pub instr: Addr,
    /// Who owns the frame.
    pub owner: u8,
    /// `is_entry` where the layout has one.
    pub flag: u8,
}

/// Where a walk takes frames from.
pub trait Frames {
    /// The frame at `addr`.
    ///
    /// # Errors
    /// [`Fault`] when it is not there.
    fn head(&self, addr: Addr) -> Result<FrameHead, Fault>;
}

/// Frames parsed from target memory.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a, M> {
    /// How frames look.
    pub layout: &'a FrameLayout,
    /// Where they are.
    pub memory: M,
}

/// Longest frame header of any layout; `Layout::validate` checks it.
const HEADER_MAX: usize = unwind_ebpf::abi::FRAME_WORDS_MAX * 8;

impl<M: Memory> Frames for Parsed<'_, M> {
    fn head(&self, addr: Addr) -> Result<FrameHead, Fault> {
        let layout = self.layout;
        let mut bytes = [0; HEADER_MAX];
        let len = (layout.localsplus as usize).min(HEADER_MAX);
        let fault = Fault { addr, len };
        let header = bytes.get_mut(..len).ok_or(fault)?;
        self.memory.read(addr, header)?;
        let header = &*header;
        let word = |offset: u64| {
            let at = offset as usize;
            let bytes = header
                .get(at..at + 8)
                .and_then(|b| b.try_into().ok())
                .ok_or(fault)?;
            Ok(Addr(u64::from_le_bytes(bytes)))
        };
        let byte = |offset: u64| header.get(offset as usize).copied().ok_or(fault);
        let (Instr::Previous(instr) | Instr::Current(instr)) = layout.instr;
        let flag = if let Entry::Flag(offset) = layout.entry {
            byte(offset)?
        } else {
            0
        };
        Ok(FrameHead {
            code: word(layout.code)?,
            previous: word(layout.previous)?,
            instr: word(instr)?,
            owner: byte(layout.owner)?,
            flag,
        })
    }
}

/// Where a chain of frames begins and ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The innermost frame.
    pub first: Addr,
    /// The sentinel at the bottom; NULL where the version has none.
    pub base: Addr,
    /// The frame that triggered the running collection; NULL where none runs, or the version does
    /// not tell (before 3.15).
    pub gc: Addr,
}

impl Chain {
    /// The one of a sample.
    #[must_use]
    pub const fn of(header: &RecordHeader) -> Self {
        Self {
            first: Addr(header.frame),
            base: Addr(header.base_frame),
            gc: Addr(header.gc_frame),
        }
    }
}

/// The function object that the innermost frame with this code object was made for; none where the
/// frames of the chain are not in `memory`.
#[must_use]
pub fn function_of(
    layout: &FrameLayout,
    memory: &impl Memory,
    chain: Chain,
    code: Addr,
) -> Option<Addr> {
    let frames = Parsed { layout, memory };
    let untagged = |reference: Addr| Addr(reference.0 & !layout.code_tag);
    let mut next = chain.first;
    for _ in 0..DEPTH_MAX {
        let head = frames.head(next).ok()?;
        if untagged(head.code) == code {
            return memory.addr(next.add(layout.function)).ok().map(untagged);
        }
        next = head.previous;
    }
    None
}

/// A Python function's frame: which code, and where in it. Or what stands between such frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawFrame {
    /// Code object, without tag bits.
    pub code: Addr,
    /// `prev_instr` or `instr_ptr`.
    pub instr: Addr,
}

impl RawFrame {
    /// The garbage collector, which called the frame before it and was called by the one behind.
    pub const GC: Self = Self::nowhere(1);
    /// C code, likewise.
    pub const NATIVE: Self = Self::nowhere(2);

    /// No code is at NULL.
    const fn nowhere(kind: u64) -> Self {
        Self {
            code: Addr::NULL,
            instr: Addr(kind),
        }
    }

    /// What stands there instead of a Python function's frame.
    #[must_use]
    pub fn marker(self) -> Option<Marker> {
        match self {
            Self::GC => Some(Marker::Gc),
            Self::NATIVE => Some(Marker::Native),
            _ => None,
        }
    }
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the bottom of the stack.
    Complete,
    /// A frame was not there.
    Fault(Fault),
    /// After [`DEPTH_MAX`] frames.
    TooDeep,
    /// At a frame whose owner this version does not have.
    BadOwner(u8),
    /// At a NULL that is not the bottom.
    Broken,
}

/// Appends the Python frames of a chain to `out`, innermost first, with [`RawFrame::GC`] and
/// [`RawFrame::NATIVE`] between them. Says why it stopped and how many frames it met, entry frames
/// included. Frames found before the stop are kept.
///
/// C code that called Python is told by the entry frame (`_PyEval_EvalFrame`'s, or the flag of the
/// frame that it pushed on 3.11), never by what a frame lacks: one that is about to be popped has no
/// code either.
pub fn walk(
    layout: &Layout,
    frames: &impl Frames,
    chain: Chain,
    out: &mut Vec<RawFrame>,
) -> (End, u32) {
    let frame = &layout.frame;
    let has_base = matches!(layout.thread.current, CurrentFrame::Based { .. });
    let base_frame = chain.base;
    let mut next = chain.first;
    let mut met = 0;
    while met < DEPTH_MAX {
        if next.is_null() || next == base_frame {
            let bottom = if has_base {
                next == base_frame
            } else {
                met == 0
            };
            return (if bottom { End::Complete } else { End::Broken }, met);
        }
        let head = match frames.head(next) {
            Ok(head) => head,
            Err(fault) => return (End::Fault(fault), met),
        };
        if head.owner > frame.owner_max {
            return (End::BadOwner(head.owner), met);
        }
        met += 1;
        let (is_python, is_entry) = match frame.entry {
            Entry::Flag(_) => (true, head.flag != 0),
            Entry::Owner(entry) => (head.owner < entry, head.owner >= entry),
        };
        if next == chain.gc {
            out.push(RawFrame::GC);
        }
        let code = Addr(head.code.0 & !frame.code_tag);
        if is_python && !code.is_null() {
            out.push(RawFrame {
                code,
                instr: head.instr,
            });
        }
        let is_bottom = head.previous.is_null() || head.previous == base_frame;
        if is_entry && !is_bottom && head.previous != chain.gc {
            out.push(RawFrame::NATIVE);
        }
        if head.previous.is_null() && !has_base {
            let any = matches!(frame.entry, Entry::Flag(_));
            return (
                if any || is_entry {
                    End::Complete
                } else {
                    End::Broken
                },
                met,
            );
        }
        next = head.previous;
    }
    (End::TooDeep, met)
}
