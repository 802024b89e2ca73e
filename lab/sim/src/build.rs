//! Builds a runnable model from a scenario: resolves names to ids and presets to devices. Rejects every invalid value
//! with its key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{UnknownVolumes, class_of, find, resolve_classes, resolve_policy, resolve_topology};
use model::{DeviceSpec, Policy, SloClass, Topology};
use trace::{ClientSpec, LoadedTrace, Times};
use units::{Bytes, ClassId, DeviceId, Nanos, TierId, VmId, VolumeId};
use volume::BATCH_BYTES;

use crate::answering::ServersModel;
use crate::cache_model::CacheModel;
use crate::disks::DisksModel;
use crate::flash_config::FlashModel;
use crate::played::RatesModel;
use crate::running::RunningModel;
use crate::{GeneratorModel, ScenarioError, ScenarioFile};
use config::scenario::{
    InitialPlacement, MirrorsConfig, Replay, ResponseConfig, TraceConfig, VolumeConfig,
};

/// Largest number of rows of results over time. Bounds the memory of a run: a row has about 100 bytes.
const SERIES_ROWS_MAX: u64 = 4_000_000;
/// Largest number of extents of all volumes together: eight bytes each.
const EXTENTS_MAX: u64 = 1 << 26;
/// Largest number of pieces in one batch of a copy: four bytes each during the move.
const CHUNKS_MAX: u64 = 1 << 28;
/// Highest request rate of a trace. Protects against a rate in a wrong unit.
const RATE_MAX_PER_S: f64 = 1e7;
/// Longest run. Protects against a length in a wrong unit.
const DURATION_MAX: Nanos = Nanos::from_secs(400 * 86_400);

/// Scenario that can run under any strategy.
#[derive(Clone)]
pub struct Model {
    /// Name of the scenario.
    pub name: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Length of the run, in whole windows. If the scenario has no length, this is the span of the traces, and the run
    /// continues until all their requests are issued, at most until `duration_max`.
    pub duration: Nanos,
    /// Latest end of the run: the length in the scenario, or the largest number of windows with results.
    pub duration_max: Nanos,
    /// Warm-up at the start, which is not measured.
    pub warmup: Nanos,
    /// Length of a measurement window.
    pub window: Nanos,
    /// Length of the stretches by which results are also kept, if the scenario has one.
    pub stretch: Option<Nanos>,
    /// Extent size.
    pub extent: Bytes,
    /// Size of a copy piece.
    pub copy_chunk: Bytes,
    /// Array as strategies see it.
    pub topology: Topology,
    /// Actual devices. `topology` has the devices as strategies see them.
    pub actual: Vec<DeviceSpec>,
    /// Flash model of each device; `None` for devices that are known by their caps only.
    pub flash: Vec<Option<Arc<FlashModel>>>,
    /// Disk group of each device, if it has one.
    pub disks: Vec<Option<DisksModel>>,
    /// Cache in front of the devices.
    pub cache: Option<CacheModel>,
    /// Configuration of mirrored extents.
    pub mirrors: Option<MirrorsConfig>,
    /// Compute servers that use the volumes.
    pub servers: Option<ServersModel>,
    /// Configuration of the remedies for SLO violations.
    pub remedies: Option<Arc<ResponseConfig>>,
    /// Service classes.
    pub classes: Vec<SloClass>,
    /// Names of the VMs.
    pub vms: Vec<String>,
    /// Volumes.
    pub volumes: Vec<VolumeModel>,
    /// Traces.
    pub traces: Vec<TraceModel>,
    /// Clients.
    pub clients: Vec<ClientModel>,
    /// Load generators.
    pub generators: Vec<GeneratorModel>,
    /// Placement policy.
    pub policy: Policy,
    /// Settings for the operation of the host.
    pub running: RunningModel,
}

/// Volume of the model.
#[derive(Debug, Clone)]
pub struct VolumeModel {
    /// Name.
    pub name: String,
    /// VM of the volume.
    pub vm: VmId,
    /// Service class of the volume.
    pub class: ClassId,
    /// Size of the volume.
    pub size: Bytes,
    /// Initial device of the volume, or of most of its extents.
    pub device: DeviceId,
    /// Initial device of each extent, if they differ.
    pub places: Option<Arc<[DeviceId]>>,
}

/// Trace to replay.
#[derive(Clone)]
pub struct TraceModel {
    /// Loaded requests.
    pub trace: Arc<LoadedTrace>,
    /// Volume of the model for each volume of the trace.
    pub volumes: Vec<VolumeId>,
    /// Largest number of outstanding requests; `None` for open replay.
    pub outstanding: Option<u32>,
    /// Request rates that replace the times of the trace.
    pub rates: Option<RatesModel>,
    /// Factor of acceleration.
    pub speed: f64,
    /// Start of the first replay.
    pub start: Nanos,
    /// Number of replays.
    pub repeat: u32,
    /// Time from the start of one replay to the start of the next.
    pub period: Nanos,
}

/// Client of the model.
#[derive(Debug, Clone)]
pub struct ClientModel {
    /// Volume of the client.
    pub volume: VolumeId,
    /// Request pattern of the client.
    pub spec: ClientSpec,
}

/// Classes and VMs of volumes.
#[derive(Default)]
pub(crate) struct VolumeOwners {
    /// Class and VM of each volume.
    pub(crate) of_volumes: Vec<(ClassId, VmId)>,
    /// Names of the VMs.
    pub(crate) vms: Vec<String>,
}

/// Initial devices of volumes.
struct FirstDevices {
    /// Initial device of each volume.
    devices: Vec<DeviceId>,
    /// Volumes whose extents are scattered over several devices.
    scattered: Vec<usize>,
    /// Free bytes of each device without the scattered volumes.
    free: Vec<u64>,
}

impl ScenarioFile {
    /// Builds the model. `traces` are the loaded traces of the scenario, in its order.
    pub fn build(&self, traces: Vec<Arc<LoadedTrace>>) -> Result<Model, ScenarioError> {
        let s = &self.scenario;
        assert_eq!(
            traces.len(),
            s.traces.len(),
            "one loaded trace for each in the scenario"
        );
        let topology = resolve_topology(&self.source, &s.tiers)?;
        let mut classes = resolve_classes(&self.source, &s.classes)?;
        let mut volumes = Vec::new();
        if s.volumes.is_empty() {
            return Err(self.fault("volumes", "must list at least one volume"));
        }
        let VolumeOwners { of_volumes, vms } = self.belonging(&mut classes)?;
        for (i, v) in s.volumes.iter().enumerate() {
            let at = |key: &str| format!("volumes[{i}].{key}");
            if v.size < Bytes(4096) {
                return Err(self.fault(
                    &at("size"),
                    format!("{} is smaller than one page of 4 KiB", v.size),
                ));
            }
            let largest = topology.largest_device();
            if v.size > largest {
                let why = format!(
                    "volume \"{}\" of {} is larger than every device of every tier: the largest has {largest}",
                    v.name, v.size
                );
                return Err(self.fault(&at("size"), why));
            }
            let (class, vm) = of_volumes[i];
            volumes.push(VolumeModel {
                name: v.name.clone(),
                vm,
                class,
                size: v.size,
                device: DeviceId(0),
                places: None,
            });
        }
        let begin = self.place(&topology)?;
        for (volume, device) in volumes.iter_mut().zip(begin.devices) {
            volume.device = device;
        }
        self.scatter(&topology, &mut volumes, &begin.scattered, &begin.free)?;
        let traces = self.traces(traces, &volumes)?;
        let clients = self.clients(&volumes)?;
        let generators = self.generators(&volumes)?;
        if traces.is_empty() && clients.is_empty() && generators.is_empty() {
            let why = "the scenario has no load: add traces, clients or generators";
            return Err(self.fault("", why));
        }
        self.check_sizes(&volumes)?;
        let flash = self.flash(&topology, &volumes, &classes)?;
        let disks = self.disks(&topology, |d| flash[d].is_some())?;
        let actual = self.actual(&topology, |d| flash[d].is_some() || disks[d].is_some())?;
        let cache = self.cache(&volumes, &classes)?;
        let mirrors = self.mirrors()?;
        let servers = self.servers()?;
        let remedies = self.remedies(&volumes, &classes)?;
        let devices: Vec<&str> = topology.devices.iter().map(|d| d.name.as_str()).collect();
        self.check_peaks(&volumes, &devices)?;
        let duration = self.duration(&traces)?;
        let policy = self.policy(&topology, &volumes)?;
        let entities =
            (volumes.len() + vms.len() + classes.len() + topology.tiers.len() + 1) as u64;
        let windows = duration.0.div_ceil(s.window.0);
        let windows_max = SERIES_ROWS_MAX / entities;
        if windows > windows_max {
            let why = format!(
                "{windows} windows of {entities} rows exceed the limit of {SERIES_ROWS_MAX} rows: use a longer window"
            );
            return Err(self.fault("window", why));
        }
        let open_ended = Nanos(windows_max.saturating_mul(s.window.0)).min(DURATION_MAX);
        let duration_max = if s.duration.is_some() {
            duration
        } else {
            open_ended.max(duration)
        };
        let running = self.running(&topology, &volumes, &flash)?;
        Ok(Model {
            name: s.name.clone(),
            seed: s.seed,
            duration,
            duration_max,
            warmup: Nanos(s.warmup.0.div_ceil(s.window.0) * s.window.0),
            window: s.window,
            stretch: self.stretch()?,
            extent: s.extent,
            copy_chunk: s.copy_chunk,
            topology,
            actual,
            flash,
            disks,
            cache,
            mirrors,
            servers,
            remedies,
            classes,
            vms,
            volumes,
            traces,
            clients,
            generators,
            running,
            policy,
        })
    }

    /// Returns the actual devices.
    fn actual(
        &self,
        topology: &Topology,
        inside_is_known: impl Fn(usize) -> bool,
    ) -> Result<Vec<DeviceSpec>, ScenarioError> {
        let mut actual: Vec<DeviceSpec> = topology.devices.iter().map(|d| d.spec.clone()).collect();
        for (name, config) in &self.scenario.actual {
            let names = topology.tiers.iter().map(|t| t.name.as_str());
            let at = format!("actual.{name}");
            let tier = find(name, names).map_err(|why| self.fault(&at, why))?;
            if let Some((key, factor)) = config.fault() {
                let why = format!("{factor} is not a factor between 0.001 and 1000");
                return Err(self.fault(&format!("{at}.{key}"), why));
            }
            for device in &topology.tiers[tier].devices {
                if inside_is_known(device.index()) {
                    let why =
                        "the tier's devices are described in [flash] or [disks]: change them there";
                    return Err(self.fault(&at, why));
                }
                actual[device.index()] = config.of(&actual[device.index()]);
            }
        }
        Ok(actual)
    }

    /// Returns class and VM of every volume. A volume without them gets its own VM, with the volume's name.
    pub(crate) fn belonging(
        &self,
        classes: &mut Vec<SloClass>,
    ) -> Result<VolumeOwners, ScenarioError> {
        let mut out = VolumeOwners::default();
        let (mut seen, mut names) = (BTreeSet::new(), BTreeMap::new());
        for (i, v) in self.scenario.volumes.iter().enumerate() {
            let at = |key: &str| format!("volumes[{i}].{key}");
            if !seen.insert(&v.name) {
                let why = format!("volume \"{}\" is listed twice", v.name);
                return Err(self.fault(&at("name"), why));
            }
            let class = class_of(classes, v.class.as_deref())
                .map_err(|why| self.fault(&at("class"), why))?;
            let name = v.vm.as_ref().unwrap_or(&v.name);
            let vm = *names.entry(name).or_insert_with(|| {
                out.vms.push(name.clone());
                VmId::from_index(out.vms.len() - 1)
            });
            out.of_volumes.push((class, vm));
        }
        Ok(out)
    }

    /// Checks the sizes that bound the memory of a simulation.
    fn check_sizes(&self, volumes: &[VolumeModel]) -> Result<(), ScenarioError> {
        let s = &self.scenario;
        if s.copy_chunk < Bytes(4096) || s.copy_chunk > Bytes::gib(1) {
            return Err(self.fault("copy_chunk", "must be between 4 KiB and 1 GiB"));
        }
        if s.extent < Bytes(4096) {
            return Err(self.fault("extent", "must be at least 4 KiB"));
        }
        let extents: u64 = volumes.iter().map(|v| v.size.0.div_ceil(s.extent.0)).sum();
        if extents > EXTENTS_MAX {
            let why = format!(
                "{extents} extents in total exceed the limit of {EXTENTS_MAX}: use larger extents"
            );
            return Err(self.fault("extent", why));
        }
        let largest = volumes.iter().map(|v| v.size.0).max().unwrap_or(0);
        let batch = BATCH_BYTES.max(s.extent).0.min(largest);
        let chunks = batch.div_ceil(s.copy_chunk.0);
        if chunks > CHUNKS_MAX {
            let why = format!(
                "{chunks} pieces of one extent exceed the limit of {CHUNKS_MAX}: use larger pieces"
            );
            return Err(self.fault("copy_chunk", why));
        }
        Ok(())
    }

    /// Returns true if all volumes fit at their initial places in the scenario.
    pub fn places_fit(&self, topology: &Topology) -> bool {
        self.place(topology).is_ok()
    }

    /// Chooses the initial device of each volume that has one.
    fn place(&self, topology: &Topology) -> Result<FirstDevices, ScenarioError> {
        let mut free: Vec<u64> = topology.devices.iter().map(|d| d.spec.capacity.0).collect();
        // Volumes with a device come first, then those with a tier. The remaining volumes use the remaining space.
        let configs = &self.scenario.volumes;
        let mut places = vec![DeviceId(0); configs.len()];
        let mut order: Vec<usize> = (0..configs.len()).collect();
        order.sort_by_key(|i| (configs[*i].device.is_none(), configs[*i].tier.is_none()));
        let scatters = self.scenario.initial_placement == InitialPlacement::Scattered;
        let anywhere = |i: &usize| configs[*i].device.is_none() && configs[*i].tier.is_none();
        let (scattered, order): (Vec<usize>, Vec<usize>) =
            order.into_iter().partition(|i| scatters && anywhere(i));
        for i in order {
            let key = if configs[i].device.is_some() {
                "device"
            } else {
                "tier"
            };
            let at = format!("volumes[{i}].{key}");
            let devices = self.first_devices(topology, i, &configs[i])?;
            let size = configs[i].size.0;
            let share_free = |d: &DeviceId| {
                (free[d.index()] as f64 / topology.device(*d).spec.capacity.as_f64() * 1e6).round()
                    as u64
            };
            let fits = devices.iter().filter(|d| free[d.index()] >= size);
            let rank = |d: &DeviceId| match self.scenario.initial_placement {
                InitialPlacement::Spread | InitialPlacement::Scattered => 0,
                InitialPlacement::Highest => i32::from(topology.tier_of(*d).0),
                InitialPlacement::Lowest => -i32::from(topology.tier_of(*d).0),
            };
            let best = fits.min_by_key(|d| (rank(d), std::cmp::Reverse(share_free(d)), **d));
            let Some(device) = best else {
                let most = devices.iter().map(|d| free[d.index()]).max();
                let why = format!(
                    "no space for volume \"{}\" of {}: the emptiest device has {} free after the other volumes",
                    configs[i].name,
                    configs[i].size,
                    Bytes(most.unwrap_or(0))
                );
                return Err(self.fault(&at, why));
            };
            free[device.index()] -= size;
            places[i] = *device;
        }
        Ok(FirstDevices {
            devices: places,
            scattered,
            free,
        })
    }

    /// Returns the devices on which a volume may start according to the scenario.
    fn first_devices(
        &self,
        topology: &Topology,
        i: usize,
        config: &VolumeConfig,
    ) -> Result<Vec<DeviceId>, ScenarioError> {
        let at = |key: &str| format!("volumes[{i}].{key}");
        let tiers: Vec<TierId> = match &config.tier {
            Some(name) => {
                let names = topology.tiers.iter().map(|t| t.name.as_str());
                let tier = find(name, names).map_err(|why| self.fault(&at("tier"), why))?;
                vec![TierId::from_index(tier)]
            }
            None => topology.tier_ids().collect(),
        };
        let Some(name) = &config.device else {
            let devices = tiers.iter().flat_map(|t| &topology.tier(*t).devices);
            return Ok(devices.copied().collect());
        };
        let names = topology.devices.iter().map(|d| d.name.as_str());
        let device = find(name, names).map_err(|why| self.fault(&at("device"), why))?;
        let device = DeviceId::from_index(device);
        let tier = topology.tier_of(device);
        if !tiers.contains(&tier) {
            let own = &topology.tier(tier).name;
            let why = format!("device \"{name}\" belongs to tier \"{own}\"");
            return Err(self.fault(&at("device"), why));
        }
        Ok(vec![device])
    }

    fn traces(
        &self,
        loaded: Vec<Arc<LoadedTrace>>,
        volumes: &[VolumeModel],
    ) -> Result<Vec<TraceModel>, ScenarioError> {
        let names = || volumes.iter().map(|v| v.name.as_str());
        let mut out = Vec::new();
        for (i, (config, trace)) in self.scenario.traces.iter().zip(loaded).enumerate() {
            let at = |key: &str| format!("traces[{i}].{key}");
            if trace.times == Times::Order && config.replay == Replay::Open {
                let why = "the trace has an order but no times, which this replay needs: use replay = \"window\"";
                return Err(self.fault(&at("replay"), why));
            }
            if config.volume.is_some() && !config.volumes.is_empty() {
                return Err(self.fault(&at("volumes"), "give either volume or volumes"));
            }
            if !(config.speed > 0.0 && config.speed <= 1e6) {
                return Err(self.fault(
                    &at("speed"),
                    format!("{} is not above 0 and at most 1,000,000", config.speed),
                ));
            }
            if !(1..=65_536).contains(&config.outstanding) {
                return Err(self.fault(
                    &at("outstanding"),
                    format!("{} is not between 1 and 65536", config.outstanding),
                ));
            }
            if !(1..=1_000_000).contains(&config.repeat) {
                return Err(self.fault(
                    &at("repeat"),
                    format!("{} is not between 1 and 1,000,000", config.repeat),
                ));
            }
            for name in config.volumes.keys() {
                find(name, trace.volumes.iter().map(|v| v.name.as_str()))
                    .map_err(|why| self.fault(&at("volumes"), format!("in the trace: {why}")))?;
            }
            let span = Nanos((trace.span_ns as f64 / config.speed).ceil() as u64 + 1);
            let period = config.period.unwrap_or(span);
            if config.repeat > 1 && period < span {
                let why = format!("{period} is shorter than one replay, {span}");
                return Err(self.fault(&at("period"), why));
            }
            let mut map = Vec::new();
            for summary in &trace.volumes {
                let target = match (&config.volume, config.volumes.get(&summary.name)) {
                    (Some(volume), _) => volume,
                    (None, Some(volume)) => volume,
                    (None, None) => &summary.name,
                };
                let key = if config.volume.is_some() {
                    at("volume")
                } else {
                    at("volumes")
                };
                let v = find(target, names()).map_err(|why| self.fault(&key, why))?;
                if summary.max_end_offset_bytes > volumes[v].size.0 {
                    let why = format!(
                        "the trace reaches byte {} of \"{}\", but volume \"{}\" has {}",
                        summary.max_end_offset_bytes,
                        summary.name,
                        volumes[v].name,
                        volumes[v].size
                    );
                    return Err(self.fault(&key, why));
                }
                map.push(VolumeId::from_index(v));
            }
            out.push(TraceModel {
                trace,
                volumes: map,
                outstanding: (config.replay != Replay::Open).then_some(config.outstanding),
                rates: self.rates(i, config)?,
                speed: config.speed,
                start: config.start,
                repeat: config.repeat,
                period,
            });
        }
        Ok(out)
    }

    /// Returns the request rates of a trace, if the scenario has rates for it.
    fn rates(&self, i: usize, config: &TraceConfig) -> Result<Option<RatesModel>, ScenarioError> {
        let fault = |key: &str, why: String| Err(self.fault(&format!("traces[{i}].{key}"), why));
        let rates = &config.rates_per_s;
        if config.replay != Replay::Rates {
            return match rates.is_empty() {
                true => Ok(None),
                false => fault("rates_per_s", "requires replay = \"rates\"".into()),
            };
        }
        if rates.is_empty() {
            return fault("replay", "\"rates\" requires rates_per_s".into());
        }
        if let Some(rate) = rates.iter().find(|r| !(0.0..=RATE_MAX_PER_S).contains(*r)) {
            let why = format!("{rate} is not between 0 and {RATE_MAX_PER_S} requests per second");
            return fault("rates_per_s", why);
        }
        if config.slot < Nanos::from_secs(1) {
            return fault("slot", format!("{} is shorter than 1s", config.slot));
        }
        if config.piece == 0 {
            return fault("piece", "must be at least one request".into());
        }
        let timed = [
            ("speed", config.speed != 1.0),
            ("repeat", config.repeat != 1),
            ("period", config.period.is_some()),
        ];
        if let Some((key, _)) = timed.iter().find(|t| t.1) {
            let why =
                "has no effect with replay = \"rates\", which does not use the times of the trace";
            return fault(key, why.into());
        }
        Ok(Some(RatesModel {
            per_s: rates.as_slice().into(),
            slot: config.slot,
            piece: config.piece,
        }))
    }

    fn clients(&self, volumes: &[VolumeModel]) -> Result<Vec<ClientModel>, ScenarioError> {
        let names = || volumes.iter().map(|v| v.name.as_str());
        let mut out = Vec::new();
        for (i, config) in self.scenario.clients.iter().enumerate() {
            let v = find(&config.volume, names())
                .map_err(|why| self.fault(&format!("clients[{i}].volume"), why))?;
            let spec = config.spec();
            trace::Client::new(&spec, volumes[v].size, self.scenario.seed, 0)
                .map_err(|e| self.fault(&format!("clients[{i}].{}", e.key), e.why))?;
            out.push(ClientModel {
                volume: VolumeId::from_index(v),
                spec,
            });
        }
        Ok(out)
    }

    fn policy(
        &self,
        topology: &Topology,
        volumes: &[VolumeModel],
    ) -> Result<Policy, ScenarioError> {
        let tiers: Vec<&str> = topology.tiers.iter().map(|t| t.name.as_str()).collect();
        let volumes: Vec<&str> = volumes.iter().map(|v| v.name.as_str()).collect();
        let config = &self.scenario.policy;
        let refuse = UnknownVolumes::Refuse;
        let policy =
            resolve_policy(&self.source, "policy", config, &tiers, &volumes, refuse)?.policy;
        let (monitor, window) = (policy.epochs.monitor, self.scenario.window);
        if !monitor.0.is_multiple_of(window.0.max(1)) {
            let why = format!("{monitor} is not a multiple of the window of {window}");
            return Err(self.fault("policy.monitor_epoch", why));
        }
        Ok(policy)
    }

    /// Returns the length of the stretches of results.
    fn stretch(&self) -> Result<Option<Nanos>, ScenarioError> {
        let (Some(stretch), window) = (self.scenario.stretch, self.scenario.window) else {
            return Ok(None);
        };
        if stretch.0 == 0 || !stretch.0.is_multiple_of(window.0.max(1)) {
            let why = format!("{stretch} is not a multiple of the window of {window}");
            return Err(self.fault("stretch", why));
        }
        Ok(Some(stretch))
    }

    fn duration(&self, traces: &[TraceModel]) -> Result<Nanos, ScenarioError> {
        let s = &self.scenario;
        if s.window < Nanos::from_millis(1) {
            return Err(self.fault("window", "must be at least 1ms"));
        }
        let end_of = |t: &TraceModel| {
            let last = (t.trace.span_ns as f64 / t.speed).ceil() as u64;
            let rounds = t.period.0.saturating_mul(u64::from(t.repeat) - 1);
            Nanos(t.start.0.saturating_add(rounds).saturating_add(last + 1))
        };
        let duration = match s.duration {
            Some(d) => d,
            None if s.clients.is_empty()
                && s.generators.is_empty()
                && traces.iter().all(|t| t.rates.is_none()) =>
            {
                traces.iter().map(end_of).max().unwrap_or(Nanos::ZERO)
            }
            None => {
                let why = "is required: clients, generators and traces with replay = \"rates\" have no end";
                return Err(self.fault("duration", why));
            }
        };
        if duration < s.window {
            return Err(self.fault(
                "duration",
                format!("{duration} is shorter than one window of {}", s.window),
            ));
        }
        if duration > DURATION_MAX {
            return Err(self.fault(
                "duration",
                format!("{duration} is longer than {DURATION_MAX}"),
            ));
        }
        if s.warmup >= duration {
            return Err(self.fault(
                "warmup",
                format!(
                    "{} must be shorter than the duration of {duration}",
                    s.warmup
                ),
            ));
        }
        // Rounds up to whole windows, so the end of the run is measured.
        Ok(Nanos(duration.0.div_ceil(s.window.0) * s.window.0))
    }
}
