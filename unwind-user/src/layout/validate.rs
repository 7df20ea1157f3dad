//! Checks a layout once, so that whoever applies it need not.

use unwind_ebpf::abi::{FRAME_WORDS_MAX, IDENTITY_WORDS_MAX, TSTATE_WORDS_MAX};

use super::fields::{self, Field};
use super::{Entry, Identity, Layout, LayoutError};

/// Bytes of the runtime and of an interpreter within which their fields lie.
pub const STATE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a code object within which its fields lie.
pub const CODE_BYTES_MAX: u64 = 512;
/// Bytes of a `str` or `bytes` head.
pub const HEAD_BYTES_MAX: u64 = 128;
/// Bytes of a `_PyCFrame`.
const CFRAME_BYTES_MAX: u64 = 64;

/// The sizes of the structs, as a table publishes them. Of `gc`: where it begins, and its size.
pub(super) struct Sizes {
    pub(super) runtime: u64,
    pub(super) interp: u64,
    pub(super) gc: (u64, u64),
    pub(super) thread: u64,
    pub(super) frame: u64,
    pub(super) code: u64,
    pub(super) unicode: u64,
}

/// Checks each struct's fields against its published size.
pub(super) fn within(layout: &Layout, sizes: &Sizes) -> Result<(), LayoutError> {
    check(&fields::runtime(layout), sizes.runtime)?;
    check(&fields::interp(layout), sizes.interp)?;
    let (gc, gc_size) = sizes.gc;
    check(
        &[Field("PyInterpreterState.gc", gc, gc_size, 8)],
        sizes.interp,
    )?;
    check(&fields::gc(layout), gc.saturating_add(gc_size))?;
    check(&fields::thread(layout), sizes.thread)?;
    check(&fields::frame(layout), sizes.frame)?;
    check(&fields::code(layout), sizes.code)?;
    check(
        &[Field(
            "PyCodeObject.co_code_adaptive",
            layout.code.bytecode,
            0,
            8,
        )],
        sizes.code,
    )?;
    check(&fields::unicode(layout), sizes.unicode)?;
    let compact = layout.unicode.compact_data;
    check(
        &[Field("PyCompactUnicodeObject size", compact, 0, 4)],
        sizes.unicode,
    )
}

impl Layout {
    /// Checks that every offset is aligned, apart from its neighbours, and within what a sample
    /// reads of its struct: the kernel half and the readers rely on it.
    ///
    /// # Errors
    /// The first field that is wrong, and how.
    pub fn validate(&self) -> Result<(), LayoutError> {
        check(&fields::runtime(self), STATE_BYTES_MAX)?;
        check(&fields::interp(self), STATE_BYTES_MAX)?;
        check(&fields::thread(self), 8 * TSTATE_WORDS_MAX as u64)?;
        check(&fields::cframe(self), CFRAME_BYTES_MAX)?;
        self.validate_frame()?;
        self.validate_code()?;
        self.validate_objects()
    }

    fn validate_frame(&self) -> Result<(), LayoutError> {
        let header = self.frame.localsplus;
        let field = Field("_PyInterpreterFrame.localsplus", header, 0, 8);
        check(&[field], 8 * FRAME_WORDS_MAX as u64)?;
        check(&fields::frame(self), header)?;
        at_most(
            "bits of a code reference that are no address",
            self.frame.code_tag,
            7,
        )?;
        match self.frame.entry {
            // 0 is the kernel half's word for "none".
            Entry::Flag(offset) => at_least("_PyInterpreterFrame.is_entry", offset, 1)?,
            Entry::Owner(owner) => {
                at_least("owner of an entry frame", owner.into(), 1)?;
                at_most(
                    "owner of an entry frame",
                    owner.into(),
                    self.frame.owner_max.into(),
                )?;
            }
        }
        at_most("largest owner of a frame", self.frame.owner_max.into(), 127)
    }

    fn validate_code(&self) -> Result<(), LayoutError> {
        check(&fields::code(self), CODE_BYTES_MAX)?;
        let bytecode = self.code.bytecode;
        check(
            &[Field("PyCodeObject.co_code_adaptive", bytecode, 0, 8)],
            CODE_BYTES_MAX,
        )?;
        if self.code.identity == Identity::Fields {
            let first = self.code.firstlineno & !7;
            let last = self.code.linetable;
            let bytes = 8 * IDENTITY_WORDS_MAX as u64;
            at_least(
                "PyCodeObject.co_linetable after co_firstlineno",
                last,
                first,
            )?;
            at_most(
                "PyCodeObject.co_linetable from co_firstlineno",
                last - first,
                bytes - 8,
            )?;
            at_least(
                "PyCodeObject.co_qualname after co_firstlineno",
                self.code.qualname,
                first,
            )?;
            at_most(
                "PyCodeObject.co_qualname before co_linetable",
                self.code.qualname,
                last,
            )?;
        }
        Ok(())
    }

    fn validate_objects(&self) -> Result<(), LayoutError> {
        let (unicode, bytes) = (&self.unicode, &self.bytes);
        check(
            &fields::unicode(self),
            unicode.ascii_data.min(unicode.compact_data),
        )?;
        check(
            &[Field::pointer("PyBytesObject.ob_size", bytes.size)],
            bytes.data,
        )?;
        check(
            &[Field("PyASCIIObject size", unicode.ascii_data, 0, 1)],
            HEAD_BYTES_MAX,
        )?;
        check(
            &[Field(
                "PyCompactUnicodeObject size",
                unicode.compact_data,
                0,
                4,
            )],
            HEAD_BYTES_MAX,
        )?;
        check(
            &[Field("PyBytesObject.ob_sval", bytes.data, 0, 1)],
            HEAD_BYTES_MAX,
        )?;
        let (kind, compact, ascii) = (unicode.kind_mask, unicode.compact_mask, unicode.ascii_mask);
        let kind_bits = u64::from(kind >> kind.trailing_zeros().min(31));
        at_least("bits of a str's kind", kind_bits, 7)?;
        at_most("bits of a str's kind", kind_bits, 7)?;
        at_most(
            "str state bits that overlap",
            u64::from((kind & (compact | ascii)) | (compact & ascii)),
            0,
        )?;
        at_least("str state bit of compact", compact.count_ones().into(), 1)?;
        at_least("str state bit of ascii", ascii.count_ones().into(), 1)
    }
}

/// Checks fields of one struct: alignment, end, and that no two overlap.
fn check(fields: &[Field], limit: u64) -> Result<(), LayoutError> {
    for &Field(field, offset, width, align) in fields {
        if offset.checked_add(width).is_none_or(|end| end > limit) {
            return Err(LayoutError::Outside {
                field,
                offset,
                width,
                limit,
            });
        }
        if !offset.is_multiple_of(align) {
            return Err(LayoutError::Misaligned {
                field,
                offset,
                align,
            });
        }
    }
    for (i, &Field(field, start, width, _)) in fields.iter().enumerate() {
        for &Field(other, at, bytes, _) in fields.iter().take(i) {
            if start < at + bytes && at < start + width {
                return Err(LayoutError::Overlap {
                    field,
                    other,
                    offset: start,
                });
            }
        }
    }
    Ok(())
}

const fn at_least(field: &'static str, found: u64, expected: u64) -> Result<(), LayoutError> {
    if found < expected {
        Err(LayoutError::Unexpected {
            field,
            found,
            expected,
        })
    } else {
        Ok(())
    }
}

const fn at_most(field: &'static str, found: u64, expected: u64) -> Result<(), LayoutError> {
    if found > expected {
        Err(LayoutError::Unexpected {
            field,
            found,
            expected,
        })
    } else {
        Ok(())
    }
}
