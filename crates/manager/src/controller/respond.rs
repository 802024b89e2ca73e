//! Broken objectives, answered within a window: what agents report becomes samples of the responder (`slo`), and what it orders is in
//! force until it takes it back.
//!
//! ```text
//!  window ─▶ samples ─▶ slo::Responder ─▶ throttles, parts of the cache, spare flash, second copies, appliances ─▶ orders: all that is in force
//!                            ▲     └────▶ moves ─▶ executor ─▶ jobs                                                    │
//!                            └──────────────── what became of appliances and of jobs ◀── agent ◀───────────────────────┘
//! ```
//!
//! Placement goes on beside it, on its own epochs: what is throttled shows no load of its own, and stays where it is.
//!
//! Nothing of it is stored but the jobs of moves, which go on like any other, and what is remembered of seasons. A controller that has begun again knows of no limit, so it orders none; without a
//! controller each limit is over when its lease is.

mod accessed;
mod copies;
mod lending;
mod live;
mod memory;
mod moves;
mod peaks;
mod seasons;
mod words;

pub(super) use words::ShownResponses;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use algo::merged_buckets;
use algo::objective::{Answered, Overdue};
use executor::JobId;
use slo::ladder::{OtherDevice, RemedyAction, RemedyKind, SecondCopies};
use slo::load::Place;
use slo::{
    ApplianceEvent, Decision, HostId, Knowledge, Promise, ResourceId, Responder, ResponseOrder,
    Sample, Standing, WorkloadId,
};
use units::{Bytes, Nanos};

use super::busy::{Copied, InUse};
use super::throttles::IOPS_MIN;
use super::{Controller, LEASE_WINDOWS};
use crate::view::{EventKind, ResponseState, ResponseView};
use crate::wire::{
    ApplianceOrder, ApplianceWindow, CacheShareOrder, MirrorOrder, Remedies, Throttle,
    ThrottleOrder, VolumeWindow, WindowReport,
};
use copies::WithOffers;
use lending::Lent;
use live::Live;

/// A responder for one host, with what it has in force.
pub(super) struct Responding {
    responder: Responder,
    /// Devices and links, by name.
    resources: BTreeMap<String, ResourceId>,
    /// By workload: requests per second that it is held to.
    held: BTreeMap<usize, f64>,
    /// By workload: its part of the cache.
    parts: BTreeMap<usize, Bytes>,
    /// By workload: what has second copies.
    mirrors: BTreeMap<usize, Mirrored>,
    /// By workload: where its data is to go, with the next look.
    to_move: BTreeMap<usize, OtherDevice>,
    /// By workload: the job that moves it.
    moving: BTreeMap<usize, JobId>,
    /// Workloads that have the spare flash.
    over_provisioned: BTreeSet<usize>,
    /// Appliances that are to be there.
    appliances: Vec<ApplianceOrder>,
    next_appliance: u64,
    /// By appliance: its workload, and what of it the responder knows.
    known: BTreeMap<u64, (usize, Option<ApplianceEvent>)>,
    /// By appliance: the node that it has. One whose volume has left is here still.
    nodes: BTreeMap<u64, NodeUsed>,
    /// Appliances that have ended, until the agent does not tell of them any more.
    taken: BTreeSet<u64>,
    /// Of a live host.
    live: Option<Live>,
}

/// A node that an appliance has.
struct NodeUsed {
    /// Its name, or that of the server.
    server: String,
    /// For how many windows in a row the appliance was neither ordered nor told of.
    silent: u64,
    /// Where it is of a host that lends.
    lent: Option<Lent>,
}

/// The limit of a volume that is to do no more than so many requests per second: none is lower than what guests bear.
fn limit(rate_per_s: f64) -> f64 {
    rate_per_s.max(IOPS_MIN as f64)
}

/// Windows in a row without the second copies that were ordered, after which they are given up: two leases, and some more tries.
const ABSENT_MAX: u32 = 12;

/// Second copies that are ordered.
struct Mirrored {
    copies: SecondCopies,
    /// Windows in a row in which they were not there.
    absent: u32,
}

/// Something to be written down: of which workload, and what.
type Said = (usize, String);

impl Responding {
    fn new(responder: Responder, live: Option<Live>) -> Self {
        let resources = responder.site().backend.resources.iter().enumerate();
        let resources = resources.map(|(r, of)| (of.name.clone(), ResourceId(r as u16)));
        Self {
            resources: resources.collect(),
            held: BTreeMap::new(),
            parts: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            to_move: BTreeMap::new(),
            moving: BTreeMap::new(),
            over_provisioned: BTreeSet::new(),
            appliances: vec![],
            next_appliance: 1,
            known: BTreeMap::new(),
            nodes: BTreeMap::new(),
            taken: BTreeSet::new(),
            responder,
            live,
        }
    }

    fn name(&self, w: usize) -> &str {
        &self.responder.site().workloads[w].name
    }

    /// A workload by name.
    fn number(&self, name: &str) -> Option<usize> {
        let live = self.live.as_ref()?;
        live.numbers.get(name).map(|w| w.index())
    }

    /// Where the memory of a live host's node is.
    fn node_of(&self, host: HostId) -> Option<String> {
        let live = self.live.as_ref()?;
        let number = usize::from(host.0).checked_sub(1)?;
        live.config.nodes.get(number).map(|n| n.uri.clone())
    }

    /// Whether an appliance has this node, which was named, or had it and is not known to be gone.
    fn uses_node(&self, name: &str) -> bool {
        let mut all = self.nodes.values();
        all.any(|n| n.lent.is_none() && n.server == name)
    }

    /// Appliances of which nobody speaks any more are gone: their orders were lost, or those who had them.
    fn forget_silent(&mut self, now: Nanos, told: &[ApplianceWindow]) {
        let ordered = &self.appliances;
        for (id, NodeUsed { silent, .. }) in &mut self.nodes {
            let spoken_of = told.iter().any(|a| a.id == *id) || ordered.iter().any(|a| a.id == *id);
            *silent = if spoken_of { 0 } else { *silent + 1 };
        }
        let silent = self.nodes.iter().filter(|(_, n)| n.silent > LEASE_WINDOWS);
        let silent: Vec<u64> = silent.map(|(id, _)| *id).collect();
        for id in silent {
            self.nodes.remove(&id);
            if let Some((w, _)) = self.known.remove(&id) {
                let removed = ApplianceEvent::Removed;
                self.responder
                    .appliance(now, WorkloadId(w as u16), &removed);
            }
        }
    }

    /// A workload leaves: what was done to it is over; whether anything was.
    fn leave(&mut self, w: usize, name: &str) -> bool {
        let before = self.appliances.len();
        self.appliances.retain(|a| a.volume != name);
        self.known.retain(|_, (of, _)| *of != w);
        let had = [
            self.held.remove(&w).is_some(),
            self.parts.remove(&w).is_some(),
            self.mirrors.remove(&w).is_some(),
            self.moving.remove(&w).is_some(),
            self.appliances.len() < before,
        ];
        had.contains(&true)
    }

    fn resource(&self, r: ResourceId) -> &str {
        &self.responder.site().backend.resources[r.index()].name
    }

    /// A volume's window as the responder is told it; none where its load is not known, or is not its own.
    fn sample(
        &self,
        promise: &Promise,
        v: Option<&VolumeWindow>,
        in_use: &InUse<'_>,
    ) -> Option<Sample> {
        let window_ns = in_use.report.window_ns;
        let mut sample = Sample {
            lasting: Nanos(window_ns),
            sequential: None,
            working_set: None,
            busy: vec![None; self.resources.len()],
            ..Sample::default()
        };
        let v = v.filter(|v| !v.calibrating)?;
        for (name, resource) in &self.resources {
            sample.busy[resource.index()] = in_use.taken(v, name);
        }
        let load = v.load.as_ref()?;
        let seconds = sample.lasting.as_secs_f64();
        let per_s = |n: u64| n as f64 / seconds;
        let us = |q: f64| load.quantile_ns(q).map(|ns| ns as f64 / 1e3);
        let wide = |buckets: &[(u16, u64)]| -> Vec<(usize, u64)> {
            buckets.iter().map(|b| (usize::from(b.0), b.1)).collect()
        };
        sample.reads_per_s = per_s(load.reads.ios);
        sample.writes_per_s = per_s(load.writes.ios);
        sample.latency_us = load.guest_mean_us();
        (sample.p50_us, sample.p99_us) = (us(0.5), us(0.99));
        sample.bytes_per_s = per_s(load.reads.bytes + load.writes.bytes);
        sample.bytes_read_per_s = per_s(load.reads.bytes);
        if let Some(objective) = promise.objective() {
            let all = merged_buckets(&load.reads.buckets, &load.writes.buckets);
            let answered = Answered::of_buckets(objective, wide(&all), 0);
            // Of some hosts only the sum is known.
            sample.late = (answered.count == load.ios()).then_some(answered.late);
            let overdue = Overdue::of_buckets(objective, wide(&load.waiting));
            sample.overdue = overdue.count;
            let mean_us = overdue.age_ns as f64 / 1e3 / overdue.count as f64;
            sample.overdue_us = (overdue.count > 0).then_some(mean_us);
        }
        let Some(more) = &v.sample else {
            sample.backend_reads_per_s = sample.reads_per_s;
            return Some(sample);
        };
        sample.sequential = Some(more.sequential as f64 / more.issued.max(1) as f64);
        let of_window = |ns: u64| (ns as f64 / window_ns as f64).min(1.0);
        sample.occupied = of_window(more.occupied_ns);
        sample.limited = of_window(more.limited_ns);
        sample.waiting = more.waiting;
        sample.working_set = more.working_set_bytes.map(Bytes);
        sample.backend_reads_per_s = per_s(more.array_reads);
        sample.memory_hits =
            (more.array_reads > 0).then(|| more.cache_hits as f64 / more.array_reads as f64);
        Some(sample)
    }

    /// Which of a volume's requests the second copies are there for that were ordered.
    fn copied<'a>(&self, volume: &str, report: &'a WindowReport) -> Option<Copied<'a>> {
        let Mirrored { copies, .. } = self.mirrors.get(&self.number(volume)?)?;
        let named = |r: ResourceId| {
            let mut devices = report.devices.iter();
            devices.find(|d| d.name == self.resource(r))
        };
        Some(Copied {
            from: &named(copies.from)?.name,
            to: &named(copies.to)?.name,
            reads: copies.reads,
            writes: copies.writes,
        })
    }

    /// Where volumes are now. The links that they use stay.
    fn place(&mut self, volumes: &[Option<&VolumeWindow>]) {
        for (w, v) in volumes.iter().enumerate() {
            if !self.responder.is_here(WorkloadId(w as u16)) {
                continue;
            }
            let placed = v.iter().flat_map(|v| &v.placed);
            let on = placed.filter_map(|p| self.resources.get(&p.device).copied());
            let site = self.responder.site();
            let is_link =
                |r: &ResourceId| site.backend.resources[r.index()].place == Place::InFront;
            let used = site.workloads[w].resources.iter().copied();
            let copies = self.mirrors.get(&w).map(|m| m.copies.to);
            let all = on.chain(copies).chain(used.filter(is_link));
            let resources: BTreeSet<ResourceId> = all.collect();
            let resources = resources.into_iter().collect();
            self.responder.placed(WorkloadId(w as u16), resources);
        }
    }

    /// Second copies that were ordered and have not been there for a while: what is to be done about them.
    fn look_for_copies(
        &mut self,
        now: Nanos,
        volumes: &[Option<&VolumeWindow>],
        said: &mut Vec<Said>,
    ) -> Vec<ResponseOrder> {
        let mut orders = vec![];
        for (w, Mirrored { copies, absent }) in &mut self.mirrors {
            let Some(v) = volumes.get(*w).copied().flatten() else {
                continue;
            };
            let there = v.mirror.as_ref().and_then(|m| m.copies.as_ref());
            match there.is_some_and(|c| !c.by_hand) || v.moving.is_some() {
                true => *absent = 0,
                false => *absent += 1,
            }
            if *absent >= ABSENT_MAX {
                let why = match there {
                    Some(_) => "an operator has ordered another mirror",
                    None => "the array has not created it, or has removed it",
                };
                said.push((*w, format!("{}: mirror cancelled: {why}", v.name)));
                orders.extend(self.responder.copies_failed(now, copies.workload));
            }
        }
        orders
    }

    /// Takes in what became of appliances; workloads whose appliance has failed.
    fn take_in(
        &mut self,
        now: Nanos,
        appliances: &[ApplianceWindow],
        said: &mut Vec<Said>,
    ) -> Vec<usize> {
        let mut ended = vec![];
        self.forget_silent(now, appliances);
        self.taken
            .retain(|id| appliances.iter().any(|a| a.id == *id));
        for window in appliances {
            let Some((w, event)) = self.known.get_mut(&window.id) else {
                // From before a restart of the controller, or taken in already.
                self.taken.insert(window.id);
                continue;
            };
            if window.event.is_none() || *event == window.event {
                continue;
            }
            let was_left = matches!(event, Some(ApplianceEvent::LeftBehind { .. }));
            event.clone_from(&window.event);
            let (w, event) = (*w, window.event.as_ref().expect("it is some"));
            let workload = WorkloadId(w as u16);
            let text = match was_left {
                true => {
                    self.responder.freed(workload);
                    let name = self.name(w);
                    Some(format!(
                        "the rest of the caching appliance of {name} has been removed"
                    ))
                }
                false => {
                    self.responder.appliance(now, workload, event);
                    event.in_words(self.name(w))
                }
            };
            said.extend(text.map(|text| (w, text)));
            if matches!(event, ApplianceEvent::Failed { .. }) {
                ended.push(w);
            }
            let left = matches!(event, ApplianceEvent::LeftBehind { .. });
            let gone = matches!(
                event,
                ApplianceEvent::Failed { .. } | ApplianceEvent::Removed
            );
            if left || gone {
                self.appliances.retain(|a| a.id != window.id);
            }
            // What is left behind has its memory until it is gone.
            if gone {
                self.known.remove(&window.id);
                self.nodes.remove(&window.id);
                self.taken.insert(window.id);
            }
        }
        ended
    }

    /// Puts orders in force, or takes them back.
    fn put(&mut self, now: Nanos, orders: Vec<ResponseOrder>, said: &mut Vec<Said>) {
        for order in orders {
            let (w, text) = match order {
                ResponseOrder::Carry { action } => match action {
                    RemedyAction::Throttle {
                        workload,
                        rate_per_s,
                    } => {
                        self.held.insert(workload.index(), rate_per_s);
                        let text = format!("throttled to {:.0} requests/s", limit(rate_per_s));
                        (workload, text)
                    }
                    RemedyAction::GiveMemory { workload, size } => {
                        self.parts.insert(workload.index(), size);
                        (workload, format!("{size} of the cache reserved"))
                    }
                    RemedyAction::GiveOps {
                        workload,
                        waf,
                        waf_with_spare,
                    } => {
                        self.over_provisioned.insert(workload.index());
                        let text = format!(
                            "spare flash assigned: predicted write amplification from {waf:.1} to {waf_with_spare:.1}"
                        );
                        (workload, text)
                    }
                    RemedyAction::Mirror(copies) => {
                        let (workload, bytes) = (copies.workload, copies.bytes);
                        let to = self.resource(copies.to);
                        let text = format!(
                            "mirror of {} ordered on {to}, for {:.0} % of its reads",
                            bytes.words(),
                            100.0 * copies.reads
                        );
                        let mirrored = Mirrored { copies, absent: 0 };
                        self.mirrors.insert(workload.index(), mirrored);
                        (workload, text)
                    }
                    RemedyAction::Move(other) => {
                        let workload = other.workload;
                        let text = format!(
                            "move to {} ordered: {} to copy",
                            self.resource(other.to),
                            other.bytes.words()
                        );
                        self.to_move.insert(workload.index(), other);
                        (workload, text)
                    }
                    RemedyAction::Appliance { .. } => {
                        unreachable!("appliances have their own order")
                    }
                },
                ResponseOrder::Unthrottle { workload } => {
                    self.held.remove(&workload.index());
                    (workload, "throttle removed".into())
                }
                ResponseOrder::TakeBack { action } => match action {
                    RemedyAction::GiveMemory { workload, size } => {
                        self.parts.remove(&workload.index());
                        (workload, format!("{size} of the cache released"))
                    }
                    RemedyAction::GiveOps { workload, .. } => {
                        self.over_provisioned.remove(&workload.index());
                        (workload, "spare flash released".into())
                    }
                    RemedyAction::Mirror(copies) => {
                        self.mirrors.remove(&copies.workload.index());
                        let to = self.resource(copies.to);
                        (copies.workload, format!("mirror on {to} removed"))
                    }
                    _ => unreachable!("no other remedy is taken back by this order"),
                },
                ResponseOrder::CreateAppliance {
                    workload,
                    host,
                    cpus,
                    memory,
                    cache,
                    way,
                    warm,
                } => {
                    let warm = match &self.live {
                        Some(live) => live.known.in_pages(workload, warm),
                        None => warm,
                    };
                    let site = self.responder.site();
                    let server = site.hosts.iter().find(|h| h.id == host);
                    let order = ApplianceOrder {
                        id: self.next_appliance,
                        volume: self.name(workload.index()).into(),
                        server: server.map(|h| h.name.clone()).unwrap_or_default(),
                        cpus,
                        memory_bytes: memory.0,
                        cache_bytes: cache.0,
                        way,
                        warm,
                        at: self.node_of(host),
                    };
                    self.next_appliance += 1;
                    let lent = self.donor(host).map(|donor| Lent {
                        donor: donor.clone(),
                        node: 0,
                        bytes: cache.0,
                        since: now,
                    });
                    let is_lent = lent.is_some();
                    let used = NodeUsed {
                        server: order.server.clone(),
                        silent: 0,
                        lent,
                    };
                    self.nodes.insert(order.id, used);
                    self.known.insert(order.id, (workload.index(), None));
                    let text = match &order.at {
                        _ if is_lent => format!(
                            "caching appliance ordered: {} on {}, {}",
                            cache.words(),
                            order.server,
                            order.warm.in_words()
                        ),
                        Some(_) => format!(
                            "caching appliance ordered: {} on node {}, {}",
                            cache.words(),
                            order.server,
                            order.warm.in_words()
                        ),
                        None => format!(
                            "caching appliance ordered on {}: cache {cache} of {memory} memory, {}, {}",
                            order.server,
                            order.way,
                            order.warm.in_words()
                        ),
                    };
                    self.appliances.push(order);
                    (workload, text)
                }
                ResponseOrder::RemoveAppliance { workload, why } => {
                    let name = self.name(workload.index()).to_string();
                    self.appliances.retain(|a| a.volume != name);
                    (workload, format!("caching appliance to be removed: {why}"))
                }
            };
            let text = format!("{}: {text}", self.name(w.index()));
            said.push((w.index(), text));
        }
    }
}

impl Controller {
    /// Has broken objectives of a host's volumes answered from its next report on. The workloads of the responder's site are volumes
    /// by name, its resources devices (behind the memory) and links (in front of it) by name.
    pub fn answer_with(&mut self, host: &str, responder: Responder) {
        let responding = Responding::new(responder, None);
        self.responses.insert(host.into(), responding);
    }

    /// What was decided about broken objectives of a host, oldest first.
    pub fn responses(&self, host: &str) -> &[Decision] {
        let of_host = self.responses.get(host);
        of_host.map_or(&[], |r| r.responder.decisions())
    }

    /// How the last window that was known of a workload stands to what it was promised; none where nobody answers for the host.
    pub fn standing(&self, host: &str, workload: WorkloadId) -> Option<Standing> {
        let of_host = self.responses.get(host)?;
        Some(of_host.responder.standing(workload))
    }

    /// The last window that was known of a workload, as it was judged; none where nobody answers for the host, or nothing is known yet.
    pub fn last_sample(&self, host: &str, workload: WorkloadId) -> Option<&Sample> {
        self.responses.get(host)?.responder.last_sample(workload)
    }

    /// Answers what is broken in the window that was just taken in.
    pub(super) fn respond(&mut self, name: &str, known: &dyn Knowledge) {
        if self.stores {
            self.follow_site(name);
        }
        let Some(mut responding) = self.responses.remove(name) else {
            return;
        };
        let mut said = Vec::new();
        let mut views = Vec::new();
        if let Some((at, report)) = &self.hosts[name].last {
            let at = *at;
            let site = responding.responder.site();
            let here = |w: usize| responding.responder.is_here(WorkloadId(w as u16));
            let by_name: BTreeMap<&str, &VolumeWindow> = report
                .volumes
                .iter()
                .map(|v| (v.name.as_str(), v))
                .collect();
            let volume = |(w, of): (usize, &slo::Workload)| {
                let found = by_name.get(of.name.as_str()).copied();
                found.filter(|_| here(w))
            };
            let workloads = site.workloads.iter().enumerate();
            let volumes: Vec<Option<&VolumeWindow>> = workloads.map(volume).collect();
            let samples = site.workloads.iter().zip(&volumes);
            let in_use = InUse::of(report, &self.settings, |v| responding.copied(v, report));
            let samples = samples.map(|(w, v)| responding.sample(&w.objective, *v, &in_use));
            let samples: Vec<Option<Sample>> = samples.collect();
            let measured: Vec<bool> = samples.iter().map(Option::is_some).collect();
            let mut ended = responding.take_in(at, &report.appliances, &mut said);
            ended.extend(self.follow_lent(at, &mut responding, &mut said));
            responding.place(&volumes);
            let mut orders = responding.look_for_copies(at, &volumes, &mut said);
            let moved = responding.look_at_moves(at, &self.hosts[name]);
            let reported = responding
                .live
                .as_mut()
                .map(|l| std::mem::take(&mut l.known));
            // The same for all volumes of the set.
            let found = OnceCell::new();
            let moves = || {
                let find = || self.moves_of(&self.hosts[name]);
                found.get_or_init(find).as_ref()
            };
            let known = WithOffers {
                known: reported.as_ref().map_or(known, |of_report| of_report),
                in_use: &in_use,
                resources: &responding.resources,
                volumes: &volumes,
                terms: *responding.responder.copies(),
                moves: &moves,
            };
            orders.extend(responding.responder.tell_known(at, samples, &known));
            if let (Some(live), Some(reported)) = (&mut responding.live, reported) {
                live.known = reported;
                views = responding.taken_back(at, &orders);
                views.extend(responding.moved(at, &moved));
                views.extend(responding.ended(at, &ended));
                views.extend(responding.look(at, &measured, &mut said));
            }
            responding.put(self.now.at, orders, &mut said);
        }
        self.number_lent(&mut responding);
        views.extend(self.begin_moves(name, &mut responding, &mut said));
        self.remember_seasons(name, &mut responding);
        for (w, text) in said {
            let volume = responding.name(w).to_string();
            self.event(EventKind::Response, Some(name), Some(&volume), text);
        }
        self.responses.insert(name.into(), responding);
        self.answered.take_in(name, views);
    }

    /// Answers that are to be in force on a host, but for throttles; none where they would rest on what is too old.
    pub(super) fn remedies(&self, host: &str) -> Remedies {
        // What others use of it does not depend on what is known of itself.
        let nodes = self.node_orders(host);
        let Some(r) = self.responses.get(host).filter(|r| !self.is_old(r)) else {
            return Remedies {
                nodes,
                ..Remedies::default()
            };
        };
        let told = |a: &&ApplianceOrder| !r.waits_for_node(a.id);
        Remedies {
            nodes,
            curves: r.wanted_curves(),
            access: r.wanted_access(),
            mirrors: self.mirror_orders(host, r),
            cache_shares: r
                .parts
                .iter()
                .map(|(w, size)| CacheShareOrder {
                    volume: r.name(*w).into(),
                    bytes: size.0,
                })
                .collect(),
            over_provisioned: r
                .over_provisioned
                .iter()
                .map(|w| r.name(*w).into())
                .collect(),
            appliances: r.appliances.iter().filter(told).cloned().collect(),
            appliances_taken: r.taken.iter().copied().collect(),
        }
    }

    /// Second copies that are to be there. Of what is about to move there are none: a move ends them.
    fn mirror_orders(&self, host: &str, of: &Responding) -> Vec<MirrorOrder> {
        let host = &self.hosts[host];
        let jobs = host.executor.jobs().iter().filter(|j| j.state.active());
        let moving: BTreeSet<&str> = jobs
            .map(|j| host.kept.names.of_volume(j.order.volume))
            .collect();
        let all = of
            .mirrors
            .iter()
            .map(|(w, Mirrored { copies, .. })| MirrorOrder {
                volume: of.name(*w).into(),
                device: of.resource(copies.to).into(),
                extents: copies.extents.clone(),
                rate_bytes_per_s: of.responder.copies().bandwidth.0,
            });
        all.filter(|o| !moving.contains(o.volume.as_str()))
            .collect()
    }

    /// Adds what the responder holds volumes to; an operator's lower limit goes before it.
    pub(super) fn hold(&self, host: &str, orders: &mut Vec<ThrottleOrder>) {
        let Some(r) = self.responses.get(host) else {
            return;
        };
        for w in r.held.keys() {
            let volume = r.name(*w);
            let order = orders.iter_mut().find(|o| o.volume == volume);
            let own = order.as_ref().map(|o| o.throttle);
            let Some(throttle) = self.held_to(host, volume, own) else {
                continue;
            };
            match order {
                Some(order) => order.throttle = throttle,
                None => orders.push(ThrottleOrder {
                    volume: volume.into(),
                    throttle,
                }),
            }
        }
    }

    /// What a volume is held to: the lower one of what its operator says and of what the responder does. That lasts as long as its lease, and is
    /// renewed with each window that was looked at.
    pub(super) fn held_to(
        &self,
        host: &str,
        volume: &str,
        own: Option<Throttle>,
    ) -> Option<Throttle> {
        let Some(rate) = self.held_rate(host, volume) else {
            return own;
        };
        let iops = limit(rate).ceil() as u64;
        let lease_ns = LEASE_WINDOWS * self.settings.words.window.0;
        Some(match own {
            Some(own) if own.iops.is_some_and(|o| o <= iops) => own,
            own => Throttle {
                iops: Some(iops),
                bandwidth_bytes_per_s: own.and_then(|o| o.bandwidth_bytes_per_s),
                lasting_ns: own.map_or(lease_ns, |o| o.lasting_ns.min(lease_ns)),
            },
        })
    }

    fn is_old(&self, of: &Responding) -> bool {
        let is_old = |live: &Live| live.is_old(self.now.at, self.late_after());
        of.live.as_ref().is_some_and(is_old)
    }

    /// Requests per second that the responder holds a volume to.
    fn held_rate(&self, host: &str, volume: &str) -> Option<f64> {
        let r = self.responses.get(host).filter(|r| !self.is_old(r))?;
        let mut held = r.held.iter();
        held.find_map(|(w, rate)| (r.name(*w) == volume).then_some(*rate))
    }
}

/// Answers that are shown of one volume.
const ABOUT_MAX: usize = 10;

impl Controller {
    /// Answers to a volume's broken objective, and those that were done to it, newest first.
    pub(super) fn responses_about(&self, host: &str, volume: &str) -> Vec<ResponseView> {
        let newest = self.answered.views().rev();
        let about = newest
            .filter(|v| v.host == host && (v.volume == volume || v.to.as_deref() == Some(volume)));
        about.take(ABOUT_MAX).cloned().collect()
    }

    /// The volume for whose objective another one is held, if it is.
    pub(super) fn held_for(&self, host: &str, volume: &str) -> Option<&str> {
        self.held_rate(host, volume)?;
        let mut newest = self.answered.views().rev();
        let of = |v: &&ResponseView| {
            let in_force =
                v.state == ResponseState::InForce && v.remedy == Some(RemedyKind::Throttle);
            in_force && v.host == host && v.to.as_deref() == Some(volume)
        };
        newest.find(of).map(|v| &*v.volume)
    }

    /// Objectives that are broken now.
    pub(super) fn objectives_broken(&self) -> u32 {
        let live = self.responses.values().filter_map(|r| r.live.as_ref());
        live.map(|l| l.broken.len() as u32).sum()
    }

    /// Volumes that are held to a rate for others' objectives.
    pub(super) fn held(&self) -> u32 {
        self.responses.values().map(|r| r.held.len() as u32).sum()
    }
}

/// Nothing is known of any volume but its samples.
pub(super) struct SamplesOnly;

impl Knowledge for SamplesOnly {
    fn curve(&self, _: WorkloadId) -> Option<slo::curve::Curve> {
        None
    }

    fn zones(&self, _: WorkloadId) -> Vec<slo::zones::Zone> {
        vec![]
    }

    fn zones_before(&self, _: WorkloadId) -> Vec<slo::zones::Zone> {
        vec![]
    }
}
