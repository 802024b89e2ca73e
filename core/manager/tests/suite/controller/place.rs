//! Advice on volumes that do not exist yet.

use manager::question::{Answer, PlaceQuestion, Question, Refusal};
use manager::service::Service;
use manager::view::{PlaceStanding, PlaceView};
use model::TierState;
use units::Bytes;

use super::host::{BASE, Host, WINDOW};
use super::upside_down;

/// Returns a host with a model-based strategy and an objective that only the fast tier meets.
fn host() -> Host {
    let config = BASE.replace("\"idt\"", "\"terrace\"");
    Host::new(&config.replace("\"2ms\"", "\"130us\""), upside_down())
}

fn like(volume: &str) -> PlaceQuestion {
    PlaceQuestion {
        size: Bytes::gib(1),
        class: Some("gold".into()),
        like: Some(volume.into()),
        host: None,
    }
}

fn asked(host: &mut Host, question: PlaceQuestion) -> Result<PlaceView, Refusal> {
    match host.ask(Question::Place(question))? {
        Answer::Place(place) => Ok(*place),
        other => panic!("{other:?}"),
    }
}

fn refused(host: &mut Host, question: PlaceQuestion) -> String {
    match asked(host, question) {
        Err(Refusal::NotFound(why) | Refusal::Conflict(why) | Refusal::Invalid(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn volume_like_a_busy_one_is_placed_to_meet_its_objective() {
    let mut host = host();
    host.windows(3);
    let place = asked(&mut host, like("busy")).unwrap();
    assert_eq!(place.tier.as_deref(), Some("fast"), "{place:#?}");
    assert_eq!(
        (place.host.as_str(), place.class.as_str()),
        ("alpha", "gold")
    );
    assert_eq!(place.strategy, "terrace");
    assert_eq!(
        place.notes,
        ["load assumed: that of busy, 800 r/s and 0 w/s, 3.1 MiB/s"]
    );
    assert_eq!(place.load.reads_per_s, 800.0);
    let best = &place.tiers[0];
    assert_eq!(
        (best.tier.as_str(), best.standing),
        ("fast", PlaceStanding::Best)
    );
    assert_eq!(best.device.as_deref(), Some("fast-0"));
    assert!(
        best.verdict
            .contains("of SLO violation (class-weighted) per second compared with mid"),
        "{best:?}"
    );
    let (low, high) = best.latency_range_us.unwrap();
    assert!(low < 95.0 && high > 95.0, "{best:?}");
    // The idle volume uses half a GiB of 4 GiB.
    assert_eq!(best.free_after_bytes, Some(5 << 29));
    let cost = best.cost.unwrap();
    assert!(cost.own_per_s < place.tiers[1].cost.unwrap().own_per_s);
    // The host may be named within the volume's name or separately.
    let named = PlaceQuestion {
        host: Some("alpha".into()),
        ..like("alpha/busy")
    };
    assert_eq!(asked(&mut host, named).unwrap(), place);
}

#[test]
fn closed_tiers_are_not_recommended() {
    let mut host = host();
    host.windows(3);
    for (tier, state) in [("fast", TierState::Cordoned), ("mid", TierState::Draining)] {
        let tier = tier.into();
        host.order(Question::SetTier { tier, state });
    }
    let place = asked(&mut host, like("busy")).unwrap();
    assert_eq!(place.tier.as_deref(), Some("slow"));
    let row = |tier: &str| {
        let found = place.tiers.iter().find(|t| t.tier == tier).unwrap();
        (found.standing, found.verdict.as_str())
    };
    assert_eq!(
        row("fast"),
        (PlaceStanding::Refused, "the tier is cordoned")
    );
    assert_eq!(
        row("mid"),
        (PlaceStanding::Refused, "the tier is being drained")
    );
    assert_eq!(
        row("slow"),
        (PlaceStanding::Best, "no other tier accepts the volume")
    );
}

#[test]
fn load_of_a_new_volume_is_estimated_with_a_note() {
    let mut host = host();
    host.windows(3);
    let mut question = like("");
    question.like = None;
    let place = asked(&mut host, question.clone()).unwrap();
    assert_eq!(
        place.notes,
        [
            "load assumed: that of idle, scaled by size (the median of 2 volumes of class gold), 20 r/s and 0 w/s, 0.1 MiB/s; --like VOLUME selects another volume"
        ]
    );
    question.class = None;
    let place = asked(&mut host, question).unwrap();
    assert_eq!(place.class, "default");
    let of_all = "(the median of all 2 volumes; none of class default is measured)";
    assert!(place.notes[0].contains(of_all), "{:?}", place.notes);
}

#[test]
fn tiers_without_space_for_a_new_volume_are_explained() {
    let mut host = host();
    host.windows(3);
    let place = asked(
        &mut host,
        PlaceQuestion {
            size: Bytes::gib(9),
            ..like("busy")
        },
    )
    .unwrap();
    assert_eq!(place.tier, None);
    assert_eq!(place.why_not.as_deref(), Some("no tier accepts the volume"));
    let verdicts = place.tiers.iter().map(|t| &t.verdict);
    for verdict in verdicts {
        assert!(verdict.starts_with("too big: needs 9.00 GiB"), "{verdict}");
    }
    // Data written since the last decision counts.
    host.volumes[1].mib = 3500;
    host.windows(1);
    let place = asked(&mut host, like("busy")).unwrap();
    let fast = place.tiers.iter().find(|t| t.tier == "fast").unwrap();
    assert_eq!(fast.standing, PlaceStanding::Refused);
    assert!(
        fast.verdict.starts_with("no device: needs 1.00 GiB"),
        "{fast:?}"
    );
    // With enough space the tier would still have been the fastest.
    assert!(fast.latency_us.is_some());
}

#[test]
fn strategy_without_a_model_gives_no_recommendation() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(3);
    let place = asked(&mut host, like("busy")).unwrap();
    assert_eq!(place.tier, None);
    let why = "strategy idt does not advise on new volumes";
    assert_eq!(place.why_not.as_deref(), Some(why));
    assert!(
        place
            .tiers
            .iter()
            .all(|t| t.standing == PlaceStanding::Unknown)
    );
    assert_eq!(place.tiers[0].verdict, why);
}

#[test]
fn placement_with_unknown_or_old_facts_is_refused() {
    let mut host = host();
    let why = refused(&mut host, like("busy"));
    assert_eq!(why, "unknown volume \"busy\": none is defined");
    host.windows(1);
    let why = refused(&mut host, like("busy"));
    assert!(why.starts_with("no facts about alpha yet"), "{why}");
    host.windows(2);
    for (question, said) in [
        (
            like("bussy"),
            "unknown volume \"bussy\", did you mean \"busy\"?",
        ),
        (
            PlaceQuestion {
                class: Some("golf".into()),
                ..like("busy")
            },
            "unknown class \"golf\", did you mean \"gold\"?",
        ),
        (
            PlaceQuestion {
                size: Bytes::ZERO,
                ..like("busy")
            },
            "the size of a volume cannot be 0",
        ),
        (
            PlaceQuestion {
                host: Some("beta".into()),
                ..like("busy")
            },
            "unknown host \"beta\"; known hosts: alpha",
        ),
    ] {
        assert_eq!(refused(&mut host, question), said);
    }
    host.now_ns += 4 * WINDOW;
    let now = host.now();
    host.managed.tick(now);
    let why = refused(&mut host, like("busy"));
    assert!(why.contains("does not report"), "{why}");
    // After a restart no measurements exist until the next epoch ends.
    host.restart_controller();
    host.register();
    host.windows(1);
    let why = refused(&mut host, like("busy"));
    assert!(why.starts_with("no facts about alpha yet"), "{why}");
    host.windows(2);
    assert!(asked(&mut host, like("busy")).is_ok());
}
