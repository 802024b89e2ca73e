//! A scaled-down drive reports the figures of its tenants as the full drive would.

use algo::Rng;
use flash::Drive;
use flash::drive::{Collection, DriveReport, Op, TenantReport, preset};
use flash::ftl::Sharing;
use flash::host::{HostConfig, Split, TenantPlan, place_tenants, run};
use units::{Bytes, Nanos};

const SIZE: Bytes = Bytes(1 << 30);

fn drive(scale: u32, sharing: Sharing, seed: u64) -> (Drive, Vec<TenantPlan>) {
    drive_with(scale, sharing, seed, Collection::Paced)
}

fn drive_with(
    scale: u32,
    sharing: Sharing,
    seed: u64,
    collection: Collection,
) -> (Drive, Vec<TenantPlan>) {
    let mut config = preset("tlc-nvme").unwrap();
    config.scale = scale;
    config.collection = collection;
    config.pages_per_block = 8;
    config.ftl.spare_share = 0.15;
    config.ftl.sharing = sharing;
    config.ftl.seed = seed;
    config.channels = 4;
    let mut drive = Drive::new(config, SIZE).unwrap();
    let load: flash::host::Load = "random-write-4k".parse().unwrap();
    let plan = |name, part| TenantPlan::new(name, Bytes(SIZE.0 / 4 * part), load.clone());
    let mut plans = vec![plan("a", 1), plan("b", 3)];
    place_tenants(&mut drive, &mut plans, Split::Equal).unwrap();
    drive.age(3.0);
    (drive, plans)
}

fn near(a: u64, b: u64, by: f64, what: &str) {
    assert!((a as f64 / b as f64 - 1.0).abs() < by, "{what}: {a} {b}");
}

#[test]
fn tenant_counts_of_a_scaled_drive_are_those_of_the_full_one() {
    for sharing in [Sharing::OnePool, Sharing::Isolated] {
        let report = |scale, seed| -> DriveReport {
            let (mut drive, plans) = drive(scale, sharing, seed);
            let tenants: Vec<_> = drive.ftl().tenants().collect();
            let (mut random, mut now) = (Rng::new(1, 1), 0);
            for i in 0..400_000 {
                let t = random.below(2) as usize;
                let offset = random.below(plans[t].bytes.0 / 4096) * 4096;
                let op = if i % 50 > 1 { Op::Write } else { Op::Trim };
                now = drive.submit(now, tenants[t], op, offset, 4096).done_ns;
            }
            drive.report()
        };
        // With few blocks, the moves of a sample vary from seed to seed; the sum over seeds must agree.
        let reports = |scale| [1, 2, 3].map(|seed| report(scale, seed));
        let (whole, part) = (reports(1), reports(4));
        for t in 0..2 {
            let all = |of: fn(&TenantReport) -> u64, by: f64, what: &str| {
                let sum = |r: &[DriveReport; 3]| r.iter().map(|r| of(&r.tenants[t])).sum::<u64>();
                let what = format!("{sharing:?}, tenant {t}: {what}");
                match by {
                    0.0 => assert_eq!(sum(&part), sum(&whole), "{what}"),
                    by => near(sum(&part), sum(&whole), by, &what),
                }
            };
            for report in &whole {
                let counts = report.tenants[t].counts;
                assert!(counts.host_writes > 190_000 && counts.trims > 7500);
                let foreign = report.tenants[t].moves.foreign;
                assert_eq!(foreign == 0, sharing == Sharing::Isolated);
            }
            all(|r| r.counts.host_writes, 0.0, "writes");
            all(|r| r.counts.trims, 0.0, "trims");
            all(|r| r.counts.mapped, 0.01, "mapped");
            all(|r| r.counts.victims, 0.12, "victims");
            all(|r| r.counts.victim_pages, 0.15, "their pages");
            all(|r| r.counts.erases, 0.12, "erasures");
            all(|r| r.moves.own, 0.15, "moved of its own");
            if sharing == Sharing::OnePool {
                // 15 % more over these three seeds together, up to 18 % with one. It is unknown if this is chance.
                all(|r| r.moves.foreign, 0.20, "moved of others");
                all(|r| r.moves.by_others, 0.20, "moved by others");
            } else {
                all(|r| r.spare_blocks.unwrap(), 0.05, "spare blocks");
            }
        }
        for (whole, part) in whole.iter().zip(&part) {
            assert_eq!(whole.host_bytes, part.host_bytes);
            // The drive and its tenants report the same erases.
            let erases: u64 = part.tenants.iter().map(|t| t.counts.erases).sum();
            assert_eq!(erases, part.erases);
        }
    }
}

#[test]
fn tenant_outcomes_of_a_scaled_drive_are_those_of_the_full_one() {
    for sharing in [Sharing::OnePool, Sharing::Isolated] {
        for scale in [1, 4] {
            let (mut drive, mut plans) = drive(scale, sharing, 1);
            // Removing the tenant does not remove its figures from the drive's.
            plans[1].goes = Some(Nanos(1_500_000_000));
            let host = HostConfig {
                duration: Nanos::from_secs(2),
                ..HostConfig::default()
            };
            let got = run(&mut drive, &plans, &host).unwrap();
            for t in &got.tenants {
                // Written and moved pages are counted in the same units.
                let moved = (t.moved_own + t.moved_foreign) as f64;
                let by_waf = (t.waf.unwrap() - 1.0) * t.iops * t.seconds;
                assert!(
                    (moved / by_waf - 1.0).abs() < 0.1,
                    "{sharing:?} {scale} {t:?}"
                );
            }
        }
    }
}

#[test]
fn block_hand_over_takes_the_time_of_the_full_drive() {
    let cost = |scale| {
        let (mut drive, _) = drive(scale, Sharing::Isolated, 1);
        let tenants: Vec<_> = drive.ftl().tenants().collect();
        // One block of the sample stands for `scale` blocks of the full drive.
        drive
            .hand_over(0, tenants[1], Some(tenants[0]), 32 / scale)
            .unwrap()
    };
    near(cost(4), cost(1), 0.25, "unit time");
}

#[test]
fn blocks_of_a_leaving_tenant_are_erased() {
    // Reads follow at once, on a drive that collects at once: behind the erases of all parts, not only of the sampled
    // ones.
    let erased = |scale| {
        let (mut drive, _) = drive_with(scale, Sharing::Isolated, 1, Collection::AtOnce);
        let tenants: Vec<_> = drive.ftl().tenants().collect();
        drive.remove_tenant(0, tenants[1]).unwrap();
        (0..64)
            .map(|i| {
                drive
                    .submit(0, tenants[0], Op::Read, i * 4096, 4096)
                    .done_ns
            })
            .max()
            .unwrap()
    };
    near(erased(4), erased(1), 0.25, "unit time");
}
