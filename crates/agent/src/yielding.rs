//! What guests leave of their objectives, by what their hypervisor counts: what moves yield to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use manager::agent::Snapshot;
use model::ClassObjective;
use units::Nanos;
use volume::{Others, Slack};

/// Loads between the last two looks, and objectives.
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    objectives: Vec<ClassObjective>,
    until: Option<Instant>,
    /// Requests and their mean latency, of volumes that were measured.
    loads: BTreeMap<String, (u64, u64)>,
}

impl Yielding {
    /// What guests were promised, and for how long that holds.
    pub(crate) fn promise(&mut self, objectives: &[ClassObjective], lasting: Nanos) {
        self.objectives = objectives.to_vec();
        self.until = Instant::now().checked_add(Duration::from_nanos(lasting.0));
    }

    /// Takes in what happened between two looks.
    pub(crate) fn look(&mut self, before: Option<&Snapshot>, now: &Snapshot) {
        self.loads.clear();
        let Some(before) = before else { return };
        for v in &now.volumes {
            let old = before.volumes.iter().find(|o| o.name == v.name);
            let Some(load) = old.and_then(|old| v.load_since(old)) else {
                continue;
            };
            let requests = load.reads.ios + load.writes.ios;
            let sum_ns = load.reads.sum_ns.saturating_add(load.writes.sum_ns);
            let mean_ns = sum_ns.checked_div(requests).unwrap_or(0);
            self.loads.insert(v.name.clone(), (requests, mean_ns));
        }
    }

    /// Requests of a volume, and their mean latency.
    pub(crate) fn guest(&self, volume: &str) -> (u64, u64) {
        self.loads.get(volume).copied().unwrap_or((0, 0))
    }

    /// How the others on the devices of a move stand.
    pub(crate) fn others(&self, at: Option<&Snapshot>, volume: &str, to: &str) -> Others {
        let holds = self.until.is_some_and(|until| Instant::now() < until);
        let Some(at) = at.filter(|_| holds) else {
            return Others::UNKNOWN;
        };
        let from = at.volumes.iter().find(|v| v.name == volume);
        let from = from.and_then(|v| v.placed.first()).map(|p| &*p.device);
        Others {
            source: from.map_or(Slack::Unknown, |from| self.slack(at, from, volume)),
            target: self.slack(at, to, volume),
        }
    }

    /// The worst of a device, but for one volume. Objectives are judged by the mean: nothing else is known.
    fn slack(&self, at: &Snapshot, device: &str, but: &str) -> Slack {
        let here = at
            .volumes
            .iter()
            .filter(|v| v.name != but && v.placed.iter().any(|p| p.device == device));
        let stands = here.map(|v| {
            let objective = self.objectives.iter().find(|o| o.class == v.class);
            let Some(objective) = objective else {
                return Slack::Unbound;
            };
            let target_ns = objective.objective.latency.0.max(1);
            match self.loads.get(&v.name) {
                Some((0, _)) => Slack::Unbound,
                Some((_, mean_ns)) => Slack::Used(*mean_ns as f32 / target_ns as f32),
                None => Slack::Unknown,
            }
        });
        stands.fold(Slack::Unbound, Slack::worse)
    }
}
