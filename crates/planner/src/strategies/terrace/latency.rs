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

    /// On a device that needs `factor` times what is told of it.
    pub(super) fn on_slower(&self, factor: f64) -> Self {
        Self {
            share: factor * self.share,
            residual_s: factor * factor * self.residual_s,
            queue_s: factor * self.queue_s,
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

/// How requests of a volume come in, which decides how long they wait where not everybody waits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Arrivals {
    /// Wait behind requests of other volumes, over that of an open queue of requests that come at random.
    pub others: f64,
    /// Wait behind its own requests: in requests, where that is known, ...
    pub queue: Option<f64>,
    /// ... and over that of an open queue where it is not.
    pub own: f64,
}

impl Arrivals {
    /// Of requests that come at random.
    pub(super) fn at_random() -> Self {
        Self {
            others: 1.0,
            queue: None,
            own: 1.0,
        }
    }
}

/// How long a volume's requests wait for their turn.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Wait {
    /// Mean, seconds.
    pub mean_s: f64,
    /// Squared coefficient of variation.
    pub cv2: f64,
}

/// How busy a device is.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Busy {
    /// Share of its time that is asked for; above 1 where more is asked for than it can do.
    pub rho: f64,
    /// See [`Use`], of all that use it.
    residual_s: f64,
    queue_s: f64,
    /// Response time where it is full, seconds.
    full_s: f64,
}

impl Busy {
    /// Under these loads and `more` of its time besides.
    ///
    /// At its caps every volume gets what it asks for or what its slots bring around, whichever is less: the response time R solves
    /// Σ min(share, queue/R) = 1 (asymptotic bound of a closed network; Denning and Buzen, Computing Surveys 1978).
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
            // What copies add waits like the rest.
            residual_s: sum.residual_s * rho / sum.share.max(1e-9),
            queue_s: sum.queue_s,
            full_s: 0.0,
        };
        if rho < FULL {
            return open;
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
            full_s: response_s.min(WAIT_MAX_S),
            ..open
        }
    }

    /// How long the requests of one of them wait. Where the device is full, as everybody does; below that behind what others have there, by the mean
    /// wait of Pollaczek and Khinchine, and behind its own, and no longer than a queue of all requests that can be in flight.
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

    /// Mean waits behind requests of others and behind its own, seconds.
    fn waits(&self, own: &Use, arrivals: &Arrivals) -> (f64, f64) {
        let behind_own = match arrivals.queue {
            Some(requests) => requests * own.residual_s / own.share.max(1e-12),
            None => arrivals.own * self.open_s(own.residual_s),
        };
        (arrivals.others * self.behind_others_s(own), behind_own)
    }

    /// Squared variation of waits behind others: only who finds the device in use waits. Of its own requests one waits behind some more and one
    /// behind some less.
    fn spread(&self) -> f64 {
        2.0 / self.rho.max(0.02) - 1.0
    }

    /// What others have on the device alone would make a request wait, if they came at random.
    pub(super) fn behind_others_s(&self, own: &Use) -> f64 {
        self.open_s(self.residual_s - own.residual_s)
    }

    /// The mean wait of Pollaczek and Khinchine behind requests of this residual.
    pub(super) fn open_s(&self, residual_s: f64) -> f64 {
        residual_s.max(0.0) / (2.0 * (1.0 - self.rho.min(FULL)))
    }

    /// The same of a sum of uses, where nobody asks for less than its slots bring around.
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

    /// With so many times as much of everything.
    pub(super) fn times(&self, by: f64) -> Self {
        Self {
            rho: by * self.rho,
            residual_s: by * self.residual_s,
            queue_s: by * self.queue_s,
            full_s: by * self.full_s,
        }
    }

    /// Longest wait between these uses of a device that is not full: no mean and no variance is larger.
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
    /// Of a load on a device with so much of its time in use, with that wait; of nothing where nothing is asked for.
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
        // Of a full device the wait already is the whole response time (Little's law for all requests in flight).
        let wait_us = match rho < FULL {
            true => wait.mean_s * 1e6,
            false => (wait.mean_s * 1e6 - plain_us).max(0.0),
        };
        let mean_us = plain_us + wait_us;
        // As good as exact for spreads that there are: e to the square, less one.
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

    /// Largest mean and variation of a load on a device that is not full, at any use between these two.
    pub(super) fn largest(
        spec: &DeviceSpec,
        load: &Load,
        (least, most): (&Busy, &Busy),
        own: &Use,
        arrivals: &Arrivals,
    ) -> Self {
        let wait = Busy::longest_wait(least, most, own, arrivals);
        let largest = Self::of(spec, load, most.rho, wait);
        // The difference of reads and writes may be larger at either end.
        let idle = Self::of(spec, load, least.rho, Wait::default());
        let variance = |l: &Self| l.cv2 * l.mean_us * l.mean_us;
        Self {
            cv2: (variance(&largest) + variance(&idle)) / (largest.mean_us * largest.mean_us),
            ..largest
        }
    }

    /// Half of the requests of one kind take no longer than this where nobody waits, microseconds.
    pub(super) fn median_us(spec: &DeviceSpec, op: Op, bytes: f64, rho: f64) -> f64 {
        let transfer_us = spec.bare_latency_us(op, bytes) - spec.bare_latency_us(op, 0.0);
        let sigma = spec.jitter_sigma;
        let device_us = spec.bare_latency_us(op, 0.0) * spec.curve.factor(rho.min(1.0));
        device_us * libm::exp(-sigma * sigma / 2.0) + transfer_us
    }

    /// A statistic over the mean, of a log-normal with this variation: its logarithm.
    pub(super) fn ratio_ln(&self, statistic: SloStatistic) -> f64 {
        let z = match statistic {
            SloStatistic::Mean => return 0.0,
            SloStatistic::P95 => 1.645,
            SloStatistic::P99 => 2.326,
        };
        let variance = libm::log1p(self.cv2);
        z * variance.sqrt() - variance / 2.0
    }

    /// So many times as long.
    pub(super) fn times(self, by: f64) -> Self {
        Self {
            mean_us: self.mean_us * by,
            ..self
        }
    }
}
