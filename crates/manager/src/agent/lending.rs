//! Memory and flash of this host that are lent to the arrays of others: a process for each order (`terrace cache-node`), started and ended by whoever has this agent.
//!
//! ```text
//!  ordered ─▶ start ─▶ starting ─▶ ready at URI ─▶ ordered no more, or the lease is over: end ─▶ ending ─▶ gone
//!                         │             │ its process has ended
//!                         └──▶ failed ◀─┘ ─▶ ordered no more: forgotten
//! ```
//!
//! What is there is what is told of the processes, which live no longer than whoever started them: so an agent that begins anew has none. What all have together
//! of either is never more than the host lends, whatever is ordered: what there is no room for waits until another one is gone.

use super::Agent;
use crate::wire::{LendWindow, NodeOrder, NodeState, NodeStore, Remedies};

/// What is to be done about a process that lends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LendAction {
    /// Start one.
    Start(NodeOrder),
    /// End it, and forget it if it has failed.
    End {
        /// The order's number.
        id: u64,
    },
}

/// What is ordered, and what is there.
#[derive(Debug, Default)]
pub(super) struct Lending {
    wanted: Vec<NodeOrder>,
    /// As it was last looked at; none where nothing is lent.
    there: Option<LendWindow>,
}

impl Lending {
    /// The controller has said which.
    pub(super) fn wanted(&mut self, remedies: &Remedies) {
        self.wanted.clone_from(&remedies.nodes);
    }

    /// As it is reported.
    pub(super) fn window(&self) -> Option<LendWindow> {
        self.there.clone()
    }

    /// Whether something is about to change.
    pub(super) fn is_busy(&self) -> bool {
        let Some(there) = &self.there else {
            return false;
        };
        let known = |id: u64| there.nodes.iter().any(|n| n.id == id);
        let moving = |s: &NodeState| matches!(s, NodeState::Starting | NodeState::Ending);
        there.nodes.iter().any(|n| moving(&n.state)) || self.wanted.iter().any(|o| !known(o.id))
    }
}

impl Agent {
    /// Looks at what is lent as it is now, and says what is to be done about it. To be called as often as [`Agent::beat`], and also while the array does
    /// not answer.
    pub fn lend(&mut self, now_ns: u64, there: LendWindow) -> Vec<LendAction> {
        let lending = &mut self.lending;
        if self.lease_until_ns <= now_ns {
            lending.wanted.clear();
        }
        let mut actions = vec![];
        for node in &there.nodes {
            let of = |o: &NodeOrder| (o.id, o.bytes, o.store) == (node.id, node.bytes, node.store);
            if !lending.wanted.iter().any(of) && node.state != NodeState::Ending {
                actions.push(LendAction::End { id: node.id });
            }
        }
        for store in NodeStore::ALL {
            let having = there.nodes.iter();
            let having = having.filter(|n| n.store == store && n.state.has_store());
            let mut taken = having.map(|n| n.bytes).fold(0, u64::saturating_add);
            for order in lending.wanted.iter().filter(|o| o.store == store) {
                let known = there.nodes.iter().any(|n| n.id == order.id);
                let sum = taken.saturating_add(order.bytes);
                if !known && sum <= there.lends(store) {
                    taken = sum;
                    actions.push(LendAction::Start(*order));
                }
            }
        }
        lending.there = Some(there);
        actions
    }
}
