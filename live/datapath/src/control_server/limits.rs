//! Limits of volumes, and shared limits of tiers.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use units::{BytesPerSec, Iops, Nanos, TierId, VolumeId};
use volume::{Claim, Limits, shares};

use super::{ControlAnswer, ControlServer, DatapathError, Result, done, not_served, tier_named};
use crate::clock;
use crate::objective::SharedObjective;
use crate::stages::throttle::{Share, ThrottleStatus};
use crate::takeover::Handover;

/// Limits and objective of one volume, as its operator and the live controller set them.
#[derive(Debug, Clone)]
pub(super) struct VolumeLimits {
    pub(super) share: Arc<Share>,
    pub(super) objective: Arc<SharedObjective>,
    pub(super) own: Limits,
    /// Additional limits for a limited time, and their end.
    pub(super) for_a_time: Option<(Limits, u64)>,
    pub(super) weight: f64,
    pub(super) before: (u64, u64),
    pub(super) demand: (f64, f64),
}

impl VolumeLimits {
    /// Creates the state without limits.
    pub(super) fn new() -> Self {
        Self {
            share: Arc::default(),
            objective: Arc::default(),
            own: Limits::default(),
            for_a_time: None,
            weight: 1.0,
            before: (0, 0),
            demand: (0.0, 0.0),
        }
    }

    /// Returns the limits of the volume itself.
    pub(super) fn all(&self) -> Limits {
        match &self.for_a_time {
            Some((limits, _)) => both(self.own, *limits),
            None => self.own,
        }
    }

    /// Returns the temporary limits, if their time is not over.
    fn throttled(&self, now_ns: u64) -> Option<ThrottleStatus> {
        let (limits, until_ns) = self.for_a_time.as_ref()?;
        let left_ns = until_ns.checked_sub(now_ns).filter(|left| *left > 0)?;
        Some(ThrottleStatus {
            iops: limits.iops,
            bandwidth: limits.bandwidth,
            lasting: Nanos(left_ns),
        })
    }
}

/// Returns the stricter limits of two.
fn both(one: Limits, other: Limits) -> Limits {
    let iops = least(one.iops.map(|i| i.0), other.iops.map(|i| i.0));
    let bytes = |l: Limits| l.bandwidth.map(|b| b.0 as f64);
    Limits {
        iops: iops.map(Iops),
        bandwidth: least(bytes(one), bytes(other)).map(|b| BytesPerSec(b as u64)),
    }
}

fn least(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Checks a weight. NaN is refused, too.
pub(crate) fn weighable(weight: f64) -> Result<()> {
    match (0.01..=100.0).contains(&weight) {
        true => Ok(()),
        false => Err(DatapathError::Invalid(format!(
            "a weight must be between 0.01 and 100, not {weight}"
        ))),
    }
}

impl ControlServer {
    pub(crate) fn limit_volume(
        &self,
        name: &str,
        iops: Option<Iops>,
        bandwidth: Option<BytesPerSec>,
        weight: Option<f64>,
    ) -> Result<ControlAnswer> {
        let id = self.volume(name)?.id;
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = volumes
            .get_mut(&id)
            .ok_or_else(|| not_served().of_volume(name))?;
        if let Some(iops) = iops {
            limits.own.iops = (iops.0 > 0.0).then_some(iops);
        }
        if let Some(bandwidth) = bandwidth {
            limits.own.bandwidth = (bandwidth.0 > 0).then_some(bandwidth);
        }
        if let Some(weight) = weight {
            limits.weight = weight;
        }
        limits.share.limit(limits.all());
        done(format!("set the limits of volume {name}"))
    }

    pub(crate) fn throttle_volume(
        &self,
        name: &str,
        to: Option<ThrottleStatus>,
    ) -> Result<ControlAnswer> {
        let id = self.volume(name)?.id;
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = volumes
            .get_mut(&id)
            .ok_or_else(|| not_served().of_volume(name))?;
        let now_ns = clock::now_ns();
        limits.for_a_time = to.map(|to| {
            let limits = Limits {
                iops: to.iops.filter(|i| i.0 > 0.0),
                bandwidth: to.bandwidth.filter(|b| b.0 > 0),
            };
            (limits, now_ns.saturating_add(to.lasting.0))
        });
        limits.share.limit(limits.all());
        match to {
            Some(to) => done(format!("limited volume {name} for {}", to.lasting)),
            None => done(format!("removed the temporary limit of volume {name}")),
        }
    }

    /// Returns the temporary limits by volume, with the remaining times.
    pub(super) fn throttled(&self) -> BTreeMap<VolumeId, ThrottleStatus> {
        let now_ns = clock::now_ns();
        let volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let throttled = volumes.iter();
        throttled
            .filter_map(|(id, limits)| Some((*id, limits.throttled(now_ns)?)))
            .collect()
    }

    /// Removes temporary limits whose time is over.
    fn end_limits(&self) {
        let now_ns = clock::now_ns();
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        for limits in volumes.values_mut() {
            if limits.for_a_time.is_some_and(|(_, until)| until <= now_ns) {
                limits.for_a_time = None;
                limits.share.limit(limits.own);
            }
        }
    }

    pub(super) fn limit_tier(&self, name: &str, limits: Limits) -> Result<ControlAnswer> {
        let wanted = name.to_owned();
        let tier = self.with_keeper(move |keeper| tier_named(keeper, &wanted))??;
        if self.server.is_none() {
            return Err(DatapathError::NotServed(
                "the array is not served: run `terrace volume export`".into(),
            ));
        }
        let mut tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        tiers.insert(tier, limits);
        done(format!(
            "set the limits of tier {name}; its volumes share them by weight"
        ))
    }

    /// Divides the limits of tiers among their volumes, and removes temporary limits whose time is over. The caller runs it
    /// about ten times a second.
    pub fn share_tiers(&self, seconds: f64) {
        if self.gate.handover() != Handover::None {
            return; // the keeper would not answer
        }
        self.end_limits();
        let tiers = self
            .tiers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if tiers.is_empty() || seconds <= 0.0 {
            return;
        }
        let homes = self.with_keeper(|keeper| {
            let all = keeper.volumes.values();
            all.map(|v| (v.id, v.home)).collect::<BTreeMap<_, _>>()
        });
        let Ok(homes) = homes else { return };
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, limits) in volumes.iter_mut() {
            let now = limits.share.totals();
            // The demand is a little above the present rate, so that a volume can use more if it is available.
            let rate = |now: u64, before: u64| (now - before) as f64 / seconds * 1.25;
            limits.demand = (rate(now.0, limits.before.0), rate(now.1, limits.before.1));
            limits.before = now;
            if !tiers.contains_key(homes.get(id).unwrap_or(&TierId(u16::MAX))) {
                limits.share.limit(limits.all()); // the volume may have left a limited tier
            }
        }
        for (tier, limit) in tiers {
            let of_tier: Vec<VolumeId> = volumes
                .keys()
                .copied()
                .filter(|v| homes.get(v) == Some(&tier))
                .collect();
            let divide = |total: Option<f64>, demand: &dyn Fn(&VolumeLimits) -> f64, least: f64| {
                let claims: Vec<Claim> = of_tier
                    .iter()
                    .map(|v| Claim {
                        weight: volumes[v].weight,
                        demand: demand(&volumes[v]).max(least),
                    })
                    .collect();
                total.map(|total| shares(total, &claims))
            };
            let iops = divide(limit.iops.map(|i| i.0), &|v| v.demand.0, 100.0);
            let bandwidth = divide(
                limit.bandwidth.map(|b| b.0 as f64),
                &|v| v.demand.1,
                (1 << 20) as f64,
            );
            for (i, id) in of_tier.iter().enumerate() {
                let volume = volumes.get_mut(id).expect("just listed");
                let share = Limits {
                    iops: iops.as_ref().map(|s| Iops(s[i])),
                    bandwidth: bandwidth.as_ref().map(|s| BytesPerSec(s[i] as u64)),
                };
                volume.share.limit(both(volume.all(), share));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::control_server::ControlRequest;
    use crate::serving::{ArrayServer, one_volume};
    use crate::stages::throttle::Command;

    const MINUTE: Nanos = Nanos::from_secs(60);

    fn order(serving: &ArrayServer, iops: f64, lasting: Nanos) -> Result<ControlAnswer> {
        let throttled = ThrottleStatus {
            iops: Some(Iops(iops)),
            bandwidth: None,
            lasting,
        };
        serving
            .control_server()
            .ask(ControlRequest::from(Command::Throttle {
                volume: "data".into(),
                to: Some(throttled),
            }))
    }

    /// Returns the effective limit of the volume, and the temporary limit in its sample.
    fn limits(serving: &ArrayServer) -> (f64, Option<f64>) {
        let control_server = serving.control_server();
        let now = {
            let volumes = control_server.volumes.lock().unwrap();
            volumes.values().next().unwrap().share.limits().iops
        };
        let ControlAnswer::Samples(samples) = control_server.ask(ControlRequest::Samples).unwrap()
        else {
            panic!("it tells what it was asked")
        };
        let throttled = samples.volumes[0].throttled;
        (now.unwrap().0, throttled.map(|t| t.iops.unwrap().0))
    }

    #[test]
    fn temporary_limit_combines_with_the_volume_limit_and_expires() {
        let dir = tempfile::tempdir().unwrap();
        let (mut serving, _) = one_volume(dir.path());
        let own = Command::Limit {
            volume: "data".into(),
            iops: Some(Iops(50.0)),
            bandwidth: None,
            weight: None,
        };
        serving
            .control_server()
            .ask(ControlRequest::from(own))
            .unwrap();
        for (iops, both) in [(20.0, 20.0), (80.0, 50.0)] {
            order(&serving, iops, MINUTE).unwrap();
            assert_eq!(limits(&serving), (both, Some(iops)));
            serving.tick();
            assert_eq!(limits(&serving).0, both, "it is not over");
        }
        order(&serving, 20.0, Nanos::from_millis(1)).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        serving.tick();
        assert_eq!(limits(&serving), (50.0, None));
        order(&serving, 20.0, MINUTE).unwrap();
        let lifted = Command::Throttle {
            volume: "data".into(),
            to: None,
        };
        serving
            .control_server()
            .ask(ControlRequest::from(lifted))
            .unwrap();
        assert_eq!(limits(&serving), (50.0, None));
        for (iops, lasting) in [(0.0, MINUTE), (20.0, Nanos::ZERO)] {
            let refused = order(&serving, iops, lasting).unwrap_err();
            assert_eq!(refused.to_string(), "it limits nothing, or for no time");
        }
        serving.stop().unwrap();
    }
}
