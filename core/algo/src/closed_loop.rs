//! Throughput and latency of a closed loop on a device, computed without simulation.
//!
//! ```text
//!  U·(P(U) + W(U)) / o = N             N requests in flight, utilization U, o the server's time for one request
//!  P = bare latency × curve(U) + transfer                     of [`crate::DeviceModel`]'s pipeline
//!  W = V/(1−V) · E[o²]/E[o] · r,   V = U·(1 − 1/N)           waiting for its server
//! ```
//!
//! The left side grows with U, so there is one solution. An arriving request sees the server as loaded by the other N −
//! 1 requests (Schweitzer's approximation). r is the remaining service time ahead of an arrival, as a fraction of a
//! service. It is one half for random arrivals, near zero if the loops run in step (the jitter of the pipeline is small
//! compared with o), and one at saturation, where a request arrives when another leaves. The interpolation in between
//! was chosen so that closed loops on [`crate::DeviceModel`] agree, within 7 % in the rate and in the latency of one
//! direction. The faster direction of a mix is up to 20 % off just below saturation (see the tests).

use model::{DeviceSpec, LoadCurve};

/// Number of bisections of the utilization: accuracy of about 1e-15.
const HALVINGS: u32 = 50;
/// Minimum randomness of arrivals.
const RANDOM_MIN: f64 = 0.1;

/// Share and size of the requests of one direction in a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadShare {
    /// Share of all requests, 0..=1; the shares of a load add up to 1.
    pub share: f64,
    /// Bytes per request.
    pub bytes: f64,
}

/// Parameters of a device as real numbers, for a fit. Reads first, then writes.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) base_us: [f64; 2],
    pub(crate) iops: [f64; 2],
    pub(crate) bytes_per_s: [f64; 2],
    pub(crate) curve: Vec<(f64, f64)>,
    pub(crate) jitter_sigma: f64,
}

/// Steady state of a load on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyState {
    /// Share of the device's time in use.
    pub utilization: f64,
    /// Requests per second, both directions.
    pub iops: f64,
    /// Mean latency of reads and of writes, in microseconds.
    pub latency_us: [f64; 2],
}

/// Computes the steady state of a load with `in_flight` requests in flight. `load` has reads and writes.
pub fn closed_loop(spec: &DeviceSpec, load: &[LoadShare; 2], in_flight: f64) -> SteadyState {
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

    /// Returns the server time of one request in microseconds.
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

    pub(crate) fn settle(&self, load: &[LoadShare; 2], in_flight: f64) -> SteadyState {
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
        // No request is faster than its server time, even if the requests in flight do not fill the pipeline.
        let all_us = total_us(utilization).max(in_flight * occupancy);
        let wait_us = all_us - mix_us(utilization);
        SteadyState {
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
    fn closed_loop_gives_bare_latency_at_depth_one_and_the_cap_at_many() {
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

    /// Runs `slots` closed loops against the simulated device for two seconds; returns (IOPS, mean latency in us).
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
    fn closed_loop_matches_the_simulated_device() {
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
