//! Memory and flash that donor hosts lend to the arrays of other hosts: free space, users, and orders for the donors.
//!
//! ```text
//!  appliance decided ─▶ donor gets the order of a node ─▶ donor reports its URI ─▶ user gets the URI ─▶ serving
//!                                       │ failed, or not ready in time                               │ ended, or failed
//!                                       └──────────▶ no longer ordered ◀── the user's agent reports its removal
//! ```
//!
//! The state consists of the appliances that responders know and of the reports of donors. A forgotten node ends, and its bytes
//! count as lent until the donor reports that it is gone.

use std::collections::BTreeMap;

use slo::{ApplianceEvent, HostId, WorkloadId};
use units::{Bytes, Nanos};

use super::super::Controller;
use super::super::host::Host;
use super::{EventText, HostResponder};
use crate::view::{HostState, LendsView, LentView};
use crate::wire::{LendWindow, NodeOrder, NodeState, NodeStore, NodeWindow};

/// Time, in addition to two leases, in which a donor must report the URI of a node: its process has to start.
const BEGINS_WITHIN: Nanos = Nanos::from_secs(20);

/// Most donors that a responder distinguishes, in addition to configured nodes.
const DONORS_MAX: usize = 10_000;

/// Host and store of a loan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DonorKey {
    pub(super) host: String,
    pub(super) store: NodeStore,
}

impl DonorKey {
    /// Name of the donor in texts.
    pub(super) fn in_words(&self) -> String {
        match self.store {
            NodeStore::Memory => format!("host {}", self.host),
            NodeStore::Flash => format!("flash of host {}", self.host),
        }
    }
}

/// Loan that an appliance uses.
#[derive(Debug, Clone)]
pub(super) struct Loan {
    pub(super) donor: DonorKey,
    /// Number of the order; 0 until it is assigned.
    pub(super) node: u64,
    pub(super) bytes: u64,
    /// Time of the order.
    pub(super) since: Nanos,
}

/// Donor with its free space.
pub(super) struct Donor {
    pub(super) key: DonorKey,
    pub(super) free: Bytes,
}

impl HostResponder {
    /// Number of a donor, constant for the life of this responder. None if there are too many.
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

    /// Donor with a number.
    pub(super) fn donor(&self, host: HostId) -> Option<&DonorKey> {
        let live = self.live.as_ref()?;
        let at = usize::from(host.0).checked_sub(1 + live.config.nodes.len())?;
        live.donors.get(at)
    }

    /// Returns true while the node of an appliance starts: its user does not get the order yet.
    pub(super) fn waits_for_node(&self, appliance: u64) -> bool {
        let ordered = self.appliances.iter().find(|a| a.id == appliance);
        let of = self.nodes.get(&appliance);
        ordered.is_some_and(|a| a.at.is_none()) && of.is_some_and(|n| n.lent.is_some())
    }

    /// Ends an appliance whose node did not start and whose user has no order yet. Returns its workload.
    fn not_lent(
        &mut self,
        now: Nanos,
        id: u64,
        why: String,
        said: &mut Vec<EventText>,
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

/// Loans that a host has reported.
fn lends(host: &Host) -> Option<&LendWindow> {
    host.report()?.lends.as_ref()
}

fn node(of: &LendWindow, id: u64) -> Option<&NodeWindow> {
    of.nodes.iter().find(|n| n.id == id)
}

/// Bytes of a donor that are lent or may be in use: ordered ones, and others that the donor reports.
fn lent_out<'a>(store: NodeStore, given: impl Iterator<Item = &'a Loan>, of: &LendWindow) -> u64 {
    let given: Vec<&Loan> = given.filter(|l| l.donor.store == store).collect();
    let is_given = |n: &NodeWindow| given.iter().any(|l| l.node == n.id);
    let beside = of.nodes.iter();
    let beside = beside.filter(|n| n.store == store && n.state.has_store() && !is_given(n));
    let beside = beside.map(|n| n.bytes);
    let given = given.iter().map(|l| l.bytes);
    given.chain(beside).fold(0, u64::saturating_add)
}

impl Controller {
    /// Appliances that use a donor host: user, responder, appliance, loan.
    fn lent_by<'a>(
        &'a self,
        donor: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a HostResponder, u64, &'a Loan)> {
        let all = self.all_lent();
        all.filter(move |(_, _, _, lent)| lent.donor.host == donor)
    }

    /// Appliances that use any donor host.
    fn all_lent(&self) -> impl Iterator<Item = (&str, &HostResponder, u64, &Loan)> {
        let here = self.responses.iter().filter(|(_, r)| !self.has_left(r));
        let all = here.flat_map(|(host, r)| {
            let nodes = r.nodes.iter();
            nodes.filter_map(move |(id, n)| Some((host.as_str(), r, *id, n.lent.as_ref()?)))
        });
        all.filter(|(_, _, _, lent)| lent.node > 0)
    }

    /// Donors with free space for a user host, memory before flash.
    pub(super) fn donors_for(&self, user: &str) -> Vec<Donor> {
        // Collected once: hosts and donors may be many.
        let mut given: BTreeMap<&str, Vec<&Loan>> = BTreeMap::new();
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
        NodeStore::ALL.into_iter().flat_map(of).collect()
    }

    /// Assigns numbers to new orders of donors: higher than any that they know.
    pub(super) fn number_lent(&mut self, responding: &mut HostResponder) {
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

    /// Records the URIs of ordered nodes, and ends appliances whose node did not start in time. Returns the workloads whose
    /// appliance has failed.
    pub(super) fn follow_lent(
        &self,
        at: Nanos,
        responding: &mut HostResponder,
        said: &mut Vec<EventText>,
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

    /// Returns the nodes that a donor must run: for appliances whose node is starting, and for those that use one until the agent of
    /// the user reports their removal.
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

    /// View of a host's loans and their users.
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
