//! Simulated run: hosts, agents, a controller, and their messages.

mod checks;
mod problem;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use algo::Rng;
use config::RemedyMode;
use manager::agent::{Agent, AgentAction, Message};
use manager::managed::ManagedController;
use manager::recording::Entry;
use manager::service::{MessageRefusal, Now, Service};
use manager::settings::{ManagerConfig, Settings};
use manager::store::memory::Fault;
use manager::wire::{Orders, Welcome, WireRefusal};
use model::{ControllerId, LeaseHolder};
use units::Nanos;
use volume::{Lease, LeaseClaim};

use super::machines::EventCounts;
use super::site::Site;
use super::store::PersistentStore;
use super::throttles::Throttles;
use checks::{check_limits, check_orders};

const BEAT_NS: u64 = 250_000_000;
const SECOND: u64 = 1_000_000_000;
/// Length of the time with faults, then of the time without.
const PROBLEM_NS: u64 = 180 * SECOND;
const PEACE_NS: u64 = 180 * SECOND;
/// Time from which guests of crowded hosts reduce their load.
const QUIET_NS: u64 = PROBLEM_NS + PEACE_NS - 60 * SECOND;
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
concurrent_moves_per_device = 2
[modes]
drain = "auto"
rules = "auto"
space = "auto"
latency = "auto"
[[tiers]]
name = "fast"
preset = "pm953"
read_iops = "2000 IOPS"
[[tiers]]
name = "mid"
preset = "pm1633"
read_iops = "2000 IOPS"
[[tiers]]
name = "slow"
preset = "pm863"
read_iops = "2000 IOPS"
[watch]
stuck_after = "10s"
give_up_after = "20s"
calibration_budget = 1.0
[response.workflow]
settle = "4s"
look_again = "8s"
patience = 0.1
[response.workflow.detect]
samples = 2
violating_min = 2
clear_below = 0.6
[response.workflow.release]
samples = 3
cooldown = "5s"
cooldown_max = "10s"
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

/// Strategies of the controller.
const STRATEGIES: [&str; 6] = [
    "autotiering",
    "idt",
    "period",
    "dual-period",
    "adaptive-period",
    "autotiering",
];

/// Counts of events, to check that they occur.
#[derive(Debug, Default)]
pub struct Sums {
    pub moves_begun: u64,
    pub moves_done: u64,
    pub extents_done: u64,
    pub adopted: u64,
    pub lost: u64,
    pub late: u64,
    /// Attempts of a second controller that got the lease of an array, and attempts that were refused.
    pub rivals: u64,
    pub rivals_refused: u64,
    pub kills: u64,
    pub calibrations: u64,
    pub decisions: u64,
    pub stale_refused: u64,
    pub ended_at_once: u64,
    pub made_again: u64,
    pub store_failures: u64,
    pub full: u64,
    pub throttles: u64,
    pub recommended: u64,
    pub answered: u64,
    pub taken_back: u64,
    /// Remedies on hosts of virtual machines against load of a neighbour, then moves as remedies.
    pub answered_there: u64,
    pub moved: u64,
    /// Events on hosts of virtual machines.
    pub machines: EventCounts,
}

impl Sums {
    pub fn add(&mut self, other: &Sums) {
        self.moves_begun += other.moves_begun;
        self.moves_done += other.moves_done;
        self.extents_done += other.extents_done;
        self.adopted += other.adopted;
        self.lost += other.lost;
        self.late += other.late;
        self.rivals += other.rivals;
        self.rivals_refused += other.rivals_refused;
        self.kills += other.kills;
        self.calibrations += other.calibrations;
        self.decisions += other.decisions;
        self.stale_refused += other.stale_refused;
        self.ended_at_once += other.ended_at_once;
        self.made_again += other.made_again;
        self.store_failures += other.store_failures;
        self.full += other.full;
        self.throttles += other.throttles;
        self.recommended += other.recommended;
        self.answered += other.answered;
        self.taken_back += other.taken_back;
        self.answered_there += other.answered_there;
        self.moved += other.moved;
        self.machines.add(&other.machines);
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
        orders: Box<Orders>,
    },
    Refused {
        host: usize,
        life: u64,
        refusal: WireRefusal,
    },
}

struct Host {
    name: String,
    site: Site,
    agent: Option<Agent>,
    /// Number of the agent's process. A reply to an earlier one is dropped.
    life: u64,
    back_ns: u64,
    /// End of each job's lease by the agent's orders, within which the job may start.
    leases: BTreeMap<u32, u64>,
    /// Sequence number and jobs of the newest reply that the agent received.
    newest: (u64, Vec<u32>),
    /// Last time at which each volume had data on a device.
    seen: BTreeMap<(String, String), u64>,
    throttles: Throttles,
    /// Lease of the array, which survives its agent.
    lease: Lease,
    /// Sending time of the report of the newest reply that the agent received.
    answered_ns: u64,
}

struct World {
    rng: Rng,
    now_ns: u64,
    hosts: Vec<Host>,
    controller: Option<ManagedController<PersistentStore>>,
    /// Store that survives the controller.
    store: PersistentStore,
    controller_back_ns: u64,
    /// Lead of the controller's clock over real time; it never decreases.
    ahead_ns: u64,
    unix_ms: u64,
    packets: BTreeMap<(u64, u64), Packet>,
    packet_number: u64,
    /// Time until which the network is interrupted.
    cut_until_ns: u64,
    /// Sending time of the report that the controller processes now.
    at_hand_ns: Option<u64>,
    /// Recording of the controllers' inputs, in some runs only, because it takes as long as the rest.
    recording: Option<Arc<Mutex<Vec<String>>>>,
    /// Mode of remedies.
    mode: RemedyMode,
    /// Throttles of operators that are not removed, by host and volume, with their ends in controller time.
    limited: BTreeMap<String, (u64, Nanos)>,
    sums: Sums,
}

pub fn run(seed: u64) -> Sums {
    let mut world = World::new(seed);
    world.recording = seed.is_multiple_of(4).then(Default::default);
    for host in &mut world.hosts {
        if world.mode != RemedyMode::Off {
            host.site.crowd();
        }
    }
    while world.now_ns < PROBLEM_NS + PEACE_NS {
        world.step();
    }
    world.all_is_well();
    world.made_again();
    for host in &world.hosts {
        if let Site::Machines(machines) = &host.site {
            world.sums.machines.add(&machines.happened);
        }
    }
    world.sums
}

fn settings(strategy: &str, mode: RemedyMode) -> Settings {
    let modes = format!("throttle = \"{mode}\"\nmove = \"{mode}\"\n");
    let text = format!("strategy = \"{strategy}\"\n{CONFIG}[response.modes]\n{modes}");
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
                site: Site::new(seed, i, &mut below),
                agent: None,
                life: 0,
                back_ns: 0,
                leases: BTreeMap::new(),
                newest: (0, vec![]),
                seen: BTreeMap::new(),
                throttles: Throttles::default(),
                lease: Lease::default(),
                answered_ns: 0,
            })
            .collect();
        Self {
            rng,
            now_ns: 0,
            hosts,
            controller: None,
            store: PersistentStore::default(),
            controller_back_ns: 0,
            ahead_ns: 0,
            unix_ms: 1_790_000_000_000,
            packets: BTreeMap::new(),
            packet_number: 0,
            cut_until_ns: 0,
            at_hand_ns: None,
            recording: None,
            mode: match seed % 4 {
                1 => RemedyMode::Recommend,
                3 => RemedyMode::Off,
                _ => RemedyMode::Auto,
            },
            limited: BTreeMap::new(),
            sums: Sums::default(),
        }
    }

    fn chance(&mut self, of: u64) -> bool {
        self.now_ns < PROBLEM_NS && self.rng.below(of) == 0
    }

    fn now(&self) -> Now {
        Now {
            at: Nanos(self.now_ns + self.ahead_ns),
            unix_ms: self.unix_ms + self.now_ns / 1_000_000,
        }
    }

    fn step(&mut self) {
        self.now_ns += BEAT_NS;
        self.problem();
        self.controller_lives();
        for h in 0..self.hosts.len() {
            let with_problem = self.now_ns < PROBLEM_NS;
            let limits = self.hosts[h].throttles.iops(self.now_ns);
            let quiet = self.now_ns >= QUIET_NS;
            self.hosts[h].site.serve(limits, quiet);
            self.hosts[h].site.step(BEAT_NS, with_problem);
            self.hosts[h].see(self.now_ns);
            self.agent_beats(h);
            self.hosts[h].see(self.now_ns);
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

    fn controller_lives(&mut self) {
        if self.controller.is_none() && self.now_ns >= self.controller_back_ns {
            self.store.set_fault(Fault::None);
            let strategy = STRATEGIES[self.rng.below(STRATEGIES.len() as u64) as usize];
            let settings = settings(strategy, self.mode);
            let (unix_ms, random) = (self.now().unix_ms, self.rng.below(u64::MAX));
            let mut made = ManagedController::new(settings, self.store.clone(), unix_ms, random);
            if let Some(recording) = self.recording.clone() {
                let recorder = move |entry: &Entry| {
                    let line = serde_json::to_string(entry).expect("plain data");
                    recording.lock().unwrap().push(line);
                };
                made.record(Box::new(recorder)).expect("the store works");
            }
            // The controller's clock continues from the time of the store and the wall clock.
            self.ahead_ns = made.time().0.saturating_sub(self.now_ns);
            self.controller = Some(made);
        }
    }

    fn agent_beats(&mut self, h: usize) {
        let (now_ns, life) = (self.now_ns, self.hosts[h].life);
        let tells_extents = !self.chance(20);
        if self.chance(300) {
            // A second controller, which stays for a while if it gets the lease.
            let lasting = Nanos((1 + self.rng.below(8)) * SECOND);
            let lease = &mut self.hosts[h].lease;
            let claim = lease.claim(now_ns, &rival(), lasting);
            self.sums.rivals_refused += u64::from(claim == LeaseClaim::Refused);
            self.sums.rivals += u64::from(claim == LeaseClaim::Taken);
        }
        if self.hosts[h].site.has_killed() {
            self.kill_agent(h);
        }
        let host = &mut self.hosts[h];
        if host.agent.is_none() && now_ns >= host.back_ns {
            host.life = life + 1;
            // The agent adopts moves that the previous agent started.
            self.sums.adopted += host.site.under_way().len() as u64;
            host.agent = Some(Agent::new(session(h, host.life), "test"));
        }
        let Some(agent) = &mut host.agent else { return };
        let looked = host.site.snapshot();
        if host.site.has_killed() {
            self.kill_agent(h);
            return;
        }
        let mut snapshot = match looked {
            Ok(snapshot) => snapshot,
            Err(why) => {
                agent.add_warning(why);
                return;
            }
        };
        host.throttles.tell(now_ns, &mut snapshot);
        let wanted = agent.wanted_extents(now_ns, &snapshot);
        if tells_extents {
            host.site.look_at_extents(wanted, &mut snapshot);
        }
        if let Some((id, lasting)) = agent.claim(now_ns) {
            let name = "the controller".into();
            host.lease.claim(now_ns, &LeaseHolder { id, name }, lasting);
            let status = host.lease.status(now_ns).expect("it was just claimed");
            agent.claimed(Ok::<_, String>(status));
        }
        agent.beat(now_ns, snapshot);
        let mut messages = vec![];
        while let Some(action) = agent.poll_action() {
            let holder = agent.holder().expect("actions are of the holder's orders");
            if let Err(why) = host.lease.admit(now_ns, holder) {
                agent.done(&action, Err(why.to_string().into()));
                continue;
            }
            if let AgentAction::StartMove(order) = &action {
                // The order is valid: it comes from a reply whose lease has not expired.
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
                let bound = host.site.bound_for_good(&order.volume);
                assert_eq!(bound, None, "{order:?} is of what no agent moves");
                self.sums.moves_begun += 1;
            }
            let refused = self.now_ns < PROBLEM_NS && self.rng.below(5) == 0;
            let result = match &action {
                AgentAction::Throttle { .. } if refused => Err("not now".into()),
                AgentAction::Throttle { volume, to } => {
                    let own = format!("{}/{volume}", host.name);
                    if let Some(to) = to.filter(|_| !self.limited.contains_key(&own)) {
                        assert_eq!(self.mode, RemedyMode::Auto, "{volume} is held to {to:?}");
                        // The violation behind the throttle was evaluated with that report at the latest.
                        let end_ns = now_ns + to.lasting_ns;
                        let lease_ns = LEASE_WINDOWS * WINDOW_NS;
                        assert!(
                            end_ns <= host.answered_ns + lease_ns,
                            "{volume} is held until {end_ns}, its lease is from {}",
                            host.answered_ns
                        );
                    }
                    host.throttles.order(now_ns, volume, *to);
                    self.sums.throttles += u64::from(to.is_some());
                    Ok(())
                }
                action => host.site.carry_out(action),
            };
            if host.site.has_killed() {
                self.kill_agent(h);
                return;
            }
            agent.done(&action, result.map_err(Into::into));
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
            // Messages in an interrupted network arrive together later, oldest first.
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
                // A reply to the previous agent has no effect on this one.
                let own = orders.session == session(host, self.hosts[host].life);
                if let Some(agent) = self.hosts[host].agent_of(life) {
                    agent.ordered(now_ns, sent_ns, *orders);
                    if own && seq > self.hosts[host].newest.0 {
                        self.hosts[host].answered_ns = sent_ns;
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
        let ordered = |controller: &mut ManagedController<PersistentStore>,
                       answer: Result<Orders, _>| match answer {
            Ok(orders) => {
                check_orders(controller.store(), &name, &orders);
                check_limits(self.mode, now.at, &self.limited, (&name, &orders));
                Some(Packet::Orders {
                    host,
                    life,
                    sent_ns,
                    orders: Box::new(orders),
                })
            }
            Err(e) => refused(e),
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
                let answer = controller.report(now, &name, *report);
                let stale = matches!(
                    &answer,
                    Err(MessageRefusal::Wire(WireRefusal::Stale { .. }))
                );
                self.sums.stale_refused += u64::from(stale);
                ordered(controller, answer)
            }
            Message::JobsEnded(jobs) => {
                if twice {
                    let _ = controller.jobs_ended(now, &name, jobs.clone());
                }
                let answer = controller.jobs_ended(now, &name, jobs);
                self.sums.ended_at_once += u64::from(answer.is_ok());
                ordered(controller, answer)
            }
        };
        self.check_decisions();
        self.at_hand_ns = None;
        if let Some(packet) = answer {
            self.send(packet);
        }
    }
}

impl Host {
    /// Records the places of all data.
    fn see(&mut self, now_ns: u64) {
        for place in self.site.places() {
            self.seen.insert(place, now_ns);
        }
    }

    fn agent_of(&mut self, life: u64) -> Option<&mut Agent> {
        (self.life == life).then_some(self.agent.as_mut()).flatten()
    }
}

/// Returns the identity of a second controller.
fn rival() -> LeaseHolder {
    let id = ControllerId {
        store: 1,
        epoch: 1,
        start: 1,
    };
    let name = "the rival".into();
    LeaseHolder { id, name }
}

/// Returns a different number for each process of each agent.
fn session(host: usize, life: u64) -> u64 {
    1000 * (host as u64 + 1) + life
}
