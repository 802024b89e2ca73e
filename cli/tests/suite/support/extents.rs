//! Volumes of very many extents.

use array::{Array, Change};
use units::{DeviceId, VolumeId};
use volume::Location;

use super::Site;

/// Returns a site whose array has this many allocated extents without data.
pub fn with_extents(extents: u32) -> Site {
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
