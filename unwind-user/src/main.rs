//! The command `unwind`: what the user typed becomes a session; exit codes are decided here.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Parser;
use tracing_subscriber::EnvFilter;
use unwind_user::bpf::Event;
use unwind_user::cli::{
    BackendArg, Cli, Command, EventArg, FormatArg, ModeArg, ReportArgs, RunArgs, ShapeArgs, TimeArg,
};
use unwind_user::dump;
use unwind_user::format::{self, Format, Lines, Natives, Recursion, Roots};
use unwind_user::profile::Mode;
use unwind_user::record::{self, Keep, Report};
use unwind_user::run::session::member::Follow;
use unwind_user::run::{self, FAILED, Options, command};
use unwind_user::sampler::Backend;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == command::HOLD) {
        return command::become_command(arguments.get(2..).unwrap_or_default());
    }
    let cli = Cli::parse_from(arguments);
    log_to_stderr();
    let result = match &cli.command {
        Command::Run(args) => run_options(args).and_then(|options| run::run(&options)),
        Command::Dump(args) => dump::dump(&dump::Options {
            pid: args.pid,
            subprocesses: args.subprocesses,
            json: args.json,
            mode: match args.mode {
                ModeArg::All => dump::Mode::All,
                ModeArg::Cpu => dump::Mode::Cpu,
                ModeArg::Gil => dump::Mode::Gil,
                ModeArg::Exception => dump::Mode::Exception,
            },
            natives: args.native,
        }),
        Command::Report(args) => report(args),
    };
    result.unwrap_or_else(|error| {
        // Nothing is left to do if standard error is closed.
        let _ = writeln!(io::stderr(), "unwind: {error:#}");
        ExitCode::from(FAILED)
    })
}

/// Warnings and errors on standard error; `UNWIND_LOG=debug` shows more.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("UNWIND_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let is_terminal = io::stderr().is_terminal();
    let is_coloured = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_coloured)
        .with_writer(move || {
            let mut stderr = io::stderr();
            if is_terminal {
                // Over the status line, which comes again.
                let _ = stderr.write_all(b"\r\x1b[K");
            }
            stderr
        })
        .without_time()
        .with_target(false)
        .init();
}

fn run_options(args: &RunArgs) -> anyhow::Result<Options> {
    let format = format_of(args.format, args.output.as_deref(), Format::Flamegraph)?;
    // A recording has the profile beside it only where a test asks for it.
    let also = args.also.as_deref().and_then(Format::from_extension);
    Ok(Options {
        pids: args.pids.clone(),
        command: args.command.clone(),
        rate: args.rate,
        duration: args.duration,
        output: args
            .output
            .clone()
            .unwrap_or_else(|| default_output(args, format)),
        format: format.or(also).unwrap_or(Format::Folded),
        recording: match format {
            Some(_) => None,
            None if args.no_scrub => Some(Keep::All),
            None => Some(Keep::Named),
        },
        also: args.also.clone(),
        shape: shape(args.shape),
        follow: if args.subprocesses {
            Follow::Children
        } else {
            Follow::No
        },
        backend: match args.backend {
            BackendArg::Ebpf => Backend::Ebpf,
            BackendArg::Remote => Backend::Remote,
            BackendArg::Auto => Backend::Auto,
        },
        mode: match args.mode {
            TimeArg::Cpu => Mode::Cpu,
            TimeArg::Wall => Mode::Wall,
            TimeArg::Gil => Mode::Gil,
            TimeArg::Exception => Mode::Exception,
        },
        event: match args.event {
            EventArg::CpuClock => Event::CpuClock,
            EventArg::Cycles => Event::Cycles,
        },
        stats: args.stats.clone(),
        metrics: args.metrics,
        bpf_log: args.bpf_log,
        delay_reader: args.delay_reader,
    })
}

/// The format asked for, by name or by the file's extension; none is a recording.
///
/// # Errors
/// When the extension is none of ours, or a terminal would get what it cannot show.
fn format_of(
    asked: Option<FormatArg>,
    file: Option<&Path>,
    default: Format,
) -> anyhow::Result<Option<Format>> {
    let format = match asked {
        Some(FormatArg::Raw) => None,
        Some(FormatArg::Flamegraph) => Some(Format::Flamegraph),
        Some(FormatArg::Folded) => Some(Format::Folded),
        Some(FormatArg::Pprof) => Some(Format::Pprof),
        Some(FormatArg::Speedscope) => Some(Format::Speedscope),
        None => match (file, file.and_then(Path::extension)) {
            (_, Some(end)) if end == record::EXTENSION => None,
            (Some(file), Some(_)) => Some(Format::from_extension(file).with_context(|| {
                format!(
                    "the ending of {} names no format: use .svg, .folded, .pb.gz, .json or \
                     .unwind, or say which with --format",
                    file.display()
                )
            })?),
            _ => Some(default),
        },
    };
    let is_text = !matches!(format, None | Some(Format::Pprof));
    if !is_text && file == Some(Path::new("-")) && io::stdout().is_terminal() {
        bail!("this format is no text for a terminal: name a file with -o, or use a pipe");
    }
    Ok(format)
}

fn report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let damage = record::report(&Report {
        recording: match args.recording.as_os_str().as_encoded_bytes() {
            b"-" => "/dev/stdin".into(),
            _ => args.recording.clone(),
        },
        output: args.output.clone(),
        format: format_of(args.format, Some(&args.output), Format::Folded)?,
        shape: shape(args.shape),
    })?;
    if let Some(damage) = damage {
        // Nothing is left to do if standard error is closed.
        let _ = writeln!(
            io::stderr(),
            "unwind: {damage}; what is whole before it is shown"
        );
    }
    Ok(ExitCode::SUCCESS)
}

const fn shape(args: ShapeArgs) -> format::Options {
    format::Options {
        roots: if args.threads {
            Roots::Threads
        } else {
            Roots::Merged
        },
        lines: if args.function {
            Lines::Function
        } else {
            Lines::Line
        },
        recursion: if args.fold_recursion {
            Recursion::Folded
        } else {
            Recursion::Unfolded
        },
        natives: if args.native {
            Natives::Shown
        } else {
            Natives::Hidden
        },
    }
}

/// `unwind-PID.svg`, or named after the command.
fn default_output(args: &RunArgs, format: Option<Format>) -> PathBuf {
    let extension = match format {
        None => record::EXTENSION,
        Some(Format::Flamegraph) => "svg",
        Some(Format::Folded) => "folded",
        Some(Format::Pprof) => "pb.gz",
        Some(Format::Speedscope) => "speedscope.json",
    };
    let subject = match (args.pids.first(), args.command.first()) {
        (Some(pid), _) => pid.to_string(),
        (None, Some(command)) => {
            let name = Path::new(command).file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        }
        (None, None) => "profile".to_owned(),
    };
    PathBuf::from(format!("unwind-{subject}.{extension}"))
}
