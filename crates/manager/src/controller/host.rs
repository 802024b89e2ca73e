//! What the controller knows of one host, and what of it outlasts a restart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use executor::{Executor, JobId};
use model::{ExtentHeat, Facts, Plan, Report};
use planner::StrategyState;
use serde::{Deserialize, Serialize};
use units::{DeviceId, Nanos, VolumeId};

use super::failures::Failures;
use crate::view::{DirectionCounters, OutcomeView};
use crate::wire::{CalibrationOrder, CalibrationResult, Load, MoveOrder, WindowReport};

/// Windows that a volume's sparkline shows.
pub(super) const SPARK_WINDOWS: usize = 60;

/// Names with numbers that never change: what jobs speak of, while volumes come and go.
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

/// A plan by names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Current {
    pub(super) plan: Plan,
    pub(super) report: Report,
    /// Names of the volumes, devices and tiers that the plan's ids mean.
    pub(super) volumes: Vec<String>,
    pub(super) devices: Vec<String>,
    /// Tier of each device.
    pub(super) tiers: Vec<String>,
    /// The executor's number of the first move.
    pub(super) first_job: u32,
}

/// A move whose effect is being waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Awaited {
    pub(super) outcome: OutcomeView,
    /// The epoch whose end tells: the first whole one after the move.
    pub(super) epoch: u64,
    /// Whether only a part of the volume moved.
    #[serde(default)]
    pub(super) part: bool,
}

/// What outlasts a restart, beside the executor.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) names: Names,
    /// Monitor epochs that ended.
    pub(super) epoch: u64,
    /// When each volume's last move ended.
    pub(super) last_moved: BTreeMap<String, Nanos>,
    pub(super) awaited: Vec<Awaited>,
    /// Calibration sessions that were ordered and have not been taken in.
    pub(super) calibrations: Vec<CalibrationOrder>,
    /// Numbers of sessions that were taken in, until the agent stops reporting them.
    pub(super) taken: BTreeSet<u64>,
    pub(super) next_calibration: u64,
    /// Devices of the last decision, by tier: a strategy's state is only good for these.
    pub(super) devices: Vec<(String, String)>,
    pub(super) cancelling: BTreeMap<u32, MoveOrder>,
    /// Jobs of which the store has a row that has not ended.
    #[serde(default)]
    pub(super) recorded: BTreeSet<u32>,
    /// Jobs that a mode has approved, and no person.
    #[serde(default)]
    pub(super) by_mode: BTreeSet<u32>,
    /// Moves that have failed and have not succeeded since.
    #[serde(default)]
    pub(super) failures: Failures,
    /// Jobs that a person has approved, and whose volumes are not reported now.
    #[serde(default)]
    pub(super) missing: BTreeSet<u32>,
}

/// How a job goes on, as last reported.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) left: Option<u64>,
    pub(super) rate: u64,
    /// When a byte was last copied, or the job began.
    pub(super) moved_at: Nanos,
    pub(super) called_stuck: bool,
}

/// The agent's session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) session: u64,
    pub(super) seq: u64,
    /// The version that it speaks.
    pub(super) protocol: u32,
}

/// What was measured since the monitor epoch began.
#[derive(Debug, Default)]
pub(super) struct Epoch {
    pub(super) began: Nanos,
    /// Load, and the time that it covers.
    pub(super) loads: BTreeMap<String, (Load, u64)>,
    /// Requests by extent, and the time that they cover.
    pub(super) heats: BTreeMap<String, (HeatSum, u64)>,
    /// I/O of devices, and the time that it covers.
    pub(super) devices: BTreeMap<String, (crate::wire::DeviceIoCounts, u64)>,
}

/// Requests by extent, added up over windows.
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

    /// All windows as one.
    pub(super) fn heat(&self) -> ExtentHeat {
        let mut touched = self.touched.clone();
        touched.sort_unstable();
        let requests = |extent: u32| (extent, self.requests[extent as usize]);
        ExtentHeat::of(touched.into_iter().map(requests).collect())
    }
}

/// Totals of a volume since the controller was started.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) reads: DirectionCounters,
    pub(super) writes: DirectionCounters,
    pub(super) errors: u64,
    pub(super) slo_violated_ns: u64,
    /// Requests that a cache answered; none while there is none.
    pub(super) from_cache: Option<u64>,
}

/// A volume's last windows.
#[derive(Debug, Clone, Default)]
pub(super) struct Spark {
    pub(super) p99_us: VecDeque<Option<f64>>,
    pub(super) violated: VecDeque<bool>,
}

pub(super) struct Host {
    pub(super) name: String,
    pub(super) kept: Kept,
    pub(super) executor: Executor,
    pub(super) state: StrategyState,
    /// What the last decision knew; none until there was one since the controller was started.
    pub(super) facts: Option<Facts>,
    pub(super) current: Option<Current>,
    pub(super) link: Option<Link>,
    /// The last report that was taken, and the time that it is about.
    pub(super) last: Option<(Nanos, WindowReport)>,
    pub(super) epoch: Option<Epoch>,
    pub(super) results: Vec<CalibrationResult>,
    pub(super) progress: BTreeMap<JobId, Progress>,
    pub(super) sparks: BTreeMap<String, Spark>,
    pub(super) totals: BTreeMap<String, Totals>,
    /// I/Os that devices failed, by device, kind of request and errno, since the controller was started.
    pub(super) failed: BTreeMap<String, BTreeMap<(String, String), u64>>,
    pub(super) problem: Option<String>,
    /// Why each volume was not calibrated when that was last said.
    pub(super) uncalibrated: BTreeMap<String, &'static str>,
    pub(super) called: crate::view::HostState,
    /// What of it has to be written.
    pub(super) dirty: Dirty,
}

/// Parts that changed since they were last handed to the store.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Dirty {
    pub(super) kept: bool,
    pub(super) executor: bool,
    pub(super) decision: bool,
}

impl Host {
    pub(super) fn new(name: &str, state: StrategyState) -> Self {
        Self {
            name: name.into(),
            kept: Kept::default(),
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
            uncalibrated: BTreeMap::new(),
            called: crate::view::HostState::Lost,
            dirty: Dirty::default(),
        }
    }

    /// The last report, if there was one.
    pub(super) fn report(&self) -> Option<&WindowReport> {
        self.last.as_ref().map(|l| &l.1)
    }

    /// Whether it has nothing to place, and is there for what it lends.
    pub(super) fn lends_only(&self) -> bool {
        let only = |r: &WindowReport| {
            r.lends.is_some() && r.tiers.is_empty() && r.devices.is_empty() && r.volumes.is_empty()
        };
        self.report().is_some_and(only)
    }

    /// Tier of a device, by the last report; without one, as of the last decision.
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
