//! Temporary throttles of operators.

use manager::question::{Answer, Question, Refusal};
use manager::view::VolumeView;
use manager::wire::Throttle;

use super::host::{BASE, Host};
use super::{AUTO, upside_down, with};

const SECOND: u64 = 1_000_000_000;

fn throttle(iops: Option<u64>, bandwidth: Option<u64>, seconds: u64) -> Question {
    Question::Throttle {
        volume: "busy".into(),
        to: Some(Throttle {
            iops,
            bandwidth_bytes_per_s: bandwidth,
            lasting_ns: seconds * SECOND,
        }),
    }
}

fn shown(host: &mut Host) -> VolumeView {
    let question = Question::Volume {
        volume: "busy".into(),
    };
    match host.ask(question) {
        Ok(Answer::Volume(view)) => *view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn throttles_are_ordered_for_a_time_and_survive_restarts() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(1);
    let said = host.order(throttle(Some(200), Some(20 << 20), 600));
    assert_eq!(
        said,
        "busy is limited to 200 requests and 20 MiB per second for 10m, from the next report of its agent"
    );
    let before = shown(&mut host).throttle.unwrap();
    assert!(!before.in_force && before.left_ns == 600 * SECOND);
    host.restart_controller();
    host.register();
    host.windows(1);
    let orders = &host.orders.as_ref().unwrap().throttles;
    let [order] = &orders[..] else {
        panic!("{orders:?}")
    };
    assert_eq!((&*order.volume, order.throttle.iops), ("busy", Some(200)));
    let left_ns = order.throttle.lasting_ns;
    assert!(
        left_ns < 600 * SECOND && left_ns > 500 * SECOND,
        "{left_ns}"
    );
    let in_force = order.throttle;
    host.volumes
        .iter_mut()
        .find(|v| v.name == "busy")
        .unwrap()
        .throttle = Some(in_force);
    host.windows(1);
    assert!(shown(&mut host).throttle.unwrap().in_force);
    // The throttle expires, but its agent reports it late.
    while host.orders.as_ref().unwrap().throttles.len() == 1 {
        host.windows(1);
    }
    let over = shown(&mut host).throttle.unwrap();
    assert_eq!(over.left_ns, 0);
    host.volumes
        .iter_mut()
        .find(|v| v.name == "busy")
        .unwrap()
        .throttle = None;
    host.windows(1);
    assert_eq!(shown(&mut host).throttle, None);
    host.tick();
    let Ok(Answer::Events(events)) = host.ask(Question::Events {
        after: None,
        limit: 100,
    }) else {
        panic!("it answers")
    };
    let ended = events
        .iter()
        .any(|e| e.volume.as_deref() == Some("busy") && e.text.ends_with("has expired"));
    assert!(ended, "{events:?}");
}

#[test]
fn invalid_throttle_is_refused() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(1);
    for (question, said) in [
        (throttle(None, None, 60), "no limit is given"),
        (throttle(Some(19), None, 60), "iops must be between 20 and"),
        (
            throttle(None, Some(1000), 60),
            "bandwidth_bytes_per_s must be between 2097152",
        ),
        (throttle(Some(u64::MAX), None, 60), "iops must be between"),
        (throttle(Some(100), None, 0), "at most seven days"),
        (throttle(Some(100), None, 8 * 86_400), "at most seven days"),
    ] {
        let refused = host.ask(question);
        assert!(
            matches!(&refused, Err(Refusal::Invalid(why)) if why.contains(said)),
            "{refused:?}"
        );
    }
    let lift = || Question::Throttle {
        volume: "busy".into(),
        to: None,
    };
    let refused = host.ask(lift());
    assert!(
        matches!(&refused, Err(Refusal::Conflict(why)) if why == "busy is not limited"),
        "{refused:?}"
    );
    host.order(throttle(Some(100), None, 60));
    host.order(lift());
    host.windows(1);
    assert_eq!(host.orders.as_ref().unwrap().throttles, []);
}

/// The demand of a throttled volume is unknown to the planner, so the volume stays in place.
#[test]
fn throttled_volume_is_not_planned_by_its_load() {
    let planned = |limited: bool| {
        let mut host = Host::new(&with(AUTO), upside_down());
        let busy = host.volumes.iter_mut().find(|v| v.name == "busy").unwrap();
        busy.throttle = limited.then_some(Throttle {
            iops: Some(100),
            bandwidth_bytes_per_s: None,
            lasting_ns: 1000 * SECOND,
        });
        let plan = host.until_plan();
        plan.moves.iter().any(|m| m.volume == "busy")
    };
    assert!(planned(false));
    assert!(!planned(true));
}
