//! An agent without its edges: from snapshots of one array to reports, from orders to actions.
//!
//! ```text
//!   array ──snapshot──▶ beat ──▶ actions: start, give up, … ──▶ array
//!                         │
//!                         └─ a window has ended ──▶ report ──▶ controller ──▶ orders ─┐
//!                         ▲                                                           │
//!                         └───────────────── what is to be going on ◀─────────────────┘
//! ```
//!
//! It remembers nothing over a restart: the array knows what is being moved, and the orders name all that is to be going on. A
//! move that is under way already is adopted; one whose volume is on its target is done; one that was never begun is begun.
//! Orders run out: an agent that hears nothing begins nothing new. What is under way goes on, since data is safe in
//! every phase of a move. Injected latency ends by itself in the array shortly after the agent stops renewing it, and limits when their time is over.
//!
//! Several beats make a window. Times are the agent's own, nanoseconds from any start.

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

/// Most warnings that one report carries. Protects the controller from an array that fails all the time.
const PROBLEM_MAX: usize = 16;

/// Time between two attempts to register.
const APART_NS: u64 = 500_000_000;

/// Something to do at the array.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentAction {
    /// Begin a move; the result tells whether it began.
    StartMove(MoveOrder),
    /// Give the move of a volume up.
    CancelMove { volume: String },
    /// Hold the answers of a volume back by this from now on, for so long at most. Zero ends it.
    Inject {
        volume: String,
        /// By this much.
        delay_ns: u64,
        /// For so long, unless it is said again.
        lasting_ns: u64,
    },
    /// Let a volume do no more than this, or as much as before: what it was limited to by the last one is over.
    Throttle {
        volume: String,
        /// To what; it ends by itself when its time is over.
        to: Option<Throttle>,
    },
    /// Let a volume have so much of the cache for itself for a time, or again what it was given by hand.
    LendCache {
        volume: String,
        /// How much.
        bytes: Option<u64>,
        /// For so long, unless it is said again.
        lasting_ns: u64,
    },
    /// Have second copies of extents of a volume made, or those kept that were made by such an order before.
    Mirror {
        volume: String,
        /// The device, and its tier.
        device: String,
        tier: String,
        extents: ExtentRanges,
        /// At most so fast.
        rate_bytes_per_s: u64,
        /// For so long, unless it is said again.
        lasting_ns: u64,
    },
    /// Give second copies up that were made by such an order.
    StopMirror { volume: String },
    /// Have the second level of the cache be memory of a node, for one volume, as the answer of this number.
    UseNode {
        id: u64,
        volume: String,
        /// Whose memory it is.
        server: String,
        /// An NBD URI.
        at: String,
        /// How much of it.
        bytes: u64,
        /// What it reads of the volume before its guests ask for it.
        warm: Warm,
    },
    /// Give the second level up, if it is that answer's.
    StopNode { id: u64 },
}

/// The reason why an action was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionError {
    pub why: String,
    /// True if a repetition is refused, too, until an operator changes something.
    pub permanent: bool,
}

impl ActionError {
    /// A refusal that lasts until somebody changes something.
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

/// Something to say to the controller.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// First of all.
    Register(Register),
    /// A window.
    Report(Box<WindowReport>),
    /// Jobs have ended in the middle of a window.
    JobsEnded(JobsReport),
}

/// How the controller and this agent stand.
#[derive(Debug)]
enum Link {
    /// Not registered.
    Apart,
    /// Registered: the controller's time when it last answered, and when that was.
    Met { at_ns: u64, heard_ns: u64 },
}

#[derive(Debug)]
pub struct Agent {
    session: u64,
    version: String,
    link: Link,
    window_ns: u64,
    seq: u64,
    /// The last report that was answered.
    answered: u64,
    /// Nothing new is begun from here on.
    lease_until_ns: u64,
    /// The controller whose orders they are.
    controller: Option<ControllerId>,
    /// The array's lease after the last claim.
    lease: Option<LeaseStatus>,
    /// Why it could not be claimed, if so.
    unclaimed: Option<String>,
    /// The snapshot that the window began with, and when.
    began: Option<(u64, Snapshot)>,
    orders: BTreeMap<u32, MoveOrder>,
    cancels: BTreeMap<u32, MoveOrder>,
    jobs: BTreeMap<u32, moves::Job>,
    /// Jobs of which the controller was told that they ended.
    reported_ended: BTreeSet<u32>,
    wanted_sessions: Vec<CalibrationOrder>,
    sessions: Vec<sessions::Session>,
    throttles: throttles::Throttles,
    remedies: remedies::Ordered,
    nodes: appliances::Nodes,
    lending: lending::Lending,
    reuse: reuse::Watched,
    results: Vec<CalibrationResult>,
    objectives: Vec<ClassObjective>,
    policy: Option<ArrayPolicy>,
    detail: Detail,
    /// Volumes of whose extents reports are to tell what is asked of them.
    access: BTreeSet<String>,
    /// Counters of extents, by volume.
    heat: BTreeMap<String, extents::Watched>,
    problem: Vec<String>,
    actions: VecDeque<AgentAction>,
    messages: VecDeque<Message>,
}

impl Agent {
    /// One that has just started; `session` is another number for each life.
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
            remedies: remedies::Ordered::default(),
            nodes: appliances::Nodes::default(),
            lending: lending::Lending::default(),
            reuse: reuse::Watched::default(),
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

    /// The next thing to do at the array. Its result goes to [`Agent::done`].
    pub fn poll_action(&mut self) -> Option<AgentAction> {
        self.actions.pop_front()
    }

    /// The next thing to say to the controller.
    pub fn poll_message(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }

    /// The claim of the array's lease that the newest orders need, and for how long; none without
    /// orders.
    pub fn claim(&self, now_ns: u64) -> Option<(ControllerId, Nanos)> {
        let left_ns = self.lease_until_ns.saturating_sub(now_ns);
        self.controller
            .filter(|_| left_ns > 0)
            .map(|controller| (controller, Nanos(left_ns)))
    }

    /// The array's lease after a claim, or why the array has not taken the claim.
    pub fn claimed(&mut self, claimed: Result<LeaseStatus, String>) {
        match claimed {
            Ok(status) => (self.lease, self.unclaimed) = (Some(status), None),
            Err(why) => {
                self.lease = None;
                // Once for each reason: it is claimed with each answer.
                if self.unclaimed.as_ref() != Some(&why) {
                    self.add_warning(format!("the lease of the array cannot be claimed: {why}"));
                    self.unclaimed = Some(why);
                }
            }
        }
    }

    /// The controller whose orders the array carries out, if it is the one of this agent.
    pub fn holder(&self) -> Option<ControllerId> {
        let holder = self.lease.as_ref().map(|l| l.holder.id);
        holder.filter(|_| holder == self.controller)
    }

    /// Time until which something new may be begun; 0 while the array carries out the orders of
    /// another controller.
    fn orders_until_ns(&self) -> u64 {
        self.holder().map_or(0, |_| self.lease_until_ns)
    }

    /// Something that an operator should know, for the next report.
    pub fn add_warning(&mut self, text: String) {
        if self.problem.len() < PROBLEM_MAX && !self.problem.contains(&text) {
            self.problem.push(text);
        }
    }

    /// Looks at the array as it is now. To be called several times per window, after a claim that
    /// is due.
    pub fn beat(&mut self, now_ns: u64, snapshot: Snapshot) {
        self.look_at(now_ns, snapshot);
        if self.holder().is_none() {
            // The array would refuse to give up or to end what another controller has ordered.
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
            // Without a controller, running moves and sessions are still looked after.
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
            // The answer was given before it was heard, so this is not later than the truth.
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
        // A report that could not be sent yet is old by now.
        self.messages.clear();
        self.messages.push_back(Message::Report(Box::new(report)));
        self.began = Some((now_ns, snapshot));
    }

    /// Jobs that have ended.
    fn ended(&self) -> impl Iterator<Item = u32> + '_ {
        let ended = self.jobs.iter().filter(|(_, job)| !job.runs());
        ended.map(|(id, _)| *id)
    }

    /// Tells of jobs that have ended since the controller was last told of any.
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

    /// Time until the array has to be looked at again: the end of a window or of a calibration step. While a move is
    /// under way or ordered there is always something to see.
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

    /// Whether something is going on, or ordered, that wants to be looked at more often than once a window.
    pub fn is_busy(&self) -> bool {
        self.jobs.values().any(moves::Job::runs)
            || !self.sessions.is_empty()
            || self.orders.keys().any(|id| !self.jobs.contains_key(id))
            || self.lending.is_busy()
    }

    /// The controller has taken the agent in.
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

    /// The controller has answered a report that was sent at `sent_ns`.
    pub fn ordered(&mut self, now_ns: u64, sent_ns: u64, orders: Orders) {
        if orders.session != self.session || orders.seq <= self.answered || orders.seq > self.seq {
            return; // an answer from before; what is newer has been taken
        }
        self.answered = orders.seq;
        if matches!(self.link, Link::Apart) {
            return; // void, and so is everything older
        }
        self.link = Link::Met {
            at_ns: orders.at_ns,
            heard_ns: now_ns,
        };
        self.controller = Some(orders.controller);
        // Counted from the sending: the controller thinks of it as given after that.
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

    /// What the array is to hold its operators to, as the controller last said; none until it has.
    pub fn policy(&self) -> Option<&ArrayPolicy> {
        self.policy.as_ref()
    }

    /// Objectives by class, and until when they hold: as long as the orders that they came with.
    pub fn objectives(&self) -> (&[ClassObjective], u64) {
        (&self.objectives, self.orders_until_ns())
    }

    fn keep_policy(&mut self, said: Option<ArrayPolicy>) {
        if said.is_some() {
            self.policy = said;
        }
    }

    /// The controller does not take a message.
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

    /// The session is over: register again. Orders are void until there are new ones.
    fn part(&mut self) {
        self.link = Link::Apart;
        self.lease_until_ns = 0;
        self.messages.clear();
    }

    /// An action was done, or not.
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
            // It is looked at again.
            AgentAction::StopNode { .. } => {}
        }
    }

    fn job_windows(&self) -> Vec<JobWindow> {
        let known = self.jobs.iter();
        known.map(|(id, job)| job.window(*id)).collect()
    }

    fn volumes(&mut self, earlier: &Snapshot, now: &Snapshot) -> Vec<VolumeWindow> {
        let partly = self.throttles.end_window(now);
        // Both are in the array's order, mostly the same: look where it was first.
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
                    // What was limited for a part of a window is unknown.
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
        })
        .collect()
}
