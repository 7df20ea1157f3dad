//! One process that is polled, and which program it runs.

use std::os::unix::fs::MetadataExt as _;

use unwind_ebpf::abi::{Counters, ProcConfig};

use super::interpreter::{Interpreter, Outlet, Pace};
use crate::layout::Layout;
use crate::memory::Addr;
use crate::process::{self, Stat};
use crate::remote::capture::{Capture, Vouched};
use crate::remote::still::Reader;
use crate::run::session::monotonic_ns;

/// Tells a program from the one before it in the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// When its process began, in ticks since boot.
    start_time: u64,
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
            start_time: stat.start_time,
            stack: stat.stack,
            exe: exe.map(|exe| (exe.dev(), exe.ino())),
        })
    }
}

/// What became of a process since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Exec,
    Exit,
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

    /// Takes note of the program that it runs now, if it has not ended.
    pub(super) fn look(&mut self, now: Option<Image>) -> Change {
        let Some(before) = self.image else {
            return Change::None;
        };
        let change = match now {
            Some(now) if now == before => return Change::None,
            Some(now) if now.start_time == before.start_time => Change::Exec,
            // Its number may be another process's by now.
            _ => Change::Exit,
        };
        self.config.ready = 0;
        self.image = now.filter(|_| change == Change::Exec);
        change
    }

    /// Looks at its threads once.
    pub(super) fn poll(
        &mut self,
        reader: &Reader,
        pace: Pace,
        counters: &mut Counters,
        outlet: &mut dyn Outlet,
    ) {
        if self.config.ready == 0 {
            return;
        }
        if let Some(interpreter) = &mut self.interpreter {
            let start = monotonic_ns();
            interpreter.poll(reader, pace, counters, outlet);
            counters.run_ns += monotonic_ns().saturating_sub(start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polled(image: Image) -> Polled {
        let config = ProcConfig {
            ready: 1,
            ..ProcConfig::default()
        };
        Polled {
            pid: 1,
            config,
            image: Some(image),
            vouched: Vouched::from([]),
            interpreter: None,
        }
    }

    #[test]
    fn another_program_is_told_from_another_process() {
        let image = Image {
            start_time: 7,
            stack: 0x7fff_0000,
            exe: Some((1, 2)),
        };
        let exec = Image {
            stack: 0x7ffe_0000,
            ..image
        };
        let other = Image {
            start_time: 8,
            ..image
        };
        let mut process = polled(image);
        assert_eq!(process.look(Some(image)), Change::None);
        assert_eq!(process.config.ready, 1);
        assert_eq!(process.look(Some(exec)), Change::Exec);
        assert_eq!(process.config.ready, 0);
        assert_eq!(process.look(Some(exec)), Change::None);
        assert_eq!(process.look(Some(other)), Change::Exit);
        // An end is told once.
        assert_eq!(process.look(Some(other)), Change::None);
        assert_eq!(polled(image).look(None), Change::Exit);
    }

    #[test]
    fn we_are_one_program_all_the_time() {
        let pid = std::process::id();
        let image = Image::of(pid).expect("we run");
        assert_eq!(Image::of(pid), Some(image));
        assert_eq!(Image::of(i32::MAX as u32), None);
    }
}
