//! Experiment about AutoTiering's sensitivities of one volume, with and without injection. The latency that it predicts
//! on other tiers is compared with a run that has the volume there.
//!
//! ```text
//!  middle tier:  the volume  +  three neighbours with a load that depends on the case
//!  runs:  injected · passive · uncalibrated · injected with steady neighbours        without moves
//!         the volume on the fast tier · on the slow one                              reference
//! ```
//!
//! The device's caps are a fraction of the preset's, so a run has millions of requests, not hundreds of millions.

use model::Report;
use planner::build;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    GroupKind, Manifest, RunError, RunOptions, RunResult, ScenarioError, ScenarioFile, run,
};

/// Placement decisions before this time are based on too few epochs and do not count.
const LEARNED_S: f64 = 120.0;
/// Name of the tested volume.
const VOLUME: &str = "v";

/// Case of the experiment: a pattern of the neighbours' load.
#[derive(Debug, Clone, Copy)]
pub struct SensitivityCase {
    /// Short name.
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
    /// Outstanding requests of the volume.
    outstanding: u32,
    /// Mean pause between a completion and the next request of the same slot, microseconds.
    think_us: u32,
    /// Additional keys of the neighbours' clients.
    neighbours: [&'static str; 3],
    /// Additional keys of the volume's own client.
    own: &'static str,
}

const STEADY: [&str; 3] = ["", "", ""];
const LONG: [&str; 3] = [
    "bursts = { every = \"37s\", length = \"14s\", factor = 5.0 }",
    "bursts = { every = \"53s\", length = \"21s\", factor = 4.0 }",
    "",
];
const MILD: [&str; 3] = [
    "bursts = { every = \"37s\", length = \"14s\", factor = 2.5 }",
    "bursts = { every = \"53s\", length = \"21s\", factor = 2.0 }",
    "",
];
const SHORT: [&str; 3] = [
    "phases = [{ duration = \"27s\" }, { duration = \"31s\", idle = true }]\nbursts = { every = \"1s\", length = \"150ms\", factor = 12.0 }",
    "phases = [{ duration = \"41s\" }, { duration = \"17s\", idle = true }]\nbursts = { every = \"1300ms\", length = \"200ms\", factor = 10.0 }",
    "phases = [{ duration = \"23s\" }, { duration = \"11s\", idle = true }]\nbursts = { every = \"1700ms\", length = \"150ms\", factor = 10.0 }",
];
const TOGETHER: [&str; 3] = ["bursts = { every = \"40s\", length = \"15s\", factor = 4.0 }"; 3];

/// All cases. In some the passive estimate should work, in others not.
pub const SENSITIVITY_CASES: &[SensitivityCase] = &[
    SensitivityCase {
        name: "mild-bursts",
        about: "neighbours burst for longer than an epoch, and the device bears it; 2 in flight",
        outstanding: 2,
        think_us: 400,
        neighbours: MILD,
        own: "",
    },
    SensitivityCase {
        name: "long-bursts",
        about: "the same, but bursts fill the device",
        outstanding: 2,
        think_us: 400,
        neighbours: LONG,
        own: "",
    },
    SensitivityCase {
        name: "deep-queue",
        about: "the same, but the volume loads the device itself: 24 in flight",
        outstanding: 24,
        think_us: 0,
        neighbours: LONG,
        own: "",
    },
    SensitivityCase {
        name: "more-of-it",
        about: "the same, with 8 in flight that pause for 1 ms",
        outstanding: 8,
        think_us: 1000,
        neighbours: LONG,
        own: "",
    },
    SensitivityCase {
        name: "short-bursts",
        about: "neighbours burst for 150 to 200 ms, far shorter than an epoch",
        outstanding: 2,
        think_us: 400,
        neighbours: SHORT,
        own: "",
    },
    SensitivityCase {
        name: "together",
        about: "the volume and all neighbours burst at the same times",
        outstanding: 2,
        think_us: 400,
        neighbours: TOGETHER,
        own: TOGETHER[0],
    },
    SensitivityCase {
        name: "steady",
        about: "nothing varies",
        outstanding: 2,
        think_us: 400,
        neighbours: STEADY,
        own: "",
    },
];

/// Prediction errors for the mean latency on one tier, by estimation method: predicted divided by measured, minus 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierErrors {
    /// Name of the tier.
    pub tier: String,
    /// Mean latency measured in the run with the volume on this tier, microseconds.
    pub measured_us: f64,
    /// Error with injection.
    pub injected: f64,
    /// Error with the passive estimate; `None` if it gave no estimate.
    pub passive: Option<f64>,
    /// Error without calibration: slope 1 from the measured latency.
    pub uncalibrated: f64,
}

/// Result of one case with one seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SensitivityRow {
    /// Name of the case.
    pub case: String,
    /// Seed of the runs.
    pub seed: u64,
    /// Name of the volume.
    pub volume: String,
    /// Slope from injection with steady neighbours.
    pub m_injected_steady: Option<f64>,
    /// Slope from injection with the case's load.
    pub m_injected: Option<f64>,
    /// Slope from the passive estimate.
    pub m_passive: Option<f64>,
    /// Number of epochs behind the passive estimate.
    pub windows: Option<f64>,
    /// Standard deviation of the device's latency over these epochs, microseconds.
    pub spread_us: Option<f64>,
    /// Prediction errors by tier, for tiers without the volume.
    pub tiers: Vec<TierErrors>,
}

/// Reason of a missing row. Always a bug in this module.
#[derive(Debug, Error)]
pub enum SensitivityError {
    /// The scenario of the case is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The strategy cannot be built.
    #[error("{0}")]
    Strategy(String),
}

fn scenario(case: &SensitivityCase, seed: u64, tier: &str, steady: bool, policy: &str) -> String {
    let neighbours = if steady { STEADY } else { case.neighbours };
    let own = if steady { "" } else { case.own };
    let think = case.think_us;
    let outstanding = case.outstanding;
    let mut text = format!(
        "name = \"sensitivity\"\nseed = {seed}\nduration = \"6m\"\nwarmup = \"1m\"\nwindow = \"5s\"\n
[[tiers]]\nname = \"fast\"\npreset = \"pm953\"\nread_iops = \"48 kIOPS\"\nwrite_iops = \"12 kIOPS\"
[[tiers]]\nname = \"middle\"\npreset = \"pm1633\"\nread_iops = \"40 kIOPS\"\nwrite_iops = \"12 kIOPS\"
[[tiers]]\nname = \"slow\"\npreset = \"pm863\"\nread_iops = \"20 kIOPS\"\nwrite_iops = \"6 kIOPS\"
[policy]\nmonitor_epoch = \"5s\"\nmigration_epoch = \"60s\"\nmoves_per_epoch = 0\n{policy}
[[volumes]]\nname = \"{VOLUME}\"\nsize = \"1 GiB\"\ntier = \"{tier}\"
[[clients]]\nvolume = \"{VOLUME}\"\nhabits = {{ outstanding = {outstanding}, read_share = 0.7, think = \"{think}us\" }}\n{own}\n"
    );
    for (i, varied) in neighbours.iter().enumerate() {
        text += &format!(
            "[[volumes]]\nname = \"n{i}\"\nsize = \"1 GiB\"\ntier = \"middle\"
[[clients]]\nvolume = \"n{i}\"\nhabits = {{ outstanding = 4, read_share = 0.8, rate = \"2500 IOPS\" }}\n{varied}\n"
        );
    }
    for tier in ["fast", "slow"] {
        text += &format!(
            "[[volumes]]\nname = \"on-{tier}\"\nsize = \"1 GiB\"\ntier = \"{tier}\"
[[clients]]\nvolume = \"on-{tier}\"\nhabits = {{ outstanding = 2, read_share = 0.8, rate = \"2000 IOPS\" }}\n"
        );
    }
    text
}

fn result(text: &str, strategy: &str, config: Value) -> Result<RunResult, SensitivityError> {
    let model = ScenarioFile::parse("sensitivity", text)?.build(vec![])?;
    let built = build(strategy, config).map_err(|e| SensitivityError::Strategy(e.to_string()))?;
    let manifest = Manifest {
        strategy: strategy.into(),
        ..Manifest::default()
    };
    let options = RunOptions {
        series: false,
        decisions: true,
        optimum: None,
    };
    Ok(run(&model, built, manifest, options, &mut |_| {})?)
}

/// Averages of the decisions about the volume, after the learning time.
struct DecisionAverages {
    reports: Vec<Report>,
}

impl DecisionAverages {
    fn from(text: &str, sensitivity: &str) -> Result<Self, SensitivityError> {
        // A session takes eight seconds. This is short compared with the migration epoch, as with the defaults.
        let config = json!({ "sensitivity": sensitivity, "calibration": { "window": "200ms" } });
        let reports = result(text, "autotiering", config)?
            .decisions
            .unwrap_or_default();
        let late = |r: &Report| r.at.as_secs_f64() >= LEARNED_S;
        Ok(Self {
            reports: reports.into_iter().filter(late).collect(),
        })
    }

    fn mean(&self, of: impl Fn(&model::VolumeReport) -> Option<f64>) -> Option<f64> {
        let volumes = self.reports.iter().flat_map(|r| &r.volumes);
        let values: Vec<f64> = volumes
            .filter(|v| v.volume == VOLUME)
            .filter_map(of)
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    fn evidence(&self, name: &str) -> Option<f64> {
        self.mean(|v| v.evidence.get(name).copied())
    }

    fn latency_us(&self, tier: &str) -> Option<f64> {
        self.mean(|v| {
            Some(
                v.options
                    .iter()
                    .find(|o| o.tier == tier)?
                    .predicted?
                    .latency_us,
            )
        })
    }
}

/// Runs one case with one seed: six simulations of six minutes each.
pub fn sensitivity_row(
    case: &SensitivityCase,
    seed: u64,
) -> Result<SensitivityRow, SensitivityError> {
    let here = scenario(case, seed, "middle", false, "");
    let steady = DecisionAverages::from(&scenario(case, seed, "middle", true, ""), "injected")?;
    let injected = DecisionAverages::from(&here, "injected")?;
    let passive = DecisionAverages::from(&here, "passive")?;
    let bound = format!("no_injection = [\"{VOLUME}\"]");
    let uncalibrated =
        DecisionAverages::from(&scenario(case, seed, "middle", false, &bound), "injected")?;
    let m_passive = passive.evidence("sensitivity_m");
    let mut tiers = Vec::new();
    for tier in ["fast", "slow"] {
        let there = result(&scenario(case, seed, tier, false, ""), "noop", json!({}))?;
        let own = there.of_kind(GroupKind::Volume).find(|g| g.name == VOLUME);
        let measured_us = own.map_or(f64::NAN, |g| g.all.mean_us);
        let error = |l: &DecisionAverages| {
            l.latency_us(tier)
                .map_or(f64::NAN, |p| p / measured_us - 1.0)
        };
        tiers.push(TierErrors {
            tier: tier.into(),
            measured_us,
            injected: error(&injected),
            passive: m_passive.map(|_| error(&passive)),
            uncalibrated: error(&uncalibrated),
        });
    }
    Ok(SensitivityRow {
        case: case.name.into(),
        seed,
        volume: VOLUME.into(),
        m_injected_steady: steady.evidence("sensitivity_m"),
        m_injected: injected.evidence("sensitivity_m"),
        m_passive,
        windows: passive.evidence("passive_windows"),
        spread_us: passive.evidence("passive_spread_us"),
        tiers,
    })
}
