//! Permitted and forbidden effects of a crash.

use std::collections::BTreeSet;

use crashdisk::{CrashDisk, SECTOR};
use proptest::prelude::*;

const SECTORS: u64 = 16;

fn bytes(disk: &CrashDisk) -> Vec<u8> {
    let mut out = vec![0; disk.len().unwrap() as usize];
    disk.read(0, &mut out).unwrap();
    out
}

#[test]
fn reads_return_written_and_zeroed_data() {
    let disk = CrashDisk::new(4096);
    disk.write(100, &[7; 1000]).unwrap();
    disk.zero(200, 100).unwrap();
    disk.set_len(8192).unwrap();
    let now = bytes(&disk);
    assert_eq!(now.len(), 8192);
    assert!(now[100..200].iter().all(|b| *b == 7) && now[200..300].iter().all(|b| *b == 0));
    assert_eq!((now[1099], now[1100]), (7, 0));
    for past in [disk.read(8000, &mut [0; 200]), disk.write(8191, &[1, 2])] {
        assert_eq!(past.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    }
    let done = disk.operations();
    assert_eq!(
        (done.reads, done.writes, done.zeroes, done.lengths),
        (1, 1, 1, 1)
    );
    assert_eq!((done.changes(), disk.unsynced()), (3, 3));
    disk.sync().unwrap();
    assert_eq!((disk.unsynced(), disk.operations().syncs), (0, 1));
}

#[test]
fn disk_stops_at_the_given_operation_and_then_fails() {
    let disk = CrashDisk::new(4096);
    disk.fail_after(2);
    disk.write(0, &[1]).unwrap();
    disk.read(0, &mut [0]).unwrap();
    disk.sync().unwrap();
    assert!(!disk.stopped());
    assert!(disk.write(1, &[1]).is_err() && disk.stopped());
    assert!(disk.read(0, &mut [0]).is_err() && disk.len().is_err() && disk.sync().is_err());
    assert!(disk.zero(0, 1).is_err() && disk.set_len(0).is_err());
    assert_eq!(disk.operations().changes(), 2);
    // The disk that is found after the crash works again.
    assert_eq!(bytes(&disk.power_loss(1))[0], 1);
    assert!(disk.killed().write(1, &[1]).is_ok());
}

#[test]
fn synced_range_is_durable_and_not_reverted_by_earlier_writes() {
    for seed in 0..200 {
        let disk = CrashDisk::new(SECTORS * SECTOR);
        disk.write(0, &[1; (SECTORS * SECTOR) as usize]).unwrap();
        disk.zero(SECTOR, 3 * SECTOR).unwrap();
        disk.write(2 * SECTOR, &[2; SECTOR as usize]).unwrap();
        disk.sync_range(2 * SECTOR, SECTOR).unwrap();
        let found = bytes(&disk.power_loss(seed));
        let sector = |n: u64| found[(n * SECTOR) as usize];
        assert_eq!(sector(2), 2);
        assert!([0, 1].contains(&sector(1)) && [0, 1].contains(&sector(9)));
    }
}

#[test]
fn data_lost_by_a_failed_sync_is_not_restored_by_a_later_one() {
    let mut lost = 0;
    for seed in 0..200 {
        let disk = CrashDisk::new(SECTORS * SECTOR);
        disk.write(0, &[1; SECTOR as usize]).unwrap();
        disk.fail_sync(seed);
        assert_eq!(bytes(&disk)[0], 1);
        disk.sync().unwrap();
        assert_eq!(bytes(&disk.killed())[0], 1);
        lost += u32::from(bytes(&disk.power_loss(seed))[0] == 0);
    }
    assert!((20..180).contains(&lost), "{lost}");
}

#[test]
fn killed_process_keeps_completed_writes() {
    let mut lengths = BTreeSet::new();
    for before in 0..64 {
        let disk = CrashDisk::new(SECTORS * SECTOR);
        disk.fail_after(before + 1);
        for _ in 0..before {
            disk.sync().unwrap();
        }
        disk.write(0, &[1; 300]).unwrap();
        disk.write(SECTOR, &[2; 8 * SECTOR as usize]).unwrap_err();
        let found = disk.killed();
        let now = bytes(&found);
        assert!(now[..300].iter().all(|b| *b == 1));
        let torn = now.iter().filter(|b| **b == 2).count();
        assert!(
            (torn as u64).is_multiple_of(SECTOR) && now[512..512 + torn].iter().all(|b| *b == 2)
        );
        lengths.insert(torn);
        // The data is only in the page cache.
        assert!((0..64).any(|seed| bytes(&found.power_loss(seed))[0] == 0));
    }
    assert!(
        lengths.contains(&0) && lengths.contains(&4096) && lengths.len() > 4,
        "{lengths:?}"
    );
}

#[test]
fn power_loss_tears_reorders_and_loses_writes() {
    let disk = CrashDisk::new(2 * SECTOR);
    disk.write(0, &[1; 1024]).unwrap();
    disk.sync().unwrap();
    disk.write(0, &[2; 1024]).unwrap();
    disk.write(0, &[3; 1024]).unwrap();
    let found: BTreeSet<(u8, u8)> = (0..2000)
        .map(|seed| bytes(&disk.power_loss(seed)))
        .map(|b| {
            assert!(b[..512].iter().all(|x| *x == b[0]) && b[512..].iter().all(|x| *x == b[512]));
            (b[0], b[512])
        })
        .collect();
    assert_eq!(found.len(), 9, "any sector may have any version: {found:?}");
    assert_eq!(bytes(&disk.power_loss(5)), bytes(&disk.power_loss(5)));
}

#[test]
fn power_loss_leaves_one_of_the_set_lengths() {
    let disk = CrashDisk::new(SECTOR);
    disk.write(0, &[9; 512]).unwrap();
    disk.sync().unwrap();
    disk.set_len(4 * SECTOR).unwrap();
    disk.write(3 * SECTOR, &[1; 512]).unwrap();
    disk.set_len(2 * SECTOR).unwrap();
    let lengths: BTreeSet<u64> = (0..200)
        .map(|seed| {
            let found = bytes(&disk.power_loss(seed));
            assert_eq!(found[..512], [9; 512]);
            found.len() as u64 / SECTOR
        })
        .collect();
    assert_eq!(lengths, BTreeSet::from([1, 2, 4]));
}

#[test]
fn database_works_on_the_disk() {
    const TABLE: redb::TableDefinition<u64, u64> = redb::TableDefinition::new("t");
    let disk = CrashDisk::new(0);
    let open = |disk: CrashDisk| redb::Builder::new().create_with_backend(disk).unwrap();
    let db = open(disk.clone());
    let txn = db.begin_write().unwrap();
    txn.open_table(TABLE).unwrap().insert(1, 2).unwrap();
    txn.commit().unwrap();
    disk.stop();
    drop(db);
    for seed in 0..20 {
        use redb::ReadableDatabase;
        let db = open(disk.power_loss(seed));
        let table = db.begin_read().unwrap().open_table(TABLE).unwrap();
        assert_eq!(table.get(1).unwrap().unwrap().value(), 2);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write(u64, u64, u8),
    Zero(u64, u64),
    Sync,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0..SECTORS, 1..5u64).prop_map(|(s, n)| (s, n.min(SECTORS - s)));
    let step = prop_oneof![
        4 => (range.clone(), 1..=255u8).prop_map(|((s, n), b)| Step::Write(s, n, b)),
        1 => range.prop_map(|(s, n)| Step::Zero(s, n)),
        1 => Just(Step::Sync),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    /// Sectors are complete: each has its value of the last sync, or one that was written since.
    #[test]
    fn sectors_have_a_version_since_the_last_sync(steps in steps(), seed in any::<u64>()) {
        let disk = CrashDisk::new(SECTORS * SECTOR);
        let mut may_be = vec![vec![0u8]; SECTORS as usize];
        for step in steps {
            let (s, n, b) = match step {
                Step::Write(s, n, b) => {
                    disk.write(s * SECTOR, &vec![b; (n * SECTOR) as usize]).unwrap();
                    (s, n, b)
                }
                Step::Zero(s, n) => {
                    disk.zero(s * SECTOR, n * SECTOR).unwrap();
                    (s, n, 0)
                }
                Step::Sync => {
                    disk.sync().unwrap();
                    may_be.iter_mut().for_each(|m| *m = vec![*m.last().unwrap()]);
                    continue;
                }
            };
            may_be[s as usize..(s + n) as usize].iter_mut().for_each(|m| m.push(b));
        }
        let (killed, lost) = (bytes(&disk.killed()), bytes(&disk.power_loss(seed)));
        for (sector, may_be) in may_be.iter().enumerate() {
            let at = sector * SECTOR as usize;
            let of = |image: &[u8]| {
                let part = &image[at..at + SECTOR as usize];
                assert!(part.iter().all(|b| *b == part[0]), "a sector is torn");
                part[0]
            };
            prop_assert_eq!(of(&killed), *may_be.last().unwrap());
            prop_assert!(may_be.contains(&of(&lost)));
        }
    }
}
