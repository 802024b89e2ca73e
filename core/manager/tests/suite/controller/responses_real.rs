//! Remedies on devices without usage per volume: real devices of an array, and those of virtual machines.

use manager::service::Service;
use manager::view::ResponseState;
use manager::wire::{ExtentAccess, MirrorWindow};
use model::ExtentHeat;

use super::host::{FakeVolume, Host, RealDevices, volume};
use super::responses::{QUICK, responses, said};
use super::with;

/// The slow device is rated at 1,250 reads per second.
const TIERS: &str = r#"
[[tiers]]
name = "fast"
preset = "pm953"
[[tiers]]
name = "mid"
preset = "pm1633"
[[tiers]]
name = "slow"
preset = "pm863"
read_iops = "1250 IOPS"
"#;

const THROTTLE: &str = "throttle = \"auto\", move = \"off\", mirror = \"off\"";
const MOVE: &str = "throttle = \"off\", move = \"auto\", mirror = \"off\"";
const MIRROR: &str = "throttle = \"off\", move = \"off\", mirror = \"auto\"";

/// Returns a host with a database that violates its objective, and a batch job that causes five sixths of their
/// device's requests.
fn noisy(modes: &str, real: RealDevices) -> Host {
    let orders = volume("orders", "slow", "slow-0", 200, 5000);
    let batch = FakeVolume {
        class: "default",
        ..volume("batch", "slow", "slow-0", 1000, 5000)
    };
    let modes = format!("modes = {{ memory-share = \"off\", {modes} }}");
    let mut host = Host::new(
        &with(&format!("{TIERS}[response]\n{modes}\n{QUICK}")),
        vec![orders, batch],
    );
    host.real = Some(real);
    host
}

/// Arrays report requests by volume, virtual machines only loads. The kernel's counters are available or not.
fn hosts() -> [(&'static str, RealDevices); 4] {
    let kernel = || vec![("slow-0", 0.99), ("fast-0", 0.2), ("mid-0", 0.0)];
    let real = |kernel, is_array| RealDevices { kernel, is_array };
    [
        ("array", real(kernel(), true)),
        ("array on no block device", real(vec![], true)),
        ("machines", real(kernel(), false)),
        ("machines on a network", real(vec![], false)),
    ]
}

fn held(host: &Host) -> Option<u64> {
    let orders = host.orders.as_ref()?;
    let order = orders.throttles.iter().find(|o| o.volume == "batch");
    order.and_then(|o| o.throttle.iops)
}

#[test]
fn neighbour_is_found_and_throttled_by_device_time() {
    for (what, real) in hosts() {
        let mut host = noisy(THROTTLE, real);
        host.windows(3);
        let iops = held(&host).unwrap_or_else(|| panic!("{what}: {:?}", host.events()));
        // 79 % of 1,250, minus the database's requests.
        assert!((770..830).contains(&iops), "{what}: {iops}");
        let text = said(&mut host, "Remedy:").remove(0);
        for part in [
            "batch uses 80 % of slow-0, which is saturated (estimated from its rating)",
            "Remedy: throttle batch to ",
            "instead of 96 %",
        ] {
            assert!(text.contains(part), "{what}: {part:?} is not in {text:?}");
        }
        // The job uses its full limit. The throttle ends when the job requests little.
        host.volumes[0].latency_us = 1000;
        host.volumes[1].ios = iops;
        host.windows(20);
        assert_eq!(held(&host), Some(iops), "{what}: it asks for as much");
        host.volumes[1].ios = 10;
        host.windows(20);
        assert_eq!(held(&host), None, "{what}");
    }
}

#[test]
fn never_idle_device_is_not_saturated() {
    for is_array in [true, false] {
        let kernel = vec![("slow-0", 1.0)];
        let mut host = noisy(THROTTLE, RealDevices { kernel, is_array });
        // A tenth of the rating.
        (host.volumes[0].ios, host.volumes[1].ios) = (25, 100);
        host.windows(12);
        assert_eq!(held(&host), None);
        let text = said(&mut host, "No remedy").remove(0);
        assert!(
            text.contains("no volume is known to interfere with it"),
            "{text}"
        );
        assert!(!text.contains("not measured on this host"), "{text}");
    }
}

#[test]
fn device_above_its_rating_is_not_saturated() {
    let kernel = vec![("slow-0", 0.3)];
    let mut host = noisy(
        THROTTLE,
        RealDevices {
            kernel,
            is_array: true,
        },
    );
    host.volumes[1].ios = 10_000;
    host.windows(12);
    assert_eq!(held(&host), None);
    let text = said(&mut host, "No remedy").remove(0);
    assert!(
        text.contains("no volume is known to interfere with it"),
        "{text}"
    );
}

#[test]
fn undescribed_device_gives_no_remedy() {
    for is_array in [true, false] {
        let kernel = vec![("slow-0", 0.99)];
        let mut host = noisy(THROTTLE, RealDevices { kernel, is_array });
        let config = with(&format!("[response]\nmodes.throttle = \"auto\"\n{QUICK}"));
        let (now, actor) = (host.now(), manager::question::Actor("somebody".into()));
        let settings = super::host::settings(&config);
        host.managed.reload(now, &actor, settings).unwrap();
        host.windows(12);
        assert_eq!(held(&host), None);
        let text = said(&mut host, "No remedy").remove(0);
        assert!(text.contains("not measured on this host"), "{text}");
    }
}

#[test]
fn remedial_move_goes_to_a_device_with_spare_time() {
    for (what, real) in hosts() {
        let mut host = noisy(MOVE, real);
        // One volume has no class.
        let busy = FakeVolume {
            class: "default",
            ..volume("busy", "fast", "fast-0", 1_000_000, 100)
        };
        host.volumes.push(busy);
        if let Some(kernel) = host.real.as_mut().map(|r| &mut r.kernel) {
            kernel.retain(|k| k.0 != "fast-0");
        }
        let orders = (0..12).find_map(|_| {
            host.windows(1);
            host.orders.as_ref()?.moves.first().cloned()
        });
        let order = orders.unwrap_or_else(|| panic!("{what}: {:?}", host.events()));
        assert_eq!(order.device, "mid-0", "{what}");
        let text = said(&mut host, "Remedy:").remove(0);
        let moved = format!("Remedy: move {} to mid-0", order.volume);
        for part in [&*moved, "instead of 96 %", "price: "] {
            assert!(text.contains(part), "{what}: {part:?} is not in {text:?}");
        }
        host.finish(order.job, 900);
        host.volumes.iter_mut().for_each(|v| v.latency_us = 900);
        host.windows(3);
        let shown = responses(&mut host);
        let first = shown.last().expect("it was ordered");
        assert_eq!(first.state, ResponseState::Done, "{what}: {shown:#?}");
    }
}

#[test]
fn mirrors_are_created_on_a_real_device_with_spare_time() {
    let kernel = vec![("slow-0", 0.99), ("fast-0", 0.9), ("mid-0", 0.1)];
    let is_array = true;
    let mut host = noisy(MIRROR, RealDevices { kernel, is_array });
    (host.volumes[0].ios, host.volumes[1].ios) = (1000, 200);
    let access = ExtentAccess {
        extent_bytes: 1 << 20,
        places: "512x2".to_string().try_into().unwrap(),
        reads: ExtentHeat::of((20..30).map(|e| (e, 100)).collect()),
        writes: ExtentHeat::of(vec![]),
    };
    let mirror = |access| MirrorWindow {
        copies: None,
        access,
    };
    host.mirrors = vec![("orders", mirror(Some(access))), ("batch", mirror(None))];
    host.windows(3);
    let orders = host.orders.as_ref().expect("a window was reported");
    let order = orders.remedies.mirrors.first().cloned();
    let order = order.unwrap_or_else(|| panic!("{:?}", host.events()));
    assert_eq!(order.volume, "orders");
    assert_ne!(order.device, "slow-0");
    let text = said(&mut host, "Remedy:").remove(0);
    assert!(text.contains("instead of 96 %"), "{text}");
}
