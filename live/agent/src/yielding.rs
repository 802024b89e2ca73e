//! Latencies of guests relative to their objectives, from the hypervisor's counters. Moves yield to guests by these
//! values.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use manager::agent::{Snapshot, VolumeSnapshot};
use model::ClassObjective;
use units::Nanos;
use volume::{GuestLatency, NeighborSlack, Slack};

/// Largest number of requests per look that are counted one by one. More requests with the same latency add no
/// information.
const REQUESTS_MAX: u64 = 4096;

/// Objectives, and the latencies of guests between the last two looks.
#[derive(Debug, Default)]
pub(crate) struct GuestSlack {
    objectives: Vec<ClassObjective>,
    until: Option<Instant>,
    /// State by volume.
    standing: BTreeMap<String, LastLook>,
    guests: BTreeMap<String, GuestLatency>,
}

/// State of a volume at the last look.
#[derive(Debug)]
struct LastLook {
    class: String,
    device: Option<String>,
    /// Requests since the previous look, and their mean latency; `None` if they are unknown.
    load: Option<(u64, u64)>,
    /// True if this agent has limited the volume, so its latency is not that of the device.
    limited: bool,
}

impl LastLook {
    fn of(now: &VolumeSnapshot, before: Option<&VolumeSnapshot>) -> Self {
        let load = before.and_then(|old| now.load_since(old)).map(|load| {
            let requests = load.reads.ios + load.writes.ios;
            let sum_ns = load.reads.sum_ns.saturating_add(load.writes.sum_ns);
            (requests, sum_ns.checked_div(requests).unwrap_or(0))
        });
        Self {
            class: now.class.clone(),
            device: now.placed.first().map(|p| p.device.clone()),
            load,
            limited: now.throttle.is_some(),
        }
    }
}

impl GuestSlack {
    /// Sets the objectives of guests, and the time for which they are valid.
    pub(crate) fn promise(&mut self, objectives: &[ClassObjective], lasting: Nanos) {
        self.objectives = objectives.to_vec();
        self.until = Instant::now().checked_add(Duration::from_nanos(lasting.0));
    }

    /// Adds the requests between two looks. The latency of a guest before its move is the reference to which the move
    /// yields.
    pub(crate) fn look(&mut self, before: Option<&Snapshot>, now: &Snapshot) {
        self.standing.clear();
        let there = |name: &String| now.volumes.iter().any(|v| v.name == *name);
        self.guests.retain(|name, _| there(name));
        for v in &now.volumes {
            let old = before.and_then(|b| b.volumes.iter().find(|o| o.name == v.name));
            let standing = LastLook::of(v, old);
            let (requests, mean_ns) = standing.load.unwrap_or((0, 0));
            let guest = self.guests.entry(v.name.clone()).or_default();
            if requests == 0 {
                guest.rests();
            }
            for _ in 0..requests.min(REQUESTS_MAX) {
                guest.observe(mean_ns, v.moving.is_some());
            }
            self.standing.insert(v.name.clone(), standing);
        }
    }

    /// Returns the latency of a volume's guest.
    pub(crate) fn guest(&self, volume: &str) -> GuestLatency {
        self.guests.get(volume).copied().unwrap_or_default()
    }

    /// Returns the slack of the other guests on the devices of a move.
    pub(crate) fn others(&self, volume: &str, to: &str) -> NeighborSlack {
        if self.until.is_none_or(|until| Instant::now() >= until) {
            return NeighborSlack::UNKNOWN;
        }
        let from = self.standing.get(volume).and_then(|s| s.device.as_deref());
        NeighborSlack {
            source: from.map_or(Slack::Unknown, |from| self.slack(from, volume)),
            target: self.slack(to, volume),
        }
    }

    /// Returns the largest ratio of latency to objective among the guests on both devices of a move, including its own.
    /// `None` if no guest has a valid objective.
    pub(crate) fn worst(&self, volume: &str, to: &str) -> Option<f32> {
        self.until.filter(|until| Instant::now() < *until)?;
        let from = self.standing.get(volume).and_then(|s| s.device.as_deref());
        let devices = self.standing.iter().filter(|(_, s)| {
            let device = s.device.as_deref();
            device.is_some() && (device == from || device == Some(to))
        });
        let used = devices.filter_map(|(_, s)| {
            let objective = self.objectives.iter().find(|o| o.class == s.class)?;
            let (_, mean_ns) = s.load.filter(|(requests, _)| *requests > 0 && !s.limited)?;
            Some(mean_ns as f32 / objective.objective.latency.0.max(1) as f32)
        });
        used.reduce(f32::max)
    }

    /// Returns the worst slack of the guests on a device, except one volume. Objectives are compared with the mean
    /// latency, because no other statistic is known.
    fn slack(&self, device: &str, but: &str) -> Slack {
        let here = self
            .standing
            .iter()
            .filter(|(name, s)| *name != but && s.device.as_deref() == Some(device));
        let stands = here.map(|(_, s)| {
            let objective = self.objectives.iter().find(|o| o.class == s.class);
            let Some(objective) = objective else {
                return Slack::Unbound;
            };
            let target_ns = objective.objective.latency.0.max(1);
            match s.load {
                _ if s.limited => Slack::Unbound,
                Some((0, _)) => Slack::Unbound,
                Some((_, mean_ns)) => Slack::Used(mean_ns as f32 / target_ns as f32),
                None => Slack::Unknown,
            }
        });
        stands.fold(Slack::Unbound, Slack::worse)
    }
}
