//! Starts the command to profile, held back until sampling is set up.
//!
//! The child is this program again, as `unwind hold NAME CMD…`: it connects to an abstract socket
//! and becomes the command when a byte arrives. So the command's process id is in the kernel
//! half's table before its first Python line runs, no descriptor is left over in it, and standard
//! input, output and error are inherited.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use tokio::process::Child;

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
        let child = tokio::process::Command::new("/proc/self/exe")
            .arg(HOLD)
            .arg(&name)
            .args(command)
            .spawn()?;
        let gate = loop {
            let (stream, _) = listener.accept()?;
            // Anyone on this machine may connect to an abstract socket.
            let peer = getsockopt(&stream, PeerCredentials)?;
            if child.id() == u32::try_from(peer.pid()).ok() {
                break stream;
            }
        };
        Ok(Self { child, gate })
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
    let [name, program, rest @ ..] = arguments else { return ExitCode::from(2) };
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
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}
