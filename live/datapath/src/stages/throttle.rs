//! Limits of a volume: reads and writes wait until the limits admit them.
//!
//! A volume has limits of its operator, or its part of the shared limits of a tier. The control server sets them
//! about ten times a second, by the demand of each volume that is counted here. Both use a [`Share`], which is read
//! for each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use units::{BytesPerSec, Iops, Nanos};
use volume::{Limits, VolumeMap};

use super::Stage;
use crate::control_server::{ControlAnswer, ControlServer, weighable};
use crate::engine::{GuestOp, GuestRequest};
use crate::error::{DatapathError, Result};

/// No limit.
const NONE: u64 = u64::MAX;

/// Delays requests that move data until the limits admit them. It is never off: the demand of a volume is always
/// counted.
#[derive(Debug)]
pub struct Throttle {
    clocks: volume::Throttle,
    share: Arc<Share>,
    /// True if the limits have changed since the held-back requests were admitted.
    changed: bool,
}

impl Throttle {
    /// Adopts the current limits.
    #[inline]
    fn follow_limits(&mut self) {
        let limits = self.share.limits();
        if limits != self.clocks.limits() {
            self.clocks.set(limits);
            self.changed = true;
        }
    }

    /// Returns true if the limits have changed since the last call. The caller then readmits held-back requests ([`Throttle::readmitted`])
    /// before new ones.
    #[inline]
    pub fn limits_changed(&mut self) -> bool {
        self.follow_limits();
        std::mem::take(&mut self.changed)
    }

    /// Returns the new release time of a request that was held back under other limits. Does not count the request again.
    pub fn readmitted(&mut self, now_ns: u64, request: &GuestRequest) -> u64 {
        match self.clocks.limits_anything() {
            true => self.clocks.admit(now_ns, request.length),
            false => 0,
        }
    }
}

/// Exchange between a volume's worker and the control server: demand in one direction, limits in the other.
#[derive(Debug)]
pub struct Share {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Requests per second as the bits of an `f64`, or [`NONE`].
    iops: AtomicU64,
    bandwidth: AtomicU64,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            iops: AtomicU64::new(NONE),
            bandwidth: AtomicU64::new(NONE),
        }
    }
}

impl Share {
    /// Counts a request of `bytes` bytes.
    #[inline]
    fn arrived(&self, bytes: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the total requests and bytes.
    pub fn totals(&self) -> (u64, u64) {
        (
            self.requests.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        )
    }

    /// Sets the limits.
    pub fn limit(&self, limits: Limits) {
        let iops = limits.iops.map_or(NONE, |i| i.0.to_bits());
        let bandwidth = limits.bandwidth.map_or(NONE, |b| b.0);
        self.iops.store(iops, Ordering::Relaxed);
        self.bandwidth.store(bandwidth, Ordering::Relaxed);
    }

    /// Returns the present limits.
    #[inline]
    pub(crate) fn limits(&self) -> Limits {
        let iops = self.iops.load(Ordering::Relaxed);
        let bandwidth = self.bandwidth.load(Ordering::Relaxed);
        Limits {
            iops: (iops != NONE).then(|| Iops(f64::from_bits(iops))),
            bandwidth: (bandwidth != NONE).then_some(BytesPerSec(bandwidth)),
        }
    }
}

/// Commands of the stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Command {
    /// Set limits and weight. `None` leaves a value unchanged; zero removes a limit.
    Limit {
        /// Name of the volume.
        volume: String,
        /// Requests per second.
        iops: Option<Iops>,
        /// Bytes per second.
        bandwidth: Option<BytesPerSec>,
        /// Weight among the volumes of a limited tier.
        weight: Option<f64>,
    },
    /// Set temporary limits, in addition to the others and in place of earlier temporary ones.
    Throttle {
        /// Name of the volume.
        volume: String,
        /// The limits; `None` removes them.
        to: Option<ThrottleStatus>,
    },
}

/// Temporary limits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ThrottleStatus {
    /// Requests per second.
    pub iops: Option<Iops>,
    /// Bytes per second.
    pub bandwidth: Option<BytesPerSec>,
    /// Time until they end.
    pub lasting: Nanos,
}

impl Stage for Throttle {
    /// Shared limits and counters.
    type Setup = Arc<Share>;
    type Command = Command;
    const WORDS: &'static [&'static str] = &["limit", "throttle"];
    type Status = ();
    type Sample = ();

    fn new(share: Arc<Share>, _: &VolumeMap, _: u64) -> Self {
        Self {
            clocks: volume::Throttle::new(),
            share,
            changed: false,
        }
    }

    #[inline]
    fn arrived(&mut self, now_ns: u64, request: &GuestRequest) -> u64 {
        if !matches!(request.op, GuestOp::Read | GuestOp::Write) {
            return 0;
        }
        self.share.arrived(request.length);
        self.follow_limits();
        self.readmitted(now_ns, request)
    }

    fn check(command: &Command) -> Result<()> {
        match command {
            Command::Limit { weight, .. } => weight.map_or(Ok(()), weighable),
            Command::Throttle { to: None, .. } => Ok(()),
            Command::Throttle { to: Some(to), .. } => {
                let some = to.iops.is_some_and(|i| i.0 > 0.0);
                let some = some || to.bandwidth.is_some_and(|b| b.0 > 0);
                match some && to.lasting > Nanos::ZERO {
                    true => Ok(()),
                    false => Err(DatapathError::Invalid(
                        "it limits nothing, or for no time".into(),
                    )),
                }
            }
        }
    }

    fn carry_out(command: Command, control_server: &ControlServer) -> Result<ControlAnswer> {
        match command {
            Command::Limit {
                volume,
                iops,
                bandwidth,
                weight,
            } => control_server.limit_volume(&volume, iops, bandwidth, weight),
            Command::Throttle { volume, to } => control_server.throttle_volume(&volume, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::tests::{map, request};

    const SECOND_NS: u64 = 1_000_000_000;

    fn go_ns(throttle: &mut Throttle, op: GuestOp) -> u64 {
        throttle.arrived(SECOND_NS, &request(op, 0, 4096))
    }

    #[test]
    fn throttled_requests_wait_and_demand_is_counted() {
        let share = Arc::new(Share::default());
        let mut throttle = Throttle::new(share.clone(), &map(), 0);
        for _ in 0..100 {
            assert!(go_ns(&mut throttle, GuestOp::Read) <= SECOND_NS);
        }
        assert_eq!(share.totals(), (100, 100 * 4096));
        share.limit(Limits {
            iops: Some(Iops(10.0)),
            bandwidth: None,
        });
        // The first request goes at once, from a burst smaller than two requests; each further one goes a tenth of a
        // second later.
        assert!(go_ns(&mut throttle, GuestOp::Write) <= SECOND_NS);
        let second = go_ns(&mut throttle, GuestOp::Read);
        assert!(second > SECOND_NS, "{second}");
        assert_eq!(
            go_ns(&mut throttle, GuestOp::Write) - second,
            SECOND_NS / 10
        );
        // Operations that move no data neither wait nor count.
        for op in [GuestOp::Flush, GuestOp::Trim, GuestOp::Zero] {
            assert_eq!(go_ns(&mut throttle, op), 0);
        }
        assert_eq!(share.totals().0, 103);
        // Removed limits leave no debt.
        share.limit(Limits::default());
        assert!(go_ns(&mut throttle, GuestOp::Read) <= SECOND_NS);
    }

    #[test]
    fn limit_change_is_reported_once_without_counting_readmitted_requests() {
        let share = Arc::new(Share::default());
        let mut throttle = Throttle::new(share.clone(), &map(), 0);
        assert!(!throttle.limits_changed());
        share.limit(Limits {
            iops: Some(Iops(10.0)),
            bandwidth: None,
        });
        // A request before the check does not hide the change.
        go_ns(&mut throttle, GuestOp::Read);
        assert!(throttle.limits_changed());
        assert!(!throttle.limits_changed());
        let held = request(GuestOp::Read, 0, 4096);
        let times = [0, 1].map(|_| throttle.readmitted(SECOND_NS, &held));
        assert_eq!(times[1] - times[0], SECOND_NS / 10);
        assert_eq!(share.totals().0, 1);
    }
}
