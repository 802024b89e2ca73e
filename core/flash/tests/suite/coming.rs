//! Isolated tenants that arrive late and leave: owners of erase blocks.

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

/// Runs plans on a drive, aged if `age` is set.
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
fn late_tenant_gets_its_share_without_taking_blocks() {
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
    // A third each, except for the block that does not divide.
    assert!(after[2].abs_diff(after[0]) <= 1, "{after:?}");
    assert_eq!(got.handed_over, 0);
    assert_eq!(got.tenants[2].seconds, 20.0);
}

#[test]
fn objectives_of_a_late_tenant_count_from_its_arrival() {
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
fn late_tenant_is_aged_unless_the_drive_is_clean() {
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
        // Ageing is in no tenant's counts.
        let answered: f64 = got.tenants.iter().map(|t| t.iops * t.seconds).sum();
        let written = drive.ftl().host_writes() as f64;
        assert!((written - answered).abs() <= 32.0, "{written} {answered}");
    }
}

#[test]
fn blocks_of_a_departed_tenant_are_reserved_for_a_later_one() {
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
    // The remaining tenant has the blocks of the departed one, but none of those reserved for the last one.
    assert_eq!(spare_of(&drive)[0], first + freed);
    assert_eq!(got.handed_over, 0);
    assert!(share * all >= 3.0);
}

#[test]
fn tenant_that_returns_blocks_to_a_late_one_pays_for_collection() {
    // The last tenant fits only in place of the departing one. Others took all its blocks and must return them.
    let mut plans = [plan("a", 24), plan("gone", 40), plan("late", 39)];
    plans[1].goes = Some(Nanos::from_secs(10));
    plans[2].comes = Nanos::from_secs(40);
    let mut drive = drive(0.10);
    place_tenants(&mut drive, &mut plans, Split::Equal).unwrap();
    let all = drive.ftl().config().blocks;
    let least = drive.ftl().config().spare_blocks_least(39 * 16);
    // It does not fit in addition to the others, so it gets the minimum.
    assert_eq!(plans[2].spare_share, f64::from(least) / f64::from(all));
    drive.age(2.0);
    // Give the reserved blocks away, as a host would that does not know of the later tenant.
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
    // All of its blocks have data, so returning some takes collection.
    for page in (0..24 << 8).cycle().take(60_000) {
        drive
            .ftl_mut()
            .write(TenantId(0), page * 7 % (24 << 8), &mut ());
    }
    drive.clear_counts();
    let got = run(&mut drive, &two, &host).unwrap();
    drive.ftl().verify().unwrap();
    assert!(got.handed_over > 0 && got.hand_over_s > 0.0, "{got:?}");
    // It had no other work.
    let spent = got.tenants[0].device_share * got.seconds;
    assert!(
        (spent / got.hand_over_s - 1.0).abs() < 0.01,
        "{spent} {}",
        got.hand_over_s
    );
}

#[test]
fn controller_ignores_the_time_before_a_tenant_arrived() {
    let mut plans = [plan("a", 32), plan("late", 32)];
    for plan in &mut plans {
        plan.rate = Some(20.0);
        plan.slo = Slo::Iops(20.0);
    }
    // Just before the controller's interval ends.
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
fn infeasible_late_tenant_is_refused_before_the_run() {
    let mut plans = [plan("a", 32), plan("late", 32)];
    plans[1].comes = Nanos::from_secs(10);
    plans[1].spare_share = 0.0001;
    let text = place_tenants(&mut drive(0.10), &mut plans, Split::Given)
        .unwrap_err()
        .to_string();
    assert!(text.contains("spare blocks"), "{text}");
}

#[derive(Debug, Clone)]
struct RandomTenant {
    mib: u64,
    comes: u64,
    stays: Option<u64>,
    weight: f64,
}

fn drawn() -> impl Strategy<Value = Vec<RandomTenant>> {
    let comes = prop_oneof![2 => Just(0u64), 3 => 1u64..20];
    let one = (2u64..20, comes, prop::option::of(1u64..15), 1u32..20);
    let one = one.prop_map(|(mib, comes, stays, weight)| RandomTenant {
        mib,
        comes,
        stays,
        weight: weight.into(),
    });
    prop::collection::vec(one, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Checks that every block has an owner or is unowned, that every tenant has the minimum for its collection, and
    /// that all are served.
    #[test]
    fn blocks_are_accounted_for_with_any_arrivals_and_departures(all in drawn(), by_model in any::<bool>()) {
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
        // As the drive requires: at most its capacity of data at any time.
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
            // Departed tenants left gaps that are too small for a new one.
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
        // Every tenant that was present for a while was served.
        for (t, d) in got.tenants.iter().zip(&all) {
            prop_assert!(t.iops > 0.0 || d.stays.is_some_and(|s| s < 2), "{:?}", t);
        }
    }
}
