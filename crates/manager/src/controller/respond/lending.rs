//! Memory and flash that hosts lend to the arrays of others: who may have how much, who has it, and what the lending hosts are ordered.
//!
//! ```text
//!  an appliance is decided on ─▶ the lender is ordered a node ─▶ it says where that is ─▶ the host that uses it is told ─▶ serving
//!                                       │ it fails, or does not come about in time: failed          │ given up, or failed
//!                                       └──────────▶ ordered no more ◀── the user's agent has said that it is gone
//! ```
//!
//! Nothing is kept of it but what responders know of their appliances: what a lender is ordered is made of that, and what it has beside that is what its reports
//! say. So whatever is forgotten ends, and what it has counts as lent until the lender says that it is gone.

use std::collections::BTreeMap;

use slo::{ApplianceEvent, HostId, WorkloadId};
use units::{Bytes, Nanos};

use super::super::Controller;
use super::super::host::Host;
use super::{Responding, Said};
use crate::view::{HostState, LendsView, LentView};
use crate::wire::{LendWindow, NodeOrder, NodeState, NodeStore, NodeWindow, PROTOCOL_LENDS_FLASH};

/// A lender that has not said by then where a node is has none: two leases, and this for the process to begin.
const BEGINS_WITHIN: Nanos = Nanos::from_secs(20);

/// Lenders that a responder tells apart, beside nodes that were named.
const DONORS_MAX: usize = 10_000;

/// Who lends what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DonorKey {
    pub(super) host: String,
    pub(super) store: NodeStore,
}

impl DonorKey {
    /// What it is called among nodes.
    pub(super) fn in_words(&self) -> String {
        match self.store {
            NodeStore::Memory => format!("host {}", self.host),
            NodeStore::Flash => format!("flash of host {}", self.host),
        }
    }
}

/// What an appliance has of a lending host.
#[derive(Debug, Clone)]
pub(super) struct Lent {
    pub(super) donor: DonorKey,
    /// The number of the order; 0 until it has one.
    pub(super) node: u64,
    pub(super) bytes: u64,
    /// Since when it is ordered.
    pub(super) since: Nanos,
}

/// Who lends, with what is left of that.
pub(super) struct Donor {
    pub(super) key: DonorKey,
    pub(super) free: Bytes,
}

impl Responding {
    /// The number that a lender has here; it keeps it for as long as this responder lives. None where there are too many.
    pub(super) fn donor_id(&mut self, key: &DonorKey) -> Option<HostId> {
        let live = self.live.as_mut()?;
        let known = live.donors.iter().position(|l| l == key);
        let at = known.unwrap_or_else(|| {
            live.donors.push(key.clone());
            live.donors.len() - 1
        });
        let number = 1 + live.config.nodes.len() + at;
        (at < DONORS_MAX).then_some(HostId(u16::try_from(number).ok()?))
    }

    /// The lender of that number.
    pub(super) fn donor(&self, host: HostId) -> Option<&DonorKey> {
        let live = self.live.as_ref()?;
        let at = usize::from(host.0).checked_sub(1 + live.config.nodes.len())?;
        live.donors.get(at)
    }

    /// Whether the node of an appliance is being started: whoever is to use it is not told yet.
    pub(super) fn waits_for_node(&self, appliance: u64) -> bool {
        let ordered = self.appliances.iter().find(|a| a.id == appliance);
        let of = self.nodes.get(&appliance);
        ordered.is_some_and(|a| a.at.is_none()) && of.is_some_and(|n| n.lent.is_some())
    }

    /// An appliance whose node has not come about, and of which nobody else was told. Its workload.
    fn not_lent(
        &mut self,
        now: Nanos,
        id: u64,
        why: String,
        said: &mut Vec<Said>,
    ) -> Option<usize> {
        self.appliances.retain(|a| a.id != id);
        self.nodes.remove(&id);
        let (w, _) = self.known.remove(&id)?;
        let event = ApplianceEvent::Failed { why };
        self.responder.appliance(now, WorkloadId(w as u16), &event);
        let text = event.in_words(self.name(w));
        said.extend(text.map(|text| (w, text)));
        Some(w)
    }
}

/// What a host said of that which it lends.
fn lends(host: &Host) -> Option<&LendWindow> {
    host.report()?.lends.as_ref()
}

fn node(of: &LendWindow, id: u64) -> Option<&NodeWindow> {
    of.nodes.iter().find(|n| n.id == id)
}

/// Bytes of a lender that somebody has, or may have: what is ordered of it, and what it says that it has beside.
fn lent_out<'a>(store: NodeStore, given: impl Iterator<Item = &'a Lent>, of: &LendWindow) -> u64 {
    let given: Vec<&Lent> = given.filter(|l| l.donor.store == store).collect();
    let is_given = |n: &NodeWindow| given.iter().any(|l| l.node == n.id);
    let beside = of.nodes.iter();
    let beside = beside.filter(|n| n.store == store && n.state.has_store() && !is_given(n));
    let beside = beside.map(|n| n.bytes);
    let given = given.iter().map(|l| l.bytes);
    given.chain(beside).fold(0, u64::saturating_add)
}

impl Controller {
    /// Appliances with something of a lending host, and whose they are: host, appliance, and what it has.
    fn lent_by<'a>(
        &'a self,
        donor: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Responding, u64, &'a Lent)> {
        let all = self.all_lent();
        all.filter(move |(_, _, _, lent)| lent.donor.host == donor)
    }

    /// The same of all lenders.
    fn all_lent(&self) -> impl Iterator<Item = (&str, &Responding, u64, &Lent)> {
        let here = self.responses.iter().filter(|(_, r)| !self.has_left(r));
        let all = here.flat_map(|(host, r)| {
            let nodes = r.nodes.iter();
            nodes.filter_map(move |(id, n)| Some((host.as_str(), r, *id, n.lent.as_ref()?)))
        });
        all.filter(|(_, _, _, lent)| lent.node > 0)
    }

    /// Hosts that lend to others than themselves and have some left, memory before flash.
    pub(super) fn donors_for(&self, user: &str) -> Vec<Donor> {
        // All at once: there may be many hosts, and as many lenders.
        let mut given: BTreeMap<&str, Vec<&Lent>> = BTreeMap::new();
        for lent in self.all_lent().map(|(_, _, _, lent)| lent) {
            given.entry(&lent.donor.host).or_default().push(lent);
        }
        let others = self.hosts.values().filter(|h| h.name != user);
        let live = others.filter(|h| self.state_of(h) == HostState::Live);
        let live: Vec<&Host> = live.collect();
        let donor = |h: &Host, store| {
            let of = lends(h)?;
            let own = given.get(h.name.as_str()).into_iter().flatten().copied();
            let free = Bytes(of.lends(store).saturating_sub(lent_out(store, own, of)));
            let host = h.name.clone();
            let key = DonorKey { host, store };
            (free >= config::LEND_MIN).then_some(Donor { key, free })
        };
        let of = |store| live.iter().filter_map(move |h| donor(h, store));
        // Arrays beside agents of older versions believe memory alone.
        let link = self.hosts.get(user).and_then(|h| h.link);
        let knows_flash = link.is_some_and(|l| l.protocol >= PROTOCOL_LENDS_FLASH);
        let stores = NodeStore::ALL.into_iter();
        let stores = stores.filter(|s| knows_flash || *s == NodeStore::Memory);
        stores.flat_map(of).collect()
    }

    /// Gives numbers to what was just ordered of lenders: higher ones than any that they know of.
    pub(super) fn number_lent(&mut self, responding: &mut Responding) {
        let nodes = responding.nodes.values_mut();
        for lent in nodes.filter_map(|n| n.lent.as_mut()) {
            if lent.node > 0 {
                continue;
            }
            let known = self.hosts.get(&lent.donor.host).and_then(lends);
            let known = known.iter().flat_map(|l| &l.nodes).map(|n| n.id).max();
            let last = self.answered.last_node.max(known.unwrap_or(0));
            lent.node = last.saturating_add(1).max(self.now.unix_ms);
            self.answered.last_node = lent.node;
        }
    }

    /// Takes in where the nodes are that were ordered for a host's appliances, and gives up those whose node has not come about. Workloads whose appliance has
    /// failed by that.
    pub(super) fn follow_lent(
        &self,
        at: Nanos,
        responding: &mut Responding,
        said: &mut Vec<Said>,
    ) -> Vec<usize> {
        let mut failed = vec![];
        for order in &mut responding.appliances {
            let lent = responding.nodes.get(&order.id);
            let Some(lent) = lent.and_then(|n| n.lent.as_ref()) else {
                continue;
            };
            if order.at.is_some() {
                continue;
            }
            let donor = self.hosts.get(&lent.donor.host);
            let donor = donor.filter(|h| self.state_of(h) == HostState::Live);
            let of = donor.and_then(lends);
            let why = match of.and_then(|of| Some(&node(of, lent.node)?.state)) {
                Some(NodeState::Ready { at }) => {
                    order.at = Some(at.clone());
                    continue;
                }
                Some(NodeState::Failed { why }) => why.clone(),
                _ if self.now.at.saturating_sub(lent.since) > self.begins_within() => {
                    format!("its {} node was not ready in time", lent.donor.store.word())
                }
                _ => continue,
            };
            failed.push((order.id, format!("{}: {why}", lent.donor.in_words())));
        }
        let failed = failed.into_iter();
        failed
            .filter_map(|(id, why)| responding.not_lent(at, id, why, said))
            .collect()
    }

    fn begins_within(&self) -> Nanos {
        self.two_leases() + BEGINS_WITHIN
    }

    /// What a host is to lend: for appliances whose node is not there yet, and for those that have it until the agent of the host that uses it says that they
    /// are gone.
    pub(super) fn node_orders(&self, donor: &str) -> Vec<NodeOrder> {
        let Some(of) = self.hosts.get(donor).and_then(lends) else {
            return vec![];
        };
        let mut orders: Vec<NodeOrder> = self
            .lent_by(donor)
            .filter(|(_, r, id, lent)| {
                let there = node(of, lent.node).is_some_and(|n| n.state.has_store());
                there || r.waits_for_node(*id)
            })
            .map(|(_, _, _, lent)| NodeOrder {
                id: lent.node,
                bytes: lent.bytes,
                store: lent.donor.store,
            })
            .collect();
        orders.sort_unstable_by_key(|o| o.id);
        orders
    }

    /// What a host lends, and who has it.
    pub(in crate::controller) fn lends_view(&self, host: &Host) -> Option<LendsView> {
        let of = lends(host)?;
        let all: Vec<_> = self.lent_by(&host.name).collect();
        let users = all.iter().map(|(user, r, id, lent)| {
            let volume = r.appliances.iter().find(|a| a.id == *id);
            let state = node(of, lent.node).map(|n| &n.state);
            LentView {
                to: user.to_string(),
                volume: volume.map(|a| a.volume.clone()),
                bytes: lent.bytes,
                store: lent.donor.store,
                ready: matches!(state, Some(NodeState::Ready { .. })),
            }
        });
        let lent = |store| lent_out(store, all.iter().map(|(_, _, _, lent)| *lent), of);
        Some(LendsView {
            memory_bytes: of.memory_bytes,
            lent_bytes: lent(NodeStore::Memory),
            flash_bytes: of.flash_bytes,
            lent_flash_bytes: lent(NodeStore::Flash),
            to: users.collect(),
        })
    }
}
