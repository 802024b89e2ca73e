//! Tests of the metrics against the text format of Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use crate::support::{Fake, World};

/// One series.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Reads the text format strictly: each metric once, with help and type before its series, no series twice, known escapes only.
fn parse(text: &str) -> (BTreeMap<String, String>, Vec<Sample>) {
    assert!(text.ends_with('\n'));
    let (mut types, mut samples) = (BTreeMap::new(), vec![]);
    let (mut helped, mut current) = (String::new(), String::new());
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helped = rest.split_once(' ').expect("a name and help").0.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(name, helped, "help comes first");
            assert!(
                types.insert(name.to_owned(), kind.to_owned()).is_none(),
                "{name} twice"
            );
            assert!(is_name(name) && name.starts_with("terrace_"), "{name}");
            assert_eq!(
                kind == "counter",
                name.ends_with("_total"),
                "{name} is a {kind}"
            );
            current = name.to_owned();
        } else {
            let sample = parse_sample(line);
            let suffix = sample
                .name
                .strip_prefix(&current)
                .expect("below its own type");
            let histogram = types[&current] == "histogram";
            let expected: &[&str] = if histogram {
                &["_bucket", "_sum", "_count"]
            } else {
                &[""]
            };
            assert!(expected.contains(&suffix), "{line}");
            let key = format!("{} {:?}", sample.name, sample.labels);
            assert!(seen.insert(key), "twice: {line}");
            samples.push(sample);
        }
    }
    (types, samples)
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(plain) && name.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn parse_sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a name ends");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label");
            assert!(is_name(label), "{line}");
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().expect("a value ends") {
                    (i, '"') => break i,
                    (_, '\\') => value.push(match chars.next().expect("an escape").1 {
                        'n' => '\n',
                        c @ ('"' | '\\') => c,
                        c => panic!("\\{c} is no escape: {line}"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break rest = rest.strip_prefix('}').expect("labels end"),
            }
        }
    }
    let value = rest.strip_prefix(' ').expect("a space before the value");
    let value = value.parse().unwrap_or_else(|e| panic!("{e}: {line}"));
    let name = name.to_owned();
    Sample {
        name,
        labels,
        value,
    }
}

#[test]
fn metrics_text_parses_and_has_the_expected_series() {
    let mut fake = Fake::new(12);
    fake.counters.volumes[0].volume = "odd \"name\"\\with\nall".into();
    let world = World::start(fake);
    let text = world.local().metrics().unwrap();
    let (types, samples) = parse(&text);
    for name in [
        "terrace_volume_read_latency_seconds",
        "terrace_volume_write_latency_seconds",
        "terrace_volume_reads_total",
        "terrace_volume_writes_total",
        "terrace_volume_read_bytes_total",
        "terrace_volume_write_bytes_total",
        "terrace_volume_errors_total",
        "terrace_device_errors_total",
        "terrace_volume_from_cache_total",
        "terrace_volume_slo_violation_seconds_total",
        "terrace_volume_slo_target_seconds",
        "terrace_tier_size_bytes",
        "terrace_tier_used_bytes",
        "terrace_device_utilization_ratio",
        "terrace_moves_total",
        "terrace_moved_bytes_total",
        "terrace_plans_total",
        "terrace_move_prediction_error_ratio",
        "terrace_trusted",
        "terrace_paused",
        "terrace_host_up",
        "terrace_host_report_age_seconds",
        "terrace_jobs",
        "terrace_moves_proposed",
        "terrace_objectives_violated",
        "terrace_volumes_held",
        "terrace_remedies_total",
        "terrace_build_info",
    ] {
        assert!(types.contains_key(name), "{name}");
    }
    let value = |name: &str, labels: &[(&str, &str)]| {
        let fits = |s: &&Sample| {
            let has = |(k, v): &(&str, &str)| s.labels.get(*k).is_some_and(|x| x == v);
            s.name == name && labels.iter().all(has)
        };
        let found: Vec<&Sample> = samples.iter().filter(fits).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}");
        found[0].value
    };
    let ordered = [("remedy", "throttle"), ("what", "ordered")];
    assert_eq!(value("terrace_remedies_total", &ordered), 2.0);
    // Metrics of the only cached volume.
    assert_eq!(value("terrace_volume_from_cache_total", &[]), 7.0);
    assert_eq!(
        value(
            "terrace_moves_total",
            &[("goal", "latency"), ("end", "done")]
        ),
        14.0
    );
    assert_eq!(
        value(
            "terrace_volume_slo_violation_seconds_total",
            &[("volume", "mail")]
        ),
        155.5
    );
    assert_eq!(
        value(
            "terrace_volume_slo_target_seconds",
            &[("volume", "db-main")]
        ),
        0.001
    );
    assert_eq!(
        value(
            "terrace_volume_errors_total",
            &[("volume", "odd \"name\"\\with\nall")]
        ),
        3.0
    );
    assert_eq!(
        value(
            "terrace_device_errors_total",
            &[("device", "nvme0"), ("op", "write"), ("errno", "EIO")]
        ),
        7.0
    );
    assert_eq!(value("terrace_host_up", &[("host", "alpha")]), 1.0);
    assert_eq!(
        value("terrace_device_utilization_ratio", &[("device", "nvme0")]),
        0.63
    );
    let lent = |name, store| value(name, &[("host", "alpha"), ("store", store)]);
    let gib = f64::from(1 << 30);
    assert_eq!(lent("terrace_host_lends_bytes", "memory"), 64.0 * gib);
    assert_eq!(lent("terrace_host_lends_bytes", "flash"), 512.0 * gib);
    assert_eq!(lent("terrace_host_lent_bytes", "memory"), 3.0 * gib);
    // An unknown value has no sample.
    assert!(!text.contains("terrace_device_utilization_ratio{host=\"alpha\",tier=\"slow\""));
    check_histograms(&samples);
    let allowed = [
        "host", "volume", "class", "tier", "device", "goal", "end", "le", "version", "strategy",
        "kind", "subject", "op", "errno", "remedy", "what", "store", "reason",
    ];
    for sample in &samples {
        assert!(
            sample.labels.keys().all(|l| allowed.contains(&l.as_str())),
            "{sample:?}"
        );
    }
    with_promtool(&text);
}

/// Checks that buckets rise, and end with the count.
fn check_histograms(samples: &[Sample]) {
    let mut checked = 0;
    for count in samples
        .iter()
        .filter(|s| s.name.ends_with("_seconds_count"))
    {
        let bucket = count.name.replace("_count", "_bucket");
        let mut bounds: Vec<(f64, f64)> = samples
            .iter()
            .filter(|s| s.name == bucket && s.labels["volume"] == count.labels["volume"])
            .map(|s| (s.labels["le"].parse().unwrap(), s.value))
            .collect();
        assert!(
            bounds.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
            "{bounds:?}"
        );
        assert_eq!(bounds.pop(), Some((f64::INFINITY, count.value)));
        assert_eq!(bounds.len(), manager::view::LATENCY_BOUNDS_NS.len());
        checked += 1;
    }
    assert_eq!(checked, 24);
}

/// Checks the metrics with `promtool`, if it is installed.
fn with_promtool(text: &str) {
    let spawned = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        println!("not asked: promtool is not here");
        return;
    };
    use std::io::Write;
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
}
