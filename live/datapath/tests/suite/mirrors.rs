//! Temporary mirrors of remedies: they stay while they are ordered again, and are separate from mirrors of operators.

use datapath::MirrorProgress;
use datapath::control_server::{ControlAnswer, ControlRequest};
use units::{BytesPerSec, Nanos};

use crate::support::{MIB, Site, wait_for};

fn mirror(site: &Site, extents: &str, lasting: Option<u64>) -> Result<ControlAnswer, String> {
    site.ask(ControlRequest::Mirror {
        volume: "data".into(),
        to: "slow".into(),
        device: None,
        bandwidth: BytesPerSec(200 << 20),
        extents: Some(extents.parse().unwrap()),
        lasting: lasting.map(Nanos::from_millis),
    })
}

fn copies(site: &Site) -> Option<MirrorProgress> {
    site.samples().volumes[0].mirror.clone()
}

#[test]
fn temporary_mirrors_expire_unless_renewed() {
    let mut site = Site::empty();
    site.add("fast", "fast", 64, None);
    site.add("slow", "slow", 64, None);
    site.serve(&[]);
    site.create("data", 16, "fast");
    let mut guest = site.connect("data").unwrap();
    let data = vec![7; 4 * MIB as usize];
    guest.write(0, &data).unwrap();
    mirror(&site, "0-3", Some(60_000)).unwrap();
    wait_for("it is there", || {
        copies(&site).is_some_and(|c| c.phase == "mirrored")
    });
    let left = |site: &Site| copies(site).unwrap().left.unwrap();
    assert!(left(&site) <= Nanos::from_secs(60));
    // Ordering the same mirror again extends it without a new copy.
    mirror(&site, "0-3", Some(600_000)).unwrap();
    assert!(left(&site) > Nanos::from_secs(500));
    assert_eq!(copies(&site).unwrap().copied.0, 4 * MIB);
    // Another mirror must wait until this one has ended.
    let why = mirror(&site, "0-2", Some(60_000)).unwrap_err();
    assert!(why.contains("already mirrored"), "{why}");
    mirror(&site, "0-3", Some(1)).unwrap();
    wait_for("its time is over", || copies(&site).is_none());
    assert_eq!(guest.read(0, data.len() as u32).unwrap(), data);
    // A mirror of an operator has no end, and no remedy takes it over.
    wait_for("the last one is over", || {
        mirror(&site, "0-3", None).is_ok()
    });
    assert_eq!(copies(&site).unwrap().left, None);
    let why = mirror(&site, "0-3", Some(1)).unwrap_err();
    assert!(why.contains("already mirrored"), "{why}");
    assert_eq!(copies(&site).unwrap().left, None);
}
