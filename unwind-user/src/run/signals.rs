//! The signals that a run listens to.

use nix::sys::signal as nix_signal;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Interrupt,
    Terminate,
    Hangup,
}

impl End {
    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
        }
    }

    /// What to pass on to the command that we started, for which whoever signalled us means it.
    /// Not Ctrl-C: the terminal sends that to the command as well, and twice is not the same.
    pub(super) const fn to_pass_on(self) -> Option<nix_signal::Signal> {
        match self {
            Self::Interrupt => None,
            Self::Terminate => Some(nix_signal::Signal::SIGTERM),
            Self::Hangup => Some(nix_signal::Signal::SIGHUP),
        }
    }
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// End.
    End(End),
    /// Write the profile so far (SIGUSR1).
    Snapshot,
    /// Switch the kernel half's log (SIGUSR2).
    ToggleLog,
}

/// The signals that a run listens to.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None where we were started to outlive the terminal (`nohup`).
    hangup: Option<Signal>,
    snapshot: Signal,
    toggle_log: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: (!is_ignored(SignalKind::hangup()))
                .then(|| signal(SignalKind::hangup()))
                .transpose()?,
            snapshot: signal(SignalKind::user_defined1())?,
            toggle_log: signal(SignalKind::user_defined2())?,
        })
    }

    /// The next signal.
    pub(super) async fn heard(&mut self) -> Heard {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Heard::End(End::Interrupt),
            _ = self.terminate.recv() => Heard::End(End::Terminate),
            _ = hangup => Heard::End(End::Hangup),
            _ = self.snapshot.recv() => Heard::Snapshot,
            _ = self.toggle_log.recv() => Heard::ToggleLog,
        }
    }
}

/// Whether whoever started us has the signal ignored.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) >> (kind.as_raw_value() - 1) & 1 == 1
}

/// A second Ctrl-C ends us wherever we are, such as in a long write to a slow disk.
///
/// # Errors
/// When the signal cannot be caught, or no thread started.
pub(super) fn quit_at_the_second_interrupt() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Caught from here on, also if the thread gets its turn late.
    let mut interrupts = {
        let _entered = runtime.enter();
        signal(SignalKind::interrupt())?
    };
    let watch = async move {
        interrupts.recv().await;
        interrupts.recv().await;
        super::output::abandon();
        std::process::exit(130)
    };
    std::thread::Builder::new()
        .name("second-interrupt".to_owned())
        .spawn(move || runtime.block_on(watch))
        .map(drop)
}
