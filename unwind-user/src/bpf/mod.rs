//! The kernel half: loading, attaching, and the maps that the two halves share.
//!
//! Minimum kernel: 5.17 (`bpf_loop`), with BTF. Needs CAP_BPF, CAP_PERFMON (or CAP_SYS_ADMIN).

pub mod btf;
mod release;
mod sampler;

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::perf_event::PerfEventLinkId;
use aya::programs::{PerfEvent, ProgramError, RawTracePoint};
use aya::util::nr_cpus;
use aya::{Ebpf, EbpfError, EbpfLoader};
use thiserror::Error;

use crate::sampler::Marks;
use crate::sys::{ConfigValue, CountersValue};
use btf::{BtfError, KernelTypes};

/// The committed object, built by `cargo xtask build-ebpf`.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!("unwind.bpf.o");

/// What drives the interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// The software CPU clock: everywhere, virtual machines included.
    #[default]
    CpuClock,
    /// Hardware CPU cycles.
    Cycles,
}

impl Event {
    /// What to try where the event cannot be opened.
    const fn hint(self) -> &'static str {
        match self {
            Self::CpuClock => "",
            Self::Cycles => {
                " (without hardware counters, as in most virtual machines, use --event cpu-clock)"
            }
        }
    }
}

/// Why the kernel half does not run.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The kernel lacks what the program needs.
    #[error(
        "Linux {0} is too old: the BPF program needs {major}.{minor} or newer (bpf_loop)",
        major = release::OLDEST.0,
        minor = release::OLDEST.1
    )]
    TooOld(String),
    /// Offsets in kernel structures are not to be had.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The kernel does not take the object.
    #[error("the kernel refuses the BPF object")]
    Object(#[from] EbpfError),
    /// The verifier or an attach point refuses a program.
    #[error("the kernel refuses the BPF program `{program}`")]
    Program {
        /// Which.
        program: &'static str,
        /// Why, with the verifier's log.
        source: ProgramError,
    },
    /// The perf event cannot be opened.
    #[error("cannot open the perf event {event:?} on CPU {cpu} at {rate} Hz{}", event.hint())]
    PerfEvent {
        /// Which event.
        event: Event,
        /// Where.
        cpu: u32,
        /// How often.
        rate: u64,
        /// Why.
        source: ProgramError,
    },
    /// A map of the object is missing or refuses an operation.
    #[error("BPF map `{map}`")]
    Map {
        /// Which.
        map: &'static str,
        /// Why.
        source: MapError,
    },
    /// The CPUs cannot be counted.
    #[error("cannot tell the CPUs of this machine from {0}")]
    Cpus(&'static str, #[source] std::io::Error),
    /// Sampling from outside cannot begin.
    #[error("cannot sample from outside")]
    Poller(#[source] std::io::Error),
    /// The object's log lines cannot be had.
    #[error("cannot read the log of the BPF program")]
    Log(#[from] aya_log::Error),
    /// The committed object lacks a part.
    #[error("the BPF object has no `{0}`: rebuild it with `cargo xtask build-ebpf`")]
    Missing(&'static str),
}

/// The loaded kernel half. Dropping it detaches everything.
pub struct Kernel {
    ebpf: Ebpf,
    ring: RingBuf<MapData>,
    ring_bytes: u32,
    marks: Marks<Array<MapData, u64>>,
    processes: HashMap<MapData, u32, ConfigValue>,
    counters: PerCpuArray<MapData, CountersValue>,
    logging: Array<MapData, u32>,
    event: Event,
    links: Vec<PerfEventLinkId>,
}

/// Log lines of the kernel half, passed on to `tracing` by [`aya_log::EbpfLogger::flush`].
pub type Logger = aya_log::EbpfLogger<ToTracing>;

impl Kernel {
    /// Loads and verifies the programs; nothing is sampled yet. `ring_bytes` is a power of two.
    ///
    /// # Errors
    /// [`LoadError`], with the kernel's own words as its source.
    pub fn load(ring_bytes: u32, event: Event) -> Result<Self, LoadError> {
        if let Some(release) = release::too_old() {
            return Err(LoadError::TooOld(release));
        }
        let types = KernelTypes::of_running_kernel()?;
        let fsbase = types.offset("task_struct", &["thread", "fsbase"])?;
        let pid = types.offset("task_struct", &["pid"])?;
        let tgid = types.offset("task_struct", &["tgid"])?;
        let cpus = nr_cpus().map_err(|(what, source)| LoadError::Cpus(what, source))?;
        let wake_bytes = u64::from(ring_bytes / 4);
        let mut ebpf = EbpfLoader::new()
            .override_global("TASK_FSBASE", &fsbase, true)
            .override_global("TASK_PID", &pid, true)
            .override_global("TASK_TGID", &tgid, true)
            .override_global("WAKE_BYTES", &wake_bytes, true)
            .map_max_entries("SCRATCH", cpus as u32)
            .map_max_entries("RING", ring_bytes)
            .load(OBJECT)?;
        program::<PerfEvent>(&mut ebpf, "on_sample")?
            .load()
            .map_err(|source| LoadError::Program {
                program: "on_sample",
                source,
            })?;
        for name in LIFECYCLE {
            program::<RawTracePoint>(&mut ebpf, name.0)?
                .load()
                .map_err(|source| LoadError::Program {
                    program: name.0,
                    source,
                })?;
        }
        Ok(Self {
            ring: take(&mut ebpf, "RING")?,
            ring_bytes,
            marks: Marks::new(take(&mut ebpf, "VOUCHED")?),
            processes: take(&mut ebpf, "PROCESSES")?,
            counters: take(&mut ebpf, "COUNTERS")?,
            logging: take(&mut ebpf, "LOGGING")?,
            event,
            links: Vec::new(),
            ebpf,
        })
    }

    /// Follows forks, execs and exits of the processes in the table.
    ///
    /// # Errors
    /// When the kernel refuses an attach point.
    pub fn watch_processes(&mut self) -> Result<(), LoadError> {
        for (name, tracepoint) in LIFECYCLE {
            program::<RawTracePoint>(&mut self.ebpf, name)?
                .attach(tracepoint)
                .map_err(|source| LoadError::Program {
                    program: name,
                    source,
                })?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("links", &self.links.len())
            .finish_non_exhaustive()
    }
}

/// Passes log lines of the kernel half on to `tracing`.
#[derive(Clone, Copy, Debug)]
pub struct ToTracing;

impl log::Log for ToTracing {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // Whoever asked for these lines wants to see them without changing the filter.
        tracing::warn!(target: "unwind_bpf", "{}", record.args());
    }

    fn flush(&self) {}
}

/// Programs that follow processes, and their tracepoints.
const LIFECYCLE: [(&str, &str); 3] = [
    ("on_fork", "sched_process_fork"),
    ("on_exec", "sched_process_exec"),
    ("on_exit", "sched_process_exit"),
];

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, LoadError>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or(LoadError::Missing(name))?;
    program.try_into().map_err(|source| LoadError::Program {
        program: name,
        source,
    })
}

fn take<M>(ebpf: &mut Ebpf, map: &'static str) -> Result<M, LoadError>
where
    M: TryFrom<aya::maps::Map, Error = MapError>,
{
    let taken = ebpf.take_map(map).ok_or(LoadError::Missing(map))?;
    M::try_from(taken).map_err(|source| LoadError::Map { map, source })
}
