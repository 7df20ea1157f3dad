//! Code objects: what a frame is shown as.

pub use super::identity::{CodeIdentity, read_identity};
use super::linetable::{LineTable, Location, TABLE_BYTES_MAX};
use super::string::{NAME_CHARS_MAX, field, read_bytes, read_str};
use crate::layout::{CODE_BYTES_MAX, Instr, Layout};
use crate::memory::{Addr, Fault, Memory};

/// Stands for a name that could not be read.
pub const UNREADABLE: &str = "<unreadable>";
/// Most code units believed of a code object.
const CODE_UNITS_MAX: u64 = i32::MAX as u64 / 2;
/// Bytes of a code unit.
const UNIT: u64 = 2;
/// `CO_NO_MONITORING_EVENTS` (3.13+): set by CPython on code objects of its own making.
const NO_MONITORING_EVENTS: u32 = 0x200_0000;

/// A code object, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// `co_qualname`, or [`UNREADABLE`].
    pub qualname: String,
    /// `co_filename`, or [`UNREADABLE`].
    pub filename: String,
    /// `co_firstlineno`.
    pub first_line: u32,
    /// `co_flags`.
    pub flags: u32,
    /// `co_linetable`; empty where it could not be read.
    pub lines: LineTable,
    /// What tells it from a later code object at its address.
    pub identity: CodeIdentity,
    /// First code unit.
    pub bytecode: Addr,
    /// Code units.
    pub code_units: u32,
    /// Whether names and line table could all be read.
    pub whole: bool,
    hidden: bool,
}

/// Why there is no code object at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// Its fields cannot be read.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A field holds what no code object's can.
    #[error("no code object at {addr:?}: {field} is {value:#x}")]
    NotCode {
        /// The address.
        addr: Addr,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
}

/// Reads the code object at `addr` (without tag bits).
///
/// Names and line table that cannot be read are replaced, not an error: the frame is kept.
///
/// # Errors
/// When the object itself cannot be read, or is no code object as far as its fields tell.
pub fn read_code(memory: &dyn Memory, layout: &Layout, addr: Addr) -> Result<Code, CodeError> {
    let head = Head::read(memory, layout, addr)?;
    let identity = read_identity(memory, layout, addr)?;
    let name = |at| {
        let name = read_str(memory, &layout.unicode, at, NAME_CHARS_MAX);
        name.map(|name| name.text).ok()
    };
    let qualname = name(head.qualname);
    let filename = name(head.filename);
    let table = read_bytes(memory, &layout.bytes, head.linetable, TABLE_BYTES_MAX).ok();
    Ok(Code {
        whole: qualname.is_some() && filename.is_some() && table.is_some(),
        qualname: qualname.unwrap_or_else(|| UNREADABLE.to_owned()),
        filename: filename.unwrap_or_else(|| UNREADABLE.to_owned()),
        first_line: head.first_line,
        flags: head.flags,
        lines: LineTable::new(table.unwrap_or_default(), head.first_line),
        identity,
        bytecode: addr.add(layout.code.bytecode),
        code_units: head.code_units,
        hidden: head.is_internal(),
    })
}

impl Code {
    /// Stands for a code object that cannot be read.
    #[must_use]
    pub fn unreadable() -> Self {
        Self {
            qualname: UNREADABLE.to_owned(),
            filename: UNREADABLE.to_owned(),
            first_line: 0,
            flags: 0,
            lines: LineTable::default(),
            identity: CodeIdentity::default(),
            bytecode: Addr::NULL,
            code_units: 0,
            whole: false,
            hidden: false,
        }
    }

    /// Where in the source the frame with this instruction pointer is; all unknown when the
    /// pointer lies outside the bytecode.
    ///
    /// The table covers inline caches, so that a pointer anywhere in an instruction will do.
    #[must_use]
    pub fn location(&self, layout: &Layout, instr: Addr) -> Location {
        let offset = instr.0.wrapping_sub(self.bytecode.0);
        if matches!(layout.frame.instr, Instr::Previous(_)) && offset == UNIT.wrapping_neg() {
            // Before the first instruction has started.
            let line = Some(self.first_line);
            return Location {
                line,
                ..Location::default()
            };
        }
        let unit = u32::try_from(offset / UNIT)
            .ok()
            .filter(|unit| *unit < self.code_units);
        match unit {
            Some(unit) if offset.is_multiple_of(UNIT) => self.lines.locate(unit),
            _ => Location::default(),
        }
    }

    /// Whether Python hides the frames of this code.
    ///
    /// That is the clean-up frame which 3.13+ puts between a caller and a specialised call of
    /// `C.__init__`. Its code object is static, has no source line and no events, and one `str`
    /// serves as its file, its name and its qualified name; no compiler makes such a thing.
    #[must_use]
    pub const fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// Bytes of heap it takes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.qualname.capacity() + self.filename.capacity() + self.lines.heap_bytes()
    }
}

/// The fields of a code object.
struct Head {
    filename: Addr,
    name: Addr,
    qualname: Addr,
    linetable: Addr,
    first_line: u32,
    flags: u32,
    code_units: u32,
}

impl Head {
    fn read(memory: &dyn Memory, layout: &Layout, addr: Addr) -> Result<Self, CodeError> {
        let code = &layout.code;
        let pointers = [
            code.filename,
            code.name,
            code.qualname,
            code.linetable,
            code.code_units,
        ];
        let ints = code.firstlineno.max(code.flags) + 4;
        let end = pointers.into_iter().fold(ints, |end, at| end.max(at + 8));
        let mut bytes = [0; CODE_BYTES_MAX as usize];
        let bytes = bytes.get_mut(..end as usize).unwrap_or_default();
        memory.read(addr, bytes)?;

        let wrong = |field, value| CodeError::NotCode { addr, field, value };
        let word = |at| field(bytes, at).map_or(0, u64::from_le_bytes);
        let int = |at| field(bytes, at).map_or(0, u32::from_le_bytes);
        let pointer = |at, name| {
            let value = word(at);
            if value == 0 || value % 8 != 0 {
                Err(wrong(name, value))
            } else {
                Ok(Addr(value))
            }
        };
        let units = word(code.code_units);
        if units == 0 || units > CODE_UNITS_MAX {
            return Err(wrong("ob_size", units));
        }
        let first_line = int(code.firstlineno);
        if i32::try_from(first_line).is_err() {
            return Err(wrong("co_firstlineno", first_line.into()));
        }
        Ok(Self {
            filename: pointer(code.filename, "co_filename")?,
            name: pointer(code.name, "co_name")?,
            qualname: pointer(code.qualname, "co_qualname")?,
            linetable: pointer(code.linetable, "co_linetable")?,
            first_line,
            flags: int(code.flags),
            code_units: units as u32, // at most CODE_UNITS_MAX
        })
    }

    fn is_internal(&self) -> bool {
        self.flags & NO_MONITORING_EVENTS != 0
            && self.first_line == 0
            && self.filename == self.name
            && self.name == self.qualname
    }
}
