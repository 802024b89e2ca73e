//! Two controllers and an operator that send orders to one served array.

use std::time::Duration;

use datapath::control::{self, CONTROL_SOCKET, ControlError};
use datapath::control_server::{ControlAnswer, ControlRequest};
use datapath::stages::throttle::{self, ThrottleStatus};
use model::{ControllerId, LeaseHolder, LeaseStatus};
use units::{Iops, Nanos};

use crate::support::Site;

/// Longer than any of these tests.
const LONG: Nanos = Nanos::from_secs(600);

fn controller(store: u64, epoch: u64) -> LeaseHolder {
    let start = store * 100 + epoch;
    let id = ControllerId {
        store,
        epoch,
        start,
    };
    let name = format!("/run/c{store}.sock");
    LeaseHolder { id, name }
}

fn limit(iops: f64) -> ControlRequest {
    ControlRequest::from(throttle::Command::Throttle {
        volume: "v".into(),
        to: Some(ThrottleStatus {
            iops: Some(Iops(iops)),
            bandwidth: None,
            lasting: LONG,
        }),
    })
}

impl Site {
    fn claim(&self, by: &LeaseHolder, lasting: Nanos) -> LeaseStatus {
        let claim = ControlRequest::Claim {
            controller: by.clone(),
            lasting,
        };
        match self.ask(claim) {
            Ok(ControlAnswer::Lease(status)) => status,
            other => panic!("{other:?}"),
        }
    }

    fn order(&self, by: &LeaseHolder, what: &ControlRequest) -> Result<(), String> {
        let path = self.path("array").join(CONTROL_SOCKET);
        match control::order(&path, by.id, what) {
            Ok(_) => Ok(()),
            Err(ControlError::Refused(why)) => Err(why),
            Err(other) => panic!("{other:?}"),
        }
    }

    /// The temporary limits of the volume.
    fn limited(&self) -> Option<f64> {
        let samples = self.samples();
        let of = samples.volumes.iter().find(|v| v.name == "v").unwrap();
        of.throttled.and_then(|t| t.iops).map(|iops| iops.0)
    }

    fn commits(&self) -> u64 {
        match self.ask(ControlRequest::Copies) {
            Ok(ControlAnswer::Copies { commits, .. }) => commits,
            other => panic!("{other:?}"),
        }
    }
}

fn served() -> Site {
    let mut site = Site::empty();
    site.add("fast", "fast", 64, None);
    site.serve(&[]);
    site.create("v", 16, "fast");
    site
}

#[test]
fn orders_need_the_lease_except_those_of_operators() {
    let site = served();
    let (one, two) = (controller(1, 1), controller(2, 1));
    let why = site.order(&one, &limit(100.0)).unwrap_err();
    assert!(why.contains("has not claimed the lease"), "{why}");
    assert_eq!(site.claim(&one, LONG).holder, one);
    site.order(&one, &limit(100.0)).unwrap();
    assert_eq!(site.claim(&two, LONG).holder, one);
    let why = site.order(&two, &limit(200.0)).unwrap_err();
    assert!(
        why.contains("controller /run/c1.sock (") && why.contains("for another"),
        "{why}"
    );
    assert_eq!(site.limited(), Some(100.0));
    // Each controller learns of the other one.
    assert_eq!(site.claim(&one, LONG).refused, Some(two.clone()));
    site.done(limit(300.0));
    assert_eq!(site.limited(), Some(300.0));
    // The same controller after a restart.
    let again = controller(1, 2);
    assert_eq!(site.claim(&again, LONG).holder, again);
    assert!(site.order(&one, &limit(100.0)).is_err());
    assert_eq!(site.claim(&one, LONG).holder, again);
    assert_eq!(site.limited(), Some(300.0));
}

#[test]
fn unrenewed_lease_expires_and_another_controller_gets_it() {
    let site = served();
    let (one, two) = (controller(1, 1), controller(2, 1));
    let short = Nanos::from_millis(300);
    site.claim(&one, short);
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while site.claim(&two, LONG).holder != two {
        assert!(std::time::Instant::now() < until, "the lease does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(site.order(&one, &limit(100.0)).is_err());
    site.order(&two, &limit(200.0)).unwrap();
}

#[test]
fn lease_holder_survives_a_restart_and_renewals_are_not_stored() {
    let mut site = served();
    let (one, two) = (controller(1, 7), controller(2, 1));
    site.claim(&one, LONG);
    let commits = site.commits();
    for _ in 0..20 {
        site.claim(&one, LONG);
        site.claim(&two, LONG);
    }
    assert_eq!(site.commits(), commits);
    site.stop();
    site.serve(&["v"]);
    let status = site.claim(&two, LONG);
    assert_eq!(status.holder, one);
    assert!(
        status.left_ns > LONG.0 / 2,
        "the lease lasts anew: {status:?}"
    );
    site.order(&one, &limit(100.0)).unwrap();
    assert!(site.order(&two, &limit(200.0)).is_err());
}
