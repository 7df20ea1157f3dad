//! The busiest functions, for a live status.

use super::{Frame, Profile};
use std::collections::HashMap;

/// A function and the samples in which it was innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Top<'a> {
    /// Qualified name, unescaped (a terminal must not see it raw), or a marker's text.
    pub name: &'a str,
    /// Its file, unescaped; empty for a marker.
    pub file: &'a str,
    /// Samples.
    pub samples: u64,
}

impl Profile {
    /// The at most `n` functions with most samples of their own, most first.
    ///
    /// Takes time in proportion to the distinct stacks: for once a second, not once a sample.
    #[must_use]
    pub fn top(&self, n: usize) -> Vec<Top<'_>> {
        let mut own: HashMap<(&str, &str), u64> = HashMap::new();
        for (&(_, stack), &count) in &self.samples {
            let names = match self.tables.frame_at(self.tables.leaf(stack)) {
                Frame::Marker(marker) => (marker.text(), ""),
                Frame::Python { function, .. } => {
                    let function = self.tables.function_of(function);
                    (function.name, function.file)
                }
            };
            let total = own.entry(names).or_insert(0);
            *total = total.saturating_add(count);
        }
        let mut top: Vec<_> = own
            .into_iter()
            .map(|((name, file), samples)| Top {
                name,
                file,
                samples,
            })
            .collect();
        // The names settle ties, so that a status does not flicker.
        top.sort_unstable_by(|a, b| {
            b.samples
                .cmp(&a.samples)
                .then_with(|| (a.name, a.file).cmp(&(b.name, b.file)))
        });
        top.truncate(n);
        top
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Location, Marker, ThreadKey};

    #[test]
    fn lines_and_threads_of_a_function_count_together() {
        let mut profile = Profile::default();
        let tables = &mut profile.tables;
        let (f, g) = (
            tables.function("f", "a.py", 1),
            tables.function("g", "a.py", 9),
        );
        let stacks = [
            (tables.frame(f, Location::at_line(2)), 3),
            (tables.frame(f, Location::at_line(3)), 4),
            (tables.frame(g, Location::at_line(9)), 6),
            (tables.marker(Marker::Gc), 6),
        ]
        .map(|(frame, count)| (tables.stack([frame]), count));
        for (tid, (stack, count)) in (1..).zip(stacks) {
            profile.add(
                ThreadKey {
                    pid: 1,
                    image: 0,
                    tid,
                },
                stack,
                count,
            );
        }
        let expected = [
            Top {
                name: "f",
                file: "a.py",
                samples: 7,
            },
            Top {
                name: "<GC>",
                file: "",
                samples: 6,
            },
        ];
        assert_eq!(profile.top(2), expected);
        assert_eq!(profile.top(9).len(), 3);
    }
}
