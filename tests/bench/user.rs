//! The user half alone: a session in this process, whose drains are timed and whose heap
//! allocations are counted.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::time::{ClockId, clock_gettime};
use serde_json::json;
use unwind_tests::Python;
use unwind_user::bpf::{Event, Kernel};
use unwind_user::profile::Profile;
use unwind_user::run::session::Session;
use unwind_user::run::session::member::{Follow, State};

use crate::args::Args;
use crate::target::{Target, leave_the_target_its_cpu};

/// Pause between drains; the profiler's own reader waits longer.
const PAUSE: Duration = Duration::from_millis(50);
const WARM_UP: Duration = Duration::from_secs(2);

/// What warm samples cost the user half.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Warm {
    pub(crate) samples: u64,
    pub(crate) ns: u64,
    pub(crate) allocations: u64,
    /// From before the BPF program was loaded to the first sample.
    pub(crate) first: Duration,
}

/// Most allocations a warm sample: a vector that grows to the largest batch so far, once or twice
/// in a run, is none of any sample.
const ALLOCATIONS_MAX: f64 = 0.01;

/// Prints ns and allocations a warm sample; an error if warm samples allocate.
pub(crate) fn run(args: &Args) -> Result<()> {
    leave_the_target_its_cpu()?;
    println!(
        "{:<14} {:>9} {:>12} {:>22}",
        "python", "samples", "ns/sample", "allocations in all"
    );
    let mut figures = Vec::new();
    let mut allocated = false;
    for python in args.pythons() {
        let warm = measure(&python, args.span)?;
        let ns = warm.ns as f64 / warm.samples.max(1) as f64;
        let each = warm.allocations as f64 / warm.samples.max(1) as f64;
        println!(
            "{:<14} {:>9} {ns:>12.0} {:>22}",
            python.label, warm.samples, warm.allocations
        );
        figures.push(
            json!({ "python": python.label, "samples": warm.samples, "ns": ns,
            "allocations": warm.allocations }),
        );
        allocated |= each > ALLOCATIONS_MAX;
    }
    args.write(&json!(figures))?;
    ensure!(!allocated, "warm samples allocate");
    Ok(())
}

/// Samples a target at depth 40, and reads the ring now and then.
pub(crate) fn measure(python: &Python, span: Duration) -> Result<Warm> {
    let target = Target::start(python, 40, 6, 1)?;
    let began = Instant::now();
    let mut session = session(target.pid())?;
    session.sampler().start(1000)?;
    while session.first_sample.is_none() && began.elapsed() < WARM_UP {
        std::thread::sleep(Duration::from_millis(1));
        session.drain_all();
    }
    let mut warm = Warm {
        first: began.elapsed(),
        ..Warm::default()
    };
    let began = Instant::now();
    while began.elapsed() < WARM_UP + span {
        std::thread::sleep(PAUSE);
        let before = session.pipeline().stats.samples;
        let misses = misses(&session);
        let cpu = thread_cpu_ns()?;
        let info = allocation_counter::measure(|| session.drain_all());
        // A stack never seen before is not warm: the target passes through many while it builds
        // its own.
        if began.elapsed() > WARM_UP && misses == self::misses(&session) {
            warm.ns += thread_cpu_ns()? - cpu;
            warm.samples += session.pipeline().stats.samples - before;
            warm.allocations += info.count_total;
        }
    }
    session.sampler().stop();
    ensure!(warm.samples > 0, "no warm sample in {span:?}");
    Ok(warm)
}

/// A session that is attached to a process and does not sample yet.
pub(crate) fn session(pid: u32) -> Result<Session> {
    let profile = Profile {
        period_ns: 1_000_000,
        ..Profile::default()
    };
    let mut kernel = Kernel::load(8 << 20, Event::CpuClock)?;
    kernel.watch_processes()?;
    let mut session = Session::new(Box::new(kernel), Follow::No, profile);
    session.add(pid, State::attaching())?;
    session.attach(pid)?;
    Ok(session)
}

fn misses(session: &Session) -> u64 {
    session
        .pipeline()
        .targets()
        .map(|(_, target)| target.stacks().stats.misses)
        .sum()
}

fn thread_cpu_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(u64::try_from(now.tv_sec())? * 1_000_000_000 + u64::try_from(now.tv_nsec())?)
}
