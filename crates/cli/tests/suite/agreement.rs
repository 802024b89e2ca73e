//! The scenario by which live and simulated runs are compared (`tests/timing/agreement.rs`): its moves mean something.

use sim::{Manifest, RunOptions, ScenarioFile};

const SCENARIO: &str = include_str!("../timing/agreement/scenario.toml");

/// Who is busy goes up, and down again when another one is busier.
#[test]
fn the_scenario_moves_by_load() {
    let file = ScenarioFile::parse("scenario.toml", SCENARIO).unwrap();
    let model = file.build(vec![]).unwrap();
    let strategy = file.strategy(&file.scenario.strategy).unwrap();
    let options = RunOptions {
        series: false,
        decisions: false,
        optimum: None,
    };
    let result = sim::run(&model, strategy, Manifest::default(), options, &mut |_| {}).unwrap();
    let mut moves: Vec<_> = result.move_log.iter().collect();
    moves.sort_by(|a, b| a.started_s.partial_cmp(&b.started_s).unwrap());
    assert!(
        moves.iter().all(|m| m.state == model::JobStatus::Done),
        "{moves:?}"
    );
    let moves_of = |volume: &str| -> Vec<&str> {
        let of_volume = moves.iter().filter(|m| m.volume == volume);
        of_volume.map(|m| m.to.as_str()).collect()
    };
    assert_eq!(moves_of("db"), ["fast", "middle"]);
    assert_eq!(moves_of("web"), ["middle", "fast"]);
    assert_eq!(moves.len(), 5);
}
