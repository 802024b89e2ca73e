//! What the array was told to hold its operators to: it keeps that in memory, so it is told again when its server is another one.

use manager::agent::Agent;
use manager::wire::ArrayPolicy;
use model::{ClassObjective, LeaseHolder};
use tracing::debug;
use units::Nanos;

use crate::host::Host;

/// What was said to the array last.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The policy, and when the counters of the devices began: they begin with their server.
    said: Option<(ArrayPolicy, Vec<u64>)>,
    /// Why it was not taken, if so.
    refused: Option<String>,
    /// The end of the orders with which the lease was last claimed, and the life of the server.
    claimed: (u64, Vec<u64>),
    /// Until when the objectives hold that were said last, and to which life of the server.
    promised: (u64, Vec<u64>),
}

impl Held {
    /// Claims the lease of the array for the controller at `name`, once for each answer of the
    /// controller and each life of the server.
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
        agent.claimed(claimed);
        if before.is_none() && agent.holder().is_some() {
            // It was another controller's by then, and keeps that one's words.
            (self.said, self.promised) = (None, (0, vec![]));
        }
    }

    /// Says what guests were promised, once for each answer of the controller and each life of the server; one that begins after they are
    /// over is told so, and its moves are as careful as those of one that knew them. Servers from before know of no objectives: their
    /// moves yield to the guests of their volumes only.
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
            debug!(why, "the array rejected the objectives");
        }
    }

    /// Says what holds, if the array does not know it yet; why it does not take it, once for each reason.
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
        match array.hold_to(policy) {
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
