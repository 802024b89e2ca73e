//! Simulated host with faults of agent, controller and messages, as they occur in live operation.

use sim::{Manifest, RunOptions, RunResult, ScenarioFile};

/// A volume that a pin promotes, one that is drained, and a small one.
const SCENARIO: &str = r#"
duration = "20m"
window = "10s"
copy_chunk = "1 MiB"
[[tiers]]
name = "fast"
preset = "pm953"
capacity = "8 GiB"
[[tiers]]
name = "slow"
preset = "pm863"
[[volumes]]
name = "a"
size = "2 GiB"
tier = "slow"
[[volumes]]
name = "b"
size = "1 GiB"
tier = "slow"
[[clients]]
volume = "a"
habits = { outstanding = 2, rate = "100 IOPS" }
[[clients]]
volume = "b"
habits = { outstanding = 2, rate = "100 IOPS" }
[policy]
monitor_epoch = "30s"
migration_epoch = "1m"
copy_bandwidth = "10 MiB/s"
concurrent_moves = 1
pins = { a = "fast" }
"#;

fn run(more: &str) -> RunResult {
    run_from("", more)
}

fn run_from(first: &str, more: &str) -> RunResult {
    let text = format!("{first}{SCENARIO}{more}");
    let file = ScenarioFile::parse("faults.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let model = file.build(vec![]).unwrap_or_else(|e| panic!("{e}"));
    let strategy = planner::build("noop", Default::default()).unwrap();
    let options = RunOptions {
        series: true,
        decisions: true,
        optimum: None,
    };
    sim::run(&model, strategy, Manifest::default(), options, &mut |_| {}).unwrap()
}

fn fault(more: &str) -> String {
    let file = ScenarioFile::parse("faults.toml", &format!("{SCENARIO}{more}"));
    let built = file.and_then(|f| f.build(vec![]).map(|_| ()));
    built.unwrap_err().to_string()
}

/// Returns the time of the first event with this text, seconds.
fn noted(result: &RunResult, text: &str) -> Option<f64> {
    let event = result.events.iter().find(|e| e.text.contains(text))?;
    Some(event.at_ns as f64 / 1e9)
}

const AGENT_LOST: &str = "[faults]\nagent_lost = [{ at = \"100s\", lasting = \"150s\" }]\n";

#[test]
fn move_continues_without_its_agent_and_is_resumed() {
    let (whole, lost) = (run(""), run(AGENT_LOST));
    assert!(whole.events.is_empty(), "nobody asked");
    let job = |r: &RunResult| {
        let [job] = &r.move_log[..] else {
            panic!("{:?}", r.move_log)
        };
        assert_eq!((job.state.name(), job.volume.as_str()), ("done", "a"));
        assert_eq!(job.bytes >> 30, 2);
        (job.started_s.unwrap(), job.ended_s.unwrap())
    };
    let ((began, ended), (again, told)) = (job(&whole), job(&lost));
    assert_eq!((began, again), (60.0, 60.0));
    // The move takes 205 s. The next agent finds it in progress, and learns of it with the reply to its first window.
    assert!((264.0..267.0).contains(&ended), "{ended}");
    assert!((ended..ended + 1.0).contains(&told), "{told}");
    assert_eq!(noted(&lost, "host array is late"), Some(130.0));
    assert_eq!(noted(&lost, "host array is lost"), Some(170.0));
    let registered: Vec<u64> = lost
        .events
        .iter()
        .filter(|e| e.text.contains("registered"))
        .map(|e| e.at_ns / 1_000_000_000)
        .collect();
    assert_eq!(registered, [0, 250]);
    // No decision about the host was made in the meantime.
    let decided = |r: &RunResult| r.decisions.as_ref().unwrap().len();
    assert!(decided(&lost) < decided(&whole));
}

#[test]
fn returning_agent_waits_until_the_lost_one_expires() {
    let result = run("[faults]\nagent_lost = [{ at = \"100s\", lasting = \"5s\" }]\n");
    assert_eq!(
        noted(
            &result,
            "the controller rejected the registration: another agent"
        ),
        Some(105.0)
    );
    let registered = result
        .events
        .iter()
        .filter(|e| e.text.contains("registered ("))
        .count();
    assert_eq!(registered, 2);
    assert_eq!(result.moves.done, 1);
}

#[test]
fn lost_agent_starts_no_orders_from_late_replies() {
    let result = run(
        "[faults]\nlate_reports = 1.0\nlate_by = \"9s\"\nagent_lost = [{ at = \"60100ms\", lasting = \"100s\" }]\n",
    );
    let [job] = &result.move_log[..] else {
        panic!("{:?}", result.move_log)
    };
    // The order is given while the agent cannot receive it. The move takes 205 s.
    assert!(job.ended_s.unwrap() >= 160.1 + 204.0, "{job:?}");
}

#[test]
fn pause_stops_new_moves_and_running_ones_continue() {
    let result =
        run("[[operator]]\nat = \"30s\"\npause = true\n[[operator]]\nat = \"5m\"\npause = false\n");
    let [job] = &result.move_log[..] else {
        panic!("{:?}", result.move_log)
    };
    assert_eq!(job.state, model::JobStatus::Done);
    assert!((300.0..=310.0).contains(&job.started_s.unwrap()), "{job:?}");
    let result = run("[[operator]]\nat = \"100s\"\npause = true\n");
    assert_eq!(result.moves.done, 1, "it had begun");
}

#[test]
fn modes_hours_and_approvals_are_those_of_a_live_controller() {
    let recommend = "[modes]\nrules = \"recommend\"\n";
    assert!(run(recommend).move_log.is_empty(), "nobody approved");
    let applied = run(&format!(
        "{recommend}[[operator]]\nat = \"185s\"\napply = true\n"
    ));
    let [job] = &applied.move_log[..] else {
        panic!("{:?}", applied.move_log)
    };
    assert_eq!((job.state.name(), job.started_s), ("done", Some(185.0)));
    assert!(noted(&applied, "approved").is_some());
    // The order is sent with the next window.
    let took = job.ended_s.unwrap() - 190.0;
    assert!((204.0..207.0).contains(&took), "{took}");
    let hours = run_from(
        "begins = \"Mon 21:55\"\n",
        "[hours]\nmoves = [\"22:00-23:00\"]\n",
    );
    let [job] = &hours.move_log[..] else {
        panic!("{:?}", hours.move_log)
    };
    assert_eq!(job.started_s, Some(300.0));
}

#[test]
fn orders_to_drain_pin_and_cancel_take_effect() {
    let result = run(
        "[[operator]]\nat = \"100s\"\ncancel = [\"a\"]\n[[operator]]\nat = \"101s\"\npins = { a = \"\", b = \"fast\" }\n",
    );
    let states: Vec<_> = result
        .move_log
        .iter()
        .map(|m| (m.volume.as_str(), m.state.name()))
        .collect();
    assert_eq!(states, [("a", "cancelled"), ("b", "done")]);
    assert!(result.moves.bytes > 1 << 30, "a part of a was copied too");
    let result = run(
        "[[operator]]\nat = \"5m\"\ntiers = { fast = \"draining\" }\n[[operator]]\nat = \"5m\"\npins = { a = \"\" }\n",
    );
    let back: Vec<_> = result
        .move_log
        .iter()
        .map(|m| (m.from.as_str(), m.to.as_str()))
        .collect();
    assert_eq!(back, [("slow", "fast"), ("fast", "slow")]);
}

const FLAKY: &str = "[faults]\nseed = 7\nlost_reports = 0.2\nlost_replies = 0.2\nlate_reports = 0.3\nlate_by = \"40s\"\nagent_lost = [{ at = \"2m\", lasting = \"1m\" }]\n[[operator]]\nat = \"6m\"\npins = { b = \"fast\" }\n";

#[test]
fn unreliable_reports_delay_moves_and_change_no_outcome() {
    let result = run(FLAKY);
    let mut moves: Vec<_> = result
        .move_log
        .iter()
        .map(|m| (m.volume.as_str(), m.state.name(), m.bytes >> 30))
        .collect();
    moves.sort_unstable();
    assert_eq!(moves, [("a", "done", 2), ("b", "done", 1)]);
    assert_eq!(
        result.final_tiers,
        [("a".into(), "fast".into()), ("b".into(), "fast".into())]
    );
    let json = |r: &RunResult| serde_json::to_string(r).unwrap();
    assert_eq!(json(&result), json(&run(FLAKY)), "the same bytes");
    assert_ne!(
        json(&result),
        json(&run(&FLAKY.replace("seed = 7", "seed = 8")))
    );
}

#[test]
fn invalid_faults_and_orders_are_refused_with_their_line() {
    for (more, told) in [
        (
            "[faults]\nlost_reports = 1.5\n",
            "faults.lost_reports: must be a share from 0 to 1, not 1.5",
        ),
        (
            "[[operator]]\nat = \"1m\"\npins = { c = \"fast\" }\n",
            "operator[0].pins",
        ),
        (
            "[[operator]]\nat = \"1m\"\ntiers = { mid = \"open\" }\n",
            "operator[0].tiers",
        ),
        (
            "[faults]\nagent_lost = [{ at = \"1m\", lasting = \"1m\" }, { at = \"90s\", lasting = \"1m\" }]\n",
            "faults.agent_lost",
        ),
        ("[hours]\nmoves = [\"25:00-26:00\"]\n", "hours"),
    ] {
        let said = fault(more);
        assert!(
            said.starts_with("faults.toml:") && said.contains(told),
            "{said}"
        );
    }
}

#[test]
fn reports_without_percentiles_change_only_controller_data() {
    let class = "[[classes]]\nname = \"default\"\nlatency = \"200us\"\nstatistic = \"p95\"\n";
    let result = |faults: &str| run(&format!("{class}[faults]\n{faults}"));
    let (all, means) = (
        result("seed = 7\n"),
        result("seed = 7\nmeans_only = true\n"),
    );
    let texts = |r: &RunResult| -> Vec<String> {
        let violated = |e: &&sim::RunEvent| e.text.contains("violates the objective");
        r.events
            .iter()
            .filter(violated)
            .map(|e| e.text.clone())
            .collect()
    };
    assert!(!texts(&all).is_empty());
    assert_ne!(texts(&all), texts(&means));
    let violated_s = |r: &RunResult| r.total().slo_violation_s;
    assert!(violated_s(&all) > Some(0.0));
    assert_eq!(violated_s(&all), violated_s(&means));
}
