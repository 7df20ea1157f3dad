//! Every format has all the samples.

use super::super::folded::parse_line;
use super::*;

fn folded(profile: &Profile, options: &Options) -> u64 {
    let text = string(Format::Folded, profile, options);
    text.lines()
        .map(|line| parse_line(line).unwrap().count)
        .sum()
}

fn flamegraph(profile: &Profile, options: &Options) -> u64 {
    let svg = string(Format::Flamegraph, profile, options);
    let Some((_, rest)) = svg.split_once(r#"total_samples=""#) else {
        return 0;
    };
    rest.split_once('"').unwrap().0.parse().unwrap()
}

fn pprof(profile: &Profile, options: &Options) -> u64 {
    let message = pprof::decode(profile, options);
    let cpu: i64 = message.sample.iter().map(|sample| sample.value[1]).sum();
    let samples = message
        .sample
        .iter()
        .map(|sample| sample.value[0])
        .sum::<i64>() as u64;
    assert_eq!(cpu as u64, samples * PERIOD_NS);
    samples
}

fn speedscope(profile: &Profile, options: &Options) -> u64 {
    let file = speedscope::parse(profile, options);
    let profiles = file["profiles"].as_array().unwrap();
    profiles
        .iter()
        .map(|profile| profile["endValue"].as_u64().unwrap() / PERIOD_NS)
        .sum()
}

proptest! {
    #[test]
    fn no_sample_is_lost_or_added(profile in any_profile(), options in options()) {
        let total = profile.total();
        prop_assert_eq!(folded(&profile, &options), total);
        prop_assert_eq!(flamegraph(&profile, &options), total);
        prop_assert_eq!(pprof(&profile, &options), total);
        prop_assert_eq!(speedscope(&profile, &options), total);
    }
}
