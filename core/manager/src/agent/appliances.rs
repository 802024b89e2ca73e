//! Caching appliances of a served array: memory or flash of another host as the L2 cache of one volume.
//!
//! ```text
//!  ordered ─▶ array configured ─▶ its node responds: serving ─▶ no longer ordered: array configured ─▶ removed
//!                 │ refused, or no reply in time       │ the array has ended it, or an operator has ordered another
//!                 └────────────▶ failed ◀───────────────┘
//! ```
//!
//! The array knows the current L2 cache, so an appliance of an earlier agent that is not ordered ends, too. Without a controller
//! it ends with the lease: another host may need its memory.

use std::collections::BTreeMap;

use slo::ApplianceEvent;

use super::{Agent, AgentAction, Snapshot};
use crate::wire::{ApplianceOrder, ApplianceWindow, Remedies};

/// Time in which a node must respond.
const ANSWER_NS: u64 = 20_000_000_000;

/// Time after the start of the agent without a controller after which nothing counts as ordered.
const UNHEARD_NS: u64 = 60_000_000_000;

/// Ordered appliances and their states.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Orders; none before the first reply of the controller, when an existing appliance may still be ordered.
    wanted: Option<Vec<ApplianceOrder>>,
    /// Time of the first snapshot.
    since_ns: Option<u64>,
    known: BTreeMap<u64, OrderState>,
}

#[derive(Debug, Default)]
struct OrderState {
    /// Time at which the array was configured.
    asked_ns: Option<u64>,
    event: Option<ApplianceEvent>,
}

impl OrderState {
    fn fail(&mut self, why: &str) {
        self.event = Some(ApplianceEvent::Failed { why: why.into() });
    }

    fn has_ended(&self) -> bool {
        let ended = |e: &ApplianceEvent| {
            matches!(e, ApplianceEvent::Failed { .. } | ApplianceEvent::Removed)
        };
        self.event.as_ref().is_some_and(ended)
    }
}

impl Nodes {
    /// Updates the orders.
    pub(super) fn wanted(&mut self, remedies: &Remedies) {
        let wanted = &remedies.appliances;
        let taken = &remedies.appliances_taken;
        self.known
            .retain(|id, _| wanted.iter().any(|o| o.id == *id) || !taken.contains(id));
        self.wanted = Some(wanted.clone());
    }

    /// Returns their entries in a report.
    pub(super) fn windows(&self) -> Vec<ApplianceWindow> {
        let known = self.known.iter();
        known
            .map(|(id, known)| ApplianceWindow {
                id: *id,
                event: known.event.clone(),
            })
            .collect()
    }

    /// Records that the array has refused an appliance.
    pub(super) fn refused(&mut self, id: u64, why: &str) {
        if let Some(known) = self.known.get_mut(&id) {
            known.fail(why);
        }
    }
}

impl Agent {
    /// Starts appliances that are ordered, and stops those that are not.
    pub(super) fn look_after_appliances(&mut self, now_ns: u64, snapshot: &Snapshot) {
        let orders_until_ns = self.orders_until_ns();
        let nodes = &mut self.nodes;
        let since = *nodes.since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since) > UNHEARD_NS {
            nodes.wanted.get_or_insert_default();
        }
        let Some(wanted) = &mut nodes.wanted else {
            return;
        };
        if orders_until_ns <= now_ns {
            wanted.clear();
        }
        let there = snapshot.second.as_ref();
        let of_answer = there.and_then(|s| s.answer);
        for order in wanted.iter() {
            let known = nodes.known.entry(order.id).or_default();
            if known.has_ended() {
                continue;
            }
            let is_it = there.filter(|s| s.answer == Some(order.id));
            let by_hand = there.is_some_and(|s| s.answer.is_none() && s.ended.is_none());
            let late = |asked: u64| now_ns.saturating_sub(asked) > ANSWER_NS;
            match (is_it, known.asked_ns, &order.at) {
                (Some(second), _, _) => match (&second.ended, second.ready) {
                    (Some(why), _) => known.fail(why),
                    (None, true) => known.event = Some(ApplianceEvent::Serving),
                    (None, false) if late(*known.asked_ns.get_or_insert(now_ns)) => {
                        known.fail("its cache node does not respond");
                    }
                    (None, false) => {}
                },
                (None, _, _) if by_hand => known.fail("an operator has ordered another L2 cache"),
                (None, _, None) => known.fail("the order has no address of a cache node"),
                (None, None, Some(at)) => {
                    known.asked_ns = Some(now_ns);
                    self.actions.push_back(AgentAction::UseNode {
                        id: order.id,
                        volume: order.volume.clone(),
                        server: order.server.clone(),
                        at: at.clone(),
                        bytes: order.cache_bytes,
                        warm: order.warm.clone(),
                    });
                }
                (None, Some(asked), _) if known.event.is_some() || late(asked) => {
                    known.fail("the array no longer has this L2 cache");
                }
                (None, Some(_), _) => {}
            }
        }
        let ordered = |id: u64| {
            let ended = nodes.known.get(&id).is_some_and(OrderState::has_ended);
            !ended && wanted.iter().any(|o| o.id == id)
        };
        if let Some(id) = of_answer.filter(|id| !ordered(*id)) {
            self.actions.push_back(AgentAction::StopNode { id });
        }
        for (id, known) in &mut nodes.known {
            let wanted = wanted.iter().any(|o| o.id == *id);
            if !wanted && of_answer != Some(*id) && !known.has_ended() {
                known.event = Some(ApplianceEvent::Removed);
            }
        }
    }
}
