//! The limits of a volume: reads and writes wait until they may go.
//!
//! The limits are its operator's, or its part of what the volumes of a tier share: the control server sets them, about ten times a second, from what it reads
//! here of how much each volume wants. Both ways go over a [`Share`], which is read for each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use units::{BytesPerSec, Iops, Nanos};
use volume::{Limits, VolumeMap};

use super::Stage;
use crate::control_server::{ControlAnswer, ControlServer, weighable};
use crate::engine::{GuestOp, GuestRequest};

/// No limit.
const NONE: u64 = u64::MAX;

/// Holds requests that move data until their limits let them go. It is never off: what a volume wants is counted always.
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

/// What a volume's worker and the control server tell one another: counts up, limits down.
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
    /// A request of so many bytes wants to be served.
    #[inline]
    fn arrived(&self, bytes: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Requests and bytes up to now.
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

    /// The limits now.
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

/// What may be asked of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Command {
    /// Limits and weight; `None` leaves as it is, a limit of zero lifts it.
    Limit {
        /// The volume's name.
        volume: String,
        /// Requests per second.
        iops: Option<Iops>,
        /// Bytes per second.
        bandwidth: Option<BytesPerSec>,
        /// Weight among the volumes of a limited tier.
        weight: Option<f64>,
    },
    /// Limits for a time, beside the others, in place of those that were asked for before.
    Throttle {
        /// The volume's name.
        volume: String,
        /// The limits; none ends them.
        to: Option<Throttled>,
    },
}

/// Limits for a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Throttled {
    /// Requests per second.
    pub iops: Option<Iops>,
    /// Bytes per second.
    pub bandwidth: Option<BytesPerSec>,
    /// For so long.
    pub lasting: Nanos,
}

impl Stage for Throttle {
    /// Where its limits come from.
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

    fn check(command: &Command) -> Result<(), String> {
        match command {
            Command::Limit { weight, .. } => weight.map_or(Ok(()), weighable),
            Command::Throttle { to: None, .. } => Ok(()),
            Command::Throttle { to: Some(to), .. } => {
                let some = to.iops.is_some_and(|i| i.0 > 0.0);
                let some = some || to.bandwidth.is_some_and(|b| b.0 > 0);
                match some && to.lasting > Nanos::ZERO {
                    true => Ok(()),
                    false => Err("it limits nothing, or for no time".into()),
                }
            }
        }
    }

    fn carry_out(
        command: Command,
        control_server: &ControlServer,
    ) -> Result<ControlAnswer, String> {
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
    fn reads_and_writes_wait_for_their_limits_and_what_they_want_is_counted() {
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
        // One at once, from a burst that is smaller than two of them; each further one a tenth of a second later.
        assert!(go_ns(&mut throttle, GuestOp::Write) <= SECOND_NS);
        let second = go_ns(&mut throttle, GuestOp::Read);
        assert!(second > SECOND_NS, "{second}");
        assert_eq!(
            go_ns(&mut throttle, GuestOp::Write) - second,
            SECOND_NS / 10
        );
        // What moves no data neither waits nor counts.
        for op in [GuestOp::Flush, GuestOp::Trim, GuestOp::Zero] {
            assert_eq!(go_ns(&mut throttle, op), 0);
        }
        assert_eq!(share.totals().0, 103);
        // Limits that are lifted are forgotten, with what was owed.
        share.limit(Limits::default());
        assert!(go_ns(&mut throttle, GuestOp::Read) <= SECOND_NS);
    }

    #[test]
    fn limit_change_is_reported_once_and_readmitted_requests_are_not_counted() {
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
