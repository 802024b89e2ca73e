//! Use of a device by a load, and response times on it.

use model::{DeviceSpec, Op, SloStatistic};

/// Use of a device from which it counts as full: demand beyond it queues.
pub(super) const FULL: f64 = 0.98;
/// Longest wait, seconds.
const WAIT_MAX_S: f64 = 60.0;
/// Squared coefficient of variation of waits on a full device. Waits of an open queue are exponential; those of a full
/// device, where all slots wait, vary less.
const FULL_CV2: f64 = 0.1;

/// Load of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Load {
    /// Requests per second, reads and writes.
    pub iops: [f64; 2],
    /// Mean bytes of reads and writes.
    pub bytes: [f64; 2],
}

impl Load {
    pub(super) fn total(&self) -> f64 {
        self.iops[0] + self.iops[1]
    }
}

/// Use of a device by a load.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Use {
    /// Share of the device's time.
    pub share: f64,
    /// Rate times squared occupancy, seconds: determines the wait for the request in service.
    pub residual_s: f64,
    /// Number of requests in flight if all of them wait, times the time of each: seconds.
    pub queue_s: f64,
}

impl Use {
    /// Adds `times` times the other use.
    pub(super) fn plus(&self, other: &Self, times: f64) -> Self {
        Self {
            share: self.share + times * other.share,
            residual_s: self.residual_s + times * other.residual_s,
            queue_s: self.queue_s + times * other.queue_s,
        }
    }

    /// Returns the use on a device that takes `factor` times its specified time.
    pub(super) fn on_slower(&self, factor: f64) -> Self {
        Self {
            share: factor * self.share,
            residual_s: factor * factor * self.residual_s,
            queue_s: factor * self.queue_s,
        }
    }

    /// Sets negative values to 0: differences of sums may be negative by rounding.
    pub(super) fn at_least_nothing(&self) -> Self {
        Self {
            share: self.share.max(0.0),
            residual_s: self.residual_s.max(0.0),
            queue_s: self.queue_s.max(0.0),
        }
    }

    /// Returns the use by a load with at most `depth` requests in flight, on a device that takes `factor` times its
    /// specified time.
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

/// Arrivals of a volume's requests, which determine their waits on a device that is not full.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Arrivals {
    /// Wait behind requests of other volumes, divided by that of an open queue with random arrivals.
    pub others: f64,
    /// Wait behind its own requests: in requests, if known, ...
    pub queue: Option<f64>,
    /// ... else divided by that of an open queue.
    pub own: f64,
}

impl Arrivals {
    /// Returns random arrivals.
    pub(super) fn at_random() -> Self {
        Self {
            others: 1.0,
            queue: None,
            own: 1.0,
        }
    }
}

/// Wait of a volume's requests.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Wait {
    /// Mean, seconds.
    pub mean_s: f64,
    /// Squared coefficient of variation.
    pub cv2: f64,
}

/// Load of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct DeviceLoad {
    /// Demanded share of its time; above 1 the demand exceeds its capability.
    pub rho: f64,
    /// Sums of [`Use`] over all volumes.
    residual_s: f64,
    queue_s: f64,
    /// Response time of the full device, seconds.
    full_s: f64,
}

impl DeviceLoad {
    /// Returns the load by these uses plus `more` of the device's time.
    ///
    /// On a full device, every volume gets its demand or the rate of its slots, whichever is less. The response time R
    /// solves Σ min(share, queue/R) = 1 (asymptotic bound of a closed network; Denning and Buzen, Computing Surveys 1978).
    pub(super) fn of(uses: impl Iterator<Item = Use> + Clone, more: f64) -> Self {
        let mut sum = Use::default();
        for u in uses.clone() {
            sum.share += u.share;
            sum.residual_s += u.residual_s;
            sum.queue_s += u.queue_s;
        }
        let rho = sum.share + more;
        let open = Self {
            rho,
            // Requests of copies have the same residual as the others.
            residual_s: sum.residual_s * rho / sum.share.max(1e-9),
            queue_s: sum.queue_s,
            full_s: 0.0,
        };
        if rho < FULL {
            return open;
        }
        // A volume with less demand than the rate of its slots is not limited by their number.
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
            full_s: response_s.min(WAIT_MAX_S),
            ..open
        }
    }

    /// Returns the wait of a volume's requests. On a full device, it is the same for all volumes. Below that, requests wait
    /// behind those of others, by the mean wait of Pollaczek and Khinchine, and behind their own. The wait is at most that
    /// of a queue of all possible requests in flight.
    pub(super) fn wait(&self, own: &Use, arrivals: &Arrivals) -> Wait {
        if self.full() {
            return Wait {
                mean_s: self.full_s,
                cv2: FULL_CV2,
            };
        }
        let (behind_others, behind_own) = self.waits(own, arrivals);
        let mean_s = behind_others + behind_own;
        let variance = behind_others * behind_others * self.spread() + behind_own * behind_own;
        Wait {
            mean_s: mean_s.min(self.queue_s),
            cv2: variance / (mean_s * mean_s).max(1e-18),
        }
    }

    /// Returns the mean waits behind requests of others and behind its own, seconds.
    fn waits(&self, own: &Use, arrivals: &Arrivals) -> (f64, f64) {
        let behind_own = match arrivals.queue {
            Some(requests) => requests * own.residual_s / own.share.max(1e-12),
            None => arrivals.own * self.open_s(own.residual_s),
        };
        (arrivals.others * self.behind_others_s(own), behind_own)
    }

    /// Returns the squared variation of waits behind others: only requests that find the device in use wait. For its own
    /// requests, the number in front varies.
    fn spread(&self) -> f64 {
        2.0 / self.rho.max(0.02) - 1.0
    }

    /// Returns the wait behind requests of others for random arrivals.
    pub(super) fn behind_others_s(&self, own: &Use) -> f64 {
        self.open_s(self.residual_s - own.residual_s)
    }

    /// Returns the mean wait of Pollaczek and Khinchine behind requests of this residual.
    pub(super) fn open_s(&self, residual_s: f64) -> f64 {
        residual_s.max(0.0) / (2.0 * (1.0 - self.rho.min(FULL)))
    }

    /// Returns the load by a sum of uses, if every demand is at least the rate of the slots.
    pub(super) fn of_sum(sum: Use) -> Self {
        Self::of(std::iter::once(sum), 0.0)
    }

    pub(super) fn full(&self) -> bool {
        self.rho >= FULL
    }

    /// True if the device is no busier than at `most` and about as busy as at `least`, with queues of the same kind.
    pub(super) fn is_between(&self, least: &Self, most: &Self) -> bool {
        self.full() == most.full()
            && self.rho >= least.rho
            && self.rho <= most.rho
            && self.residual_s <= most.residual_s
            && self.queue_s <= most.queue_s
            && self.full_s <= most.full_s
    }

    /// Returns the load with all values multiplied by `by`.
    pub(super) fn times(&self, by: f64) -> Self {
        Self {
            rho: by * self.rho,
            residual_s: by * self.residual_s,
            queue_s: by * self.queue_s,
            full_s: by * self.full_s,
        }
    }

    /// Returns the longest wait between these uses of a device that is not full: no mean and no variance is larger.
    fn longest_wait(least: &Self, most: &Self, own: &Use, arrivals: &Arrivals) -> Wait {
        let mean_s = most.wait(own, arrivals).mean_s;
        let (behind_others, behind_own) = most.waits(own, arrivals);
        let variance = behind_others * behind_others * least.spread() + behind_own * behind_own;
        Wait {
            mean_s,
            cv2: variance / (mean_s * mean_s).max(1e-18),
        }
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
    /// Returns the latency of a load on a device with this utilization and this wait; zero without requests.
    pub(super) fn of(spec: &DeviceSpec, load: &Load, rho: f64, wait: Wait) -> Self {
        let total = load.total();
        if total <= 0.0 {
            return Self::default();
        }
        let factor = spec.curve.factor(rho.min(1.0));
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
        let plain_us = reads * of[0] + (1.0 - reads) * of[1];
        // On a full device, the wait is the whole response time (Little's law for all requests in flight).
        let wait_us = match rho < FULL {
            true => wait.mean_s * 1e6,
            false => (wait.mean_s * 1e6 - plain_us).max(0.0),
        };
        let mean_us = plain_us + wait_us;
        // exp(σ²) − 1 by its first terms, exact enough for real spreads.
        let square = spec.jitter_sigma * spec.jitter_sigma;
        let jitter = square * (1.0 + square / 2.0 * (1.0 + square / 3.0));
        let variance = reads * device[0] * device[0] * jitter
            + (1.0 - reads) * device[1] * device[1] * jitter
            + reads * (1.0 - reads) * (of[0] - of[1]) * (of[0] - of[1])
            + wait.cv2 * wait_us * wait_us;
        Self {
            mean_us,
            cv2: variance / (mean_us * mean_us).max(1e-9),
        }
    }

    /// Returns the largest mean and variation of a load on a device that is not full, at any use between these two.
    pub(super) fn largest(
        spec: &DeviceSpec,
        load: &Load,
        (least, most): (&DeviceLoad, &DeviceLoad),
        own: &Use,
        arrivals: &Arrivals,
    ) -> Self {
        let wait = DeviceLoad::longest_wait(least, most, own, arrivals);
        let largest = Self::of(spec, load, most.rho, wait);
        // The difference of reads and writes may be larger at either end.
        let idle = Self::of(spec, load, least.rho, Wait::default());
        let variance = |l: &Self| l.cv2 * l.mean_us * l.mean_us;
        Self {
            cv2: (variance(&largest) + variance(&idle)) / (largest.mean_us * largest.mean_us),
            ..largest
        }
    }

    /// Returns the median latency of requests of one kind if at least half of them do not wait, microseconds.
    pub(super) fn median_us(spec: &DeviceSpec, op: Op, bytes: f64, rho: f64) -> f64 {
        let transfer_us = spec.bare_latency_us(op, bytes) - spec.bare_latency_us(op, 0.0);
        let sigma = spec.jitter_sigma;
        let device_us = spec.bare_latency_us(op, 0.0) * spec.curve.factor(rho.min(1.0));
        device_us * libm::exp(-sigma * sigma / 2.0) + transfer_us
    }

    /// Returns the logarithm of a statistic over the mean, for a log-normal distribution with this variation.
    pub(super) fn ratio_ln(&self, statistic: SloStatistic) -> f64 {
        let z = match statistic {
            SloStatistic::Mean => return 0.0,
            SloStatistic::P95 => 1.645,
            SloStatistic::P99 => 2.326,
        };
        let variance = libm::log1p(self.cv2);
        z * variance.sqrt() - variance / 2.0
    }

    /// Returns the latency multiplied by `by`.
    pub(super) fn times(self, by: f64) -> Self {
        Self {
            mean_us: self.mean_us * by,
            ..self
        }
    }
}
