//! What a load takes of a device, and how long its answers take there.

use model::{DeviceSpec, Op, SloStatistic};

/// Use of a device from which it counts as full: what it is asked for beyond that waits.
pub(super) const FULL: f64 = 0.98;
/// Nobody waits behind a queue of more than this, seconds.
const WAIT_MAX_S: f64 = 60.0;
/// Waits of an open queue are exponential once there are any; those of a full device, where all slots wait, differ less: squared coefficient of
/// variation.
const FULL_CV2: f64 = 0.1;

/// A load.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Load {
    /// Requests per second, reads and writes.
    pub iops: [f64; 2],
    /// Their mean bytes.
    pub bytes: [f64; 2],
}

impl Load {
    pub(super) fn total(&self) -> f64 {
        self.iops[0] + self.iops[1]
    }
}

/// What a load takes of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Use {
    /// Share of its time.
    pub share: f64,
    /// Rate times squared occupancy, seconds: by it an arrival has to wait for what is being served.
    pub residual_s: f64,
    /// Requests that it has in flight when all of them wait, times the time that each takes: seconds.
    pub queue_s: f64,
}

impl Use {
    /// Both, each so many times.
    pub(super) fn plus(&self, other: &Self, times: f64) -> Self {
        Self {
            share: self.share + times * other.share,
            residual_s: self.residual_s + times * other.residual_s,
            queue_s: self.queue_s + times * other.queue_s,
        }
    }

    /// Without what is below nothing, which differences of sums may be by rounding.
    pub(super) fn at_least_nothing(&self) -> Self {
        Self {
            share: self.share.max(0.0),
            residual_s: self.residual_s.max(0.0),
            queue_s: self.queue_s.max(0.0),
        }
    }

    /// Of a load with so many requests in flight at most, on a device that needs `factor` times what is told of it.
    pub(super) fn of(spec: &DeviceSpec, load: &Load, depth: f64, factor: f64) -> Self {
        let occupancy = [Op::Read, Op::Write]
            .map(|op| factor * spec.occupancy_s(op, load.bytes[usize::from(op == Op::Write)]));
        let share = load.iops[0] * occupancy[0] + load.iops[1] * occupancy[1];
        let total = load.total();
        if total <= 0.0 {
            return Self::default();
        }
        Self {
            share,
            residual_s: load.iops[0] * occupancy[0] * occupancy[0]
                + load.iops[1] * occupancy[1] * occupancy[1],
            queue_s: depth * share / total,
        }
    }
}

/// How busy a device is.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Busy {
    /// Share of its time that is asked for; above 1 where more is asked for than it can do.
    pub rho: f64,
    /// Mean time that a request waits for its turn, seconds.
    pub wait_s: f64,
    /// Squared coefficient of variation of that wait.
    pub wait_cv2: f64,
}

impl Busy {
    /// Under these loads and `more` of its time besides.
    ///
    /// Below its caps the mean wait is that of Pollaczek and Khinchine, and no longer than a queue of all requests that can be in flight. At
    /// its caps every volume gets what it asks for or what its slots bring around, whichever is less: the response time R solves
    /// Σ min(share, queue/R) = 1 (asymptotic bound of a closed network; Denning and Buzen, Computing Surveys 1978).
    pub(super) fn of(uses: impl Iterator<Item = Use> + Clone, more: f64) -> Self {
        let mut sum = Use::default();
        for u in uses.clone() {
            sum.share += u.share;
            sum.residual_s += u.residual_s;
            sum.queue_s += u.queue_s;
        }
        let rho = sum.share + more;
        // What copies add waits like the rest.
        let residual_s = sum.residual_s * rho / sum.share.max(1e-9);
        let open_s = residual_s / (2.0 * (1.0 - rho.min(FULL)));
        if rho < FULL {
            return Self {
                rho,
                wait_s: open_s.min(sum.queue_s),
                wait_cv2: 2.0 / rho.max(0.02) - 1.0,
            };
        }
        // Who asks for less than its slots would bring around is not held up by their number.
        let left = (FULL - more).max(0.1);
        let mut response_s = sum.queue_s / left;
        for _ in 0..16 {
            let (mut free, mut held) = (0.0, 0.0);
            for u in uses.clone() {
                match u.share * response_s <= u.queue_s {
                    true => free += u.share,
                    false => held += u.queue_s,
                }
            }
            let next = match held > 0.0 {
                true => held / (left - free).max(1e-3),
                false => 0.0,
            };
            if (next - response_s).abs() <= 1e-3 * response_s {
                break;
            }
            response_s = next;
        }
        Self {
            rho,
            wait_s: response_s.min(WAIT_MAX_S),
            wait_cv2: FULL_CV2,
        }
    }

    /// The same of a sum of uses, where nobody asks for less than its slots bring around.
    pub(super) fn of_sum(sum: Use) -> Self {
        Self::of(std::iter::once(sum), 0.0)
    }

    pub(super) fn full(&self) -> bool {
        self.rho >= FULL
    }
}

/// Latency of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Latency {
    /// Mean, microseconds.
    pub mean_us: f64,
    /// Squared coefficient of variation.
    pub cv2: f64,
}

impl Latency {
    /// Of a load on a device that is so busy; of nothing where nothing is asked for.
    pub(super) fn of(spec: &DeviceSpec, load: &Load, busy: &Busy) -> Self {
        let total = load.total();
        if total <= 0.0 {
            return Self::default();
        }
        let factor = spec.curve.factor(busy.rho.min(1.0));
        let reads = load.iops[0] / total;
        let transfer = [
            load.bytes[0] * 1e6 / spec.read_bandwidth.as_f64(),
            load.bytes[1] * 1e6 / spec.write_bandwidth.as_f64(),
        ];
        let device = [
            spec.read_latency.as_micros_f64() * factor,
            spec.write_latency.as_micros_f64() * factor,
        ];
        let of = [device[0] + transfer[0], device[1] + transfer[1]];
        let wait_us = busy.wait_s * 1e6;
        let mean_us = reads * of[0] + (1.0 - reads) * of[1] + wait_us;
        let jitter = libm::expm1(spec.jitter_sigma * spec.jitter_sigma);
        let variance = reads * device[0] * device[0] * jitter
            + (1.0 - reads) * device[1] * device[1] * jitter
            + reads * (1.0 - reads) * (of[0] - of[1]) * (of[0] - of[1])
            + busy.wait_cv2 * wait_us * wait_us;
        Self {
            mean_us,
            cv2: variance / (mean_us * mean_us).max(1e-9),
        }
    }

    /// A statistic over the mean, of a log-normal with this variation.
    pub(super) fn ratio(&self, statistic: SloStatistic) -> f64 {
        let z = match statistic {
            SloStatistic::Mean => return 1.0,
            SloStatistic::P95 => 1.645,
            SloStatistic::P99 => 2.326,
        };
        let variance = libm::log1p(self.cv2);
        libm::exp(z * libm::sqrt(variance) - variance / 2.0)
    }
}
