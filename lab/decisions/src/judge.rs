//! Metrics of a run.

use std::sync::OnceLock;

use model::JobStatus;
use serde::{Deserialize, Serialize};
use sim::{GroupKind, GroupSummary, Model, MoveRecord, RunResult, VolumeModel, solo_loads};
use units::TierId;

use crate::harm::VolumeHarm;
use crate::returns::returns;

/// Share by which an offered load must change ...
const CAUSE_SHARE: f64 = 0.25;
/// ... over this number of epochs to be a cause ...
const CAUSE_EPOCHS: usize = 2;
/// ... if it is the volume's own load, or that of a volume with at least this share of the array's load.
const CAUSE_VOLUME_SHARE: f64 = 0.05;

/// Offered loads: requests per second of each volume alone on the tier where it issues most, by volume and migration epoch
/// from the first decision on. They do not depend on strategies. They are computed at first use, because that takes as long
/// as a run and most runs have no returns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OfferedLoads(OnceLock<Vec<Vec<f64>>>);

impl OfferedLoads {
    fn loads(&self, model: &Model) -> &[Vec<f64>] {
        self.0.get_or_init(|| {
            let tiers = model.topology.tier_ids().map(|t| solo_loads(model, t));
            let mut most: Vec<Vec<f64>> = vec![];
            for loads in tiers {
                let iops: Vec<Vec<f64>> = loads
                    .iter()
                    .map(|v| v.iter().map(model::MeasuredLoad::iops).collect())
                    .collect();
                if most.is_empty() {
                    most = iops;
                    continue;
                }
                for (m, own) in most.iter_mut().flatten().zip(iops.into_iter().flatten()) {
                    *m = m.max(own);
                }
            }
            most
        })
    }

    /// Returns loads without knowledge: no return has a cause.
    pub fn none() -> Self {
        Self(OnceLock::from(vec![]))
    }

    /// Creates loads by volume and epoch.
    #[cfg(test)]
    pub(crate) fn new(loads: Vec<Vec<f64>>) -> Self {
        Self(OnceLock::from(loads))
    }

    /// Returns true if a volume had a cause to move between two epochs, the first of which is 1 (the first decision ends
    /// epoch 0).
    pub(crate) fn changed(&self, model: &Model, volume: usize, from: usize, to: usize) -> bool {
        changed(self.loads(model), volume, from, to)
    }
}

fn changed(loads: &[Vec<f64>], volume: usize, from: usize, to: usize) -> bool {
    let total = |e: usize| loads.iter().filter_map(|v| v.get(e)).sum::<f64>();
    let at = |v: usize, e: usize| loads[v].get(e).copied().unwrap_or(0.0);
    (0..loads.len()).any(|v| {
        (from.saturating_sub(CAUSE_EPOCHS)..=to).any(|e| {
            let (before, after) = (at(v, e), at(v, e + CAUSE_EPOCHS));
            let most = before.max(after);
            let counts =
                v == volume || most >= CAUSE_VOLUME_SHARE * total(e).max(total(e + CAUSE_EPOCHS));
            counts && most > 0.0 && (after - before).abs() >= CAUSE_SHARE * before.min(after)
        })
    })
}

/// Results of a service class in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassJudged {
    /// Name of the class.
    pub class: String,
    /// Mean latency, microseconds; `None` without requests.
    pub mean_us: Option<f64>,
    /// 99th percentile, microseconds.
    pub p99_us: Option<f64>,
    /// Seconds of violation of its volumes' objectives; `None` without an objective.
    pub violation_s: Option<f64>,
}

/// Metrics of one run of one strategy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunMetrics {
    /// V: seconds of violation of each volume's objective, times the weight of its class.
    pub violation: f64,
    /// Possible violation: seconds of volumes with an objective, times weights.
    pub possible: f64,
    /// Capped excess over objectives, relative to them ([`algo::objective::excess`]), times seconds and weights.
    pub excess: f64,
    /// Results by class.
    pub classes: Vec<ClassJudged>,
    /// Mean latency of volumes without an objective, microseconds.
    pub free_mean_us: Option<f64>,
    /// Moves of plans that were started.
    pub moves: u64,
    /// Moves that were started as remedies for violations. They are no decisions of the strategy, and count nowhere else.
    pub remedies: u64,
    /// Number of plan moves that an operator ordered, such as the drain of a tier.
    pub ordered: u64,
    /// Bytes copied by moves of plans.
    pub bytes: u64,
    /// Moves that took a volume, or a part of it, back to a tier that it had left within 20 epochs.
    pub returns: u64,
    /// Number of returns with a cause.
    pub returns_caused: u64,
    /// Moves with predicted bounds of the mean latency and an observed end.
    pub with_interval: u64,
    /// Number of these moves with a worse outcome.
    pub worse: u64,
    /// Number of these moves with an outcome within the bounds.
    pub held: u64,
    /// Sum of the widths of these bounds, as shares of the prediction.
    pub width: f64,
    /// Absolute errors of predictions of moves with an observed end, as shares of the observed value.
    pub errors: Vec<f64>,
    /// Bytes programmed into flash, if devices report them.
    pub programmed: Option<u64>,
    /// Slowdown of every volume with enough requests, relative to `noop` with the same seed; empty if that was not run.
    pub harm: Vec<VolumeHarm>,
}

/// Returns the metrics of a run.
pub fn judge(model: &Model, run: &RunResult, offered: &OfferedLoads) -> RunMetrics {
    let mut judged = RunMetrics {
        violation: violated(model, run).iter().sum(),
        ..RunMetrics::default()
    };
    let (mut free_ios, mut free_us) = (0u64, 0.0);
    for (v, group) in model.volumes.iter().zip(run.of_kind(GroupKind::Volume)) {
        let class = &model.classes[v.class.index()];
        match group.slo_violation_s {
            Some(_) => {
                judged.excess += class.weight * group.slo_excess_s.unwrap_or(0.0);
                judged.possible += class.weight * run.counted_s;
            }
            None => {
                free_ios += group.all.ios;
                free_us += group.all.ios as f64 * group.all.mean_us;
            }
        }
    }
    judged.free_mean_us = (free_ios > 0).then(|| free_us / free_ios as f64);
    judged.classes = run
        .of_kind(GroupKind::Class)
        .map(|g| ClassJudged {
            class: g.name.clone(),
            mean_us: (g.all.ios > 0).then_some(g.all.mean_us),
            p99_us: (g.all.ios > 0).then_some(g.all.p99_us),
            violation_s: g.slo_violation_s,
        })
        .collect();
    let remedies = run.move_log.iter().filter(|m| m.is_remedy);
    judged.bytes = run.moves.bytes - remedies.map(|m| m.bytes).sum::<u64>();
    judged.programmed = run.wear.as_ref().map(sim::WearSummary::programmed_bytes);
    let begun = run.move_log.iter().filter(|m| m.started_s.is_some());
    let (remedies, begun): (Vec<&MoveRecord>, Vec<&MoveRecord>) = begun.partition(|m| m.is_remedy);
    judged.remedies = remedies.len() as u64;
    judged.moves = begun.len() as u64;
    judged.ordered = begun.iter().filter(|m| ordered(model, m)).count() as u64;
    let returns = returns(model, &begun, offered);
    (judged.returns, judged.returns_caused) = (returns.all, returns.caused);
    for m in begun.iter().filter(|m| m.state == JobStatus::Done) {
        let (Some(observed), Some(predicted)) = (m.observed_us, m.predicted_us) else {
            continue;
        };
        if observed > 0.0 {
            judged.errors.push((observed - predicted).abs() / observed);
        }
        if let Some((low, high)) = m.range_us {
            judged.with_interval += 1;
            judged.worse += u64::from(observed > high);
            judged.held += u64::from((low..=high).contains(&observed));
            judged.width += (high - low) / predicted.max(1e-9);
        }
    }
    judged
}

/// Returns the seconds of violation of each volume's objective, times the weight of its class, by volume.
pub fn violated(model: &Model, run: &RunResult) -> Vec<f64> {
    let of = |(v, group): (&VolumeModel, &GroupSummary)| {
        model.classes[v.class.index()].weight * group.slo_violation_s.unwrap_or(0.0)
    };
    let groups = run.of_kind(GroupKind::Volume);
    model.volumes.iter().zip(groups).map(of).collect()
}

/// Returns true if an operator's order drains the source tier of the move.
pub(crate) fn ordered(model: &Model, m: &MoveRecord) -> bool {
    let drained = |t: &TierId| model.topology.tier(*t).name == m.from;
    model.policy.draining.iter().any(drained) || model.running.drains(&m.from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_change_by_a_quarter_is_a_cause_and_a_small_one_is_not() {
        let steady = vec![100.0; 12];
        let mut step = steady.clone();
        step[6..].fill(130.0);
        let small: Vec<f64> = (0..12)
            .map(|e| if e % 2 == 0 { 1.0 } else { 3.0 })
            .collect();
        let loads = [steady.clone(), step, small];
        assert!(changed(&loads, 0, 4, 6), "its neighbour asks for more");
        assert!(!changed(&loads, 0, 8, 9), "after the step nothing changes");
        assert!(changed(&loads, 1, 5, 6));
        let calm = [steady.clone(), steady];
        assert!(!changed(&calm, 0, 0, 8));
    }
}
