//! Failed moves, and the time of the next attempt.
//!
//! ```text
//!             transient: after half an epoch, then twice as long each time
//!  failed ─┬──────────────────────────────────────────────────────────────▶ may be planned again
//!          └──────────────────────────────────────────────────────────────▶     │
//!             permanent: changed volume or device, or `terrace reload`           ▼
//!                                                                     done: forgotten
//! ```
//!
//! A cause is permanent only if the host reports it so: it knows the type of its causes. Any other
//! cause may disappear, and rare retries cost little.

use std::collections::BTreeMap;

use executor::JobId;
use model::{Facts, FailedMove};
use serde::{Deserialize, Serialize};
use units::{DeviceId, Nanos, VolumeId, counted};

use super::Controller;
use super::host::Host;
use crate::wire::{DeviceWindow, VolumeWindow, WindowReport};

/// Most failures that are remembered for a host. Protects the store: they are written with each job.
const FAILURES_MAX: usize = 1_024;

/// Most characters of a remembered cause. Protects the store too.
const WHY_CHARS_MAX: usize = 300;

/// Longest time between two attempts of a move.
const BACKOFF_MAX: Nanos = Nanos::from_secs(86_400);

/// Migration epochs after the time of the next attempt. A move that no plan contains in that time is
/// forgotten.
const FORGOTTEN_EPOCHS: u64 = 8;

/// Failed attempts after which a transient failure becomes a problem.
pub(super) const ATTEMPTS_TOLD: u32 = 2;

/// Failures by volume and device.
pub(super) type Failures = BTreeMap<String, BTreeMap<String, Failure>>;

/// A move that has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    /// The last job.
    pub(super) job: u32,
    /// The last cause.
    pub(super) why: String,
    /// Number of consecutive failed attempts.
    pub(super) attempts: u32,
    pub(super) since: Nanos,
    pub(super) last: Nanos,
    pub(super) next: RetryCondition,
}

/// Condition of the next attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RetryCondition {
    /// Not before this time.
    At(Nanos),
    /// When volume or device differ from this description.
    Unlike(String),
}

impl Failure {
    /// Time until the next attempt; none while the cause lasts.
    fn left(&self, now: Nanos) -> Option<Nanos> {
        match &self.next {
            RetryCondition::At(at) => Some(at.saturating_sub(now)),
            RetryCondition::Unlike(_) => None,
        }
    }

    /// Text for operators.
    pub(super) fn words(&self, volume: &str, device: &str, now: Nanos) -> String {
        let Failure {
            job, why, attempts, ..
        } = self;
        let since = now.saturating_sub(self.since).words();
        let next = match self.left(now) {
            Some(left) if left > Nanos::ZERO => {
                format!("next attempt in {}, if a plan still contains the move", left.words())
            }
            Some(_) => "next attempt when a plan contains the move".into(),
            None => "no further attempt while the cause lasts: remove the cause, then run `terrace reload`".into(),
        };
        let times = counted(*attempts, "time");
        format!(
            "the move of {volume} to {device} has failed {times}, first {since} ago, last in job {job}: {why}; {next}"
        )
    }
}

/// Properties of a volume and a device in which a permanent cause may lie.
fn circumstances(report: &WindowReport, volume: &str, device: &str) -> String {
    let of_volume = |v: &VolumeWindow| {
        let on: Vec<&str> = v.placed.iter().map(|p| p.device.as_str()).collect();
        let bound = v.bound.as_ref().map_or("", |b| &b.why);
        format!("{} {} {bound}", v.size_bytes, on.join(","))
    };
    let of_device = |d: &DeviceWindow| {
        let place = d.place.as_deref().unwrap_or("");
        format!("{} {} {place}", d.tier, d.size_bytes)
    };
    let volume = report.volumes.iter().find(|v| v.name == volume);
    let device = report.devices.iter().find(|d| d.name == device);
    format!(
        "{}; {}",
        volume.map(of_volume).unwrap_or_default(),
        device.map(of_device).unwrap_or_default()
    )
}

fn count(failures: &Failures) -> usize {
    failures.values().map(BTreeMap::len).sum()
}

impl Controller {
    /// Records the failure of an active job.
    pub(super) fn remember_failure(
        &mut self,
        host: &mut Host,
        id: JobId,
        why: &str,
        permanent: bool,
    ) {
        let now = self.now.at;
        let order = &host.executor.job(id).order;
        let (names, report) = (&host.kept.names, host.last.as_ref().map(|l| &l.1));
        let volume = names.of_volume(order.volume).to_owned();
        let device = names.of_device(order.to).to_owned();
        let unlike = report.filter(|_| permanent);
        let unlike = unlike.map(|r| circumstances(r, &volume, &device));
        let first = self.migration_epoch().0 / 2;
        let failures = &mut host.kept.failures;
        let before = failures.get(&volume).and_then(|of| of.get(&device));
        let attempts = before.map_or(0, |f| f.attempts).saturating_add(1);
        let backoff = first.saturating_mul(1 << (attempts - 1).min(32));
        let failure = Failure {
            job: id.0,
            why: why.chars().take(WHY_CHARS_MAX).collect(),
            attempts,
            since: before.map_or(now, |f| f.since),
            last: now,
            next: match unlike {
                Some(unlike) => RetryCondition::Unlike(unlike),
                None => RetryCondition::At(Nanos(now.0.saturating_add(backoff.min(BACKOFF_MAX.0)))),
            },
        };
        failures.entry(volume).or_default().insert(device, failure);
        host.dirty.kept = true;
        if count(&host.kept.failures) > FAILURES_MAX {
            host.forget_oldest_failure();
        }
    }

    /// Forgets failures whose cause has changed, and those of moves that no plan contains any more.
    pub(super) fn forget_failures(&mut self, host: &mut Host) {
        let Some((_, report)) = &host.last else {
            return;
        };
        let (now, epoch) = (self.now.at, self.migration_epoch());
        let before = count(&host.kept.failures);
        for (volume, of) in &mut host.kept.failures {
            of.retain(|device, f| match &f.next {
                RetryCondition::At(at) => now.0 < at.0.saturating_add(FORGOTTEN_EPOCHS * epoch.0),
                RetryCondition::Unlike(then) => *then == circumstances(report, volume, device),
            });
        }
        host.kept.failures.retain(|_, of| !of.is_empty());
        host.dirty.kept |= before != count(&host.kept.failures);
    }
}

impl Host {
    /// Forgets the failure of a move that has succeeded.
    pub(super) fn forget_failure(&mut self, id: JobId) {
        let order = &self.executor.job(id).order;
        let names = &self.kept.names;
        let (volume, device) = (names.of_volume(order.volume), names.of_device(order.to));
        if let Some(of) = self.kept.failures.get_mut(volume)
            && of.remove(device).is_some()
        {
            self.dirty.kept = true;
        }
    }

    /// Forgets all failures, after a reload of the configuration.
    pub(super) fn forget_all_failures(&mut self) {
        self.dirty.kept |= !self.kept.failures.is_empty();
        self.kept.failures.clear();
    }

    fn forget_oldest_failure(&mut self) {
        let failures = &mut self.kept.failures;
        let all = failures
            .iter()
            .flat_map(|(volume, of)| of.iter().map(move |(device, f)| (f.last, volume, device)));
        let oldest = all.min().map(|(_, v, d)| (v.clone(), d.clone()));
        if let Some((volume, device)) = oldest
            && let Some(of) = failures.get_mut(&volume)
        {
            of.remove(&device);
            if of.is_empty() {
                failures.remove(&volume);
            }
        }
    }

    /// Returns the moves that must not be tried now, with the ids of the facts.
    pub(super) fn failed_moves(&self, now: Nanos, facts: &Facts) -> Vec<FailedMove> {
        let mut failed = Vec::new();
        for (i, v) in facts.volumes.iter().enumerate() {
            let Some(of) = self.kept.failures.get(&v.name) else {
                continue;
            };
            for (d, device) in facts.topology.devices.iter().enumerate() {
                let Some(f) = of.get(&device.name) else {
                    continue;
                };
                let left = f.left(now);
                if left == Some(Nanos::ZERO) {
                    continue;
                }
                failed.push(FailedMove {
                    volume: VolumeId::from_index(i),
                    device: DeviceId::from_index(d),
                    attempts: f.attempts,
                    left,
                    why: f.why.clone(),
                });
            }
        }
        failed
    }
}
