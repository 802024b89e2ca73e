//! Configuration that is reloaded while the controller runs.

use manager::question::{Actor, Answer, Question, Refusal};
use manager::service::Service;
use manager::view::MoveState;
use model::TierState;

use super::host::{BASE, Host, settings};
use super::{upside_down, with};

pub(super) fn reload(host: &mut Host, config: &str) -> Result<String, Refusal> {
    let now = host.now();
    let actor = Actor("alice".into());
    let done = host.managed.reload(now, &actor, settings(config))?;
    Ok(done.message)
}

#[test]
fn reloaded_changes_are_in_force_and_in_the_audit_log() {
    let mut host = Host::new(BASE, upside_down());
    host.until_plan();
    let config = with("[modes]\nlatency = \"auto\"\n")
        .replace("latency = \"2ms\"", "latency = \"5ms\"")
        .replace(
            "[policy]",
            "[policy]\novercommit_max = 3.0\nspace_high = 0.8",
        );
    let said = reload(&mut host, &config).unwrap();
    assert_eq!(
        said,
        "configuration reloaded: changed classes.gold.latency, modes.latency, policy.overcommit_max, policy.space_high"
    );
    assert!(host.events().contains(&said));
    // The next reply has the new policy, and a move that waited for approval starts automatically.
    host.windows(1);
    let orders = host.orders.as_ref().unwrap();
    assert_eq!(
        orders.objectives[0].objective.latency,
        units::Nanos(5_000_000)
    );
    assert_eq!(orders.policy.as_ref().unwrap().overcommit_max, 3.0);
    assert!(!host.ordered().is_empty());
    let again = reload(&mut host, &config).unwrap();
    assert_eq!(again, "configuration reloaded: no changes");
}

#[test]
fn change_that_needs_a_restart_is_refused_by_key() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(2);
    for (from, to, key, now) in [
        ("window = \"1s\"", "window = \"2s\"", "window", "\"1s\""),
        (
            "[policy]",
            "[controller]\nstate = \"elsewhere\"\n[policy]",
            "controller.state",
            "\"terrace-state\"",
        ),
        (
            "[policy]",
            "[array]\ndir = \"x\"\n[policy]",
            "array",
            "not set",
        ),
    ] {
        let config = BASE.replace(from, to).replace("\"idt\"", "\"noop\"");
        let refused = reload(&mut host, &config).unwrap_err();
        let Refusal::Invalid(why) = refused else {
            panic!("{refused:?}")
        };
        assert!(
            why.starts_with("test.toml:")
                && why.contains(&format!(
                    "{key}: cannot change without a restart: it is {now} now"
                )),
            "{why}"
        );
        assert_eq!(host.status().strategy, "idt");
    }
}

#[test]
fn changed_strategy_starts_new_and_cordoned_tier_gets_no_data() {
    let mut host = Host::new(BASE, upside_down());
    let plan = host.until_plan();
    let wanted = plan.moves.iter().find(|m| m.volume == "busy").unwrap();
    let tier = wanted.to_tier.clone();
    let config = with("").replace("[policy]", &format!("[policy]\ncordon = [{tier:?}]"));
    reload(&mut host, &config.replace("\"idt\"", "\"noop\"")).unwrap();
    host.windows(1);
    assert_eq!(host.ordered(), [0u32; 0]);
    let plan = host.plan().unwrap();
    let wanted = plan.moves.iter().find(|m| m.volume == "busy").unwrap();
    assert!(
        matches!(&wanted.state, MoveState::Ended { .. }),
        "{wanted:?}"
    );
    let Ok(Answer::Tiers(tiers)) = host.ask(Question::Tiers) else {
        panic!("it answers")
    };
    let closed = tiers.iter().find(|t| t.name == tier).unwrap();
    assert_eq!(closed.state, TierState::Cordoned);
    let plan = host.until_plan();
    assert_eq!((plan.strategy.as_str(), plan.moves.len()), ("noop", 0));
    // After a restart the stored state is that of the new strategy.
    assert_eq!(host.status().strategy, "noop");
}
