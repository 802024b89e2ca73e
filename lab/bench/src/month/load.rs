//! Plausible loads. Rates differ by orders of magnitude between volumes and follow the hours of the day. Some volumes are idle except for
//! bursts. Latencies are log-normal, with the sampling noise that the number of requests causes.

use algo::{bucket_of, bucket_value_ns};
use libm::{cos, exp, sqrt};
use manager::store::{DeviceSummary, FlowSummary, StoredWindow, VolumeSummary};

use super::{DAY_NS, HOST, WINDOW_NS};

const DEVICES: usize = 12;

/// Median latency of an unloaded device, for each third of the devices.
const MEDIANS_NS: [f64; 3] = [90_000.0, 350_000.0, 5_500_000.0];

pub struct Loads {
    volumes: Vec<Volume>,
    random: SplitMix64,
    used_bytes: [u64; DEVICES],
}

struct Volume {
    device: usize,
    /// Requests per second at noon.
    rate: f64,
    read_share: f64,
    /// Mean size of a request, in blocks of 4 KiB.
    blocks: f64,
    /// Relative reduction of the rate at night, 0..1.
    swing: f64,
    /// Shift of the volume's noon, as a share of a day.
    phase: f64,
    /// Standard deviation of the logarithm of a latency.
    spread: f64,
    /// Remaining windows of the current burst; 0 if the volume is idle. `None` for a volume with a steady load.
    burst: Option<u32>,
    /// Slow random drift of the logarithms of rate and latency.
    wander: (f64, f64),
}

pub fn volume_name(n: usize) -> String {
    format!("vm-{n:05}-data")
}

pub fn device_name(n: usize) -> String {
    format!("shelf{}-bay{}", n / 4, n % 4)
}

impl Loads {
    pub fn new(volumes: usize) -> Self {
        let mut random = SplitMix64(1);
        let make = |n| Volume {
            device: n * DEVICES / volumes,
            rate: 25.0 * exp(1.6 * random.normal()),
            read_share: 0.15 + 0.8 * random.uniform(),
            blocks: 1.0 + 15.0 * random.uniform() * random.uniform(),
            swing: 0.9 * random.uniform(),
            phase: 0.15 * random.normal(),
            spread: 0.35 + 0.6 * random.uniform(),
            burst: (random.uniform() < 0.2).then_some(0),
            wander: (0.0, 0.0),
        };
        Self {
            volumes: (0..volumes).map(make).collect(),
            random,
            used_bytes: [1 << 42; DEVICES],
        }
    }

    pub fn window(&mut self, at_ns: u64) -> StoredWindow {
        let time_of_day = (at_ns % DAY_NS) as f64 / DAY_NS as f64;
        let random = &mut self.random;
        let mut devices = [(0u64, 0u64, 0u64, 0u64); DEVICES];
        let mut summaries = Vec::with_capacity(self.volumes.len());
        for (n, volume) in self.volumes.iter_mut().enumerate() {
            let summary = volume.window(n, time_of_day, random);
            let device = &mut devices[volume.device];
            device.0 += summary.reads.ios;
            device.1 += summary.writes.ios;
            device.2 += summary.reads.bytes;
            device.3 += summary.writes.bytes;
            summaries.push(summary);
        }
        for used in &mut self.used_bytes {
            *used += (random.uniform() * 64.0) as u64 * 65536;
        }
        let used_bytes = &self.used_bytes;
        let devices = devices.iter().enumerate().map(|(n, d)| DeviceSummary {
            device: device_name(n),
            used_bytes: used_bytes[n],
            reads: d.0,
            writes: d.1,
            read_bytes: d.2,
            write_bytes: d.3,
            utilization_milli: ((d.0 + d.1) / 400).min(1000),
        });
        StoredWindow {
            host: HOST.to_string(),
            at_ns,
            window_ns: WINDOW_NS,
            volumes: summaries,
            devices: devices.collect(),
        }
    }
}

impl Volume {
    fn window(&mut self, n: usize, time_of_day: f64, random: &mut SplitMix64) -> VolumeSummary {
        self.wander.0 = 0.98 * self.wander.0 + 0.08 * random.normal();
        self.wander.1 = 0.98 * self.wander.1 + 0.03 * random.normal();
        let noon = 0.5 - 0.5 * cos(std::f64::consts::TAU * (time_of_day + self.phase));
        let mut rate = self.rate * (1.0 - self.swing * (1.0 - noon)) * exp(self.wander.0);
        if let Some(left) = &mut self.burst {
            if *left > 0 {
                *left -= 1;
            } else if random.uniform() < 0.002 {
                *left = (random.uniform() * 60.0) as u32;
            } else {
                rate = 0.0;
            }
        }
        let load = 1.0 + 0.3 * noon;
        let tier = self.device * MEDIANS_NS.len() / DEVICES;
        let median_ns = MEDIANS_NS[tier] * load * exp(self.wander.1);
        let requests = rate * WINDOW_NS as f64 / 1e9;
        let reads = self.flow(requests * self.read_share, median_ns, random);
        let writes = self.flow(requests * (1.0 - self.read_share), median_ns * 0.6, random);
        let busy_ns = reads.ios * reads.mean_ns + writes.ios * writes.mean_ns;
        let p99_ns = match (reads.ios, writes.ios) {
            (0, _) => writes.p99_ns,
            (_, 0) => reads.p99_ns,
            _ => bucket((reads.p99_ns + writes.p99_ns) as f64 / 2.0),
        };
        VolumeSummary {
            volume: volume_name(n),
            device: device_name(self.device),
            reads,
            writes,
            p99_ns,
            // Every other volume has an objective for its 99th percentile.
            slo_ns: if n.is_multiple_of(2) { p99_ns } else { 0 },
            outstanding_milli: busy_ns / (WINDOW_NS / 1000),
        }
    }

    fn flow(&self, requests: f64, median_ns: f64, random: &mut SplitMix64) -> FlowSummary {
        let ios = requests + sqrt(requests) * random.normal();
        if ios < 1.0 {
            return FlowSummary::default();
        }
        let ios = ios as u64;
        let noise = self.spread / sqrt(ios as f64);
        // Few samples determine a high quantile, so it has more noise and is bounded by the number of requests.
        let mut quantile = |z: f64, worse: f64| {
            let z = z.min(sqrt(2.0 * libm::log(ios as f64 + 1.0)));
            median_ns * exp(self.spread * z + noise * worse * random.normal())
        };
        let (p50, p95, p99, p999) = (
            quantile(0.0, 1.25),
            quantile(1.645, 2.1),
            quantile(2.326, 3.7),
            quantile(3.09, 6.0),
        );
        let mean = median_ns * exp(self.spread * self.spread / 2.0 + noise * random.normal());
        let blocks = ios as f64 * self.blocks + sqrt(ios as f64) * self.blocks * random.normal();
        FlowSummary {
            ios,
            bytes: (blocks as u64).max(ios) * 4096,
            mean_ns: mean as u64,
            p50_ns: bucket(p50),
            p95_ns: bucket(p95.max(p50)),
            p99_ns: bucket(p99.max(p95)),
            p999_ns: bucket(p999.max(p99)),
        }
    }
}

fn bucket(ns: f64) -> u64 {
    bucket_value_ns(bucket_of(ns as u64))
}

/// Random number generator SplitMix64.
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a uniform number in 0..1.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a nearly standard normal number: the scaled sum of four uniform numbers of 16 bits.
    pub fn normal(&mut self) -> f64 {
        let n = self.next();
        let sum: u64 = (0..4).map(|i| (n >> (16 * i)) & 0xffff).sum();
        (sum as f64 / 65536.0 - 2.0) * sqrt(3.0)
    }
}
