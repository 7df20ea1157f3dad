//! `co_linetable`: which source range each code unit of a function comes from.
//!
//! A table is a run of entries; each says how many code units (of 2 bytes) it covers and where
//! they come from, lines relative to the entry before. Any bytes decode: what is malformed ends
//! the table, and code units past its end have no location.

pub use crate::profile::Location;

/// Consecutive code units with one location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// First code unit.
    pub start: u32,
    /// Code units, 1 to 8.
    pub units: u32,
    /// Where they come from.
    pub location: Location,
}

/// Entries of a table, in order.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
    unit: u32,
    line: i64,
}

/// Entries of `table`, for a code object whose `co_firstlineno` is `first_line`.
#[must_use]
pub fn entries(table: &[u8], first_line: u32) -> Entries<'_> {
    Entries {
        rest: table,
        unit: 0,
        line: first_line.into(),
    }
}

/// The location of code unit `unit`; all unknown where the table has none.
#[must_use]
pub fn locate(table: &[u8], first_line: u32, unit: u32) -> Location {
    entries(table, first_line).locate(unit)
}

/// A table with marks, so that looking up is quick however long it is.
///
/// Memory: the table, and 16 bytes for every `STRIDE` entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTable {
    table: Box<[u8]>,
    marks: Box<[Mark]>,
}

/// State of the decoder before an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    unit: u32,
    at: u32,
    line: i64,
}

/// Entries between two marks: a look-up decodes at most so many.
const STRIDE: usize = 32;

/// Longest table accepted, in bytes.
pub const TABLE_BYTES_MAX: usize = 16 << 20;

impl LineTable {
    /// Decodes `table` once to set its marks; what is beyond [`TABLE_BYTES_MAX`] has no location.
    #[must_use]
    pub fn new(mut table: Vec<u8>, first_line: u32) -> Self {
        table.truncate(TABLE_BYTES_MAX);
        let mut marks = Vec::new();
        let mut decoder = entries(&table, first_line);
        while !decoder.rest.is_empty() {
            let at = (table.len() - decoder.rest.len()) as u32; // below TABLE_BYTES_MAX
            marks.push(Mark {
                unit: decoder.unit,
                at,
                line: decoder.line,
            });
            if decoder.nth(STRIDE - 1).is_none() {
                break;
            }
        }
        Self {
            table: table.into(),
            marks: marks.into(),
        }
    }

    /// The location of code unit `unit`; all unknown where the table has none.
    #[must_use]
    pub fn locate(&self, unit: u32) -> Location {
        let next = self.marks.partition_point(|mark| mark.unit <= unit);
        let mark = next.checked_sub(1).and_then(|at| self.marks.get(at));
        let Some(&Mark {
            unit: from,
            at,
            line,
        }) = mark
        else {
            return Location::default();
        };
        let rest = self.table.get(at as usize..).unwrap_or_default();
        Entries {
            rest,
            unit: from,
            line,
        }
        .locate(unit)
    }

    /// Bytes of heap it takes.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        self.table.len() + self.marks.len() * size_of::<Mark>()
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let entry = self.decode();
        if entry.is_none() {
            self.rest = &[];
        }
        entry
    }
}

impl Entries<'_> {
    fn locate(mut self, unit: u32) -> Location {
        let entry = self.find(|entry| unit - entry.start < entry.units);
        entry.map(|entry| entry.location).unwrap_or_default()
    }

    fn decode(&mut self) -> Option<Entry> {
        let first = self.byte()?;
        if first & 0x80 == 0 {
            return None;
        }
        let code = u32::from(first >> 3 & 15);
        let units = u32::from(first & 7) + 1;
        let location = match code {
            0..=9 => {
                let second = u32::from(self.byte()?);
                let column = code << 3 | second >> 4;
                self.one_line(0, column, column + (second & 15))
            }
            10..=12 => {
                let (column, end) = (self.byte()?, self.byte()?);
                self.one_line(i64::from(code) - 10, column.into(), end.into())
            }
            13 => {
                let line = self.advance_signed()?;
                Location {
                    line,
                    end_line: line,
                    ..Location::default()
                }
            }
            14 => {
                let line = self.advance_signed()?;
                let end_line = line_number(self.line + i64::from(self.varint()?));
                // 0 says that there is none.
                let column = self.varint()?.checked_sub(1);
                Location {
                    line,
                    end_line,
                    column,
                    end_column: self.varint()?.checked_sub(1),
                }
            }
            _ => Location::default(),
        };
        let start = self.unit;
        self.unit = start.saturating_add(units);
        Some(Entry {
            start,
            units,
            location,
        })
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Six bits a byte, lowest first; bit 6 says that more follow. Bits past the 32nd are dropped.
    fn varint(&mut self) -> Option<u32> {
        let mut value = 0;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            if shift < u32::BITS {
                value |= u32::from(byte & 63) << shift;
            }
            if byte & 64 == 0 {
                return Some(value);
            }
            shift = u32::BITS.min(shift + 6);
        }
    }

    /// Moves the line by a signed varint, whose lowest bit is the sign.
    fn advance_signed(&mut self) -> Option<Option<u32>> {
        let value = self.varint()?;
        let distance = i64::from(value >> 1);
        Some(self.advance(if value & 1 == 0 { distance } else { -distance }))
    }

    fn advance(&mut self, lines: i64) -> Option<u32> {
        // Each entry moves by less than 2^31, and there are less than 2^31 entries.
        self.line = self.line.saturating_add(lines);
        line_number(self.line)
    }

    fn one_line(&mut self, lines: i64, column: u32, end_column: u32) -> Location {
        let line = self.advance(lines);
        Location {
            line,
            end_line: line,
            column: Some(column),
            end_column: Some(end_column),
        }
    }
}

/// A line as it is shown: CPython's -1 is "none", and other negative lines do not exist.
fn line_number(line: i64) -> Option<u32> {
    u32::try_from(line).ok()
}
