//! Crashes: commits on a disk that stops at a random operation, and what is found afterwards.
//!
//! ```text
//!   open ─▶ commit ─▶ … ─▶ commit ─✗ (killed, power lost, or first one and then the other)
//!    ▲                                                    │
//!    └────────────── on what was found ◀──────────────────┘     a few times over, also while opening
//! ```

use algo::Rng;
use array::{Array, ArrayError, Change};
use crashdisk::CrashDisk;

use super::world::{EXTENT, ID, World};

/// What a run has met, so that a test can see that it tests something.
#[derive(Debug, Default, Clone, Copy)]
pub struct Met {
    /// Commits that were acknowledged.
    pub commits: u64,
    /// Crashes during a commit.
    pub in_commit: u64,
    /// Of those, how often the commit was found to be durable.
    pub survived: u64,
    /// Crashes while the array was being opened.
    pub in_open: u64,
    /// Crashes while it was being created, or before.
    pub in_create: u64,
    /// Snapshots that were taken, restored and removed, and extents that were copied up, in commits that were acknowledged.
    pub snapshots: [u64; 4],
}

impl Met {
    pub fn add(&mut self, other: Met) {
        self.commits += other.commits;
        self.in_commit += other.in_commit;
        self.survived += other.survived;
        self.in_open += other.in_open;
        self.in_create += other.in_create;
        for (all, more) in self.snapshots.iter_mut().zip(other.snapshots) {
            *all += more;
        }
    }
}

impl Met {
    fn count(&mut self, before: &World, change: &Change) {
        let is_snapshot = |id| {
            let record = before.volumes.get(id);
            record.is_some_and(|r| r.snapshot.is_some())
        };
        let which = match change {
            Change::TakeSnapshot(_) => 0,
            Change::RestoreSnapshot(_) => 1,
            Change::RemoveVolume(id) if is_snapshot(id) => 2,
            Change::CopyUp { .. } => 3,
            _ => return,
        };
        self.snapshots[which] += 1;
    }
}

/// A few crashes of one array. Panics if what is found is wrong.
pub fn run(seed: u64) -> Met {
    let mut met = Met::default();
    let mut rng = Rng::new(seed, 7);
    let (mut disk, mut world) = create(&mut rng, &mut met);
    for round in 0..1 + rng.below(4) {
        // What the map may be found to hold: the last acknowledged state, or the one that was being committed.
        let mut in_flight: Option<World> = None;
        let array = open(&mut disk, &mut rng, &mut met);
        assert_holds(&array, &world, &in_flight, "before the commits");
        let commits = rng.below(12);
        disk.fail_after(rng.below(3 + commits * 20));
        for _ in 0..commits {
            let (changes, next) = world.commit(&mut rng);
            match array.commit(&changes) {
                Ok(()) => {
                    changes.iter().for_each(|c| met.count(&world, c));
                    world = next;
                    met.commits += 1;
                }
                Err(ArrayError::Store { .. }) if disk.stopped() => {
                    met.in_commit += 1;
                    in_flight = Some(next);
                    assert!(array.commit(&changes).is_err(), "the disk has stopped");
                    break;
                }
                Err(other) => panic!("round {round}: {other}"),
            }
        }
        // Some end in good order: closing writes too.
        if rng.below(8) > 0 {
            disk.stop();
        }
        drop(array);
        disk = found(&disk, &mut rng);
        let array = open(&mut disk, &mut rng, &mut met);
        let now = assert_holds(&array, &world, &in_flight, "after the crash");
        if let Some(in_flight) = in_flight
            && now.same(&in_flight)
        {
            met.survived += 1;
            world = in_flight;
        }
        // What was seen once stays: opening has made it durable.
        disk.stop();
        drop(array);
        disk = disk.power_loss(rng.next_u64());
    }
    met
}

/// Creates an array, with crashes; on a disk on which its creation was not acknowledged, anything may be found but an array
/// with something in it.
fn create(rng: &mut Rng, met: &mut Met) -> (CrashDisk, World) {
    loop {
        let disk = CrashDisk::new(0);
        if rng.below(4) == 0 {
            disk.fail_after(rng.below(40));
        }
        match Array::create_on(disk.clone(), ID, EXTENT) {
            Ok(array) => {
                disk.stop();
                drop(array);
                return (found(&disk, rng), World::default());
            }
            Err(error) => {
                assert!(disk.stopped(), "{error}");
                met.in_create += 1;
                let disk = found(&disk, rng);
                if let Ok(array) = Array::open_on(disk.clone()) {
                    assert_holds(&array, &World::default(), &None, "after half a creation");
                }
            }
        }
    }
}

/// Opens the array, through crashes while it is being opened.
fn open(disk: &mut CrashDisk, rng: &mut Rng, met: &mut Met) -> Array {
    loop {
        if rng.below(4) == 0 {
            disk.fail_after(rng.below(20));
        }
        match Array::open_on(disk.clone()) {
            Ok(array) if !disk.stopped() => {
                disk.fail_after(u64::MAX);
                return array;
            }
            Ok(_) => {}
            Err(error) => assert!(disk.stopped(), "cannot open: {error:?}"),
        }
        met.in_open += 1;
        *disk = found(disk, rng);
    }
}

/// What a crash leaves of a disk.
fn found(disk: &CrashDisk, rng: &mut Rng) -> CrashDisk {
    match rng.below(3) {
        0 => disk.killed(),
        1 => disk.power_loss(rng.next_u64()),
        _ => disk.killed().power_loss(rng.next_u64()),
    }
}

/// The map holds one of the states that it may, and fits together.
fn assert_holds(array: &Array, world: &World, in_flight: &Option<World>, when: &str) -> World {
    assert_eq!((array.id(), array.extent()), (ID, EXTENT));
    let now = World::read(array).unwrap_or_else(|e| panic!("{when}: {e}"));
    let or = in_flight.as_ref().is_some_and(|w| now.same(w));
    assert!(
        now.same(world) || or,
        "{when}: found\n{now:?}\nacknowledged\n{world:?}\nin flight\n{in_flight:?}"
    );
    let report = array.check().unwrap();
    assert!(report.is_clean(), "{when}: {:?}", report.problems);
    now
}
