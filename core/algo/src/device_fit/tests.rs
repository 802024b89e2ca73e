//! Fits recover known devices from synthetic and simulated measurements.

use model::{DeviceSpec, Op};

use super::*;
use crate::{DeviceModel, EventHeap, Rng, closed_loop, mix};

const SIZES: [f64; 3] = [4096.0, 65_536.0, 1_048_576.0];

fn share(read_share: f64, bytes: f64) -> [LoadShare; 2] {
    [read_share, 1.0 - read_share].map(|share| LoadShare { share, bytes })
}

/// Returns the measurements of a sweep on a device that follows the formula, with noise of the given relative size.
fn sweep(
    spec: &DeviceSpec,
    sizes: &[f64],
    depths: &[u32],
    noise: f64,
    seed: u64,
    percentiles: bool,
) -> Vec<LoadPoint> {
    let mut rng = Rng::new(seed, 0);
    // Sum of twelve uniform numbers, minus six: approximately normal.
    let mut normal = || (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
    let mut points = Vec::new();
    for dir in [0, 1] {
        for bytes in sizes {
            for depth in depths {
                let load = share(if dir == 0 { 1.0 } else { 0.0 }, *bytes);
                let settled = closed_loop(spec, &load, f64::from(*depth));
                let off = libm::exp(noise * normal());
                let mut flows = [None, None];
                let shape = Shape::of(spec);
                let at = |z: f64| {
                    let s = spec.jitter_sigma;
                    shape.base_us[dir] * libm::exp(z * s - s * s / 2.0)
                        + shape.transfer_us(dir, *bytes)
                };
                flows[dir] = Some(MeasuredFlow {
                    iops: settled.iops / off,
                    bytes: *bytes,
                    latency_us: settled.latency_us[dir] * off,
                    spread_us: percentiles.then(|| (at(-1.2816), at(1.2816))),
                });
                points.push(LoadPoint { flows });
            }
        }
    }
    points
}

fn near(got: f64, want: f64, within: f64, what: &str) {
    assert!(
        (got / want - 1.0).abs() <= within,
        "{what}: {got}, should be {want}"
    );
}

/// Fits from the values of another device, so that no correct value is given.
fn fit(points: &[LoadPoint]) -> DeviceFit {
    fit_device(points, &model::preset("nvme-qlc").unwrap().spec()).unwrap()
}

/// Tolerances relative to the true values: bare latency of reads and of writes, caps, curve.
struct Tolerances {
    base: [f64; 2],
    caps: f64,
    curve: f64,
}

fn check(fit: &DeviceFit, spec: &DeviceSpec, within: &Tolerances, what: &str) {
    let shape = Shape::of(spec);
    for dir in 0..2 {
        let found = fit.directions[dir].as_ref().unwrap();
        let at = |name: &str| format!("{what} {name} {dir}");
        near(
            found.base_us.value,
            shape.base_us[dir],
            within.base[dir],
            &at("base"),
        );
        near(found.iops.value, shape.iops[dir], within.caps, &at("iops"));
        near(
            found.bandwidth.value,
            shape.bytes_per_s[dir],
            within.caps,
            &at("bandwidth"),
        );
        let bases = (found.iops.basis, found.bandwidth.basis);
        assert_eq!(bases, (Basis::Measured, Basis::Measured), "{what}");
    }
    for u in [0.25, 0.5, 0.7, 0.85] {
        let (got, want) = (fit.curve.factor(u), spec.curve.factor(u));
        near(got, want, within.curve, &format!("{what} curve {u}"));
    }
}

#[test]
fn fit_of_a_noisy_sweep_recovers_the_device() {
    let exact = Tolerances {
        base: [0.02, 0.03],
        caps: 0.02,
        curve: 0.07, // its knots differ from the fit's
    };
    // One write at a time already takes half of these devices' time. Their bare latency is never measured, and the
    // curve compensates for the difference. Hence the wide margin.
    let noisy = Tolerances {
        base: [0.08, 0.2],
        caps: 0.08,
        curve: 0.2,
    };
    let depths = [1, 2, 4, 8, 16, 32, 64];
    for name in ["pm1633", "sata-ssd", "pm863"] {
        let spec = model::preset(name).unwrap().spec();
        check(
            &fit(&sweep(&spec, &SIZES, &depths, 0.0, 1, true)),
            &spec,
            &exact,
            name,
        );
        for seed in 1..=5 {
            let fit = fit(&sweep(&spec, &SIZES, &depths, 0.03, seed, true));
            check(&fit, &spec, &noisy, &format!("{name} seed {seed}"));
            for found in fit.directions.iter().flatten() {
                let q = found.quality;
                assert!(
                    q.points == 21 && q.rms_relative < 0.045 && q.r2.unwrap() > 0.995,
                    "{q:?}"
                );
                assert!(
                    q.worst_relative.abs() < 0.12 && q.worst_relative.abs() >= q.rms_relative,
                    "{q:?}"
                );
            }
        }
    }
}

/// The same with the simulator, including jitter and queue.
#[test]
fn fit_of_a_simulated_sweep_recovers_the_device() {
    let spec = model::preset("pm1633").unwrap().spec();
    let mut points = Vec::new();
    for dir in [0, 1] {
        for bytes in SIZES {
            for depth in [1, 2, 4, 8, 16, 32, 64] {
                points.push(simulated(&spec, dir, bytes as u64, depth));
            }
        }
    }
    let fit = fit(&points);
    let within = Tolerances {
        base: [0.05, 0.05],
        caps: 0.05,
        curve: 0.1,
    };
    check(&fit, &spec, &within, "simulated");
    near(fit.jitter_sigma.unwrap(), spec.jitter_sigma, 0.05, "jitter");
    assert_eq!(fit.spec.jitter_sigma, fit.jitter_sigma.unwrap());
}

/// Runs closed loops against the simulated device for a second.
fn simulated(spec: &DeviceSpec, dir: usize, bytes: u64, depth: u32) -> LoadPoint {
    let op = [Op::Read, Op::Write][dir];
    let mut device = DeviceModel::new(spec);
    let mut heap = EventHeap::new();
    (0..depth).for_each(|slot| heap.push(u64::from(slot) * 500, slot));
    let mut latencies = Vec::new();
    while let Some((now, slot)) = heap.pop() {
        if now > 1_000_000_000 {
            break;
        }
        let done = device.submit(
            now,
            op,
            bytes,
            mix(u64::from(depth), latencies.len() as u64),
        );
        latencies.push((done - now) as f64 / 1e3);
        heap.push(done, slot);
    }
    latencies.sort_by(f64::total_cmp);
    let n = latencies.len();
    let flow = MeasuredFlow {
        iops: n as f64,
        bytes: bytes as f64,
        latency_us: latencies.iter().sum::<f64>() / n as f64,
        spread_us: Some((latencies[n / 10], latencies[n - 1 - n / 10])),
    };
    let mut flows = [None, None];
    flows[dir] = Some(flow);
    LoadPoint { flows }
}

#[test]
fn unreached_cap_is_reported_as_such() {
    let spec = model::preset("nvme-tlc").unwrap().spec();
    let points: Vec<LoadPoint> = sweep(&spec, &SIZES[..1], &[1, 2, 4], 0.0, 1, false)
        .into_iter()
        .take(3)
        .collect();
    let fit = fit(&points);
    let reads = fit.directions[0].unwrap();
    assert_eq!(reads.iops.basis, Basis::NotReached);
    let seen = points[2].flows[0].unwrap().iops;
    assert!(reads.iops.value >= seen, "{reads:?}");
    // One size does not determine the bandwidth, so that of the given device is kept.
    assert_eq!(reads.bandwidth.basis, Basis::Given);
    assert_eq!(
        fit.spec.read_bandwidth,
        model::preset("nvme-qlc").unwrap().spec().read_bandwidth
    );
    assert_eq!(reads.one_stream, None);
    near(
        fit.spec.bare_latency_us(Op::Read, 4096.0),
        spec.bare_latency_us(Op::Read, 4096.0),
        0.02,
        "bare",
    );
    assert!(fit.utilization_max < 0.5);
    assert_eq!(fit.jitter_sigma, None, "no percentiles, no spread");
    assert_eq!(fit.spec.jitter_sigma, 0.35, "the given one");
}

#[test]
fn given_value_below_a_measured_one_is_replaced() {
    let fast = model::preset("nvme-tlc").unwrap().spec();
    let slow = model::preset("sata-ssd").unwrap().spec();
    let points = sweep(&fast, &SIZES[2..], &[1, 4, 16], 0.0, 1, true);
    let fit = fit_device(&points, &slow).unwrap();
    let reads = fit.directions[0].unwrap();
    assert_eq!(
        (reads.iops.basis, reads.bandwidth.basis),
        (Basis::Given, Basis::Measured)
    );
    assert_eq!(reads.iops.value, 98e3, "no small request was measured");
    near(
        reads.bandwidth.value,
        fast.read_bandwidth.as_f64(),
        0.05,
        "bandwidth",
    );
}

#[test]
fn unmeasured_direction_keeps_the_given_values() {
    let spec = model::preset("sata-ssd").unwrap().spec();
    let mut points = sweep(&spec, &SIZES, &[1, 2, 4, 8, 16, 32, 64], 0.0, 1, true);
    points.truncate(21);
    let fit = fit(&points);
    assert!(fit.directions[1].is_none());
    let given = model::preset("nvme-qlc").unwrap().spec();
    assert_eq!(
        (fit.spec.write_iops, fit.spec.write_latency),
        (given.write_iops, given.write_latency)
    );
    // 1 MiB, one at a time: the sizes differ only in the transfer.
    near(
        fit.directions[0].unwrap().one_stream.unwrap(),
        spec.read_bandwidth.as_f64(),
        0.35,
        "stream",
    );
    assert!(fit_device(&[], &given).is_none());
}

#[test]
fn mixed_loads_are_fitted() {
    let spec = model::preset("sas-ssd").unwrap().spec();
    let mut points = Vec::new();
    for read_share in [0.9, 0.5, 0.1] {
        for bytes in SIZES {
            for depth in [1, 4, 16, 64, 128] {
                let load = share(read_share, bytes);
                let settled = closed_loop(&spec, &load, f64::from(depth));
                let flow = |dir: usize| {
                    Some(MeasuredFlow {
                        iops: settled.iops * load[dir].share,
                        bytes,
                        latency_us: settled.latency_us[dir],
                        spread_us: None,
                    })
                };
                points.push(LoadPoint {
                    flows: [flow(0), flow(1)],
                });
            }
        }
    }
    let within = Tolerances {
        base: [0.03, 0.03],
        caps: 0.03,
        curve: 0.05,
    };
    check(&fit(&points), &spec, &within, "mixed");
}

#[test]
fn equal_points_give_equal_bits() {
    let spec = model::preset("pm863").unwrap().spec();
    let points = sweep(&spec, &SIZES, &[1, 4, 16, 64], 0.03, 9, true);
    assert_eq!(fit(&points), fit(&points));
}
