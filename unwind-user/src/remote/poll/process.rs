//! One process that is polled, and which program it runs.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use unwind_ebpf::abi::{Counters, ProcConfig};

use super::interpreter::{Interpreter, Outlet};
use crate::layout::Layout;
use crate::memory::Addr;
use crate::process::{self, Stat};
use crate::remote::capture::{Capture, Vouched};
use crate::remote::still::Reader;
use crate::run::session::monotonic_ns;

/// Tells a program from the one before it in the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// Bottom of the first stack, another one each time; 0 where we may not know it.
    stack: u64,
    /// Device and inode of the executable.
    exe: Option<(u64, u64)>,
}

impl Image {
    /// Which program a process runs now; none when it has ended.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let pid = pid.cast_signed();
        let stat = Stat::of(pid).ok()?;
        if stat.has_ended() && !process::is_live(pid) {
            return None;
        }
        let exe = std::fs::metadata(format!("/proc/{pid}/exe")).ok();
        Some(Self {
            stack: stat.stack,
            exe: exe.map(|exe| (exe.dev(), exe.ino())),
        })
    }
}

/// A process in the table.
#[derive(Debug)]
pub(super) struct Polled {
    pid: u32,
    config: ProcConfig,
    /// None when it has ended.
    image: Option<Image>,
    vouched: Vouched,
    interpreter: Option<Interpreter>,
}

impl Polled {
    /// A process with nothing known of it yet.
    pub(super) fn new(pid: u32, vouched: Vouched) -> Self {
        Self {
            pid,
            config: ProcConfig::default(),
            image: Image::of(pid),
            vouched,
            interpreter: None,
        }
    }

    /// A child as it is after fork: a copy of this process, unless it runs another program already,
    /// which the next look finds.
    pub(super) fn child(&self, pid: u32) -> Option<Self> {
        let image = Image::of(pid)?;
        let mut config = self.config;
        config.salt = config.salt.rotate_left(17) ^ monotonic_ns() ^ u64::from(pid) << 40;
        if Some(image) != self.image {
            config.ready = 0;
        }
        let mut child = Self {
            pid,
            config: ProcConfig::default(),
            image: self.image,
            vouched: Vouched::clone(&self.vouched),
            interpreter: None,
        };
        if let Some(interpreter) = &self.interpreter {
            let (layout, runtime) = interpreter.place();
            child.set_interpreter(layout, runtime);
        }
        child.set(config);
        Some(child)
    }

    pub(super) const fn config(&self) -> ProcConfig {
        self.config
    }

    pub(super) fn set(&mut self, config: ProcConfig) {
        self.config = config;
        if config.ready == 0 {
            self.interpreter = None;
        }
        if let Some(interpreter) = &mut self.interpreter {
            interpreter.set_config(config);
        }
    }

    pub(super) fn set_interpreter(&mut self, layout: Layout, runtime: Addr) {
        let capture = Capture::with_identities(self.config, Vouched::clone(&self.vouched));
        self.interpreter = Some(Interpreter::new(self.pid, layout, runtime, capture));
    }

    /// Takes note of its end; whether that is new.
    pub(super) fn end(&mut self) -> bool {
        self.config.ready = 0;
        self.image.take().is_some()
    }

    /// Takes note of the program that it runs; whether that is another one.
    pub(super) fn replace(&mut self, image: Image) -> bool {
        let is_another = self.image.is_some_and(|before| before != image);
        if is_another {
            self.image = Some(image);
            self.config.ready = 0;
        }
        is_another
    }

    /// Looks at its threads once.
    pub(super) fn poll(
        &mut self,
        reader: &Reader,
        period: Duration,
        counters: &mut Counters,
        outlet: &mut dyn Outlet,
    ) {
        if self.config.ready == 0 {
            return;
        }
        if let Some(interpreter) = &mut self.interpreter {
            let start = monotonic_ns();
            interpreter.poll(reader, period, counters, outlet);
            counters.run_ns += monotonic_ns().saturating_sub(start);
        }
    }
}
