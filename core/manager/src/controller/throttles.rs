//! Temporary limits of volumes by operators: stored here, enforced by agents, and removed when they expire.

use units::Nanos;

use super::Controller;
use crate::limited::TimedThrottle;
use crate::question::{Answer, Refusal};
use crate::view::{EventKind, ThrottleView};
use crate::wire::{Throttle, ThrottleOrder, VolumeWindow};

/// Least limits: drivers of guests abort requests that take too long.
/// If directions are limited separately, each gets half.
pub(super) const IOPS_MIN: u64 = 20;
const BANDWIDTH_MIN: u64 = 2 << 20;

/// Largest limit that QEMU accepts.
const LIMIT_MAX: u64 = 1_000_000_000_000_000;

/// Longest duration; longer limits belong to the definition of the disk.
const LASTING_MAX: Nanos = Nanos::from_secs(7 * 86_400);

impl Throttle {
    /// Returns why this limit is invalid; none if it is valid.
    pub fn fault(&self) -> Option<String> {
        let least = |name: &str, said: Option<u64>, least: u64| {
            let said = said.filter(|s| !(least..=LIMIT_MAX).contains(s))?;
            Some(format!(
                "{name} must be between {least} and {LIMIT_MAX}, not {said}: guests abort requests that take too long"
            ))
        };
        if self.iops.is_none() && self.bandwidth_bytes_per_s.is_none() {
            return Some("no limit is given: set iops, bandwidth or both".into());
        }
        if self.lasting_ns == 0 || self.lasting_ns > LASTING_MAX.0 {
            return Some(
                "a limit must last more than 0 s and at most seven days: define a permanent limit on the disk itself"
                    .into(),
            );
        }
        least("iops", self.iops, IOPS_MIN).or_else(|| {
            let bandwidth = self.bandwidth_bytes_per_s;
            least("bandwidth_bytes_per_s", bandwidth, BANDWIDTH_MIN)
        })
    }
}

impl Controller {
    pub(super) fn throttle(
        &mut self,
        volume: &str,
        to: Option<Throttle>,
    ) -> Result<Answer, Refusal> {
        if let (None, Some(key)) = (&to, self.limited_and_missing(volume)) {
            // The volume may return with its limit.
            self.operator.throttles.remove(&key);
            self.operator_dirty = true;
            let (host, volume) = key.split_once('/').unwrap_or(("", &key));
            let message = format!(
                "the limit of {volume} is removed; its host does not report the volume now"
            );
            return self.order_done(Some(host), Some(volume), message);
        }
        let (host, v) = self.volume_named(volume)?;
        if let Some(why) = to.as_ref().and_then(Throttle::fault) {
            return Err(Refusal::Invalid(why));
        }
        let (host, volume) = (host.name.clone(), v.name.clone());
        let key = format!("{host}/{volume}");
        let message = match to {
            Some(to) => {
                let limited = TimedThrottle::of(to, self.now.at.0);
                self.operator.throttles.insert(key, limited);
                format!(
                    "{volume} is limited to {} for {}, from the next report of its agent",
                    in_words(&limited),
                    Nanos(to.lasting_ns)
                )
            }
            None if self.operator.throttles.remove(&key).is_none() => {
                return Err(Refusal::Conflict(format!("{volume} is not limited")));
            }
            None => format!("the limit of {volume} is removed, from the next report of its agent"),
        };
        self.operator_dirty = true;
        self.order_done(Some(&host), Some(&volume), message)
    }

    /// Key of the only limit of a volume with this name that is not reported now; the host in the name is optional.
    fn limited_and_missing(&self, volume: &str) -> Option<String> {
        if self.volume_named(volume).is_ok() {
            return None;
        }
        let is_named = |key: &&String| {
            *key == volume || key.split_once('/').is_some_and(|(_, name)| name == volume)
        };
        let mut keys = self.operator.throttles.keys().filter(is_named);
        let key = keys.next()?;
        keys.next().is_none().then(|| key.clone())
    }

    /// Limits to order for a host's volumes.
    pub(super) fn throttle_orders(&self, host: &str) -> Vec<ThrottleOrder> {
        let all = self.operator.throttles.iter();
        let of_host = all.filter_map(|(key, t)| {
            let volume = key.strip_prefix(host)?.strip_prefix('/')?;
            Some(ThrottleOrder {
                volume: volume.into(),
                throttle: t.left(self.now.at.0)?,
            })
        });
        of_host.collect()
    }

    /// Removes expired limits and writes their events.
    pub(super) fn end_throttles(&mut self) {
        let now_ns = self.now.at.0;
        let over = |t: &TimedThrottle| t.left(now_ns).is_none();
        if !self.operator.throttles.values().any(over) {
            return;
        }
        let all = std::mem::take(&mut self.operator.throttles);
        let (ended, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, t)| over(t));
        self.operator.throttles = rest.into_iter().collect();
        self.operator_dirty = true;
        for (key, t) in ended {
            let (host, volume) = key.split_once('/').unwrap_or(("", &key));
            let text = format!("the limit of {volume} to {} has expired", in_words(&t));
            self.event(EventKind::Operator, Some(host), Some(volume), text);
        }
    }

    /// View of a volume's limit: the ordered one, or the one still in force.
    pub(super) fn throttle_view(&self, host: &str, v: &VolumeWindow) -> Option<ThrottleView> {
        let own = self.operator.throttles.get(&format!("{host}/{}", v.name));
        let own = own.and_then(|t| t.left(self.now.at.0));
        let ordered = self.held_to(host, &v.name, own);
        let shown = ordered.or(v.throttle)?;
        let is_so =
            |t: Throttle| TimedThrottle::of(t, 0).is_to_the_same(&TimedThrottle::of(shown, 0));
        Some(ThrottleView {
            iops: shown.iops,
            bandwidth_bytes_per_s: shown.bandwidth_bytes_per_s,
            left_ns: ordered.map_or(0, |t| t.lasting_ns),
            in_force: v.throttle.is_some_and(is_so),
            for_volume: self.held_for(host, &v.name).map(Into::into),
        })
    }
}

fn in_words(t: &TimedThrottle) -> String {
    let iops = t.iops.map(|n| format!("{n} requests"));
    let bytes = t.bandwidth_bytes_per_s.map(|n| units::Bytes(n).to_string());
    let both: Vec<String> = iops.into_iter().chain(bytes).collect();
    format!("{} per second", both.join(" and "))
}
