//! Compute servers in front of the array, and remedies for SLO violations: `[hosts]` and `[response]`.
//!
//! ```text
//!  server                                array
//!  ┌──────────────────────┐              ┌──────────────────────┐
//!  │ volume ─▶ appliance ─┼── link ──────▶ cache ─▶ tiers        │   windows, with samples ─▶ manager::Controller: slo::Responder
//!  │ volume ──────────────┼── link ──────▶                       │ ◀── remedies in force ◀─┘
//!  └──────────────────────┘              └──────────────────────┘
//! ```
//!
//! Devices receive a request when it is issued; its transit times are added to the completion time. So completion times
//! are known at the issue, here too. A link is a calendar ([`link`]). If volumes share a link by turns, send times are
//! unknown at the issue, and replies are events ([`journey`]).

mod control;
mod fill;
mod journey;
mod link;
mod peaks;
mod servers;
mod turns;
mod watch;

use std::sync::Arc;

use cache::{CAPACITY_PAGES_MAX, PageCacheConfig, PageCacheError, WriteMode};
use config::find;
use config::scenario::{ApplianceConfig, HostConfig, LinkSharing, ResponseConfig};
use model::SloClass;
use slo::ladder::RemedyKind;
use slo::load::{Backend, Place, Resource};
use slo::reroute::{Attachment, Hypervisor, Protocol, Proxy};
use slo::{HostId, KnownPeak, Promise, ResourceId, Responder, ResponderConfig, Site, Workload};
use units::{Bytes, Nanos};

use crate::build::VolumeModel;
use crate::cache_model::PAGES_MAX;
use crate::stats::APPLIANCES;
use crate::{Model, ScenarioError, ScenarioFile};

pub(crate) use control::Control;
use peaks::known_peaks;

pub(crate) use journey::{Journey, ReplyWaiter};
pub(crate) use servers::{ServedPart, Servers};
pub(crate) use watch::{LazyMeasurements, Watch};

/// Utilization of a device or a link up to which it counts as fast.
const USE_MAX: f64 = 0.8;
/// Largest number of tracked objects per volume. Larger volumes have larger objects.
const OBJECTS_MAX: u64 = 1 << 22;

/// Checked configuration of the compute servers.
#[derive(Debug, Clone)]
pub struct ServersModel {
    pub(crate) names: Vec<String>,
    pub(crate) servers: Vec<HostConfig>,
    /// Server of each volume.
    pub(crate) of_volume: Vec<u16>,
}

impl ScenarioFile {
    /// Reads the table `hosts`; `None` if it is missing.
    pub(crate) fn servers(&self) -> Result<Option<ServersModel>, ScenarioError> {
        let hosts = &self.scenario.hosts;
        let mut tiers = self.scenario.tiers.iter();
        if !hosts.is_empty() && tiers.any(|t| t.name == APPLIANCES) {
            let why = "\"appliances\" is reserved in scenarios with [hosts]: rename the tier";
            return Err(self.fault("tiers", why));
        }
        let names: Vec<String> = hosts.keys().cloned().collect();
        let mut of_volume = Vec::new();
        for (i, v) in self.scenario.volumes.iter().enumerate() {
            let at = format!("volumes[{i}].host");
            let number = match (&v.host, names.len()) {
                (None, 0 | 1) => 0,
                (None, _) => {
                    let why = format!(
                        "the scenario has {} hosts: name the host of volume \"{}\"",
                        names.len(),
                        v.name
                    );
                    return Err(self.fault(&at, why));
                }
                (Some(_), 0) => return Err(self.fault(&at, "the scenario has no table [hosts]")),
                (Some(name), _) => find(name, names.iter().map(String::as_str))
                    .map_err(|why| self.fault(&at, why))?,
            };
            of_volume.push(number as u16);
        }
        for (name, host) in hosts {
            if host.link.is_some_and(|l| l.0 < 1 << 20) {
                let why = "must be at least 1 MiB/s";
                return Err(self.fault(&format!("hosts.{name}.link"), why));
            }
            if host.sharing == LinkSharing::ByTurns && host.link.is_none() {
                let why = "\"by-turns\" requires a link";
                return Err(self.fault(&format!("hosts.{name}.sharing"), why));
            }
            if host.latency > Nanos::from_secs(1) {
                let why = format!("{} one way exceeds the limit of 1 s", host.latency);
                return Err(self.fault(&format!("hosts.{name}.latency"), why));
            }
        }
        Ok((!hosts.is_empty()).then(|| ServersModel {
            names,
            servers: hosts.values().cloned().collect(),
            of_volume,
        }))
    }

    /// Reads the table `response`; `None` if it is missing.
    pub(crate) fn remedies(
        &self,
        volumes: &[VolumeModel],
        classes: &[SloClass],
    ) -> Result<Option<Arc<ResponseConfig>>, ScenarioError> {
        let Some(config) = &self.scenario.response else {
            return Ok(None);
        };
        let fault = |key: &str, why: String| Err(self.fault(&format!("response.{key}"), why));
        if config.workflow.allowed != ResponderConfig::default().allowed {
            let why = "list the allowed remedies in response.remedies";
            return fault("workflow.allowed", why.into());
        }
        let priced = config.workflow.price.check();
        if let Err((key, why)) = priced.and_then(|()| config.workflow.copies.check()) {
            return fault(&format!("workflow.{key}"), why.into());
        }
        let wants = |kind| config.remedies.contains(&kind);
        // The default list omits remedies that have nothing to run on.
        let said = config.remedies != ResponseConfig::default_remedies();
        if said && wants(RemedyKind::Appliance) && self.scenario.hosts.is_empty() {
            let why = "an appliance requires a host: add [hosts]";
            return fault("remedies", why.into());
        }
        if said
            && wants(RemedyKind::Mirror)
            && (self.scenario.mirrors.is_some() || self.scenario.cache.is_some())
        {
            let why = "the remedy \"mirror\" cannot be combined with [mirrors] or [cache]: remove \"mirror\"";
            return fault("remedies", why.into());
        }
        let window = self.scenario.window;
        if let Some((key, why)) = config.ahead.and_then(|a| a.fault(window)) {
            return fault(&format!("ahead.{key}"), why);
        }
        if config.appliance.writes == WriteMode::WriteBack {
            let why = "an appliance may fail at any time: use write-around or write-through";
            return fault("appliance.writes", why.into());
        }
        if config.appliance.warm_outstanding == 0 {
            return fault("appliance.warm_outstanding", "must be at least 1".into());
        }
        if let Some(why) = config.appliance.warm_read_fault() {
            return fault("appliance.warm_read", why);
        }
        if let Some(why) = config.appliance.reduction.and_then(|r| r.fault()) {
            return fault("appliance.reduction.ratio", why);
        }
        let page = config.appliance.page.0;
        let largest = config.appliance.holds(config.workflow.sizing.largest());
        if let Err(e @ PageCacheError::PageBytes(_)) =
            page_cache(&config.appliance, largest).parts()
        {
            return fault("appliance.page", e.to_string());
        }
        let most = volumes.iter().map(|v| v.size.0.div_ceil(page)).max();
        if wants(RemedyKind::Appliance) && most.is_some_and(|m| m > PAGES_MAX) {
            let why = format!("a volume exceeds the limit of {PAGES_MAX} pages: use larger pages");
            return fault("appliance.page", why);
        }
        let ssd = config.appliance.ssd.map(|s| config.appliance.holds(s));
        for held in [Some(largest), ssd].into_iter().flatten() {
            if held.0 / page > u64::from(CAPACITY_PAGES_MAX) {
                let why = format!(
                    "a cache of {held} exceeds the limit of pages of a cache policy: use larger pages"
                );
                return fault("appliance.page", why);
            }
        }
        if config.appliance.ssd.is_some_and(|s| s.0 < page) {
            return fault("appliance.ssd", "must be at least one page".into());
        }
        for (class, rate) in &config.iops_min {
            let key = format!("iops_min.{class}");
            if let Err(why) = find(class, classes.iter().map(|c| c.name.as_str())) {
                return fault(&key, why.to_string());
            }
            if !(rate.0 > 0.0 && rate.0.is_finite()) {
                return fault(&key, format!("{rate} is not above 0"));
            }
        }
        let promised = |v: &VolumeModel| {
            let class = &classes[v.class.index()];
            class.target.is_some() || config.iops_min.contains_key(&class.name)
        };
        if !volumes.iter().any(promised) {
            let why = "no volume has an objective: give a class a latency or an iops_min";
            return Err(self.fault("response", why));
        }
        if self.scenario.window > Nanos::from_secs(60) {
            let why = "remedies are chosen once per window: with [response] a window must be at most 60 s";
            return Err(self.fault("window", why));
        }
        Ok(Some(Arc::new(config.clone())))
    }
}

/// Returns the objective of a volume.
fn promise(model: &Model, config: &ResponseConfig, volume: &VolumeModel) -> Promise {
    let class = &model.classes[volume.class.index()];
    let latency = class.target.map(|t| Promise {
        latency_max: Some(t.latency),
        statistic: t.statistic,
        ..Promise::default()
    });
    Promise {
        rate_min_per_s: config.iops_min.get(&class.name).map(|r| r.0),
        ..latency.unwrap_or_default()
    }
}

/// Returns the configuration of an appliance's cache of the given size.
fn page_cache(config: &ApplianceConfig, size: Bytes) -> PageCacheConfig {
    let page_bytes = config.page.0;
    let pages = (size.0 / page_bytes.max(1)).clamp(1, u32::MAX.into());
    PageCacheConfig {
        pages: pages as u32,
        page_bytes,
        write_share: 0.0,
        write_mode: config.writes,
    }
}

/// Returns the size of tracked objects of a volume: a page or a multiple of it.
fn object_bytes(size: Bytes, page: Bytes) -> u32 {
    let mut bytes = page.0;
    while size.0.div_ceil(bytes) > OBJECTS_MAX {
        bytes *= 2;
    }
    u32::try_from(bytes).unwrap_or(1 << 31)
}

/// Returns the names of a server's link by direction: from the array, and to it.
fn link_names(server: &str) -> [String; 2] {
    [
        format!("link of {server}, from the array"),
        format!("link of {server}, to the array"),
    ]
}

/// Returns the responder's view of a scenario, limited to facts that it could know about a real array.
pub(crate) fn site_of(model: &Model) -> Site {
    let devices = &model.topology.devices;
    let mut resources: Vec<Resource> = devices
        .iter()
        .map(|d| Resource {
            name: d.name.clone(),
            place: Place::BehindMemory,
        })
        .collect();
    let servers = model.servers.as_ref();
    // Indexes of the links among the resources, by server.
    let mut links = Vec::new();
    for (name, server) in servers.iter().flat_map(|s| s.names.iter().zip(&s.servers)) {
        let mut of_server = Vec::new();
        for name in link_names(name)
            .into_iter()
            .filter(|_| server.link.is_some())
        {
            of_server.push(ResourceId(resources.len() as u16));
            let place = Place::InFront;
            resources.push(Resource { name, place });
        }
        links.push(of_server);
    }
    let cache = model.cache.as_ref();
    let attachment = Attachment {
        protocol: Protocol::Nbd,
        own_addresses: 0,
        hypervisor: Hypervisor::Plain,
        proxy: Proxy::Between,
    };
    let promised = |volume: &VolumeModel| {
        let remedies = model.remedies.as_ref();
        remedies.map_or(Promise::default(), |a| promise(model, a, volume))
    };
    let workload = |(v, volume): (usize, &VolumeModel)| {
        let server = servers.map_or(0, |s| s.of_volume[v]);
        let mut used = vec![ResourceId(volume.device.0)];
        used.extend(links.get(usize::from(server)).into_iter().flatten());
        Workload {
            name: volume.name.clone(),
            objective: promised(volume),
            host: HostId(server),
            attachment,
            resources: used,
            pool: cache.map_or(0, |c| c.pool_of(v)),
        }
    };
    let host = |(h, (name, server)): (usize, (&String, &HostConfig))| slo::host::Host {
        id: HostId(h as u16),
        name: name.clone(),
        rack: rack_of(servers, &server.rack),
        cpus_free: server.cpus,
        memory_free: server.memory,
    };
    let hosts = servers.iter().flat_map(|s| s.names.iter().zip(&s.servers));
    Site {
        workloads: model.volumes.iter().enumerate().map(workload).collect(),
        hosts: hosts.enumerate().map(host).collect(),
        backend: Backend {
            resources,
            memory: cache.map_or(vec![Bytes::ZERO], |c| c.pools()),
            use_max: USE_MAX,
        },
    }
}

/// Returns the responder of a scenario.
pub(crate) fn responder(model: &Model, config: &ResponseConfig) -> Responder {
    let site = site_of(model);
    let may = |kind: &RemedyKind| match kind {
        RemedyKind::MemoryShare => model.cache.as_ref().is_some_and(|c| c.can_be_shared_out()),
        RemedyKind::Appliance => model.servers.is_some(),
        RemedyKind::Mirror => model.mirrors_answer(),
        RemedyKind::Move => model.topology.devices.len() > 1,
        _ => true,
    };
    let mut workflow = config.workflow.clone();
    workflow.sizing.page = config.appliance.page;
    let settings = ResponderConfig {
        allowed: config.remedies.iter().copied().filter(may).collect(),
        boot: config.appliance.create + config.appliance.reroute,
        ..workflow
    };
    let peaks = known_peaks(config, &model.volumes, &site.backend.resources);
    let peaks: Vec<KnownPeak> = peaks.collect();
    let mut responder = Responder::new(settings, site);
    if let Some(ahead) = config.ahead {
        responder.look_ahead(ahead);
    }
    for peak in peaks {
        responder.know_of(peak);
    }
    responder
}

/// Returns the number of a rack: the index of its first server.
fn rack_of(servers: Option<&ServersModel>, rack: &str) -> u16 {
    let mut all = servers.iter().flat_map(|s| &s.servers);
    all.position(|s| s.rack == rack).unwrap_or(0) as u16
}
