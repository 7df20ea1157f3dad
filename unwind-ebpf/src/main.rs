//! The BPF program: entry points, maps, and [`Target`] over the interrupted thread.
//!
//! Minimum kernel: 5.17 (`bpf_loop`). The sampling path writes per-CPU memory and the ring only:
//! a hash map's bucket lock taken with interrupts off can stall a whole host.
#![no_std]
#![no_main]
// The macros of entry points make public functions without documentation.
#![allow(missing_docs, unreachable_pub)]

use core::ffi::c_void;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_RB_FORCE_WAKEUP;
use aya_ebpf::helpers::generated::{
    bpf_get_current_pid_tgid, bpf_get_current_task_btf, bpf_get_smp_processor_id, bpf_ktime_get_ns,
    bpf_loop, bpf_probe_read_kernel, bpf_probe_read_user, bpf_ringbuf_output, bpf_ringbuf_query,
};
use aya_ebpf::macros::{map, perf_event, raw_tracepoint};
use aya_ebpf::maps::{Array, HashMap, PerCpuArray, RingBuf};
use aya_ebpf::programs::{PerfEventContext, RawTracePointContext};
use aya_log_ebpf::debug;
use unwind_ebpf::abi::{
    ABI_VERSION, ATTACHING, Counters, EXEC, EXIT, FORK, HEADER_WORDS, NO_SCRATCH, OK, Outcome,
    PAGE_FAULT, PROCESSES_MAX, ProcConfig, RING_FULL, RecordHeader, SAMPLE, TRUNCATED,
    VOUCHED_SLOTS, WHOLE,
};
use unwind_ebpf::capture::{STEPS_MAX, Scratch, Step, Target};

/// Profiled processes by thread group id.
#[map]
static PROCESSES: HashMap<u32, ProcConfig> = HashMap::with_max_entries(PROCESSES_MAX, 0);

/// One scratch a CPU: a plain array, since a per-CPU value may not exceed 32 KiB. Perf-event
/// programs do not nest on one CPU. User space sets the number of entries.
#[map]
static SCRATCH: Array<Scratch> = Array::with_max_entries(1, 0);

/// Counters by process slot.
#[map]
static COUNTERS: PerCpuArray<Counters> = PerCpuArray::with_max_entries(PROCESSES_MAX, 0);

/// Code addresses whose identity user space knows; it alone writes here.
#[map]
static VOUCHED: Array<u64> = Array::with_max_entries(VOUCHED_SLOTS, 0);

/// Records for user space, which sets the size.
#[map]
static RING: RingBuf = RingBuf::with_byte_size(1 << 23, 0);

/// Records waiting in the ring, in bytes, from which the reader is woken; below it reads on a timer.
#[unsafe(no_mangle)]
static WAKE_BYTES: u64 = 1 << 21;
/// `offsetof(struct task_struct, thread.fsbase)` of this kernel, from its BTF.
#[unsafe(no_mangle)]
static TASK_FSBASE: u64 = 0;
/// `offsetof(struct task_struct, pid)`.
#[unsafe(no_mangle)]
static TASK_PID: u64 = 0;
/// `offsetof(struct task_struct, tgid)`.
#[unsafe(no_mangle)]
static TASK_TGID: u64 = 0;
/// Non-zero while `--bpf-log` is on. Written through the LOGGING map so that it can be switched.
#[map]
static LOGGING: Array<u32> = Array::with_max_entries(1, 0);

struct Interrupted;

impl Target for Interrupted {
    #[inline(always)]
    fn copy<const L: usize, const N: usize>(
        &self,
        addr: u64,
        dst: &mut [u64; N],
        pos: u64,
        words: u64,
    ) -> bool {
        if words > L as u64 || pos > (N - L) as u64 {
            return false;
        }
        // SAFETY: pos <= N - L and words <= L were just checked, so the range lies within dst.
        let at = unsafe { dst.as_mut_ptr().add(pos as usize) };
        // Checked again, in the register that the helper gets: the verifier of 6.1 does not know
        // that a check holds for other copies of a value that was spilled.
        let bytes = words * 8;
        let bytes = volatile(&raw const bytes);
        if bytes > L as u64 * 8 {
            return false;
        }
        // SAFETY: at is valid for bytes; addr is only ever read by the kernel, checked.
        unsafe { bpf_probe_read_user(at.cast(), bytes as u32, addr as *const c_void) == 0 }
    }

    #[inline(always)]
    fn word(&self, addr: u64) -> Option<u64> {
        let mut value = 0u64;
        let to = (&raw mut value).cast::<c_void>();
        // SAFETY: to is valid for 8 bytes; addr is only ever read by the kernel, checked.
        let failed = unsafe { bpf_probe_read_user(to, 8, addr as *const c_void) } != 0;
        if failed { None } else { Some(value) }
    }

    #[inline(always)]
    fn vouched(&self, slot: u32) -> u64 {
        VOUCHED.get(slot).copied().unwrap_or(0)
    }
}

#[inline(always)]
fn scratch() -> Option<&'static mut Scratch> {
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let entry = SCRATCH.get_ptr_mut(cpu)?;
    // SAFETY: the entry is this CPU's own, and perf-event programs do not nest on one CPU.
    Some(unsafe { &mut *entry })
}

unsafe extern "C" fn frame_step(_index: u32, context: *const &mut Scratch) -> i64 {
    // SAFETY: what `follow` passed on, which nothing else uses meanwhile.
    let scratch = unsafe { &mut *context.cast_mut() };
    i64::from(scratch.step(&Interrupted) == Step::Done)
}

/// Follows the chain to its end, or to the most that one sample takes.
#[inline(always)]
fn follow(scratch: &mut Scratch) {
    // The kernel wants a context that lies on the stack.
    let context = (&raw const scratch).cast_mut().cast::<c_void>();
    // SAFETY: frame_step has the signature that bpf_loop calls; the context outlives the call.
    unsafe { bpf_loop(STEPS_MAX, frame_step as *mut c_void, context, 0) };
}

/// The perf interrupt.
#[perf_event]
pub fn on_sample(context: PerfEventContext) -> u32 {
    let pid_tgid = bpf_pid_tgid();
    let pid = (pid_tgid >> 32) as u32;
    // SAFETY: values of this map are plain numbers; a concurrent update can at worst mix two.
    let Some(config) = (unsafe { PROCESSES.get(&pid) }) else {
        return 0;
    };
    let start = now();
    let slot = config.slot;
    let outcome = sample(&context, config, pid_tgid, start);
    if let Some(counters) = COUNTERS.get_ptr_mut(slot) {
        // SAFETY: this CPU's own entry.
        let counters = unsafe { &mut *counters };
        if let Some(count) = counters.outcomes.get_mut(outcome as usize) {
            *count += 1;
        }
        counters.run_ns += now() - start;
    }
    0
}

#[inline(always)]
fn sample(context: &PerfEventContext, config: &ProcConfig, pid_tgid: u64, start: u64) -> Outcome {
    if config.ready == 0 {
        return ATTACHING;
    }
    let Some(scratch) = scratch() else {
        return NO_SCRATCH;
    };
    // Not by assignment, which goes through the stack since the two might overlap.
    // SAFETY: two entries of different maps.
    unsafe { core::ptr::copy_nonoverlapping(config, &mut scratch.config, 1) };
    let Some(thread_pointer) = thread_pointer() else {
        return PAGE_FAULT;
    };
    if let Err(outcome) = scratch.begin(&Interrupted, thread_pointer) {
        return outcome;
    }
    follow(scratch);
    if scratch.retry_as_heads(&Interrupted) {
        follow(scratch);
    }
    scratch.header.abi = ABI_VERSION;
    scratch.header.kind = SAMPLE;
    scratch.header.time = start;
    scratch.header.pid = (pid_tgid >> 32) as u32;
    scratch.header.tid = pid_tgid as u32;
    // SAFETY: a helper without arguments.
    scratch.header.cpu = unsafe { bpf_get_smp_processor_id() };
    let outcome = scratch.finish(&Interrupted);
    if logging() {
        debug!(
            context,
            "pid {} outcome {} frames {}", scratch.header.pid, outcome, scratch.header.frames
        );
    }
    if outcome != OK && outcome != TRUNCATED && outcome != PAGE_FAULT {
        return outcome;
    }
    let bytes = (HEADER_WORDS as u64 + scratch.pos) * 8;
    let from = if scratch.header.flags & WHOLE != 0 {
        (&raw const scratch.header).cast::<c_void>()
    } else {
        (&raw const scratch.heads_header).cast::<c_void>()
    };
    let urgent = scratch.identities != 0;
    if !submit(from, bytes, urgent) {
        return RING_FULL;
    }
    if let Some(counters) = COUNTERS.get_ptr_mut(config.slot) {
        // SAFETY: this CPU's own entry.
        let counters = unsafe { &mut *counters };
        counters.bytes += bytes;
        counters.frames_off_chunk += scratch.off_chunk;
        counters.identities += scratch.identities;
    }
    outcome
}

/// Puts a record into the ring. Wakes the reader when much waits, or when it should hurry to read
/// code objects that can go away.
#[inline(always)]
fn submit(from: *const c_void, bytes: u64, urgent: bool) -> bool {
    const RECORD_MAX: u64 = (HEADER_WORDS + unwind_ebpf::abi::BODY_WORDS) as u64 * 8;
    const AVAILABLE: u64 = 0; // BPF_RB_AVAIL_DATA
    const NO_WAKEUP: u64 = 1; // BPF_RB_NO_WAKEUP
    if bytes > RECORD_MAX {
        return false;
    }
    let ring = (&raw const RING).cast_mut().cast::<c_void>();
    // SAFETY: ring is the map; the helper only reads its positions.
    let waiting = unsafe { bpf_ringbuf_query(ring, AVAILABLE) };
    let wake = urgent || waiting > volatile(&raw const WAKE_BYTES);
    let flags = if wake {
        u64::from(BPF_RB_FORCE_WAKEUP)
    } else {
        NO_WAKEUP
    };
    // SAFETY: from is the head of a record in the scratch value, followed by its body, and bytes
    // is within both.
    unsafe { bpf_ringbuf_output(ring, from.cast_mut(), bytes, flags) == 0 }
}

/// Tells of a process event, in the same ring, so that it keeps its place among the samples.
#[inline(always)]
fn tell(kind: u16, pid: u32, tid: u32) {
    let header = RecordHeader {
        abi: ABI_VERSION,
        kind,
        time: now(),
        pid,
        tid,
        ..RecordHeader::default()
    };
    submit((&raw const header).cast(), HEADER_WORDS as u64 * 8, true);
}

/// What an interrupt costs that does nothing: `cargo xtask bench harm` compares with it.
#[perf_event]
pub fn nothing(_context: PerfEventContext) -> u32 {
    0
}

/// A new process copies its parent's memory, so the parent's configuration fits from the first
/// interrupt on. Nothing is vouched for in the child: user space has not looked at it yet.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn on_fork(context: RawTracePointContext) -> i32 {
    let parent = (bpf_pid_tgid() >> 32) as u32;
    // SAFETY: as in on_sample.
    let Some(config) = (unsafe { PROCESSES.get(&parent) }) else {
        return 0;
    };
    if config.follow == 0 {
        return 0;
    }
    let task: u64 = argument(&context, 1);
    let child = kernel_u32(task + volatile(&raw const TASK_PID));
    let group = kernel_u32(task + volatile(&raw const TASK_TGID));
    if child == 0 || child != group {
        return 0;
    }
    let mut config = *config;
    config.salt = config.salt.rotate_left(17) ^ now() ^ ((u64::from(child)) << 40);
    if PROCESSES.insert(&child, &config, 0).is_ok() {
        tell(FORK, parent, child);
    }
    0
}

/// The old image's addresses mean nothing now; user space attaches anew.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn on_exec(_context: RawTracePointContext) -> i32 {
    let pid = (bpf_pid_tgid() >> 32) as u32;
    let Some(config) = PROCESSES.get_ptr_mut(&pid) else {
        return 0;
    };
    // SAFETY: the process that owns this entry is the one in exec; a plain store of one word.
    unsafe { (*config).ready = 0 };
    tell(EXEC, pid, pid);
    0
}

/// The last thread of a profiled process ends.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn on_exit(_context: RawTracePointContext) -> i32 {
    let pid_tgid = bpf_pid_tgid();
    let pid = (pid_tgid >> 32) as u32;
    // SAFETY: as in on_sample.
    if pid == pid_tgid as u32 && unsafe { PROCESSES.get(&pid) }.is_some() {
        tell(EXIT, pid, pid);
    }
    0
}

#[inline(always)]
fn argument(context: &RawTracePointContext, index: usize) -> u64 {
    // SAFETY: raw tracepoint arguments are an array of words at the context.
    let at = unsafe { context.as_ptr().cast::<u64>().add(index) };
    // SAFETY: sched_process_fork has two arguments.
    unsafe { *at }
}

#[inline(always)]
fn kernel_u32(addr: u64) -> u32 {
    let mut value = 0u32;
    let to = (&raw mut value).cast::<c_void>();
    // SAFETY: to is valid for 4 bytes; addr is read by the kernel, checked.
    unsafe { bpf_probe_read_kernel(to, 4, addr as *const c_void) };
    value
}

/// The interrupted thread's FS base: `pthread_self()` on x86-64 Linux.
#[inline(always)]
fn thread_pointer() -> Option<u64> {
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task_btf() };
    // SAFETY: the loader writes the offset of a word in task_struct; the verifier checks it.
    let at = unsafe {
        task.cast::<u8>()
            .add(volatile(&raw const TASK_FSBASE) as usize)
    };
    // SAFETY: as above.
    let value = unsafe { core::ptr::read_volatile(at.cast::<u64>()) };
    if value == 0 { None } else { Some(value) }
}

/// A value of which the compiler knows nothing, such as one that the loader writes into read-only
/// data before the program is verified.
#[inline(always)]
fn volatile(at: *const u64) -> u64 {
    // SAFETY: at points to one of the statics above or to a local of the caller.
    unsafe { core::ptr::read_volatile(at) }
}

#[inline(always)]
fn logging() -> bool {
    LOGGING.get(0).is_some_and(|on| *on != 0)
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
fn bpf_pid_tgid() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_get_current_pid_tgid() }
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier proves that this cannot be reached.
    loop {}
}

/// Licence that the kernel reads: the helpers used here ask for a GPL-compatible one.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
