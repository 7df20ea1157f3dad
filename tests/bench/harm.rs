//! What a profiler costs its target beyond the interrupts themselves.
//!
//! Two windows of 200 ms make a pair: one with the profiler, one with the same perf event on an
//! empty program (the floor), or with nothing. Their order is random, and the target's speed in
//! each is compared: noise that is slower than a pair falls out.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use aya::programs::PerfEvent;
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::util::online_cpus;
use aya::{Ebpf, EbpfLoader};
use serde_json::json;
use unwind_tests::Python;
use unwind_user::bpf::OBJECT;
use unwind_user::run::session::Session;

use crate::args::Args;
use crate::statistics::{Estimate, Random, estimate};
use crate::target::{Reading, Target, leave_the_target_its_cpu};
use crate::user::session;

const WINDOW: Duration = Duration::from_millis(200);
/// Pause between drains, so that the user half works as it does in a run.
const PAUSE: Duration = Duration::from_millis(40);

/// What the other window of a pair has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    /// The same event, on an empty program.
    Floor,
    /// No event.
    Nothing,
}

/// Rate, what it is compared with, and the most that it may cost, in percent.
const EXPERIMENTS: [(u64, Against, f64); 3] = [
    (99, Against::Nothing, 0.5),
    (1000, Against::Floor, 0.5),
    (10_000, Against::Floor, 4.0),
];

/// Runs the experiments and prints each interval.
pub(crate) fn run(args: &Args) -> Result<()> {
    leave_the_target_its_cpu()?;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    let mut random = Random::new(seed);
    println!(
        "slower by, %, mean and 95 % interval of {} pairs; seed {seed}",
        args.pairs
    );
    println!(
        "{:<14} {:>6} {:>9} {:>7} {:>24} {:>24}",
        "python", "Hz", "against", "at most", "by CPU time", "by time not waiting"
    );
    let mut figures = Vec::new();
    for python in args.pythons() {
        for (rate, against, limit) in EXPERIMENTS {
            let (cpu, wall) = experiment(&python, rate, against, args.pairs, &mut random)?;
            println!(
                "{:<14} {rate:>6} {:>9} {limit:>7} {:>24} {:>24}",
                python.label,
                format!("{against:?}").to_lowercase(),
                shown(&cpu),
                shown(&wall)
            );
            figures.push(json!({ "python": python.label, "rate": rate,
                "against": format!("{against:?}"), "limit_percent": limit, "pairs": args.pairs,
                "cpu_percent": [cpu.low, cpu.mean, cpu.high],
                "wall_percent": [wall.low, wall.mean, wall.high] }));
        }
    }
    args.write(&json!(figures))
}

fn shown(estimate: &Estimate) -> String {
    format!(
        "{:+.2} ({:+.2} to {:+.2})",
        estimate.mean, estimate.low, estimate.high
    )
}

/// Measures the pairs of one rate; both ways to measure speed.
fn experiment(
    python: &Python,
    rate: u64,
    against: Against,
    pairs: usize,
    random: &mut Random,
) -> Result<(Estimate, Estimate)> {
    let target = Target::start(python, 40, 6, 1)?;
    let mut session = session(target.pid())?;
    let mut floor = Floor::load()?;
    let (mut cpu, mut wall) = (Vec::new(), Vec::new());
    // The first pair warms the caches up.
    for pair in 0..=pairs {
        let mut with_ours = || ours(&mut session, &target, rate);
        let mut without = || match against {
            Against::Floor => floor.window(&target, rate),
            Against::Nothing => window(&target, || sleep(WINDOW)),
        };
        let ((a, b), (c, d)) = if random.below(2) == 0 {
            let first = with_ours()?;
            (first, without()?)
        } else {
            let first = without()?;
            (with_ours()?, first)
        };
        if pair > 0 {
            cpu.push(100.0 * (d.speed_since(&c) / b.speed_since(&a)).ln());
            wall.push(100.0 * (d.wall_speed_since(&c) / b.wall_speed_since(&a)).ln());
        }
    }
    Ok((estimate(&cpu, random), estimate(&wall, random)))
}

/// One window with the profiler.
fn ours(session: &mut Session, target: &Target, rate: u64) -> Result<(Reading, Reading)> {
    session.sampler().start(rate)?;
    let readings = window(target, || {
        let began = Instant::now();
        while let Some(left) = WINDOW.checked_sub(began.elapsed()) {
            sleep(left.min(PAUSE));
            session.drain();
        }
    });
    session.sampler().stop();
    readings
}

fn window(target: &Target, during: impl FnOnce()) -> Result<(Reading, Reading)> {
    let before = target.read()?;
    during();
    Ok((before, target.read()?))
}

/// The same perf event on a program that does nothing.
struct Floor(Ebpf);

impl Floor {
    fn load() -> Result<Self> {
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("RING", 4096)
            .load(OBJECT)?;
        program(&mut ebpf)?.load()?;
        Ok(Self(ebpf))
    }

    fn window(&mut self, target: &Target, rate: u64) -> Result<(Reading, Reading)> {
        let cpus = online_cpus().map_err(|(_, error)| error)?;
        let program = program(&mut self.0)?;
        let mut links = Vec::new();
        for cpu in cpus {
            links.push(program.attach(
                PerfEventConfig::Software(SoftwareEvent::CpuClock),
                PerfEventScope::AllProcessesOneCpu { cpu },
                SamplePolicy::Frequency(rate),
                false,
            )?);
        }
        let readings = window(target, || sleep(WINDOW));
        for link in links {
            program.detach(link)?;
        }
        readings
    }
}

fn program(ebpf: &mut Ebpf) -> Result<&mut PerfEvent> {
    Ok(ebpf
        .program_mut("nothing")
        .context("the object has no program `nothing`")?
        .try_into()?)
}
