//! Spare space follows objectives only if that helps.

use flash::Drive;
use flash::drive::preset;
use flash::ftl::Sharing;
use flash::host::{
    Control, HostConfig, Outcome, Service, Slo, Split, TenantPlan, objectives, place_tenants, run,
    shares_for_objectives,
};
use units::{Bytes, Nanos};

fn serve(plans: &mut [TenantPlan], service: Service, seconds: u64, control: bool) -> Outcome {
    let mut config = preset("paper4").unwrap();
    config.ftl.sharing = Sharing::Isolated;
    config.ftl.spare_share = 0.10;
    config.pages_per_block = 32;
    let all: u64 = plans.iter().map(|p| p.bytes.0).sum();
    let mut drive = Drive::new(config, Bytes(all)).unwrap();
    place_tenants(&mut drive, plans, Split::Equal).unwrap();
    drive.age(2.5);
    let host = HostConfig {
        service,
        tags: 1,
        warmup: Nanos::from_secs(seconds / 2),
        duration: Nanos::from_secs(seconds),
        control: control.then(|| Control {
            interval: Nanos::from_secs(5),
            step: 0.05,
            ..Control::default()
        }),
        ..HostConfig::default()
    };
    let got = run(&mut drive, plans, &host).unwrap();
    drive.ftl().verify().unwrap();
    got
}

fn plan(name: &str) -> TenantPlan {
    TenantPlan::new(name, Bytes(64 << 20), "random-write-4k".parse().unwrap())
}

#[test]
fn controller_takes_no_spare_space_for_a_tenant_with_little_load() {
    let mut plans = ["idle", "a", "b"].map(plan);
    plans[0].rate = Some(1.0);
    let waf = |control, plans: &mut [TenantPlan]| {
        let got = serve(plans, Service::Fcfs, 1000, control);
        [1, 2].map(|i| got.tenants[i].waf.unwrap())
    };
    let (without, with) = (waf(false, &mut plans), waf(true, &mut plans));
    for (without, with) in without.iter().zip(with) {
        assert!(with < 1.1 * without, "{without} {with}");
    }
}

#[test]
fn ineffective_control_steps_are_reverted() {
    // First come, first served: all tenants get the same rate, whatever their spare space.
    let weights = [1.0, 2.0, 5.0];
    let mut plans = weights.map(|weight| TenantPlan {
        weight,
        ..plan(&format!("w{weight}"))
    });
    let before = serve(&mut plans, Service::Fcfs, 1500, false);
    let after = serve(&mut plans, Service::Fcfs, 1500, true);
    assert!(after.handed_over > 0, "it was tried");
    for (b, a) in before.tenants.iter().zip(&after.tenants) {
        let (b, a) = (b.spare_share.unwrap(), a.spare_share.unwrap());
        assert!((a / b - 1.0).abs() < 0.35, "{b} {a}");
    }
    let sum = |o: &Outcome| o.tenants.iter().map(|t| t.iops).sum::<f64>();
    assert!(sum(&after) > 0.9 * sum(&before));
}

#[test]
fn feasible_objectives_are_met() {
    let mut plans = ["a", "b"].map(plan);
    (plans[0].slo, plans[1].slo) = (Slo::Iops(20.0), Slo::Iops(200.0));
    let mut config = preset("paper4").unwrap();
    config.pages_per_block = 32;
    let needs = objectives(&config, &plans, 0.10).unwrap();
    assert!(needs.busy < 1.0, "feasible: {needs:?}");
    let met = |plans: &mut [TenantPlan], control| {
        let got = serve(plans, Service::DeviceTime, 2000, control);
        got.tenants
            .iter()
            .map(|t| t.met.unwrap())
            .collect::<Vec<_>>()
    };
    // Half of the time and half of the spare space are too little for the tenant with the higher objective.
    let unasked = met(&mut plans, false);
    assert!(unasked.iter().any(|m| *m < 0.9), "{unasked:?}");
    shares_for_objectives(&mut plans, &needs, &[false; 2]);
    let asked = met(&mut plans, true);
    assert!(asked.iter().all(|m| *m >= 0.9), "{asked:?} {needs:?}");
}
