//! What a sample costs, beside other samplers.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use unwind_tests::Python;

use crate::args::Args;
use crate::peers;
use crate::target::{Target, cpu_ns, leave_the_target_its_cpu};
use crate::user;

const RATE: u64 = 1000;
/// Until the profiler knows the target's code, and drains its ring as seldom as it ever does.
const WARM_UP: Duration = Duration::from_secs(10);
/// Depth, generators and coroutines, threads. With six of those, eight frames lie off the chunk:
/// one entry frame and the base frame are the interpreter's.
const SHAPES: [(u32, u32, u32); 6] = [
    (40, 6, 1),
    (10, 0, 1),
    (100, 0, 1),
    (1000, 0, 1),
    (40, 6, 10),
    (40, 6, 300),
];

/// What one run of ours cost.
struct Ours {
    stats: Value,
    /// CPU ns of the whole process a warm sample.
    agent: f64,
    /// The target's speed meanwhile.
    speed: f64,
}

/// Prints the tables.
pub(crate) fn run(args: &Args) -> Result<()> {
    leave_the_target_its_cpu()?;
    let mut figures = Vec::new();
    for python in args.pythons() {
        println!("\npython {}, {RATE} Hz of CPU time", python.label);
        println!(
            "{:>6} {:>8} {:>8} {:>10} {:>10} {:>10} {:>9} {:>7} {:>8}",
            "depth", "off", "threads", "kernel ns", "agent ns", "bytes", "kept", "MiB", "samples"
        );
        for (depth, off_chunk, threads) in SHAPES {
            let target = Target::start(&python, depth, off_chunk, threads)?;
            let ours = measure(&target, args.span, "ebpf")?;
            figures.push(row(&python, (depth, threads), &ours)?);
        }
        figures.push(beside(&python, args.span)?);
    }
    args.write(&json!(figures))
}

fn row(python: &Python, (depth, threads): (u32, u32), ours: &Ours) -> Result<Value> {
    let stat = |name: &str| {
        ours.stats[name]
            .as_f64()
            .with_context(|| format!("no {name} in --stats"))
    };
    let interrupts = stat("interrupts")?;
    let kernel = stat("kernel_ns")? / interrupts;
    let bytes = stat("record_bytes")? / interrupts;
    let off = stat("frames_off_chunk")? / interrupts;
    let mib = stat("agent_peak_bytes")? / f64::from(1 << 20);
    // Not known where the CPU time of a thread is not.
    let kept = ours.stats["kept"].as_f64();
    println!(
        "{depth:>6} {off:>8.1} {threads:>8} {kernel:>10.0} {:>10.0} {bytes:>10.0} {:>9} \
         {mib:>7.1} {interrupts:>8}",
        ours.agent,
        kept.map_or("-".to_owned(), |kept| format!("{kept:.4}")),
    );
    Ok(
        json!({ "python": python.label, "depth": depth, "off_chunk": off, "threads": threads,
        "kernel_ns": kernel, "agent_ns": ours.agent, "bytes": bytes, "kept": kept,
        "peak_mib": mib }),
    )
}

/// CPU a sample and slowdown of each sampler, one after the other on one target.
fn beside(python: &Python, span: Duration) -> Result<Value> {
    let warm = user::measure(python, span)?;
    let user = warm.ns as f64 / warm.samples as f64;
    println!(
        "user half alone: {user:.0} ns a warm sample, {} allocations in {} samples; first sample \
         {} ms after loading began",
        warm.allocations,
        warm.samples,
        warm.first.as_millis()
    );
    let target = Target::start(python, 40, 6, 1)?;
    let alone = speed(&target, span)?;
    let ours = measure(&target, span, "ebpf")?;
    let kernel = ours.stats["kernel_ns_per_sample"]
        .as_f64()
        .context("no kernel time")?;
    let own = kernel + ours.agent;
    println!(
        "{:<20} {:>14} {:>8} {:>10}",
        "sampler", "CPU us/sample", "x ours", "slower %"
    );
    let show = |name: &str, cpu: f64, speed: f64| {
        let slower = 100.0 * (alone / speed - 1.0);
        println!(
            "{name:<20} {:>14.1} {:>8.1} {slower:>10.1}",
            cpu / 1e3,
            cpu / own
        );
        json!({ "sampler": name, "cpu_ns": cpu, "ratio": cpu / own, "slower_percent": slower })
    };
    let remote = measure(&target, span, "remote")?;
    let mut rows = vec![
        show("unwind", own, ours.speed),
        show("unwind, remote", remote.agent, remote.speed),
    ];
    for (name, available) in peers::available(python) {
        let measured = available
            .map_err(anyhow::Error::msg)
            .and_then(|()| peers::run(name, python, &target, span));
        match measured {
            Ok(run) => rows.push(show(
                name,
                run.cpu_ns as f64 / run.samples.max(1) as f64,
                run.speed,
            )),
            Err(why) => println!("{name:<20} {why:#}"),
        }
    }
    Ok(
        json!({ "python": python.label, "user_ns": user, "allocations": warm.allocations,
        "first_sample_ms": warm.first.as_millis() as u64,
        "samplers": rows }),
    )
}

/// The target's speed with nobody looking.
fn speed(target: &Target, span: Duration) -> Result<f64> {
    let before = target.read()?;
    sleep(span);
    Ok(target.read()?.wall_speed_since(&before))
}

/// Runs the profiler on a target, and reads its clocks once it is warm and before it ends.
fn measure(target: &Target, span: Duration, backend: &str) -> Result<Ours> {
    let folder = std::env::temp_dir();
    let file = |kind: &str| folder.join(format!("unwind-bench-{}.{kind}", std::process::id()));
    let (stats, folded) = (file("json"), file("folded"));
    let mut child = Command::new(unwind()?)
        .args([
            "run",
            "--pid",
            &target.pid().to_string(),
            "--rate",
            &RATE.to_string(),
            "--backend",
            backend,
        ])
        .arg("-o")
        .arg(&folded)
        .arg("--stats")
        .arg(&stats)
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start unwind")?;
    sleep(WARM_UP);
    let before = (cpu_ns(child.id())?, target.read()?);
    sleep(span);
    let after = (cpu_ns(child.id())?, target.read()?);
    end(&mut child)?;
    let samples = (after.1.cpu - before.1.cpu) as f64 * RATE as f64 / 1e9;
    let stats_of: Value = serde_json::from_str(&std::fs::read_to_string(&stats)?)?;
    if stats_of["interrupts"] == 0 {
        let mut said = String::new();
        if let Some(stderr) = &mut child.stderr {
            stderr.read_to_string(&mut said)?;
        }
        bail!("no interrupt in {span:?}: {said} {}", stats_of["processes"]);
    }
    for file in [stats, folded] {
        std::fs::remove_file(file)?;
    }
    Ok(Ours {
        stats: stats_of,
        agent: (after.0 - before.0) as f64 / samples,
        speed: after.1.wall_speed_since(&before.1),
    })
}

/// Ends the profiler as Ctrl-C does and waits for its file.
fn end(child: &mut Child) -> Result<()> {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT)?;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "unwind failed: {status}");
            return Ok(());
        }
        sleep(Duration::from_millis(10));
    }
    child.kill()?;
    bail!("unwind does not end")
}

/// The profiler, built beside this program.
fn unwind() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("unwind");
    ensure!(path.exists(), "{} is not built", path.display());
    Ok(path)
}
