//! Scenario of the comparison between live and simulated runs (`tests/timing/agreement.rs`): the simulation moves
//! volumes by their load.

use sim::{Manifest, RunOptions, ScenarioFile};

const SCENARIO: &str = include_str!("../timing/agreement/scenario.toml");

/// The busier of two volumes is on the faster tier, also after the volumes change roles.
#[test]
fn scenario_moves_the_busier_volume_to_the_faster_tier() {
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
