//! The kernel half as a [`Sampler`].

use std::os::fd::{AsFd as _, BorrowedFd};

use aya::maps::{Array, MapData, MapError, PerCpuValues};
use aya::programs::PerfEvent;
use aya::programs::perf_event::{
    HardwareEvent, PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::util::{nr_cpus, online_cpus};
use unwind_ebpf::abi::{Counters, PROCESSES_MAX, ProcConfig};

use super::{Event, Kernel, LoadError, Logger, ToTracing, program};
use crate::memory::Addr;
use crate::pipeline::Vouch;
use crate::sampler::{Sampler, Table};
use crate::sys::{ConfigValue, CountersValue};

impl Sampler for Kernel {
    fn name(&self) -> &'static str {
        "ebpf"
    }

    fn start(&mut self, rate: u64) -> Result<(), LoadError> {
        let cpus = online_cpus().map_err(|(what, source)| LoadError::Cpus(what, source))?;
        let event = self.event;
        let program = program::<PerfEvent>(&mut self.ebpf, "on_sample")?;
        for cpu in cpus {
            let config = match event {
                Event::CpuClock => PerfEventConfig::Software(SoftwareEvent::CpuClock),
                Event::Cycles => PerfEventConfig::Hardware(HardwareEvent::CpuCycles),
            };
            let link = program
                .attach(
                    config,
                    PerfEventScope::AllProcessesOneCpu { cpu },
                    SamplePolicy::Frequency(rate),
                    false,
                )
                .map_err(|source| LoadError::PerfEvent {
                    event,
                    cpu,
                    rate,
                    source,
                })?;
            self.links.push(link);
        }
        Ok(())
    }

    fn stop(&mut self) {
        let Ok(program) = program::<PerfEvent>(&mut self.ebpf, "on_sample") else {
            return;
        };
        for link in self.links.drain(..) {
            if let Err(error) = program.detach(link) {
                tracing::debug!(%error, "detach");
            }
        }
    }

    fn set_process(&mut self, pid: u32, config: ProcConfig) -> Result<(), LoadError> {
        self.marks.set_salt(pid, config.salt);
        self.processes
            .insert(pid, ConfigValue(config), 0)
            .map_err(|source| LoadError::Map {
                map: "PROCESSES",
                source,
            })
    }

    fn process(&self, pid: u32) -> Option<ProcConfig> {
        self.processes.get(&pid, 0).ok().map(|value| value.0)
    }

    fn process_ids(&self) -> Vec<u32> {
        self.processes.keys().flatten().collect()
    }

    fn remove_process(&mut self, pid: u32) {
        self.marks.remove(pid);
        // The only failure is that it is not there.
        let _ = self.processes.remove(&pid);
    }

    fn counters(&self, slot: u32) -> Result<Counters, LoadError> {
        let values = self
            .counters
            .get(&slot.min(PROCESSES_MAX - 1), 0)
            .map_err(|source| LoadError::Map {
                map: "COUNTERS",
                source,
            })?;
        let mut sum = Counters::default();
        for CountersValue(cpu) in values.iter() {
            for (total, count) in sum.outcomes.iter_mut().zip(cpu.outcomes) {
                *total += count;
            }
            sum.run_ns += cpu.run_ns;
            sum.bytes += cpu.bytes;
            sum.frames_off_chunk += cpu.frames_off_chunk;
            sum.identities += cpu.identities;
        }
        Ok(sum)
    }

    fn clear_counters(&mut self, slot: u32) -> Result<(), LoadError> {
        let failed = |source| LoadError::Map {
            map: "COUNTERS",
            source,
        };
        let cpus = nr_cpus().map_err(|(what, source)| LoadError::Cpus(what, source))?;
        let zero = PerCpuValues::try_from(vec![CountersValue(Counters::default()); cpus])
            .map_err(|source| failed(MapError::IoError(source)))?;
        self.counters.set(slot, zero, 0).map_err(failed)
    }

    fn set_logging(&mut self, on: bool) -> Result<(), LoadError> {
        self.logging
            .set(0, u32::from(on), 0)
            .map_err(|source| LoadError::Map {
                map: "LOGGING",
                source,
            })
    }

    fn logger(&mut self) -> Result<Option<Logger>, LoadError> {
        let logger = aya_log::EbpfLogger::init_with_logger(&mut self.ebpf, ToTracing)?;
        Ok(Some(logger))
    }

    fn ring_bytes(&self) -> u64 {
        u64::from(self.ring_bytes)
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    fn take(&mut self, with: &mut dyn FnMut(&[u8])) -> bool {
        let Some(item) = self.ring.next() else {
            return false;
        };
        with(&item);
        true
    }

    fn take_stale(&mut self) -> Vec<u32> {
        self.marks.take_stale()
    }
}

impl Vouch for Kernel {
    fn vouch(&mut self, pid: u32, code: Addr) {
        self.marks.vouch(pid, code);
    }

    fn revoke(&mut self, pid: u32, code: Addr) {
        self.marks.revoke(pid, code);
    }

    fn revoke_all(&mut self, pid: u32) {
        self.marks.revoke_all(pid);
    }
}

impl Table for Array<MapData, u64> {
    fn get(&self, slot: u32) -> u64 {
        self.get(&slot, 0).unwrap_or(0)
    }

    fn set(&mut self, slot: u32, mark: u64) {
        if let Err(error) = self.set(slot, mark, 0) {
            tracing::debug!(%error, "cannot write a mark");
        }
    }
}
