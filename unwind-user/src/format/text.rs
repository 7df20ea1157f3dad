//! Names made fit to be seen.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` with everything visible that a terminal, an XML parser or a line-based reader could
/// trip over: control characters, line separators, characters that turn the reading direction,
/// and what XML 1.0 has no place for. `\` itself is doubled, so [`restore`] can undo it.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    text.chars().for_each(|c| push(&mut out, c, is_escaped(c)));
    Cow::Owned(out)
}

/// Undoes [`visible`] and the further escapes of folded stacks; nothing when `text` has an
/// escape that is none.
#[must_use]
pub fn restore(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.push_str(plain);
        let mut chars = escape.chars();
        rest = match chars.next()? {
            'u' => {
                let (digits, after) = chars.as_str().strip_prefix('{')?.split_once('}')?;
                out.push(char::from_u32(u32::from_str_radix(digits, 16).ok()?)?);
                after
            }
            letter => {
                out.push(match letter {
                    '\\' => '\\',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    _ => return None,
                });
                chars.as_str()
            }
        };
    }
    out.push_str(rest);
    Some(out)
}

/// Appends `c`, as an escape if it `must` be one.
pub(super) fn push(out: &mut String, c: char, must: bool) {
    match c {
        _ if !must => out.push(c),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        // A `String` takes all that is written to it.
        _ => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
    }
}

/// Whether [`visible`] escapes `c`.
pub(super) fn is_escaped(c: char) -> bool {
    c == '\\' || is_unfit(c)
}

/// Whether `c` steers a terminal, ends a line, turns the reading direction, or is none for XML.
pub(crate) fn is_unfit(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether XML 1.0 allows `c` in a document.
#[cfg(test)]
pub(super) fn is_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_names_are_left_alone() {
        for name in [
            "<module>",
            "café.кириллица",
            "𠀀",
            "f.<locals>.<lambda>",
            "a;b",
        ] {
            assert!(matches!(visible(name), Cow::Borrowed(same) if same == name));
        }
    }

    #[test]
    fn what_cannot_be_seen_is_spelled_out() {
        assert_eq!(
            visible("\x1b[31m\0\x06\u{85}\n\\"),
            r"\u{1b}[31m\u{0}\u{6}\u{85}\n\\"
        );
    }

    #[test]
    fn broken_escapes_are_refused() {
        for text in [
            "\\",
            "\\q",
            "\\u",
            "\\u{",
            "\\u{}",
            "\\u{d800}",
            "\\u{110000}",
            "\\u{zz}",
        ] {
            assert_eq!(restore(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_comes_back(text in any::<String>()) {
            let seen = visible(&text);
            prop_assert!(seen.chars().all(|c| is_xml(c) && !c.is_control()));
            prop_assert_eq!(restore(&seen), Some(text));
        }

        #[test]
        fn any_escape_is_read_or_refused(text in r"[\\u{}0-9a-fn]{0,12}") {
            if let Some(restored) = restore(&text) {
                prop_assert_eq!(restore(&visible(&restored)), Some(restored));
            }
        }
    }
}
