//! Limits of volumes for a time: what is ordered is held against what the array says, so an agent need not remember what it has done.

use std::collections::{BTreeMap, BTreeSet};

use super::{Agent, AgentAction, Snapshot};
use crate::limited::Limited;
use crate::wire::ThrottleOrder;

/// Ends that differ by less are the same: messages take their time. Of what is over soon, a fourth of what is left is less.
const SAME_END_NS: u64 = 5_000_000_000;

/// What did not come about is ordered again after this time, and after twice as long each time then.
const AGAIN_NS: u64 = 10_000_000_000;
const AGAIN_MAX_NS: u64 = 600_000_000_000;

/// Limits that are ordered.
#[derive(Debug, Default)]
pub(super) struct Throttles {
    /// None until the controller has answered: what is in force may well be wanted.
    wanted: Option<BTreeMap<String, Limited>>,
    /// What was last tried of a volume.
    tried: BTreeMap<String, Tried>,
    /// Volumes that were limited at any time of the window.
    in_window: BTreeSet<String>,
}

/// An order that may not have come about yet.
#[derive(Debug)]
struct Tried {
    at_ns: u64,
    apart_ns: u64,
    wanted: Option<Limited>,
    /// Why it did not, as far as that was told.
    why: Option<String>,
}

/// Whether two are one, or none, as far as times that have travelled say.
fn is_same(now_ns: u64, one: Option<&Limited>, other: Option<&Limited>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            let apart_ns = one.until_ns.abs_diff(other.until_ns);
            let left_ns = one.until_ns.saturating_sub(now_ns);
            one.is_to_the_same(other) && apart_ns < SAME_END_NS.min(left_ns / 4)
        }
        _ => false,
    }
}

/// Whether two are to the same, whenever they end.
fn is_renewed(one: Option<Limited>, other: Option<Limited>) -> bool {
    one.zip(other)
        .is_some_and(|(one, other)| one.is_to_the_same(&other))
}

impl Throttles {
    /// The controller has said which, in the answer to what was sent then. Their time is counted from there: it may have been long on its
    /// way, and what was said for as long as a lease is over with that.
    pub(super) fn wanted(&mut self, sent_ns: u64, orders: Vec<ThrottleOrder>) {
        let wanted = orders.into_iter();
        let wanted = wanted.map(|o| (o.volume, Limited::of(o.throttle, sent_ns)));
        self.wanted = Some(wanted.collect());
    }

    /// A window is over: volumes that were limited in a part of it.
    pub(super) fn end_window(&mut self, snapshot: &Snapshot) -> BTreeSet<String> {
        let mut partly = std::mem::take(&mut self.in_window);
        for v in snapshot.volumes.iter().filter(|v| v.throttle.is_some()) {
            partly.remove(&v.name);
        }
        partly
    }

    /// Time until the next one is over.
    pub(super) fn due_in_ns(&self, now_ns: u64) -> Option<u64> {
        let wanted = self.wanted.iter().flat_map(BTreeMap::values);
        wanted
            .filter_map(|w| w.left(now_ns))
            .map(|t| t.lasting_ns)
            .min()
    }
}

impl Agent {
    /// Has limits begun that are ordered, and ended that are not. Without a controller they end when their time is over.
    pub(super) fn look_after_throttles(&mut self, now_ns: u64, snapshot: &Snapshot) {
        let limited = snapshot.volumes.iter().filter(|v| v.throttle.is_some());
        let limited = limited.map(|v| v.name.clone());
        self.throttles.in_window.extend(limited);
        let leased = now_ns < self.orders_until_ns();
        let Some(wanted) = self.throttles.wanted.as_ref().filter(|_| leased) else {
            return;
        };
        let tried = &mut self.throttles.tried;
        tried.retain(|name, _| snapshot.volumes.iter().any(|v| v.name == *name));
        for v in &snapshot.volumes {
            let ordered = wanted.get(&v.name).copied();
            let ordered = ordered.filter(|o| o.left(now_ns).is_some());
            let in_force = v.throttle.map(|t| Limited::of(t, now_ns));
            if is_same(now_ns, ordered.as_ref(), in_force.as_ref()) {
                tried.remove(&v.name);
                continue;
            }
            let same = |before: &Tried| {
                // One that is renewed and was refused is refused again, most likely.
                let renewed = before.why.is_some() && is_renewed(before.wanted, ordered);
                renewed || is_same(now_ns, before.wanted.as_ref(), ordered.as_ref())
            };
            let before = tried.get_mut(&v.name).filter(|t| same(t));
            match before {
                Some(before) if now_ns.saturating_sub(before.at_ns) < before.apart_ns => continue,
                Some(before) => {
                    before.at_ns = now_ns;
                    before.apart_ns = (2 * before.apart_ns).min(AGAIN_MAX_NS);
                }
                None => {
                    let first = Tried {
                        at_ns: now_ns,
                        apart_ns: AGAIN_NS,
                        wanted: ordered,
                        why: None,
                    };
                    tried.insert(v.name.clone(), first);
                }
            }
            self.actions.push_back(AgentAction::Throttle {
                volume: v.name.clone(),
                to: ordered.and_then(|o| o.left(now_ns)),
            });
        }
    }

    /// A limit is not as ordered: operators are told each reason once for each order.
    pub(super) fn not_limited(&mut self, volume: &str, why: String) {
        let tried = self.throttles.tried.get_mut(volume);
        if let Some(tried) = tried.filter(|t| t.why.as_ref() != Some(&why)) {
            tried.why = Some(why.clone());
            self.add_warning(format!("the throttle of {volume} is not as ordered: {why}"));
        }
    }
}
