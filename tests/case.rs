//! Reports of single cases, which `cargo xtask test` gathers into its table.

/// A case under way: ends in one of [`Self::ok`], [`Self::failed`] and [`Self::skipped`].
#[derive(Debug)]
#[must_use = "a case must report how it ended"]
pub struct Case {
    name: String,
}

impl Case {
    /// Begins the case `case` of `suite` with the interpreter `label`; names without spaces, `-`
    /// as label of a case without interpreter.
    pub fn new(suite: &str, label: &str, case: &str) -> Self {
        Self {
            name: format!("{suite} {label} {case}"),
        }
    }

    /// It passed.
    pub fn ok(self) {
        println!("UNWIND-CASE {} ok", self.name);
    }

    /// It failed, and why. The test itself must fail too.
    pub fn failed(self, why: &str) {
        println!("UNWIND-CASE {} failed {}", self.name, one_line(why));
    }

    /// It could not be tried here, and why.
    pub fn skipped(self, why: &str) {
        println!("UNWIND-CASE {} skipped {}", self.name, one_line(why));
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
