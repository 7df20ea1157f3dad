//! The project's commands: `cargo xtask --help`.

mod audit;
mod bench;
mod ebpf;
mod fixtures;
mod run;
mod setup;
mod shell;
mod test;
mod tidy;
mod truth;
mod vm;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Commands of the unwind project
///
/// `cargo xtask run --pid PID` profiles a Python process, `cargo xtask dump --pid PID` shows what its
/// threads are doing; `cargo xtask test` runs every test.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the profiler in release mode and run it
    ///
    /// All arguments are those of `unwind run`: `cargo xtask run --pid 4711 -o profile.svg`,
    /// `cargo xtask run -- python3 script.py`; `cargo xtask run --help` lists them. Signals and the
    /// exit code are the profiler's; a failed build has exit code 125. It needs root or the
    /// capabilities that it names.
    Run {
        /// Options of `unwind run`
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "OPTIONS"
        )]
        args: Vec<OsString>,
    },

    /// Build the profiler in release mode and print what every thread of a process is doing
    ///
    /// All arguments are those of `unwind dump`: `cargo xtask dump --pid 4711`; `cargo xtask dump
    /// --help` lists them.
    Dump {
        /// Options of `unwind dump`
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "OPTIONS"
        )]
        args: Vec<OsString>,
    },

    /// Run the tests on every interpreter found, and print a table of the results
    ///
    /// Interpreters: pyenv's, those on PATH, and, as root where debootstrap is or can be installed,
    /// 3.13, 3.14 and 3.15 in a Debian sid rootfs, made once in ~/.cache/unwind/sid (370 MB; remove
    /// it to have it made anew). Suites: `unit`, and each test target of the package in tests/. The
    /// last line is `N passed, N failed, N skipped`; the exit code is 1 if anything failed.
    ///
    /// Examples: `cargo xtask test --only unit`, `cargo xtask test --only truth --python 3.12`.
    Test(test::Options),

    /// Run the truth tests at their full lengths
    ///
    /// The suites `truth` (runs of 10 s; 2 s and less in `cargo xtask test`) and `step` (200,000
    /// instructions a version), some 20 minutes for six interpreters. UNWIND_TRUTH=full and
    /// UNWIND_STEPS=200000 do the same for a single `cargo test`.
    Truth(truth::Options),

    /// Start and kill the profiler 200 times at random moments
    ///
    /// The suite `cli` with all of its kills (10 in `cargo xtask test`): the target runs on
    /// throughout, and no BPF program, map or perf event is left behind. Some 6 minutes.
    Soak,

    /// Install what is needed to rebuild the BPF object
    ///
    /// Only for those who change unwind-ebpf: the built object is committed. With rustup, a nightly
    /// with rust-src and the released bpf-linker; where that cannot be had, Debian's packages (needs
    /// root) and a bpf-linker built against its LLVM into ~/.cache/unwind. What is there is kept.
    SetupEbpf,

    /// Build the BPF object that unwind-user embeds, or check the committed one
    ///
    /// Compiles unwind-ebpf for bpfel-unknown-none and writes the object, with BTF and without
    /// DWARF, to unwind-user/src/bpf/unwind.bpf.o, and beside it unwind.bpf.lock: the hash of the
    /// sources, the versions of compiler and linker, and the hash of the object. The object does
    /// not depend on the folder it is built in. What this needs, `cargo xtask setup-ebpf` installs.
    BuildEbpf {
        /// Write nothing; fail if the committed object is not the one the sources give
        ///
        /// Compares the hashes of sources and object with those recorded, for which no toolchain is
        /// needed. Where the recorded compiler and linker are installed, also rebuilds the object
        /// and compares every byte.
        #[arg(long)]
        check: bool,
    },

    /// Measure what profiling costs
    ///
    /// `cost`: ns in the kernel and in the profiler, bytes and memory a sample, against depth and
    /// threads, and beside py-spy (on PATH, or in a virtual environment at ~/.cache/unwind/peers)
    /// and Python 3.15's own sampler. `dump`: one dump of 300 threads, beside py-spy's.
    /// `harm`: how much slower the target is than under the same interrupts with an empty program,
    /// in pairs of 200 ms windows in random order. `user`: the user half alone, with its heap
    /// allocations. Needs root, and a machine with nothing else to do: figures of a busy one are good
    /// for their ratios only.
    Bench(bench::Options),

    /// Try the profiler on other kernels, in qemu
    ///
    /// Boots Debian's cloud kernels without KVM, profiles a spinning program of each interpreter
    /// found, and compares the stacks with what the program says of itself. Also tries what the
    /// host may lack: Yama's ptrace_scope, lockdown, a user without rights, a kernel too old.
    /// Kernels are fetched once into ~/.cache/unwind/vm. Needs qemu-system-x86_64, busybox
    /// (static), cpio, and apt-get to fetch kernels.
    Vm(vm::Options),

    /// Record the fixtures of the replay tests anew
    ///
    /// Runs each program in tests/fixtures/programs with an interpreter of each version, records it
    /// for a moment, and blesses what a replay gives. Needs root and all interpreters.
    Fixtures,

    /// Rewrite the expected stacks of the replay tests
    ///
    /// For a change that is meant to change them: read the difference before you commit it.
    Bless,

    /// Check rules that the compiler cannot
    ///
    /// Length of files, unsafe code and comparisons of Python versions outside the files meant for
    /// them, paths of one machine, white space at line ends; in all files that git tracks or would.
    Tidy,

    /// Check licences, sources and duplicates of the dependencies
    ///
    /// Reads `cargo metadata` only. Known vulnerabilities are not looked up.
    Audit,
}

/// Exit code of `run` and `dump` for failures that are not the profiled command's.
const NOT_THE_COMMAND: u8 = 125;

fn main() -> ExitCode {
    // Not by clap, which would keep a leading `--` and `--help` for itself.
    let mut words = std::env::args_os().skip(1);
    if let Some(command @ ("run" | "dump")) = words.next().as_deref().and_then(OsStr::to_str) {
        let words: Vec<OsString> = words.collect();
        return exit(run::run(command, &words), NOT_THE_COMMAND);
    }
    let done = match &Cli::parse().command {
        Command::Run { args } => run::run("run", args),
        Command::Dump { args } => run::run("dump", args),
        Command::Test(options) => test::test(options),
        Command::Truth(options) => truth::truth(options),
        Command::Soak => test::test(&test::Options::full(&["cli"], &[], false)),
        Command::SetupEbpf => setup::setup(),
        Command::BuildEbpf { check: false } => ebpf::build(),
        Command::BuildEbpf { check: true } => ebpf::check(),
        Command::Bench(options) => bench::bench(options),
        Command::Vm(options) => vm::vm(options),
        Command::Fixtures => fixtures::record(),
        Command::Bless => fixtures::bless(),
        Command::Tidy => tidy::tidy(),
        Command::Audit => audit::audit(),
    };
    exit(done, 1)
}

/// Reports an error and chooses the exit code.
fn exit(done: anyhow::Result<()>, failure: u8) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(failure)
        }
    }
}
