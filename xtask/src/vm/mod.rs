//! `vm`: the profiler on kernels that this machine does not run.

mod apt;
mod check;
mod guest;
mod initramfs;
mod kernel;

use anyhow::{Result, ensure};

use self::check::Verdict;
use self::kernel::Release;
use crate::test::{self, Interpreter};

/// Which kernels and interpreters.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Boot only this kernel: 5.10, 6.1, 6.12 or 7.2 (repeatable)
    #[arg(long, value_name = "X.Y", value_parser = kernel::release)]
    kernel: Vec<Release>,
    /// Take along only this version of Python, such as 3.12 (repeatable)
    #[arg(long, value_name = "X.Y", value_parser = test::minor)]
    python: Vec<u8>,
    /// Show the console of the machine
    #[arg(long)]
    console: bool,
}

/// Boots each kernel and prints a line for each thing tried; an error if one was not as it should.
pub(crate) fn vm(options: &Options) -> Result<()> {
    guest::require()?;
    let pythons = test::interpreters(&options.python);
    ensure!(!pythons.is_empty(), "no interpreter to take along");
    let image = initramfs::build(&pythons)?;
    let kernels = if options.kernel.is_empty() {
        kernel::RELEASES
    } else {
        &options.kernel
    };
    let mut wrong = 0;
    for release in kernels {
        let kernel = kernel::provide(release)?;
        let report = guest::boot(&kernel, &image, options.console)?;
        for Verdict {
            what,
            wrong: why,
            note,
        } in check::verdicts(release, &report, &labels(&pythons))
        {
            let (word, text) = match &why {
                None => ("ok", note),
                Some(why) => ("FAILED", why.clone()),
            };
            println!("{:<8} {what:<24} {word:<7} {text}", release.name);
            wrong += usize::from(why.is_some());
        }
    }
    println!(
        "untested: sampling by hardware counters, which qemu does not emulate; on bare metal try \
         `unwind run --event cycles`"
    );
    ensure!(
        wrong == 0,
        "{wrong} not as expected; --console shows the machine's console"
    );
    Ok(())
}

fn labels(pythons: &[Interpreter]) -> Vec<&str> {
    pythons.iter().map(|python| python.label.as_str()).collect()
}
