//! One simulated run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use algo::Rng;
use manager::agent::{Agent, Deed, Message};
use manager::managed::Managed;
use manager::question::{Actor, Answer, Choice, Question};
use manager::recording::{Entry, Replay};
use manager::service::{MessageRefusal, Now, Service};
use manager::settings::{ManagerConfig, Settings};
use manager::store::memory::Fault;
use manager::store::{Change, Store};
use manager::view::JobView;
use manager::wire::{Orders, Welcome, WireRefusal};
use model::Goal;
use model::Mode;
use model::TierState;
use units::Nanos;

use super::array::FakeArray;
use super::store::Outliving;

const BEAT_NS: u64 = 250_000_000;
const SECOND: u64 = 1_000_000_000;
/// Trouble for so long, then peace for so long.
const TROUBLE_NS: u64 = 180 * SECOND;
const PEACE_NS: u64 = 180 * SECOND;
const WINDOW_NS: u64 = SECOND;
const LATE_WINDOWS: u64 = 2;
const LEASE_WINDOWS: u64 = 3;

const CONFIG: &str = r#"
window = "1s"
[[classes]]
name = "gold"
weight = 4.0
latency = "2ms"
[[classes]]
name = "silver"
[policy]
monitor_epoch = "4s"
migration_epoch = "12s"
cooldown = "10s"
hold = 1
space_high = 0.9
copy_bandwidth = "48 MiB/s"
copy_share = 1.0
[modes]
drain = "auto"
rules = "auto"
space = "auto"
latency = "auto"
[watch]
stuck_after = "10s"
give_up_after = "20s"
calibration_budget = 1.0
[strategies.period]
period = "12s"
[strategies.dual-period]
long = "36s"
short = "12s"
[strategies.adaptive-period]
slot = "12s"
season = "60s"
[strategies.autotiering.calibration]
levels = 3
windows = 1
window = "500ms"
min_ios = 20
min_ios_low_rate = 10
window_max = "2s"
"#;

/// What a controller may be started with.
const STRATEGIES: [&str; 6] = [
    "autotiering",
    "idt",
    "period",
    "dual-period",
    "adaptive-period",
    "autotiering",
];

/// What happened, to see that something did.
#[derive(Debug, Default)]
pub struct Sums {
    pub moves_begun: u64,
    pub moves_done: u64,
    /// Of these, of some extents.
    pub extents_done: u64,
    pub adopted: u64,
    pub lost: u64,
    pub late: u64,
    pub kills: u64,
    pub calibrations: u64,
    pub decisions: u64,
    pub stale_refused: u64,
    pub told_at_once: u64,
    pub made_again: u64,
    pub store_failures: u64,
    pub full: u64,
}

impl Sums {
    pub fn add(&mut self, other: &Sums) {
        self.moves_begun += other.moves_begun;
        self.moves_done += other.moves_done;
        self.extents_done += other.extents_done;
        self.adopted += other.adopted;
        self.lost += other.lost;
        self.late += other.late;
        self.kills += other.kills;
        self.calibrations += other.calibrations;
        self.decisions += other.decisions;
        self.stale_refused += other.stale_refused;
        self.told_at_once += other.told_at_once;
        self.made_again += other.made_again;
        self.store_failures += other.store_failures;
        self.full += other.full;
    }
}

enum Packet {
    ToController {
        host: usize,
        sent_ns: u64,
        message: Message,
    },
    Welcome {
        host: usize,
        life: u64,
        welcome: Welcome,
    },
    Orders {
        host: usize,
        life: u64,
        sent_ns: u64,
        orders: Orders,
    },
    Refused {
        host: usize,
        life: u64,
        refusal: WireRefusal,
    },
}

struct Host {
    name: String,
    array: FakeArray,
    agent: Option<Agent>,
    /// Number of the agent's life: an answer to an earlier one has nobody to go to.
    life: u64,
    back_ns: u64,
    /// Until when orders that the agent has may begin each job, and the newest orders' sending.
    leases: BTreeMap<u32, u64>,
    /// Number and jobs of the newest answer that the agent has had.
    newest: (u64, Vec<u32>),
    /// When each volume last had data on a device.
    seen: BTreeMap<(String, String), u64>,
}

struct World {
    rng: Rng,
    now_ns: u64,
    hosts: Vec<Host>,
    controller: Option<Managed<Outliving>>,
    /// What survives the controller.
    store: Outliving,
    controller_back_ns: u64,
    /// The controller's clock is this much ahead of the true one, and never falls.
    ahead_ns: u64,
    unix_ms: u64,
    packets: BTreeMap<(u64, u64), Packet>,
    packet_number: u64,
    /// The network is cut until then.
    cut_until_ns: u64,
    /// When the report that the controller is taking in was sent.
    at_hand_ns: Option<u64>,
    /// What controllers were told, of some worlds: it takes as long as everything else.
    recording: Option<Arc<Mutex<Vec<String>>>>,
    sums: Sums,
}

pub fn run(seed: u64) -> Sums {
    let mut world = World::new(seed);
    world.recording = seed.is_multiple_of(4).then(Default::default);
    while world.now_ns < TROUBLE_NS + PEACE_NS {
        world.step();
    }
    world.all_is_well();
    world.made_again();
    world.sums
}

fn settings(strategy: &str) -> Settings {
    let text = format!("strategy = \"{strategy}\"\n{CONFIG}");
    let (words, text) =
        config::read::<ManagerConfig>("test.toml", &text).expect("it is well formed");
    Settings::new(text, words).expect("it makes sense")
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 0xD15C);
        let mut below = |n: u64| rng.below(n);
        let hosts = (0..1 + below(2))
            .map(|i| Host {
                name: format!("h{i}"),
                array: FakeArray::new(8, &mut below),
                agent: None,
                life: 0,
                back_ns: 0,
                leases: BTreeMap::new(),
                newest: (0, vec![]),
                seen: BTreeMap::new(),
            })
            .collect();
        Self {
            rng,
            now_ns: 0,
            hosts,
            controller: None,
            store: Outliving::default(),
            controller_back_ns: 0,
            ahead_ns: 0,
            unix_ms: 1_790_000_000_000,
            packets: BTreeMap::new(),
            packet_number: 0,
            cut_until_ns: 0,
            at_hand_ns: None,
            recording: None,
            sums: Sums::default(),
        }
    }

    fn chance(&mut self, of: u64) -> bool {
        self.now_ns < TROUBLE_NS && self.rng.below(of) == 0
    }

    fn now(&self) -> Now {
        Now {
            at: Nanos(self.now_ns + self.ahead_ns),
            unix_ms: self.unix_ms + self.now_ns / 1_000_000,
        }
    }

    fn step(&mut self) {
        self.now_ns += BEAT_NS;
        self.trouble();
        self.controller_lives();
        for h in 0..self.hosts.len() {
            self.hosts[h].array.step(BEAT_NS);
            self.hosts[h].see(self.now_ns);
            self.agent_beats(h);
        }
        while let Some(entry) = self
            .packets
            .first_entry()
            .filter(|e| e.key().0 <= self.now_ns)
        {
            let packet = entry.remove();
            self.deliver(packet);
        }
        let now = self.now();
        if let Some(controller) = &mut self.controller {
            controller.tick(now);
        }
        self.check_decisions();
    }

    fn trouble(&mut self) {
        if self.chance(300) {
            self.controller = None;
            self.controller_back_ns = self.now_ns + self.rng.below(20) * SECOND;
            self.sums.kills += 1;
        }
        if self.chance(200) {
            self.cut_until_ns = self.now_ns + self.rng.below(10) * SECOND;
        }
        if self.chance(400) {
            // The machine was suspended, or the wall clock was set: after a restart the controller's time may be far ahead.
            self.ahead_ns += self.rng.below(600) * SECOND;
        }
        if self.chance(400) {
            self.unix_ms = self
                .unix_ms
                .wrapping_add_signed(self.rng.below(20_000_000) as i64 - 10_000_000);
        }
        if self.chance(250) {
            let fails = self.rng.below(2) == 0;
            if let Some(controller) = &mut self.controller {
                controller
                    .store()
                    .set_fault(if fails { Fault::Writes } else { Fault::None });
                self.sums.store_failures += u64::from(fails);
            }
        }
        if self.now_ns >= TROUBLE_NS
            && let Some(controller) = &mut self.controller
        {
            controller.store().set_fault(Fault::None);
        }
        for h in 0..self.hosts.len() {
            if self.chance(300) {
                self.hosts[h].agent = None;
                self.hosts[h].back_ns = self.now_ns + self.rng.below(15) * SECOND;
                self.hosts[h].leases.clear();
                self.hosts[h].newest = (0, vec![]);
                self.sums.kills += 1;
            }
            if self.chance(300) {
                let for_ns = self.rng.below(40) * SECOND;
                self.hosts[h].array.frozen_until_ns = self.now_ns + for_ns;
            }
            if self.chance(100) {
                // Guests write where they have not written before; tiers run full.
                let volumes = self.hosts[h].array.volumes.len() as u64;
                let v = self.rng.below(volumes) as usize;
                self.sums.full += u64::from(self.hosts[h].array.grow(v, 1 + self.rng.below(6)));
            }
            if self.chance(60) {
                let volumes = self.hosts[h].array.volumes.len() as u64;
                let v = self.rng.below(volumes) as usize;
                self.hosts[h].array.volumes[v].rate = (20 << self.rng.below(8)) as f64;
                self.hosts[h].array.volumes[v].hot = self.rng.below(10) as usize;
            }
            if self.chance(300) {
                let volumes = self.hosts[h].array.volumes.len() as u64;
                let v = self.rng.below(volumes) as usize;
                self.hosts[h].array.volumes[v].forget_heat();
            }
        }
        if self.chance(25) {
            self.operator();
        }
    }

    fn operator(&mut self) {
        let host = self.rng.below(self.hosts.len() as u64) as usize;
        let name = self.hosts[host].name.clone();
        let tier = format!(
            "{name}/{}",
            ["fast", "mid", "slow"][self.rng.below(3) as usize]
        );
        let volumes = &self.hosts[host].array.volumes;
        let volume = &volumes[self.rng.below(volumes.len() as u64) as usize].name;
        let volume = format!("{name}/{volume}");
        let mode =
            [Mode::Off, Mode::Recommend, Mode::Partial, Mode::Auto][self.rng.below(4) as usize];
        let goal =
            [Goal::Drain, Goal::Rules, Goal::Space, Goal::Latency][self.rng.below(4) as usize];
        let generation = self.rng.below(20);
        let moves = (self.rng.below(2) == 0).then(|| vec![self.rng.below(4) as u32]);
        let choice = Choice {
            host: Some(name.clone()),
            generation,
            moves,
        };
        let question = match self.rng.below(9) {
            0 => Question::Pause,
            1 | 2 => Question::Resume,
            3 => Question::CancelJob {
                host: Some(name),
                job: self.rng.below(20) as u32,
            },
            4 => {
                let state = [TierState::Open, TierState::Cordoned, TierState::Draining]
                    [self.rng.below(3) as usize];
                Question::SetTier { tier, state }
            }
            5 => Question::Pin {
                volume,
                tier: (self.rng.below(2) == 0).then_some(tier),
            },
            6 => Question::SetMode { goal, mode },
            7 => Question::Apply(choice),
            _ => Question::Reject(choice),
        };
        let now = self.now();
        if let Some(controller) = &mut self.controller {
            let _ = controller.ask(now, &Actor("operator".into()), question);
        }
    }

    /// Whoever is told the same decides the same.
    fn made_again(&mut self) {
        let Some(recording) = self.recording.take() else {
            return;
        };
        let mut replay = Replay::default();
        for (i, line) in recording.lock().unwrap().iter().enumerate() {
            let made = replay
                .line(line)
                .unwrap_or_else(|why| panic!("line {}: {why}", i + 1));
            if let Some(made) = made {
                assert!(made.same, "line {}: {made:?}", i + 1);
                self.sums.made_again += 1;
            }
        }
        assert_eq!(replay.surplus(), 0);
    }

    fn controller_lives(&mut self) {
        if self.controller.is_none() && self.now_ns >= self.controller_back_ns {
            self.store.set_fault(Fault::None);
            let strategy = STRATEGIES[self.rng.below(STRATEGIES.len() as u64) as usize];
            let settings = settings(strategy);
            let unix_ms = self.now().unix_ms;
            let mut made =
                Managed::new(settings, self.store.clone(), unix_ms).expect("the store works");
            if let Some(recording) = self.recording.clone() {
                let recorder = move |entry: &Entry| {
                    let line = serde_json::to_string(entry).expect("plain data");
                    recording.lock().unwrap().push(line);
                };
                made.record(Box::new(recorder)).expect("the store works");
            }
            // Its clock goes on where the store and the wall clock say that it was.
            self.ahead_ns = made.time().0.saturating_sub(self.now_ns);
            self.controller = Some(made);
        }
    }

    fn agent_beats(&mut self, h: usize) {
        let (now_ns, life) = (self.now_ns, self.hosts[h].life);
        let tells_extents = !self.chance(20);
        let host = &mut self.hosts[h];
        if host.agent.is_none() && now_ns >= host.back_ns {
            host.life = life + 1;
            // Moves that the agent before it began are taken on.
            let moving = host.array.volumes.iter().filter(|v| v.moving.is_some());
            self.sums.adopted += moving.count() as u64;
            host.agent = Some(Agent::new(session(h, host.life), "test"));
        }
        let mut snapshot = host.array.snapshot();
        let Some(agent) = &mut host.agent else { return };
        let wanted = agent.wanted_extents(now_ns, &snapshot);
        if tells_extents {
            host.array.look_at_extents(wanted, &mut snapshot);
        }
        agent.beat(now_ns, snapshot);
        let mut messages = vec![];
        while let Some(deed) = agent.poll_deed() {
            if let Deed::StartMove(order) = &deed {
                // Alive: ordered by an answer whose lease has not run out.
                let lease = host.leases.get(&order.job).copied().unwrap_or(0);
                assert!(
                    now_ns < lease,
                    "job {} begins at {now_ns}, its lease ended at {lease}",
                    order.job
                );
                assert!(
                    host.newest.1.contains(&order.job),
                    "job {} begins, and the newest orders do not name it",
                    order.job
                );
                self.sums.moves_begun += 1;
            }
            let result = host.array.carry_out(&deed);
            agent.done(&deed, result);
        }
        while let Some(message) = agent.poll_message() {
            messages.push(message);
        }
        for message in messages {
            self.send(Packet::ToController {
                host: h,
                sent_ns: now_ns,
                message,
            });
        }
    }

    fn send(&mut self, packet: Packet) {
        if self.chance(12) {
            self.sums.lost += 1;
            return;
        }
        let mut delay_ns = 1_000_000 + self.rng.below(50_000_000);
        if self.chance(15) {
            delay_ns += self.rng.below(12) * SECOND;
            self.sums.late += 1;
        }
        if self.now_ns < self.cut_until_ns {
            // What was under way in a cut network arrives all at once, oldest first.
            delay_ns = delay_ns.max(self.cut_until_ns - self.now_ns);
        }
        self.packet_number += 1;
        self.packets
            .insert((self.now_ns + delay_ns, self.packet_number), packet);
    }

    fn deliver(&mut self, packet: Packet) {
        let now_ns = self.now_ns;
        match packet {
            Packet::ToController {
                host,
                sent_ns,
                message,
            } => self.ask_controller(host, sent_ns, message),
            Packet::Welcome {
                host,
                life,
                welcome,
            } => {
                if let Some(agent) = self.hosts[host].agent_of(life) {
                    agent.welcomed(now_ns, welcome);
                }
            }
            Packet::Orders {
                host,
                life,
                sent_ns,
                orders,
            } => {
                let lease_ns = sent_ns + orders.lease_ns;
                assert_eq!(orders.lease_ns, LEASE_WINDOWS * WINDOW_NS);
                let jobs: Vec<u32> = orders.moves.iter().map(|m| m.job).collect();
                let seq = orders.seq;
                // An answer to the agent before this one is nothing to it.
                let own = orders.session == session(host, self.hosts[host].life);
                if let Some(agent) = self.hosts[host].agent_of(life) {
                    agent.ordered(now_ns, sent_ns, orders);
                    if own && seq > self.hosts[host].newest.0 {
                        self.hosts[host].newest = (seq, jobs.clone());
                    }
                    for job in jobs {
                        let lease = self.hosts[host].leases.entry(job).or_default();
                        *lease = (*lease).max(lease_ns);
                    }
                }
            }
            Packet::Refused {
                host,
                life,
                refusal,
            } => {
                if let Some(agent) = self.hosts[host].agent_of(life) {
                    agent.refused(&refusal);
                }
            }
        }
    }

    fn ask_controller(&mut self, host: usize, sent_ns: u64, message: Message) {
        let now = self.now();
        let (name, life) = (self.hosts[host].name.clone(), self.hosts[host].life);
        let twice = self.chance(40);
        let Some(controller) = &mut self.controller else {
            return;
        };
        let refused = |refusal: MessageRefusal| match refusal {
            MessageRefusal::Wire(refusal) => Some(Packet::Refused {
                host,
                life,
                refusal,
            }),
            MessageRefusal::Unavailable(_) => None,
        };
        self.at_hand_ns = Some(sent_ns);
        let answer = match message {
            Message::Register(register) => match controller.register(now, &name, register) {
                Ok(welcome) => Some(Packet::Welcome {
                    host,
                    life,
                    welcome,
                }),
                Err(e) => refused(e),
            },
            Message::Report(report) => {
                if twice {
                    let _ = controller.report(now, &name, (*report).clone());
                }
                match controller.report(now, &name, *report) {
                    Ok(orders) => {
                        check_orders(controller.store(), &name, &orders);
                        Some(Packet::Orders {
                            host,
                            life,
                            sent_ns,
                            orders,
                        })
                    }
                    Err(e) => {
                        if matches!(&e, MessageRefusal::Wire(WireRefusal::Stale { .. })) {
                            self.sums.stale_refused += 1;
                        }
                        refused(e)
                    }
                }
            }
            Message::JobsEnded(jobs) => {
                if twice {
                    let _ = controller.jobs_ended(now, &name, jobs.clone());
                }
                match controller.jobs_ended(now, &name, jobs) {
                    Ok(orders) => {
                        self.sums.told_at_once += 1;
                        check_orders(controller.store(), &name, &orders);
                        Some(Packet::Orders {
                            host,
                            life,
                            sent_ns,
                            orders,
                        })
                    }
                    Err(e) => refused(e),
                }
            }
        };
        self.check_decisions();
        self.at_hand_ns = None;
        if let Some(packet) = answer {
            self.send(packet);
        }
    }

    /// Decisions are made on what is fresh: the epoch ended with the window of the report at hand.
    fn check_decisions(&mut self) {
        for change in self.store.take_log() {
            match change {
                Change::Decision(decision) => {
                    self.sums.decisions += 1;
                    // Some of them: it takes as long as everything else together.
                    if self.sums.decisions.is_multiple_of(8) {
                        decided_again(&decision);
                    }
                    let facts: model::Facts =
                        serde_json::from_value(decision.facts).expect("facts");
                    let plan: model::Plan = serde_json::from_value(decision.plan).expect("a plan");
                    let policy: model::Policy =
                        serde_json::from_value(decision.policy).expect("a policy");
                    assert_eq!(
                        planner::lint(&plan, &facts, &policy),
                        [],
                        "the plan keeps the rules"
                    );
                    let host = self
                        .hosts
                        .iter()
                        .find(|h| h.name == decision.host)
                        .expect("one of ours");
                    check_fresh(host, &facts, self.now_ns);
                    let sent_ns = self
                        .at_hand_ns
                        .expect("decisions are made when a report is taken");
                    let age_ns = self.now_ns - sent_ns;
                    assert!(
                        age_ns <= LATE_WINDOWS * WINDOW_NS,
                        "decided on a report that was {age_ns} ns on its way"
                    );
                }
                Change::Job(JobView { state, extents, .. }) if state == "done" => {
                    self.sums.moves_done += 1;
                    self.sums.extents_done += u64::from(extents.is_some());
                }
                Change::Job(job) if job.state == "active" => {
                    let plan = self.store.decision(&job.host, Some(job.generation));
                    let plan = plan.expect("it can be read").expect("it is there");
                    let age_ns = job.started_ns.expect("it begins") - plan.at_ns;
                    // Two migration epochs, and the report that they end with.
                    assert!(
                        age_ns <= 24 * SECOND + WINDOW_NS,
                        "job {} begins by a plan that is {age_ns} ns old",
                        job.job
                    );
                }
                _ => {}
            }
        }
    }

    /// After a long peace: nothing is stuck, injected, or half done.
    fn all_is_well(&mut self) {
        let now = self.now();
        let controller = self.controller.as_mut().expect("nobody kills it any more");
        let counted = controller.ask(now, &Actor("test".into()), Question::Counters);
        if let Ok(Answer::Counters(counters)) = counted {
            self.sums.calibrations += counters.calibrations;
        }
        let Ok(Answer::Jobs(jobs)) =
            controller.ask(now, &Actor("test".into()), Question::Jobs { limit: 10_000 })
        else {
            panic!("it answers")
        };
        for host in &mut self.hosts {
            host.array.check();
            for v in &host.array.volumes {
                let Some(moving) = &v.moving else { continue };
                // What moves is known to the controller.
                let to = &host.array.devices[moving.to].name;
                let known = jobs
                    .iter()
                    .any(|j| j.host == host.name && j.volume == v.name && j.to == *to)
                    && (moving.extents.is_none()
                        || jobs
                            .iter()
                            .any(|j| j.volume == v.name && j.extents == moving.extents));
                assert!(known, "{} moves to {to}, and nobody knows why", v.name);
            }
        }
        for job in jobs.iter().filter(|j| j.state == "failed") {
            let why = job.why.clone().unwrap_or_default();
            let own = format!("being moved to {} already", job.to);
            assert!(
                !why.contains(&own),
                "{job:?}: its own move was taken for another's"
            );
        }
        let old = now.at.0.saturating_sub(60 * SECOND);
        for job in &jobs {
            let ended = ["done", "cancelled", "failed"].contains(&job.state.as_str());
            if job.started_ns.is_some_and(|s| s < old) {
                assert!(ended, "{job:?} never ended");
            }
        }
        // A volume that a finished job moved last is where the job put it.
        let mut last: BTreeMap<(String, String), &JobView> = BTreeMap::new();
        for job in jobs.iter().filter(|j| j.started_ns.is_some()) {
            let key = (job.host.clone(), job.volume.clone());
            let newer = last.get(&key).is_none_or(|l| l.ended_ns < job.ended_ns);
            if newer {
                last.insert(key, job);
            }
        }
        for ((host, volume), job) in last {
            if job.state != "done" {
                continue;
            }
            let host = self
                .hosts
                .iter()
                .find(|h| h.name == host)
                .expect("one of ours");
            let v = host
                .array
                .volumes
                .iter()
                .find(|v| v.name == volume)
                .expect("one of its own");
            // What its guest wrote since then may be on another device of the tier.
            let on = |d: usize| host.array.devices[d].tier == job.to_tier;
            let named = |e: usize| {
                let extents = job.extents.as_ref();
                extents.is_none_or(|all| all.contains(e as u32))
            };
            if v.moving.is_none() {
                let mut places = v.extents.iter().enumerate();
                assert!(
                    places.all(|(e, place)| !named(e) || on(place.0)),
                    "job {} is done, {volume} is not on {}",
                    job.job,
                    job.to_tier
                );
            }
        }
        let injecting = self
            .hosts
            .iter()
            .any(|h| h.agent.is_none() && h.array.injecting());
        assert!(!injecting, "nobody looks after injected latency");
    }
}

impl Host {
    /// Remembers where everything is.
    fn see(&mut self, now_ns: u64) {
        for v in &self.array.volumes {
            for (device, _) in &v.extents {
                let place = (v.name.clone(), self.array.devices[*device].name.clone());
                self.seen.insert(place, now_ns);
            }
        }
    }

    fn agent_of(&mut self, life: u64) -> Option<&mut Agent> {
        (self.life == life).then_some(self.agent.as_mut()).flatten()
    }
}

/// Another number for each life of each agent.
fn session(host: usize, life: u64) -> u64 {
    1000 * (host as u64 + 1) + life
}

/// Every order is of a job that the committed store knows as begun, from a plan that it has.
fn check_orders(store: &mut Outliving, host: &str, orders: &Orders) {
    for order in &orders.moves {
        let jobs = store.jobs(10_000).expect("it can be read");
        let job = jobs.iter().find(|j| j.host == host && j.job == order.job);
        let job =
            job.unwrap_or_else(|| panic!("job {} was ordered and never committed", order.job));
        assert!(
            job.state == "active",
            "job {} is ordered and {}",
            order.job,
            job.state
        );
        let plan = store
            .decision(host, Some(job.generation))
            .expect("it can be read");
        assert!(
            plan.is_some(),
            "job {} is of plan {}, which is not there",
            order.job,
            job.generation
        );
    }
}

/// What the facts say of places was true a short time before.
fn check_fresh(host: &Host, facts: &model::Facts, now_ns: u64) {
    let oldest = (LATE_WINDOWS + 2) * WINDOW_NS;
    for v in &facts.volumes {
        let device = facts.topology.device(v.device).name.clone();
        let seen = host.seen.get(&(v.name.clone(), device.clone()));
        let fresh = seen.is_some_and(|s| s + oldest >= now_ns);
        assert!(
            fresh,
            "{} was said to be on {device}, and has not been there lately",
            v.name
        );
    }
}

/// The exported scenario comes to the very same plan.
fn decided_again(decision: &manager::store::StoredDecision) {
    // Decisions with the strategy's goals switched off are by another one.
    let strategy = match decision.strategy.as_str() {
        "noop" => STRATEGIES[0],
        other => other,
    };
    let text = manager::export::scenario(decision, &settings(strategy));
    let text = text.expect("its inputs are kept");
    let file = sim::ScenarioFile::parse("exported.toml", &text).expect("an export is a scenario");
    let (facts, again) = file.decide_again().expect("it was recorded");
    let facts = serde_json::to_value(facts).expect("plain data");
    assert_eq!(facts, decision.facts, "the facts are the same");
    let plan = serde_json::to_string(&again.plan).expect("plain data");
    let before: model::Plan = serde_json::from_value(decision.plan.clone()).expect("a plan");
    let before = serde_json::to_string(&before).expect("plain data");
    assert_eq!(plan, before, "the plan is the same, byte for byte");
}
