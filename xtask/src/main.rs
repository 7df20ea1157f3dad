//! The project's commands: `cargo xtask --help`.

mod ebpf;
mod shell;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Commands of the unwind project.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
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
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::BuildEbpf { check: false } => ebpf::build(),
        Command::BuildEbpf { check: true } => ebpf::check(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
