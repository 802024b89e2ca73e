//! Every named drive with every way to share it.

use flash::Drive;
use flash::drive::{PRESETS, preset};
use flash::ftl::Sharing;
use flash::host::{HostConfig, Load, Split, TenantPlan, place_tenants, run};
use units::{Bytes, Nanos};

#[test]
fn each_preset_serves_four_tenants_in_each_sharing_mode() {
    for known in PRESETS {
        for sharing in [
            Sharing::OnePool,
            Sharing::Isolated,
            Sharing::HandlesInitially,
            Sharing::HandlesPersistently,
        ] {
            let what = format!("{} {sharing:?}", known.name);
            let mut config = preset(known.name).unwrap();
            config.ftl.sharing = sharing;
            config.ftl.handles = 4;
            config.ftl = config.ftl.with_reserve_for_streams();
            // Erase blocks of a quarter of their size, so that a small drive has the same number.
            config.pages_per_block /= 4;
            let size = Bytes(1 << 30);
            let mut drive = Drive::new(config, size).unwrap_or_else(|e| panic!("{what}: {e}"));
            let load: Load = "random-write-4k".parse().unwrap();
            let mut plans: Vec<TenantPlan> = ["a", "b", "c", "d"]
                .map(|name| TenantPlan::new(name, Bytes(size.0 / 4), load.clone()))
                .into();
            place_tenants(&mut drive, &mut plans, Split::Equal)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            drive.age(2.0);
            let units = u64::from(drive.config().units());
            let program = drive.config().program.0;
            let host = HostConfig {
                // Twice as many programs as the drive has pages.
                duration: Nanos(2 * size.0 / 4096 * program / units),
                ..HostConfig::default()
            };
            let got = run(&mut drive, &plans, &host).unwrap();
            drive.ftl().verify().unwrap();
            let waf = drive.report().waf.unwrap();
            assert!(waf > 1.5, "{what}: {waf}");
            for t in &got.tenants {
                assert!(t.iops > 0.0 && t.waf.unwrap() > 1.0, "{what}: {t:?}");
            }
        }
    }
}
