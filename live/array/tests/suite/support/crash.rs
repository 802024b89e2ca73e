//! Crashes: commits on a disk that stops at a random operation, and checks of the recovered map.
//!
//! ```text
//!   open ─▶ commit ─▶ … ─▶ commit ─✗ (killed, power lost, or killed and then power lost)
//!    ▲                                                    │
//!    └────────────── on the remaining content ◀───────────┘     several times, also during the opening
//! ```

use algo::Rng;
use array::{Array, ArrayError, Change};
use crashdisk::CrashDisk;

use super::world::{EXTENT, ID, World};

/// Events of a run. A test uses them to check that it covers each kind.
#[derive(Debug, Default, Clone, Copy)]
pub struct CrashCounts {
    /// Number of acknowledged commits.
    pub commits: u64,
    /// Number of crashes during a commit.
    pub in_commit: u64,
    /// Number of these crashes whose commit was durable.
    pub survived: u64,
    /// Number of crashes during the opening of the array.
    pub in_open: u64,
    /// Number of crashes before or during the creation.
    pub in_create: u64,
    /// Number of snapshots taken, restored and removed, and of extents copied up, in acknowledged commits.
    pub snapshots: [u64; 4],
}

impl CrashCounts {
    pub fn add(&mut self, other: CrashCounts) {
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

impl CrashCounts {
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

/// Runs several crashes of one array. Panics if a recovered map is wrong.
pub fn run(seed: u64) -> CrashCounts {
    let mut met = CrashCounts::default();
    let mut rng = Rng::new(seed, 7);
    let (mut disk, mut world) = create(&mut rng, &mut met);
    for round in 0..1 + rng.below(4) {
        // Valid contents of the map: the last acknowledged state, or the one of the commit in flight.
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
        // Some runs close the array in an orderly way, which also writes.
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
        // A state that was read once is durable, because opening makes it so.
        disk.stop();
        drop(array);
        disk = disk.power_loss(rng.next_u64());
    }
    met
}

/// Creates an array, with crashes. If the creation was not acknowledged, the disk may hold anything except an array
/// with content.
fn create(rng: &mut Rng, met: &mut CrashCounts) -> (CrashDisk, World) {
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

/// Opens the array, with crashes during the opening.
fn open(disk: &mut CrashDisk, rng: &mut Rng, met: &mut CrashCounts) -> Array {
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

/// Returns the content of a disk after a crash.
fn found(disk: &CrashDisk, rng: &mut Rng) -> CrashDisk {
    match rng.below(3) {
        0 => disk.killed(),
        1 => disk.power_loss(rng.next_u64()),
        _ => disk.killed().power_loss(rng.next_u64()),
    }
}

/// Checks that the map has one of the valid contents and is consistent.
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
