//! The controller, as an agent and as people meet it.

mod host;
mod reload;
mod trouble;

use host::{BASE, Host, WINDOW, volume};
use manager::question::{Answer, Choice, Question, Refusal, TierState};
use manager::service::{MessageRefusal, Service};
use manager::settings::Mode;
use manager::store::memory::Fault;
use manager::view::{HostState, MoveState};
use manager::wire::{JobProgress, WireRefusal};
use model::Goal;

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

fn choice(generation: u64, moves: Option<Vec<u32>>) -> Choice {
    Choice {
        host: None,
        generation,
        moves,
    }
}

#[test]
fn by_default_nothing_moves_before_somebody_says_so() {
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
        matches!(&none, Err(Refusal::NotFound(why)) if why.contains("there is no move 9")),
        "{none:?}"
    );
    let said = host.order(Question::Apply(choice(plan.generation, Some(vec![0]))));
    assert_eq!(
        said,
        format!("1 move(s) of plan {} approved", plan.generation)
    );
    host.windows(1);
    assert_eq!(host.ordered(), [plan.moves[0].job.unwrap()]);
    let again = host.ask(Question::Apply(choice(plan.generation, Some(vec![0]))));
    assert!(
        matches!(&again, Err(Refusal::Conflict(why)) if why.contains("not open any more")),
        "{again:?}"
    );
}

#[test]
fn a_rejected_move_is_not_carried_out_and_the_reason_is_kept() {
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
fn automatic_moves_are_ordered_done_and_watched() {
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
        (view.state.as_str(), view.left_bytes, view.eta_ns),
        ("copying", 1 << 20, Some(1_000_000_000))
    );
    host.finish(job, 100);
    host.windows(1);
    assert_eq!(host.job(job).state, "done");
    assert!(!host.ordered().contains(&job), "it is not ordered again");
    let said = host.events();
    assert!(
        said.iter()
            .any(|e| e.contains("is on fast") || e.contains("is on slow")),
        "{said:?}"
    );
}

#[test]
fn a_pause_begins_nothing_and_drops_nothing() {
    let mut host = Host::new(&with(AUTO), upside_down());
    assert_eq!(host.order(Question::Pause), "paused: nothing new is begun");
    let plan = host.until_plan();
    assert!(
        matches!(&plan.moves[0].state, MoveState::Proposed { why } if why == "everything is paused")
    );
    host.windows(1);
    assert!(host.ordered().is_empty() && host.status().paused);
    host.order(Question::Resume);
    host.windows(2);
    assert!(!host.ordered().is_empty());
}

#[test]
fn partial_takes_only_what_is_predicted_to_be_faster() {
    let mut host = Host::new(&with("[modes]\nlatency = \"partial\"\n"), upside_down());
    let plan = host.until_plan();
    let MoveState::Proposed { why } = &plan.moves[0].state else {
        panic!("IDT predicts nothing: {plan:?}")
    };
    assert!(
        why.contains("not predicted to make its volume faster"),
        "{why}"
    );
}

#[test]
fn outside_the_hours_only_people_begin_moves() {
    let hours = format!("{AUTO}[hours]\nmoves = [\"Sun 00:00-24:00\"]\n");
    let mut host = Host::new(&with(&hours), upside_down());
    let plan = host.until_plan();
    assert!(
        matches!(&plan.moves[0].state, MoveState::Proposed { why } if why == "it is outside the hours for moves")
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
fn an_operators_off_is_off() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.order(Question::SetMode {
        goal: Goal::Latency,
        mode: Mode::Off,
    });
    let plan = host.until_plan();
    assert_eq!((plan.moves.len(), plan.strategy.as_str()), (0, "noop"));
}

#[test]
fn a_host_that_is_silent_is_unknown_and_nothing_is_applied() {
    let mut host = Host::new(BASE, upside_down());
    let plan = host.until_plan();
    host.now_ns += 4 * WINDOW;
    let now = host.now();
    host.managed.tick(now);
    let status = host.status();
    assert_eq!(
        (status.hosts[0].state, status.unknown),
        (HostState::Late, 0)
    );
    let applied = host.ask(Question::Apply(choice(plan.generation, None)));
    assert!(
        matches!(&applied, Err(Refusal::Conflict(why)) if why.contains("does not report")),
        "{applied:?}"
    );
    host.now_ns += 60 * WINDOW;
    let now = host.now();
    host.managed.tick(now);
    assert_eq!(host.status().hosts[0].state, HostState::Lost);
    assert!(
        host.status()
            .problems
            .iter()
            .any(|p| p.starts_with("host alpha is lost"))
    );
    let Ok(manager::question::Answer::Volumes(volumes)) = host.ask(Question::Volumes) else {
        panic!("it answers")
    };
    assert!(
        volumes.iter().all(|v| v.load.is_none()),
        "what is old is not shown as if it were now"
    );
}

#[test]
fn a_report_that_was_late_on_its_way_decides_nothing() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.windows(3);
    let before = host.status().hosts[0].generation;
    // What comes now is about a time long ago.
    for _ in 0..6 {
        let mut report = {
            host.now_ns += WINDOW;
            host.report()
        };
        report.as_of_ns = host.now_ns.saturating_sub(30 * WINDOW);
        report.seq = host.now_ns;
        let now = host.now();
        let orders = host.managed.report(now, "alpha", report).unwrap();
        assert!(orders.moves.is_empty() && orders.calibrations.is_empty());
    }
    assert_eq!(host.status().hosts[0].generation, before);
}

#[test]
fn a_killed_controller_goes_on_and_repeats_nothing() {
    let mut host = Host::new(&with(AUTO), upside_down());
    let plan = host.until_plan();
    host.windows(1);
    let job = host.ordered()[0];
    host.progress(
        job,
        JobProgress::Copying {
            copied_bytes: 1,
            left_bytes: 2 << 20,
            rate_bytes_per_s: 1,
        },
    );
    host.windows(1);
    host.restart_controller();
    let lost = host.window();
    assert!(
        matches!(lost, Err(MessageRefusal::Wire(WireRefusal::Register))),
        "{lost:?}"
    );
    host.register();
    host.windows(1);
    assert_eq!(host.ordered()[0], job, "the same job, not another one");
    assert_eq!(host.plan().unwrap().generation, plan.generation);
    host.finish(job, 100);
    host.windows(1);
    assert_eq!(host.job(job).state, "done");
    host.restart_controller();
    host.register();
    host.windows(1);
    assert_eq!(host.job(job).state, "done");
    assert!(!host.ordered().contains(&job));
}

#[test]
fn a_store_that_fails_orders_nothing_and_comes_back_as_it_was() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.windows(2);
    host.store.0.borrow_mut().set_fault(Fault::Writes);
    let refused = host.window().err();
    assert!(
        matches!(&refused, Some(MessageRefusal::Unavailable(why)) if why.contains("nothing is decided or ordered")),
        "{refused:?}"
    );
    let status = host.ask(Question::Pause);
    assert!(matches!(status, Err(Refusal::Unavailable(_))), "{status:?}");
    host.store.0.borrow_mut().set_fault(Fault::None);
    assert!(
        !host.status().paused,
        "what was not committed did not happen"
    );
    host.register();
    host.until_plan();
    host.windows(1);
    assert!(!host.ordered().is_empty());
}

#[test]
fn predictions_that_fail_are_not_acted_upon_any_more() {
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
    host.windows(8);
    let status = host.status();
    assert!(!status.trust.trusted, "{:?}", status.trust);
    assert!(
        status
            .problems
            .iter()
            .any(|p| p.contains("predictions have failed")),
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
fn a_drained_tier_is_emptied_and_a_cordoned_one_gets_nothing() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.windows(1);
    host.order(Question::SetTier {
        tier: "fast".into(),
        state: TierState::Draining,
    });
    let plan = host.until_plan();
    let gone = plan
        .moves
        .iter()
        .find(|m| m.volume == "idle")
        .expect("it has to leave");
    assert_eq!(
        (gone.goal, gone.to_tier.as_str() == "fast"),
        (Goal::Drain, false)
    );
    assert!(plan.moves.iter().all(|m| m.to_tier != "fast"));
    let unknown = host.ask(Question::SetTier {
        tier: "fats".into(),
        state: TierState::Open,
    });
    assert!(
        matches!(&unknown, Err(Refusal::NotFound(why)) if why.contains("did you mean \"fast\"?")),
        "{unknown:?}"
    );
}

#[test]
fn pins_of_operators_go_before_the_file_and_outlast_restarts() {
    let mut host = Host::new(
        &with(&AUTO.replace("[modes]", "[policy.pins]\nbusy = \"slow\"\n[modes]")),
        upside_down(),
    );
    let plan = host.until_plan();
    assert!(plan.moves.iter().all(|m| m.volume != "busy"), "{plan:?}");
    assert_eq!(
        host.order(Question::Pin {
            volume: "busy".into(),
            tier: Some("mid".into())
        }),
        "busy belongs on mid"
    );
    host.restart_controller();
    host.register();
    let plan = host.until_plan();
    let pinned = plan
        .moves
        .iter()
        .find(|m| m.volume == "busy")
        .expect("it belongs elsewhere");
    assert_eq!((pinned.goal, pinned.to_tier.as_str()), (Goal::Rules, "mid"));
}

#[test]
fn a_stuck_job_is_called_stuck_given_up_and_cancelled_until_the_agent_has_ended_it() {
    let watch = format!("{AUTO}[watch]\nstuck_after = \"5s\"\ngive_up_after = \"10s\"\n");
    let mut host = Host::new(&with(&watch), upside_down());
    host.until_plan();
    host.windows(1);
    let job = host.ordered()[0];
    host.progress(
        job,
        JobProgress::Copying {
            copied_bytes: 1,
            left_bytes: 99,
            rate_bytes_per_s: 1,
        },
    );
    host.windows(8);
    assert!(
        host.status()
            .problems
            .iter()
            .any(|p| p.contains("is stuck")),
        "{:?}",
        host.status().problems
    );
    host.windows(6);
    assert_eq!(host.job(job).state, "cancelled");
    let cancels = |h: &Host| {
        h.orders
            .as_ref()
            .unwrap()
            .cancels
            .iter()
            .map(|m| m.job)
            .collect::<Vec<_>>()
    };
    assert_eq!(cancels(&host), [job]);
    host.progress(
        job,
        JobProgress::Failed {
            why: "cancelled".into(),
            copied_bytes: 1,
        },
    );
    host.windows(1);
    assert!(cancels(&host).is_empty());
}

#[test]
fn approved_moves_that_had_not_begun_stay_approved_in_the_next_plan() {
    // One at a time: the second one waits.
    let one = BASE.replace("hold = 1", "hold = 1\nconcurrent_moves = 1");
    let mut volumes = upside_down();
    volumes.push(volume("second", "slow", "slow-0", 700, 900));
    let mut host = Host::new(&one, volumes);
    let plan = host.until_plan();
    assert!(plan.moves.len() >= 2, "{plan:?}");
    host.order(Question::Apply(choice(plan.generation, None)));
    host.windows(1);
    let first = host.ordered();
    assert_eq!(first.len(), 1);
    let newer = host.until_plan();
    let waiting = newer
        .moves
        .iter()
        .filter(|m| m.state == MoveState::Approved)
        .count();
    assert!(waiting >= 1, "{newer:?}");
}

#[test]
fn what_cannot_be_decided_says_why() {
    let mut host = Host::new(BASE, upside_down());
    host.volumes[0].device = "gone-0";
    host.windows(6);
    let status = host.status();
    let problem = status.hosts[0].problem.clone().expect("no such device");
    assert!(
        problem.starts_with("a volume is on device \"gone-0\""),
        "{problem}"
    );
    let said = status.problems.iter().any(|p| p.ends_with(&problem));
    assert!(said, "{:?}", status.problems);
}

#[test]
fn nonsense_from_an_agent_is_refused_by_name() {
    let mut host = Host::new(BASE, upside_down());
    let now = host.now();
    let mut twice = host.report();
    twice.seq = 1;
    twice.volumes.push(twice.volumes[0].clone());
    let refused = host.managed.report(now, "alpha", twice);
    assert!(
        matches!(&refused, Err(MessageRefusal::Wire(WireRefusal::Nonsense { why })) if why.contains("reported twice")),
        "{refused:?}"
    );
    let mut sums = host.report();
    sums.seq = 1;
    sums.volumes[0].load.as_mut().unwrap().reads.ios += 1;
    let refused = host.managed.report(now, "alpha", sums);
    assert!(
        matches!(&refused, Err(MessageRefusal::Wire(WireRefusal::Nonsense { why })) if why.contains("do not add up")),
        "{refused:?}"
    );
    let mut other = host.report();
    other.session += 1;
    let refused = host.managed.report(now, "alpha", other);
    assert!(
        matches!(&refused, Err(MessageRefusal::Wire(WireRefusal::Register))),
        "{refused:?}"
    );
}

/// Monitor epochs of two windows, migration epochs of four.
const TOO_OLD: u64 = 12 * WINDOW;

#[test]
fn an_old_plan_begins_nothing_when_its_host_comes_back() {
    let mut host = Host::new(BASE, upside_down());
    let plan = host.until_plan();
    assert!(!plan.moves.is_empty());
    host.now_ns += TOO_OLD;
    let now = host.now();
    host.managed.tick(now);
    host.order(Question::SetMode {
        goal: Goal::Latency,
        mode: Mode::Auto,
    });
    host.register();
    host.windows(1);
    assert!(host.ordered().is_empty(), "its facts are from before");
    let state = &host.plan().unwrap().moves[0].state;
    assert!(
        matches!(state, MoveState::Ended { why } if why == "its plan is too old"),
        "{state:?}"
    );
    host.until_plan();
    host.windows(1);
    assert!(!host.ordered().is_empty(), "a new one begins");
}

#[test]
fn modes_that_are_taken_back_take_queued_moves_back() {
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
fn a_pin_drops_moves_against_it() {
    let mut host = Host::new(BASE, upside_down());
    let plan = host.until_plan();
    let up = plan
        .moves
        .iter()
        .find(|m| m.volume == "busy")
        .expect("it is to move up");
    host.order(Question::Pin {
        volume: "busy".into(),
        tier: Some("slow".into()),
    });
    let applied = host.ask(Question::Apply(choice(
        plan.generation,
        Some(vec![up.position]),
    )));
    assert!(
        matches!(&applied, Err(Refusal::Conflict(why)) if why.contains("not open any more")),
        "{applied:?}"
    );
}

#[test]
fn a_pause_holds_for_hosts_that_come_later() {
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

#[test]
fn copied_bytes_count_once_over_restarts() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.until_plan();
    host.windows(1);
    let job = host.ordered()[0];
    let copying = JobProgress::Copying {
        copied_bytes: 64,
        left_bytes: 1 << 20,
        rate_bytes_per_s: 1,
    };
    host.progress(job, copying.clone());
    host.windows(2);
    for _ in 0..3 {
        host.restart_controller();
        host.register();
        host.progress(job, copying.clone());
        host.windows(1);
    }
    assert_eq!(host.job(job).copied_bytes, 64);
}

#[test]
fn a_volume_on_two_tiers_is_drained_from_the_one_that_is_emptied() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.volumes[0].rest = Some(("fast-0", 48));
    host.windows(1);
    host.order(Question::SetTier {
        tier: "fast".into(),
        state: TierState::Draining,
    });
    let plan = host.until_plan();
    let rest = plan
        .moves
        .iter()
        .find(|m| m.volume == "busy")
        .expect("a part of it has to leave");
    assert_eq!((rest.goal, rest.from_tier.as_str()), (Goal::Drain, "fast"));
}

#[test]
fn reports_that_cannot_be_are_refused_and_harm_nobody() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(1);
    type Spoil = fn(&mut manager::wire::WindowReport);
    let spoils: [Spoil; 5] = [
        |r| r.tiers = (0..70_000).map(|i| i.to_string()).collect(),
        |r| r.tiers.push("fast".into()),
        |r| r.devices[0].size_bytes = 0,
        |r| r.devices[0].emulate.as_mut().unwrap().read_iops = 0.0,
        |r| r.volumes[0].placed[0].bytes = u64::MAX,
    ];
    for spoil in spoils {
        let mut report = host.report();
        report.seq = 1_000;
        spoil(&mut report);
        let now = host.now();
        let refused = host.managed.report(now, "alpha", report);
        assert!(
            matches!(
                refused,
                Err(MessageRefusal::Wire(WireRefusal::Nonsense { .. }))
            ),
            "{refused:?}"
        );
    }
    host.until_plan();
}

#[test]
fn a_second_agent_of_the_same_name_is_told_so() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(2);
    let other = manager::wire::Register {
        protocol: manager::wire::PROTOCOL,
        session: 99,
        version: "test".into(),
    };
    let now = host.now();
    let refused = host.managed.register(now, "alpha", other);
    assert!(
        matches!(&refused, Err(MessageRefusal::Wire(WireRefusal::Nonsense { why })) if why.starts_with("another agent reports")),
        "{refused:?}"
    );
    host.windows(1);
}

#[test]
fn agents_are_told_what_the_array_is_to_hold_its_operators_to() {
    let config = BASE.replacen("[policy]", "[policy]\novercommit_max = 1.5", 1);
    let mut host = Host::new(&config, upside_down());
    let mut register = |session, protocol| {
        let message = manager::wire::Register {
            protocol,
            session,
            version: "test".into(),
        };
        let now = host.now();
        host.managed.register(now, "alpha", message)
    };
    let welcome = register(70, manager::wire::PROTOCOL).unwrap();
    let policy = welcome.policy.unwrap();
    assert_eq!(policy.overcommit_max, 1.5);
    assert!(!policy.classes.is_empty());
    // An agent of the version before is taken in, and told nothing that it would not understand.
    let welcome = register(71, 1).unwrap();
    assert_eq!((welcome.protocol, welcome.policy), (1, None));
    let refused = register(72, manager::wire::PROTOCOL + 1);
    assert!(matches!(
        refused,
        Err(MessageRefusal::Wire(WireRefusal::Protocol { .. }))
    ));
}

#[test]
fn a_volume_whose_device_hangs_misses_its_objective() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(2);
    let missed = |host: &mut Host| {
        let Ok(Answer::Volume(v)) = host.ask(Question::Volume {
            volume: "idle".into(),
        }) else {
            panic!("it is known")
        };
        let slo = v.slo.expect("gold has an objective");
        (slo.missed_now, slo.missed, v.load.unwrap().waiting)
    };
    assert_eq!(missed(&mut host), (false, 0, 0));
    // Nothing is answered, nothing is measured: three requests have waited for a window.
    host.volumes[1].ios = 0;
    host.volumes[1].waiting = Some((3, 900_000));
    host.windows(2);
    assert_eq!(missed(&mut host), (true, 2, 3));
    assert_eq!(host.status().slo_missed, 1);
    let Ok(Answer::Counters(counters)) = host.ask(Question::Counters) else {
        panic!("it answers")
    };
    let idle = counters.volumes.iter().find(|v| v.volume == "idle");
    assert_eq!(idle.unwrap().slo_missed_ns, 2 * WINDOW);
    // An idle volume misses nothing.
    host.volumes[1].waiting = None;
    host.windows(1);
    assert_eq!(missed(&mut host), (false, 2, 0));
}

/// What was approved, has not begun and is not wanted any more ends everywhere: no ghost stands in the list of jobs.
#[test]
fn superseded_jobs_end_in_the_store_too() {
    let mut host = Host::new(BASE, upside_down());
    let plan = host.until_plan();
    host.order(Question::Pause);
    host.order(Question::Apply(choice(plan.generation, None)));
    let job = plan.moves[0].job.unwrap();
    assert_eq!(host.job(job).state, "waiting");
    // The load is another one: nothing is to move any more.
    host.volumes[0].ios = 10;
    host.volumes[1].ios = 800;
    host.until_plan();
    host.until_plan();
    let Ok(Answer::Jobs(jobs)) = host.ask(Question::Jobs { limit: 100 }) else {
        panic!("it answers")
    };
    assert!(jobs.iter().all(|j| j.job != job), "{jobs:#?}");
    let stored = manager::store::Store::jobs(&mut host.store, 100).unwrap();
    let row = stored
        .iter()
        .find(|j| j.job == job)
        .expect("it was approved");
    assert_eq!(
        (
            row.state.as_str(),
            row.cause.as_deref(),
            row.ended_ns.is_some()
        ),
        ("cancelled", Some("superseded"), true)
    );
}

/// A class is what somebody gave a volume: nobody is held to an objective, or ranked, by a class that was never meant.
#[test]
fn a_volume_without_a_class_is_of_none_and_not_of_the_first() {
    let mut volumes = vec![
        volume("classed", "slow", "slow-0", 400, 9000),
        volume("plain", "slow", "slow-0", 400, 9000),
        volume("unknown", "slow", "slow-0", 400, 9000),
    ];
    volumes[1].class = "default";
    volumes[2].class = "platinum";
    let mut host = Host::new(BASE, volumes.clone());
    host.windows(3);
    let slo = |host: &mut Host| -> Vec<bool> {
        match host.ask(Question::Volumes) {
            Ok(Answer::Volumes(views)) => views.iter().map(|v| v.slo.is_some()).collect(),
            other => panic!("{other:?}"),
        }
    };
    // `gold` has an objective of 2 ms, and all of them take 9 ms.
    assert_eq!(slo(&mut host), [true, false, false]);
    let objectives = &host.orders.as_ref().unwrap().objectives;
    let classes: Vec<&str> = objectives.iter().map(|o| o.class.as_str()).collect();
    assert_eq!(classes, ["gold"]);
    let problems = host.status().problems;
    let said = |class: &str| {
        let named = format!("is of class \"{class}\"");
        problems.iter().any(|p| p.contains(&named))
    };
    assert!(said("platinum") && !said("default"), "{problems:?}");

    // A class of that name may be described: then it is one like any other.
    let described = format!("{BASE}[[classes]]\nname = \"default\"\nlatency = \"1ms\"\n");
    let mut host = Host::new(&described, volumes);
    host.windows(3);
    assert_eq!(slo(&mut host), [true, true, true]);
}
