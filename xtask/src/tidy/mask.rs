//! Rust source with what is not code blanked out.

/// Replaces the content of comments, strings and character literals by spaces. Lines and columns
/// (in characters) stay as they are.
pub(super) fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut masked = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            masked.push(chars[at]);
            at += 1;
            continue;
        }
        let blank = |&c: &char| if c == '\n' { '\n' } else { ' ' };
        masked.extend(chars[at..end].iter().map(blank));
        at = end;
    }
    masked
}

/// End of the comment, string or character literal that begins at `at`; `at` if none does.
fn literal_end(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let after_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    let length = match rest {
        ['/', '/', ..] => rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment(rest),
        ['"', ..] => quoted(rest, '"'),
        // A lifetime has no closing quote two characters on.
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => quoted(rest, '\''),
        ['r', '"' | '#', ..] if !after_word => raw_string(rest, 1),
        ['b', 'r', '"' | '#', ..] if !after_word => raw_string(rest, 2),
        _ => 0,
    };
    at + length
}

fn quoted(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    rest.len().min(at + 1)
}

/// Length of a raw string whose prefix has `prefix` letters; 0 for a raw identifier.
fn raw_string(rest: &[char], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|&&c| c == '#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&'"') {
        return 0;
    }
    let close: Vec<char> = std::iter::once('"')
        .chain(std::iter::repeat_n('#', hashes))
        .collect();
    let body = &rest[open + 1..];
    let length = body.windows(close.len()).position(|window| window == close);
    length.map_or(rest.len(), |length| open + 1 + length + close.len())
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::code_only;

    #[track_caller]
    fn assert_code(source: &str, words: &[&str]) {
        assert_eq!(
            code_only(source).split_whitespace().collect::<Vec<_>>(),
            words
        );
        assert_eq!(code_only(source).chars().count(), source.chars().count());
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        assert_code("a // b\nc", &["a", "c"]);
        assert_code("a /* b /* c */ d */ e", &["a", "e"]);
        assert_code(r#"a "b \" c" d"#, &["a", "d"]);
        assert_code("a r#\"b \" c\"# d", &["a", "d"]);
        assert_code("a br\"b\" 'x' '\\'' '\"' c", &["a", "c"]);
        assert_code("a \"never closed", &["a"]);
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        assert_code(
            "&'a str + for\"x\" r#type",
            &["&'a", "str", "+", "for", "r#type"],
        );
    }
}
