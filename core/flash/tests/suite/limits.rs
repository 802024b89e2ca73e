//! Sizes and times at which a drive could stall.

use std::collections::BTreeSet;

use algo::Rng;
use flash::FlashError;
use flash::drive::{Drive, DriveConfig, Op, RequestResult, preset};
use flash::ftl::{Ftl, FtlConfig, Sharing, TenantId, TenantSpec};
use flash::host::{Disk, HostConfig, Load, Target, TenantPlan, run};
use units::{Bytes, Nanos};

/// Adds small tenants next to a large one until the drive refuses; returns the tenants and the number of refusals.
fn crowd(ftl: &mut Ftl, big: u32, small: u32) -> (Vec<(TenantId, u32)>, Option<FlashError>) {
    let mut tenants = Vec::new();
    let sizes = std::iter::once(big).chain(std::iter::repeat_n(1, small as usize));
    for pages in sizes {
        let spec = TenantSpec {
            pages,
            spare_blocks: 0,
        };
        match ftl.add_tenant(spec) {
            Ok(id) => tenants.push((id, pages)),
            Err(error) => return (tenants, Some(error)),
        }
    }
    (tenants, None)
}

#[test]
fn small_tenants_in_one_lane_are_refused_before_collection_stops() {
    // The pages of all small tenants may fall into the same lane, because tenants begin at multiples of several pages.
    let mut refusals = 0;
    for spare in 0..40 {
        for sharing in [Sharing::OnePool, Sharing::HandlesInitially] {
            let config = FtlConfig {
                blocks: 8 * 40,
                pages_per_block: 128,
                lanes: 8,
                handles: 64,
                sharing,
                spare_share: 0.05 + 0.001 * f64::from(spare),
                ..FtlConfig::default()
            };
            let Ok(mut ftl) = Ftl::new(config.with_reserve_for_streams()) else {
                continue;
            };
            let all = ftl.config().host_pages() as u32;
            let before = ftl.clone();
            let (tenants, refused) = crowd(&mut ftl, all - 63, 63);
            assert!(!tenants.is_empty());
            if let Some(error) = refused {
                assert!(
                    matches!(
                        error,
                        FlashError::SpareTooSmall { .. } | FlashError::NoSpace { .. }
                    ),
                    "{error}"
                );
                refusals += u32::from(matches!(error, FlashError::SpareTooSmall { .. }));
                assert_eq!(
                    ftl.tenants().count(),
                    before.tenants().count() + tenants.len()
                );
            }
            let mut random = Rng::new(1, 1);
            for (id, _) in &tenants {
                ftl.fill(*id).unwrap();
            }
            for _ in 0..40_000 {
                let (id, pages) = tenants[random.below(tenants.len() as u64) as usize];
                ftl.write(id, random.below(pages.into()) as u32, &mut ());
            }
            ftl.verify().unwrap();
        }
    }
    assert!(refusals > 0, "the sizes tried include ones that do not fit");
}

#[test]
fn zero_operation_times_are_refused() {
    let of = |change: fn(&mut DriveConfig)| {
        let mut config = preset("paper4").unwrap();
        change(&mut config);
        config.check().map_err(|e| e.to_string())
    };
    assert_eq!(of(|_| ()), Ok(()));
    let error = of(|c| c.program = Nanos(0)).unwrap_err();
    assert!(error.starts_with("program = 0 is outside 1 µs"), "{error}");
    let error = of(|c| (c.transfer, c.command) = (Nanos(0), Nanos(0))).unwrap_err();
    assert!(error.starts_with("transfer and command = 0"), "{error}");
    assert_eq!(
        of(|c| (c.transfer, c.command) = (Nanos(0), Nanos(1))),
        Ok(())
    );
}

#[test]
fn only_bytes_of_the_tenant_are_counted() {
    for name in [
        "random-write-32k",
        "sequential",
        "fileserver",
        "msn",
        "proj",
    ] {
        let load: Load = name.parse().unwrap();
        let plans = [TenantPlan::new("tiny", Bytes(8192), load)];
        let mut drive = Drive::new(preset("paper4").unwrap(), Bytes(64 << 20)).unwrap();
        drive.add_tenant(plans[0].bytes, 0.0).unwrap();
        let config = HostConfig {
            duration: Nanos::from_secs(2),
            ..HostConfig::default()
        };
        let got = run(&mut drive, &plans, &config).unwrap();
        let tenant = &got.tenants[0];
        assert!(tenant.iops > 0.0, "{name}");
        let each = tenant.bytes_per_s / tenant.iops;
        assert!(
            each <= 8192.0 + 1e-6,
            "{name}: {each} bytes a request of 8192"
        );
    }
}

#[test]
fn ageing_depends_on_the_seed() {
    let aged = |seed| {
        let config = FtlConfig {
            blocks: 128,
            pages_per_block: 32,
            spare_share: 0.1,
            seed,
            ..FtlConfig::default()
        };
        let (mut ftl, tenant) = Ftl::with_one_tenant(config).unwrap();
        ftl.precondition(1.0);
        let pages = ftl.pages_of(tenant).unwrap();
        (0..pages).map(|p| ftl.read(tenant, p)).collect::<Vec<_>>()
    };
    let greedy = aged(1);
    assert_eq!(greedy, aged(1));
    assert_ne!(greedy, aged(2));
}

/// Disk that records the tenants of its requests.
struct RecordingDisk(Disk, BTreeSet<TenantId>);

impl Target for RecordingDisk {
    fn serve(
        &mut self,
        now: u64,
        tenant: TenantId,
        op: Op,
        offset: u64,
        bytes: u64,
    ) -> RequestResult {
        self.1.insert(tenant);
        self.0.serve(now, tenant, op, offset, bytes)
    }
    fn ready_ns(&mut self, now: u64, tenant: TenantId, op: Op, offset: u64, bytes: u64) -> u64 {
        self.0.ready_ns(now, tenant, op, offset, bytes)
    }
    fn units(&self) -> usize {
        self.0.units()
    }
}

#[test]
fn late_tenants_of_a_disk_keep_their_places() {
    let load: Load = "sequential".parse().unwrap();
    let mut plans = ["late", "first"].map(|n| TenantPlan::new(n, Bytes(1 << 20), load.clone()));
    plans[0].comes = Nanos::from_secs(5);
    let config = HostConfig {
        duration: Nanos::from_secs(10),
        ..HostConfig::default()
    };
    let mut disk = RecordingDisk(Disk::new(&[1 << 20, 1 << 20]), BTreeSet::new());
    run(&mut disk, &plans, &config).unwrap();
    // Two places: the tenant that arrived first did not get the other one's place.
    assert_eq!(disk.1, [TenantId(0), TenantId(1)].into());
}
