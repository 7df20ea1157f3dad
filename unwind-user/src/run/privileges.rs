//! Says what is missing, all at once and before anything is started.

use std::fs;

/// A right that profiling needs, and why.
const CAPABILITIES: [(u32, &str, &str); 4] = [
    (39, "CAP_BPF", "loads the BPF program"),
    (38, "CAP_PERFMON", "attaches it to perf events of other processes"),
    (19, "CAP_SYS_PTRACE", "reads code objects in the target's memory"),
    (40, "CAP_CHECKPOINT_RESTORE", "opens deleted executables of the target"),
];
/// Stands for all of the above but CAP_SYS_PTRACE.
const CAP_SYS_ADMIN: u32 = 21;

/// What this process may do, from `/proc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// Effective capabilities, a bit each.
    pub effective: u64,
    /// `[none]`, or which lockdown mode is in force; empty where the kernel has none.
    pub lockdown: String,
}

impl Privileges {
    /// Those of this process.
    #[must_use]
    pub fn of_self() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
        Self { effective: effective.unwrap_or(0), lockdown: lockdown.trim().to_owned() }
    }

    /// One message with everything that is missing and the command to use instead; `None` if
    /// nothing is.
    #[must_use]
    pub fn missing(&self, again: &str) -> Option<String> {
        let has = |bit: u32| self.effective >> bit & 1 == 1;
        let lacks = |(bit, name, _): &&(u32, &str, &str)| {
            !has(*bit) && (*name == "CAP_SYS_PTRACE" || !has(CAP_SYS_ADMIN))
        };
        let missing: Vec<_> = CAPABILITIES.iter().filter(lacks).collect();
        let locked = self.lockdown.contains("[confidentiality]");
        if missing.is_empty() && !locked {
            return None;
        }
        let mut text = String::from("not permitted to profile. Missing:");
        for (_, name, why) in &missing {
            text += &format!("\n  {name:<24}{why}");
        }
        if locked {
            text += "\n  kernel lockdown is in `confidentiality` mode, which forbids BPF to read \
                     memory; boot without lockdown=confidentiality";
        }
        if !missing.is_empty() {
            text += &format!("\nRun it as root instead:\n  sudo {again}");
            let names: Vec<_> = missing.iter().map(|(_, name, _)| name.to_lowercase()).collect();
            text += &format!(
                "\nor give the program these rights once:\n  sudo setcap {}=ep $(command -v unwind)",
                names.join(",")
            );
        }
        Some(text)
    }
}

/// The highest rate that `kernel.perf_event_max_sample_rate` allows, if it can be read.
#[must_use]
pub fn max_sample_rate() -> Option<u64> {
    fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_capability_is_named_and_root_lacks_none() {
        let root = Privileges { effective: u64::MAX, lockdown: "[none] integrity".into() };
        assert_eq!(root.missing("x"), None);
        let nobody = Privileges::default().missing("unwind run --pid 1").expect("missing");
        for (_, name, _) in CAPABILITIES {
            assert!(nobody.contains(name), "{nobody}");
            let bit = CAPABILITIES.iter().find(|c| c.1 == name).expect("known").0;
            let but_one = Privileges { effective: !(1 << bit | 1 << CAP_SYS_ADMIN), ..root.clone() };
            let text = but_one.missing("x").expect("missing");
            assert_eq!(text.matches("CAP_").count(), 1, "{text}");
        }
        assert!(nobody.contains("sudo unwind run --pid 1"));
        let locked = Privileges { lockdown: "none integrity [confidentiality]".into(), ..root };
        assert!(locked.missing("x").expect("locked").contains("lockdown"));
    }
}
