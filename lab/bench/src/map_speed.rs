//! Time to open a large map and to commit places: `map-speed DIRECTORY EXTENTS [SECOND-DIRECTORY]`.
//!
//! Creates an array of one volume and one device in a new directory below DIRECTORY and fills it. Then it measures:
//!
//! - commits of 1, 64 and 1000 places at random extents, as medians, alternately in a map of one copy and in a map of two copies. The
//!   second copy is in SECOND-DIRECTORY, if given, else in DIRECTORY.
//! - opening the map, reading all places, deriving the free slots, and checking: after an orderly close and after a crash.

use std::path::Path;
use std::time::{Duration, Instant};

use algo::Rng;
use array::{
    Array, ArrayError, ArrayId, Change, CommitError, Copies, CopyId, DeviceKind, DeviceRecord,
    FilePlace, Health, Membership, Slots, Stamp, TierRecord, UsedSlot, VolumeRecord,
};
use model::DirectIo;
use units::{Bytes, DeviceId, TierId, VolumeId};
use volume::Location;

use crate::BenchResult;

const EXTENT: Bytes = Bytes(1 << 20);
const VOLUME: VolumeId = VolumeId(1);
const DEVICE: DeviceId = DeviceId(0);
/// Number of changes per commit while the map is filled.
const FILL: u32 = 10_000;

pub(crate) fn main(args: &[String]) -> BenchResult {
    let (dir, extents, second) = match args {
        [dir, extents] => (dir, extents, dir),
        [dir, extents, second] => (dir, extents, second),
        _ => return Err(crate::WRONG.into()),
    };
    let extents: u32 = extents.parse()?;
    let own = |dir: &str, name: &str| Path::new(dir).join(format!("{name}-{}", std::process::id()));
    let (dir, second) = (own(dir, "map-speed"), own(second, "map-speed-second"));
    std::fs::create_dir(&second)?;
    let result = measure(&dir, extents, &second);
    std::fs::remove_dir_all(&dir)?;
    std::fs::remove_dir_all(&second)?;
    Ok(result?)
}

fn place(extent: u32, slot: u32) -> Change {
    let device = DEVICE;
    Change::Place {
        volume: VOLUME,
        extent,
        at: Location { device, slot },
    }
}

/// Creates a map in a new directory: one volume with all of its extents on one device.
fn filled(dir: &Path, extents: u32) -> Result<Array, ArrayError> {
    let array = Array::create(dir, ArrayId([1; 16]), EXTENT)?;
    let tier = TierRecord {
        id: TierId(0),
        name: "tier".into(),
    };
    let slots = 2 * extents;
    let device = DeviceRecord {
        id: DEVICE,
        tier: TierId(0),
        name: "device".into(),
        kind: DeviceKind::Block,
        path: "nowhere".into(),
        slots,
        high_water: slots,
        emulate: None,
        direct: DirectIo::Off,
    };
    let volume = VolumeRecord {
        id: VOLUME,
        name: "volume".into(),
        size: Bytes(u64::from(extents) * EXTENT.0),
        home: TierId(0),
        class: "default".into(),
        logical_block: 512,
        health: Health::Whole,
        snapshot: None,
        source: None,
    };
    array.commit(&[
        Change::AddTier(tier),
        Change::AddDevice(device),
        Change::AddVolume(volume),
    ])?;
    let begun = Instant::now();
    for first in (0..extents).step_by(FILL as usize) {
        let changes = (first..extents.min(first + FILL)).map(|e| place(e, e));
        array.commit(&changes.collect::<Vec<_>>())?;
    }
    println!("filled with {extents} places: {:?}", begun.elapsed());
    Ok(array)
}

/// Creates the same map with a second copy in another directory, as a server does.
fn with_second(dir: &Path, extents: u32, second: &Path) -> Result<Copies, ArrayError> {
    let array = filled(dir, extents)?;
    let place = |dir: &Path| Box::new(FilePlace(dir.join(array::MAP_FILE)));
    let mut copies = Copies::new(CopyId::First, place(dir), array)?;
    copies.add(CopyId::Second, place(second), None, "it is new");
    copies.begin_rebuild(CopyId::Second)?;
    assert!(copies.end_rebuild(), "{:?}", copies.health());
    let membership = Membership {
        stamp: Stamp {
            generation: 1,
            nonce: 1,
        },
        members: copies.members(),
    };
    let propose = Change::Propose {
        membership,
        devices: vec![],
    };
    for change in [propose, Change::Confirm { devices: vec![] }] {
        copies.commit(&[change]).map_err(CommitError::into_error)?;
    }
    copies.run_in_threads();
    Ok(copies)
}

fn measure(dir: &Path, extents: u32, second: &Path) -> Result<(), ArrayError> {
    let array = filled(dir, extents)?;
    let mut copies = with_second(&dir.join("copies"), extents, second)?;
    let mut rng = Rng::new(1, 1);
    for (count, runs) in [(1, 200), (64, 100), (1000, 30)] {
        let (mut one, mut two): (Vec<Duration>, Vec<Duration>) = (vec![], vec![]);
        for _ in 0..runs {
            let extent = |_| rng.below(extents.into()) as u32;
            let all = (0..count).map(extent).map(|e| place(e, extents + e));
            let changes: Vec<Change> = all.collect();
            let begun = Instant::now();
            array.commit(&changes)?;
            one.push(begun.elapsed());
            let begun = Instant::now();
            copies.commit(&changes).map_err(CommitError::into_error)?;
            two.push(begun.elapsed());
        }
        one.sort();
        two.sort();
        let (one, two) = (one[runs / 2], two[runs / 2]);
        println!(
            "commit of {count} places: {one:?}, with two copies {two:?}, {:.2} times as long",
            two.as_secs_f64() / one.as_secs_f64()
        );
    }
    assert!(copies.members().second, "{:?}", copies.health());
    drop(copies);
    let map = dir.join(array::MAP_FILE);
    let torn = dir.join("torn");
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| ArrayError::Io {
            action: "copy",
            path,
            source,
        }
    };
    // A copy of the open file has the state that a killed process leaves.
    std::fs::create_dir(&torn).map_err(io(&torn))?;
    std::fs::copy(&map, torn.join(array::MAP_FILE)).map_err(io(&map))?;
    let size = std::fs::metadata(&map).map_err(io(&map))?.len();
    println!("the map has {}", Bytes(size));
    drop(array);
    for (how, dir) in [("after it was closed", dir), ("after a crash", &torn)] {
        let begun = Instant::now();
        let array = Array::open(dir)?;
        let opened = begun.elapsed();
        let places = array.places(VOLUME)?;
        let read = begun.elapsed();
        let devices = array.devices()?;
        let used = (0..).zip(places).filter_map(|(extent, at)| {
            let (at, family) = (at?, VOLUME);
            Some(UsedSlot { at, family, extent })
        });
        let slots = Slots::new(&devices, used);
        let free = slots.map_or(0, |s| s.free(DEVICE));
        println!(
            "opened {how}: {opened:?}, with places {read:?}, with slots {:?} ({free} free)",
            begun.elapsed()
        );
        let begun = Instant::now();
        let report = array.check()?;
        println!(
            "check: {:?}, {} problems",
            begun.elapsed(),
            report.problems.len()
        );
    }
    Ok(())
}
