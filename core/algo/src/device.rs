//! Queueing model of one device: caps, a load curve and jitter; a few multiplications per request.
//!
//! ```text
//!   request ──▶ [ server: one at a time, occupancy = 1/cap or bytes/bandwidth ] ──▶ pipeline: latency × curve × jitter ──▶ done
//!                 waits here only when the device is past its caps                  many at once; grows with utilization
//! ```
//!
//! The server models the capacity of the device per second. It is first come, first served. Its occupancy per request
//! is small (4 us at 240,000 IOPS), so it adds no delay below saturation. The pipeline models the time of one request:
//! bare latency times the load curve's factor at the current utilization, times the request's jitter, plus the transfer
//! of its bytes. Utilization is averaged over slots of 1 ms with a memory of eight slots.
//!
//! Limits: no garbage collection and no write buffers (bursts complete at the bare write latency for ever), no
//! reordering by the device, and no reads that wait behind a particular erase. The flash-level model has these.
//!
//! Requests must be submitted in order of time. A request that is not is treated as arriving now.

use model::{DeviceSpec, LoadCurve, Op};

use crate::JitterTable;

const SLOT_NS: u64 = 1_000_000;
/// Weight of the newest slot in the utilization.
const SLOT_WEIGHT: f64 = 1.0 / 8.0;

/// Work of a device since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DeviceCounters {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes, trims and flushes.
    pub writes: u64,
    /// Time that the server was occupied, in nanoseconds.
    pub busy_ns: f64,
}

/// Device with its present load.
#[derive(Debug, Clone)]
pub struct DeviceModel {
    occupancy_io_ns: [f64; 2],
    byte_ns: [f64; 2],
    base_ns: [f64; 2],
    /// Base latency times the current factor.
    loaded_ns: [f64; 2],
    free_at_ns: f64,
    slot_end_ns: u64,
    slot_busy_ns: f64,
    utilization: f64,
    curve: LoadCurve,
    jitter: JitterTable,
    counters: DeviceCounters,
}

impl DeviceModel {
    /// Creates an idle device.
    pub fn new(spec: &DeviceSpec) -> Self {
        let base_ns = [spec.read_latency.as_f64(), spec.write_latency.as_f64()];
        Self {
            occupancy_io_ns: [1e9 / spec.read_iops, 1e9 / spec.write_iops],
            byte_ns: [
                1e9 / spec.read_bandwidth.as_f64(),
                1e9 / spec.write_bandwidth.as_f64(),
            ],
            base_ns,
            loaded_ns: base_ns,
            free_at_ns: 0.0,
            slot_end_ns: SLOT_NS,
            slot_busy_ns: 0.0,
            utilization: 0.0,
            curve: spec.curve.clone(),
            jitter: JitterTable::new(spec.jitter_sigma),
            counters: DeviceCounters::default(),
        }
    }

    /// Submits a request at `now_ns`; returns its completion time. `bits` are the request's own random bits.
    #[inline]
    pub fn submit(&mut self, now_ns: u64, op: Op, bytes: u64, bits: u64) -> u64 {
        if now_ns >= self.slot_end_ns {
            self.end_slots(now_ns);
        }
        let dir = usize::from(op != Op::Read);
        let bytes = if op as u8 <= Op::Write as u8 {
            bytes
        } else {
            0
        };
        let transfer_ns = bytes as f64 * self.byte_ns[dir];
        let occupancy_ns = self.occupancy_io_ns[dir].max(transfer_ns);
        let now = now_ns as f64;
        let start = if self.free_at_ns > now {
            self.free_at_ns
        } else {
            now
        };
        self.free_at_ns = start + occupancy_ns;
        self.slot_busy_ns += occupancy_ns;
        self.counters.busy_ns += occupancy_ns;
        if dir == 0 {
            self.counters.reads += 1;
            self.counters.read_bytes += bytes;
        } else {
            self.counters.writes += 1;
            self.counters.write_bytes += bytes;
        }
        (start + self.loaded_ns[dir] * self.jitter.factor(bits) + transfer_ns) as u64
    }

    /// Returns the server time of a request in nanoseconds, independent of its arrival.
    #[inline]
    pub fn occupancy_ns(&self, op: Op, bytes: u64) -> f64 {
        let dir = usize::from(op != Op::Read);
        let moves_data = op as u8 <= Op::Write as u8;
        let transfer_ns = if moves_data {
            bytes as f64 * self.byte_ns[dir]
        } else {
            0.0
        };
        self.occupancy_io_ns[dir].max(transfer_ns)
    }

    /// Returns the share of the device's time in use, averaged over the last milliseconds, 0..=1.
    pub fn utilization(&self) -> f64 {
        self.utilization
    }

    /// Returns the work done since the start.
    pub fn counters(&self) -> DeviceCounters {
        self.counters
    }

    #[cold]
    fn end_slots(&mut self, now_ns: u64) {
        let mut slots = 1 + (now_ns - self.slot_end_ns) / SLOT_NS;
        self.slot_end_ns += slots * SLOT_NS;
        // A burst in one slot keeps the server busy in the following ones too.
        while slots > 0 {
            let used = self.slot_busy_ns.min(SLOT_NS as f64);
            self.slot_busy_ns -= used;
            self.utilization += (used / SLOT_NS as f64 - self.utilization) * SLOT_WEIGHT;
            slots -= 1;
            if self.slot_busy_ns == 0.0 && self.utilization < 1e-6 {
                self.utilization = 0.0;
                break;
            }
        }
        let factor = self.curve.factor(self.utilization);
        self.loaded_ns = [self.base_ns[0] * factor, self.base_ns[1] * factor];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rng, mix};

    fn spec() -> DeviceSpec {
        let mut spec = model::preset("pm953").unwrap().spec();
        spec.jitter_sigma = 0.0;
        spec
    }

    #[test]
    fn idle_device_has_its_bare_latency() {
        let spec = spec();
        let mut device = DeviceModel::new(&spec);
        for (i, op) in [Op::Read, Op::Write, Op::Flush].into_iter().enumerate() {
            let now = (i as u64 + 1) * 1_000_000_000;
            let latency = device.submit(now, op, 4096, 0) - now;
            let want = spec.bare_latency_us(op, 4096.0) * 1e3;
            assert!(
                (latency as f64 - want).abs() < 2.0,
                "{op:?} {latency} {want}"
            );
        }
    }

    /// Offers `iops` as a Poisson stream for ten seconds; returns (completed per second, mean latency in us).
    fn offer(spec: &DeviceSpec, op: Op, bytes: u64, iops: f64) -> (f64, f64) {
        let mut device = DeviceModel::new(spec);
        let mut rng = Rng::new(1, 0);
        let (mut now, mut n, mut sum, mut last) = (0.0, 0u64, 0.0, 0u64);
        while now < 10e9 {
            now += rng.exponential() * 1e9 / iops;
            let done = device.submit(now as u64, op, bytes, mix(9, n));
            sum += done as f64 - now;
            last = last.max(done);
            n += 1;
        }
        (
            n as f64 / (last as f64 / 1e9).max(10.0),
            sum / n as f64 / 1e3,
        )
    }

    #[test]
    fn throughput_stops_at_the_cap_and_latency_follows_the_curve() {
        let spec = spec();
        let (rate, latency) = offer(&spec, Op::Read, 4096, 120e3);
        assert!((rate - 120e3).abs() < 2e3, "{rate}");
        let bare = spec.bare_latency_us(Op::Read, 4096.0);
        // 4 KiB at 1000 MB/s takes 4.1 us, so bandwidth caps at 244 K: half load is utilization 0.5.
        assert!((latency / bare - 1.08).abs() < 0.05, "{}", latency / bare);
        let (rate, latency) = offer(&spec, Op::Read, 4096, 400e3);
        assert!((rate - 240e3).abs() < 5e3, "{rate}");
        assert!(
            latency > 1e6,
            "an open queue grows without bound: {latency}"
        );
        let (rate, _) = offer(&spec, Op::Write, 1 << 20, 2000.0);
        assert!((rate * (1 << 20) as f64 - 870e6).abs() < 10e6, "{rate}");
    }

    #[test]
    fn busy_time_is_the_sum_of_request_occupancies() {
        let mut device = DeviceModel::new(&spec());
        let asked = [
            (Op::Read, 4096),
            (Op::Write, 1 << 20),
            (Op::Flush, 0),
            (Op::Trim, 1 << 20),
        ];
        let took: f64 = asked
            .iter()
            .map(|(op, bytes)| device.occupancy_ns(*op, *bytes))
            .sum();
        for (i, (op, bytes)) in asked.into_iter().enumerate() {
            device.submit(i as u64, op, bytes, 0);
        }
        assert!((device.counters().busy_ns - took).abs() < 1e-6);
    }

    #[test]
    fn long_pause_is_computed_fast_and_resets_the_load() {
        let mut device = DeviceModel::new(&spec());
        for i in 0..100_000u64 {
            device.submit(i * 5_000, Op::Read, 4096, 0);
        }
        assert!(device.utilization() > 0.7);
        device.submit(86_400_000_000_000 * 365, Op::Read, 4096, 0);
        assert_eq!(device.utilization(), 0.0);
    }
}
