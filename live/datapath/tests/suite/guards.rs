//! Protection against mistakes of operators: deletion of volumes in use, unknown classes, overcommitment beyond its
//! limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use datapath::control_server::{ControlAnswer, ControlRequest, TierInfo};
use units::Bytes;

use crate::support::{Site, wait_for};

/// Serves an array with two tiers, 64 MiB and 192 MiB.
fn served() -> Site {
    let mut site = Site::empty();
    site.add("fast", "fast", 64, None);
    site.add("slow", "slow", 192, None);
    site.serve(&[]);
    site
}

fn create(
    site: &Site,
    volume: &str,
    size: Bytes,
    class: Option<&str>,
) -> Result<ControlAnswer, String> {
    site.ask(ControlRequest::Create {
        volume: volume.into(),
        size,
        tier: "slow".into(),
        class: class.map(Into::into),
    })
}

impl Site {
    fn delete(&self, volume: &str, force: bool) -> Result<String, String> {
        let volume = volume.into();
        match self.ask(ControlRequest::Delete { volume, force })? {
            ControlAnswer::Done { message } => Ok(message),
            other => panic!("{other:?}"),
        }
    }

    fn policy(&self, classes: Option<&[&str]>, overcommit_max: Option<f64>) {
        self.done(ControlRequest::Policy {
            classes: classes.map(|c| c.iter().map(|c| c.to_string()).collect()),
            overcommit_max,
        });
    }

    fn tiers(&self) -> (Vec<TierInfo>, Option<f64>) {
        match self.ask(ControlRequest::Tiers) {
            Ok(ControlAnswer::Tiers {
                tiers,
                overcommit_max,
            }) => (tiers, overcommit_max),
            other => panic!("{other:?}"),
        }
    }

    fn class(&self, volume: &str) -> String {
        let volumes = self.samples().volumes;
        let found = volumes.into_iter().find(|v| v.name == volume);
        found.expect("it is there").class
    }
}

#[test]
fn volume_in_use_is_deleted_only_with_force() {
    let site = served();
    create(&site, "data", Bytes::mib(8), None).unwrap();
    let mut first = site.connect("data").unwrap();
    first.write(0, &[7; 4096]).unwrap();
    assert_eq!(
        site.delete("data", false).unwrap_err(),
        "volume \"data\" is in use: 1 connection of a guest is open; `--force` closes them and deletes it"
    );
    let mut second = site.connect("data").unwrap();
    assert_eq!(second.read(0, 4096).unwrap(), [7; 4096]);
    let refused = site.delete("data", false).unwrap_err();
    assert!(
        refused.contains("2 connections of guests are open"),
        "{refused}"
    );
    // Present and later connections are not affected.
    first.write(4096, &[8; 4096]).unwrap();
    first.flush().unwrap();
    let mut third = site.connect("data").unwrap();
    assert_eq!(third.read(4096, 4096).unwrap(), [8; 4096]);
    third.disconnect().unwrap();
    drop(second);
    wait_for("guests are gone", || {
        site.samples().volumes[0].connections == Some(1)
    });

    assert_eq!(
        site.delete("data", true).unwrap(),
        "deleted volume data; 1 connection of a guest was closed"
    );
    assert!(first.read(0, 512).is_err());
    assert!(site.connect("data").is_err());
    assert!(site.samples().volumes.is_empty());
}

#[test]
fn unused_volume_is_deleted_without_force() {
    let site = served();
    create(&site, "data", Bytes::mib(8), None).unwrap();
    let mut client = site.connect("data").unwrap();
    client.write(0, &[7; 4096]).unwrap();
    client.disconnect().unwrap();
    wait_for("guests are gone", || {
        site.samples().volumes[0].connections == Some(0)
    });
    assert_eq!(site.delete("data", false).unwrap(), "deleted volume data");
    assert_eq!(site.tiers().0[1].used, Bytes(0));
}

/// A guest that connects during a deletion is either served, and the volume stays, or it is not served at all. A
/// guest with an acknowledged write is never disconnected without force.
#[test]
fn guest_connecting_during_a_deletion_is_served_or_refused() {
    let site = served();
    let (mut kept, mut deleted) = (0, 0);
    for round in 0..120u64 {
        create(&site, "data", Bytes::mib(1), None).unwrap();
        let over = AtomicBool::new(false);
        let answered = AtomicBool::new(false);
        // At least one round has each of the two outcomes.
        let (guest_first, guest_last) = (round == 0, round == 1);
        let outcome = std::thread::scope(|scope| {
            let _over = testkit::flag::SetOnDrop(&over);
            let guest = scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(round * 13 % 3000));
                while guest_last && !over.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                let mut client = site.connect("data").ok()?;
                client.write(0, &[9; 512]).ok()?;
                answered.store(true, Ordering::Release);
                // The write was acknowledged: from here on the guest must not be disconnected.
                while !over.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                Some(client.read(0, 512).map(|_| client))
            });
            std::thread::sleep(Duration::from_micros(round * 7 % 600));
            while guest_first && !answered.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let outcome = site.delete("data", false);
            over.store(true, Ordering::Release);
            let served = guest.join().unwrap();
            match (&outcome, served) {
                (_, Some(Err(error))) => panic!("round {round}: cut off: {error}, {outcome:?}"),
                (Ok(_), Some(Ok(_))) => panic!("round {round}: served and deleted"),
                _ => {}
            }
            outcome
        });
        match outcome {
            Ok(_) => deleted += 1,
            Err(_) => {
                kept += 1;
                // After a refusal the volume is served as before.
                drop(site.connect("data").unwrap());
                site.delete("data", true).unwrap();
            }
        }
    }
    assert!(kept > 0 && deleted > 0, "{kept} kept, {deleted} deleted");
}

#[test]
fn undefined_class_is_refused_if_a_policy_is_set() {
    let site = served();
    // Without a policy, a class is only a label.
    create(&site, "a", Bytes::mib(1), Some("anything")).unwrap();
    create(&site, "b", Bytes::mib(1), None).unwrap();
    assert_eq!(
        (&*site.class("a"), &*site.class("b")),
        ("anything", "default")
    );

    site.policy(Some(&["gold", "silver"]), None);
    let refused = "unknown service class \"glod\", did you mean \"gold\"? (classes are defined in the configuration of the controller)";
    assert_eq!(
        create(&site, "c", Bytes::mib(1), Some("glod")).unwrap_err(),
        refused
    );
    let set = |volume: &str, class: &str| {
        site.ask(ControlRequest::SetClass {
            volume: volume.into(),
            class: class.into(),
        })
    };
    assert_eq!(set("b", "glod").unwrap_err(), refused);
    assert_eq!(site.class("b"), "default");
    set("b", "gold").unwrap();
    assert_eq!(site.class("b"), "gold");
    // Back to the default class. The earlier class of the other volume is unchanged.
    set("b", "default").unwrap();
    assert_eq!(
        (&*site.class("a"), &*site.class("b")),
        ("anything", "default")
    );
    create(&site, "c", Bytes::mib(1), None).unwrap();
    assert_eq!(site.class("c"), "default");

    site.policy(None, None);
    set("b", "anything").unwrap();
}

#[test]
fn provisioned_size_is_shown_and_limited_by_overcommit_max() {
    let site = served();
    create(&site, "a", Bytes::mib(200), None).unwrap();
    let shown = || {
        let (tiers, most) = site.tiers();
        let of_tiers: Vec<_> = tiers.iter().map(|t| t.provisioned).collect();
        assert_eq!(site.samples().provisioned, of_tiers);
        (of_tiers, most)
    };
    assert_eq!(shown(), (vec![Bytes(0), Bytes::mib(200)], None));
    site.policy(None, Some(1.5));
    assert_eq!(shown().1, Some(1.5));
    // The array has 256 MiB, so volumes may have 384 MiB.
    assert_eq!(
        create(&site, "b", Bytes::mib(185), None).unwrap_err(),
        "cannot create volume \"b\" of 185 MiB: the array has 256 MiB, its volumes have 200 MiB, and would have 385 MiB; policy.overcommit_max allows 1.5 times the size of the array (384 MiB)"
    );
    create(&site, "b", Bytes::mib(184), None).unwrap();
    assert_eq!(shown().0, [Bytes(0), Bytes::mib(384)]);
    site.delete("a", false).unwrap();
    create(&site, "c", Bytes::mib(200), None).unwrap();
    site.policy(None, None);
    create(&site, "d", Bytes::gib(1 << 17), None).unwrap();
    assert_eq!(
        shown().0[1],
        Bytes(Bytes::gib(1 << 17).0 + Bytes::mib(384).0)
    );
    let refused = site.ask(ControlRequest::Policy {
        classes: None,
        overcommit_max: Some(0.0),
    });
    assert_eq!(
        refused.unwrap_err(),
        "overcommit_max must be a factor above 0, not 0"
    );
}
