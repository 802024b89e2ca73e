//! What guests leave of their objectives, by what their hypervisor counts: what moves yield to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use manager::agent::{Snapshot, VolumeSnapshot};
use model::ClassObjective;
use units::Nanos;
use volume::{GuestLatency, Others, Slack};

/// Requests of one look that are counted one by one; more of the same say nothing new.
const REQUESTS_MAX: u64 = 4096;

/// Objectives, and how guests stand to them by the last two looks.
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    objectives: Vec<ClassObjective>,
    until: Option<Instant>,
    /// By volume.
    standing: BTreeMap<String, Standing>,
    guests: BTreeMap<String, GuestLatency>,
}

/// A volume by the last look.
#[derive(Debug)]
struct Standing {
    class: String,
    device: Option<String>,
    /// Requests since the look before, and their mean latency; none where they are not known.
    load: Option<(u64, u64)>,
    /// Whether it waits for a limit, and for nobody else.
    limited: bool,
}

impl Standing {
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

impl Yielding {
    /// What guests were promised, and for how long that holds.
    pub(crate) fn promise(&mut self, objectives: &[ClassObjective], lasting: Nanos) {
        self.objectives = objectives.to_vec();
        self.until = Instant::now().checked_add(Duration::from_nanos(lasting.0));
    }

    /// Takes in what happened between two looks. What a guest saw before its volume moved is what the move yields to.
    pub(crate) fn look(&mut self, before: Option<&Snapshot>, now: &Snapshot) {
        self.standing.clear();
        let there = |name: &String| now.volumes.iter().any(|v| v.name == *name);
        self.guests.retain(|name, _| there(name));
        for v in &now.volumes {
            let old = before.and_then(|b| b.volumes.iter().find(|o| o.name == v.name));
            let standing = Standing::of(v, old);
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

    /// What the guest of a volume sees.
    pub(crate) fn guest(&self, volume: &str) -> GuestLatency {
        self.guests.get(volume).copied().unwrap_or_default()
    }

    /// How the others on the devices of a move stand.
    pub(crate) fn others(&self, volume: &str, to: &str) -> Others {
        if self.until.is_none_or(|until| Instant::now() >= until) {
            return Others::UNKNOWN;
        }
        let from = self.standing.get(volume).and_then(|s| s.device.as_deref());
        Others {
            source: from.map_or(Slack::Unknown, |from| self.slack(from, volume)),
            target: self.slack(to, volume),
        }
    }

    /// The worst of the guests on both devices of a move, its own included: latency over objective. None where nobody has
    /// an objective that holds.
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

    /// The worst of a device, but for one volume. Objectives are judged by the mean: nothing else is known.
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
