//! Remedies for violated objectives within a window: reports become samples of the responder (`slo`), and its orders stay in
//! force until it ends them.
//!
//! ```text
//!  window ─▶ samples ─▶ slo::Responder ─▶ throttles, cache shares, spare flash, mirrors, appliances ─▶ orders: all in force
//!                            ▲     └────▶ moves ─▶ executor ─▶ jobs                                        │
//!                            └──────────────── results of appliances and jobs ◀── agent ◀──────────────────┘
//! ```
//!
//! Placement continues on its own epochs. A throttled volume has no measured load of its own, and placement leaves it in place.
//!
//! The store has only the jobs of moves and the remembered seasons. After a restart the controller knows no throttle and
//! orders none. Without a controller each throttle ends with its lease.
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
use algo::objective::{CompletedRequests, OverdueRequests};
use executor::JobId;
use slo::ladder::{OtherDevice, RemedyAction, RemedyKind, SecondCopies};
use slo::load::Place;
use slo::{
    ApplianceEvent, Decision, HostId, Knowledge, ObjectiveRelation, Promise, ResourceId, Responder,
    ResponseOrder, Sample, WorkloadId,
};
use units::{Bytes, Nanos};

use super::busy::{MirrorShares, Utilization};
use super::throttles::IOPS_MIN;
use super::{Controller, LEASE_WINDOWS};
use crate::view::{EventKind, ResponseState, ResponseView};
use crate::wire::{
    ApplianceOrder, ApplianceWindow, CacheShareOrder, MirrorOrder, Remedies, Throttle,
    ThrottleOrder, VolumeWindow, WindowReport,
};
use copies::WithOffers;
use lending::Loan;
use live::LiveState;

/// Responder of one host, with its remedies in force.
pub(super) struct HostResponder {
    responder: Responder,
    /// Ids of devices and links, by name.
    resources: BTreeMap<String, ResourceId>,
    /// Throttles by workload, requests per second.
    held: BTreeMap<usize, f64>,
    /// Cache shares by workload.
    parts: BTreeMap<usize, Bytes>,
    /// Mirrors by workload.
    mirrors: BTreeMap<usize, OrderedMirror>,
    /// Moves by workload that start with the next evaluation.
    to_move: BTreeMap<usize, OtherDevice>,
    /// Running move jobs by workload.
    moving: BTreeMap<usize, JobId>,
    /// Workloads that use the spare flash.
    over_provisioned: BTreeSet<usize>,
    /// Appliances that are ordered.
    appliances: Vec<ApplianceOrder>,
    next_appliance: u64,
    /// Workload of each appliance, and the last event that the responder knows of it.
    known: BTreeMap<u64, (usize, Option<ApplianceEvent>)>,
    /// Node of each appliance, including appliances of volumes that were removed.
    nodes: BTreeMap<u64, NodeUsed>,
    /// Appliances that have ended and that the agent still reports.
    taken: BTreeSet<u64>,
    /// State that only live hosts have.
    live: Option<LiveState>,
}

/// Node that an appliance uses.
struct NodeUsed {
    /// Name of the node or of the server.
    server: String,
    /// Consecutive windows in which the appliance was neither ordered nor reported.
    silent: u64,
    /// Loan, if a donor host provides the node.
    lent: Option<Loan>,
}

/// Throttle of a volume, requests per second: never below the minimum that guests tolerate.
fn limit(rate_per_s: f64) -> f64 {
    rate_per_s.max(IOPS_MIN as f64)
}

/// Consecutive windows without an ordered mirror after which it is cancelled: two leases, and some retries.
const ABSENT_MAX: u32 = 12;

/// Mirror that is ordered.
struct OrderedMirror {
    copies: SecondCopies,
    /// Consecutive windows in which the array did not have it.
    absent: u32,
}

/// Text of an event, with the workload.
type EventText = (usize, String);

impl HostResponder {
    fn new(responder: Responder, live: Option<LiveState>) -> Self {
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

    /// Number of the workload with a name.
    fn number(&self, name: &str) -> Option<usize> {
        let live = self.live.as_ref()?;
        live.numbers.get(name).map(|w| w.index())
    }

    /// URI of the node of a live host.
    fn node_of(&self, host: HostId) -> Option<String> {
        let live = self.live.as_ref()?;
        let number = usize::from(host.0).checked_sub(1)?;
        live.config.nodes.get(number).map(|n| n.uri.clone())
    }

    /// Returns true if an appliance uses this configured node, or used it and may still do so.
    fn uses_node(&self, name: &str) -> bool {
        let mut all = self.nodes.values();
        all.any(|n| n.lent.is_none() && n.server == name)
    }

    /// Forgets appliances that are neither ordered nor reported: their orders or their hosts were lost.
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

    /// Ends the remedies of a workload that leaves. Returns true if it had any.
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

    /// Sample of a volume's window for the responder; none if its load is unknown or disturbed by a calibration.
    fn sample(
        &self,
        promise: &Promise,
        v: Option<&VolumeWindow>,
        in_use: &Utilization<'_>,
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
            let answered = CompletedRequests::of_buckets(objective, wide(&all), 0);
            // Some hosts report only the sum.
            sample.late = (answered.count == load.ios()).then_some(answered.late);
            let overdue = OverdueRequests::of_buckets(objective, wide(&load.waiting));
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

    /// Requests of a volume that its ordered mirror serves.
    fn copied<'a>(&self, volume: &str, report: &'a WindowReport) -> Option<MirrorShares<'a>> {
        let OrderedMirror { copies, .. } = self.mirrors.get(&self.number(volume)?)?;
        let named = |r: ResourceId| {
            let mut devices = report.devices.iter();
            devices.find(|d| d.name == self.resource(r))
        };
        Some(MirrorShares {
            from: &named(copies.from)?.name,
            to: &named(copies.to)?.name,
            reads: copies.reads,
            writes: copies.writes,
        })
    }

    /// Updates the devices of each volume; the links that it uses stay.
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

    /// Counts windows without an ordered mirror. Returns the orders that follow from mirrors that are cancelled.
    fn look_for_copies(
        &mut self,
        now: Nanos,
        volumes: &[Option<&VolumeWindow>],
        said: &mut Vec<EventText>,
    ) -> Vec<ResponseOrder> {
        let mut orders = vec![];
        for (w, OrderedMirror { copies, absent }) in &mut self.mirrors {
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

    /// Processes the reported states of appliances. Returns the workloads whose appliance has failed.
    fn take_in(
        &mut self,
        now: Nanos,
        appliances: &[ApplianceWindow],
        said: &mut Vec<EventText>,
    ) -> Vec<usize> {
        let mut ended = vec![];
        self.forget_silent(now, appliances);
        self.taken
            .retain(|id| appliances.iter().any(|a| a.id == *id));
        for window in appliances {
            let Some((w, event)) = self.known.get_mut(&window.id) else {
                // From before a restart of the controller, or already processed.
                self.taken.insert(window.id);
                continue;
            };
            if window.event.is_none() || *event == window.event {
                continue;
            }
            let was_left = matches!(event, Some(ApplianceEvent::LeftBehind { .. }));
            event.clone_from(&window.event);
            let (w, event) = (
                *w,
                window.event.as_ref().expect("the event was just checked"),
            );
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
            // An appliance that is left behind uses its memory until it is removed.
            if gone {
                self.known.remove(&window.id);
                self.nodes.remove(&window.id);
                self.taken.insert(window.id);
            }
        }
        ended
    }

    /// Puts orders in force, or ends them.
    fn put(&mut self, now: Nanos, orders: Vec<ResponseOrder>, said: &mut Vec<EventText>) {
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
                        let mirrored = OrderedMirror { copies, absent: 0 };
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
                    let lent = self.donor(host).map(|donor| Loan {
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
    /// Enables remedies for violated objectives of a host from its next report on. Workloads of the responder's site are volumes
    /// by name; resources are devices (behind the memory) and links (in front of it) by name.
    pub fn answer_with(&mut self, host: &str, responder: Responder) {
        let responding = HostResponder::new(responder, None);
        self.responses.insert(host.into(), responding);
    }

    /// Returns the decisions about violated objectives of a host, oldest first.
    pub fn responses(&self, host: &str) -> &[Decision] {
        let of_host = self.responses.get(host);
        of_host.map_or(&[], |r| r.responder.decisions())
    }

    /// Compares the last known window of a workload with its objective; none if the host has no responder.
    pub fn standing(&self, host: &str, workload: WorkloadId) -> Option<ObjectiveRelation> {
        let of_host = self.responses.get(host)?;
        Some(of_host.responder.standing(workload))
    }

    /// Returns the last known window of a workload, as it was judged; none if the host has no responder or nothing was measured.
    pub fn last_sample(&self, host: &str, workload: WorkloadId) -> Option<&Sample> {
        self.responses.get(host)?.responder.last_sample(workload)
    }

    /// Decides on remedies for violations in the window that was just received.
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
            let in_use = Utilization::of(report, &self.settings, |v| responding.copied(v, report));
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
            // Computed once for all volumes of the set.
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

    /// Returns the remedies that must be in force on a host, except throttles; none if the last evaluation is too old.
    pub(super) fn remedies(&self, host: &str) -> Remedies {
        // Loans to other hosts do not depend on what is known of this host.
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

    /// Returns the mirrors to order. A volume with an active job gets none: a move ends its mirror.
    fn mirror_orders(&self, host: &str, of: &HostResponder) -> Vec<MirrorOrder> {
        let host = &self.hosts[host];
        let jobs = host.executor.jobs().iter().filter(|j| j.state.active());
        let moving: BTreeSet<&str> = jobs
            .map(|j| host.kept.names.of_volume(j.order.volume))
            .collect();
        let all = of
            .mirrors
            .iter()
            .map(|(w, OrderedMirror { copies, .. })| MirrorOrder {
                volume: of.name(*w).into(),
                device: of.resource(copies.to).into(),
                extents: copies.extents.clone(),
                rate_bytes_per_s: of.responder.copies().bandwidth.0,
            });
        all.filter(|o| !moving.contains(o.volume.as_str()))
            .collect()
    }

    /// Adds the throttles of the responder; a lower limit of an operator has precedence.
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

    /// Throttle of a volume: the lower one of the operator's and the responder's. The responder's lasts as long as its lease and
    /// is renewed with each evaluated window.
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

    fn is_old(&self, of: &HostResponder) -> bool {
        let is_old = |live: &LiveState| live.is_old(self.now.at, self.late_after());
        of.live.as_ref().is_some_and(is_old)
    }

    /// Throttle of a volume by the responder, requests per second.
    fn held_rate(&self, host: &str, volume: &str) -> Option<f64> {
        let r = self.responses.get(host).filter(|r| !self.is_old(r))?;
        let mut held = r.held.iter();
        held.find_map(|(w, rate)| (r.name(*w) == volume).then_some(*rate))
    }
}

/// Most remedies that are shown for one volume.
const ABOUT_MAX: usize = 10;

impl Controller {
    /// Returns remedies for a volume's violated objective and remedies that act on it, newest first.
    pub(super) fn responses_about(&self, host: &str, volume: &str) -> Vec<ResponseView> {
        let newest = self.answered.views().rev();
        let about = newest
            .filter(|v| v.host == host && (v.volume == volume || v.to.as_deref() == Some(volume)));
        about.take(ABOUT_MAX).cloned().collect()
    }

    /// Returns the volume for whose objective the named one is throttled, if it is.
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

    /// Number of objectives that are violated now.
    pub(super) fn objectives_violated(&self) -> u32 {
        let live = self.responses.values().filter_map(|r| r.live.as_ref());
        live.map(|l| l.broken.len() as u32).sum()
    }

    /// Number of volumes that are throttled for the objectives of others.
    pub(super) fn held(&self) -> u32 {
        self.responses.values().map(|r| r.held.len() as u32).sum()
    }
}

/// Knowledge of hosts that report only samples.
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
