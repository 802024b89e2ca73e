//! Plans made in advance, carried out by the engine, and metrics of runs.

use decisions::{
    Baseline, MoveTrial, Moves, OfferedLoads, Script, judge, means_us, path_of, solo_violation,
};
use sim::{Model, RunOptions, RunResult, ScenarioFile};
use units::TierId;

use crate::draws::SCENARIO;

fn run(model: &Model, strategy: Box<dyn planner::AnyStrategy>) -> RunResult {
    let options = RunOptions {
        series: false,
        decisions: false,
        optimum: None,
    };
    sim::run(model, strategy, Default::default(), options, &mut |_| {}).unwrap()
}

#[test]
fn scripted_path_is_played_and_its_return_is_counted() {
    let file = ScenarioFile::parse("s.toml", SCENARIO).unwrap();
    let model = file.build(vec![]).unwrap();
    let (fast, slow) = (TierId(0), TierId(1));
    // a moves up in the first epoch; c moves up in the second and back in the fourth.
    let path = vec![vec![fast; 6], vec![slow; 6], vec![slow; 6]];
    let up = run(&model, Box::new(Script::of(&model, &path)));
    // One copy at a time on a device: the move may have to wait for the next plan.
    assert_eq!(path_of(&model, &up, 6)[0][1..], [fast; 5]);
    let offered = OfferedLoads::default();
    let judged = judge(&model, &up, &offered);
    assert_eq!((judged.moves, judged.returns), (2, 0));
    let noop = run(
        &model,
        planner::build("noop", serde_json::Value::Null).unwrap(),
    );
    let stayed = judge(&model, &noop, &offered);
    assert_eq!(stayed.moves, 0);
    assert!(
        judged.violation < 0.6 * stayed.violation,
        "{} {}",
        judged.violation,
        stayed.violation
    );
    assert!(stayed.excess > 0.0 && stayed.possible == 5.0 * 360.0);
    let alone = solo_violation(&model).unwrap();
    assert!(alone <= judged.violation, "{alone}");

    let mut there_and_back = path;
    there_and_back[0][2..].fill(slow);
    let back = run(&model, Box::new(Script::of(&model, &there_and_back)));
    assert_eq!(judge(&model, &back, &OfferedLoads::none()).returns, 1);
}

#[test]
fn replay_without_a_harmful_move_shows_its_harm() {
    let file = ScenarioFile::parse("s.toml", SCENARIO).unwrap();
    let model = file.build(vec![]).unwrap();
    let (fast, slow) = (TierId(0), TierId(1));
    // a comes to the fast tier and becomes faster; b leaves it and becomes slower.
    let path = vec![vec![fast; 6], vec![slow; 6], vec![slow; 6]];
    let own = run(&model, Box::new(Script::of(&model, &path)));
    let begun = |run: &RunResult| {
        run.move_log
            .iter()
            .filter(|m| m.started_s.is_some())
            .count()
    };
    let moves = Moves::of(&model, &own);
    assert_eq!(moves.len(), 2, "{:#?}", own.move_log);
    let replayed = |without| {
        let again = run(&model, Box::new(moves.replay(without)));
        (means_us(&again), begun(&again))
    };
    let (with, count) = replayed(None);
    assert_eq!((&with, count), (&means_us(&own), begun(&own)));
    let harmed: Vec<(String, Option<String>)> = (0..2)
        .filter_map(|i| {
            let (without, left) = replayed(Some(i));
            assert_eq!(left, 1);
            let trial = MoveTrial::of(&model, &with, &without);
            let moved = moves.record(i).volume.clone();
            trial.harms.then_some((moved, trial.volume))
        })
        .collect();
    assert_eq!(harmed, [("b".to_owned(), Some("b".to_owned()))]);
}

#[test]
fn harm_is_measured_against_noop_with_the_same_seed() {
    let file = ScenarioFile::parse("s.toml", SCENARIO).unwrap();
    let model = file.build(vec![]).unwrap();
    let options = RunOptions {
        series: false,
        decisions: false,
        optimum: None,
    };
    let run =
        |strategy| sim::run_with_intervals(&model, strategy, Default::default(), options).unwrap();
    let noop = || planner::build("noop", serde_json::Value::Null).unwrap();
    let (stayed, intervals) = run(noop());
    let baseline = Baseline::new(intervals);
    let same = baseline.harm(&model, &run(noop()).1);
    assert!(same.len() == 3 && same.iter().all(|h| (h.run.mean, h.run.p99) == (1.0, 1.0)));
    let worst = |h: &decisions::VolumeHarm| h.worst.expect("requests enough").mean;
    assert!(same.iter().all(|h| worst(h) == 1.0));
    let slow = vec![vec![TierId(1); 6]; 3];
    let (moved, intervals) = run(Box::new(Script::of(&model, &slow)));
    let harm = baseline.harm(&model, &intervals);
    let [before, after] = [&stayed, &moved].map(|r| means_us(r)[1].unwrap());
    // b left the fast tier.
    assert!((harm[1].run.mean / (after / before) - 1.0).abs() < 1e-6);
    assert!(harm[1].run.mean > 2.0 && harm[1].has_objective && !harm[2].has_objective);
}

/// A volume with an objective next to one with a high load from the second minute on, and an idle device.
const ANSWERED: &str = r#"
seed = 5
duration = "9m"
window = "10s"
[[tiers]]
name = "one"
preset = "pm863"
capacity = "24 GiB"
[[tiers]]
name = "two"
preset = "pm863"
capacity = "24 GiB"
[[classes]]
name = "gold"
latency = "500us"
statistic = "mean"
[[volumes]]
name = "orders"
class = "gold"
size = "4 GiB"
tier = "one"
[[volumes]]
name = "batch"
size = "8 GiB"
tier = "one"
[[clients]]
volume = "orders"
habits = { outstanding = 8, read_share = 0.95, random_share = 1.0, rate = "1000 IOPS" }
[[clients]]
volume = "batch"
habits = { outstanding = 64, read_share = 0.3, random_share = 1.0, rate = "500 IOPS", sizes = [{ size = "32 KiB", share = 1.0 }] }
phases = [
  { duration = "2m", habits = {} },
  { duration = "7m", habits = { rate = "40000 IOPS" } },
]
[response]
remedies = ["move"]
[response.workflow.detect]
samples = 6
violating_min = 5
[policy]
monitor_epoch = "30s"
migration_epoch = "3m"
"#;

#[test]
fn remedial_move_is_no_decision_of_the_strategy() {
    let file = ScenarioFile::parse("s.toml", ANSWERED).unwrap();
    let model = file.build(vec![]).unwrap();
    let noop = || planner::build("noop", serde_json::Value::Null).unwrap();
    let answered = run(&model, noop());
    assert_eq!(answered.moves.done, 1, "{:#?}", answered.response);
    let judged = judge(&model, &answered, &OfferedLoads::default());
    assert_eq!((judged.moves, judged.remedies, judged.bytes), (0, 1, 0));
    // The tiers planned by the strategy.
    let begin: Vec<_> = vec![vec![TierId(0); 3]; 2];
    assert_eq!(path_of(&model, &answered, 3), begin);
    // Alone, it is not moved, and needs no remedy.
    let alone = solo_violation(&model).unwrap();
    assert!(alone <= judged.violation, "{alone}");
}
