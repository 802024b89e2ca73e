//! State of one host in the controller, and the part of it that is stored over restarts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use executor::{Executor, JobId};
use model::{ExtentHeat, Facts, Plan, Report};
use planner::StrategyState;
use serde::{Deserialize, Serialize};
use units::{DeviceId, Nanos, VolumeId};

use super::failures::Failures;
use crate::view::{DirectionCounters, OutcomeView};
use crate::wire::{CalibrationOrder, CalibrationResult, Load, MoveOrder, WindowReport};

/// Number of windows in a volume's sparkline.
pub(super) const SPARK_WINDOWS: usize = 60;

/// Permanent numbers of names: jobs refer to them while volumes come and go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Names {
    volumes: Vec<String>,
    devices: Vec<String>,
}

impl Names {
    pub(super) fn volume(&mut self, name: &str) -> VolumeId {
        VolumeId::from_index(number(&mut self.volumes, name))
    }

    pub(super) fn device(&mut self, name: &str) -> DeviceId {
        DeviceId::from_index(number(&mut self.devices, name))
    }

    pub(super) fn of_volume(&self, id: VolumeId) -> &str {
        &self.volumes[id.index()]
    }

    pub(super) fn of_device(&self, id: DeviceId) -> &str {
        &self.devices[id.index()]
    }
}

fn number(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|n| n == name).unwrap_or_else(|| {
        names.push(name.into());
        names.len() - 1
    })
}

/// Current plan, with the names of its ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CurrentPlan {
    pub(super) plan: Plan,
    pub(super) report: Report,
    /// Names of the volumes and devices, by the ids of the plan.
    pub(super) volumes: Vec<String>,
    pub(super) devices: Vec<String>,
    /// Tier of each device.
    pub(super) tiers: Vec<String>,
    /// Executor job number of the first move.
    pub(super) first_job: u32,
    /// Reason for which the prediction of each move is doubtful; empty for a host without virtual machines.
    pub(super) doubts: Vec<Option<String>>,
}

/// Finished move whose effect has not been measured yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PendingOutcome {
    pub(super) outcome: OutcomeView,
    /// Number of the target device, as jobs name it.
    pub(super) to: DeviceId,
    /// Epoch at whose end the effect is measured: the first whole one after the move, and after other moves from or to its target.
    pub(super) epoch: u64,
    /// Epoch in which the move ended.
    pub(super) ended: u64,
    /// True if only some extents of the volume moved.
    #[serde(default)]
    pub(super) part: bool,
}

/// State that is stored over restarts, in addition to the executor.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct PersistentState {
    pub(super) names: Names,
    /// Number of ended monitor epochs.
    pub(super) epoch: u64,
    /// End of each volume's last move.
    pub(super) last_moved: BTreeMap<String, Nanos>,
    pub(super) awaited: Vec<PendingOutcome>,
    /// Calibration sessions that are ordered and whose results have not been used.
    pub(super) calibrations: Vec<CalibrationOrder>,
    /// Numbers of sessions whose results were used, until the agent stops reporting them.
    pub(super) taken: BTreeSet<u64>,
    pub(super) next_calibration: u64,
    /// Devices of the last decision with their tiers: a strategy's state is valid only for these.
    pub(super) devices: Vec<(String, String)>,
    pub(super) cancelling: BTreeMap<u32, MoveOrder>,
    /// Jobs with a stored row that has not ended.
    #[serde(default)]
    pub(super) recorded: BTreeSet<u32>,
    /// Jobs that a mode has approved, not an operator.
    #[serde(default)]
    pub(super) by_mode: BTreeSet<u32>,
    /// Moves that have failed and not succeeded since.
    #[serde(default)]
    pub(super) failures: Failures,
    /// Jobs that an operator has approved and whose volumes are not reported now.
    #[serde(default)]
    pub(super) missing: BTreeSet<u32>,
}

/// Progress of a job, as last reported.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) left: Option<u64>,
    pub(super) rate: u64,
    /// Time of the last copied byte, or of the start of the job.
    pub(super) moved_at: Nanos,
    pub(super) called_stuck: bool,
}

/// Session of the agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) session: u64,
    pub(super) seq: u64,
}

/// Measurements since the begin of the monitor epoch.
#[derive(Debug, Default)]
pub(super) struct Epoch {
    pub(super) began: Nanos,
    /// Load of each volume, and the time that it covers, nanoseconds.
    pub(super) loads: BTreeMap<String, (Load, u64)>,
    /// Requests by extent of each volume, and the time that they cover, nanoseconds.
    pub(super) heats: BTreeMap<String, (HeatSum, u64)>,
    /// I/O of each device, and the time that it covers, nanoseconds.
    pub(super) devices: BTreeMap<String, (crate::wire::DeviceIoCounts, u64)>,
}

/// Requests by extent, summed over windows.
#[derive(Debug, Default)]
pub(super) struct HeatSum {
    requests: Vec<u32>,
    touched: Vec<u32>,
}

impl HeatSum {
    /// Adds a window.
    pub(super) fn add(&mut self, heat: &ExtentHeat) {
        for (extent, requests) in heat.touched() {
            let at = *extent as usize;
            if self.requests.len() <= at {
                self.requests.resize(at + 1, 0);
            }
            let sum = &mut self.requests[at];
            if *sum == 0 {
                self.touched.push(*extent);
            }
            *sum = sum.saturating_add(*requests);
        }
    }

    /// Returns the sum of all windows.
    pub(super) fn heat(&self) -> ExtentHeat {
        let mut touched = self.touched.clone();
        touched.sort_unstable();
        let requests = |extent: u32| (extent, self.requests[extent as usize]);
        ExtentHeat::of(touched.into_iter().map(requests).collect())
    }
}

/// Totals of a volume since the start of the controller.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) reads: DirectionCounters,
    pub(super) writes: DirectionCounters,
    pub(super) errors: u64,
    pub(super) slo_violated_ns: u64,
    /// Requests that a cache served; none without a cache.
    pub(super) from_cache: Option<u64>,
}

/// Latency and violations of a volume's last windows.
#[derive(Debug, Clone, Default)]
pub(super) struct Spark {
    pub(super) p99_us: VecDeque<Option<f64>>,
    pub(super) violated: VecDeque<bool>,
}

pub(super) struct Host {
    pub(super) name: String,
    pub(super) kept: PersistentState,
    pub(super) executor: Executor,
    pub(super) state: StrategyState,
    /// Facts of the last decision; none before the first decision since the start of the controller.
    pub(super) facts: Option<Facts>,
    pub(super) current: Option<CurrentPlan>,
    pub(super) link: Option<Link>,
    /// Last accepted report, with the end of its window.
    pub(super) last: Option<(Nanos, WindowReport)>,
    pub(super) epoch: Option<Epoch>,
    pub(super) results: Vec<CalibrationResult>,
    pub(super) progress: BTreeMap<JobId, Progress>,
    pub(super) sparks: BTreeMap<String, Spark>,
    pub(super) totals: BTreeMap<String, Totals>,
    /// Failed I/Os by device, kind of request and errno, since the start of the controller.
    pub(super) failed: BTreeMap<String, BTreeMap<(String, String), u64>>,
    /// Reason for which the last decision failed; live only its first line. The others, such as a traceback, are in the audit log.
    pub(super) problem: Option<String>,
    /// True if the problem is a failure of the strategy: the decision was made without it.
    pub(super) strategy_failed: bool,
    /// Last written reason for which each volume was not calibrated.
    pub(super) uncalibrated: BTreeMap<String, &'static str>,
    pub(super) called: crate::view::HostState,
    /// Parts that have to be stored.
    pub(super) dirty: DirtyParts,
}

/// Parts that changed since they were last passed to the store.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DirtyParts {
    pub(super) kept: bool,
    pub(super) executor: bool,
    pub(super) decision: bool,
}

impl Host {
    pub(super) fn new(name: &str, state: StrategyState) -> Self {
        Self {
            name: name.into(),
            kept: PersistentState::default(),
            executor: Executor::new(),
            state,
            facts: None,
            current: None,
            link: None,
            last: None,
            epoch: None,
            results: Vec::new(),
            progress: BTreeMap::new(),
            sparks: BTreeMap::new(),
            totals: BTreeMap::new(),
            failed: BTreeMap::new(),
            problem: None,
            strategy_failed: false,
            uncalibrated: BTreeMap::new(),
            called: crate::view::HostState::Lost,
            dirty: DirtyParts::default(),
        }
    }

    /// Returns the last report, if any.
    pub(super) fn report(&self) -> Option<&WindowReport> {
        self.last.as_ref().map(|l| &l.1)
    }

    /// Returns true for a donor host without an array.
    pub(super) fn lends_only(&self) -> bool {
        let only = |r: &WindowReport| {
            r.lends.is_some() && r.tiers.is_empty() && r.devices.is_empty() && r.volumes.is_empty()
        };
        self.report().is_some_and(only)
    }

    /// Tier of a device, by the last report; without a report, by the last decision.
    pub(super) fn tier_of(&self, device: &str) -> &str {
        let reported = self
            .report()
            .and_then(|r| r.devices.iter().find(|d| d.name == device));
        let decided = || self.kept.devices.iter().find(|d| d.0 == device);
        let tier = reported.map(|d| &d.tier);
        tier.or_else(|| decided().map(|d| &d.1))
            .map_or("unknown", String::as_str)
    }
}
