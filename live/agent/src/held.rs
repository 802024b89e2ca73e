//! Limits and objectives that the agent sends to the array. The array keeps them in memory only, so a new server
//! process receives them again.

use manager::agent::Agent;
use manager::wire::ArrayPolicy;
use model::{ClassObjective, LeaseHolder};
use tracing::debug;
use units::Nanos;

use crate::host::Host;

/// Last limits and objectives sent to the array.
#[derive(Debug, Default)]
pub(crate) struct SentOrders {
    /// Last policy, and the start times of the device counters, which identify the life of the server.
    said: Option<(ArrayPolicy, Vec<u64>)>,
    /// Reason for which the array rejected the policy, if it did.
    refused: Option<String>,
    /// End of the orders with which the lease was last claimed, and the life of the server.
    claimed: (u64, Vec<u64>),
    /// End of validity of the objectives sent last, and the life of the server that has them.
    promised: (u64, Vec<u64>),
}

impl SentOrders {
    /// Claims the lease of the array for the controller at `name`, once for each reply of the controller and each life
    /// of the server.
    pub(crate) fn claim(
        &mut self,
        array: &mut dyn Host,
        agent: &mut Agent,
        name: &str,
        now_ns: u64,
        life: &[u64],
    ) {
        let Some((id, lasting)) = agent.claim(now_ns) else {
            return;
        };
        let until_ns = now_ns + lasting.0;
        if self.claimed.0 == until_ns && self.claimed.1 == life {
            return;
        }
        let name = name.to_owned();
        let claimed = array.claim(&LeaseHolder { id, name }, lasting);
        self.claimed = (until_ns, life.to_vec());
        let before = agent.holder();
        agent.claimed(claimed.map_err(|e| e.to_string()));
        if before.is_none() && agent.holder().is_some() {
            // Another controller may have had the lease meanwhile, so its policy and objectives may be in force: send
            // ours again.
            (self.said, self.promised) = (None, (0, vec![]));
        }
    }

    /// Sends the objectives of the guests, once for each reply of the controller and each life of the server. A server
    /// that starts after the objectives have expired also receives them, expired, so its moves are as careful as those
    /// of its predecessor. Servers of older versions do not support objectives: their moves yield only to the guests of
    /// the moving volumes.
    pub(crate) fn promise(
        &mut self,
        array: &mut dyn Host,
        objectives: &[ClassObjective],
        now_ns: u64,
        until_ns: u64,
        life: &[u64],
    ) {
        let known = self.promised.0 == until_ns && self.promised.1 == life;
        if known || until_ns == 0 {
            return;
        }
        self.promised = (until_ns, life.to_vec());
        let lasting_ns = until_ns.saturating_sub(now_ns).max(1);
        if let Err(why) = array.promise(objectives, Nanos(lasting_ns)) {
            debug!(why = why.to_string(), "the array rejected the objectives");
        }
    }

    /// Sends the policy, unless the array has it already. Returns the reason for a rejection, once for each reason.
    pub(crate) fn say(
        &mut self,
        array: &mut dyn Host,
        policy: &ArrayPolicy,
        life: Vec<u64>,
    ) -> Option<String> {
        let known = |(p, l): &(ArrayPolicy, Vec<u64>)| p == policy && *l == life;
        if self.said.as_ref().is_some_and(known) {
            return None;
        }
        match array.hold_to(policy).map_err(|e| e.to_string()) {
            Ok(()) => {
                self.said = Some((policy.clone(), life));
                self.refused = None;
                None
            }
            Err(why) if self.refused.as_ref() == Some(&why) => None,
            Err(why) => {
                self.refused = Some(why.clone());
                Some(format!("the array rejected the policy: {why}"))
            }
        }
    }
}
