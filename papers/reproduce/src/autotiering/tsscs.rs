//! Fig. 2: three volumes, each calibrated on a different tier, and the predictions of their lines for the other tiers.
//!
//! A probe replaces the strategy: it requests one calibration session per volume and keeps the resulting windows. Then
//! each volume runs alone on each tier, and the predictions are compared with these measurements.

use algo::fit_line;
use model::{Action, CalibrationRun, CalibrationStep, Op};
use planner::{Context, Draft, Strategy, Wish};
use serde::{Deserialize, Serialize};
use sim::{GroupKind, Manifest, RunError, RunOptions, RunResult, ScenarioError, ScenarioFile, run};
use thiserror::Error;
use units::{Nanos, VolumeId};

use super::setup::TIERS;

/// Workloads of the volumes, each calibrated on the tier with the same index. Their requests come one at a time, a few at a time, and
/// enough at a time to saturate the drive.
const VOLUMES: [(&str, &str); 3] = [
    ("sync-read", ""),
    ("iometer", ""),
    ("basic-verify", "habits = { rate = \"200 kIOPS\" }"),
];
/// Five levels, the default of calibration. The largest is about twice the difference between tiers.
const INJECTED_US: [f64; 5] = [0.0, 25.0, 50.0, 75.0, 100.0];
const WINDOWS_PER_LEVEL: usize = 5;
const WINDOW: Nanos = Nanos::from_millis(20);

/// Measurement of a calibration window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Bare latency of the tier plus injected latency, microseconds.
    pub absolute_us: f64,
    /// Injected latency, microseconds.
    pub injected_us: f64,
    /// Measured mean latency, microseconds.
    pub mean_us: f64,
}

/// Predicted and measured latency on a tier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnTier {
    /// Name of the tier.
    pub tier: String,
    /// Bare latency of the volume's requests on the tier, microseconds.
    pub bare_us: f64,
    /// Mean latency that the line predicts, microseconds.
    pub predicted_us: f64,
    /// Mean latency of the volume alone on the tier, microseconds.
    pub measured_us: f64,
    /// Ratio of predicted to measured latency, minus one.
    pub error: f64,
}

/// Calibration of one volume and its predictions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Regression {
    /// Name of the workload.
    pub volume: String,
    /// Tier on which the volume was calibrated.
    pub tier: String,
    /// Sensitivity: the slope of the line.
    pub m: f64,
    /// Latency without injection, microseconds.
    pub b_us: f64,
    /// Coefficient of variation (standard deviation divided by mean), averaged over the levels (Alg. 1 l. 13).
    pub variation: f64,
    /// Measurements of all calibration windows.
    pub points: Vec<Point>,
    /// Predictions for the three tiers.
    pub tiers: Vec<OnTier>,
}

/// Fault of this experiment.
#[derive(Debug, Error)]
pub enum TsscsError {
    /// The text is not a valid scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The simulation failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The session gave no line.
    #[error("the calibration of {0} gave no line")]
    NoLine(String),
}

/// Strategy that orders one calibration session and keeps its windows.
struct Probe;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct WindowHistory {
    asked: bool,
    windows: Vec<(f64, f64)>,
}

impl Strategy for Probe {
    type Config = ();
    type State = WindowHistory;
    const NAME: &'static str = "probe";
    const SUMMARY: &'static str = "calibrates once and makes no moves";

    fn new((): ()) -> Result<Self, planner::ConfigError> {
        Ok(Self)
    }

    fn plan(
        &self,
        context: &Context<'_>,
        state: &WindowHistory,
        draft: &mut Draft,
    ) -> WindowHistory {
        let mut seen = state.clone();
        let volume = VolumeId(0);
        for w in &context.facts.volumes[volume.index()].calibration {
            seen.windows.push((w.injected_us, w.mean_us()));
        }
        if !seen.asked {
            let step = |us: &f64| CalibrationStep {
                inject: Nanos::from_micros_f64(*us),
                duration: WINDOW,
            };
            let levels = INJECTED_US.iter().map(step);
            let steps = levels.cycle().take(INJECTED_US.len() * WINDOWS_PER_LEVEL);
            let session = CalibrationRun::new(volume, steps.collect());
            draft.actions = vec![Action::Calibrate(session)];
            seen.asked = true;
        }
        if context.facts.placement_due {
            let mut wish = Wish::stay(context, volume);
            for (i, (injected, mean)) in seen.windows.iter().enumerate() {
                wish.evidence
                    .insert(format!("w{i:03}_injected_us"), *injected);
                wish.evidence.insert(format!("w{i:03}_mean_us"), *mean);
            }
            draft.wishes = vec![wish];
        }
        seen
    }
}

/// Calibrates the three volumes and measures them on all tiers.
pub fn regressions(seed: u64) -> Result<Vec<Regression>, TsscsError> {
    VOLUMES
        .iter()
        .zip(TIERS)
        .map(|((name, habits), tier)| regression(name, habits, tier, seed))
        .collect()
}

fn regression(name: &str, habits: &str, tier: &str, seed: u64) -> Result<Regression, TsscsError> {
    let calibrated = result(name, habits, tier, seed, Box::new(Probe))?;
    let points: Vec<(f64, f64)> = windows(&calibrated);
    let no_line = || TsscsError::NoLine(name.into());
    let line = fit_line(&levels(&points)).ok_or_else(no_line)?;
    let here = bare_us(name, habits, tier, seed)?;
    let tiers = TIERS
        .iter()
        .map(|t| {
            let alone = result(name, habits, t, seed, Box::new(planner::strategies::Noop))?;
            let measured_us = volume(&alone, name).all.mean_us;
            let there = bare_us(name, habits, t, seed)?;
            let predicted_us = line.at(there - here);
            Ok(OnTier {
                tier: (*t).into(),
                bare_us: there,
                predicted_us,
                measured_us,
                error: predicted_us / measured_us - 1.0,
            })
        })
        .collect::<Result<Vec<_>, TsscsError>>()?;
    Ok(Regression {
        volume: name.into(),
        tier: tier.into(),
        m: line.slope,
        b_us: line.intercept,
        variation: variation(&points),
        points: points
            .iter()
            .map(|(x, y)| Point {
                absolute_us: here + x,
                injected_us: *x,
                mean_us: *y,
            })
            .collect(),
        tiers,
    })
}

fn scenario(
    name: &str,
    habits: &str,
    tier: &str,
    seed: u64,
) -> Result<ScenarioFile, ScenarioError> {
    let mut text = format!(
        "name = \"tsscs\"\nseed = {seed}\nduration = \"2s\"\nwarmup = \"250ms\"\nwindow = \"250ms\"\n\
         [policy]\nmonitor_epoch = \"250ms\"\nmigration_epoch = \"1s\"\nmoves_per_epoch = 0\n"
    );
    for (tier, preset) in TIERS.iter().zip(["pm953", "pm1633", "pm863"]) {
        text += &format!("[[tiers]]\nname = \"{tier}\"\npreset = \"{preset}\"\n");
    }
    text += &format!(
        "[[volumes]]\nname = \"{name}\"\nsize = \"8 GiB\"\ntier = \"{tier}\"\n\
         [[clients]]\nvolume = \"{name}\"\npreset = \"{name}\"\n{habits}\n"
    );
    ScenarioFile::parse("tsscs.toml", &text)
}

fn result(
    name: &str,
    habits: &str,
    tier: &str,
    seed: u64,
    strategy: Box<dyn planner::AnyStrategy>,
) -> Result<RunResult, TsscsError> {
    let model = scenario(name, habits, tier, seed)?.build(vec![])?;
    let options = RunOptions {
        series: false,
        decisions: true,
        optimum: None,
    };
    Ok(run(
        &model,
        strategy,
        Manifest::default(),
        options,
        &mut |_| {},
    )?)
}

fn volume<'a>(result: &'a RunResult, name: &str) -> &'a sim::GroupSummary {
    let mut volumes = result.of_kind(GroupKind::Volume);
    volumes
        .find(|g| g.name == name)
        .expect("the scenario has one volume")
}

/// Returns injected and mean latency of every window, in order.
fn windows(result: &RunResult) -> Vec<(f64, f64)> {
    let last = result.decisions.iter().flatten().last();
    let evidence = last.and_then(|r| r.volumes.first()).map(|v| &v.evidence);
    let of = |i: usize| {
        let of = |what: &str| evidence?.get(&format!("w{i:03}_{what}")).copied();
        Some((of("injected_us")?, of("mean_us")?))
    };
    (0..).map_while(of).collect()
}

/// Returns one point per level: the mean over its windows (Alg. 1 l. 14).
fn levels(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    INJECTED_US
        .iter()
        .filter_map(|level| Some((*level, mean(&at_level(points, *level))?)))
        .collect()
}

fn at_level(points: &[(f64, f64)], level: f64) -> Vec<f64> {
    let same = points.iter().filter(|p| (p.0 - level).abs() < 0.5);
    same.map(|p| p.1).collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the coefficient of variation, averaged over the levels.
fn variation(points: &[(f64, f64)]) -> f64 {
    let of = |level: &f64| {
        let values = at_level(points, *level);
        let mean = mean(&values)?;
        let n = values.len() as f64;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        (n > 1.0).then(|| (squares / (n - 1.0)).sqrt() / mean)
    };
    mean(&INJECTED_US.iter().filter_map(of).collect::<Vec<_>>()).unwrap_or(0.0)
}

/// Returns the bare latency of the volume's mix of requests on an idle drive of the tier, microseconds.
fn bare_us(name: &str, habits: &str, tier: &str, seed: u64) -> Result<f64, TsscsError> {
    let model = scenario(name, habits, tier, seed)?.build(vec![])?;
    let spec = &model.topology.device(model.volumes[0].device).spec;
    let habits = trace::client_preset(name).expect("a preset").habits();
    let sizes = habits.sizes.unwrap_or_default();
    let shares: f64 = sizes.iter().map(|s| s.share).sum();
    let bytes = sizes.iter().map(|s| s.size.as_f64() * s.share).sum::<f64>() / shares;
    let reads = habits.read_share.unwrap_or(1.0);
    let bare = |op| spec.bare_latency_us(op, bytes);
    Ok(reads * bare(Op::Read) + (1.0 - reads) * bare(Op::Write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_request_has_slope_one_and_a_full_drive_less() {
        let all = regressions(1).unwrap();
        assert_eq!(all.len(), 3);
        let windows = INJECTED_US.len() * WINDOWS_PER_LEVEL;
        assert!(all.iter().all(|r| r.points.len() == windows), "{all:?}");
        assert!((all[0].m - 1.0).abs() < 0.05, "{}", all[0].m);
        assert!(all[2].m < 0.7 * all[0].m, "{}", all[2].m);
        for r in &all {
            let own = r.tiers.iter().find(|t| t.tier == r.tier).unwrap();
            assert!(own.error.abs() < 0.05, "{own:?}");
        }
    }
}
