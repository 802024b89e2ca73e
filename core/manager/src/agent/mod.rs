//! Core of the agent, without I/O: snapshots of one array become reports, and orders become actions.
//!
//! ```text
//!   array ──snapshot──▶ beat ──▶ actions: start, cancel, … ──▶ array
//!                         │
//!                         └─ end of a window ──▶ report ──▶ controller ──▶ orders ────┐
//!                         ▲                                                           │
//!                         └───────────────── complete list of activities ◀────────────┘
//! ```
//!
//! The agent stores nothing: the array knows its running moves, and the orders list all activities. A running move is adopted.
//! A move whose volume is on its target is reported as done. Any other ordered move is started.
//! Orders expire with their lease; then the agent starts nothing new. Running moves continue, since data is safe in every phase of
//! a move. Injected latency ends in the array shortly after the agent stops renewing it, and throttles end at their time.
//!
//! A window has several beats. Times are the agent's own, in nanoseconds from any start.

mod appliances;
mod extents;
mod lending;
mod moves;
mod remedies;
mod reuse;
mod sessions;
mod snapshot;
#[cfg(test)]
mod tests;
mod throttles;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{ClassObjective, ControllerId, ExtentRanges, LeaseStatus};
use units::Nanos;

use crate::wire::{
    ArrayPolicy, CacheWindow, CalibrationOrder, CalibrationResult, CopiesWindow, Detail,
    DeviceWindow, JobWindow, JobsReport, MirrorWindow, MoveOrder, Orders, PROTOCOL, Register,
    Throttle, VolumeWindow, Warm, Welcome, WindowReport, WireRefusal,
};

pub use extents::{
    ExtentsSnapshot, HeatCursor, HeatSnapshot, RANGES_PER_MOVE, SPAN_PER_MIRROR, WantedExtents,
};
pub use lending::LendAction;
pub use reuse::ReuseSnapshot;
pub use snapshot::{
    CacheSnapshot, Counts, DeviceSnapshot, MirrorSnapshot, MoveEnd, SecondSnapshot, Snapshot,
    VolumeSnapshot,
};

/// Most warnings of one report. Protects the controller from an array that fails continuously.
const PROBLEM_MAX: usize = 16;

/// Time between two attempts to register.
const APART_NS: u64 = 500_000_000;

/// Action at the array.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentAction {
    /// Start a move; the result tells if it started.
    StartMove(MoveOrder),
    /// Cancel the move of a volume.
    CancelMove { volume: String },
    /// Delay the replies of a volume, for a limited time. Zero ends the delay.
    Inject {
        volume: String,
        /// Delay, nanoseconds.
        delay_ns: u64,
        /// Duration unless renewed, nanoseconds.
        lasting_ns: u64,
    },
    /// Set or remove the throttle of a volume; it replaces the last one.
    Throttle {
        volume: String,
        /// New throttle with its duration; none removes it.
        to: Option<Throttle>,
    },
    /// Reserve a cache share for a volume for a limited time, or restore the share that an operator has set.
    LendCache {
        volume: String,
        /// Size of the share; none restores the operator's.
        bytes: Option<u64>,
        /// Duration unless renewed, nanoseconds.
        lasting_ns: u64,
    },
    /// Create a mirror of extents of a volume, or renew one that such an action created.
    Mirror {
        volume: String,
        /// Target device, and its tier.
        device: String,
        tier: String,
        extents: ExtentRanges,
        /// Highest rate of the copy.
        rate_bytes_per_s: u64,
        /// Duration unless renewed, nanoseconds.
        lasting_ns: u64,
    },
    /// Remove a mirror that such an action created.
    StopMirror { volume: String },
    /// Use memory of a cache node as the L2 cache of one volume, as the remedy with this number.
    UseNode {
        id: u64,
        volume: String,
        /// Name of the donor or node.
        server: String,
        /// NBD URI of the node.
        at: String,
        /// Size of the L2 cache.
        bytes: u64,
        /// Warm-up of the L2 cache.
        warm: Warm,
    },
    /// Remove the L2 cache, if it belongs to this remedy.
    StopNode { id: u64 },
}

/// Cause of a failed action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionError {
    pub why: String,
    /// True if a repetition fails too until an operator changes something.
    pub permanent: bool,
}

impl ActionError {
    /// Creates a permanent error.
    pub fn permanent(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            permanent: true,
        }
    }
}

impl From<String> for ActionError {
    fn from(why: String) -> Self {
        Self {
            why,
            permanent: false,
        }
    }
}

impl From<&str> for ActionError {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}

/// Message to the controller.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// First message of a session.
    Register(Register),
    /// Report of a window.
    Report(Box<WindowReport>),
    /// Jobs that have ended within a window.
    JobsEnded(JobsReport),
}

/// Connection to the controller.
#[derive(Debug)]
enum Link {
    /// Not registered.
    Apart,
    /// Registered: the controller's time of its last reply, and the agent's time of its receipt.
    Met { at_ns: u64, heard_ns: u64 },
}

#[derive(Debug)]
pub struct Agent {
    session: u64,
    version: String,
    link: Link,
    window_ns: u64,
    seq: u64,
    /// Number of the last report with a reply.
    answered: u64,
    /// End of the lease; nothing new starts after it.
    lease_until_ns: u64,
    /// Controller of the newest orders.
    controller: Option<ControllerId>,
    /// Lease of the array after the last claim.
    lease: Option<LeaseStatus>,
    /// Cause of a failed claim.
    unclaimed: Option<String>,
    /// Time and snapshot at the begin of the window.
    began: Option<(u64, Snapshot)>,
    orders: BTreeMap<u32, MoveOrder>,
    cancels: BTreeMap<u32, MoveOrder>,
    jobs: BTreeMap<u32, moves::Job>,
    /// Jobs whose end was reported.
    reported_ended: BTreeSet<u32>,
    wanted_sessions: Vec<CalibrationOrder>,
    sessions: Vec<sessions::Session>,
    throttles: throttles::Throttles,
    remedies: remedies::RemedyOrders,
    nodes: appliances::Nodes,
    lending: lending::LendingNodes,
    reuse: reuse::WatchedVolumes,
    results: Vec<CalibrationResult>,
    objectives: Vec<ClassObjective>,
    policy: Option<ArrayPolicy>,
    detail: Detail,
    /// Volumes whose extent counters reports must contain.
    access: BTreeSet<String>,
    /// Counters of extents, by volume.
    heat: BTreeMap<String, extents::VolumeCounters>,
    problem: Vec<String>,
    actions: VecDeque<AgentAction>,
    messages: VecDeque<Message>,
}

impl Agent {
    /// Creates an agent; `session` must differ for each start.
    pub fn new(session: u64, version: &str) -> Self {
        Self {
            session,
            version: version.into(),
            link: Link::Apart,
            window_ns: 0,
            seq: 0,
            answered: 0,
            lease_until_ns: 0,
            controller: None,
            lease: None,
            unclaimed: None,
            began: None,
            orders: BTreeMap::new(),
            cancels: BTreeMap::new(),
            jobs: BTreeMap::new(),
            reported_ended: BTreeSet::new(),
            wanted_sessions: Vec::new(),
            sessions: Vec::new(),
            throttles: throttles::Throttles::default(),
            remedies: remedies::RemedyOrders::default(),
            nodes: appliances::Nodes::default(),
            lending: lending::LendingNodes::default(),
            reuse: reuse::WatchedVolumes::default(),
            results: Vec::new(),
            objectives: Vec::new(),
            policy: None,
            detail: Detail::Volumes,
            access: BTreeSet::new(),
            heat: BTreeMap::new(),
            problem: Vec::new(),
            actions: VecDeque::new(),
            messages: VecDeque::new(),
        }
    }

    /// Returns the next action at the array. Its result goes to [`Agent::done`].
    pub fn poll_action(&mut self) -> Option<AgentAction> {
        self.actions.pop_front()
    }

    /// Returns the next message to the controller.
    pub fn poll_message(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }

    /// Claim of the array's lease for the newest orders, with its duration; none without
    /// orders.
    pub fn claim(&self, now_ns: u64) -> Option<(ControllerId, Nanos)> {
        let left_ns = self.lease_until_ns.saturating_sub(now_ns);
        self.controller
            .filter(|_| left_ns > 0)
            .map(|controller| (controller, Nanos(left_ns)))
    }

    /// Records the result of a claim of the array's lease.
    pub fn claimed(&mut self, claimed: Result<LeaseStatus, impl ToString>) {
        match claimed {
            Ok(status) => (self.lease, self.unclaimed) = (Some(status), None),
            Err(why) => {
                let why = why.to_string();
                self.lease = None;
                // Once for each cause: the lease is claimed with each reply.
                if self.unclaimed.as_ref() != Some(&why) {
                    self.add_warning(format!("the lease of the array cannot be claimed: {why}"));
                    self.unclaimed = Some(why);
                }
            }
        }
    }

    /// Returns the controller that has the array's lease, if it is the one of this agent.
    pub fn holder(&self) -> Option<ControllerId> {
        let holder = self.lease.as_ref().map(|l| l.holder.id);
        holder.filter(|_| holder == self.controller)
    }

    /// Time until which something new may start; 0 while the array obeys another
    /// controller.
    fn orders_until_ns(&self) -> u64 {
        self.holder().map_or(0, |_| self.lease_until_ns)
    }

    /// Adds a warning for operators to the next report.
    pub fn add_warning(&mut self, text: String) {
        if self.problem.len() < PROBLEM_MAX && !self.problem.contains(&text) {
            self.problem.push(text);
        }
    }

    /// Processes a snapshot of the array. To be called several times per window, after a claim that
    /// is due.
    pub fn beat(&mut self, now_ns: u64, snapshot: Snapshot) {
        self.look_at(now_ns, snapshot);
        if self.holder().is_none() {
            // The array would reject actions on orders of another controller.
            self.actions.clear();
        }
    }

    fn look_at(&mut self, now_ns: u64, snapshot: Snapshot) {
        self.watch_heat(&snapshot);
        self.reuse.watch(now_ns, &snapshot);
        let Link::Met { at_ns, heard_ns } = self.link else {
            self.began = None;
            if self.messages.is_empty() {
                let (session, version) = (self.session, self.version.clone());
                self.messages.push_back(Message::Register(Register {
                    protocol: PROTOCOL,
                    session,
                    version,
                }));
            }
            // Running moves and sessions are supervised without a controller, too.
            self.look_after_moves(now_ns, &snapshot);
            self.look_after_sessions(now_ns, &snapshot);
            self.look_after_appliances(now_ns, &snapshot);
            return;
        };
        self.look_after_moves(now_ns, &snapshot);
        self.look_after_sessions(now_ns, &snapshot);
        self.look_after_throttles(now_ns, &snapshot);
        self.look_after_answers(now_ns, &snapshot);
        self.look_after_appliances(now_ns, &snapshot);
        if !self.window_is_over(now_ns) {
            self.tell_of_ended();
            return;
        }
        let Some((began_ns, earlier)) = self.began.take() else {
            Self::begin_heat(&mut self.heat);
            self.began = Some((now_ns, snapshot));
            return;
        };
        let length_ns = now_ns.saturating_sub(began_ns);
        self.seq += 1;
        let report = WindowReport {
            session: self.session,
            seq: self.seq,
            // The reply was created before its receipt, so this is not later than the real time.
            as_of_ns: at_ns + now_ns.saturating_sub(heard_ns),
            window_ns: length_ns,
            tiers: snapshot.tiers.clone(),
            devices: devices(&earlier, &snapshot),
            volumes: self.volumes(&earlier, &snapshot),
            jobs: self.job_windows(),
            calibrations: self.results.clone(),
            problem: std::mem::take(&mut self.problem),
            appliances: self.nodes.windows(),
            lends: self.lending.window(),
            second_by_hand: snapshot.second.as_ref().is_some_and(|s| s.is_by_hand()),
            problems: snapshot.problems.clone(),
            lease: self.lease.clone(),
        };
        self.reported_ended = self.ended().collect();
        // An unsent report is outdated.
        self.messages.clear();
        self.messages.push_back(Message::Report(Box::new(report)));
        self.began = Some((now_ns, snapshot));
    }

    /// Jobs that have ended.
    fn ended(&self) -> impl Iterator<Item = u32> + '_ {
        let ended = self.jobs.iter().filter(|(_, job)| !job.runs());
        ended.map(|(id, _)| *id)
    }

    /// Reports jobs that have ended since the last report of ended jobs.
    fn tell_of_ended(&mut self) {
        let new: Vec<u32> = self
            .ended()
            .filter(|id| !self.reported_ended.contains(id))
            .collect();
        if new.is_empty() {
            return;
        }
        self.seq += 1;
        let message = JobsReport {
            session: self.session,
            seq: self.seq,
            jobs: new.iter().map(|id| self.jobs[id].window(*id)).collect(),
        };
        self.reported_ended.extend(new);
        self.messages.push_back(Message::JobsEnded(message));
    }

    /// Time until the next snapshot is needed, nanoseconds: the end of a window, of a calibration step or of a throttle. Active
    /// moves need snapshots all the time.
    pub fn due_in_ns(&self, now_ns: u64) -> u64 {
        if matches!(self.link, Link::Apart) {
            return APART_NS;
        }
        let window = self.began.as_ref().map_or(0, |(began_ns, _)| {
            (began_ns + self.window_ns).saturating_sub(now_ns)
        });
        let steps = self.sessions.iter().map(|s| s.due_in_ns(now_ns));
        let limits = self.throttles.due_in_ns(now_ns);
        steps.chain(limits).fold(window, u64::min)
    }

    /// Returns true if activities or orders need more than one snapshot per window.
    pub fn is_busy(&self) -> bool {
        self.jobs.values().any(moves::Job::runs)
            || !self.sessions.is_empty()
            || self.orders.keys().any(|id| !self.jobs.contains_key(id))
            || self.lending.is_busy()
    }

    /// Processes the reply to a registration.
    pub fn welcomed(&mut self, now_ns: u64, welcome: Welcome) {
        self.link = Link::Met {
            at_ns: welcome.at_ns,
            heard_ns: now_ns,
        };
        self.window_ns = welcome.window_ns;
        self.objectives = welcome.objectives;
        self.detail = welcome.detail;
        self.keep_policy(welcome.policy);
        self.began = None;
    }

    /// Processes the reply to a report that was sent at `sent_ns`.
    pub fn ordered(&mut self, now_ns: u64, sent_ns: u64, orders: Orders) {
        if orders.session != self.session || orders.seq <= self.answered || orders.seq > self.seq {
            return; // outdated reply; a newer one was processed
        }
        self.answered = orders.seq;
        if matches!(self.link, Link::Apart) {
            return; // not registered: orders are void
        }
        self.link = Link::Met {
            at_ns: orders.at_ns,
            heard_ns: now_ns,
        };
        self.controller = Some(orders.controller);
        // Counted from the time of sending, which precedes the reply of the controller.
        self.lease_until_ns = sent_ns.saturating_add(orders.lease_ns);
        let by_job = |list: Vec<MoveOrder>| list.into_iter().map(|o| (o.job, o)).collect();
        self.orders = by_job(orders.moves);
        self.cancels = by_job(orders.cancels);
        let (wanted, given_up) = (&self.orders, &self.cancels);
        self.jobs
            .retain(|id, job| wanted.contains_key(id) || given_up.contains_key(id) || job.runs());
        self.reported_ended.retain(|id| self.jobs.contains_key(id));
        self.results
            .retain(|r| !orders.calibrations_taken.contains(&r.id));
        self.objectives = orders.objectives;
        self.keep_policy(orders.policy);
        self.detail = orders.detail;
        self.throttles.wanted(sent_ns, orders.throttles);
        self.reuse.wanted(&orders.remedies.curves);
        self.access = orders.remedies.access.iter().cloned().collect();
        self.nodes.wanted(&orders.remedies);
        self.lending.wanted(&orders.remedies);
        self.remedies.wanted(orders.remedies);
        self.wanted_sessions = orders.calibrations;
        self.end_unwanted_sessions();
    }

    /// Limits that the array enforces for its operators, from the controller; none before its first reply.
    pub fn policy(&self) -> Option<&ArrayPolicy> {
        self.policy.as_ref()
    }

    /// Objectives by class, and the time until which they are valid: the lease of their orders.
    pub fn objectives(&self) -> (&[ClassObjective], u64) {
        (&self.objectives, self.orders_until_ns())
    }

    fn keep_policy(&mut self, said: Option<ArrayPolicy>) {
        if said.is_some() {
            self.policy = said;
        }
    }

    /// Processes the rejection of a message.
    pub fn refused(&mut self, refusal: &WireRefusal) {
        match refusal {
            WireRefusal::Register => self.part(),
            WireRefusal::Stale { .. } => {}
            WireRefusal::Protocol { .. } | WireRefusal::Nonsense { .. } => {
                self.add_warning(refusal.to_string());
                self.part();
            }
        }
    }

    /// Ends the session; the agent registers again. Orders are void until new ones arrive.
    fn part(&mut self) {
        self.link = Link::Apart;
        self.lease_until_ns = 0;
        self.messages.clear();
    }

    /// Records the result of an action.
    pub fn done(&mut self, action: &AgentAction, result: Result<(), ActionError>) {
        let Err(error) = result else {
            return self.remedies.done(action);
        };
        match action {
            AgentAction::StartMove(order) => {
                self.jobs.insert(order.job, moves::Job::refused(error));
            }
            AgentAction::CancelMove { volume } => {
                let why = error.why;
                self.add_warning(format!("cannot cancel the move of {volume}: {why}"));
            }
            AgentAction::Inject { volume, .. } => self.cut_off(volume, &error.why),
            AgentAction::Throttle { volume, .. } => self.not_limited(volume, error.why),
            AgentAction::LendCache { .. }
            | AgentAction::Mirror { .. }
            | AgentAction::StopMirror { .. } => self.not_answered(action, &error.why),
            AgentAction::UseNode { id, .. } => self.nodes.refused(*id, &error.why),
            // The next beat tries again.
            AgentAction::StopNode { .. } => {}
        }
    }

    fn job_windows(&self) -> Vec<JobWindow> {
        let known = self.jobs.iter();
        known.map(|(id, job)| job.window(*id)).collect()
    }

    fn volumes(&mut self, earlier: &Snapshot, now: &Snapshot) -> Vec<VolumeWindow> {
        let partly = self.throttles.end_window(now);
        // Both are in the array's order, so the same position is tried first.
        let before = |i: usize, name: &str| {
            let same = earlier.volumes.get(i).filter(|v| v.name == name);
            same.or_else(|| earlier.volumes.iter().find(|v| v.name == name))
        };
        let volumes = now.volumes.iter().enumerate();
        volumes
            .map(|(i, v)| {
                let (extents, access) = self.extent_windows(v);
                VolumeWindow {
                    name: v.name.clone(),
                    vm: None,
                    class: v.class.clone(),
                    size_bytes: v.size_bytes,
                    home: v.home.clone(),
                    placed: v.placed.clone(),
                    movable: v.movable,
                    bound: v.bound.clone(),
                    by_hand: v.by_hand.clone(),
                    moving: v.moving.clone(),
                    calibrating: self.sessions.iter().any(|s| s.is_on(&v.name)),
                    sample: before(i, &v.name).and_then(|old| v.sample_since(old)),
                    throttle: v.throttle,
                    // The load of a volume that was throttled for a part of the window is unknown.
                    load: before(i, &v.name)
                        .filter(|_| !partly.contains(&v.name))
                        .and_then(|old| v.load_since(old)),
                    extents,
                    mirror: v.can_mirror.then(|| MirrorWindow {
                        copies: v.mirror.as_ref().map(|m| CopiesWindow {
                            device: m.device.clone(),
                            bytes: m.bytes,
                            read_share: m.read_share,
                            by_hand: m.left_ns.is_none(),
                        }),
                        access,
                    }),
                    cache: v.cache.map(|c| CacheWindow {
                        pool: c.pool,
                        pool_bytes: c.pool_bytes,
                        page_bytes: c.page_bytes,
                        in_parts: c.in_parts,
                        given_bytes: c.given_bytes,
                        lent_bytes: c.lent.map(|(bytes, _)| bytes),
                        curve: self.reuse.curve(&v.name),
                    }),
                    node: v.node.clone(),
                }
            })
            .collect()
    }
}

fn devices(earlier: &Snapshot, now: &Snapshot) -> Vec<DeviceWindow> {
    let before = |name: &str| earlier.devices.iter().find(|d| d.name == name);
    let devices = now.devices.iter();
    devices
        .map(|d| DeviceWindow {
            name: d.name.clone(),
            tier: d.tier.clone(),
            size_bytes: d.size_bytes,
            used_bytes: d.used_bytes,
            emulate: d.emulate.clone(),
            connected: d.connected,
            place: d.place.clone(),
            io: before(&d.name).and_then(|old| d.io_since(old)),
            errors: before(&d.name).map_or(vec![], |old| d.errors_since(old)),
            waf: None,
            node: d.node.clone(),
        })
        .collect()
}
