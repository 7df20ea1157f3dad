//! What tells a code object from a later one at the same address.

use unwind_ebpf::abi::{IDENTITY_WORDS_MAX, NAME_WORDS};

use super::string::{Shape, field};
use crate::layout::{Identity, Layout, UnicodeLayout};
use crate::memory::{Addr, Fault, Memory};

/// Bytes of a name that belong to an identity.
const NAME_BYTES: usize = NAME_WORDS * 8;
/// Where they begin in the `str`: after `ob_refcnt` and `ob_type`.
const NAME_START: u64 = 16;

/// The identity of a code object; equal for the same object, different for another.
///
/// From 3.12 on it is `co_version`. On 3.11, the fields from `co_firstlineno` to `co_linetable`
/// and the first characters of the qualified name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeIdentity {
    words: [u64; IDENTITY_WORDS_MAX],
    name: [u64; NAME_WORDS],
}

impl CodeIdentity {
    /// Whether equal identities prove the same object. They do not for version 0, which every
    /// code object has once an interpreter has used up its versions, and which CPython's own
    /// static code objects have (they are never freed).
    #[must_use]
    pub fn is_proof(&self) -> bool {
        self.words.iter().any(|word| *word != 0)
    }
}

/// Reads the identity of the code object at `addr`: exactly the ranges that the kernel half
/// captures, one read each, so that a record that has them answers.
///
/// # Errors
/// When they cannot be read.
pub fn read_identity(
    memory: &dyn Memory,
    layout: &Layout,
    addr: Addr,
) -> Result<CodeIdentity, Fault> {
    let (start, words) = layout.code.identity_words();
    let mut buffer = [0; IDENTITY_WORDS_MAX * 8];
    let bytes = buffer.get_mut(..words as usize * 8).unwrap_or_default();
    let at = addr.add(start);
    memory.read(at, bytes)?;
    let mut identity = CodeIdentity {
        words: [0; IDENTITY_WORDS_MAX],
        name: [0; NAME_WORDS],
    };
    match layout.code.identity {
        Identity::Version(offset) => {
            let version = field(bytes, offset - start).map_or(0, u32::from_le_bytes);
            identity.words[0] = version.into();
        }
        Identity::Fields => {
            copy_words(&mut identity.words, bytes);
            let qualname = field(bytes, layout.code.qualname - start).map_or(0, u64::from_le_bytes);
            let mut name = [0; NAME_BYTES];
            memory.read(Addr(qualname).add(NAME_START), &mut name)?;
            keep_lasting(&layout.unicode, &mut name);
            copy_words(&mut identity.name, &name);
        }
    }
    Ok(identity)
}

/// Blanks what changes during a name's life (its hash, its cached encodings) and what follows
/// its last character: that is another object's.
fn keep_lasting(layout: &UnicodeLayout, name: &mut [u8; NAME_BYTES]) {
    let Ok(shape) = Shape::parse(layout, name, NAME_START) else {
        return;
    };
    let data = (shape.data - NAME_START) as usize; // at most HEAD_BYTES_MAX
    let characters = shape.length.saturating_mul(shape.width as u64);
    let end = usize::try_from(characters)
        .unwrap_or(usize::MAX)
        .saturating_add(data);
    let length = (layout.length - NAME_START) as usize;
    for (at, byte) in name.iter_mut().enumerate() {
        let kept = (length..length + 8).contains(&at) || (data..end).contains(&at);
        if !kept {
            *byte = 0;
        }
    }
}

fn copy_words(words: &mut [u64], bytes: &[u8]) {
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
}
