//! Loads the kernel half and talks to it: attach, process table, counters, ring.

pub mod btf;

use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::perf_event::{
    PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::{PerfEvent, RawTracePoint};
use aya::{Ebpf, EbpfLoader, Pod};

/// The committed object, built by `cargo xtask build-ebpf`.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!("unwind.bpf.o");

/// try
pub fn try_load() -> anyhow::Result<Ebpf> {
    let types = btf::KernelTypes::of_running_kernel()?;
    let fsbase = types.offset("task_struct", &["thread", "fsbase"])?;
    let pid = types.offset("task_struct", &["pid"])?;
    let tgid = types.offset("task_struct", &["tgid"])?;
    println!("fsbase {fsbase} pid {pid} tgid {tgid}");
    let mut ebpf = EbpfLoader::new()
        .override_global("TASK_FSBASE", &fsbase, true)
        .override_global("TASK_PID", &pid, true)
        .override_global("TASK_TGID", &tgid, true)
        .map_max_entries("SCRATCH", 2)
        .load(OBJECT)?;
    let program: &mut PerfEvent = ebpf.program_mut("on_sample").unwrap().try_into()?;
    program.load()?;
    for name in ["on_fork", "on_exec", "on_exit"] {
        let program: &mut RawTracePoint = ebpf.program_mut(name).unwrap().try_into()?;
        program.load()?;
    }
    Ok(ebpf)
}
