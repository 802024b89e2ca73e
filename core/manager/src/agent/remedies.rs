//! Cache shares and mirrors as remedies: orders are compared with the state of the array, so the agent needs no memory of its
//! actions.
//!
//! The array keeps each remedy for the lease of the orders that contain it, and the agent renews it. A remedy that is not renewed
//! ends in the array, even if the agent or the controller has ended.

use std::collections::BTreeMap;

use super::{Agent, AgentAction, MirrorSnapshot, Snapshot, VolumeSnapshot};
use crate::wire::{MirrorOrder, Remedies};

/// Time after which a refused action is retried; it doubles with each attempt.
const AGAIN_NS: u64 = 10_000_000_000;
const AGAIN_MAX_NS: u64 = 600_000_000_000;

/// Ordered remedies, and the actions that have no effect yet.
#[derive(Debug, Default)]
pub(super) struct RemedyOrders {
    /// Orders; none before the first reply of the controller, when existing remedies may still be ordered.
    wanted: Option<Remedies>,
    /// Last attempt without effect, by kind and volume.
    tried: BTreeMap<(Kind, String), RemedyAttempt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Cache,
    Mirror,
}

#[derive(Debug)]
struct RemedyAttempt {
    action: AgentAction,
    at_ns: u64,
    apart_ns: u64,
    /// Cause of the failure, if known.
    why: Option<String>,
}

/// Kind and volume of an action, if it is a remedy.
fn about(action: &AgentAction) -> Option<(Kind, &String)> {
    match action {
        AgentAction::LendCache { volume, .. } => Some((Kind::Cache, volume)),
        AgentAction::Mirror { volume, .. } | AgentAction::StopMirror { volume } => {
            Some((Kind::Mirror, volume))
        }
        _ => None,
    }
}

/// Action without its duration, for comparisons.
fn timeless(action: &AgentAction) -> AgentAction {
    let mut action = action.clone();
    if let AgentAction::LendCache { lasting_ns, .. } | AgentAction::Mirror { lasting_ns, .. } =
        &mut action
    {
        *lasting_ns = 0;
    }
    action
}

impl RemedyOrders {
    /// Updates the orders, which hold for their lease.
    pub(super) fn wanted(&mut self, remedies: Remedies) {
        self.wanted = Some(remedies);
    }

    /// Records a successful action. A mirror is only effective when it serves reads.
    pub(super) fn done(&mut self, action: &AgentAction) {
        if let Some((kind, volume)) = about(action)
            && !matches!(action, AgentAction::Mirror { .. })
        {
            self.came_about(kind, volume);
        }
    }

    fn came_about(&mut self, kind: Kind, volume: &str) {
        self.tried.remove(&(kind, volume.into()));
    }

    /// Returns true if an action is due, and records the attempt.
    fn tries(&mut self, now_ns: u64, action: &AgentAction) -> bool {
        let (kind, volume) = about(action).expect("only remedies are tried");
        let (key, action) = ((kind, volume.clone()), timeless(action));
        match self.tried.get_mut(&key).filter(|t| t.action == action) {
            Some(before) if now_ns.saturating_sub(before.at_ns) < before.apart_ns => false,
            Some(before) => {
                before.at_ns = now_ns;
                before.apart_ns = (2 * before.apart_ns).min(AGAIN_MAX_NS);
                true
            }
            None => {
                let first = RemedyAttempt {
                    action,
                    at_ns: now_ns,
                    apart_ns: AGAIN_NS,
                    why: None,
                };
                self.tried.insert(key, first);
                true
            }
        }
    }
}

/// Action that gives a volume its ordered cache share, if the state differs.
fn part(v: &VolumeSnapshot, ordered: Option<u64>, lasting_ns: u64) -> Option<AgentAction> {
    let lent = v.cache.and_then(|c| c.lent);
    let is_so = match (ordered, lent) {
        (None, None) => true,
        // Renewed after half of its time, since messages may be late.
        (Some(ordered), Some((bytes, left_ns))) => ordered == bytes && 2 * left_ns >= lasting_ns,
        _ => false,
    };
    (!is_so).then(|| AgentAction::LendCache {
        volume: v.name.clone(),
        bytes: ordered,
        lasting_ns,
    })
}

/// Action that gives a volume its ordered mirror, if the state differs. An operator's mirror stays, and a moving volume has none.
fn mirror(
    v: &VolumeSnapshot,
    ordered: Option<&MirrorOrder>,
    tier: impl Fn(&str) -> String,
    lasting_ns: u64,
) -> Option<AgentAction> {
    let copies = v.mirror.as_ref();
    let of_order = |o: &MirrorOrder| AgentAction::Mirror {
        volume: v.name.clone(),
        device: o.device.clone(),
        tier: tier(&o.device),
        extents: o.extents.clone(),
        rate_bytes_per_s: o.rate_bytes_per_s,
        lasting_ns,
    };
    match (ordered, copies.map(|c| (c, c.left_ns))) {
        (None, None) | (_, Some((_, None))) => None,
        (Some(order), None) => v.moving.is_none().then(|| of_order(order)),
        // Renewed with each reply, since an expired mirror would be copied again.
        (Some(order), Some((copies, Some(left_ns)))) if is_ordered(copies, order) => {
            (4 * left_ns < 3 * lasting_ns).then(|| of_order(order))
        }
        (_, Some((_, Some(_)))) => Some(AgentAction::StopMirror {
            volume: v.name.clone(),
        }),
    }
}

fn is_ordered(copies: &MirrorSnapshot, order: &MirrorOrder) -> bool {
    order.device == copies.device && copies.extents.as_ref() == Some(&order.extents)
}

impl Agent {
    /// Starts remedies that are ordered, and ends others. Without a controller they expire.
    pub(super) fn look_after_answers(&mut self, now_ns: u64, snapshot: &Snapshot) {
        let lasting_ns = self.orders_until_ns().saturating_sub(now_ns);
        let Some(wanted) = self.remedies.wanted.as_ref().filter(|_| lasting_ns > 0) else {
            return;
        };
        let shares = wanted.cache_shares.iter();
        let shares: BTreeMap<&str, u64> = shares.map(|s| (&*s.volume, s.bytes)).collect();
        let mirrors = wanted.mirrors.iter();
        let mirrors: BTreeMap<&str, &MirrorOrder> = mirrors.map(|m| (&*m.volume, m)).collect();
        let tier = |name: &str| {
            let device = snapshot.devices.iter().find(|d| d.name == name);
            device.map(|d| d.tier.clone()).unwrap_or_default()
        };
        let mut actions: Vec<AgentAction> = vec![];
        let (mut renewed, mut read) = (vec![], vec![]);
        for v in &snapshot.volumes {
            let name = v.name.as_str();
            actions.extend(part(v, shares.get(name).copied(), lasting_ns));
            let order = mirrors.get(name).copied();
            let action = mirror(v, order, tier, lasting_ns);
            match order.zip(v.mirror.as_ref()) {
                // The mirror exists as ordered.
                Some((order, copies)) if is_ordered(copies, order) => {
                    renewed.extend(action);
                    read.extend((copies.read_share > 0.0).then_some(name));
                }
                _ if self.sessions.iter().any(|s| s.is_on(name)) => {}
                _ => actions.extend(action),
            }
        }
        for name in read {
            self.remedies.came_about(Kind::Mirror, name);
        }
        let there = |name: &String| snapshot.volumes.iter().any(|v| v.name == *name);
        self.remedies.tried.retain(|(_, name), _| there(name));
        actions.retain(|action| self.remedies.tries(now_ns, action));
        self.actions.extend(actions.into_iter().chain(renewed));
    }

    /// Records a failed action; operators get a warning for each cause once per order.
    pub(super) fn not_answered(&mut self, action: &AgentAction, why: &str) {
        let Some((kind, volume)) = about(action) else {
            return;
        };
        let tried = self.remedies.tried.get_mut(&(kind, volume.clone()));
        if let Some(tried) = tried.filter(|t| t.why.as_deref() != Some(why)) {
            tried.why = Some(why.into());
            let what = match kind {
                Kind::Cache => format!("the cache share of {volume} is"),
                Kind::Mirror => format!("the mirror of {volume} is"),
            };
            self.add_warning(format!("{what} not as ordered: {why}"));
        }
    }
}
