//! Facts of a decision as tables.

use model::{Facts, Flow, Policy, VolumeFacts};
use planner::Context;
use pyo3::prelude::*;

use crate::table::Table;
use tables::Columns;

/// Layout of the tables.
const FACTS_SCHEMA: &str = "terrace.facts/1";

/// Everything that a strategy may know of the array at one moment. A measurement that is missing is None, never zero.
#[pyclass(frozen, name = "Facts", module = "terrace")]
pub struct FactsView {
    /// Time of the decision in seconds since the start.
    #[pyo3(get)]
    at_s: f64,
    /// Number of the monitor epoch.
    #[pyo3(get)]
    epoch: u64,
    /// True if the decision may move volumes.
    #[pyo3(get)]
    placement_due: bool,
    /// Volumes, with their load in the last monitor epoch.
    #[pyo3(get)]
    volumes: Py<Table>,
    /// Tiers, the fastest first as the scenario lists them.
    #[pyo3(get)]
    tiers: Py<Table>,
    /// Devices.
    #[pyo3(get)]
    devices: Py<Table>,
    /// Service classes with their objectives.
    #[pyo3(get)]
    classes: Py<Table>,
    /// Running moves.
    #[pyo3(get)]
    moves: Py<Table>,
}

impl FactsView {
    /// Tables of these facts.
    pub fn new(py: Python<'_>, context: &Context<'_>) -> PyResult<Self> {
        let (facts, policy) = (context.facts, context.policy);
        Ok(Self {
            at_s: facts.at.as_secs_f64(),
            epoch: facts.epoch,
            placement_due: facts.placement_due,
            volumes: Py::new(py, volumes(facts, policy))?,
            tiers: Py::new(py, tiers(facts, policy))?,
            devices: Py::new(py, devices(facts))?,
            classes: Py::new(py, classes(facts))?,
            moves: Py::new(py, moves(facts))?,
        })
    }
}

#[pymethods]
impl FactsView {
    fn __repr__(&self) -> String {
        format!("<terrace.Facts at {} s, epoch {}>", self.at_s, self.epoch)
    }
}

fn volumes(facts: &Facts, policy: &Policy) -> Table {
    let all = || facts.volumes.iter();
    let ids = || (0..facts.volumes.len()).map(units::VolumeId::from_index);
    let tier = |v: &VolumeFacts| &facts.topology.tier(facts.topology.tier_of(v.device)).name;
    let moving = |v: units::VolumeId| facts.moves.iter().any(|m| m.volume == v);
    let pinned = |v: units::VolumeId| {
        let tier = policy.pin_of(v)?;
        Some(facts.topology.tier(tier).name.as_str())
    };
    let columns = Columns::default()
        .text("name", all().map(|v| Some(&v.name)))
        .text("vm", all().map(|v| Some(&facts.vms[v.vm.index()])))
        .text(
            "class",
            all().map(|v| Some(&facts.classes[v.class.index()].name)),
        )
        .text("tier", all().map(|v| Some(tier(v))))
        .text(
            "device",
            all().map(|v| Some(&facts.topology.device(v.device).name)),
        )
        .text("pinned_tier", ids().map(pinned))
        .u64("size_bytes", "B", all().map(|v| Some(v.size.0)))
        .flag("moving", ids().map(moving))
        .f64(
            "last_moved_s",
            "s",
            all().map(|v| Some(v.last_moved?.as_secs_f64())),
        )
        .f64("iops", "1/s", all().map(|v| Some(v.measured?.iops())))
        .f64(
            "bytes_per_s",
            "B/s",
            all().map(|v| Some(v.measured?.bytes_per_s())),
        )
        .f64(
            "read_share",
            "",
            all().map(|v| Some(v.measured?.read_share())),
        )
        .f64(
            "outstanding",
            "",
            all().map(|v| Some(v.measured?.outstanding)),
        )
        .f64(
            "latency_mean_us",
            "us",
            all().map(|v| v.measured?.latency_mean_us()),
        );
    let reads = |v: &VolumeFacts| Some(v.measured?.reads);
    let writes = |v: &VolumeFacts| Some(v.measured?.writes);
    let columns = flow(columns, facts, "read", reads);
    flow(columns, facts, "write", writes)
        .finish(FACTS_SCHEMA)
        .into()
}

/// Adds the columns of reads or of writes. Latencies are known only with requests.
fn flow(
    columns: Columns,
    facts: &Facts,
    name: &str,
    of: impl Fn(&VolumeFacts) -> Option<Flow>,
) -> Columns {
    let all = || facts.volumes.iter().map(&of);
    let latency = |take: fn(&Flow) -> f64| {
        all().map(move |flow| flow.filter(|f| f.ios > 0).map(|f| take(&f)))
    };
    columns
        .u64(&format!("{name}_ios"), "", all().map(|f| Some(f?.ios)))
        .u64(&format!("{name}_bytes"), "B", all().map(|f| Some(f?.bytes)))
        .f64(
            &format!("{name}_mean_us"),
            "us",
            latency(|f| f.latency.mean_us),
        )
        .f64(
            &format!("{name}_p95_us"),
            "us",
            latency(|f| f.latency.p95_us),
        )
        .f64(
            &format!("{name}_p99_us"),
            "us",
            latency(|f| f.latency.p99_us),
        )
}

fn tiers(facts: &Facts, policy: &Policy) -> Table {
    let ids = || facts.topology.tier_ids();
    let sum = |tier: units::TierId, of: &dyn Fn(usize) -> u64| -> u64 {
        let devices = facts.topology.devices.iter().enumerate();
        devices
            .filter(|(_, d)| d.tier == tier)
            .map(|(i, _)| of(i))
            .sum()
    };
    let capacity = |i: usize| facts.topology.devices[i].spec.capacity.0;
    let used = |i: usize| facts.devices[i].used.0 + facts.devices[i].reserved.0;
    Columns::default()
        .text("name", ids().map(|t| Some(&facts.topology.tier(t).name)))
        .u64("devices", "", ids().map(|t| Some(sum(t, &|_| 1))))
        .u64(
            "capacity_bytes",
            "B",
            ids().map(|t| Some(sum(t, &capacity))),
        )
        .u64("used_bytes", "B", ids().map(|t| Some(sum(t, &used))))
        .flag("cordoned", ids().map(|t| policy.cordoned.contains(&t)))
        .flag("draining", ids().map(|t| policy.draining.contains(&t)))
        .finish(FACTS_SCHEMA)
        .into()
}

fn devices(facts: &Facts) -> Table {
    let all = || facts.topology.devices.iter().zip(&facts.devices);
    let spec = || facts.topology.devices.iter().map(|d| &d.spec);
    Columns::default()
        .text("name", all().map(|(d, _)| Some(&d.name)))
        .text(
            "tier",
            all().map(|(d, _)| Some(&facts.topology.tier(d.tier).name)),
        )
        .text("model", spec().map(|s| Some(&s.model)))
        .u64("capacity_bytes", "B", spec().map(|s| Some(s.capacity.0)))
        .u64("used_bytes", "B", all().map(|(_, f)| Some(f.used.0)))
        .u64(
            "reserved_bytes",
            "B",
            all().map(|(_, f)| Some(f.reserved.0)),
        )
        .f64("utilization", "", all().map(|(_, f)| Some(f.utilization)))
        .f64(
            "read_bytes_per_s",
            "B/s",
            all().map(|(_, f)| Some(f.read_bytes_per_s)),
        )
        .f64(
            "write_bytes_per_s",
            "B/s",
            all().map(|(_, f)| Some(f.write_bytes_per_s)),
        )
        .f64("read_iops_max", "1/s", spec().map(|s| Some(s.read_iops)))
        .f64("write_iops_max", "1/s", spec().map(|s| Some(s.write_iops)))
        .f64(
            "read_bytes_per_s_max",
            "B/s",
            spec().map(|s| Some(s.read_bandwidth.as_f64())),
        )
        .f64(
            "write_bytes_per_s_max",
            "B/s",
            spec().map(|s| Some(s.write_bandwidth.as_f64())),
        )
        .f64(
            "read_latency_us",
            "us",
            spec().map(|s| Some(s.read_latency.as_micros_f64())),
        )
        .f64(
            "write_latency_us",
            "us",
            spec().map(|s| Some(s.write_latency.as_micros_f64())),
        )
        .finish(FACTS_SCHEMA)
        .into()
}

fn classes(facts: &Facts) -> Table {
    let all = || facts.classes.iter();
    Columns::default()
        .text("name", all().map(|c| Some(&c.name)))
        .f64("weight", "", all().map(|c| Some(c.weight)))
        .text(
            "objective_statistic",
            all().map(|c| Some(c.target?.statistic.name())),
        )
        .f64(
            "objective_us",
            "us",
            all().map(|c| Some(c.target?.latency.as_micros_f64())),
        )
        .f64("max_slowdown", "", all().map(|c| c.max_slowdown))
        .finish(FACTS_SCHEMA)
        .into()
}

fn moves(facts: &Facts) -> Table {
    let all = || facts.moves.iter();
    let device = |d: units::DeviceId| Some(&facts.topology.device(d).name);
    Columns::default()
        .text(
            "volume",
            all().map(|m| Some(&facts.volumes[m.volume.index()].name)),
        )
        .text("from_device", all().map(|m| device(m.from)))
        .text("to_device", all().map(|m| device(m.to)))
        .finish(FACTS_SCHEMA)
        .into()
}
