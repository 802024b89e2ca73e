//! Isolated tenants that come later and go: whose erase blocks are whose.

use flash::Drive;
use flash::FlashError;
use flash::drive::preset;
use flash::ftl::{Sharing, TenantId};
use flash::host::{
    Control, HostConfig, Outcome, Service, Slo, Split, TenantPlan, place_tenants, run,
};
use proptest::prelude::*;
use units::{Bytes, Nanos};

const SIZE: Bytes = Bytes(64 << 20);

fn plan(name: &str, mib: u64) -> TenantPlan {
    let load = "random-write-4k".parse().unwrap();
    TenantPlan::new(name, Bytes(mib << 20), load)
}

fn drive(spare: f64) -> Drive {
    let mut config = preset("paper4").unwrap();
    config.ftl.sharing = Sharing::Isolated;
    config.ftl.spare_share = spare;
    config.pages_per_block = 16;
    Drive::new(config, SIZE).unwrap()
}

fn config(seconds: u64) -> HostConfig {
    HostConfig {
        duration: Nanos::from_secs(seconds),
        ..HostConfig::default()
    }
}

fn spare_of(drive: &Drive) -> Vec<u32> {
    let ftl = drive.ftl();
    let spare = ftl.tenants().map(|t| ftl.spare_blocks(t).unwrap());
    spare.collect()
}

/// Runs plans on a drive that is aged when `age` says so.
fn serve(plans: &mut [TenantPlan], age: bool, seconds: u64) -> (Drive, Outcome) {
    let mut drive = drive(0.10);
    place_tenants(&mut drive, plans, Split::Equal).unwrap();
    if age {
        drive.age(2.0);
    }
    let got = run(&mut drive, plans, &config(seconds)).unwrap();
    drive.ftl().verify().unwrap();
    (drive, got)
}

#[test]
fn a_latecomer_has_its_share_and_nobody_is_robbed() {
    let mut plans = [plan("a", 16), plan("b", 16), plan("late", 32)];
    plans[2].comes = Nanos::from_secs(20);
    let mut drive = drive(0.10);
    place_tenants(&mut drive, &mut plans, Split::Equal).unwrap();
    let before = spare_of(&drive);
    let needed = drive.blocks_needed(plans[2].bytes, plans[2].spare_share);
    assert!(drive.ftl().unowned_blocks() >= needed);
    drive.age(2.0);
    let got = run(&mut drive, &plans, &config(40)).unwrap();
    drive.ftl().verify().unwrap();
    let after = spare_of(&drive);
    assert_eq!(after[..2], before[..]);
    // A third each, up to the block that does not divide.
    assert!(after[2].abs_diff(after[0]) <= 1, "{after:?}");
    assert_eq!(got.handed_over, 0);
    assert_eq!(got.tenants[2].seconds, 20.0);
}

#[test]
fn objectives_of_a_latecomer_are_judged_from_when_it_came() {
    let mut plans = [plan("a", 32), plan("late", 32)];
    for plan in &mut plans {
        plan.rate = Some(20.0);
        plan.slo = Slo::Iops(20.0);
    }
    plans[1].comes = Nanos::from_secs(150);
    let (_, got) = serve(&mut plans, true, 200);
    let late = &got.tenants[1];
    assert_eq!(late.seconds, 50.0);
    assert!((late.iops / 20.0 - 1.0).abs() < 0.15, "{late:?}");
    assert!((late.met.unwrap() - late.iops / 20.0).abs() < 1e-9);
}

#[test]
fn a_latecomer_is_aged_like_the_others_unless_the_drive_is_clean() {
    for age in [true, false] {
        let mut plans = [plan("a", 32), plan("late", 32)];
        plans[1].comes = Nanos::from_secs(1);
        let (drive, got) = serve(&mut plans, age, if age { 61 } else { 11 });
        let mapped = drive.ftl().counts(TenantId(1)).mapped;
        let (a, late) = (got.tenants[0].waf.unwrap(), got.tenants[1].waf.unwrap());
        if age {
            assert_eq!(mapped, (32 << 20) / 4096);
            assert!(a > 2.0 && (late / a - 1.0).abs() < 0.15, "{a} {late}");
        } else {
            assert!(mapped < (32 << 20) / 4096 && late == 1.0, "{mapped} {late}");
        }
        // Ageing is in nobody's counts.
        let answered: f64 = got.tenants.iter().map(|t| t.iops * t.seconds).sum();
        let written = drive.ftl().host_writes() as f64;
        assert!((written - answered).abs() <= 32.0, "{written} {answered}");
    }
}

#[test]
fn blocks_of_one_that_went_are_kept_for_one_that_is_still_to_come() {
    let mut plans = [plan("a", 16), plan("gone", 16), plan("late", 32)];
    plans[1].goes = Some(Nanos::from_secs(10));
    plans[2].comes = Nanos::from_secs(30);
    let mut drive = drive(0.10);
    place_tenants(&mut drive, &mut plans, Split::Equal).unwrap();
    drive.age(2.0);
    let (first, share) = (spare_of(&drive)[0], plans[2].spare_share);
    let freed = drive.blocks_needed(plans[1].bytes, plans[1].spare_share);
    let got = run(&mut drive, &plans, &config(50)).unwrap();
    drive.ftl().verify().unwrap();
    let all = f64::from(drive.ftl().config().blocks);
    assert_eq!(got.tenants[2].spare_share.unwrap(), share);
    // The one that stayed has what the other one had, and nothing of what waited for the last.
    assert_eq!(spare_of(&drive)[0], first + freed);
    assert_eq!(got.handed_over, 0);
    assert!(share * all >= 3.0);
}

#[test]
fn who_has_to_give_blocks_for_a_latecomer_pays_for_the_collection() {
    // The last one has room only in the place of the one that goes, of which others took all: they give it back.
    let mut plans = [plan("a", 24), plan("gone", 40), plan("late", 39)];
    plans[1].goes = Some(Nanos::from_secs(10));
    plans[2].comes = Nanos::from_secs(40);
    let mut drive = drive(0.10);
    place_tenants(&mut drive, &mut plans, Split::Equal).unwrap();
    let all = drive.ftl().config().blocks;
    let least = drive.ftl().config().spare_blocks_least(39 * 16);
    // No room beside the others: the least.
    assert_eq!(plans[2].spare_share, f64::from(least) / f64::from(all));
    drive.age(2.0);
    // Give the waiting blocks away, as one would that did not know of the latecomer.
    drive.remove_tenant(0, TenantId(1)).unwrap();
    let unowned = drive.ftl().unowned_blocks();
    drive.ftl_mut().grant(TenantId(0), unowned).unwrap();
    let mut two = [plans[0].clone(), plans[2].clone()];
    two[0].depth = 1;
    two[0].rate = Some(0.001);
    let host = HostConfig {
        service: Service::DeviceTime,
        ..config(60)
    };
    // All of its blocks have been written to: giving some back takes collection.
    for page in (0..24 << 8).cycle().take(60_000) {
        drive
            .ftl_mut()
            .write(TenantId(0), page * 7 % (24 << 8), &mut ());
    }
    drive.clear_counts();
    let got = run(&mut drive, &two, &host).unwrap();
    drive.ftl().verify().unwrap();
    assert!(got.handed_over > 0 && got.hand_over_s > 0.0, "{got:?}");
    // It did nothing else.
    let spent = got.tenants[0].device_share * got.seconds;
    assert!(
        (spent / got.hand_over_s - 1.0).abs() < 0.01,
        "{spent} {}",
        got.hand_over_s
    );
}

#[test]
fn the_controller_does_not_judge_a_newcomer_by_the_time_before_it_came() {
    let mut plans = [plan("a", 32), plan("late", 32)];
    for plan in &mut plans {
        plan.rate = Some(20.0);
        plan.slo = Slo::Iops(20.0);
    }
    // Just before the controller looks.
    plans[1].comes = Nanos(79_000_000_000);
    let mut drive = drive(0.10);
    place_tenants(&mut drive, &mut plans, Split::Equal).unwrap();
    drive.age(2.0);
    let host = HostConfig {
        control: Some(Control {
            interval: Nanos::from_secs(20),
            tolerance: 2.0,
            ..Control::default()
        }),
        ..config(90)
    };
    let got = run(&mut drive, &plans, &host).unwrap();
    assert_eq!(got.handed_over, 0, "{got:?}");
}

#[test]
fn what_a_latecomer_asks_for_is_refused_before_the_run() {
    let mut plans = [plan("a", 32), plan("late", 32)];
    plans[1].comes = Nanos::from_secs(10);
    plans[1].spare_share = 0.0001;
    let text = place_tenants(&mut drive(0.10), &mut plans, Split::Given)
        .unwrap_err()
        .to_string();
    assert!(text.contains("spare blocks"), "{text}");
}

#[derive(Debug, Clone)]
struct Drawn {
    mib: u64,
    comes: u64,
    stays: Option<u64>,
    weight: f64,
}

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let comes = prop_oneof![2 => Just(0u64), 3 => 1u64..20];
    let one = (2u64..20, comes, prop::option::of(1u64..15), 1u32..20);
    let one = one.prop_map(|(mib, comes, stays, weight)| Drawn {
        mib,
        comes,
        stays,
        weight: weight.into(),
    });
    prop::collection::vec(one, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Every block is somebody's or nobody's, nobody has less than its collection needs, and all are served.
    #[test]
    fn blocks_are_accounted_for_whoever_comes_and_goes(all in drawn(), by_model in any::<bool>()) {
        let mut plans: Vec<TenantPlan> = all
            .iter()
            .enumerate()
            .map(|(i, d)| TenantPlan {
                weight: d.weight,
                depth: 1,
                comes: Nanos::from_secs(d.comes),
                goes: d.stays.map(|s| Nanos::from_secs(d.comes + s)),
                ..plan(&format!("{i}"), d.mib)
            })
            .collect();
        // As the drive would have it: never more data than it has at a time.
        let fits = |t: u64| {
            let there = plans.iter().filter(|p| p.comes.0 <= t && p.goes.is_none_or(|g| g.0 > t));
            there.map(|p| p.bytes.0).sum::<u64>() <= SIZE.0 - (1 << 20)
        };
        prop_assume!((0..40).all(|s| fits(s * 1_000_000_000)));
        let split = if by_model { Split::ByModel } else { Split::Equal };
        let mut drive = drive(0.2);
        let blocks = drive.ftl().config().blocks;
        place_tenants(&mut drive, &mut plans, split).unwrap();
        drive.age(1.0);
        let got = run(&mut drive, &plans, &config(36));
        prop_assert_eq!(drive.ftl().verify(), Ok(()));
        let got = match got {
            Ok(got) => got,
            // Those who went left gaps that are too small for one that comes.
            Err(FlashError::NoSpace { pages, largest }) if largest < pages => return Ok(()),
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        let config = drive.ftl().config().clone();
        let mut owned = 0;
        let stay: Vec<&TenantPlan> = plans.iter().filter(|p| p.goes.is_none_or(|g| g.0 >= 36_000_000_000)).collect();
        prop_assert_eq!(drive.ftl().tenants().count(), stay.len());
        for tenant in drive.ftl().tenants() {
            let pages = drive.ftl().pages_of(tenant).unwrap();
            let data = pages.div_ceil(config.data_pages());
            let spare = drive.ftl().spare_blocks(tenant).unwrap();
            prop_assert!(spare > config.spare_blocks_min(data + spare), "{} {}", spare, data);
            owned += data + spare;
        }
        prop_assert_eq!(owned + drive.ftl().unowned_blocks(), blocks);
        // Everybody who was there for a while was served.
        for (t, d) in got.tenants.iter().zip(&all) {
            prop_assert!(t.iops > 0.0 || d.stays.is_some_and(|s| s < 2), "{:?}", t);
        }
    }
}
