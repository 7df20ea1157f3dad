//! Prometheus metrics of a session. `unwind-user/METRICS.md` lists them; a test keeps it true.
//!
//! They are made from the session's [`Totals`] when somebody asks, so nothing on the sampling path
//! knows of them.

mod server;

pub use server::{Asked, serve};

use prometheus::{Counter, Encoder, Gauge, IntCounterVec, Opts, Registry, TextEncoder};

use crate::run::totals::{CacheTotals, Totals};

/// A metric without labels.
struct Plain {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    of: fn(&Totals) -> Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}
use Kind::{Counter as C, Gauge as G};

#[rustfmt::skip]
const PLAIN: [Plain; 20] = [
    plain(C, "unwind_samples_total", "Samples in the profile.", |t| Some(t.samples as f64)),
    plain(C, "unwind_malformed_records_total", "Records that could not be parsed.", |t| Some(t.malformed_records as f64)),
    plain(C, "unwind_unknown_process_records_total", "Records of processes that were not, or no longer, profiled.", |t| Some(t.unknown_process as f64)),
    plain(C, "unwind_disagreed_records_total", "Records in which the two halves disagreed on the frame chain.", |t| Some(t.disagreed as f64)),
    plain(C, "unwind_freed_frames_total", "Frames shown as <freed code>.", |t| Some(t.targets.freed_frames as f64)),
    plain(C, "unwind_identities_captured_total", "Code identities captured in interrupts.", |t| Some(t.identities_captured as f64)),
    plain(C, "unwind_identities_proved_total", "Code identities proved at the end of a batch.", |t| Some(t.targets.identities_proved as f64)),
    plain(C, "unwind_memory_reads_total", "System calls that read the memory of profiled processes.", |t| Some(t.targets.memory_calls as f64)),
    plain(C, "unwind_memory_read_bytes_total", "Bytes read of the memory of profiled processes.", |t| Some(t.targets.memory_bytes as f64)),
    plain(C, "unwind_record_bytes_total", "Bytes of records put into the ring buffer.", |t| Some(t.record_bytes as f64)),
    plain(C, "unwind_bpf_run_seconds_total", "Time spent in the BPF program.", |t| Some(t.kernel_ns as f64 / 1e9)),
    plain(C, "unwind_on_cpu_seconds_total", "CPU time of the profiled processes.", |t| Some(t.on_cpu_ns as f64 / 1e9)),
    plain(C, "unwind_agent_cpu_seconds_total", "CPU time of unwind itself.", |t| Some(t.agent_cpu_seconds)),
    plain(G, "unwind_agent_memory_bytes", "Resident memory of unwind itself.", |t| Some(t.agent_memory_bytes as f64)),
    plain(G, "unwind_agent_peak_memory_bytes", "Peak resident memory of unwind itself.", |t| Some(t.agent_peak_bytes as f64)),
    plain(G, "unwind_ring_size_bytes", "Size of the ring buffer.", |t| Some(t.ring_bytes as f64)),
    plain(G, "unwind_ring_peak_bytes", "Most bytes found in the ring buffer at once.", |t| Some(t.ring_peak_bytes as f64)),
    plain(G, "unwind_kept_ratio", "Samples that are whole as far as they go (ok, truncated) over CPU time times rate, or, with another --mode than cpu, over the periods that were looked for; absent until there are some.", |t| t.kept),
    plain(G, "unwind_rate_hertz", "Samples a second of CPU time, or of what --mode says, that were asked for.", |t| Some(t.rate_hz as f64)),
    plain(G, "unwind_uptime_seconds", "Time since the interrupts began.", |t| Some(t.seconds)),
];

const fn plain(
    kind: Kind,
    name: &'static str,
    help: &'static str,
    of: fn(&Totals) -> Option<f64>,
) -> Plain {
    Plain {
        name,
        help,
        kind,
        of,
    }
}

/// The metrics in Prometheus' text format.
///
/// # Errors
/// When a metric is named twice or badly: a fault of ours.
pub fn render(totals: &Totals) -> prometheus::Result<Vec<u8>> {
    let registry = Registry::new();
    for metric in &PLAIN {
        let Some(value) = (metric.of)(totals) else {
            continue;
        };
        if metric.kind == C {
            let counter = Counter::new(metric.name, metric.help)?;
            counter.inc_by(value.max(0.0));
            registry.register(Box::new(counter))?;
        } else {
            let gauge = Gauge::new(metric.name, metric.help)?;
            gauge.set(value);
            registry.register(Box::new(gauge))?;
        }
    }
    interrupts(totals, &registry)?;
    frames(totals, &registry)?;
    caches(totals, &registry)?;
    targets(totals, &registry)?;
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text)?;
    Ok(text)
}

/// A counter with labels, registered.
fn labelled(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

fn interrupts(totals: &Totals, registry: &Registry) -> prometheus::Result<()> {
    let help = "Interrupts in a profiled process, by how they ended; each ends in exactly one way.";
    let counter = labelled(
        registry,
        "unwind_interrupts_total",
        help,
        &["pid", "outcome"],
    )?;
    for process in &totals.processes {
        let pid = process.pid.to_string();
        for (outcome, count) in &process.outcomes {
            counter
                .with_label_values(&[pid.as_str(), *outcome])
                .inc_by(*count);
        }
    }
    Ok(())
}

fn frames(totals: &Totals, registry: &Registry) -> prometheus::Result<()> {
    let help = "Frames by where they came from: copied with a data-stack chunk, one by one in the \
                interrupt, or late from the live process.";
    let counter = labelled(registry, "unwind_frames_total", help, &["source"])?;
    let in_chunks = totals
        .frames
        .saturating_sub(totals.frames_off_chunk + totals.frames_late);
    counter.with_label_values(&["chunk"]).inc_by(in_chunks);
    counter
        .with_label_values(&["interrupt"])
        .inc_by(totals.frames_off_chunk);
    counter
        .with_label_values(&["late"])
        .inc_by(totals.frames_late);
    Ok(())
}

fn caches(totals: &Totals, registry: &Registry) -> prometheus::Result<()> {
    let help = "Cache look-ups and what became of entries, by cause.";
    let counter = labelled(
        registry,
        "unwind_cache_events_total",
        help,
        &["cache", "event"],
    )?;
    for (cache, counts) in [
        ("stack", &totals.targets.stacks),
        ("code", &totals.targets.codes),
    ] {
        let CacheTotals {
            hit,
            miss,
            replaced,
            freed,
            uncertain,
            moved,
            stale,
            cleared,
            entries: _,
        } = *counts;
        let events = [
            ("hit", hit),
            ("miss", miss),
            ("replaced", replaced),
            ("freed", freed),
            ("uncertain", uncertain),
            ("moved", moved),
            ("stale", stale),
            ("cleared", cleared),
        ];
        for (event, count) in events {
            counter.with_label_values(&[cache, event]).inc_by(count);
        }
    }
    Ok(())
}

fn targets(totals: &Totals, registry: &Registry) -> prometheus::Result<()> {
    let help = "Processes of this session; always 1.";
    let labels = ["pid", "version", "state"];
    let gauge = prometheus::IntGaugeVec::new(Opts::new("unwind_target_info", help), &labels)?;
    registry.register(Box::new(gauge.clone()))?;
    for process in &totals.processes {
        let version = process.python.as_deref().unwrap_or("");
        let pid = process.pid.to_string();
        gauge
            .with_label_values(&[pid.as_str(), version, process.state])
            .set(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::totals::ProcessTotals;
    use std::collections::BTreeSet;

    fn text() -> String {
        let outcomes = [("ok", 3), ("entering", 1)].into_iter().collect();
        let process = ProcessTotals {
            pid: 7,
            state: "attached",
            outcomes,
            ..Default::default()
        };
        let totals = Totals {
            kept: Some(0.99),
            processes: vec![process],
            ..Default::default()
        };
        String::from_utf8(render(&totals).expect("renders")).expect("UTF-8")
    }

    #[test]
    fn interrupts_have_their_process_and_outcome() {
        let text = text();
        assert!(
            text.contains("unwind_interrupts_total{outcome=\"ok\",pid=\"7\"} 3"),
            "{text}"
        );
        assert!(text.contains("unwind_kept_ratio 0.99"), "{text}");
    }

    #[test]
    fn the_document_lists_exactly_the_metrics_that_exist() {
        let served: BTreeSet<String> = text()
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .map(|rest| rest.replace(' ', " | "))
            .collect();
        let document = include_str!("../../METRICS.md");
        let listed: BTreeSet<String> = document
            .lines()
            .filter_map(|line| line.strip_prefix("| `unwind_"))
            .map(|rest| {
                let mut cells = rest.split('|');
                let name = cells
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .trim_end_matches('`');
                let kind = cells.next().unwrap_or_default().trim();
                format!("unwind_{name} | {kind}")
            })
            .collect();
        assert_eq!(served, listed);
    }
}
