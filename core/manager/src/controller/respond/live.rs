//! Responder of a live host. Its site follows the reports of the host.
//!
//! ```text
//!  report ─▶ volumes, devices, objectives ─▶ responder ─▶ decision ─▶ auto: ordered   recommend: event only
//! ```
//!
//! The responder starts again when the agent of the host registers or the remedies are configured differently; all remedies in
//! force end then.

use std::collections::{BTreeMap, BTreeSet};

use config::{LiveResponseConfig, NodeConfig, RemedyMode};
use slo::cacheable::{Measure, Rule};
use slo::host::Host;
use slo::ladder::RemedyKind;
use slo::load::{Backend, Place, Resource};
use slo::reroute::{Attachment, Hypervisor, Protocol, Proxy};
use slo::{
    AheadConfig, HostId, Promise, ResourceId, Responder, ResponderConfig, Site, Workload,
    WorkloadId,
};
use units::{Bytes, Nanos};

use super::super::{Controller, LEASE_WINDOWS};
use super::accessed;
use super::lending::{Donor, DonorKey, Loan};
use super::memory::{self, ReportedCurves};
use super::{EventText, HostResponder, NodeUsed, peaks, words};
use crate::view::{EventKind, PeakOutcome};
use crate::wire::{ApplianceOrder, NodeStore, VolumeWindow, WindowReport};

/// Most volumes of a host with remedies: an hour of samples of each is kept, some 150 KiB.
const VOLUMES_MAX: usize = 256;

/// Most devices that a responder remembers; with more of them it starts again.
const RESOURCES_MAX: usize = 1024;

/// Utilization up to which a device is considered fast, as in a simulated array.
pub(super) const USE_MAX: f64 = 0.8;

/// State of a live host's responder that a simulated host does not have.
pub(super) struct LiveState {
    pub(super) config: LiveResponseConfig,
    /// Numbers of volumes, by name.
    pub(super) numbers: BTreeMap<String, WorkloadId>,
    /// Volumes that have joined with the last report.
    pub(super) joined: Vec<WorkloadId>,
    /// Configuration of peak forecasts in the responder; none without forecasts.
    pub(super) ahead: Option<AheadConfig>,
    /// Violated objectives, by workload.
    pub(super) broken: BTreeMap<usize, OpenViolation>,
    /// Expected peaks.
    pub(super) peaks: Vec<AwaitedPeak>,
    /// Donor hosts; their numbers follow those of configured nodes.
    pub(super) donors: Vec<DonorKey>,
    /// Controller time of the last evaluated window.
    looked: Nanos,
    /// Curves and zones of volumes in the last report.
    pub(super) known: ReportedCurves,
    /// Devices whose utilization is estimated from their rating.
    pub(super) rated: BTreeSet<ResourceId>,
    /// Reason for which no remedy is applied even in mode `auto`, if any.
    pub(super) only_said: Option<&'static str>,
}

/// Peak for which a decision was shown, until it ends.
pub(super) struct AwaitedPeak {
    pub(super) workload: WorkloadId,
    pub(super) at: Nanos,
    pub(super) until: Nanos,
    /// Forecast rate, requests per second.
    pub(super) rate_per_s: f64,
    /// Remedy that was applied in advance, as text.
    pub(super) done: Option<String>,
    /// Counts of its windows so far.
    pub(super) outcome: PeakOutcome,
}

/// Violated objective.
pub(super) struct OpenViolation {
    /// Time at which the violation was found.
    pub(super) found: Nanos,
    /// End of the last window that violated it.
    pub(super) violated: Nanos,
    /// Last recommendation that was not applied: kind and target; the inner none means that no remedy was effective.
    pub(super) said: Option<Option<(RemedyKind, WorkloadId)>>,
    /// Last remedy that was applied, as text.
    pub(super) done: Option<String>,
}

impl LiveState {
    /// Returns true if the last evaluation is too old for remedies to stay in force.
    pub(super) fn is_old(&self, now: Nanos, late_after: Nanos) -> bool {
        now.saturating_sub(self.looked) > late_after
    }

    pub(super) fn mode(&self, kind: RemedyKind) -> RemedyMode {
        self.config.mode(kind)
    }
}

/// Returns true if a responder can continue with another configuration: the evaluation is the same, and no kind in force is
/// disabled.
fn goes_on(before: &LiveResponseConfig, after: &LiveResponseConfig) -> bool {
    let auto = before.remedies(RemedyMode::Auto).into_iter();
    before.workflow == after.workflow
        && before.nodes == after.nodes
        && auto
            .into_iter()
            .all(|kind| after.mode(kind) == RemedyMode::Auto)
}

/// Kinds of remedies that a host supports: cache shares need a cache with shares; mirrors and moves need more than one device;
/// appliances need a cache that they can extend as an L2 cache.
fn allowed(config: &LiveResponseConfig, report: &WindowReport) -> Vec<RemedyKind> {
    let in_parts = |v: &VolumeWindow| v.cache.as_ref().is_some_and(|c| c.in_parts);
    let can = |kind: &RemedyKind| match kind {
        RemedyKind::MemoryShare => report.volumes.iter().any(in_parts),
        RemedyKind::Mirror => {
            report.devices.len() > 1 && report.volumes.iter().any(|v| v.mirror.is_some())
        }
        RemedyKind::Move => report.devices.len() > 1,
        RemedyKind::Appliance => report.volumes.iter().any(|v| v.cache.is_some()),
        _ => true,
    };
    let all = RemedyKind::ALL.into_iter();
    all.filter(|kind| config.mode(*kind) != RemedyMode::Off)
        .filter(can)
        .collect()
}

/// Sizes of appliances that are compared, in eighths of the largest node or of the free memory of a donor host.
const NODE_EIGHTHS: [u64; 4] = [1, 2, 4, 8];

/// Least pages of an appliance: a cache needs some to work with.
const NODE_PAGES_MIN: u64 = 128;

/// Time until an appliance on a running node serves: the array only has to connect.
const NODE_BOOT: Nanos = Nanos::from_secs(1);

/// Windows until a node of a donor host serves: the donor gets its order, reports the URI, and the user gets its order.
const LENT_BOOT_WINDOWS: u64 = 3;

/// Processors of a node, as many as one appliance needs: a node serves one appliance at a time.
const NODE_CPUS: u32 = slo::host::APPLIANCE_CPUS;

/// Memory of the largest configured node, bytes.
fn largest_node(config: &LiveResponseConfig) -> u64 {
    config.nodes.iter().map(|n| n.memory.0).max().unwrap_or(0)
}

/// Sizes to compare for the given largest sizes.
fn sizes(largest: &[u64], page: u64) -> Vec<Bytes> {
    let most = config::SECOND_LEVEL_PAGES_MAX.saturating_mul(page.max(1));
    let largest = largest.iter().map(|n| (*n).min(most));
    let sizes = largest.flat_map(|n| NODE_EIGHTHS.map(|eighths| Bytes(n / 8 * eighths)));
    let least = (NODE_PAGES_MIN * page).max(config::LEND_MIN.0);
    let sizes: BTreeSet<Bytes> = sizes.filter(|s| s.0 >= least).collect();
    sizes.into_iter().collect()
}

/// Page size of a host's caches, bytes.
fn page(report: &WindowReport) -> u64 {
    let caches = report.volumes.iter().filter_map(|v| v.cache.as_ref());
    caches.map(|c| c.page_bytes).max().unwrap_or(0)
}

/// Configuration of the responder of a live host. Appliances are nodes, which need no memory for themselves. Working sets are not
/// measured, so only the curve decides whether a workload is cacheable.
fn workflow(config: &LiveResponseConfig, page: u64) -> ResponderConfig {
    let mut workflow = ResponderConfig {
        // The allowed kinds are set with each report.
        allowed: vec![],
        boot: NODE_BOOT,
        ..config.workflow.clone()
    };
    workflow.sizing.sizes = sizes(&[largest_node(config)], page);
    workflow.sizing.page = Bytes(page);
    workflow.sizing.own_memory = Bytes::ZERO;
    workflow.sizing.relief = true;
    let measured = |r: &Rule| r.measure != Measure::WorkingSetOverLargest;
    workflow.rules.retain(measured);
    workflow
}

/// Creates a responder whose appliances have numbers from `first` on: an agent may know earlier ones.
fn begun(config: &LiveResponseConfig, first: u64, page: u64) -> HostResponder {
    let site = Site {
        workloads: vec![],
        hosts: vec![],
        backend: Backend {
            resources: vec![],
            memory: vec![Bytes::ZERO],
            use_max: USE_MAX,
        },
    };
    let live = LiveState {
        config: config.clone(),
        numbers: BTreeMap::new(),
        joined: vec![],
        ahead: None,
        broken: BTreeMap::new(),
        peaks: vec![],
        donors: vec![],
        looked: Nanos::ZERO,
        known: ReportedCurves::default(),
        rated: BTreeSet::new(),
        only_said: None,
    };
    let mut begun = HostResponder::new(Responder::new(workflow(config, page), site), Some(live));
    begun.next_appliance = first;
    begun
}

fn workload(v: &VolumeWindow, objective: Promise) -> Workload {
    Workload {
        name: v.name.clone(),
        objective,
        host: HostId(0),
        attachment: Attachment {
            protocol: Protocol::Nbd,
            own_addresses: 0,
            hypervisor: Hypervisor::Plain,
            proxy: Proxy::Between,
        },
        resources: vec![],
        pool: 0,
    }
}

/// Number of a configured node, by its position.
fn number(place: usize) -> HostId {
    HostId(place as u16 + 1)
}

impl HostResponder {
    /// Bytes that its appliance has from a donor host's memory or flash.
    fn lent_bytes(&self, store: NodeStore) -> u64 {
        let lent = self.nodes.values().filter_map(|n| n.lent.as_ref());
        let of_it = lent.filter(|l| l.donor.store == store);
        of_it.map(|l| l.bytes).max().unwrap_or(0)
    }

    /// Nodes that its own appliances use, with their full size.
    fn own_nodes(
        &mut self,
        config: &LiveResponseConfig,
        host: impl Fn(HostId, String, Bytes) -> Host,
    ) -> Vec<Host> {
        let known = self.known.keys().filter_map(|id| self.nodes.get(id));
        let (lent, named): (Vec<&NodeUsed>, Vec<_>) = known.partition(|n| n.lent.is_some());
        let nodes = config.nodes.iter().enumerate();
        let own = nodes.filter(|(_, n)| named.iter().any(|used| used.server == n.name));
        let own = own.map(|(i, n)| host(number(i), n.name.clone(), n.memory));
        let mut all: Vec<Host> = own.collect();
        let lent = lent.into_iter().filter_map(|n| n.lent.clone());
        for Loan { donor, bytes, .. } in lent.collect::<Vec<_>>() {
            if let Some(id) = self.donor_id(&donor) {
                all.push(host(id, donor.in_words(), Bytes(bytes)));
            }
        }
        all
    }

    /// Updates volumes, devices and objectives. Returns removed volumes that had remedies.
    fn follow(
        &mut self,
        report: &WindowReport,
        promise: impl Fn(&VolumeWindow) -> Promise,
    ) -> Vec<String> {
        let mut held = vec![];
        let Some(live) = &mut self.live else {
            return held;
        };
        for d in &report.devices {
            if !self.resources.contains_key(&d.name) {
                let resource = self.responder.add_resource(Resource {
                    name: d.name.clone(),
                    place: Place::BehindMemory,
                });
                self.resources.insert(d.name.clone(), resource);
            }
        }
        let rated = report.devices.iter().filter(|d| d.emulate.is_none());
        live.rated = rated.map(|d| self.resources[&d.name]).collect();
        let there: BTreeMap<&str, &VolumeWindow> = report
            .volumes
            .iter()
            .map(|v| (v.name.as_str(), v))
            .collect();
        let gone = live.numbers.iter();
        let gone = gone.filter(|(name, _)| !there.contains_key(name.as_str()));
        let gone: Vec<(String, WorkloadId)> = gone.map(|(n, w)| (n.clone(), *w)).collect();
        for (name, w) in &gone {
            live.numbers.remove(name);
            live.broken.remove(&w.index());
            live.known.accessed.forget(*w);
            live.peaks.retain(|p| p.workload != *w);
        }
        for (name, w) in gone {
            self.responder.forget(w);
            if self.leave(w.index(), &name) {
                held.push(name);
            }
        }
        let Some(live) = &mut self.live else {
            return held;
        };
        for v in &report.volumes {
            let promise = promise(v);
            match live.numbers.get(&v.name) {
                Some(w) => self.responder.promise(*w, promise),
                None => {
                    let w = self.responder.join(workload(v, promise));
                    live.numbers.insert(v.name.clone(), w);
                    live.joined.push(w);
                }
            }
        }
        memory::follow(&mut self.responder, live, report);
        accessed::follow(live, report);
        held
    }

    /// Adds texts and views of found and ended violations, of peaks, and of decisions in the evaluated window. `measured` tells
    /// which workloads were measured.
    pub(super) fn look(
        &mut self,
        at: Nanos,
        measured: &[bool],
        said: &mut Vec<EventText>,
    ) -> Vec<words::ViewChange> {
        let mut changes = Vec::new();
        let Some(live) = &mut self.live else {
            return changes;
        };
        let responder = &self.responder;
        let workloads = &responder.site().workloads;
        for w in live.numbers.values() {
            let (i, name) = (w.index(), &workloads[w.index()].name);
            let is_broken = responder.is_broken(*w);
            if is_broken && !live.broken.contains_key(&i) {
                let broken = OpenViolation {
                    found: at,
                    violated: at,
                    said: None,
                    done: None,
                };
                live.broken.insert(i, broken);
                said.push((i, words::found(responder, *w)));
            }
            let Some(broken) = live.broken.get_mut(&i) else {
                continue;
            };
            if responder.standing(*w).violates() {
                broken.violated = at;
            }
            if !is_broken {
                said.push((i, words::recovered(name, broken)));
                changes.push(words::ViewChange::Recovered {
                    volume: name.clone(),
                    at,
                    violated: broken.violated,
                });
                live.broken.remove(&i);
            }
        }
        changes.extend(peaks::look(live, responder, at, measured, said));
        let decisions = responder.decisions();
        let before = decisions.iter().rposition(|d| d.at != at);
        for decision in &decisions[before.map_or(0, |last| last + 1)..] {
            changes.extend(words::decided(live, responder, decision, said));
        }
        changes
    }
}

impl Controller {
    /// Updates the site of a live host's responder; creates the responder if none exists, and ends it if it is not needed.
    pub(super) fn follow_site(&mut self, name: &str) {
        let host = &self.hosts[name];
        let Some((_, report)) = &host.last else {
            return;
        };
        let target = |v: &VolumeWindow| self.settings.class_of(&v.class).target;
        let promise = |v: &VolumeWindow| {
            target(v).map_or(Promise::default(), |t| Promise {
                rate_min_per_s: None,
                latency_max: Some(t.latency),
                statistic: t.statistic,
            })
        };
        let config = self.settings.response();
        let wanted = report.volumes.iter().any(|v| target(v).is_some());
        let Some(config) = config.filter(|_| wanted) else {
            return self.end_responses(
                name,
                "remedies are not configured, or no volume has an objective",
            );
        };
        let count = report.volumes.len();
        if count > VOLUMES_MAX {
            self.end_responses(name, "the host has too many volumes");
            if self.answered.too_many.insert(name.into()) {
                let text = format!(
                    "no remedies for violations on {name}: it has {count} volumes, the limit is {VOLUMES_MAX}"
                );
                self.event(EventKind::Response, Some(name), None, text);
            }
            return;
        }
        let only_said = self.operator.paused.then_some("the controller is paused");
        let mut responding = self.responses.remove(name);
        let renewed = responding.as_ref().is_some_and(|r| {
            let same = r.live.as_ref().is_some_and(|l| goes_on(&l.config, &config));
            let new = |d: &&crate::wire::DeviceWindow| !r.resources.contains_key(&d.name);
            !same || r.resources.len() + report.devices.iter().filter(new).count() > RESOURCES_MAX
        });
        if renewed {
            self.answered.let_go(name, self.now.at);
            if responding.take().is_some_and(|r| !r.nodes.is_empty()) {
                self.answered.nodes_from = Some(self.now.at + self.two_leases());
            }
        }
        let first = self.now.unix_ms;
        let from = self.now.at + self.two_leases();
        self.answered.nodes_from.get_or_insert(from);
        let mut responding = responding.unwrap_or_else(|| begun(&config, first, page(report)));
        let gone = responding.follow(report, promise);
        let ahead = config.ahead;
        let donors = match config.mode(RemedyKind::Appliance) {
            RemedyMode::Off => vec![],
            _ => self.donors_for(name),
        };
        let [memory, flash] = NodeStore::ALL.map(|store| {
            let free = donors.iter().filter(|l| l.key.store == store);
            let free = free.map(|l| l.free.0).max().unwrap_or(0);
            free.max(responding.lent_bytes(store))
        });
        let named = largest_node(&config);
        responding.responder.cache_sizes(
            sizes(&[named, memory, flash], page(report)),
            match memory.max(flash) {
                0 => NODE_BOOT,
                _ => Nanos(LENT_BOOT_WINDOWS * self.settings.words.window.0),
            },
        );
        let servers = self.nodes_for(&mut responding, &config, report, &donors);
        responding.responder.servers(servers);
        let kinds = match only_said {
            Some(_) => RemedyKind::ALL.into(),
            None => config.remedies(RemedyMode::Recommend),
        };
        responding.responder.only_say(kinds);
        responding.responder.allow(allowed(&config, report));
        if let Some(live) = &mut responding.live {
            (live.looked, live.only_said) = (self.now.at, only_said);
            live.config = config;
        }
        self.answered.too_many.remove(name);
        self.follow_seasons(name, &mut responding, ahead);
        self.responses.insert(name.into(), responding);
        for volume in gone {
            let back = words::ViewChange::TakenBack {
                remedy: None,
                to: volume.clone(),
                at: self.now.at,
            };
            self.answered.take_in(name, vec![back]);
            let text = format!("{volume}: its remedies have ended: the volume was removed");
            self.event(EventKind::Response, Some(name), Some(&volume), text);
        }
        if renewed {
            let text = format!(
                "remedies of {name} were reset after a change of configuration or devices: none is in force"
            );
            self.event(EventKind::Response, Some(name), None, text);
        }
    }

    /// Time without orders after which a host no longer uses anything that it was ordered to use.
    pub(super) fn two_leases(&self) -> Nanos {
        Nanos(2 * LEASE_WINDOWS * self.settings.words.window.0)
    }

    /// Returns true if a host was not evaluated for so long that it no longer uses what it was ordered to use.
    pub(super) fn has_left(&self, of: &HostResponder) -> bool {
        let live = of.live.as_ref();
        live.is_some_and(|l| self.now.at.saturating_sub(l.looked) > self.two_leases())
    }

    /// Nodes that a host's appliances can use: configured nodes that no other host uses, and free memory of donor hosts. An array
    /// has one L2 cache, so an appliance or an L2 cache of the operator excludes any other.
    fn nodes_for(
        &self,
        of: &mut HostResponder,
        config: &LiveResponseConfig,
        report: &WindowReport,
        donors: &[Donor],
    ) -> Vec<Host> {
        // An earlier order may be in use for one lease; a host without a report for two leases has none.
        let from = self.answered.nodes_from.unwrap_or(Nanos::ZERO);
        if self.now.at < from {
            return vec![];
        }
        let host = |id, name: String, memory_free| Host {
            id,
            name,
            rack: 0,
            cpus_free: NODE_CPUS,
            memory_free,
        };
        if !of.nodes.is_empty() {
            return of.own_nodes(config, host);
        }
        if report.second_by_hand {
            return vec![];
        }
        let others = self.responses.values().filter(|r| !self.has_left(r));
        let taken = |name: &str| others.clone().any(|r| r.uses_node(name));
        let nodes = config.nodes.iter().enumerate();
        let free = nodes.filter(|(_, n)| !taken(&n.name));
        let named = |(i, n): (usize, &NodeConfig)| host(number(i), n.name.clone(), n.memory);
        let mut all: Vec<Host> = free.map(named).collect();
        for donor in donors {
            if let Some(id) = of.donor_id(&donor.key) {
                all.push(host(id, donor.key.in_words(), donor.free));
            }
        }
        all
    }

    /// Ends the responder of a live host with all its remedies.
    pub(in crate::controller) fn end_responses(&mut self, name: &str, why: &str) {
        if !self.stores {
            return;
        }
        let Some(ended) = self.responses.remove(name) else {
            return;
        };
        self.answered.let_go(name, self.now.at);
        if !ended.nodes.is_empty() {
            self.answered.nodes_from = Some(self.now.at + self.two_leases());
        }
        let held = ended.held.keys().map(|w| (*w, "throttle removed"));
        let parts = ended.parts.keys();
        let parts = parts.map(|w| (*w, "cache share released"));
        let mirrors = ended.mirrors.keys();
        let mirrors = mirrors.map(|w| (*w, "mirror removed"));
        let number = |a: &ApplianceOrder| ended.number(&a.volume);
        let appliances = ended.appliances.iter().filter_map(number);
        let appliances = appliances.map(|w| (w, "caching appliance removed"));
        for (w, what) in held.chain(parts).chain(mirrors).chain(appliances) {
            let volume = ended.name(w).to_string();
            let text = format!("{volume}: {what}: {why}");
            self.event(EventKind::Response, Some(name), Some(&volume), text);
        }
    }
}
