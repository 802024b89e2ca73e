//! Drains, cordons and pins: placement goals of operators.

use manager::question::{Answer, Question, Refusal};
use manager::view::{MoveState, PlanView};
use manager::wire::{Bound, HandMove};
use model::Goal;
use model::TierState;

use super::host::{BASE, Host, RealDevices, volume};
use super::{AUTO, choice, upside_down, with};

/// Returns the plan that drains the fast tier.
fn drained(host: &mut Host) -> PlanView {
    host.order(Question::SetTier {
        tier: "fast".into(),
        state: TierState::Draining,
    });
    host.until_plan()
}

#[test]
fn drained_tier_is_emptied_and_a_cordoned_one_gets_no_data() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.windows(1);
    let plan = drained(&mut host);
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
fn pins_of_operators_override_the_file_and_survive_restarts() {
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
        "busy is pinned to mid"
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
fn pin_drops_conflicting_moves() {
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
        matches!(&applied, Err(Refusal::Conflict(why)) if why.contains("no longer pending")),
        "{applied:?}"
    );
}

#[test]
fn immovable_volume_is_neither_planned_nor_pinned() {
    let mut host = Host::new(&with(AUTO), upside_down());
    let busy = host.volumes.iter_mut().find(|v| v.name == "busy").unwrap();
    busy.bound = Some(Bound {
        why: "it has snapshots".into(),
        by_hand: false,
    });
    host.windows(1);
    let refused = host.ask(Question::Pin {
        volume: "busy".into(),
        tier: Some("fast".into()),
    });
    assert!(
        matches!(&refused, Err(Refusal::Conflict(why)) if why == "busy cannot be moved: it has snapshots"),
        "{refused:?}"
    );
    let outcome = |host: &mut Host| match host.ask(Question::Why {
        volume: "busy".into(),
    }) {
        Ok(Answer::Why(why)) => why.outcome,
        other => panic!("there is a volume busy: {other:?}"),
    };
    let stays = "cannot be moved: it has snapshots";
    assert_eq!(outcome(&mut host), stays, "before the first plan");
    let plan = host.until_plan();
    assert!(plan.moves.iter().all(|m| m.volume != "busy"), "{plan:?}");
    assert_eq!(outcome(&mut host), stays);
}

#[test]
fn volume_that_must_be_moved_by_hand_is_planned_and_not_ordered() {
    let mut host = Host::new(&with(AUTO), upside_down());
    let busy = host.volumes.iter_mut().find(|v| v.name == "busy").unwrap();
    busy.bound = Some(Bound {
        why: "OpenStack owns it".into(),
        by_hand: true,
    });
    host.windows(1);
    let plan = host.until_plan();
    let up = plan.moves.iter().find(|m| m.volume == "busy");
    let up = up.expect("it is to move up");
    assert_eq!(up.by_hand.as_deref(), Some("OpenStack owns it"));
    let command = format!("move 'it' '/srv/{}' '{}'", up.to, up.to_tier);
    assert_eq!(up.command, Some(command));
    assert!(matches!(&up.state, MoveState::Proposed { why } if why == "OpenStack owns it"));
    let applied = host.ask(Question::Apply(choice(
        plan.generation,
        Some(vec![up.position]),
    )));
    assert!(
        matches!(&applied, Err(Refusal::Conflict(why)) if why.contains("must be made by hand: OpenStack owns it")),
        "{applied:?}"
    );
    host.windows(4);
    let orders = host.orders.as_ref().unwrap();
    assert!(orders.moves.iter().all(|m| m.volume != "busy"));
    let why = host.ask(Question::Why {
        volume: "busy".into(),
    });
    let Ok(Answer::Why(why)) = why else {
        panic!("there is a volume busy: {why:?}")
    };
    let outcome = format!("moves to {} by hand: ", up.to_tier);
    assert!(why.outcome.starts_with(&outcome), "{}", why.outcome);
    let pinned = host.order(Question::Pin {
        volume: "busy".into(),
        tier: Some("fast".into()),
    });
    assert_eq!(
        pinned,
        "busy is pinned to fast; move it by hand: OpenStack owns it"
    );
}

#[test]
fn plan_explains_why_a_move_has_no_command() {
    let mut host = Host::new(&with(AUTO), upside_down());
    let at = host.volumes.iter().position(|v| v.name == "busy").unwrap();
    host.volumes[at].bound = Some(Bound {
        why: "QEMU 10.1.0 has a fault".into(),
        by_hand: true,
    });
    host.until_plan();
    let up = |host: &mut Host| {
        let moves = host.plan().expect("there is one").moves.into_iter();
        let mut moves = moves.filter(|m| m.volume == "busy");
        let up = moves.next().expect("it is to move up");
        (up.command, up.no_command)
    };
    let (command, why) = up(&mut host);
    assert!(command.is_some() && why.is_none());
    host.volumes[at].by_hand = HandMove::None {
        why: "its image has 3 bitmaps".into(),
    };
    host.windows(1);
    assert_eq!(
        up(&mut host),
        (None, Some("its image has 3 bitmaps".into()))
    );
    host.volumes[at].by_hand = HandMove::Command {
        text: "move '{place}'".into(),
        needed_bytes: 1 << 40,
        storages: vec![],
    };
    host.windows(1);
    let (command, why) = up(&mut host);
    assert!(command.is_none() && why.unwrap().contains("1099511627776 bytes needed"));

    // Proxmox VE moves to storages by their names; files need a directory.
    host.directory = "";
    for (text, expected) in [
        ("move '{place}'", Ok("move 'fast-0'")),
        (
            "copy '{place}/busy'",
            Err("fast-0 is not a directory: let the agent make this move"),
        ),
    ] {
        host.volumes[at].by_hand = HandMove::Command {
            text: text.into(),
            needed_bytes: 1,
            storages: vec![],
        };
        host.windows(1);
        let (command, why) = up(&mut host);
        assert_eq!(
            command.as_deref().ok_or(why.as_deref().unwrap_or("")),
            expected
        );
    }
}

#[test]
fn doubtful_move_needs_explicit_approval_by_an_operator() {
    let tier =
        |name: &str, preset: &str| format!("[[tiers]]\nname = \"{name}\"\npreset = \"{preset}\"\n");
    let tiers = tier("fast", "nvme-tlc") + &tier("mid", "sas-ssd") + &tier("slow", "sata-ssd");
    let config = with(&format!("{AUTO}{tiers}")).replace("\"idt\"", "\"terrace\"");
    let busy = volume("busy", "slow", "slow-0", 800, 30_000);
    let mut host = Host::new(&config, vec![busy]);
    host.real = Some(RealDevices::default());
    let planned = (0..40).find_map(|_| {
        host.windows(4);
        let plan = host.plan().ok()?;
        plan.moves
            .iter()
            .any(|m| m.volume == "busy")
            .then_some(plan)
    });
    let plan = planned.expect("it violates its objective");
    let m = &plan.moves[0];
    let doubt = m.doubt.as_deref().expect("nothing was measured there");
    assert!(doubt.starts_with("nothing was measured on"), "{doubt}");
    let whole = format!("its prediction is doubtful: {doubt}");
    assert_eq!((&m.command, m.no_command.as_ref()), (&None, Some(&whole)));
    // No mode approves the move.
    assert_eq!(m.state, MoveState::Proposed { why: whole });
    assert!(host.ordered().is_empty());
    let Ok(Answer::Why(why)) = host.ask(Question::Why {
        volume: "busy".into(),
    }) else {
        panic!("there is a volume busy");
    };
    assert!(
        why.notes.iter().any(|n| n.contains(doubt)),
        "{:?}",
        why.notes
    );
    let said = host.order(Question::Apply(choice(plan.generation, None)));
    assert!(said.contains("1 doubtful move left"), "{said}");
    let only = choice(plan.generation, Some(vec![m.position]));
    let said = host.order(Question::Apply(only));
    assert_eq!(said, format!("1 move of plan {} approved", plan.generation));
    host.windows(1);
    assert_eq!(host.ordered().len(), 1);
}

/// The domain is off. Its constraints are known again when it runs.
#[test]
fn move_of_an_unreported_volume_is_not_approved() {
    let mut host = Host::new(&with(AUTO), upside_down());
    let at = host.volumes.iter().position(|v| v.name == "busy").unwrap();
    let bound = |by_hand| Bound {
        why: "it is bound".into(),
        by_hand,
    };
    host.volumes[at].bound = Some(bound(true));
    let plan = host.until_plan();
    assert!(plan.moves.iter().any(|m| m.volume == "busy"), "{plan:?}");
    let busy = host.volumes.remove(at);
    host.windows(2);
    let orders = host.orders.as_ref().unwrap();
    assert!(orders.moves.iter().all(|m| m.volume != "busy"));
    // The volume may no longer move, which was unknown to the plan.
    host.volumes.insert(at, busy);
    host.volumes[at].bound = Some(bound(false));
    host.windows(1);
    let orders = host.orders.as_ref().unwrap();
    assert!(orders.moves.iter().all(|m| m.volume != "busy"));
}

#[test]
fn volume_on_two_tiers_is_drained_from_the_draining_one() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.volumes[0].rest = Some(("fast-0", 48));
    host.windows(1);
    let plan = drained(&mut host);
    let rest = plan
        .moves
        .iter()
        .find(|m| m.volume == "busy")
        .expect("a part of it has to leave");
    assert_eq!((rest.goal, rest.from_tier.as_str()), (Goal::Drain, "fast"));
}

/// A class must be assigned explicitly. Volumes without a class get no objective and no rank from any other class.
#[test]
fn volume_without_a_class_has_no_objective() {
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
    // `gold` has an objective of 2 ms, and all volumes take 9 ms.
    assert_eq!(slo(&mut host), [true, false, false]);
    let objectives = &host.orders.as_ref().unwrap().objectives;
    let classes: Vec<&str> = objectives.iter().map(|o| o.class.as_str()).collect();
    assert_eq!(classes, ["gold"]);
    let problems = host.status().problems;
    let said = |class: &str| {
        let named = format!("is of class \"{class}\"");
        problems.iter().any(|p| p.what.contains(&named))
    };
    assert!(said("platinum") && !said("default"), "{problems:?}");

    // A class named "default" may be configured; then it is an ordinary class.
    let described = format!("{BASE}[[classes]]\nname = \"default\"\nlatency = \"1ms\"\n");
    let mut host = Host::new(&described, volumes);
    host.windows(3);
    assert_eq!(slo(&mut host), [true, true, true]);
}

#[test]
fn approval_persists_while_the_volume_is_not_reported() {
    let mut host = Host::new(BASE, upside_down());
    let plan = host.until_plan();
    let up = plan.moves.iter().find(|m| m.volume == "busy");
    let up = up.expect("it is to move up").position;
    host.order(Question::Pause);
    host.order(Question::Apply(choice(plan.generation, Some(vec![up]))));
    let all = host.volumes.clone();
    host.volumes.retain(|v| v.name != "busy");
    host.windows(1);
    host.order(Question::Resume);
    host.windows(1);
    assert_eq!(host.orders.as_ref().unwrap().moves, [], "it is not there");
    host.restart_controller();
    host.register();
    host.volumes = all;
    host.windows(2);
    let moves = &host.orders.as_ref().unwrap().moves;
    assert!(moves.iter().any(|m| m.volume == "busy"), "{moves:?}");
}
