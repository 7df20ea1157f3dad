//! What the user typed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

/// Truthful CPU profiles of running Python processes.
#[derive(Debug, Parser)]
#[command(
    name = "unwind",
    version,
    max_term_width = 100,
    propagate_version = true,
    override_usage = "unwind run --pid PID [OPTIONS]\n       unwind run [OPTIONS] -- CMD [ARGS]...\n       \
unwind dump --pid PID [OPTIONS]\n       unwind report RECORDING [OPTIONS]"
)]
#[command(
    after_help = "Exit codes: 0 done, 2 wrong usage, 125 unwind itself failed; \
with `-- CMD` the command's own."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Profile running processes, or a command from its first line on.
    Run(RunArgs),
    /// Print what every thread of a process is doing now, without stopping it.
    Dump(DumpArgs),
    /// Turn a recording (`run --format raw`) into any other format; needs no privileges.
    Report(ReportArgs),
}

/// Largest number that can be a process id (`pid_t`).
const PID_MAX: i64 = i32::MAX as i64;

/// Options of `unwind run`.
#[derive(Debug, Args)]
#[command(
    override_usage = "unwind run --pid PID [OPTIONS]\n       unwind run [OPTIONS] -- CMD [ARGS]...",
    after_help = "Examples:\n  unwind run --pid 1234 --duration 30s -o profile.svg\n  \
unwind run --rate 1000 -o out.pb.gz -- python3 app.py\n\n\
Samples are taken while a thread is on a CPU: time spent asleep or waiting does not show. With\n\
`--backend remote --mode wall` it does.\n\n\
Ends by --duration, Ctrl-C, SIGTERM, SIGHUP or the target's exit, and writes the file; a second\n\
Ctrl-C quits at once. SIGUSR1 writes what there is so far and goes on. SIGUSR2 switches the log\n\
of the BPF program on or off.\n\n\
With `-- CMD`, unwind waits for the command and exits with its code, also when sampling ended\n\
before: the command is never killed. SIGTERM and SIGHUP are passed on to it; Ctrl-C reaches it\n\
from the terminal. With --subprocesses, children that outlive the command end with it here."
)]
#[command(group = ArgGroup::new("target").args(["pids", "command"]).required(true))]
pub struct RunArgs {
    /// Process to profile; may be given several times.
    #[arg(short, long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=PID_MAX))]
    pub pids: Vec<u32>,

    /// Command to start and profile, after `--`.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,

    /// Samples a second of CPU time, or of what --mode says.
    #[arg(short, long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rate: u64,

    /// Stop after this time: `30s`, `1.5` (seconds), `2m`, `500ms`. Default: until the target ends
    /// or Ctrl-C.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Where to write; `-` is standard output. Default: `unwind-PID.svg` (or what --format asks).
    /// The ending tells the format: .svg, .folded .collapsed .txt, .pb.gz .pprof,
    /// .speedscope.json .json, .unwind (a recording).
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// What to write. Default: by the file's extension, else a flame graph.
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<FormatArg>,

    /// How stacks are shown.
    #[command(flatten)]
    pub shape: ShapeArgs,

    /// Profile child processes too, from their first sample on.
    #[arg(short, long)]
    pub subprocesses: bool,

    /// Serve Prometheus metrics at http://ADDR/metrics meanwhile, such as 127.0.0.1:7098.
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub metrics: Option<SocketAddr>,

    /// Write all counters as JSON when done.
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// What takes the samples. `remote` needs no BPF, only the right to ptrace the process.
    #[arg(long, value_name = "BACKEND", default_value = "ebpf")]
    pub backend: BackendArg,

    /// Which time samples stand for. All but `cpu` need `--backend remote`, which `auto` then is.
    #[arg(short, long, value_name = "MODE", default_value = "cpu")]
    pub mode: TimeArg,

    /// What drives the sampling: `cpu-clock` works everywhere, `cycles` needs hardware counters.
    #[arg(long, value_name = "EVENT", default_value = "cpu-clock")]
    pub event: EventArg,

    /// Show the BPF program's own log lines (debugging); SIGUSR2 switches them meanwhile.
    #[arg(long)]
    pub bpf_log: bool,

    /// With --format raw: keep all captured bytes, values of variables included. By default only
    /// the bytes that the frame layout names are kept.
    #[arg(long)]
    pub no_scrub: bool,

    /// Test aid: with --format raw, write the profile itself here as well.
    #[arg(long, hide = true, value_name = "FILE")]
    pub also: Option<PathBuf>,

    /// Test aid: leave records in the ring for this long before they are read.
    #[arg(long, hide = true, value_name = "TIME", value_parser = parse_duration)]
    pub delay_reader: Option<Duration>,
}

/// Options of `unwind dump`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each thread is shown at one moment of its own, innermost frame first, waiting \
threads too. For that,\nunwind moves to the CPU where the thread ran last, reads it there while \
the thread waits for that\nCPU, and throws away what it read if the thread ran meanwhile.\n\n\
Needs the right to ptrace the process: root, CAP_SYS_PTRACE, or, as its own user,\n\
kernel.yama.ptrace_scope = 0. Needs no BPF."
)]
pub struct DumpArgs {
    /// Process to look at.
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=PID_MAX))]
    pub pid: u32,

    /// Its child processes, too.
    #[arg(short, long)]
    pub subprocesses: bool,

    /// JSON, for programs.
    #[arg(short, long)]
    pub json: bool,

    /// Which threads to show.
    #[arg(short, long, value_name = "MODE", default_value = "all")]
    pub mode: ModeArg,

    /// Show `<native>` where C code called Python, such as between `sorted()` and its key function.
    #[arg(long)]
    pub native: bool,
}

/// Threads to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// All.
    All,
    /// Those that run, or would if there were a CPU for them.
    Cpu,
    /// Those that hold a GIL.
    Gil,
    /// Those that raise or handle an exception.
    Exception,
}

/// Options of `unwind report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The recording; `-` is standard input.
    pub recording: PathBuf,

    /// Where to write; `-` is standard output, the default. The ending tells the format, as for
    /// `unwind run`.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,

    /// What to write. Default: by the file's extension, else folded stacks. `raw` makes a copy
    /// of the recording that keeps only the bytes that the frame layout names.
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<FormatArg>,

    /// How stacks are shown.
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// How stacks are shown.
#[derive(Clone, Copy, Debug, Args)]
pub struct ShapeArgs {
    /// Keep threads apart.
    #[arg(short, long)]
    pub threads: bool,

    /// Merge by function: no line numbers.
    #[arg(short = 'F', long)]
    pub function: bool,

    /// Show a frame that equals its caller once: with -F a recursion of any depth is one frame.
    #[arg(long)]
    pub fold_recursion: bool,

    /// Show `<native>` where C code called Python, such as between `sorted()` and its key function.
    #[arg(long)]
    pub native: bool,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Flame graph, SVG.
    Flamegraph,
    /// One line a stack, outermost first, with its count.
    Folded,
    /// gzip-compressed pprof protobuf.
    Pprof,
    /// speedscope JSON.
    Speedscope,
    /// Recording of all samples, for `unwind report`.
    Raw,
}

/// What takes the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// A BPF program, in the sampled thread's own interrupt.
    Ebpf,
    /// A thread of ours that reads the process from outside: costs more.
    Remote,
    /// `ebpf` where it may run, else `remote`; says why.
    Auto,
}

/// Which time samples stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeArg {
    /// CPU time: threads that run.
    Cpu,
    /// All time: every thread, those that wait included.
    Wall,
    /// Time with the GIL: the thread that holds it.
    Gil,
    /// Time with an exception: threads that raise or handle one.
    Exception,
}

/// Events that can drive the sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventArg {
    /// The software CPU clock.
    CpuClock,
    /// Hardware CPU cycles.
    Cycles,
}

/// Reads `127.0.0.1:7098`, `[::1]:7098`, `localhost:7098`, and `:7098`, which is this machine only.
///
/// # Errors
/// In words, for clap.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let help = || format!("`{text}` is no address: write it as 127.0.0.1:7098");
    let (host, port) = text.rsplit_once(':').ok_or_else(help)?;
    let port = port.parse().map_err(|_| help())?;
    match host {
        "" | "localhost" => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        _ => text.parse().map_err(|_| help()),
    }
}

/// Reads `30s`, `1.5`, `2m`, `500ms`, `1h`.
///
/// # Errors
/// In words, for clap.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let help = || format!("`{text}` is no time: write it as 30s, 1.5, 2m or 500ms");
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(help()),
    };
    let seconds = number.parse::<f64>().map_err(|_| help())? * scale;
    if !(0.001..=31_536_000.0).contains(&seconds) {
        return Err(format!("`{text}` is out of range: from 1ms to a year"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let ms = |text| parse_duration(text).map(|d| d.as_millis());
        assert_eq!(ms("30s"), Ok(30_000));
        assert_eq!(ms("1.5"), Ok(1_500));
        assert_eq!(ms("2m"), Ok(120_000));
        assert_eq!(ms("500ms"), Ok(500));
        for bad in ["", "abc", "1x", "-1", "0", "1..2", "s", "1e9h", "inf"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses() {
        for here in ["127.0.0.1:7098", "localhost:7098", ":7098"] {
            assert_eq!(
                parse_address(here).map(|a| a.to_string()),
                Ok("127.0.0.1:7098".into())
            );
        }
        assert_eq!(parse_address("[::1]:80").map(|a| a.port()), Ok(80));
        for bad in ["7098", "", ":", "host:80", "1.2.3.4:70980", "::1:80x"] {
            assert!(parse_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
