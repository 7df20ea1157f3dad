//! Reads outputs back into one form.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use prost::Message;
use serde::Deserialize;
use unwind_user::format::Label;
use unwind_user::format::folded::{parse_line, render_line};
use unwind_user::format::pprof::message::Profile;

/// A stack and its samples.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    /// The thread, where the output has it.
    pub(crate) root: Option<Label>,
    /// Outermost first.
    pub(crate) frames: Vec<Frame>,
    /// Samples.
    pub(crate) count: u64,
}

/// A frame; a marker has a name only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Frame {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) line: Option<u32>,
}

/// Folded stacks, each of which must be written again as it was.
pub(crate) fn folded(path: &Path) -> Result<Vec<Stack>> {
    let text = std::fs::read_to_string(path)?;
    text.lines()
        .map(|text| {
            let line = parse_line(text)?;
            ensure!(
                render_line(&line) == text,
                "another line comes back: {text}"
            );
            let mut stack = Stack {
                root: None,
                frames: Vec::new(),
                count: line.count,
            };
            for label in line.frames {
                match label {
                    Label::Function { name, file, line } => {
                        stack.frames.push(Frame { name, file, line });
                    }
                    Label::Marker(marker) => stack.frames.push(Frame {
                        name: marker.text().to_owned(),
                        file: String::new(),
                        line: None,
                    }),
                    root => stack.root = Some(root),
                }
            }
            Ok(stack)
        })
        .collect()
}

/// pprof, by its messages.
pub(crate) fn pprof(path: &Path) -> Result<Vec<Stack>> {
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(path)?).read_to_end(&mut bytes)?;
    let profile = Profile::decode(&*bytes)?;
    let text = |at: i64| {
        let text = usize::try_from(at)
            .ok()
            .and_then(|at| profile.string_table.get(at));
        text.cloned().context("no such string")
    };
    let functions: HashMap<_, _> = profile.function.iter().map(|f| (f.id, f)).collect();
    let mut frames = HashMap::new();
    for location in &profile.location {
        let [line] = location.line[..] else {
            anyhow::bail!("inlined frames")
        };
        let function = functions
            .get(&line.function_id)
            .context("no such function")?;
        let frame = Frame {
            name: text(function.name)?,
            file: text(function.filename)?,
            line: u32::try_from(line.line).ok().filter(|line| *line > 0),
        };
        frames.insert(location.id, frame);
    }
    let stack = |sample: &unwind_user::format::pprof::message::Sample| {
        let frames = sample
            .location_id
            .iter()
            .rev()
            .map(|id| frames.get(id).cloned());
        Ok(Stack {
            root: None,
            frames: frames.collect::<Option<_>>().context("no such location")?,
            count: u64::try_from(*sample.value.first().context("no value")?)?,
        })
    };
    profile.sample.iter().map(stack).collect()
}

#[derive(Deserialize)]
struct Speedscope {
    shared: Shared,
    profiles: Vec<Sampled>,
}

#[derive(Deserialize)]
struct Shared {
    frames: Vec<Shown>,
}

#[derive(Deserialize)]
struct Shown {
    name: String,
    file: Option<String>,
    line: Option<u32>,
}

#[derive(Deserialize)]
struct Sampled {
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// speedscope, whose weights are in samples of the shortest one.
pub(crate) fn speedscope(path: &Path) -> Result<Vec<Stack>> {
    let file: Speedscope = serde_json::from_slice(&std::fs::read(path)?)?;
    let weights = file.profiles.iter().flat_map(|profile| &profile.weights);
    let period = weights.min().copied().context("no samples")?;
    let frame = |at: usize| {
        let shown = file.shared.frames.get(at)?;
        let (name, file) = (shown.name.clone(), shown.file.clone().unwrap_or_default());
        Some(Frame {
            name,
            file,
            line: shown.line,
        })
    };
    let mut stacks = Vec::new();
    for profile in &file.profiles {
        for (sample, weight) in profile.samples.iter().zip(&profile.weights) {
            ensure!(
                !sample.is_empty() && weight % period == 0,
                "an empty stack, or {weight}"
            );
            let frames = sample.iter().map(|&at| frame(at)).collect::<Option<_>>();
            let frames = frames.context("no such frame")?;
            stacks.push(Stack {
                root: None,
                frames,
                count: weight / period,
            });
        }
    }
    Ok(stacks)
}
