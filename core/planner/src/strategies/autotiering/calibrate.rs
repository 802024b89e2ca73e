//! TSSCS: latency injection, and the fit of a line to its results (paper 0, Sec. IV-2, Alg. 1 l. 9–21).

use algo::{Line, Rng, fit_line};
use model::{CalibrationRun, CalibrationStep, CalibrationWindow, Facts, VolumeFacts};
use serde::{Deserialize, Serialize};
use units::{DeviceId, Nanos, VolumeId};

use super::config::{
    AutoTieringConfig, CalibrationConfig, CalibrationEpoch, Confidence, Controls,
    SensitivitySource, Switches,
};
use super::{AutoTieringState, VolumeState};
use crate::Context;

/// Method by which a sensitivity was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Origin {
    /// Injection: x is the latency added to that of the loaded device.
    #[default]
    Injected,
    /// Natural variation: x is the device's latency beyond its bare latency.
    Passive,
}

/// Reaction of a volume to latency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sensitivity {
    /// Mean latency over injected latency, all requests.
    pub(crate) joint: Line,
    /// Line of reads alone, if there were enough.
    pub(crate) reads: Option<Line>,
    /// Line of writes alone, if there were enough.
    pub(crate) writes: Option<Line>,
    /// 1 − mean coefficient of variation within a level, by the paper's rule (without a floor).
    pub(crate) confidence: f64,
    /// Number of windows used.
    pub(crate) windows: u32,
    /// Device of the volume during the session.
    pub(crate) device: DeviceId,
    /// Rate with the largest injected latency divided by the rate without: 1 for a load that does not react.
    pub(crate) rate_response: f64,
    /// Method of measurement.
    #[serde(default)]
    pub(crate) origin: Origin,
    /// Latency at x = 0, as a multiple of the device's idle latency: the effect of the load during the session.
    #[serde(default = "idle")]
    pub(crate) zero: f64,
}

/// Default of `zero` for stored states without it.
fn idle() -> f64 {
    1.0
}

/// Adds the windows that ended. Fits the lines when the session is complete.
pub(crate) fn absorb(
    config: &AutoTieringConfig,
    switches: &Switches,
    facts: &Facts,
    volume: &VolumeFacts,
    own: &mut VolumeState,
) {
    for window in &volume.calibration {
        own.windows.push(*window);
        if window.last {
            let windows = std::mem::take(&mut own.windows);
            if let Some(mut fitted) = fit(&config.calibration, switches, &windows) {
                // The load of the epoch in which the session ends: later loads differ, and would shift the line.
                let utilization = facts.devices[fitted.device.index()].utilization;
                let spec = &facts.topology.device(fitted.device).spec;
                fitted.zero = spec.curve.factor(utilization);
                own.sensitivity = Some(fitted);
            }
        }
    }
    // A session that was interrupted (by a move or a restart) never ends by itself.
    if !volume.calibrating
        && facts
            .moves
            .iter()
            .any(|m| facts.volumes[m.volume.index()].name == volume.name)
    {
        own.windows.clear();
    }
}

/// Returns the lines through the valid windows; `None` unless these have two distinct levels.
pub(crate) fn fit(
    config: &CalibrationConfig,
    switches: &Switches,
    windows: &[CalibrationWindow],
) -> Option<Sensitivity> {
    let device = windows.first()?.device;
    let used: Vec<&CalibrationWindow> = windows
        .iter()
        .enumerate()
        .filter(|(i, w)| {
            w.device == device
                && w.ios() >= min_ios(config, w)
                && (switches.controls == Controls::Without || steady_around(config, windows, *i))
        })
        .map(|(_, w)| w)
        .collect();
    let mut levels: Vec<u64> = used.iter().map(|w| level_of(w)).collect();
    levels.sort_unstable();
    levels.dedup();
    let group = |level: u64| used.iter().filter(move |w| level_of(w) == level);
    let points_of = |value: &dyn Fn(&CalibrationWindow) -> Option<f64>| -> Vec<(f64, f64)> {
        if switches.confidence == Confidence::Extrapolation {
            // Every window is a point, so the standard error includes the scatter between equal windows.
            return used
                .iter()
                .filter_map(|w| Some((w.injected_us, value(w)?)))
                .collect();
        }
        // One point per level: the mean over its windows (Alg. 1 l. 14).
        levels
            .iter()
            .filter_map(|l| {
                let values: Vec<(f64, f64)> = group(*l)
                    .filter_map(|w| Some((w.injected_us - w.wanted_us, value(w)?)))
                    .collect();
                let n = values.len() as f64;
                let sum = |part: &dyn Fn(&(f64, f64)) -> f64| values.iter().map(part).sum::<f64>();
                // Wanted latency plus the mean lateness of the timers, so punctual timers add nothing.
                (n > 0.0).then(|| (*l as f64 / 1e3 + sum(&|v| v.0) / n, sum(&|v| v.1) / n))
            })
            .collect()
    };
    let joint = fit_line(&points_of(&|w| Some(w.mean_us())))?;
    let enough = |n: u64, w: &CalibrationWindow| n >= min_ios(config, w).div_ceil(4);
    let reads = fit_line(&points_of(&|w| {
        enough(w.reads, w).then_some(w.read_mean_us)
    }));
    let writes = fit_line(&points_of(&|w| {
        enough(w.writes, w).then_some(w.write_mean_us)
    }));
    let variation: Vec<f64> = levels
        .iter()
        .map(|l| coefficient_of_variation(&group(*l).map(|w| w.mean_us()).collect::<Vec<_>>()))
        .collect();
    let rate = |level: u64| {
        let (ios, s) = group(level).fold((0, 0.0), |a, w| {
            (a.0 + w.ios(), a.1 + w.duration.as_secs_f64())
        });
        ios as f64 / s
    };
    Some(Sensitivity {
        joint,
        reads,
        writes,
        confidence: 1.0 - variation.iter().sum::<f64>() / variation.len() as f64,
        windows: used.len() as u32,
        device,
        rate_response: rate(*levels.last()?) / rate(*levels.first()?),
        origin: Origin::Injected,
        zero: 1.0,
    })
}

/// Returns the level of a window: its wanted latency in nanoseconds, without the lateness of timers.
fn level_of(window: &CalibrationWindow) -> u64 {
    (window.wanted_us * 1e3).round() as u64
}

/// Returns the number of requests that a window needs. Volumes with low rates need fewer.
fn min_ios(config: &CalibrationConfig, window: &CalibrationWindow) -> u64 {
    u64::from(if window.duration > config.window {
        config.min_ios_low_rate
    } else {
        config.min_ios
    })
}

/// Returns true if the load was the same before and after the window. Only the neighbouring control windows are compared,
/// because a closed loop slows down under injection and that is the signal.
fn steady_around(config: &CalibrationConfig, windows: &[CalibrationWindow], i: usize) -> bool {
    let is_control = |w: &&CalibrationWindow| w.wanted_us == 0.0;
    if is_control(&&windows[i]) {
        return true;
    }
    let before = windows[..i].iter().rev().find(is_control);
    let after = windows[i + 1..].iter().find(is_control);
    match (before, after) {
        (Some(a), Some(b)) => {
            // Small counts differ by chance alone: twice the standard deviation of their difference is allowed.
            let (low, high) = (a.ios().min(b.ios()) as f64, a.ios().max(b.ios()) as f64);
            high <= low * (1.0 + config.steadiness) + 2.0 * (low + high).sqrt()
        }
        _ => true,
    }
}

/// Sample standard deviation over mean; 0 for fewer than two values.
fn coefficient_of_variation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0);
    if mean > 0.0 {
        variance.sqrt() / mean
    } else {
        0.0
    }
}

/// Returns the sessions to start now. By default each volume is calibrated once per migration epoch. The sessions are spread
/// over its monitor epochs, because injection into many volumes at once would reduce the load that is being measured.
pub(crate) fn sessions(
    config: &AutoTieringConfig,
    switches: &Switches,
    context: &Context<'_>,
    state: &mut AutoTieringState,
) -> Vec<CalibrationRun> {
    let facts = context.facts;
    if switches.sensitivity == SensitivitySource::Passive {
        return Vec::new();
    }
    let epochs = &context.policy.epochs;
    let (at_once, after) = match config.calibration.every {
        CalibrationEpoch::Monitor => (facts.volumes.len(), Nanos::ZERO),
        CalibrationEpoch::Migration => {
            let slots = (epochs.migration.0 / epochs.monitor.0)
                .saturating_sub(1)
                .max(1);
            let at_once = facts.volumes.len().div_ceil(slots as usize);
            (at_once, epochs.migration.saturating_sub(epochs.monitor))
        }
    };
    let mut stalest: Vec<(Option<Nanos>, VolumeId)> = facts
        .volumes
        .iter()
        .enumerate()
        .map(|(i, v)| (state.volumes[&v.name].asked, VolumeId::from_index(i)))
        .filter(|(asked, v)| {
            let facts_of = &facts.volumes[v.index()];
            let due = asked.is_none_or(|a| facts.at.saturating_sub(a) >= after);
            due && context.policy.may_inject(*v)
                && !facts_of.calibrating
                && facts_of.measured.is_some_and(|m| m.ios() > 0)
                && !facts.moves.iter().any(|m| m.volume == *v)
        })
        .collect();
    stalest.sort();
    stalest.truncate(at_once);
    stalest
        .into_iter()
        .map(|(_, volume)| {
            let name = &facts.volumes[volume.index()].name;
            state
                .volumes
                .get_mut(name)
                .expect("every volume has a state")
                .asked = Some(facts.at);
            session(&config.calibration, switches, context, volume)
        })
        .collect()
}

/// Returns a session with windows at every level in random order, with controls between them.
fn session(
    config: &CalibrationConfig,
    switches: &Switches,
    context: &Context<'_>,
    volume: VolumeId,
) -> CalibrationRun {
    let facts = context.facts;
    let v = &facts.volumes[volume.index()];
    let measured = v.measured.expect("only measured volumes are calibrated");
    let bare = |tier| super::predict::bare_us(facts, tier, &measured, None);
    let here = bare(facts.topology.tier_of(v.device));
    let slowest = facts.topology.tier_ids().map(bare).fold(here, f64::max);
    let largest =
        Nanos::from_micros_f64(slowest - here).clamp(config.inject_min, config.inject_max);
    let duration = window_length(config, measured.iops());
    let mut injected: Vec<u64> = (0..config.levels)
        .flat_map(|level| {
            let x = largest.0 * u64::from(level) / u64::from(config.levels - 1);
            std::iter::repeat_n(x, config.windows as usize)
        })
        .collect();
    if switches.controls == Controls::Interleaved {
        injected.retain(|x| *x > 0); // the controls are the windows at zero
    }
    let mut rng = Rng::new(context.seed, u64::from(volume.0));
    for i in (1..injected.len()).rev() {
        injected.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let step = |x: u64| CalibrationStep {
        inject: Nanos(x),
        duration,
    };
    let mut steps = Vec::new();
    for x in injected {
        if switches.controls == Controls::Interleaved {
            steps.push(step(0));
        }
        steps.push(step(x));
    }
    if switches.controls == Controls::Interleaved {
        steps.push(step(0));
    }
    CalibrationRun::new(volume, steps)
}

/// Returns a window length with enough requests, within limits.
fn window_length(config: &CalibrationConfig, iops: f64) -> Nanos {
    let needed = if iops * config.window.as_secs_f64() >= f64::from(config.min_ios) {
        return config.window;
    } else {
        // A margin of 1.5: the rate falls under injection.
        1.5 * f64::from(config.min_ios_low_rate) / iops.max(1e-6)
    };
    Nanos((needed * 1e9).min(config.window_max.as_f64()) as u64).max(Nanos(config.window.0 + 1))
}
