//! Flame graphs: an SVG with its own script for zoom and search.

mod prune;

use super::tree::Tree;
use super::{Options, folded, title};
use crate::profile::Profile;
use inferno::flamegraph::{Options as Svg, TextTruncateDirection};
use std::io::{self, Write};

pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    if profile.total() == 0 {
        return write_empty(profile, out);
    }
    let tree = Tree::new(profile, options);
    let pruned = prune::prune(&tree, prune::Budget::default());
    let mut lines = Vec::new();
    // Stacks whose outermost frame is too narrow still count.
    let nameless = pruned.own.first().copied().unwrap_or(0);
    if nameless > 0 {
        lines.push(format!("[pruned] {nameless}"));
    }
    folded::for_each_line(&tree, &pruned.own, |stack, count| {
        lines.push(format!("{stack} {count}"));
        Ok(())
    })?;
    drop(tree);

    let mut svg = Svg::default();
    svg.title = title::title(profile);
    svg.subtitle = Some(match pruned.percent() {
        None => title::subtitle(profile),
        Some(percent) => format!("{} (pruned {percent})", title::subtitle(profile)),
    });
    svg.name_type = "Frame:".to_owned();
    // A colour by name: the same in every run.
    svg.hash = true;
    // What is too narrow has been pruned.
    svg.min_width = 0.0;
    svg.text_truncate_direction = TextTruncateDirection::Right;
    inferno::flamegraph::from_lines(&mut svg, lines.iter().map(String::as_str), out)
}

fn write_empty(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let (title, reason) = (title::title(profile), title::empty_reason(profile));
    let (title, reason) = (xml(&title), xml(&reason));
    write!(
        out,
        concat!(
            r#"<?xml version="1.0" encoding="UTF-8"?>"#,
            "\n",
            r#"<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="1200" height="80" "#,
            r#"viewBox="0 0 1200 80" font-family="monospace">"#,
            "\n<title>{title}</title>\n",
            r##"<rect width="100%" height="100%" fill="#f8f8f8"/>"##,
            "\n",
            r#"<text x="50%" y="30" text-anchor="middle" font-size="17">{title}</text>"#,
            "\n",
            r#"<text x="50%" y="60" text-anchor="middle" font-size="12">{reason}</text>"#,
            "\n</svg>\n",
        ),
        title = title,
        reason = reason,
    )
}

/// Markup for `text`, which is [`super::text::visible`].
fn xml(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
