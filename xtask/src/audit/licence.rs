//! Licence expressions (SPDX), as manifests of crates hold them.

/// Whether an expression can be met with licences that `known` accepts. `None` if the expression
/// cannot be read.
///
/// `A OR B` needs one, `A AND B` both, and `A/B` is the old way to write OR. An exception
/// (`A WITH B`) grants more than the licence alone, so it needs no asking.
pub(super) fn allowed(expression: &str, known: impl Fn(&str) -> bool) -> Option<bool> {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let allowed = any(&mut rest, &known)?;
    rest.is_empty().then_some(allowed)
}

/// Terms joined by OR, which binds least.
fn any(words: &mut &[&str], known: &impl Fn(&str) -> bool) -> Option<bool> {
    let mut allowed = all(words, known)?;
    while take(words, "OR") {
        allowed |= all(words, known)?;
    }
    Some(allowed)
}

/// Terms joined by AND.
fn all(words: &mut &[&str], known: &impl Fn(&str) -> bool) -> Option<bool> {
    let mut allowed = one(words, known)?;
    while take(words, "AND") {
        allowed &= one(words, known)?;
    }
    Some(allowed)
}

/// A licence, with or without an exception, or an expression in parentheses.
fn one(words: &mut &[&str], known: &impl Fn(&str) -> bool) -> Option<bool> {
    if take(words, "(") {
        let allowed = any(words, known)?;
        return take(words, ")").then_some(allowed);
    }
    let licence = identifier(words)?;
    if take(words, "WITH") {
        identifier(words)?;
    }
    Some(known(licence))
}

fn identifier<'a>(words: &mut &[&'a str]) -> Option<&'a str> {
    let (&word, rest) = words.split_first()?;
    *words = rest;
    (!["OR", "AND", "WITH", "(", ")"].contains(&word)).then_some(word)
}

/// Takes the next word if it is `word`.
fn take(words: &mut &[&str], word: &str) -> bool {
    match words.split_first() {
        Some((&next, rest)) if next == word => {
            *words = rest;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[track_caller]
    fn assert_allowed(expression: &str, expected: Option<bool>) {
        assert_eq!(
            allowed(expression, |id| ["MIT", "Zlib"].contains(&id)),
            expected
        );
    }

    #[test]
    fn expressions_are_met_by_what_is_known() {
        assert_allowed("MIT", Some(true));
        assert_allowed("GPL-3.0", Some(false));
        assert_allowed("GPL-3.0 OR MIT", Some(true));
        assert_allowed("GPL-3.0/MIT", Some(true));
        assert_allowed("GPL-3.0 AND MIT", Some(false));
        assert_allowed("MIT AND Zlib OR GPL-3.0", Some(true));
        assert_allowed("GPL-3.0 OR MIT AND BSL-1.0", Some(false));
        assert_allowed("(GPL-3.0 OR MIT) AND Zlib", Some(true));
        assert_allowed("MIT WITH LLVM-exception", Some(true));
    }

    #[test]
    fn what_is_no_expression_is_not_allowed() {
        for bad in [
            "", "MIT OR", "OR MIT", "(MIT", "MIT)", "MIT Zlib", "MIT WITH", "()",
        ] {
            assert_allowed(bad, None);
        }
    }
}
