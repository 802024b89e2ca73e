//! Volumes that are held for a complete read: no guest can connect, and no write in flight takes effect later.

use std::time::Duration;

use datapath::control::{CONTROL_SOCKET, ControlError, VolumeHold};
use datapath::control_server::ControlRequest;
use datapath::stages::throttle;
use testkit::vhost_user::{Guest, GuestSpec};
use units::BytesPerSec;

use crate::support::{MIB, Site, wait_for};

fn served() -> Site {
    let mut site = Site::empty();
    site.add("fast", "fast", 256, None);
    site.serve(&[]);
    let dir = site.path("vhost");
    site.serving().listen_vhost_user(&dir).unwrap();
    site.create("data", 64, "fast");
    site
}

fn hold(site: &Site) -> Result<VolumeHold, ControlError> {
    VolumeHold::begin(&site.path("array").join(CONTROL_SOCKET), "data")
}

/// Holds the volume as soon as all guests have disconnected.
fn held(site: &Site) -> VolumeHold {
    let mut held = None;
    wait_for("it is held", || {
        held = hold(site).ok();
        held.is_some()
    });
    held.unwrap()
}

#[test]
fn vhost_user_guests_are_excluded_during_a_hold() {
    let site = served();
    let socket = site.path("vhost/data.sock");
    let connect = || {
        let mut guest = Guest::new(GuestSpec::default());
        guest.connect(&socket).map(|()| guest)
    };
    let mut guest = connect().unwrap();
    guest.write(0, &[1; 512]).unwrap();
    let why = hold(&site).unwrap_err().to_string();
    assert!(why.contains("1 connection of a guest is open"), "{why}");
    guest.write(512, &[2; 512]).unwrap();
    drop(guest);
    let holding = held(&site);
    assert!(connect().is_err());
    let mut reader = site.connect(&holding.export).unwrap();
    assert_eq!(reader.read(512, 512).unwrap(), [2; 512]);
    holding.end().unwrap();
    let mut guest = connect().unwrap();
    guest.write(0, &[3; 512]).unwrap();
    assert_eq!(guest.read(512, 512).unwrap(), [2; 512]);
}

#[test]
fn requests_of_disconnected_guests_complete_before_a_hold() {
    let site = served();
    let limit = |rate| {
        site.done(ControlRequest::from(throttle::Command::Limit {
            volume: "data".into(),
            iops: None,
            bandwidth: Some(BytesPerSec(rate)),
            weight: None,
        }));
    };
    limit(MIB / 2);
    let waiting = || {
        let volumes = site.samples().volumes;
        let counts = volumes[0].stages.measure.counts.as_ref().unwrap();
        counts.outstanding
    };
    std::thread::scope(|threads| {
        let mut breakers = vec![];
        for at in 0..4 {
            let mut guest = site.connect("data").unwrap();
            breakers.push(guest.breaker().unwrap());
            // The connection may be broken before the reply.
            threads.spawn(move || drop(guest.write(at * MIB, &[7; MIB as usize])));
        }
        wait_for("some wait", || waiting() >= 2);
        drop(breakers);
    });
    let holding = held(&site);
    limit(0);
    let mut reader = site.connect(&holding.export).unwrap();
    let mut all = || reader.read(0, 4 * MIB as u32).unwrap();
    let first = all();
    assert!(first.iter().filter(|b| **b == 7).count() as u64 >= 2 * MIB);
    std::thread::sleep(Duration::from_secs(2));
    assert!(all() == first, "it changes while it is held");
    holding.end().unwrap();
}
