//! How long guests wait while a server with very many extents is taken over.

use std::time::Duration;

use array::{Array, Change};
use units::{DeviceId, VolumeId};
use volume::Location;

use crate::support::Site;
use crate::support::checking::{Guest, Seen};

/// Extents; `TERRACE_EXTENTS` says another number.
const EXTENTS: u32 = 1_000_000;

/// Guests, and how often each of them asks: 5 000 requests per second in all.
const GUESTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(2);

/// What nobody should wait longer.
const STALL: Duration = Duration::from_millis(300);

/// An array with so many extents in places, of which nothing was ever written.
fn with_extents(extents: u32) -> Site {
    let site = Site::empty();
    let dir = site.path("fast");
    std::fs::create_dir(&dir).unwrap();
    let kib = |extents: u32| format!("{} KiB", u64::from(extents) * 64);
    let (dir, size) = (dir.to_str().unwrap(), kib(extents + 4096));
    let add = [
        "tier", "add", "fast", "--dir", dir, "--extent", "64 KiB", "--size", &size,
    ];
    site.ok(&add);
    let size = kib(extents);
    site.ok(&["volume", "create", "db", "--size", &size, "--tier", "fast"]);
    let array = Array::open(&site.path("array")).unwrap();
    let (device, volume) = (DeviceId(0), VolumeId(0));
    let slots = extents;
    array
        .commit(&[Change::HighWater { device, slots }])
        .unwrap();
    let all: Vec<u32> = (0..extents).collect();
    for some in all.chunks(100_000) {
        let place = |extent: &u32| Change::Place {
            volume,
            extent: *extent,
            at: Location {
                device,
                slot: *extent,
            },
        };
        let places: Vec<Change> = some.iter().map(place).collect();
        array.commit(&places).unwrap();
    }
    site
}

#[test]
fn guests_of_a_million_extents_wait_for_a_moment() {
    let _alone = crate::alone();
    let extents = std::env::var("TERRACE_EXTENTS").ok();
    let extents = extents.map_or(EXTENTS, |n| n.parse().unwrap());
    let mut site = with_extents(extents);
    site.serve(&[]);
    site.copies_are_current();
    let uri = site.uri("db");
    let first = |n: usize| n * 1000;
    let guests: Vec<Guest> = (0..GUESTS)
        .map(|n| Guest::new(&uri, first(n), 1000, PAUSE))
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    for _ in 0..3 {
        site.take_over(&[]);
        std::thread::sleep(Duration::from_secs(1));
    }
    let guests = guests.into_iter().enumerate();
    let seen: Vec<Seen> = guests.map(|(n, guest)| guest.end(first(n))).collect();
    let worst = seen.iter().map(|s| s.worst).max().unwrap();
    let requests: u64 = seen.iter().map(|s| s.requests).sum();
    println!("{extents} extents, {requests} requests, the worst took {worst:?}");
    println!("{}", site.log());
    assert!(worst < STALL, "{worst:?}");
}
