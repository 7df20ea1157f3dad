//! The running kernel's release, of which too old ones are refused in words.

use std::fs;

/// The oldest kernel that runs the BPF program: it needs `bpf_loop`.
pub(super) const OLDEST: (u32, u32) = (5, 17);

/// The running kernel's release if it is too old, such as `5.10.0-32-cloud-amd64`.
#[must_use]
pub(super) fn too_old() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let release = release.trim();
    (numbers(release)? < OLDEST).then(|| release.to_owned())
}

/// The first two numbers of a release.
fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_releases_of_distributions() {
        assert_eq!(numbers("5.10.0-32-cloud-amd64"), Some((5, 10)));
        assert_eq!(numbers("6.12.117+deb13-amd64"), Some((6, 12)));
        assert_eq!(numbers("7.2-rc1"), Some((7, 2)));
        assert_eq!(numbers("linux"), None);
        assert!(numbers("5.9.1") < Some(OLDEST), "numbers, not digits");
    }
}
