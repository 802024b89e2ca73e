//! Reported problems, and operation in spite of them.

use manager::problem::ProblemKind;
use manager::question::{Answer, Question};
use manager::view::MoveState;
use manager::wire::{ArrayProblem, FailedIo};
use model::TierState;

use super::host::{BASE, Host, volume};
use super::{AUTO, upside_down, with};

fn kinds(host: &mut Host) -> Vec<(ProblemKind, String)> {
    let status = host.status();
    assert!(status.problems.is_sorted_by_key(|t| t.kind));
    let of = status.problems.into_iter();
    of.map(|t| (t.kind, t.subject)).collect()
}

fn failed(op: &str, errno: &str) -> FailedIo {
    FailedIo {
        op: op.into(),
        errno: errno.into(),
        count: 3,
    }
}

#[test]
fn array_problems_come_first_and_end_with_their_report() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(2);
    assert_eq!(kinds(&mut host), []);
    host.problems = vec![
        ArrayProblem {
            kind: "nearly-full".into(),
            about: "map.redb".into(),
            what: "the disk of the map has 12 MiB left".into(),
        },
        ArrayProblem {
            kind: "device-lost".into(),
            about: "mid-0".into(),
            what: "device mid-0 cannot be opened".into(),
        },
        ArrayProblem {
            kind: "of-a-newer-version".into(),
            about: "it".into(),
            what: "something new is wrong".into(),
        },
    ];
    // The device that the array reports as lost is not also reported as unreachable.
    host.unreachable = vec!["mid-0", "slow-0"];
    host.windows(1);
    let all = [
        (ProblemKind::DeviceLost, "mid-0".to_string()),
        (ProblemKind::DeviceUnreachable, "slow-0".into()),
        (ProblemKind::NearlyFull, "map.redb".into()),
        (ProblemKind::Other, "it".into()),
    ];
    assert_eq!(kinds(&mut host), all);
    let lost = host.status().problems.remove(0);
    assert_eq!(lost.host.as_deref(), Some("alpha"));
    assert_eq!(lost.undecided.as_deref(), Some("moves from and to mid-0"));
    let since = lost.since_ns;
    host.windows(3);
    assert_eq!(host.status().problems[0].since_ns, since);
    // The problem survives a restart, because its end was not reported.
    host.restart_controller();
    assert_eq!(host.status().problems[0].since_ns, since);
    host.register();
    host.windows(1);
    assert_eq!(host.status().problems[0].since_ns, since);
    host.problems.clear();
    host.unreachable.clear();
    host.windows(1);
    assert_eq!(kinds(&mut host), []);
    let events = host.events();
    let began = "device-lost: device mid-0 cannot be opened. Not decided: moves from and to mid-0.";
    assert_eq!(
        events.iter().filter(|e| *e == began).count(),
        1,
        "{events:#?}"
    );
    let over = |e: &&String| e.starts_with("ended after ") && e.ends_with(": device-lost of mid-0");
    assert_eq!(events.iter().filter(over).count(), 1, "{events:#?}");
}

#[test]
fn array_problem_of_an_unreachable_device_replaces_the_general_one() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(2);
    host.problems = vec![ArrayProblem {
        kind: "device-unreachable".into(),
        about: "slow-0".into(),
        what: "slow-0: what answers there has another superblock".into(),
    }];
    host.unreachable = vec!["slow-0"];
    host.windows(1);
    let problems = host.status().problems;
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert_eq!(problems[0].kind, ProblemKind::DeviceUnreachable);
    assert!(problems[0].what.ends_with("has another superblock"));
    assert_eq!(
        problems[0].undecided.as_deref(),
        Some("moves to tier slow"),
        "no device of it answers"
    );
}

#[test]
fn two_files_of_one_volume_left_behind_are_both_named() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(2);
    let left = |path: &str| ArrayProblem {
        kind: "file-left-behind".into(),
        about: "busy".into(),
        what: format!("{path} was not removed"),
    };
    host.problems = vec![left("/fast/busy"), left("/fast/busy-2")];
    host.windows(1);
    let problems = host.status().problems;
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert_eq!(
        problems[0].what,
        "/fast/busy was not removed; /fast/busy-2 was not removed"
    );
}

#[test]
fn device_errors_and_violations_are_problems_until_they_end() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(2);
    host.errors = vec![
        ("slow-0", failed("write", "ENOSPC")),
        ("slow-0", failed("read", "EIO")),
    ];
    host.volumes[1].ios = 0;
    host.volumes[1].waiting = Some((2, 900_000));
    host.windows(1);
    assert_eq!(
        kinds(&mut host),
        [
            (ProblemKind::DeviceErrors, "slow-0".to_string()),
            (ProblemKind::ObjectiveViolated, "idle".into()),
        ]
    );
    let status = host.status();
    assert_eq!(
        status.problems[0].what,
        "I/O on device slow-0 failed in the last window: 3 × ENOSPC on write, 3 × EIO on read"
    );
    let violated = &status.problems[1].what;
    assert!(
        violated.starts_with("idle violates the objective of class gold: p99 at least 9")
            && violated.contains("objective p99 at most 2ms, 2 queued requests, the oldest for 9"),
        "{violated}"
    );
    // One good window does not end the problem. Otherwise the audit would have a start and an end every few seconds.
    host.errors.clear();
    host.volumes[1].waiting = None;
    host.windows(3);
    assert_eq!(kinds(&mut host).len(), 2);
    // A violation that has ended is not reported as current.
    let status = host.status();
    assert_eq!(status.slo_violated, 0);
    assert_eq!(
        status.problems[0].what,
        "I/O on device slow-0 failed: 3 × ENOSPC on write, 3 × EIO on read; not seen for 3s"
    );
    let violated = &status.problems[1].what;
    assert!(
        violated.starts_with("idle violated the objective of class gold: p99 at least 9")
            && violated.ends_with("objective p99 at most 2ms; not seen for 3s"),
        "{violated}"
    );
    // Nor does a restart report it.
    host.restart_controller();
    host.register();
    host.windows(1);
    for problem in &host.status().problems {
        assert!(problem.what.contains("; not seen for "), "{problem:?}");
    }
    host.windows(1);
    assert_eq!(kinds(&mut host).len(), 2);
    host.windows(6);
    assert_eq!(kinds(&mut host), []);
    let events = host.events();
    let over = events.iter().filter(|e| e.starts_with("ended after "));
    assert_eq!(over.count(), 2, "{events:#?}");
}

#[test]
fn full_disk_of_the_map_is_no_target_of_moves() {
    let mut host = Host::new(BASE, upside_down());
    let full = |about: &str| ArrayProblem {
        kind: "no-space".into(),
        about: about.into(),
        what: format!("{about}: it is full"),
    };
    host.problems = vec![full("slow-0"), full("/srv/array/map-07.redb")];
    host.windows(2);
    let problems = host.status().problems.into_iter();
    let undecided: Vec<_> = problems.map(|t| (t.subject, t.undecided)).collect();
    assert_eq!(
        undecided,
        [
            ("/srv/array/map-07.redb".to_string(), None),
            ("slow-0".into(), Some("moves to slow-0".into())),
        ]
    );
}

#[test]
fn full_tiers_and_overcommitment_are_problems() {
    let mut host = Host::new(
        &BASE.replacen("[policy]", "[policy]\novercommit_max = 1.0", 1),
        vec![
            volume("big", "slow", "slow-0", 100, 100),
            volume("small", "mid", "mid-0", 10, 100),
        ],
    );
    host.device_mib = 512;
    host.volumes[1].mib = 470;
    host.windows(2);
    assert_eq!(
        kinds(&mut host),
        [
            (ProblemKind::NoSpace, "slow".to_string()),
            (ProblemKind::NearlyFull, "mid".into()),
        ]
    );
    assert_eq!(
        host.status().problems[1].what,
        "tier mid is nearly full: 91.7 % used, 42 MiB free"
    );
    // Slightly less usage does not end the problem.
    host.volumes[1].mib = 455;
    host.windows(1);
    assert_eq!(kinds(&mut host).len(), 2);
    host.volumes[1].mib = 440;
    host.windows(1);
    assert_eq!(kinds(&mut host).len(), 1);
    host.device_mib = 300;
    host.volumes[0].mib = 100;
    host.volumes[1].mib = 820;
    host.windows(1);
    let promised = host.status().problems.pop().unwrap();
    assert_eq!(promised.kind, ProblemKind::Overcommitted);
    assert_eq!(
        promised.what,
        "volumes of alpha have a total size of 920 MiB, 1.02 times the capacity of 900 MiB; policy.overcommit_max is 1: add capacity, or raise the limit"
    );
}

#[test]
fn silent_host_and_undefined_class_are_problems() {
    let mut host = Host::new(BASE, upside_down());
    host.volumes[0].class = "glod";
    host.windows(2);
    let status = host.status();
    assert_eq!(status.problems[0].kind, ProblemKind::UnknownClass);
    assert_eq!(
        status.problems[0].what,
        "busy is of class \"glod\", which the configuration does not define: define it, or change the class"
    );
    // The volume has no objective. 900 us would meet the objective of gold, but the volume is not in gold.
    let Ok(Answer::Volume(busy)) = host.ask(Question::Volume {
        volume: "busy".into(),
    }) else {
        panic!("it is known")
    };
    assert_eq!(busy.slo, None);
    host.until_plan();
    host.now_ns += 4 * super::host::WINDOW;
    host.tick();
    let status = host.status();
    let late = &status.problems[0];
    assert_eq!(late.kind, ProblemKind::HostLate);
    assert_eq!(
        late.undecided.as_deref(),
        Some("moves and remedies of alpha")
    );
}

/// A tier that was just added blocks only decisions about itself: others are made, and it can be drained.
#[test]
fn undescribed_tier_blocks_only_decisions_about_itself() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.undescribed = vec!["fast"];
    let plan = host.until_plan();
    // "busy" is on the slowest tier and moves to the best described one.
    let busy: Vec<_> = plan.moves.iter().filter(|m| m.volume == "busy").collect();
    assert_eq!(busy.len(), 1, "{plan:?}");
    assert_eq!(busy[0].to_tier, "mid");
    assert!(
        plan.moves
            .iter()
            .all(|m| m.to_tier != "fast" && m.from_tier != "fast")
    );
    let status = host.status();
    assert_eq!(status.hosts[0].problem, None);
    let said = &status.problems[0];
    assert_eq!(
        (said.kind, said.subject.as_str()),
        (ProblemKind::UndescribedTier, "fast")
    );
    assert!(said.undecided.is_some());
    let Ok(Answer::Tiers(tiers)) = host.ask(Question::Tiers) else {
        panic!("it answers")
    };
    let described: Vec<bool> = tiers.iter().map(|t| t.described).collect();
    assert_eq!(described, [false, true, true]);
    // Volumes on the tier leave when it is drained.
    host.order(Question::SetTier {
        tier: "fast".into(),
        state: TierState::Draining,
    });
    let plan = host.until_plan();
    let idle = plan.moves.iter().find(|m| m.volume == "idle");
    let idle = idle.unwrap_or_else(|| panic!("{plan:?}"));
    assert_eq!(
        (idle.from_tier.as_str(), idle.goal),
        ("fast", model::Goal::Drain)
    );
    assert!(!matches!(idle.state, MoveState::Ended { .. }));
}

#[test]
fn undescribed_array_can_be_drained() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.emulated = false;
    let plan = host.until_plan();
    assert_eq!(plan.moves.len(), 0, "{plan:?}");
    assert_eq!(host.status().problems.len(), 3);
    host.order(Question::SetTier {
        tier: "slow".into(),
        state: TierState::Draining,
    });
    let plan = host.until_plan();
    let moves: Vec<_> = plan.moves.iter().map(|m| (&*m.volume, m.goal)).collect();
    assert_eq!(moves, [("busy", model::Goal::Drain)], "{plan:?}");
}
