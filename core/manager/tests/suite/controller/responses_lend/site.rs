//! Hosts that need memory, hosts that lend it, and the controller, simulated window by window.

use std::collections::BTreeMap;

use manager::agent::{Agent, LendAction, Message, Snapshot};
use manager::service::{MessageRefusal, Service};
use manager::view::{HostView, LendsView};
use manager::wire::{
    ApplianceOrder, ApplianceWindow, LendWindow, NodeOrder, NodeState, NodeStore, NodeWindow,
    Orders, PROTOCOL, Register, WireRefusal,
};
use slo::ApplianceEvent;

use super::super::host::{Host, WINDOW};
use super::super::responses_appliance;

/// Length of a lease in windows.
pub(super) const LEASE: u64 = 3;

/// Host with an array whose volume needs memory, as its agent reports it.
pub(super) struct User {
    pub(super) name: String,
    pub(super) session: u64,
    pub(super) seq: u64,
    pub(super) orders: Option<Orders>,
    /// Window in which the controller last replied.
    pub(super) answered: u64,
    pub(super) appliances: BTreeMap<u64, Option<ApplianceEvent>>,
    /// Address of the memory of each appliance.
    pub(super) at: BTreeMap<u64, String>,
}

/// Donor host: its agent, and simulated processes.
pub(super) struct Donor {
    pub(super) name: String,
    pub(super) agent: Agent,
    pub(super) memory: u64,
    pub(super) flash: u64,
    pub(super) nodes: BTreeMap<u64, (u64, NodeState)>,
    /// Kind of storage of each node.
    pub(super) stores: BTreeMap<u64, NodeStore>,
    /// Number of polls until an ordered start or end takes effect.
    pub(super) slow: u64,
    pub(super) since: BTreeMap<u64, u64>,
}

pub(super) struct Site {
    /// Report of every user about its array; clock, controller and store.
    pub(super) host: Host,
    pub(super) users: Vec<User>,
    pub(super) donors: Vec<Donor>,
    pub(super) window: u64,
}

impl Donor {
    pub(super) fn new(name: &str, memory: u64) -> Self {
        Self {
            name: name.into(),
            agent: Agent::new(1, "test"),
            memory,
            flash: 0,
            nodes: BTreeMap::new(),
            stores: BTreeMap::new(),
            slow: 1,
            since: BTreeMap::new(),
        }
    }

    /// Kills the agent and its processes, and starts another agent.
    pub(super) fn begins_anew(&mut self, session: u64) {
        self.agent = Agent::new(session, "test");
        self.nodes.clear();
        self.since.clear();
    }

    pub(super) fn lent(&self) -> u64 {
        self.lent_of(NodeStore::Memory)
    }

    pub(super) fn lent_of(&self, store: NodeStore) -> u64 {
        let nodes = self.nodes.iter();
        let having = nodes.filter(|(id, (_, state))| self.stores[id] == store && state.has_store());
        having.map(|(_, (bytes, _))| bytes).sum()
    }

    /// Advances the processes and executes the agent's actions.
    pub(super) fn look(&mut self, now_ns: u64) {
        let name = &self.name;
        for (id, (_, state)) in &mut self.nodes {
            let since = self.since.entry(*id).or_default();
            *since += 1;
            if *since > self.slow && *state == NodeState::Starting {
                let at = format!("nbd+unix:///?socket=/{name}/{id}.sock");
                *state = NodeState::Ready { at };
            }
        }
        let (slow, since) = (self.slow, &self.since);
        self.nodes
            .retain(|id, (_, state)| *state != NodeState::Ending || since[id] <= slow);
        let nodes = self.nodes.iter();
        let there = LendWindow {
            memory_bytes: self.memory,
            flash_bytes: self.flash,
            nodes: nodes
                .map(|(id, (bytes, state))| NodeWindow {
                    id: *id,
                    bytes: *bytes,
                    store: self.stores[id],
                    state: state.clone(),
                })
                .collect(),
        };
        for action in self.agent.lend(now_ns, there) {
            match action {
                LendAction::Start(NodeOrder { id, bytes, store }) => {
                    self.stores.insert(id, store);
                    self.nodes.insert(id, (bytes, NodeState::Starting));
                    self.since.insert(id, 0);
                }
                LendAction::End { id } => {
                    let (_, state) = self.nodes.get_mut(&id).expect("it is there");
                    if matches!(state, NodeState::Failed { .. }) {
                        self.nodes.remove(&id);
                    } else {
                        *state = NodeState::Ending;
                        self.since.insert(id, 0);
                    }
                }
            }
        }
        for (store, all) in NodeStore::ALL.into_iter().zip([self.memory, self.flash]) {
            let (name, lent) = (&self.name, self.lent_of(store));
            assert!(lent <= all, "{name} lends {lent} of {all}, {store:?}");
        }
    }

    pub(super) fn all_fail(&mut self) {
        for (_, state) in self.nodes.values_mut() {
            let why = "its process has ended: signal: 9".into();
            *state = NodeState::Failed { why };
        }
    }
}

impl User {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            session: 1,
            seq: 0,
            orders: None,
            answered: 0,
            appliances: BTreeMap::new(),
            at: BTreeMap::new(),
        }
    }

    pub(super) fn ordered(&self) -> Option<&ApplianceOrder> {
        self.orders.as_ref()?.remedies.appliances.first()
    }

    pub(super) fn is_serving(&self) -> bool {
        let serving = |e: &Option<ApplianceEvent>| *e == Some(ApplianceEvent::Serving);
        self.appliances.values().any(serving)
    }

    /// Executes the orders.
    pub(super) fn obey(&mut self, window: u64, donors: &[Donor]) {
        if window > self.answered + LEASE {
            self.orders = None;
        }
        let ordered = self.orders.as_ref().map(|o| &o.remedies);
        let wanted = ordered.map_or(&[][..], |a| &a.appliances);
        for order in wanted {
            let at = order.at.as_ref().expect("it is told when it is known");
            self.at.insert(order.id, at.clone());
            self.appliances.entry(order.id).or_default();
        }
        let taken = ordered.map_or(&[][..], |a| &a.appliances_taken);
        let is_wanted = |id: &u64| wanted.iter().any(|o| o.id == *id);
        self.appliances
            .retain(|id, _| is_wanted(id) || !taken.contains(id));
        for (id, event) in &mut self.appliances {
            if matches!(event, Some(ApplianceEvent::Failed { .. })) {
                continue;
            }
            let at = &self.at[id];
            let is_it =
                |state: &NodeState| matches!(state, NodeState::Ready { at: of } if of == at);
            let mut nodes = donors.iter().flat_map(|l| l.nodes.values());
            *event = Some(match nodes.any(|(_, state)| is_it(state)) {
                _ if !is_wanted(id) => ApplianceEvent::Removed,
                true => ApplianceEvent::Serving,
                false => ApplianceEvent::Failed {
                    why: "the connection is lost".into(),
                },
            });
        }
    }
}

impl Site {
    /// Creates users with equal needs, and donors with the given amounts of memory.
    pub(super) fn new(users: usize, donors: &[u64]) -> Self {
        Self::avoiding(users, donors, "30m")
    }

    /// Creates the same site with a time in which a donor is not used after a failure.
    pub(super) fn avoiding(users: usize, donors: &[u64], avoid: &str) -> Self {
        // This host sends no reports itself.
        let host = responses_appliance::full_avoiding("auto", "", avoid);
        let names = (0..users).map(|n| format!("user-{n}"));
        let mut site = Self {
            host,
            users: names.map(|n| User::new(&n)).collect(),
            donors: (0..)
                .zip(donors)
                .map(|(n, memory)| Donor::new(&format!("donor-{n}"), *memory))
                .collect(),
            window: 0,
        };
        for n in 0..users {
            site.register(n);
        }
        site
    }

    pub(super) fn register(&mut self, user: usize) {
        let now = self.host.now();
        let user = &mut self.users[user];
        user.session += 1;
        user.seq = 0;
        let message = Register {
            protocol: PROTOCOL,
            session: user.session,
            version: "test".into(),
        };
        let _ = self.host.managed.register(now, &user.name, message);
        (user.orders, user.appliances, user.at) = Default::default();
    }

    /// Polls a user's agent, which reports if it can.
    pub(super) fn user(&mut self, n: usize, heard: bool) {
        let now = self.host.now();
        let mut report = self.host.report();
        let user = &mut self.users[n];
        user.obey(self.window, &self.donors);
        if !heard {
            return;
        }
        user.seq += 1;
        (report.session, report.seq) = (user.session, user.seq);
        let known = user.appliances.iter();
        report.appliances = known
            .map(|(id, event)| ApplianceWindow {
                id: *id,
                event: event.clone(),
            })
            .collect();
        match self.host.managed.report(now, &user.name, report) {
            Ok(orders) => {
                user.answered = self.window;
                user.orders = Some(orders);
            }
            Err(MessageRefusal::Wire(WireRefusal::Register)) => {
                user.orders = None;
                let message = Register {
                    protocol: PROTOCOL,
                    session: user.session,
                    version: "test".into(),
                };
                user.seq = 0;
                let _ = self.host.managed.register(now, &user.name, message);
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Polls a donor's agent, which reports if it can.
    pub(super) fn donor(&mut self, n: usize, heard: bool) {
        let (now, now_ns) = (self.host.now(), self.host.now_ns);
        let donor = &mut self.donors[n];
        donor.look(now_ns);
        donor.agent.beat(now_ns, Snapshot::default());
        let (managed, name) = (&mut self.host.managed, &donor.name);
        let agent = &mut donor.agent;
        while let Some(message) = agent.poll_message() {
            if !heard {
                continue;
            }
            let refused = match message {
                Message::Register(register) => match managed.register(now, name, register) {
                    Ok(welcome) => {
                        agent.welcomed(now_ns, welcome);
                        agent.beat(now_ns, Snapshot::default());
                        continue;
                    }
                    Err(refused) => refused,
                },
                Message::Report(report) => match managed.report(now, name, *report) {
                    Ok(orders) => {
                        agent.ordered(now_ns, now_ns, orders);
                        continue;
                    }
                    Err(refused) => refused,
                },
                Message::JobsEnded(_) => panic!("it has no jobs"),
            };
            match refused {
                MessageRefusal::Wire(refusal) => agent.refused(&refusal),
                other => panic!("{other:?}"),
            }
            break;
        }
        // Starts the new orders.
        donor.look(now_ns);
    }

    /// Runs windows in which all hosts report.
    pub(super) fn pass(&mut self, windows: u64) {
        for _ in 0..windows {
            self.begin();
            (0..self.users.len()).for_each(|n| self.user(n, true));
            (0..self.donors.len()).for_each(|n| self.donor(n, true));
            self.check();
        }
    }

    pub(super) fn begin(&mut self) {
        self.host.now_ns += WINDOW;
        self.window += 1;
    }

    /// Checks that no memory has two users.
    pub(super) fn check(&self) {
        let serving = self.users.iter().flat_map(|u| {
            let serving = u.appliances.iter();
            let serving = serving.filter(|(_, e)| **e == Some(ApplianceEvent::Serving));
            serving.map(|(id, _)| u.at[id].as_str())
        });
        let mut all: Vec<&str> = serving.collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] != two[1]), "{all:?}");
    }

    /// Runs windows until the condition is true.
    pub(super) fn until(&mut self, what: &str, is: impl Fn(&Site) -> bool) {
        for _ in 0..60 {
            if is(self) {
                return;
            }
            self.pass(1);
        }
        panic!("{what} is never so: {:?}", self.host.events());
    }

    pub(super) fn until_serving(&mut self) {
        self.until("serving", |s| s.users.iter().all(User::is_serving));
    }

    pub(super) fn host_view(&mut self, name: &str) -> HostView {
        let hosts = self.host.status().hosts.into_iter();
        let mut named = hosts.filter(|h| h.name == name);
        named.next().expect("it has registered")
    }

    pub(super) fn lends(&mut self, donor: &str) -> LendsView {
        self.host_view(donor).lends.expect("it lends")
    }
}
