//! Names are bounded.

use std::borrow::Cow;
use std::hash::Hasher;

/// Longest function or file name kept, in UTF-8 bytes. Longer ones are cut.
pub const NAME_BYTES_MAX: usize = 4096;

/// Room for what a cut name ends with: an ellipsis (3 bytes), `#` and 16 digits.
const CUT_BYTES: usize = 3 + 1 + 16;

/// `name`, or its beginning, an ellipsis, and a hash of the whole name, so that long names which
/// begin alike stay apart.
pub(super) fn cut(name: &str) -> Cow<'_, str> {
    if name.len() <= NAME_BYTES_MAX {
        return Cow::Borrowed(name);
    }
    // Fixed keys: the same name is cut the same way in every run.
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    hasher.write(name.as_bytes());
    let head = &name[..name.floor_char_boundary(NAME_BYTES_MAX - CUT_BYTES)];
    Cow::Owned(format!("{head}…#{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_is_kept_whole() {
        let name = "x".repeat(NAME_BYTES_MAX);
        assert_eq!(cut(&name), name);
    }

    #[test]
    fn longer_names_are_cut_between_characters_and_stay_apart() {
        let (a, b) = ("é".repeat(9000) + "a", "é".repeat(9000) + "b");
        let (cut_a, cut_b) = (cut(&a), cut(&b));
        assert!(cut_a.len() <= NAME_BYTES_MAX, "{}", cut_a.len());
        assert!(cut_a.starts_with("éééé") && cut_a.contains("é…#"));
        assert_ne!(cut_a, cut_b);
    }
}
