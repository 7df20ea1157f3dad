//! Member offsets of kernel structures, from the kernel's own BTF.
//!
//! Only what we ask: the offset of a path of members in a structure, through anonymous members.
//! Format: Linux `Documentation/bpf/btf.rst`; the header and records are little-endian here.

use std::path::Path;

use thiserror::Error;

/// Why an offset could not be found.
#[derive(Debug, Error)]
pub enum BtfError {
    /// The kernel has no BTF, or it cannot be read.
    #[error("cannot read {path}: {source} (the kernel must be built with CONFIG_DEBUG_INFO_BTF)")]
    Unreadable {
        /// Where it was looked for.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The data is not BTF, or breaks its own bounds.
    #[error("malformed BTF at byte {0}")]
    Malformed(usize),
    /// The structure or member does not exist in this kernel.
    #[error("this kernel's BTF has no {0}")]
    Missing(String),
}

/// Where Linux shows its own type information.
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

const STRUCT: u32 = 4;
const UNION: u32 = 5;
/// Modifiers that lead on to another type: typedef, volatile, const, restrict, type tag.
const MODIFIERS: [u32; 5] = [8, 9, 10, 11, 18];
/// Nesting of anonymous members that is followed.
const DEPTH_MAX: usize = 16;

/// Parsed enough to look members up: the records' places by type id.
#[derive(Debug)]
pub struct KernelTypes {
    data: Vec<u8>,
    types: Vec<usize>,
    strings: usize,
}

impl KernelTypes {
    /// Reads the running kernel's BTF.
    ///
    /// # Errors
    /// When the kernel has none, or it is malformed.
    pub fn of_running_kernel() -> Result<Self, BtfError> {
        let data = std::fs::read(Path::new(KERNEL_BTF)).map_err(|source| BtfError::Unreadable {
            path: KERNEL_BTF.to_owned(),
            source,
        })?;
        Self::parse(data)
    }

    /// Indexes a BTF blob.
    ///
    /// # Errors
    /// When it is not BTF or a record leaves its bounds.
    pub fn parse(data: Vec<u8>) -> Result<Self, BtfError> {
        if data.get(..2) != Some(&0xeb9f_u16.to_le_bytes()) {
            return Err(BtfError::Malformed(0));
        }
        let header = word(&data, 4)? as usize;
        let start = header + word(&data, 8)? as usize;
        let end = start + word(&data, 12)? as usize;
        let strings = header + word(&data, 16)? as usize;
        let mut types = vec![0];
        let mut at = start;
        while at < end {
            types.push(at);
            let info = word(&data, at + 4)?;
            let count = (info & 0xffff) as usize;
            at += 12
                + match (info >> 24) & 0x1f {
                    // int, variable, declaration tag: one word more.
                    1 | 14 | 17 => 4,
                    // array
                    3 => 12,
                    STRUCT | UNION | 15 | 19 => 12 * count,
                    6 | 13 => 8 * count,
                    _ => 0,
                };
        }
        Ok(Self {
            data,
            types,
            strings,
        })
    }

    /// The offset in bytes of `member`.`member`… in `struct name`.
    ///
    /// # Errors
    /// [`BtfError::Missing`] when there is no such structure or member.
    pub fn offset(&self, name: &str, members: &[&str]) -> Result<u64, BtfError> {
        let missing = || BtfError::Missing(format!("struct {name}.{}", members.join(".")));
        let mut at = self.find(name)?.ok_or_else(missing)?;
        let mut bits = 0;
        for member in members {
            let (offset, of) = self.member(at, member, DEPTH_MAX)?.ok_or_else(missing)?;
            bits += offset;
            at = of;
        }
        Ok(bits / 8)
    }

    fn find(&self, name: &str) -> Result<Option<usize>, BtfError> {
        for &at in self.types.iter().skip(1) {
            let info = word(&self.data, at + 4)?;
            let is_full = info & 0xffff != 0;
            if (info >> 24) & 0x1f == STRUCT
                && is_full
                && self.name(word(&self.data, at)?) == name.as_bytes()
            {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Bit offset and type record of a member, looked for in anonymous members too.
    fn member(
        &self,
        at: usize,
        name: &str,
        depth: usize,
    ) -> Result<Option<(u64, usize)>, BtfError> {
        let info = word(&self.data, at + 4)?;
        if depth == 0 || !matches!((info >> 24) & 0x1f, STRUCT | UNION) {
            return Ok(None);
        }
        let has_bit_fields = info >> 31 == 1;
        for i in 0..(info & 0xffff) as usize {
            let member = at + 12 + 12 * i;
            let of = self.resolve(word(&self.data, member + 4)?)?;
            let offset = word(&self.data, member + 8)?;
            let bits = u64::from(if has_bit_fields {
                offset & 0x00ff_ffff
            } else {
                offset
            });
            let its_name = self.name(word(&self.data, member)?);
            if its_name == name.as_bytes() {
                return Ok(Some((bits, of)));
            }
            if its_name.is_empty()
                && let Some((inner, of)) = self.member(of, name, depth - 1)?
            {
                return Ok(Some((bits + inner, of)));
            }
        }
        Ok(None)
    }

    /// The record behind typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> Result<usize, BtfError> {
        for _ in 0..DEPTH_MAX {
            let at = *self
                .types
                .get(id as usize)
                .ok_or(BtfError::Malformed(id as usize))?;
            let kind = (word(&self.data, at + 4)? >> 24) & 0x1f;
            if id == 0 || !MODIFIERS.contains(&kind) {
                return Ok(at);
            }
            id = word(&self.data, at + 8)?;
        }
        Err(BtfError::Malformed(id as usize))
    }

    fn name(&self, offset: u32) -> &[u8] {
        let rest = self
            .data
            .get(self.strings + offset as usize..)
            .unwrap_or_default();
        let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
        rest.get(..end).unwrap_or_default()
    }
}

fn word(data: &[u8], at: usize) -> Result<u32, BtfError> {
    data.get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u32::from_le_bytes)
        .ok_or(BtfError::Malformed(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct outer { int a; struct { struct inner b; }; }; struct inner { int x; int y; };`
    fn sample() -> Vec<u8> {
        let strings = b"\0outer\0a\0inner\0x\0y\0b\0int\0";
        let name = |text: &str| {
            let needle = [b"\0", text.as_bytes(), b"\0"].concat();
            strings
                .windows(needle.len())
                .position(|w| w == needle)
                .expect("name") as u32
                + 1
        };
        let mut types: Vec<u32> = vec![];
        types.extend([name("int"), 1 << 24, 4, 32]); // 1
        types.extend([
            name("inner"),
            STRUCT << 24 | 2,
            8,
            name("x"),
            1,
            0,
            name("y"),
            1,
            32,
        ]); // 2
        types.extend([0, STRUCT << 24 | 1, 8, name("b"), 4, 0]); // 3
        types.extend([0, 10 << 24, 2]); // 4: const inner
        types.extend([
            name("outer"),
            STRUCT << 24 | 2,
            12,
            name("a"),
            1,
            0,
            0,
            3,
            32,
        ]); // 5
        let length = types.len() as u32 * 4;
        let mut out = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, length, length, strings.len() as u32] {
            out.extend(u32::to_le_bytes(word));
        }
        out.extend(types.iter().flat_map(|w| w.to_le_bytes()));
        out.extend(strings);
        out
    }

    #[test]
    fn finds_members_through_anonymous_and_qualified_ones() {
        let types = KernelTypes::parse(sample()).expect("parses");
        assert_eq!(types.offset("outer", &["a"]).expect("a"), 0);
        assert_eq!(types.offset("outer", &["b", "y"]).expect("b.y"), 8);
        assert!(matches!(
            types.offset("outer", &["zz"]),
            Err(BtfError::Missing(_))
        ));
    }

    #[test]
    fn cut_data_is_an_error_not_a_panic() {
        let whole = sample();
        for length in 0..whole.len() {
            if let Ok(types) = KernelTypes::parse(whole.get(..length).expect("prefix").to_vec()) {
                let _ = types.offset("outer", &["b", "y"]);
            }
        }
    }
}
