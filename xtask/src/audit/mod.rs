//! `audit`: licences, sources and duplicates of the crates we depend on.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run;

mod licence;

/// Licences that may be in a program under MIT OR Apache-2.0.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that may have another licence, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "inferno",
    "CDDL-1.0",
    "copyleft by file: binds changes to inferno's own files, of which we make none",
)];

/// Crates that may be there in several versions, and why.
const DUPLICATES: &[(&str, &str)] = &[
    (
        "getrandom",
        "inferno's hasher has the old one; the new one is of the property tests",
    ),
    ("syn", "derive macros of different age; compile time only"),
];

/// The only place crates come from, as cargo names it.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks all crates that any feature and target of the workspace on Linux x86-64 can pull in.
pub(crate) fn audit() -> Result<()> {
    let graph = [
        "--locked",
        "--all-features",
        "--filter-platform=x86_64-unknown-linux-gnu",
    ];
    let metadata = run::metadata(&graph)?;
    let packages = packages(&metadata)?;
    let findings = findings(&packages);
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings in {} crates", findings.len(), packages.len());
    }
    println!(
        "{} crates: licences, sources and duplicates are in order",
        packages.len()
    );
    Ok(())
}

/// One crate of others.
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    licence: &'a str,
    source: &'a str,
}

/// The packages in the output of `cargo metadata` that are not the workspace's own.
fn packages(metadata: &Value) -> Result<Vec<Package<'_>>> {
    let all = metadata["packages"]
        .as_array()
        .context("`cargo metadata` lists no packages")?;
    let package = |package| Package {
        name: text(package, "name"),
        version: text(package, "version"),
        licence: text(package, "license"),
        source: text(package, "source"),
    };
    // Our own packages come from no source.
    Ok(all
        .iter()
        .map(package)
        .filter(|package| !package.source.is_empty())
        .collect())
}

/// A field of a package; empty where cargo prints null.
fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or("")
}

/// What is wrong with the packages, a line each.
fn findings(packages: &[Package<'_>]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Package {
        name,
        version,
        licence,
        source,
    } in packages
    {
        versions.entry(name).or_default().insert(version);
        let allowed = |id: &str| {
            let exception = EXCEPTIONS
                .iter()
                .any(|(of, other, _)| (of, other) == (name, &id));
            LICENCES.contains(&id) || exception
        };
        match licence::allowed(licence, allowed) {
            Some(true) => {}
            Some(false) => findings.push(format!("{name} {version}: licence {licence}")),
            None => findings.push(format!("{name} {version}: cannot read licence {licence:?}")),
        }
        if *source != REGISTRY {
            findings.push(format!("{name} {version}: comes from {source}"));
        }
    }
    for (name, versions) in &versions {
        let expected = DUPLICATES.iter().any(|(duplicate, _)| duplicate == name);
        if (versions.len() > 1) != expected {
            let versions = versions.iter().copied().collect::<Vec<_>>().join(", ");
            findings.push(match expected {
                true => {
                    format!("{name} {versions}: no duplicate any more, strike it from the list")
                }
                false => format!("{name} {versions}: duplicate"),
            });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package<'a>(name: &'a str, version: &'a str, licence: &'a str) -> Package<'a> {
        Package {
            name,
            version,
            licence,
            source: REGISTRY,
        }
    }

    /// The duplicates that are expected, so that only the rest is a finding.
    fn expected() -> Vec<Package<'static>> {
        let twice = |name| [package(name, "1.0.0", "MIT"), package(name, "2.0.0", "MIT")];
        DUPLICATES
            .iter()
            .flat_map(|(name, _)| twice(name))
            .collect()
    }

    #[test]
    fn what_is_in_order_is_no_finding() {
        let mut packages = expected();
        packages.push(package("inferno", "0.12.0", "CDDL-1.0"));
        packages.push(package("a", "1.0.0", "GPL-3.0 OR MIT"));
        assert_eq!(findings(&packages), [""; 0]);
    }

    #[test]
    fn licences_sources_and_duplicates_are_findings() {
        let mut packages = expected();
        packages.push(package("a", "1.0.0", "CDDL-1.0"));
        packages.push(package("b", "1.0.0", ""));
        packages.push(Package {
            source: "git+https://example.org/c",
            ..package("c", "1.0.0", "MIT")
        });
        packages.extend([package("d", "1.0.0", "MIT"), package("d", "2.0.0", "MIT")]);
        let found = findings(&packages);
        let expected = [
            "a 1.0.0: licence CDDL-1.0",
            "b 1.0.0: cannot read licence \"\"",
            "c 1.0.0: comes from git+https://example.org/c",
            "d 1.0.0, 2.0.0: duplicate",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_duplicate_that_is_gone_is_struck_from_the_list() {
        let once = [package(DUPLICATES[0].0, "1.0.0", "MIT")];
        assert!(findings(&once)[0].contains("strike it from the list"));
    }

    #[test]
    fn the_workspaces_own_packages_are_not_audited() {
        let metadata = serde_json::json!({"packages": [
            {"name": "ours", "version": "0.1.0", "license": "MIT", "source": null},
            {"name": "theirs", "version": "1.0.0", "license": "MIT", "source": REGISTRY},
        ]});
        let packages = packages(&metadata).unwrap();
        assert_eq!(
            packages
                .iter()
                .map(|package| package.name)
                .collect::<Vec<_>>(),
            ["theirs"]
        );
    }
}
