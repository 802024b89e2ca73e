//! Plans that were made beforehand, in the engine; runs as they are judged.

use decisions::{Offered, Script, judge, path_of, solo_violation};
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
fn a_path_is_played_and_read_back_and_moving_back_without_cause_is_told() {
    let file = ScenarioFile::parse("s.toml", SCENARIO).unwrap();
    let model = file.build(vec![]).unwrap();
    let (fast, slow) = (TierId(0), TierId(1));
    // a goes up in the first epoch, c goes up in the second and back in the fourth.
    let path = vec![vec![fast; 6], vec![slow; 6], vec![slow; 6]];
    let up = run(&model, Box::new(Script::of(&model, &path)));
    // One copy at a time on a device: it may have to wait for the next plan.
    assert_eq!(path_of(&model, &up, 6)[0][1..], [fast; 5]);
    let offered = Offered::of(&model);
    let judged = judge(&model, &up, &offered);
    assert_eq!((judged.moves, judged.back), (2, 0));
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
    assert_eq!(judge(&model, &back, &Offered::none()).back, 1);
}
