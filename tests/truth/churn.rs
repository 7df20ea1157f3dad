//! Judges names where code objects live shortly: each may stand only below the function that is
//! known to call it (`programs/churn.py`).

use unwind_tests::Profile;
use unwind_user::format::Label;
use unwind_user::profile::Marker;

/// What the stacks of a profile amount to.
#[derive(Debug, Default)]
pub(crate) struct Churned {
    /// Samples with a short-lived frame.
    pub(crate) samples: u64,
    /// Short-lived frames that were named.
    pub(crate) named: u64,
    /// Short-lived frames shown as freed.
    pub(crate) freed: u64,
    /// Samples with a wrong name, file or line.
    wrong: u64,
    /// One of them.
    example: String,
}

/// Which of the program's modes it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Many,
    Swap,
    Twins,
}

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Many => "many",
            Self::Swap => "swap",
            Self::Twins => "twins",
        }
    }

    /// Whether a frame may stand in this place (0: called by `via_LANE`) of lane `lane`.
    fn fits(self, place: usize, lane: u64, name: &str, file: &str, line: u32) -> bool {
        let role = ["g", "f"].get(place).copied().unwrap_or("?");
        match self {
            Self::Many => {
                let n = file
                    .strip_prefix("gen_")
                    .and_then(|n| n.parse::<u64>().ok());
                n.is_some_and(|n| n % 16 == lane && name == format!("{role}_{n}_{lane}"))
            }
            Self::Swap => name == format!("{role}_0_{lane}") && file == format!("gen_{lane}"),
            Self::Twins => {
                let own_line = match (role, lane) {
                    ("f", 0) => line <= 5,
                    ("f", _) => line == 1 || line % 2 == 1 && line <= 9,
                    _ => line == 31 || line == 32,
                };
                name == role && file == format!("gen_{lane}") && own_line
            }
        }
    }
}

impl Churned {
    /// Judges every stack of a profile.
    pub(crate) fn judge(mode: Mode, profile: &Profile) -> Self {
        let mut churned = Self::default();
        for line in &profile.lines {
            churned.stack(mode, &line.frames, line.count);
        }
        churned
    }

    fn stack(&mut self, mode: Mode, frames: &[Label], count: u64) {
        let via = frames
            .iter()
            .position(|frame| name(frame).is_some_and(|n| n.starts_with("via_")));
        let lane = via.and_then(|at| name(&frames[at])?.strip_prefix("via_")?.parse::<u64>().ok());
        let (Some(via), Some(lane)) = (via, lane) else {
            // The program's own frames, and the bodies of the modules that it compiles.
            let own = |f: &Label| match f {
                Label::Function { name, file, .. } => {
                    name == "<module>" || file.ends_with("churn.py")
                }
                _ => *f == Label::Marker(Marker::FreedCode),
            };
            return self.check(frames.len() <= 5 && frames.iter().all(own), frames, count);
        };
        let brief = &frames[via + 1..];
        if !brief.is_empty() {
            self.samples += count;
        }
        let mut right = brief.len() <= 2 && frames[..via].iter().all(|frame| name(frame).is_some());
        let mut files = Vec::new();
        for (place, frame) in brief.iter().enumerate() {
            match frame {
                Label::Function { name, file, line } => {
                    self.named += count;
                    right &= mode.fits(place, lane, name, file, line.unwrap_or(0));
                    files.push(file);
                }
                Label::Marker(Marker::FreedCode) => self.freed += count,
                _ => right = false,
            }
        }
        right &= files.windows(2).all(|pair| pair[0] == pair[1]);
        self.check(right, frames, count);
    }

    fn check(&mut self, right: bool, frames: &[Label], count: u64) {
        // A stack that says it is cut says nothing wrong.
        let cut = matches!(frames.first(), Some(Label::Marker(Marker::PageFault)));
        if !right && !cut {
            self.wrong += count;
            let shown: Vec<_> = frames.iter().map(ToString::to_string).collect();
            self.example = shown.join(";");
        }
    }

    /// An error if a name was wrong, or if too little was seen to tell.
    pub(crate) fn none_wrong(&self) -> Result<(), String> {
        if self.wrong > 0 {
            return Err(format!(
                "{} of {} wrong, such as {}",
                self.wrong, self.samples, self.example
            ));
        }
        if self.samples < 1_000 {
            return Err(format!(
                "only {} samples with short-lived code",
                self.samples
            ));
        }
        Ok(())
    }

    /// Share of the short-lived frames shown as freed.
    pub(crate) fn freed_share(&self) -> f64 {
        self.freed as f64 / (self.named + self.freed).max(1) as f64
    }
}

fn name(frame: &Label) -> Option<&str> {
    match frame {
        Label::Function { name, .. } => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_user::format::folded::parse_line;

    fn wrong(mode: Mode, below: &str) -> u64 {
        let line = format!("<module> (churn.py:9);main (churn.py:8);via_1 (<string>:2){below} 5");
        let lines = vec![parse_line(&line).expect("a line")];
        Churned::judge(
            mode,
            &Profile {
                lines,
                stats: serde_json::json!({}),
            },
        )
        .wrong
    }

    #[test]
    fn wrong_names_files_and_lines_are_found() {
        for right in [
            "",
            ";g_17_1 (gen_17:6)",
            ";g_17_1 (gen_17:6);f_17_1 (gen_17:3)",
            ";<freed code>;f_33_1 (gen_33:3)",
            ";<freed code>;<freed code>",
        ] {
            assert_eq!(wrong(Mode::Many, right), 0, "{right}");
        }
        for bad in [
            ";g_18_2 (gen_18:6)",
            ";f_17_1 (gen_17:3)",
            ";g_17_1 (gen_33:6)",
            ";g_17_1 (gen_17:6);f_33_1 (gen_33:3)",
            ";<freed code>;g_17_1 (gen_17:6)",
            ";g_17_1 (gen_17:6);[truncated]",
        ] {
            assert_eq!(wrong(Mode::Many, bad), 5, "{bad}");
        }
        assert_eq!(wrong(Mode::Swap, ";g_0_1 (gen_1:6)"), 0);
        assert_eq!(wrong(Mode::Swap, ";g_0_0 (gen_0:6)"), 5);
        assert_eq!(wrong(Mode::Twins, ";g (gen_1:32);f (gen_1:7)"), 0);
        assert_eq!(wrong(Mode::Twins, ";g (gen_0:32);f (gen_0:7)"), 5);
        assert_eq!(wrong(Mode::Twins, ";g (gen_1:32);f (gen_1:4)"), 5);
    }
}
