//! Rate limits of a volume, and division of a tier's rate among volumes.
//!
//! A limit is a virtual clock per resource (generic cell rate algorithm). Each request advances the clock by its cost, and
//! may start if the clock is at most a burst ahead of the present time. There are no timers and no buckets to refill: the
//! driver holds a request until the time that [`Throttle::admit`] returns.

use units::{BytesPerSec, Iops};

/// Largest burst: the time by which requests may be ahead of their rate, ns.
pub const BURST_NS: u64 = 20_000_000;

/// Limits of one volume; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Requests per second.
    pub iops: Option<Iops>,
    /// Bytes per second.
    pub bandwidth: Option<BytesPerSec>,
}

/// Throttle of one volume.
#[derive(Debug, Clone, Default)]
pub struct Throttle {
    limits: Limits,
    requests_ns: f64,
    bytes_ns: f64,
}

impl Throttle {
    /// Creates a throttle without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets new limits. Debts of the old ones are discarded.
    pub fn set(&mut self, limits: Limits) {
        if limits != self.limits {
            *self = Self {
                limits,
                requests_ns: 0.0,
                bytes_ns: 0.0,
            };
        }
    }

    /// Returns the limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns true if there is a limit.
    #[inline]
    pub fn limits_anything(&self) -> bool {
        self.limits.iops.is_some() || self.limits.bandwidth.is_some()
    }

    /// Charges a request of `bytes` at `now_ns`. Returns the time at which it may start, at least `now_ns`. Requests start
    /// in the order of admission.
    pub fn admit(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let now = now_ns as f64;
        let mut go = now;
        let mut charge = |clock: &mut f64, cost_ns: f64| {
            // Unused time is lost, except one burst.
            *clock = clock.max(now - BURST_NS as f64);
            go = go.max(*clock);
            *clock += cost_ns;
        };
        if let Some(iops) = self.limits.iops {
            charge(&mut self.requests_ns, 1e9 / iops.0.max(1e-3));
        }
        if let Some(bandwidth) = self.limits.bandwidth {
            charge(
                &mut self.bytes_ns,
                bytes as f64 * 1e9 / bandwidth.as_f64().max(1.0),
            );
        }
        go as u64
    }
}

/// Claim of one volume to a shared rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    /// Weight; the share is proportional to it.
    pub weight: f64,
    /// Demand of the volume.
    pub demand: f64,
}

/// Divides `total` by weight (weighted max-min fairness). No share exceeds its demand, and unused parts of a share go to the
/// others. The rest beyond all demands stays undivided.
pub fn shares(total: f64, claims: &[Claim]) -> Vec<f64> {
    let mut shares = vec![0.0; claims.len()];
    let mut open: Vec<usize> = (0..claims.len())
        .filter(|i| claims[*i].weight > 0.0)
        .collect();
    let mut left = total;
    loop {
        let weights: f64 = open.iter().map(|i| claims[*i].weight).sum();
        if open.is_empty() || weights <= 0.0 {
            return shares;
        }
        let fair = |i: usize| left * claims[i].weight / weights;
        let content: Vec<usize> = open
            .iter()
            .copied()
            .filter(|i| claims[*i].demand <= fair(*i))
            .collect();
        if content.is_empty() {
            for i in open {
                shares[i] = fair(i);
            }
            return shares;
        }
        for i in &content {
            shares[*i] = claims[*i].demand;
        }
        left -= content.iter().map(|i| claims[*i].demand).sum::<f64>();
        open.retain(|i| !content.contains(i));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(limits: Limits, bytes: u64, every_ns: u64, requests: u64) -> u64 {
        let mut throttle = Throttle::new();
        throttle.set(limits);
        let mut last = 0;
        for i in 0..requests {
            let at = throttle.admit(i * every_ns, bytes);
            assert!(at >= last, "in order");
            last = at;
        }
        last
    }

    #[test]
    fn limit_is_respected_over_time_and_permits_a_burst() {
        let iops = Some(Iops(1000.0));
        let limits = Limits {
            iops,
            bandwidth: None,
        };
        let end = admitted(limits, 4096, 1, 1000);
        assert!((970_000_000..=1_000_000_000).contains(&end), "{end}");
        let slower = Limits {
            iops,
            bandwidth: Some(BytesPerSec(4096 * 500)),
        };
        let end = admitted(slower, 4096, 1, 1000);
        assert!((1_950_000_000..=2_000_000_000).contains(&end), "{end}");
        // Requests below the limit do not wait.
        assert_eq!(admitted(limits, 4096, 2_000_000, 100), 99 * 2_000_000);
        assert_eq!(admitted(Limits::default(), 4096, 1, 100), 99);
    }

    #[test]
    fn shares_follow_weights_and_unused_ones_are_redistributed() {
        let claim = |weight, demand| Claim { weight, demand };
        let all = [claim(1.0, 1e9), claim(2.0, 1e9), claim(1.0, 100.0)];
        let got = shares(1000.0, &all);
        assert_eq!(got, [300.0, 600.0, 100.0]);
        assert_eq!(shares(1000.0, &[claim(1.0, 10.0)]), [10.0]);
        assert_eq!(shares(1000.0, &[]), [0.0; 0]);
        assert_eq!(
            shares(10.0, &[claim(0.0, 5.0), claim(1.0, 50.0)]),
            [0.0, 10.0]
        );
    }
}
