//! Whether the counts add up, and whether anything was lost.

use unwind_tests::{Profile, profile};

/// Complete samples over CPU time times rate, at least.
pub(crate) const KEPT: f64 = 0.99;

/// Runs that a starved machine may spoil. It can be so for several seconds; what the profiler itself
/// loses on the way shows in each of them.
const ATTEMPTS: usize = 10;

/// Every interrupt ended in one outcome, and every record became a sample.
pub(crate) fn adds_up(profile: &Profile) -> Result<(), String> {
    let equal = |what: &str, left: u64, right: u64| {
        (left == right)
            .then_some(())
            .ok_or_else(|| format!("{what}: {left} is not {right}"))
    };
    let sum: u64 = profile.outcomes().iter().map(|(_, count)| count).sum();
    let interrupts = profile.number("interrupts") as u64;
    equal("outcomes and interrupts", sum, interrupts)?;
    let processes = profile.stats["processes"].as_array().into_iter().flatten();
    let each = processes.flat_map(|process| process["outcomes"].as_object().into_iter().flatten());
    let of_processes = each.filter_map(|(_, count)| count.as_u64()).sum();
    equal(
        "outcomes of the processes and interrupts",
        of_processes,
        interrupts,
    )?;
    for lost in ["malformed_records", "unknown_process", "disagreed"] {
        equal(lost, profile.number(lost) as u64, 0)?;
    }
    let shown = ["ok", "truncated", "page_fault"]
        .iter()
        .map(|name| profile.outcome(name))
        .sum();
    equal(
        "shown outcomes and samples",
        shown,
        profile.number("samples") as u64,
    )?;
    equal("samples and the folded file", shown, profile.samples())?;
    // No interrupt was counted twice. A clock that leaves out the time that a hypervisor, or
    // another interrupt, took from the thread is behind the interrupts that come by the wall.
    let due = due(profile);
    if interrupts as f64 > 1.3 * due + 50.0 {
        return Err(format!("{interrupts} interrupts in CPU time for {due:.0}"));
    }
    Ok(())
}

/// Interrupts due in the CPU time that the process used.
fn due(profile: &Profile) -> f64 {
    profile.number("on_cpu_ns") * profile.number("rate_hz") / 1e9
}

/// What was lost. `Ok(false)` when the machine left interrupts out, of which the profiler hears
/// nothing.
///
/// # Errors
/// When the profiler itself lost samples: interrupts that came and gave no stack.
pub(crate) fn is_kept(profile: &Profile, least: f64) -> Result<bool, String> {
    let interrupts = profile.number("interrupts");
    let lost = interrupts - profile.outcome("ok") as f64;
    if lost > (1.0 - KEPT) * interrupts {
        return Err(format!(
            "lost {lost} of {interrupts}: {:?}",
            profile.outcomes()
        ));
    }
    let kept = (profile.outcome("ok") + profile.outcome("truncated")) as f64 / due(profile);
    let told = profile.stats["kept"]
        .as_f64()
        .ok_or("--stats tells no `kept`")?;
    if (kept - told).abs() > 1e-6 {
        return Err(format!("`kept` is {told}, but {kept} by the counts"));
    }
    Ok(kept >= least)
}

/// Profiles a process, with nothing lost. A run that a starved machine left without its
/// interrupts is done again; one in which the profiler lost samples fails at once.
pub(crate) fn kept(pid: u32, options: &[&str]) -> Result<Profile, String> {
    kept_at_least(KEPT, pid, options)
}

/// The same where the kernel itself leaves more interrupts out.
pub(crate) fn kept_at_least(least: f64, pid: u32, options: &[&str]) -> Result<Profile, String> {
    let mut told = Vec::new();
    for _ in 0..ATTEMPTS {
        let profile = profile(pid, options)?;
        adds_up(&profile)?;
        if is_kept(&profile, least)? {
            return Ok(profile);
        }
        told.push(profile.stats["kept"].to_string());
    }
    Err(format!("kept {} of the samples due", told.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn counted(ok: u64, entering: u64, on_cpu_ms: u64) -> Profile {
        let outcomes = json!({"ok": ok, "truncated": 0, "page_fault": 0, "entering": entering});
        let kept = ok as f64 / on_cpu_ms as f64;
        Profile {
            lines: vec![unwind_user::format::folded::Line {
                frames: Vec::new(),
                count: ok,
            }],
            stats: json!({
                "interrupts": ok + entering, "outcomes": outcomes, "rate_hz": 1000, "kept": kept,
                "processes": [{"outcomes": outcomes}], "on_cpu_ns": on_cpu_ms * 1_000_000,
                "samples": ok, "malformed_records": 0, "unknown_process": 0, "disagreed": 0,
            }),
        }
    }

    #[test]
    fn a_loss_is_told_from_a_starved_machine() {
        assert_eq!(is_kept(&counted(1000, 0, 1000), KEPT), Ok(true));
        assert_eq!(is_kept(&counted(980, 0, 1000), KEPT), Ok(false));
        assert!(is_kept(&counted(980, 20, 1000), KEPT).is_err());
    }

    #[test]
    fn counts_that_do_not_add_up_are_found() {
        assert_eq!(adds_up(&counted(1000, 5, 1000)), Ok(()));
        assert!(adds_up(&counted(1000, 0, 500)).is_err());
        for (name, value) in [("interrupts", 1004), ("samples", 999), ("disagreed", 1)] {
            let mut broken = counted(1000, 5, 1000);
            broken.stats[name] = value.into();
            assert!(adds_up(&broken).is_err(), "{name}");
        }
        let mut broken = counted(1000, 5, 1000);
        broken.lines.clear();
        assert!(adds_up(&broken).is_err());
    }
}
