//! The command to profile: started held back until sampling is set up, and waited for.
//!
//! The child is this program again, as `unwind hold NAME CMD…`: it connects to an abstract socket
//! and becomes the command when a byte arrives. So the command's process id is in the kernel
//! half's table before its first Python line runs, no descriptor is left over in it, and standard
//! input, output and error are inherited.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::kill;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;
use tokio::process::Child;

use super::signals::{End, Heard, Signals};
use super::status::Status;
use super::{Ended, FAILED};

/// Between two looks whether the child is still there.
const LOOK_EVERY: u16 = 100; // ms

/// The hidden subcommand by which the child waits.
pub const HOLD: &str = "hold";

/// A started child that has not become the command yet.
#[derive(Debug)]
pub struct Held {
    /// The child; it keeps its process id.
    pub child: Child,
    gate: UnixStream,
}

impl Held {
    /// Starts the child and waits until it stands at the gate.
    ///
    /// # Errors
    /// When the child cannot be started.
    pub fn start(command: &[OsString]) -> io::Result<Self> {
        let name = format!("unwind-hold-{}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        let mut child = tokio::process::Command::new("/proc/self/exe")
            .arg(HOLD)
            .arg(&name)
            .args(command)
            .spawn()?;
        loop {
            let mut waits = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            poll(&mut waits, LOOK_EVERY)?;
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(status) = child.try_wait()? {
                        return Err(io::Error::other(format!("its starter ended: {status}")));
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            // Anyone on this machine may connect to an abstract socket.
            let peer = getsockopt(&stream, PeerCredentials)?;
            if child.id() == u32::try_from(peer.pid()).ok() {
                return Ok(Self {
                    child,
                    gate: stream,
                });
            }
        }
    }

    /// Lets the child become the command.
    ///
    /// # Errors
    /// When the child is gone.
    pub fn release(mut self) -> io::Result<Child> {
        self.gate.write_all(&[1])?;
        Ok(self.child)
    }
}

/// The child's side: waits at the gate, then becomes the command. Returns only on failure, with
/// the exit code that shells use: 127 not found, 126 not executable.
#[must_use]
pub fn become_command(arguments: &[OsString]) -> ExitCode {
    let [name, program, rest @ ..] = arguments else {
        return ExitCode::from(2);
    };
    let wait = || -> io::Result<()> {
        let address = SocketAddr::from_abstract_name(name.as_encoded_bytes())?;
        UnixStream::connect_addr(&address)?.read_exact(&mut [0])
    };
    if wait().is_err() {
        // The profiler is gone: the command never ran, and does not run unprofiled.
        return ExitCode::from(125);
    }
    let error = Command::new(program).args(rest).exec();
    let mut stderr = io::stderr();
    // Nothing is left to do if standard error is closed.
    let _ = writeln!(stderr, "unwind: cannot run {}: {error}", program.display());
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    })
}

/// Ends when the child does; never, if there is none.
pub(super) async fn exit_of(child: &mut Option<&mut Child>) -> io::Result<()> {
    match child {
        Some(child) => child.wait().await.map(drop),
        None => std::future::pending().await,
    }
}

/// Waits for the command, whose exit code becomes ours. It runs on undisturbed when the session
/// ended before it, except that a signal meant for it is passed on.
pub(super) async fn wait(
    child: &mut Child,
    ended: Ended,
    signals: &mut Signals,
    status: &mut Status,
) -> io::Result<ExitCode> {
    if let Ended::Signal(signal) = ended {
        pass_on(child, signal);
    }
    if ended == Ended::Duration && child.try_wait()?.is_none() {
        status.note("sampling has ended; waiting for the command, which goes on");
    }
    loop {
        tokio::select! {
            status = child.wait() => return status.map(code),
            heard = signals.heard() => {
                if let Heard::End(signal) = heard {
                    pass_on(child, signal);
                }
            }
        }
    }
}

fn pass_on(child: &Child, signal: End) {
    // No id: it has ended, and its number may be another's.
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let (Some(pid), Some(signal)) = (pid, signal.to_pass_on())
        && let Err(error) = kill(Pid::from_raw(pid), signal)
    {
        tracing::debug!(%error, "signal not passed on");
    }
}

/// As shells have it: 128 and the signal for a command that a signal ended.
fn code(status: std::process::ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(FAILED))
}
