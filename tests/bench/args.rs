//! Options, which all benchmarks share.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use unwind_tests::{Python, pythons};

/// What was asked for.
pub(crate) struct Args {
    /// Only interpreters whose label begins so.
    python: Option<String>,
    /// Pairs of windows.
    pub(crate) pairs: usize,
    /// Length of one measurement.
    pub(crate) span: Duration,
    /// Where to write the figures as JSON.
    pub(crate) json: Option<PathBuf>,
}

impl Args {
    /// Reads `--name value` pairs.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut args = Self {
            python: None,
            pairs: 300,
            span: Duration::from_secs(3),
            json: None,
        };
        while let Some(word) = words.next() {
            let value = words
                .next()
                .with_context(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--python" => args.python = Some(value),
                "--pairs" => args.pairs = value.parse().context("--pairs")?,
                "--seconds" => {
                    args.span = Duration::from_secs_f64(value.parse().context("--seconds")?)
                }
                "--json" => args.json = Some(value.into()),
                _ => bail!("there is no option {word}"),
            }
        }
        Ok(args)
    }

    /// The interpreters to measure.
    pub(crate) fn pythons(&self) -> Vec<Python> {
        let wanted = |python: &Python| {
            self.python
                .as_ref()
                .is_none_or(|label| python.label.starts_with(label))
        };
        pythons().into_iter().filter(wanted).collect()
    }

    /// Writes the figures where they were asked for.
    pub(crate) fn write(&self, figures: &serde_json::Value) -> Result<()> {
        let Some(path) = &self.json else {
            return Ok(());
        };
        let text = serde_json::to_string_pretty(figures)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
