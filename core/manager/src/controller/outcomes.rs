//! Predicted and measured effects of moves, and the trust in predictions that follows from them.

use std::collections::{BTreeSet, VecDeque};

use executor::JobState;
use serde::{Deserialize, Serialize};
use units::{DeviceId, Nanos};

use super::Controller;
use super::facts::latency_and_rate;
use super::host::{Host, PendingOutcome};
use crate::store::Change;
use crate::view::{EventKind, TrustView};

/// From an epoch in which a move ends to the end of the first whole epoch after it.
pub(super) const WHOLE_EPOCH: u64 = 2;
/// Epochs after which the effect of a move is measured even if other moves go on from or to its target.
const PUT_OFF_EPOCHS: u64 = 10;

/// Trust in the predictions of the strategy.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Trust {
    /// Errors of the last moves: (observed − predicted) ÷ observed.
    errors: VecDeque<f64>,
    /// Reason for which predictions are not trusted, if any.
    broken: Option<String>,
    #[serde(skip)]
    dirty: bool,
}

impl Trust {
    pub(super) fn broken(&self) -> Option<String> {
        self.broken.clone()
    }

    pub(super) fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// Resets the trust, after an operator has reviewed the failed predictions.
    pub(super) fn renew(&mut self) {
        *self = Self {
            dirty: true,
            ..Self::default()
        };
    }

    /// Median of the absolute errors.
    fn median(&self) -> Option<f64> {
        let mut errors: Vec<f64> = self.errors.iter().map(|e| e.abs()).collect();
        errors.sort_by(f64::total_cmp);
        let n = errors.len();
        match n {
            0 => None,
            _ if n % 2 == 1 => Some(errors[n / 2]),
            _ => Some((errors[n / 2 - 1] + errors[n / 2]) / 2.0),
        }
    }

    pub(super) fn view(&self) -> TrustView {
        TrustView {
            trusted: self.broken.is_none(),
            outcomes: self.errors.len() as u32,
            error_median: self.median(),
            why: self.broken.clone(),
        }
    }
}

impl Controller {
    /// Measures the effects of moves that ended before this monitor epoch began. To be called at its end. Predictions are for the time
    /// after a plan: while other moves go on from or to the target, for some epochs at most, the measurement is put off.
    pub(super) fn observe_outcomes(&mut self, host: &mut Host) {
        let epoch = host.kept.epoch;
        let jobs = host.executor.jobs().iter();
        let under_way = jobs.filter(|j| j.state.active() || j.state == JobState::Waiting);
        let devices: BTreeSet<DeviceId> =
            under_way.flat_map(|j| [j.order.from, j.order.to]).collect();
        let awaited = &mut host.kept.awaited;
        for a in awaited.iter_mut() {
            if devices.contains(&a.to) && epoch < a.ended + PUT_OFF_EPOCHS {
                a.epoch = epoch + WHOLE_EPOCH;
            }
        }
        let ripe: Vec<PendingOutcome> = awaited.extract_if(.., |a| a.epoch <= epoch).collect();
        for PendingOutcome {
            mut outcome, part, ..
        } in ripe
        {
            let is_there = |device: &str| host.tier_of(device) == outcome.to_tier;
            let measured = host
                .epoch
                .as_ref()
                .and_then(|e| latency_and_rate(e, &outcome.volume));
            let there = host.report().is_some_and(|r| {
                let v = r.volumes.iter().find(|v| v.name == outcome.volume);
                v.is_some_and(|v| match part {
                    // Most bytes may be elsewhere: the extents with its load arrived.
                    true => {
                        let placed = v.placed.iter().filter(|p| p.bytes > 0);
                        v.moving.is_none() && placed.map(|p| &p.device).any(|d| is_there(d))
                    }
                    false => super::facts::main_device(v, r).is_ok_and(|d| is_there(&d)),
                })
            });
            if let Some((mean_us, iops)) = measured.filter(|_| there) {
                outcome.observed_us = mean_us;
                outcome.observed_iops = Some(iops);
            }
            let observed = outcome.observed_us.filter(|us| *us > 0.0);
            if let (Some(observed), Some(predicted)) = (observed, outcome.predicted_us) {
                let error = (observed - predicted) / observed;
                outcome.error = Some(error);
                let text = format!(
                    "{} on {}: predicted mean latency {}, measured {}",
                    outcome.volume,
                    outcome.to_tier,
                    micros(predicted),
                    micros(observed)
                );
                self.event(
                    EventKind::Job,
                    Some(&host.name.clone()),
                    Some(&outcome.volume.clone()),
                    text,
                );
                self.learn(error);
            }
            self.changes.push(Change::Outcome(outcome));
            host.dirty.kept = true;
        }
    }

    /// Adds one error. Unreliable predictions are not acted upon until an operator has reviewed them.
    fn learn(&mut self, error: f64) {
        let watch = self.settings.words.watch;
        let trust = &mut self.trust;
        trust.dirty = true;
        trust.errors.push_back(error);
        while trust.errors.len() > watch.prediction_outcomes.max(1) as usize {
            trust.errors.pop_front();
        }
        let enough = trust.errors.len() >= watch.prediction_outcomes_min.max(1) as usize;
        let median = trust.median().unwrap_or(0.0);
        if enough && median > watch.prediction_error_max && trust.broken.is_none() {
            let why = format!(
                "predictions have failed: the median error of the last {} moves is {:.0} %, the limit is {:.0} %",
                trust.errors.len(),
                median * 100.0,
                watch.prediction_error_max * 100.0
            );
            trust.broken = Some(why.clone());
            let text = format!(
                "{why}; moves for latency are only recommended until an operator sets `terrace mode latency` again"
            );
            self.event(EventKind::Trust, None, None, text);
        }
    }
}

pub(super) fn micros(us: f64) -> String {
    Nanos((us * 1e3).max(0.0) as u64).words()
}
