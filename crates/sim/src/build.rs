//! From the words of a scenario to a model that can run: names become ids, presets become devices, and everything
//! that cannot work is refused with its key.

use std::sync::Arc;

use model::{
    Affinity, Device, DeviceSpec, LoadCurve, Pin, Policy, SloClass, SloTarget, Specialty, Tier,
    Topology,
};
use trace::{ClientSpec, LoadedTrace, Times};
use units::{Bytes, ClassId, DeviceId, Nanos, TierId, VmId, VolumeId};
use volume::BATCH_BYTES;

use crate::parse::suggestion;
use crate::scenario::{InitialPlacement, Replay, TierConfig};
use crate::{ScenarioError, ScenarioFile};

/// Rows of results over time. Bounds the memory of a run: a row is about 100 bytes.
const SERIES_ROWS_MAX: u64 = 4_000_000;
/// Extents of all volumes together: eight bytes each.
const EXTENTS_MAX: u64 = 1 << 26;
/// Pieces of one batch of a copy: four bytes each while it is being moved.
const CHUNKS_MAX: u64 = 1 << 28;
/// Weight of a class. Scores are compared in steps of 1e-9 and must stay far from overflow.
const WEIGHT_MAX: f64 = 1e6;
/// No run is longer. Protects against a length that was meant in another unit.
const DURATION_MAX: Nanos = Nanos::from_secs(400 * 86_400);

/// A scenario, ready to run under any strategy.
#[derive(Clone)]
pub struct Model {
    /// Name of the scenario.
    pub name: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Length of the run, whole windows. Without a length in the scenario: the span of the traces, and the run goes on
    /// until all their requests have been issued, at most until `duration_max`.
    pub duration: Nanos,
    /// The run ends here at the latest: the given length, or as many windows as results are kept for.
    pub duration_max: Nanos,
    /// Time at the start that does not count.
    pub warmup: Nanos,
    /// Measurement window.
    pub window: Nanos,
    /// Extent size.
    pub extent: Bytes,
    /// Copy piece.
    pub copy_chunk: Bytes,
    /// The array.
    pub topology: Topology,
    /// Service classes.
    pub classes: Vec<SloClass>,
    /// VM names.
    pub vms: Vec<String>,
    /// Volumes.
    pub volumes: Vec<VolumeModel>,
    /// Traces.
    pub traces: Vec<TraceModel>,
    /// Clients.
    pub clients: Vec<ClientModel>,
    /// What the operator wants.
    pub policy: Policy,
}

/// A volume.
#[derive(Debug, Clone)]
pub struct VolumeModel {
    /// Name.
    pub name: String,
    /// Its VM.
    pub vm: VmId,
    /// Its class.
    pub class: ClassId,
    /// Its size.
    pub size: Bytes,
    /// Where it starts.
    pub device: DeviceId,
}

/// A trace to replay.
#[derive(Clone)]
pub struct TraceModel {
    /// The requests.
    pub trace: Arc<LoadedTrace>,
    /// Volume of the model by volume of the trace.
    pub volumes: Vec<VolumeId>,
    /// Requests in flight at most; `None` for open replay.
    pub outstanding: Option<u32>,
    /// Acceleration.
    pub speed: f64,
    /// When it starts.
    pub start: Nanos,
    /// How often.
    pub repeat: u32,
    /// From the start of one replay to the start of the next.
    pub period: Nanos,
}

/// A client.
#[derive(Debug, Clone)]
pub struct ClientModel {
    /// Its volume.
    pub volume: VolumeId,
    /// Its habits.
    pub spec: ClientSpec,
}

impl ScenarioFile {
    /// The model. `traces` are the scenario's traces, loaded, in its order.
    pub fn build(&self, traces: Vec<Arc<LoadedTrace>>) -> Result<Model, ScenarioError> {
        let s = &self.scenario;
        assert_eq!(
            traces.len(),
            s.traces.len(),
            "one loaded trace for each in the scenario"
        );
        let topology = self.topology()?;
        let classes = self.classes()?;
        let mut vms: Vec<String> = Vec::new();
        let mut volumes = Vec::new();
        if s.volumes.is_empty() {
            return Err(self.fault("volumes", "there is none"));
        }
        for (i, v) in s.volumes.iter().enumerate() {
            let at = |key: &str| format!("volumes[{i}].{key}");
            if s.volumes[..i].iter().any(|o| o.name == v.name) {
                return Err(self.fault(
                    &at("name"),
                    format!("volume \"{}\" is listed twice", v.name),
                ));
            }
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
            let class = match &v.class {
                None => 0,
                Some(name) => find(name, classes.iter().map(|c| c.name.as_str()))
                    .map_err(|why| self.fault(&at("class"), why))?,
            };
            let vm_name = v.vm.as_ref().unwrap_or(&v.name);
            let vm = vms.iter().position(|n| n == vm_name).unwrap_or_else(|| {
                vms.push(vm_name.clone());
                vms.len() - 1
            });
            volumes.push(VolumeModel {
                name: v.name.clone(),
                vm: VmId::from_index(vm),
                class: ClassId::from_index(class),
                size: v.size,
                device: DeviceId(0),
            });
        }
        self.place(&topology, &mut volumes)?;
        let traces = self.traces(traces, &volumes)?;
        let clients = self.clients(&volumes)?;
        if traces.is_empty() && clients.is_empty() {
            return Err(self.fault("", "there is no load: neither traces nor clients"));
        }
        self.check_sizes(&volumes)?;
        let duration = self.duration(&traces)?;
        let policy = self.policy(&topology, &volumes)?;
        let entities =
            (volumes.len() + vms.len() + classes.len() + topology.tiers.len() + 1) as u64;
        let windows = duration.0.div_ceil(s.window.0);
        let windows_max = SERIES_ROWS_MAX / entities;
        if windows > windows_max {
            let why = format!(
                "{windows} windows of {entities} rows are more than the {SERIES_ROWS_MAX} rows that are kept: use a longer window"
            );
            return Err(self.fault("window", why));
        }
        let open_ended = Nanos(windows_max.saturating_mul(s.window.0)).min(DURATION_MAX);
        let duration_max = if s.duration.is_some() {
            duration
        } else {
            open_ended.max(duration)
        };
        Ok(Model {
            name: s.name.clone(),
            seed: s.seed,
            duration,
            duration_max,
            warmup: Nanos(s.warmup.0.div_ceil(s.window.0) * s.window.0),
            window: s.window,
            extent: s.extent,
            copy_chunk: s.copy_chunk,
            topology,
            classes,
            vms,
            volumes,
            traces,
            clients,
            policy,
        })
    }

    /// Sizes that would take more memory than they are worth.
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
            let why =
                format!("{extents} extents in all are more than {EXTENTS_MAX}: use larger ones");
            return Err(self.fault("extent", why));
        }
        let largest = volumes.iter().map(|v| v.size.0).max().unwrap_or(0);
        let batch = BATCH_BYTES.max(s.extent).0.min(largest);
        let chunks = batch.div_ceil(s.copy_chunk.0);
        if chunks > CHUNKS_MAX {
            let why = format!(
                "{chunks} pieces of one extent are more than {CHUNKS_MAX}: use larger ones"
            );
            return Err(self.fault("copy_chunk", why));
        }
        Ok(())
    }

    fn topology(&self) -> Result<Topology, ScenarioError> {
        let s = &self.scenario;
        let mut topology = Topology {
            tiers: vec![],
            devices: vec![],
        };
        if s.tiers.is_empty() {
            return Err(self.fault("tiers", "there is none"));
        }
        for (i, t) in s.tiers.iter().enumerate() {
            let at = |key: &str| format!("tiers[{i}].{key}");
            if s.tiers[..i].iter().any(|o| o.name == t.name) {
                return Err(self.fault(&at("name"), format!("tier \"{}\" is listed twice", t.name)));
            }
            if !(1..=1024).contains(&t.devices) {
                return Err(self.fault(
                    &at("devices"),
                    format!("{} is not between 1 and 1024", t.devices),
                ));
            }
            let specialty = t
                .specialty
                .unwrap_or_else(|| Specialty::for_tier(i, s.tiers.len()));
            if [specialty.performance, specialty.bandwidth, specialty.space]
                .iter()
                .any(|w| !(0.0..=1.0).contains(w))
            {
                return Err(self.fault(&at("specialty"), "its weights are shares: 0 to 1"));
            }
            let spec = self.device(i, t)?;
            let tier = TierId::from_index(i);
            let first = topology.devices.len();
            for n in 0..t.devices {
                let name = if t.devices == 1 {
                    t.name.clone()
                } else {
                    format!("{}-{n}", t.name)
                };
                topology.devices.push(Device {
                    name,
                    tier,
                    spec: spec.clone(),
                });
            }
            let devices = (first..topology.devices.len())
                .map(DeviceId::from_index)
                .collect();
            topology.tiers.push(Tier {
                name: t.name.clone(),
                specialty,
                devices,
            });
        }
        Ok(topology)
    }

    fn device(&self, i: usize, t: &TierConfig) -> Result<DeviceSpec, ScenarioError> {
        let at = |key: &str| format!("tiers[{i}].{key}");
        let preset = model::preset(&t.preset).ok_or_else(|| {
            let why = suggestion(&t.preset, model::PRESETS.iter().map(|p| p.name));
            self.fault(
                &at("preset"),
                format!("unknown device \"{}\"{why}", t.preset),
            )
        })?;
        let mut spec = preset.spec();
        spec.capacity = t.capacity.unwrap_or(spec.capacity);
        spec.read_iops = t.read_iops.map_or(spec.read_iops, |r| r.0);
        spec.write_iops = t.write_iops.map_or(spec.write_iops, |r| r.0);
        spec.read_bandwidth = t.read_bandwidth.unwrap_or(spec.read_bandwidth);
        spec.write_bandwidth = t.write_bandwidth.unwrap_or(spec.write_bandwidth);
        spec.read_latency = t.read_latency.unwrap_or(spec.read_latency);
        spec.write_latency = t.write_latency.unwrap_or(spec.write_latency);
        spec.jitter_sigma = t.jitter_sigma.unwrap_or(spec.jitter_sigma);
        if let Some(points) = &t.curve {
            spec.curve = LoadCurve::new(points.clone())
                .map_err(|e| self.fault(&at("curve"), e.to_string()))?;
        }
        let positive = [
            ("capacity", spec.capacity.as_f64()),
            ("read_iops", spec.read_iops),
            ("write_iops", spec.write_iops),
            ("read_bandwidth", spec.read_bandwidth.as_f64()),
            ("write_bandwidth", spec.write_bandwidth.as_f64()),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, v)| *v <= 0.0) {
            return Err(self.fault(&at(key), "must be above 0"));
        }
        if !(0.0..=3.0).contains(&spec.jitter_sigma) {
            return Err(self.fault(&at("jitter_sigma"), "must be between 0 and 3"));
        }
        Ok(spec)
    }

    fn classes(&self) -> Result<Vec<SloClass>, ScenarioError> {
        let configured = &self.scenario.classes;
        if configured.is_empty() {
            return Ok(vec![SloClass::best_effort()]);
        }
        let mut classes = Vec::new();
        for (i, c) in configured.iter().enumerate() {
            if configured[..i].iter().any(|o| o.name == c.name) {
                return Err(self.fault(
                    &format!("classes[{i}].name"),
                    format!("class \"{}\" is listed twice", c.name),
                ));
            }
            if !(c.weight > 0.0 && c.weight <= WEIGHT_MAX) {
                let why = format!("{} is not above 0, up to {WEIGHT_MAX}", c.weight);
                return Err(self.fault(&format!("classes[{i}].weight"), why));
            }
            let target = c.latency.map(|latency| SloTarget {
                statistic: c.statistic,
                latency,
            });
            classes.push(SloClass {
                name: c.name.clone(),
                weight: c.weight,
                target,
            });
        }
        Ok(classes)
    }

    /// Chooses each volume's first device.
    fn place(&self, topology: &Topology, volumes: &mut [VolumeModel]) -> Result<(), ScenarioError> {
        let mut free: Vec<u64> = topology.devices.iter().map(|d| d.spec.capacity.0).collect();
        // Volumes with a tier first: the others take what is left.
        let configs = &self.scenario.volumes;
        let order = (0..volumes.len()).filter(|i| configs[*i].tier.is_some());
        let order: Vec<usize> = order
            .chain((0..volumes.len()).filter(|i| configs[*i].tier.is_none()))
            .collect();
        for i in order {
            let at = format!("volumes[{i}].tier");
            let tiers: Vec<TierId> = match &configs[i].tier {
                Some(name) => {
                    let names = topology.tiers.iter().map(|t| t.name.as_str());
                    vec![TierId::from_index(
                        find(name, names).map_err(|why| self.fault(&at, why))?,
                    )]
                }
                None => topology.tier_ids().collect(),
            };
            let size = volumes[i].size.0;
            let share_free = |d: &DeviceId| {
                (free[d.index()] as f64 / topology.device(*d).spec.capacity.as_f64() * 1e6).round()
                    as u64
            };
            let fits = tiers
                .iter()
                .flat_map(|t| &topology.tier(*t).devices)
                .filter(|d| free[d.index()] >= size);
            let rank = |d: &DeviceId| match self.scenario.initial_placement {
                InitialPlacement::Spread => 0,
                InitialPlacement::Highest => i32::from(topology.tier_of(*d).0),
                InitialPlacement::Lowest => -i32::from(topology.tier_of(*d).0),
            };
            let best = fits.min_by_key(|d| (rank(d), std::cmp::Reverse(share_free(d)), **d));
            let Some(device) = best else {
                let most = tiers
                    .iter()
                    .flat_map(|t| &topology.tier(*t).devices)
                    .map(|d| free[d.index()])
                    .max();
                let why = format!(
                    "no room for volume \"{}\" of {}: the emptiest device has {} free beside the other volumes",
                    volumes[i].name,
                    volumes[i].size,
                    Bytes(most.unwrap_or(0))
                );
                return Err(self.fault(&at, why));
            };
            free[device.index()] -= size;
            volumes[i].device = *device;
        }
        Ok(())
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
                let why = "the trace has no times, only an order: nothing says when to issue its requests; use replay = \"window\"";
                return Err(self.fault(&at("replay"), why));
            }
            if config.volume.is_some() && !config.volumes.is_empty() {
                return Err(self.fault(&at("volumes"), "give either volume or volumes"));
            }
            if !(config.speed > 0.0 && config.speed <= 1e6) {
                return Err(self.fault(
                    &at("speed"),
                    format!("{} is not above 0, up to 1,000,000", config.speed),
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
                let why = format!("{period} is shorter than one replay, which takes {span}");
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
                        "the trace reaches byte {} of \"{}\", volume \"{}\" has {}",
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
                outstanding: (config.replay == Replay::Window).then_some(config.outstanding),
                speed: config.speed,
                start: config.start,
                repeat: config.repeat,
                period,
            });
        }
        Ok(out)
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
        let p = &self.scenario.policy;
        let mut policy = Policy::default();
        policy.epochs.monitor = p.monitor_epoch.unwrap_or(policy.epochs.monitor);
        policy.epochs.migration = p.migration_epoch.unwrap_or(policy.epochs.migration);
        if policy.epochs.monitor < Nanos::from_millis(100) {
            return Err(self.fault("policy.monitor_epoch", "must be at least 100ms"));
        }
        let (monitor, migration) = (policy.epochs.monitor, policy.epochs.migration);
        if !monitor.0.is_multiple_of(self.scenario.window.0.max(1)) {
            let why = format!(
                "{monitor} is not a multiple of the window of {}",
                self.scenario.window
            );
            return Err(self.fault("policy.monitor_epoch", why));
        }
        if !migration.0.is_multiple_of(monitor.0) || migration <= monitor {
            let why = format!(
                "{migration} is not a multiple, above once, of the monitor epoch of {monitor}"
            );
            return Err(self.fault("policy.migration_epoch", why));
        }
        let share = |key: &str, value: Option<f64>, default: f64| match value.unwrap_or(default) {
            v if v > 0.0 && v <= 1.0 => Ok(v),
            v => Err(self.fault(
                &format!("policy.{key}"),
                format!("{v} is not a share above 0, up to 1"),
            )),
        };
        let headroom = &mut policy.headroom;
        headroom.performance = share(
            "headroom_performance",
            p.headroom_performance,
            headroom.performance,
        )?;
        headroom.bandwidth = share(
            "headroom_bandwidth",
            p.headroom_bandwidth,
            headroom.bandwidth,
        )?;
        headroom.space = share("headroom_space", p.headroom_space, headroom.space)?;
        let budget = &mut policy.budget;
        budget.copy_share = share("copy_share", p.copy_share, budget.copy_share)?;
        budget.moves_per_epoch = p.moves_per_epoch.unwrap_or(budget.moves_per_epoch);
        budget.bytes_per_epoch = p.bytes_per_epoch.or(budget.bytes_per_epoch);
        budget.concurrent = p.concurrent_moves.unwrap_or(budget.concurrent);
        budget.concurrent_per_device = p
            .concurrent_moves_per_device
            .unwrap_or(budget.concurrent_per_device);
        budget.copy_bandwidth = p.copy_bandwidth.unwrap_or(budget.copy_bandwidth);
        if budget.copy_bandwidth.0 == 0 {
            return Err(self.fault(
                "policy.copy_bandwidth",
                "must be above 0; to move nothing, use moves_per_epoch = 0",
            ));
        }
        if budget.concurrent == 0 || budget.concurrent_per_device == 0 {
            let why = "must be above 0; to move nothing, use moves_per_epoch = 0";
            return Err(self.fault("policy.concurrent_moves", why));
        }
        let volume = |key: &str, name: &str| {
            find(name, volumes.iter().map(|v| v.name.as_str()))
                .map(VolumeId::from_index)
                .map_err(|why| self.fault(key, format!("volume: {why}")))
        };
        let tier = |key: &str, name: &str| {
            find(name, topology.tiers.iter().map(|t| t.name.as_str()))
                .map(TierId::from_index)
                .map_err(|why| self.fault(key, format!("tier: {why}")))
        };
        for (v, t) in &p.pins {
            let pin = Pin {
                volume: volume("policy.pins", v)?,
                tier: tier("policy.pins", t)?,
            };
            policy.pins.push(pin);
        }
        for (i, rule) in p.affinity.iter().enumerate() {
            let key = format!("policy.affinity[{i}].volumes");
            let mut volumes = rule
                .volumes
                .iter()
                .map(|v| volume(&key, v))
                .collect::<Result<Vec<_>, _>>()?;
            volumes.sort();
            volumes.dedup();
            if volumes.len() < 2 || volumes.len() < rule.volumes.len() {
                return Err(self.fault(
                    &key,
                    "needs at least two different volumes, each named once",
                ));
            }
            policy.affinity.push(Affinity {
                kind: rule.kind,
                volumes,
            });
        }
        for name in &p.no_injection {
            policy
                .no_injection
                .push(volume("policy.no_injection", name)?);
        }
        for name in &p.cordon {
            policy.cordoned.push(tier("policy.cordon", name)?);
        }
        Ok(policy)
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
            None if s.clients.is_empty() => traces.iter().map(end_of).max().unwrap_or(Nanos::ZERO),
            None => {
                return Err(self.fault("duration", "is needed: clients never end by themselves"));
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
                format!("{} leaves nothing of {duration}", s.warmup),
            ));
        }
        // Whole windows, so that nothing at the end goes unmeasured.
        Ok(Nanos(duration.0.div_ceil(s.window.0) * s.window.0))
    }
}

fn find<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Result<usize, String> {
    known
        .clone()
        .position(|k| k == name)
        .ok_or_else(|| format!("unknown name \"{name}\"{}", suggestion(name, known)))
}
