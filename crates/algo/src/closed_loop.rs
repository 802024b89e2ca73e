//! What a load that keeps a number of requests in flight gets from a device, without simulating it.
//!
//! ```text
//!  U·(P(U) + W(U)) / o = N             N requests in flight, utilization U, o the server's time for one request
//!  P = bare latency × curve(U) + transfer                     of [`crate::DeviceModel`]'s pipeline
//!  W = V/(1−V) · E[o²]/E[o] · r,   V = U·(1 − 1/N)           waiting for its server
//! ```
//!
//! The left side grows with U, so there is one solution. An arriving request sees the server as the N − 1 others left it
//! (Schweitzer's approximation). r is how much of a service is ahead of it behind the one it finds being served: a half where
//! arrivals are random, next to nothing where the loops run in step (the jitter of the pipeline is small beside o), and a
//! whole at saturation, where a request arrives when another leaves. The steps between are ours: chosen so that closed loops
//! on [`crate::DeviceModel`] agree, within 7 % in the rate and in the latency of one direction; the faster direction of a
//! mix is up to 20 % off just below saturation (see the tests).

use model::{DeviceSpec, LoadCurve};

/// Halvings of the interval of utilization: to about 1e-15.
const HALVINGS: u32 = 50;
/// Arrivals are never taken to be more regular than this.
const RANDOM_MIN: f64 = 0.1;

/// Requests of one direction in a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadShare {
    /// Share of all requests, 0..=1; the shares of a load add up to 1.
    pub share: f64,
    /// Bytes per request.
    pub bytes: f64,
}

/// A device as numbers that may take any value while a fit looks for them. Reads first, then writes.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) base_us: [f64; 2],
    pub(crate) iops: [f64; 2],
    pub(crate) bytes_per_s: [f64; 2],
    pub(crate) curve: Vec<(f64, f64)>,
    pub(crate) jitter_sigma: f64,
}

/// A load on a device, settled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settled {
    /// Share of the device's time in use.
    pub utilization: f64,
    /// Requests per second, both directions.
    pub iops: f64,
    /// Mean latency of reads and of writes, microseconds.
    pub latency_us: [f64; 2],
}

/// What a load with `in_flight` requests in flight gets from the device. `load` is of reads and of writes.
pub fn closed_loop(spec: &DeviceSpec, load: &[LoadShare; 2], in_flight: f64) -> Settled {
    Shape::of(spec).settle(load, in_flight)
}

impl Shape {
    pub(crate) fn of(spec: &DeviceSpec) -> Self {
        Self {
            base_us: [
                spec.read_latency.as_micros_f64(),
                spec.write_latency.as_micros_f64(),
            ],
            iops: [spec.read_iops, spec.write_iops],
            bytes_per_s: [spec.read_bandwidth.as_f64(), spec.write_bandwidth.as_f64()],
            curve: spec.curve.points().to_vec(),
            jitter_sigma: spec.jitter_sigma,
        }
    }

    /// Time of the server that one request takes, microseconds.
    pub(crate) fn occupancy_us(&self, dir: usize, bytes: f64) -> f64 {
        (1e6 / self.iops[dir]).max(self.transfer_us(dir, bytes))
    }

    pub(crate) fn transfer_us(&self, dir: usize, bytes: f64) -> f64 {
        bytes * 1e6 / self.bytes_per_s[dir]
    }

    fn factor(&self, utilization: f64) -> f64 {
        let after = self.curve.partition_point(|p| p.0 <= utilization);
        match (
            after.checked_sub(1).map(|i| self.curve[i]),
            self.curve.get(after),
        ) {
            (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (utilization - a.0) / (b.0 - a.0),
            (Some(a), None) => a.1,
            (None, _) => 1.0,
        }
    }

    pub(crate) fn settle(&self, load: &[LoadShare; 2], in_flight: f64) -> Settled {
        let (mut occupancy, mut squared) = (0.0, 0.0);
        for (dir, l) in load.iter().enumerate().filter(|(_, l)| l.share > 0.0) {
            let o = self.occupancy_us(dir, l.bytes);
            occupancy += l.share * o;
            squared += l.share * o * o;
        }
        let others = (1.0 - 1.0 / in_flight).max(0.0);
        let mean = squared / occupancy;
        let random = |pipeline_us: f64| {
            let x = self.jitter_sigma * pipeline_us / mean;
            (1.0 - libm::exp(-x * x)).max(RANDOM_MIN)
        };
        let wait_us = |u: f64, pipeline_us: f64| {
            let (busy, r) = (others * u, random(pipeline_us));
            let full = libm::pow(u, 4.0 / r);
            busy / (1.0 - busy) * mean * (0.5 * r * (1.0 - full) + full)
        };
        let pipeline_us = |dir: usize, u: f64| {
            self.base_us[dir] * self.factor(u) + self.transfer_us(dir, load[dir].bytes)
        };
        let mix_us = |u: f64| {
            let present = load.iter().enumerate().filter(|(_, l)| l.share > 0.0);
            present
                .map(|(dir, l)| l.share * pipeline_us(dir, u))
                .sum::<f64>()
        };
        let total_us = |u: f64| {
            let pipeline = mix_us(u);
            pipeline + wait_us(u, pipeline)
        };
        let (mut low, mut high) = (0.0, 1.0 - 1e-12);
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if middle * total_us(middle) / occupancy < in_flight {
                low = middle;
            } else {
                high = middle;
            }
        }
        let utilization = 0.5 * (low + high);
        // Nothing is served faster than the server's time for it, also where all that are in flight do not fill the pipeline.
        let all_us = total_us(utilization).max(in_flight * occupancy);
        let wait_us = all_us - mix_us(utilization);
        Settled {
            utilization,
            iops: in_flight * 1e6 / all_us,
            latency_us: [0, 1].map(|dir| pipeline_us(dir, utilization) + wait_us),
        }
    }

    pub(crate) fn load_curve(&self) -> LoadCurve {
        LoadCurve::new(self.curve.clone()).expect("knots rise from (0, 1), factors do not fall")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceModel, EventHeap, Rng, mix};
    use model::Op;

    const READS: [LoadShare; 2] = [
        LoadShare {
            share: 1.0,
            bytes: 4096.0,
        },
        LoadShare {
            share: 0.0,
            bytes: 4096.0,
        },
    ];

    #[test]
    fn one_request_in_flight_sees_the_bare_device_and_many_see_its_cap() {
        let spec = model::preset("pm953").unwrap().spec();
        let one = closed_loop(&spec, &READS, 1.0);
        let bare = spec.bare_latency_us(Op::Read, 4096.0);
        assert!(
            (one.latency_us[0] / bare - 1.0).abs() < 0.02,
            "{one:?} {bare}"
        );
        assert!((one.iops * one.latency_us[0] / 1e6 - 1.0).abs() < 1e-9);
        let many = closed_loop(&spec, &READS, 1000.0);
        assert!((many.iops / 240e3 - 1.0).abs() < 0.01, "{many:?}");
        assert!(
            (many.latency_us[0] / (1000.0 / 0.24) - 1.0).abs() < 0.01,
            "{many:?}"
        );
    }

    /// Runs `slots` closed loops against the simulated device for two seconds; (IOPS, mean latency in us).
    fn simulate(spec: &DeviceSpec, read_share: f64, bytes: u64, slots: u32) -> (f64, [f64; 2]) {
        const SECONDS: u64 = 2;
        let mut device = DeviceModel::new(spec);
        let mut rng = Rng::new(7, u64::from(slots));
        let mut heap = EventHeap::new();
        for slot in 0..slots {
            heap.push(u64::from(slot) * 1000, slot);
        }
        let (mut n, mut sums, mut counts) = (0u64, [0.0; 2], [0u64; 2]);
        while let Some((now, slot)) = heap.pop() {
            if now > SECONDS * 1_000_000_000 {
                break;
            }
            let op = if rng.unit() < read_share {
                Op::Read
            } else {
                Op::Write
            };
            let done = device.submit(now, op, bytes, mix(3, n));
            let dir = usize::from(op != Op::Read);
            sums[dir] += (done - now) as f64 / 1e3;
            counts[dir] += 1;
            n += 1;
            heap.push(done, slot);
        }
        let mean = |dir: usize| sums[dir] / counts[dir].max(1) as f64;
        (n as f64 / SECONDS as f64, [mean(0), mean(1)])
    }

    #[test]
    fn it_says_what_the_simulated_device_does() {
        for name in ["pm953", "pm1633", "sata-ssd"] {
            let spec = model::preset(name).unwrap().spec();
            for (read_share, bytes) in [(1.0, 4096), (0.0, 4096), (0.7, 16_384), (1.0, 1 << 20)] {
                for slots in [1, 2, 4, 8, 16, 32, 64] {
                    let load = [
                        LoadShare {
                            share: read_share,
                            bytes: bytes as f64,
                        },
                        LoadShare {
                            share: 1.0 - read_share,
                            bytes: bytes as f64,
                        },
                    ];
                    let want = closed_loop(&spec, &load, f64::from(slots));
                    let (iops, latency_us) = simulate(&spec, read_share, bytes, slots);
                    let at = format!("{name} {read_share} {bytes} {slots}");
                    assert!(
                        (iops / want.iops - 1.0).abs() < 0.07,
                        "{at}: {iops} {want:?}"
                    );
                    let mixed = read_share > 0.0 && read_share < 1.0;
                    let within = if mixed { 0.2 } else { 0.07 };
                    for dir in [0, 1].into_iter().filter(|d| load[*d].share > 0.0) {
                        let ratio = latency_us[dir] / want.latency_us[dir];
                        assert!(
                            (ratio - 1.0).abs() < within,
                            "{at}: {latency_us:?} {want:?}"
                        );
                    }
                }
            }
        }
    }
}
