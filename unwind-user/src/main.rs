//! The command `unwind`: what the user typed becomes a session; exit codes are decided here.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;
use unwind_user::bpf::Event;
use unwind_user::cli::{Cli, Command, EventArg, FormatArg, RunArgs};
use unwind_user::format::{self, Format, Lines, Roots};
use unwind_user::run::session::member::Follow;
use unwind_user::run::{self, FAILED, Options, command};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == command::HOLD) {
        return command::become_command(arguments.get(2..).unwrap_or_default());
    }
    let cli = Cli::parse_from(arguments);
    log_to_stderr();
    let result = match &cli.command {
        Command::Run(args) => run_options(args).and_then(|options| run::run(&options)),
        Command::Report(_) => Err(anyhow::anyhow!("not yet")),
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
    let from_name = args.output.as_deref().and_then(Format::from_extension);
    let format = match args.format {
        Some(FormatArg::Raw) => anyhow::bail!("raw: not yet"),
        Some(FormatArg::Flamegraph) => Format::Flamegraph,
        Some(FormatArg::Folded) => Format::Folded,
        Some(FormatArg::Pprof) => Format::Pprof,
        Some(FormatArg::Speedscope) => Format::Speedscope,
        None => from_name.unwrap_or(Format::Flamegraph),
    };
    Ok(Options {
        pids: args.pids.clone(),
        command: args.command.clone(),
        rate: args.rate,
        duration: args.duration,
        output: args
            .output
            .clone()
            .unwrap_or_else(|| default_output(args, format)),
        format,
        shape: format::Options {
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
        },
        follow: if args.subprocesses {
            Follow::Children
        } else {
            Follow::No
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

/// `unwind-PID.svg`, or named after the command.
fn default_output(args: &RunArgs, format: Format) -> PathBuf {
    let extension = match format {
        Format::Flamegraph => "svg",
        Format::Folded => "folded",
        Format::Pprof => "pb.gz",
        Format::Speedscope => "speedscope.json",
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
