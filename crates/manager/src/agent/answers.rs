//! Answers to broken objectives beside limits: what is ordered is held against what the array says, so an agent need not remember what it has done.
//!
//! Each is ordered at the array for as long as the orders hold that name it, and again while they go on: whatever is not said again ends there by
//! itself, whoever has ended before.

use std::collections::BTreeMap;

use super::{Agent, AgentAction, Snapshot};
use crate::wire::Answers;

/// What was refused is tried again after this time, and after twice as long each time then.
const AGAIN_NS: u64 = 10_000_000_000;
const AGAIN_MAX_NS: u64 = 600_000_000_000;

/// What is ordered.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    /// None until the controller has answered: what is in force may well be wanted.
    wanted: Option<Answers>,
    /// What was last tried of a volume and has not come about.
    tried: BTreeMap<String, Tried>,
}

#[derive(Debug)]
struct Tried {
    bytes: Option<u64>,
    at_ns: u64,
    apart_ns: u64,
    /// Why it did not come about, as far as that was told.
    why: Option<String>,
}

impl Ordered {
    /// The controller has said which, for as long as the lease lasts.
    pub(super) fn wanted(&mut self, answers: Answers) {
        self.wanted = Some(answers);
    }

    /// Something came about.
    pub(super) fn done(&mut self, action: &AgentAction) {
        if let AgentAction::LendCache { volume, .. } = action {
            self.tried.remove(volume);
        }
    }

    /// Whether it is time to try; notes that it is tried.
    fn tries(&mut self, now_ns: u64, volume: &str, bytes: Option<u64>) -> bool {
        match self.tried.get_mut(volume).filter(|t| t.bytes == bytes) {
            Some(before) if now_ns.saturating_sub(before.at_ns) < before.apart_ns => false,
            Some(before) => {
                before.at_ns = now_ns;
                before.apart_ns = (2 * before.apart_ns).min(AGAIN_MAX_NS);
                true
            }
            None => {
                let first = Tried {
                    bytes,
                    at_ns: now_ns,
                    apart_ns: AGAIN_NS,
                    why: None,
                };
                self.tried.insert(volume.into(), first);
                true
            }
        }
    }
}

impl Agent {
    /// Has parts of the cache lent that are ordered, and those taken back that are not. Without a controller they end by themselves.
    pub(super) fn look_after_answers(&mut self, now_ns: u64, snapshot: &Snapshot) {
        let lasting_ns = self.lease_until_ns.saturating_sub(now_ns);
        let Some(wanted) = self.answers.wanted.as_ref().filter(|_| lasting_ns > 0) else {
            return;
        };
        let shares = wanted.cache_shares.iter();
        let shares: BTreeMap<String, u64> = shares.map(|s| (s.volume.clone(), s.bytes)).collect();
        let there = |name: &String| snapshot.volumes.iter().any(|v| v.name == *name);
        self.answers.tried.retain(|name, _| there(name));
        for v in &snapshot.volumes {
            let ordered = shares.get(&v.name).copied();
            let lent = v.cache.and_then(|c| c.lent);
            let is_so = match (ordered, lent) {
                (None, None) => true,
                // Renewed when half of it is over: messages may be late.
                (Some(ordered), Some((bytes, left_ns))) => {
                    ordered == bytes && 2 * left_ns >= lasting_ns
                }
                _ => false,
            };
            if is_so || !self.answers.tries(now_ns, &v.name, ordered) {
                continue;
            }
            self.actions.push_back(AgentAction::LendCache {
                volume: v.name.clone(),
                bytes: ordered,
                lasting_ns,
            });
        }
    }

    /// An answer is not in force as ordered: operators are told each reason once for each order.
    pub(super) fn not_answered(&mut self, action: &AgentAction, why: &str) {
        let AgentAction::LendCache { volume, .. } = action else {
            return;
        };
        let tried = self.answers.tried.get_mut(volume);
        if let Some(tried) = tried.filter(|t| t.why.as_deref() != Some(why)) {
            tried.why = Some(why.into());
            self.add_warning(format!(
                "the part of the cache of {volume} is not as ordered: {why}"
            ));
        }
    }
}
