//! Second copies that are an answer: for a time, kept while that is said again, and a person's are another matter.

use datapath::Mirroring;
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

fn copies(site: &Site) -> Option<Mirroring> {
    site.samples().volumes[0].mirror.clone()
}

#[test]
fn second_copies_for_a_time_end_with_it_unless_they_are_ordered_again() {
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
    // The same again: for longer. Nothing is copied anew.
    mirror(&site, "0-3", Some(600_000)).unwrap();
    assert!(left(&site) > Nanos::from_secs(500));
    assert_eq!(copies(&site).unwrap().copied.0, 4 * MIB);
    // Another one has to wait until this one is given up.
    let why = mirror(&site, "0-2", Some(60_000)).unwrap_err();
    assert!(why.contains("already mirrored"), "{why}");
    mirror(&site, "0-3", Some(1)).unwrap();
    wait_for("its time is over", || copies(&site).is_none());
    assert_eq!(guest.read(0, data.len() as u32).unwrap(), data);
    // A person's have no end, and no answer takes them over.
    wait_for("the last one is over", || {
        mirror(&site, "0-3", None).is_ok()
    });
    assert_eq!(copies(&site).unwrap().left, None);
    let why = mirror(&site, "0-3", Some(1)).unwrap_err();
    assert!(why.contains("already mirrored"), "{why}");
    assert_eq!(copies(&site).unwrap().left, None);
}
