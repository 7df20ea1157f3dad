//! What the machine's report should say.

use super::guest::Block;
use super::kernel::Release;

/// Fewest samples of the right stack: 2 s at 250 Hz give 500, an emulated clock fewer.
const SAMPLES_MIN: u64 = 50;
/// A stack of which nothing was there.
const ABSENT: &str = "[page fault]";
/// Exit code of the profiler when it refuses or fails.
const REFUSED: i32 = 125;

/// How one thing tried came out.
#[derive(Debug)]
pub(super) struct Verdict {
    /// What was tried.
    pub(super) what: String,
    /// What is wrong, if anything.
    pub(super) wrong: Option<String>,
    /// What was seen.
    pub(super) note: String,
}

/// Judges a report; a missing block is wrong too.
pub(super) fn verdicts(release: &Release, report: &[Block], labels: &[&str]) -> Vec<Verdict> {
    let mut wanted: Vec<(String, Want)> = vec![("kernel".to_owned(), Want::Words(0, release.name))];
    let sample = if release.supported {
        Want::Stack
    } else {
        Want::Words(REFUSED, "5.17")
    };
    for label in labels {
        wanted.push((format!("stack-{label}"), sample));
    }
    let mut case = |name: &str, want| wanted.push((name.to_owned(), want));
    case("user", Want::Words(REFUSED, "CAP_SYS_PTRACE"));
    if release.supported {
        case("cycles", Want::Words(REFUSED, "cannot open the perf event"));
        case("yama-2", Want::Stack);
        case("lockdown-integrity", Want::Stack);
        case("yama-3", Want::Words(REFUSED, "ptrace_scope"));
        case(
            "lockdown-confidentiality",
            Want::Words(REFUSED, "confidentiality"),
        );
    }
    case("end", Want::Words(0, ""));
    let verdict = |(what, want): (String, Want)| {
        let found = report.iter().find(|block| block.name == what);
        match found
            .ok_or_else(|| "the machine never came there".to_owned())
            .and_then(|b| want.of(b))
        {
            Ok(note) => Verdict {
                what,
                wrong: None,
                note,
            },
            Err(why) => Verdict {
                what,
                wrong: Some(why),
                note: String::new(),
            },
        }
    };
    wanted.into_iter().map(verdict).collect()
}

/// What is expected of one block.
#[derive(Clone, Copy)]
enum Want {
    /// The program's own stack and no other.
    Stack,
    /// This exit code, and these words in what was printed.
    Words(i32, &'static str),
}

impl Want {
    fn of(self, block: &Block) -> Result<String, String> {
        let with = |words: &str| block.lines.iter().rev().find(|line| line.contains(words));
        let what = || {
            format!(
                "exit code {}: {}",
                block.code,
                cut(&block.lines.join(" / "))
            )
        };
        match self {
            Self::Words(code, words) if block.code == code => match with(words) {
                Some(line) => Ok(cut(line.trim())),
                None if words.is_empty() => Ok(String::new()),
                None => Err(what()),
            },
            Self::Stack if block.code == 0 => right_stack(block).ok_or_else(what),
            _ => Err(what()),
        }
    }
}

/// As much of a text as one wants to see in a table; its end says what went wrong.
fn cut(text: &str) -> String {
    const SHOWN: usize = 400;
    let skip = text.chars().count().saturating_sub(SHOWN);
    text.chars().skip(skip).collect()
}

/// How many samples had the right stack; `None` if there are too few, or others. A few may say
/// that a page was not there: right after the start some are.
fn right_stack(block: &Block) -> Option<String> {
    let expected = block
        .lines
        .iter()
        .find_map(|line| line.strip_prefix("expected "))?;
    let (mut samples, mut absent) = (0, 0);
    for line in block
        .lines
        .iter()
        .filter_map(|line| line.strip_prefix("stack "))
    {
        let (stack, count) = line.rsplit_once(' ')?;
        let count = count.parse::<u64>().ok()?;
        match stack {
            _ if stack == expected => samples += count,
            ABSENT => absent += count,
            _ => return None,
        }
    }
    if absent * 100 > samples {
        return None;
    }
    let depth = expected.matches(';').count() + 1;
    (samples >= SAMPLES_MIN).then(|| format!("{samples} samples, all {depth} frames right"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(lines: &[&str]) -> Block {
        Block {
            name: "x".into(),
            lines: lines.iter().map(|&l| l.to_owned()).collect(),
            code: 0,
        }
    }

    #[test]
    fn one_wrong_stack_or_too_few_samples_are_wrong() {
        let right = ["expected a (x:1);b (x:2)", "stack a (x:1);b (x:2) 400"];
        assert!(right_stack(&block(&right)).is_some());
        assert!(right_stack(&block(&[right[0], right[1], "stack a (x:1) 1"])).is_none());
        let absent = |n: u32| format!("stack {ABSENT} {n}");
        assert!(right_stack(&block(&[right[0], right[1], &absent(4)])).is_some());
        assert!(right_stack(&block(&[right[0], right[1], &absent(5)])).is_none());
        assert!(right_stack(&block(&[right[0], "stack a (x:1);b (x:2) 3"])).is_none());
        assert!(right_stack(&block(&[right[1]])).is_none());
    }

    #[test]
    fn a_block_that_is_missing_is_wrong() {
        let release = super::super::kernel::RELEASES[1];
        assert!(
            verdicts(&release, &[], &["3.15"])
                .iter()
                .all(|verdict| verdict.wrong.is_some())
        );
    }
}
