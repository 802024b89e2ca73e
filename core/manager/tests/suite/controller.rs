//! The controller, as an agent and as people meet it.

mod bounds;
mod exports;
mod failures;
mod goals;
mod host;
mod lease;
mod place;
mod problem;
mod python;
mod reload;
mod reports;
mod responses;
mod responses_ahead;
mod responses_appliance;
mod responses_cache;
mod responses_lend;
mod responses_mirror;
mod responses_move;
mod responses_real;
mod restarts;
mod throttles;

use host::{BASE, Host, volume};
use manager::question::{Answer, Choice, Question, Refusal};
use manager::view::MoveState;
use manager::wire::JobProgress;
use model::Goal;
use model::JobStatus;
use model::Mode;

/// The busiest volume is on the slowest tier.
fn upside_down() -> Vec<host::FakeVolume> {
    vec![
        volume("busy", "slow", "slow-0", 800, 900),
        volume("idle", "fast", "fast-0", 10, 100),
    ]
}

fn with(extra: &str) -> String {
    format!("{BASE}{extra}")
}

const AUTO: &str =
    "[modes]\ndrain = \"auto\"\nrules = \"auto\"\nspace = \"auto\"\nlatency = \"auto\"\n";

/// A host that has been ordered its first move, with the job's number.
fn with_a_job() -> (Host, u32) {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.until_plan();
    host.windows(1);
    let job = host.ordered()[0];
    (host, job)
}

fn choice(generation: u64, moves: Option<Vec<u32>>) -> Choice {
    Choice {
        host: None,
        generation,
        moves,
    }
}

#[test]
fn moves_wait_for_approval_by_default() {
    let mut host = Host::new(BASE, upside_down());
    let plan = host.until_plan();
    assert!(!plan.moves.is_empty(), "{plan:?}");
    let MoveState::Proposed { why } = &plan.moves[0].state else {
        panic!("{plan:?}")
    };
    assert_eq!(why, "the mode of latency is recommend");
    host.windows(3);
    assert!(host.ordered().is_empty());
    let plan = host.until_plan();
    let old = host.ask(Question::Apply(choice(plan.generation - 1, None)));
    assert!(
        matches!(&old, Err(Refusal::Conflict(why)) if why.contains("superseded by plan")),
        "{old:?}"
    );
    let none = host.ask(Question::Apply(choice(plan.generation, Some(vec![9]))));
    assert!(
        matches!(&none, Err(Refusal::NotFound(why)) if why.contains("move 9 does not exist")),
        "{none:?}"
    );
    let said = host.order(Question::Apply(choice(plan.generation, Some(vec![0]))));
    assert_eq!(said, format!("1 move of plan {} approved", plan.generation));
    host.windows(1);
    assert_eq!(host.ordered(), [plan.moves[0].job.unwrap()]);
    let again = host.ask(Question::Apply(choice(plan.generation, Some(vec![0]))));
    assert!(
        matches!(&again, Err(Refusal::Conflict(why)) if why.contains("no longer pending")),
        "{again:?}"
    );
}

#[test]
fn rejected_move_is_not_carried_out_and_its_reason_is_kept() {
    let mut host = Host::new(BASE, upside_down());
    let plan = host.until_plan();
    host.order(Question::Reject(choice(plan.generation, None)));
    let plan = host.plan().unwrap();
    assert!(
        matches!(&plan.moves[0].state, MoveState::Ended { why } if why == "rejected by somebody")
    );
    host.windows(1);
    assert!(host.ordered().is_empty());
}

#[test]
fn automatic_moves_are_ordered_completed_and_evaluated() {
    let mut host = Host::new(&with(AUTO), upside_down());
    let plan = host.until_plan();
    host.windows(1);
    let job = plan.moves[0].job.unwrap();
    assert!(host.ordered().contains(&job), "{:?}", host.ordered());
    host.progress(
        job,
        JobProgress::Copying {
            copied_bytes: 1 << 20,
            left_bytes: 1 << 20,
            rate_bytes_per_s: 1 << 20,
        },
    );
    host.windows(1);
    let view = host.job(job);
    assert_eq!(
        (view.state, view.left_bytes, view.eta_ns),
        (JobStatus::Active, 1 << 20, Some(1_000_000_000))
    );
    host.finish(job, 100);
    host.windows(1);
    assert_eq!(host.job(job).state, JobStatus::Done);
    assert!(!host.ordered().contains(&job), "it is not ordered again");
    let said = host.events();
    assert!(
        said.iter()
            .any(|e| e.contains("is on fast") || e.contains("is on slow")),
        "{said:?}"
    );
}

#[test]
fn pause_starts_no_moves_and_drops_none() {
    let mut host = Host::new(&with(AUTO), upside_down());
    assert_eq!(host.order(Question::Pause), "paused: no new moves start");
    let plan = host.until_plan();
    assert!(
        matches!(&plan.moves[0].state, MoveState::Proposed { why } if why == "the controller is paused")
    );
    host.windows(1);
    assert!(host.ordered().is_empty() && host.status().paused);
    host.order(Question::Resume);
    host.windows(2);
    assert!(!host.ordered().is_empty());
}

#[test]
fn partial_mode_starts_only_moves_with_a_predicted_gain() {
    let mut host = Host::new(&with("[modes]\nlatency = \"partial\"\n"), upside_down());
    let plan = host.until_plan();
    let MoveState::Proposed { why } = &plan.moves[0].state else {
        panic!("IDT predicts nothing: {plan:?}")
    };
    assert!(why.contains("no lower latency is predicted"), "{why}");
}

#[test]
fn outside_the_hours_only_operators_start_moves() {
    let hours = format!("{AUTO}[hours]\nmoves = [\"Sun 00:00-24:00\"]\n");
    let mut host = Host::new(&with(&hours), upside_down());
    let plan = host.until_plan();
    assert!(
        matches!(&plan.moves[0].state, MoveState::Proposed { why } if why == "the current time is outside the hours for moves")
    );
    assert!(!host.status().in_hours);
    host.order(Question::Apply(choice(plan.generation, Some(vec![0]))));
    host.windows(1);
    assert_eq!(host.ordered().len(), 1);
    // Twelve hours later it is Sunday.
    host.unix_ms += 13 * 3_600_000;
    host.until_plan();
    host.windows(1);
    assert!(host.status().in_hours);
}

#[test]
fn mode_off_of_an_operator_disables_moves() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.order(Question::SetMode {
        goal: Goal::Latency,
        mode: Mode::Off,
    });
    let plan = host.until_plan();
    assert_eq!((plan.moves.len(), plan.strategy.as_str()), (0, "noop"));
}

#[test]
fn failed_predictions_suspend_automatic_moves() {
    let config = BASE.replace("strategy = \"idt\"", "strategy = \"autotiering\"")
        + AUTO
        + "[watch]\nprediction_outcomes_min = 1\nprediction_error_max = 0.5\n[strategies.autotiering]\nweight_space = 0.0\nweight_migration = 0.0\nprior_confidence = 1.0\n";
    let volumes = vec![
        volume("busy", "slow", "slow-0", 900, 1500),
        volume("calm", "mid", "mid-0", 20, 200),
    ];
    let mut host = Host::new(&config, volumes);
    let plan = host.until_plan();
    let first = plan
        .moves
        .iter()
        .find(|m| m.volume == "busy")
        .unwrap_or_else(|| panic!("it is to be faster: {plan:?}"));
    let predicted = first.after_us.expect("AutoTiering predicts");
    host.windows(1);
    // It gets ten times slower than it was said to.
    host.finish(first.job.unwrap(), (predicted * 10.0) as u64);
    host.windows(1);
    for other in host.ordered() {
        host.finish(other, 100);
    }
    host.windows(8);
    let status = host.status();
    assert!(!status.trust.trusted, "{:?}", status.trust);
    assert!(
        status
            .problems
            .iter()
            .any(|p| p.what.contains("predictions have failed")),
        "{:?}",
        status.problems
    );
    host.order(Question::SetMode {
        goal: Goal::Latency,
        mode: Mode::Auto,
    });
    assert!(host.status().trust.trusted, "somebody has looked at it");
}

#[test]
fn outcome_is_measured_after_other_moves_to_its_target() {
    let config = with(AUTO).replace(
        "hold = 1",
        "hold = 1\nconcurrent_moves = 2\nconcurrent_moves_per_device = 2",
    );
    let mut volumes = upside_down();
    volumes.push(volume("second", "slow", "slow-0", 700, 900));
    let mut host = Host::new(&config, volumes);
    host.until_plan();
    host.windows(1);
    let jobs = host.ordered();
    let to = |host: &mut Host, job: u32| host.job(job).to_tier;
    let [a, b] = jobs[..] else { panic!("{jobs:?}") };
    assert_eq!(to(&mut host, a), to(&mut host, b));
    let observed = |host: &mut Host| {
        let Ok(Answer::Outcomes(all)) = host.ask(Question::Outcomes { limit: 10 }) else {
            panic!("it answers")
        };
        all.iter().filter(|o| o.observed_us.is_some()).count()
    };
    host.finish(a, 100);
    host.windows(8);
    assert_eq!(observed(&mut host), 0, "the other one is being copied");
    host.finish(b, 100);
    host.windows(8);
    assert_eq!(observed(&mut host), 2);
}

#[test]
fn revoked_mode_withdraws_queued_moves() {
    let one = with(AUTO).replace("hold = 1", "hold = 1\nconcurrent_moves = 1");
    let mut volumes = upside_down();
    volumes.push(volume("second", "slow", "slow-0", 700, 900));
    let mut host = Host::new(&one, volumes);
    host.until_plan();
    host.windows(1);
    let first = host.ordered();
    assert_eq!(first.len(), 1);
    host.order(Question::SetMode {
        goal: Goal::Latency,
        mode: Mode::Recommend,
    });
    host.finish(first[0], 100);
    host.windows(6);
    assert!(host.ordered().is_empty(), "{:?}", host.ordered());
    // What a person approves is begun all the same.
    let plan = host.plan().unwrap();
    host.order(Question::Apply(choice(plan.generation, None)));
    host.windows(1);
    assert_eq!(host.ordered().len(), 1);
}

#[test]
fn pause_applies_to_hosts_that_register_later() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.order(Question::Pause);
    host.restart_controller();
    host.register();
    let plan = host.until_plan();
    host.ask(Question::Apply(choice(plan.generation, None)))
        .expect("it is approved");
    host.windows(1);
    assert!(host.ordered().is_empty());
    host.order(Question::Resume);
    host.windows(1);
    assert!(!host.ordered().is_empty());
}
