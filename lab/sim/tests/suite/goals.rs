//! Goals, gates and named devices of the policy: from the scenario's keys to the moves.

use model::{Outcome, Rejection};
use planner::build;
use sim::{Manifest, RunOptions, RunResult, ScenarioFile};

const ARRAY: &str = r#"
duration = "3m"
copy_chunk = "1 MiB"

[[tiers]]
name = "fast"
preset = "pm953"
members = [{ name = "nvme-0", capacity = "4 GiB" }, { name = "nvme-1", capacity = "2 GiB" }]

[[tiers]]
name = "slow"
preset = "pm863"
capacity = "12 GiB"

[policy]
monitor_epoch = "10s"
migration_epoch = "30s"

[[volumes]]
name = "busy"
size = "2 GiB"
tier = "slow"

[[volumes]]
name = "idle"
size = "1500 MiB"
device = "nvme-1"

[[clients]]
volume = "busy"
habits = { outstanding = 4 }

[[clients]]
volume = "idle"
habits = { outstanding = 1, rate = "20 IOPS" }
"#;

fn run(text: &str, strategy: &str) -> RunResult {
    let model = ScenarioFile::parse("goals.toml", text)
        .and_then(|file| file.build(vec![]))
        .unwrap_or_else(|e| panic!("{e}"));
    let manifest = Manifest {
        strategy: strategy.into(),
        ..Manifest::default()
    };
    let options = RunOptions {
        series: false,
        decisions: true,
        optimum: None,
    };
    let strategy = build(strategy, serde_json::Value::Null).unwrap();
    sim::run(&model, strategy, manifest, options, &mut |_| {}).unwrap()
}

fn fault(text: &str) -> String {
    let file = ScenarioFile::parse("goals.toml", text);
    let model = file.and_then(|file| file.build(vec![]));
    model.err().expect("a fault").to_string()
}

fn tier_at_end<'a>(result: &'a RunResult, volume: &str) -> &'a str {
    &result.final_tiers.iter().find(|t| t.0 == volume).unwrap().1
}

fn with_policy(keys: &str) -> String {
    ARRAY.replace("[policy]\n", &format!("[policy]\n{keys}\n"))
}

#[test]
fn volume_starts_on_the_named_device() {
    let model = ScenarioFile::parse("goals.toml", ARRAY)
        .unwrap()
        .build(vec![])
        .unwrap();
    let of = |volume: usize| &model.topology.device(model.volumes[volume].device).name;
    assert_eq!((of(0).as_str(), of(1).as_str()), ("slow", "nvme-1"));
    let both = ARRAY.replace(
        "device = \"nvme-1\"",
        "device = \"nvme-1\"\ntier = \"slow\"",
    );
    assert!(
        fault(&both).contains("volumes[1].device: device \"nvme-1\" belongs to tier \"fast\""),
        "{}",
        fault(&both)
    );
    let typo = ARRAY.replace("device = \"nvme-1\"", "device = \"nvme-11\"");
    assert!(fault(&typo).contains("did you mean \"nvme-1\"?"));
    let large = ARRAY.replace("1500 MiB", "3 GiB");
    assert!(
        fault(&large).contains("volumes[1].device: no space"),
        "{}",
        fault(&large)
    );
}

#[test]
fn draining_tier_is_empty_at_the_end() {
    let result = run(&with_policy("drain = [\"fast\"]"), "idt");
    assert_eq!(tier_at_end(&result, "idle"), "slow");
    assert!(result.move_log.iter().all(|m| m.to != "fast"));
    assert_eq!(result.move_log[0].reason, "tier fast is being drained");
}

#[test]
fn overfull_device_demotes_its_least_used_volume() {
    let result = run(&with_policy("space_high = 0.5"), "noop");
    assert_eq!(tier_at_end(&result, "idle"), "slow");
    assert_eq!(tier_at_end(&result, "busy"), "slow");
    assert_eq!(result.move_log.len(), 1, "{:?}", result.move_log);
    assert!(run(ARRAY, "noop").move_log.is_empty());
}

#[test]
fn gates_delay_moves_of_a_strategy() {
    let moved_s = |keys: &str| {
        let result = run(&with_policy(keys), "idt");
        let first = result.move_log.iter().find(|m| m.volume == "busy");
        first.map(|m| m.planned_s)
    };
    assert_eq!(moved_s(""), Some(30.0));
    assert_eq!(moved_s("hold = 3"), Some(90.0));
    // The volume never moved, so the cooldown does not apply.
    assert_eq!(moved_s("cooldown = \"1h\""), Some(30.0));
}

/// The tier has room for one volume: first for the busy one, and for the other one when the first becomes idle.
#[test]
fn volumes_cool_down_after_their_moves() {
    let phases = "phases = [{ duration = \"60s\" }, { duration = \"10m\", idle = true }]";
    let habits = "habits = { outstanding = 4 }";
    let moves = |cooldown: &str| {
        let text = with_policy(&format!("cooldown = \"{cooldown}\""));
        let devices = "{ name = \"nvme-0\", capacity = \"4 GiB\" }, { name = \"nvme-1\", capacity = \"2 GiB\" }";
        let one = "{ name = \"nvme-1\", capacity = \"3 GiB\" }";
        assert!(text.contains(devices));
        let text = text.replace(devices, one);
        let result = run(&text.replace(habits, &format!("{habits}\n{phases}")), "idt");
        let rows = result.decisions.iter().flatten().flat_map(|d| &d.volumes);
        let resting = |row: &&model::VolumeReport| match &row.outcome {
            Outcome::Held { by, .. } => matches!(by, Rejection::Cooldown { .. }),
            _ => false,
        };
        (result.move_log.len(), rows.filter(resting).count())
    };
    assert_eq!(moves("0s"), (4, 0));
    let (moved, held) = moves("1h");
    assert_eq!(moved, 2);
    assert!(held >= 2, "{held}");
}
