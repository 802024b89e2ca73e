use std::collections::BTreeMap;

use super::*;

const FILE: &str = r#"seed = 3
duration = "1m"
strategy = "idt"
[[tiers]]
name = "fast"
preset = "pm953"
[[volumes]]
name = "a"
size = "1 GiB"
[[clients]]
volume = "a"
habits = { outstanding = 1 }
[policy]
monitor_epoch = "20s"
"#;

fn sweep(axes: &[&str]) -> Result<Sweep, SweepError> {
    let base = ScenarioFile::parse("s.toml", FILE).unwrap();
    let axes = axes.iter().map(|a| Axis::parse(a).unwrap()).collect();
    Sweep::new(base, axes, vec![], vec![])
}

/// Returns the first error of any point.
fn fault(axes: &[&str]) -> String {
    let sweep = match sweep(axes) {
        Ok(sweep) => sweep,
        Err(error) => return error.to_string(),
    };
    let built = (0..sweep.points()).map(|p| {
        let file = sweep.scenario(p, 1)?;
        let model = file.build(vec![]);
        model.map_err(|fault| sweep.blame(p, fault))
    });
    let error = built.into_iter().find_map(Result::err);
    error.expect("a fault").to_string()
}

#[test]
fn points_are_all_combinations_with_the_last_axis_first() {
    let sweep = sweep(&["policy.hold=1,2", "extent=1 MiB,64 MiB,1 GiB"]).unwrap();
    let labels: Vec<String> = (0..sweep.points())
        .map(|p| label(&sweep.settings(p)))
        .collect();
    assert_eq!(labels.len(), 6);
    assert_eq!(labels[1], "policy.hold=1, extent=64 MiB");
    assert_eq!(labels[3], "policy.hold=2, extent=1 MiB");
    let file = sweep.scenario(4, 9).unwrap();
    assert_eq!(
        (file.scenario.policy.hold, file.scenario.seed),
        (Some(2), 9)
    );
    assert_eq!(file.scenario.extent, units::Bytes::mib(64));
    assert_eq!(
        (sweep.strategies(), sweep.seeds()),
        (&["idt".to_owned()][..], &[3][..])
    );

    let both = vec!["noop".into(), "edt".into()];
    let sweep = Sweep::new(sweep.base.clone(), sweep.axes.clone(), both, vec![5, 4]).unwrap();
    let cells = sweep.cells();
    assert_eq!(cells.len(), 24);
    let shown = |c: &Cell| format!("{} {} {}", c.point, c.strategy, c.seed);
    let first: Vec<String> = cells[..5].iter().map(shown).collect();
    assert_eq!(
        first,
        ["0 noop 5", "0 noop 4", "0 edt 5", "0 edt 4", "1 noop 5"]
    );
}

#[test]
fn fault_of_an_axis_names_key_and_value() {
    for (axes, expected) in [
        (
            &["policy.hodl=1"][..],
            "policy.hodl=1: unknown key, did you mean \"hold\"?",
        ),
        (
            &["polcy.hold=1"],
            "polcy.hold=1: polcy: unknown key, did you mean \"policy\"?",
        ),
        (
            &["strategies.autotiering.agin=0.5"],
            "strategies.autotiering.agin=0.5: unknown key, did you mean \"aging\"?",
        ),
        (
            &["tiers[fats].devices=1"],
            "tiers[fats].devices: tiers: unknown name \"fats\", did you mean \"fast\"?",
        ),
        (
            &["extent=1 MiB", "policy.migration_epoch=2m,60"],
            "policy.migration_epoch=60: invalid type: integer `60`, expected a time such as \"5m\" or \"250us\" with its unit, in quotes",
        ),
        (
            &["policy.hold=1,2", "tiers[fast].devices=1,0"],
            "policy.hold=1, tiers[fast].devices=0: s.toml: tiers[0].devices: 0 is not between 1 and 1024",
        ),
        (
            &["policy.migration_epoch=1m,30s"],
            "policy.migration_epoch=30s: s.toml: policy.migration_epoch: 30s is not a multiple of the monitor epoch (20s), at least twice as long",
        ),
        // The error of a key in the file has the file's line number, also if the sweep adds lines before it.
        (
            &["classes=[{ name = \"x\" }]", "volumes[a].size=0 B"],
            "classes=[{ name = \"x\" }], volumes[a].size=0 B: s.toml:9: volumes[0].size: 0 B is smaller than one page of 4 KiB",
        ),
        (
            &["seed=1,2"],
            "seed: give seeds with --seeds, or with seeds = in a sweep file",
        ),
        (&["about=x"], "about: has no effect on a run"),
        (
            &[
                "clients[*].habits.outstanding=1,2",
                "clients[a].habits={ outstanding = 3 }",
            ],
            "clients[*].habits.outstanding and clients[a].habits set the same key",
        ),
    ] {
        assert_eq!(fault(axes), expected);
    }
    let many: Vec<String> = (0..400).map(|n| n.to_string()).collect();
    let axes: Vec<String> = ["hold", "moves_per_epoch", "concurrent_moves"]
        .map(|key| format!("policy.{key}={}", many.join(",")))
        .into();
    let axes: Vec<&str> = axes.iter().map(String::as_str).collect();
    assert_eq!(
        fault(&axes),
        "64000000 cells exceed the limit of 100000: use a smaller grid"
    );
}

#[test]
fn seeds_are_lists_and_ranges() {
    assert_eq!(parse_seeds("1..3, 9").unwrap(), [1, 2, 3, 9]);
    for (text, why) in [
        ("", "\"\" must be a seed or a range such as 1..5"),
        ("1...3", "\"1...3\" must be a seed or a range such as 1..5"),
        (
            "3..1",
            "range 3..1 is empty: its first seed is above its last",
        ),
        (
            "0..18446744073709551615",
            "0..18446744073709551615 exceeds the limit of 100000 seeds",
        ),
    ] {
        assert_eq!(parse_seeds(text).unwrap_err().to_string(), why);
    }
    let base = ScenarioFile::parse("s.toml", FILE).unwrap();
    let twice = Sweep::new(base, vec![], vec![], vec![1, 1]).unwrap_err();
    assert_eq!(twice.to_string(), "seed 1 is listed twice");
}

#[test]
fn sweep_file_is_equivalent_to_arguments() {
    let text = "scenario = \"s.toml\"\nseeds = \"1..2\"\nstrategies = [\"noop\"]\nmetrics = [\"iops\"]\n\
                [grid]\npolicy.hold = [1, 2]\n";
    let (words, axes, _) = parse_sweep("sweep.toml", text).unwrap();
    assert_eq!(words.seeds.seeds().unwrap(), [1, 2]);
    assert_eq!((axes.len(), axes[0].key.as_str()), (1, "policy.hold"));
    let listed = text.replace("\"1..2\"", "[1, 2]");
    let listed = parse_sweep("sweep.toml", &listed).unwrap().0;
    assert_eq!(listed.seeds.seeds().unwrap(), [1, 2]);
    let fault = |text: &str| parse_sweep("sweep.toml", text).unwrap_err().to_string();
    assert_eq!(
        fault(&text.replace("metrics", "metric")),
        "sweep.toml:4: metric: unknown key, did you mean \"metrics\"?"
    );
    assert_eq!(
        fault(&text.replace("[1, 2]", "[]")),
        "sweep.toml:6: grid: policy.hold: at least one value is needed"
    );
}

/// Exactly the inputs of a cell change its identity.
#[test]
fn cells_are_identical_exactly_if_their_runs_are() {
    let identity = |text: &str, strategy: &str, seed: u64| {
        let base = ScenarioFile::parse("s.toml", text).unwrap();
        let sweep = Sweep::new(base, vec![], vec![strategy.into()], vec![seed]).unwrap();
        let file = sweep.scenario(0, seed).unwrap();
        let cell = sweep.cells().remove(0);
        let uses = file.parameters(strategy).unwrap();
        sweep
            .identity(&file, &cell, uses, &[], &[])
            .unwrap()
            .to_string()
    };
    let first = identity(FILE, "idt", 1);
    let aging = format!("{FILE}[strategies.autotiering]\naging = 0.5\n");
    for same in [
        identity(
            &FILE.replace("duration", "about = \"x\" # more\nduration"),
            "idt",
            1,
        ),
        identity(&FILE.replace("seed = 3", "seed = 4"), "idt", 1),
        identity(&FILE.replace("\"idt\"", "\"noop\""), "idt", 1),
        identity(&FILE.replace("\"1m\"", "\"60s\""), "idt", 1),
        identity(&aging, "idt", 1),
    ] {
        assert_eq!(same, first);
    }
    for other in [
        identity(FILE, "idt", 2),
        identity(FILE, "noop", 1),
        identity(&FILE.replace("\"1m\"", "\"2m\""), "idt", 1),
        identity(&FILE.replace("\"1 GiB\"", "\"2 GiB\""), "idt", 1),
    ] {
        assert_ne!(other, first);
    }
    assert_ne!(
        identity(&aging, "autotiering", 1),
        identity(FILE, "autotiering", 1)
    );
}

#[test]
fn metrics_are_known_by_name_and_group() {
    for name in metric_names().chain(["class[gold].iops", "volume[a.b].latency_read_p99_us"]) {
        assert_eq!(Metric::parse(name).unwrap().name(), name);
    }
    for (name, why) in [
        (
            "latency_p9_us",
            "metric: unknown name \"latency_p9_us\", did you mean \"latency_p95_us\"?",
        ),
        (
            "clas[x].iops",
            "group of metric \"clas[x].iops\": unknown name \"clas\", did you mean \"class\"?",
        ),
        (
            "vm[x].moves_done",
            "metric \"vm[x].moves_done\": moves_done is only available for whole runs",
        ),
        (
            "x].iops",
            "metric \"x].iops\" must have the form class[gold].iops",
        ),
    ] {
        assert_eq!(Metric::parse(name).unwrap_err().to_string(), why);
    }
    let model = ScenarioFile::parse("s.toml", FILE)
        .unwrap()
        .build(vec![])
        .unwrap();
    Metric::parse("volume[a].iops")
        .unwrap()
        .check(&model)
        .unwrap();
    let missing = Metric::parse("tier[fats].iops").unwrap().check(&model);
    assert_eq!(
        missing.unwrap_err().to_string(),
        "metric \"tier[fats].iops\": unknown name \"fats\", did you mean \"fast\"?"
    );
}

#[test]
fn means_are_over_the_seeds_of_a_point_and_a_strategy() {
    let metrics = [Metric::parse("iops").unwrap()];
    let row = |strategy: &str, seed, iops: Option<f64>| CellRow {
        cell: String::new(),
        settings: BTreeMap::new(),
        strategy: strategy.into(),
        seed,
        metrics: BTreeMap::from([("iops".to_owned(), iops)]),
        error: None,
    };
    let rows = [
        row("noop", 1, Some(10.0)),
        row("noop", 2, Some(14.0)),
        row("idt", 1, Some(1.0)),
        row("idt", 2, None),
    ];
    let found = means(&rows, 2, &metrics);
    assert_eq!((found.len(), found[1].strategy.as_str()), (2, "idt"));
    // Student's t for one degree of freedom is 12.706, and the standard error is 2.
    let interval = found[0].metrics["iops"].unwrap();
    assert!((interval.mean - 12.0).abs() < 1e-12 && (interval.half() - 25.412).abs() < 1e-2);
    assert_eq!(found[1].metrics["iops"], None);
    assert!(means(&rows, 1, &metrics).is_empty());
}
