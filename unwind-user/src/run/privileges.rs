//! Says what is missing, all at once and before anything is started.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// A right that profiling needs, and why.
const CAPABILITIES: [(u32, &str, &str); 4] = [
    (39, "CAP_BPF", "loads the BPF program"),
    (
        38,
        "CAP_PERFMON",
        "attaches it to perf events of other processes",
    ),
    (
        19,
        "CAP_SYS_PTRACE",
        "reads code objects in the target's memory",
    ),
    (
        40,
        "CAP_CHECKPOINT_RESTORE",
        "opens deleted executables of the target",
    ),
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
    /// `kernel.yama.ptrace_scope`; 0 where the kernel has no Yama.
    pub ptrace_scope: u8,
    /// Whether our user namespace is another than the first: rights in it are none over the
    /// kernel.
    pub is_nested: bool,
}

/// Inode of the initial user namespace (`PROC_USER_INIT_INO`), a constant of the kernel.
const INITIAL_USER_NAMESPACE: u64 = 0xeffffffd;

impl Privileges {
    /// Those of this process.
    #[must_use]
    pub fn of_self() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
        let namespace = fs::metadata("/proc/self/ns/user");
        Self {
            effective: effective.unwrap_or(0),
            lockdown: lockdown.trim().to_owned(),
            ptrace_scope: scope
                .ok()
                .and_then(|scope| scope.trim().parse().ok())
                .unwrap_or(0),
            is_nested: namespace.is_ok_and(|meta| meta.ino() != INITIAL_USER_NAMESPACE),
        }
    }

    /// One message with everything that is missing and the command to use instead of `again`;
    /// `None` if nothing is.
    #[must_use]
    pub fn missing(&self, again: &[OsString]) -> Option<String> {
        let has = |bit: u32| !self.is_nested && self.effective >> bit & 1 == 1;
        let lacks = |(bit, name, _): &&(u32, &str, &str)| {
            !has(*bit) && (*name == "CAP_SYS_PTRACE" || !has(CAP_SYS_ADMIN))
        };
        let missing: Vec<_> = CAPABILITIES.iter().filter(lacks).collect();
        let mut lines: Vec<String> = missing
            .iter()
            .map(|(_, name, why)| format!("{name:<24}{why}"))
            .collect();
        if self.is_nested {
            lines.push("(this is a user namespace: rights held in it do not count)".into());
        }
        if self.lockdown.contains("[confidentiality]") {
            lines.push(
                "kernel lockdown is in `confidentiality` mode, which forbids BPF to read memory: \
                 boot without lockdown=confidentiality"
                    .into(),
            );
        }
        if self.ptrace_scope >= 3 {
            lines.push(
                "kernel.yama.ptrace_scope is 3, which forbids to read other processes until the \
                 next boot"
                    .into(),
            );
        }
        if lines.is_empty() {
            return None;
        }
        let mut text = format!(
            "not permitted to profile. Missing:\n  {}",
            lines.join("\n  ")
        );
        if !missing.is_empty() {
            let words: Vec<_> = again.iter().map(quoted).collect();
            // All of them: setcap replaces what the file had.
            let names = CAPABILITIES.map(|(_, name, _)| name.to_lowercase());
            text += &format!("\nRun it as root instead:\n  sudo {}", words.join(" "));
            text += &format!(
                "\nor give the program these rights once:\n  sudo setcap {}=ep {}",
                names.join(","),
                words.first().map_or("unwind", String::as_str),
            );
            text += "\nor sample from outside, where the right to ptrace the process is enough: \
                     --backend remote";
        }
        Some(text)
    }
}

/// A word as a shell takes it.
fn quoted(word: &OsString) -> String {
    let text = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// The highest rate that `kernel.perf_event_max_sample_rate` allows, if it can be read.
#[must_use]
pub fn max_sample_rate() -> Option<u64> {
    fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate")
        .ok()?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_capability_is_named_and_root_lacks_none() {
        let root = Privileges {
            effective: u64::MAX,
            lockdown: "[none] integrity".into(),
            ..Privileges::default()
        };
        assert_eq!(root.missing(&[]), None);
        let again = ["./unwind", "run", "--pid", "1", "-o", "it's a name"].map(OsString::from);
        let nobody = Privileges::default().missing(&again).expect("missing");
        for (bit, name, _) in CAPABILITIES {
            assert!(nobody.contains(name), "{nobody}");
            let but_one = Privileges {
                effective: !(1 << bit | 1 << CAP_SYS_ADMIN),
                ..root.clone()
            };
            let text = but_one.missing(&again).expect("missing");
            assert_eq!(text.matches("CAP_").count(), 1, "{text}");
            assert_eq!(text.matches("cap_").count(), CAPABILITIES.len(), "{text}");
        }
        assert!(
            nobody.contains(r"sudo ./unwind run --pid 1 -o 'it'\''s a name'"),
            "{nobody}"
        );
        assert!(nobody.contains("=ep ./unwind\n"), "{nobody}");
        assert!(nobody.ends_with("--backend remote"), "{nobody}");
    }

    #[test]
    fn what_root_cannot_help_is_named_too() {
        let root = Privileges {
            effective: u64::MAX,
            ..Privileges::default()
        };
        let of = |privileges: Privileges| privileges.missing(&[]).expect("missing");
        let lockdown = "none integrity [confidentiality]".into();
        let locked = of(Privileges {
            lockdown,
            ..root.clone()
        });
        assert!(
            locked.contains("lockdown") && !locked.contains("sudo"),
            "{locked}"
        );
        let yama = of(Privileges {
            ptrace_scope: 3,
            ..root.clone()
        });
        assert!(yama.contains("kernel.yama.ptrace_scope"), "{yama}");
        let nested = of(Privileges {
            is_nested: true,
            ..root
        });
        assert!(
            nested.contains("CAP_BPF") && nested.contains("user namespace"),
            "{nested}"
        );
    }
}
