//! The rules, each over one file.

use super::mask::code_only;

/// Most lines of a Rust file, its tests not counted.
const LONGEST: usize = 400;

/// Mark of a file written by a program: it may be of any length.
const GENERATED: &str = "@generated";

/// The only files that may hold `unsafe`.
const UNSAFE: &[&str] = &["unwind-user/src/sys.rs", "unwind-ebpf/src/main.rs"];

/// Where the profiler may ask which Python it looks at; elsewhere it asks for what differs.
const VERSIONED: &[&str] = &[
    "unwind-user/src/layout",
    "unwind-user/src/python/runtime.rs",
];

/// What a comparison of Python versions looks like.
const VERSION_COMPARISONS: &[&str] = &[
    ".minor()",
    "(3, 1",
    "0x030",
    "Version::V3_",
    "version == ",
    "version != ",
    "version < ",
    "version > ",
    "version <= ",
    "version >= ",
];

/// Folders that exist on a developer's machine only, without the slash that begins them.
const PRIVATE: &[&str] = &["root/", "work/"];

/// A broken rule.
#[derive(Debug)]
pub(super) struct Finding {
    /// Line, from 1.
    pub(super) line: usize,
    pub(super) what: String,
}

/// Checks the text of the file at `path`, which is relative to the workspace root.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |index: usize, what: &str| {
        findings.push(Finding {
            line: index + 1,
            what: what.to_owned(),
        });
    };
    // Recorded outputs are what they are.
    if !path.starts_with("tests/fixtures/") {
        for (index, line) in text.split('\n').enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                find(index, "white space at the end of the line");
            }
            if names_private_folder(line) {
                find(index, "absolute path of one machine");
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            find(text.lines().count() - 1, "the last line has no end");
        }
    }
    if !path.ends_with(".rs") {
        return findings;
    }

    let code = code_only(text);
    let length = if is_test_module(path) {
        0
    } else {
        let tests = code.lines().position(|line| line == "#[cfg(test)]");
        tests.unwrap_or_else(|| code.lines().count())
    };
    if length > LONGEST && !text.lines().take(5).any(|line| line.contains(GENERATED)) {
        find(
            length - 1,
            &format!("{length} lines before the tests, at most {LONGEST}: split it"),
        );
    }
    for (index, line) in code.lines().enumerate() {
        if !UNSAFE.contains(&path) && has_word(line, "unsafe") {
            find(
                index,
                &format!("unsafe code, allowed only in {}", UNSAFE.join(" and ")),
            );
        }
        let versioned = VERSIONED.iter().any(|allowed| path.starts_with(allowed));
        let profiler = path.starts_with("unwind-user/src/") && index < length;
        if profiler && !versioned && VERSION_COMPARISONS.iter().any(|part| line.contains(part)) {
            let allowed = VERSIONED.join(" and ");
            find(
                index,
                &format!("comparison of Python versions, allowed only in {allowed}"),
            );
        }
    }
    findings
}

/// Whether a line holds an absolute path below a folder in [`PRIVATE`]. A path that only has such a
/// part, such as the root folder in a process's /proc, is none.
fn names_private_folder(line: &str) -> bool {
    let begins = |at: usize| {
        let before = line[..at].chars().next_back();
        let after = &line[at + 1..];
        let within = before.is_some_and(|c| c.is_alphanumeric() || "/_-.~*})]>".contains(c));
        let below = |folder: &&str| {
            let name = after
                .strip_prefix(*folder)
                .and_then(|rest| rest.chars().next());
            name.is_some_and(|c| c.is_alphanumeric() || c == '.')
        };
        !within && PRIVATE.iter().any(below)
    };
    line.match_indices('/').any(|(at, _)| begins(at))
}

/// Whether a file of a library or program is a module of unit tests: `tests.rs`, or below `tests/`.
fn is_test_module(path: &str) -> bool {
    let below_src = path.split_once("/src/").map(|(_, below)| below);
    below_src.is_some_and(|below| {
        below
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs")
    })
}

/// Whether `word` stands in `line` by itself.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.split(|c| !part(c)).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_findings(path: &str, text: &str, lines: &[usize]) {
        let found: Vec<usize> = check(path, text)
            .iter()
            .map(|finding| finding.line)
            .collect();
        assert_eq!(found, lines, "{:?}", check(path, text));
    }

    #[test]
    fn white_space_and_ends_of_lines() {
        assert_findings("README.md", "a\nb \n\tc\t\n", &[2, 3]);
        assert_findings("README.md", "a\r\nb", &[1, 2]);
        assert_findings("README.md", "", &[]);
        assert_findings("tests/fixtures/a.folded", "a \nb", &[]);
    }

    #[test]
    fn paths_of_one_machine() {
        let private = format!("see {}work/main and `{}root/.cache`\n", '/', '/');
        assert_findings("README.md", &private, &[1]);
        assert_findings("a.toml", &format!("x = \"{}root/bin\"\n", '/'), &[1]);
        let public =
            "/proc/1/root/usr {proc}/root/usr framework/x the /root folder or /root/ too\n";
        assert_findings("README.md", public, &[]);
    }

    #[test]
    fn long_files() {
        let long = "fn f() {}\n".repeat(LONGEST + 1);
        assert_findings("a/src/b.rs", &long, &[LONGEST + 1]);
        assert_findings("a/src/b.rs", &format!("// {GENERATED}\n{long}"), &[]);
        let tests = format!("fn f() {{}}\n#[cfg(test)]\n{long}");
        assert_findings("a/src/b.rs", &tests, &[]);
        assert_findings("a/b.py", &long, &[]);
    }

    #[test]
    fn unsafe_code_outside_its_files() {
        let code = "#![forbid(unsafe_code)]\n// unsafe\nunsafe fn f() {}\n";
        assert_findings("unwind-user/src/lib.rs", code, &[3]);
        assert_findings("unwind-user/src/sys.rs", code, &[]);
    }

    #[test]
    fn comparisons_of_versions_outside_their_files() {
        let code = "if version >= Version::new(3, 13) {}\nlet v = \"0x030c\";\n";
        assert_findings("unwind-user/src/python/walk.rs", code, &[1]);
        assert_findings("unwind-user/src/layout/tables.rs", code, &[]);
        assert_findings("tests/names.rs", code, &[]);
        let tested = format!("#[cfg(test)]\nmod tests {{\n{code}}}\n");
        assert_findings("unwind-user/src/python/walk.rs", &tested, &[]);
        assert_findings("unwind-user/src/python/tests/walk.rs", code, &[]);
        assert_findings("unwind-user/src/python/tests.rs", code, &[]);
        assert_findings("unwind-user/src/latests.rs", code, &[1]);
    }
}
