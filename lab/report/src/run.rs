//! Facts about a run that several modules use: labels, duration, places and moves of a volume.

use model::JobStatus;
use sim::{GroupKind, MoveRecord, RemedyRecord, RunResult};

use crate::series;

/// Returns a distinct name per run: the strategy and, for runs of the same strategy, what distinguishes them.
///
/// Runs of the same strategy are distinguished by parameters, then by scenario, then by seed, then by position.
pub fn labels(results: &[RunResult]) -> Vec<String> {
    let mut labels: Vec<String> = results
        .iter()
        .map(|r| r.manifest.strategy.clone())
        .collect();
    let details: [fn(&RunResult) -> String; 3] = [
        |r| match &r.manifest.strategy_config {
            serde_json::Value::Null => "defaults".into(),
            serde_json::Value::Object(o) if o.is_empty() => "defaults".into(),
            config => config.to_string(),
        },
        |r| r.manifest.scenario.clone(),
        |r| format!("seed {}", r.manifest.seed),
    ];
    for detail in details {
        let before = labels.clone();
        let texts: Vec<String> = results.iter().map(detail).collect();
        for (i, label) in labels.iter_mut().enumerate() {
            let helps = (0..before.len()).any(|j| before[j] == before[i] && texts[j] != texts[i]);
            if helps {
                *label = format!("{label} ({})", texts[i]);
            }
        }
    }
    let before = labels.clone();
    for (i, label) in labels.iter_mut().enumerate() {
        let earlier = before[..i].iter().filter(|l| **l == before[i]).count();
        if earlier > 0 {
            *label = format!("{label} #{}", earlier + 1);
        }
    }
    labels
}

/// Returns the length of a run, seconds, also if the manifest has none.
pub(crate) fn duration_s(result: &RunResult) -> f64 {
    let windows = result.series.as_ref().map_or(0.0, series::covered_s);
    let moves = result
        .move_log
        .iter()
        .map(|m| m.ended_s.or(m.started_s).unwrap_or(m.planned_s));
    let decisions = result
        .decisions
        .iter()
        .flatten()
        .map(|d| d.at.as_secs_f64());
    let least = moves
        .chain(decisions)
        .filter(|s| s.is_finite())
        .fold(windows, f64::max);
    let said = result.manifest.duration_s;
    if said.is_finite() {
        said.max(least)
    } else {
        least
    }
}

/// Returns the names of the tiers, fastest first.
pub(crate) fn tiers(result: &RunResult) -> Vec<&str> {
    result
        .of_kind(GroupKind::Tier)
        .map(|g| g.name.as_str())
        .collect()
}

/// Time that a volume spent on a tier.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stay<'a> {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    pub(crate) tier: &'a str,
}

/// Returns the moves of a volume, in order of planning.
pub(crate) fn moves_of<'a>(result: &'a RunResult, volume: &str) -> Vec<&'a MoveRecord> {
    result
        .move_log
        .iter()
        .filter(|m| m.volume == volume)
        .collect()
}

/// Returns the remedies for violations of a volume, and remedies for other volumes that affect it.
pub(crate) fn remedies_of<'a>(result: &'a RunResult, volume: &str) -> Vec<&'a RemedyRecord> {
    let remedies = result.response.iter().flat_map(|r| &r.remedies);
    let to = |a: &RemedyRecord| a.to.as_deref() == Some(volume);
    remedies.filter(|a| a.volume == volume || to(a)).collect()
}

pub(crate) fn tier_at_end<'a>(result: &'a RunResult, volume: &str) -> Option<&'a str> {
    result
        .final_tiers
        .iter()
        .find(|(name, _)| name == volume)
        .map(|(_, tier)| tier.as_str())
}

/// Returns the places of a volume from start to end.
pub(crate) fn stays<'a>(result: &'a RunResult, volume: &str) -> Vec<Stay<'a>> {
    let end_s = duration_s(result);
    let moves = moves_of(result, volume);
    let first = moves
        .first()
        .map(|m| m.from.as_str())
        .or_else(|| tier_at_end(result, volume));
    let Some(first) = first else { return vec![] };
    let mut switches: Vec<(f64, &str)> = moves
        .iter()
        .filter(|m| m.state == JobStatus::Done)
        .map(|m| (m.ended_s.unwrap_or(end_s), m.to.as_str()))
        .collect();
    switches.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut stays = vec![Stay {
        from_s: 0.0,
        to_s: end_s,
        tier: first,
    }];
    for (at_s, tier) in switches {
        if let Some(last) = stays.last_mut() {
            last.to_s = at_s;
        }
        stays.push(Stay {
            from_s: at_s,
            to_s: end_s,
            tier,
        });
    }
    stays
}

pub(crate) fn tier_at_start<'a>(result: &'a RunResult, volume: &str) -> Option<&'a str> {
    stays(result, volume).first().map(|s| s.tier)
}

/// Returns the mean latency of a moved volume on its target, microseconds: from the first window after the move to its next
/// move or the end. `None` without results over time, without requests, or if the move did not finish.
pub(crate) fn measured_after_us(result: &RunResult, record: &MoveRecord) -> Option<f64> {
    let ended_s = record.ended_s.filter(|_| record.state == JobStatus::Done)?;
    let next = moves_of(result, &record.volume)
        .into_iter()
        .filter_map(|m| m.started_s)
        .filter(|s| *s >= ended_s);
    let until_s = next.fold(f64::INFINITY, f64::min);
    let over_time = result.series.as_ref()?;
    let group = over_time
        .groups
        .iter()
        .find(|g| g.kind == GroupKind::Volume && g.name == record.volume)?;
    let w = over_time.window_s;
    let inside = (0..series::windows(group))
        .filter(|i| *i as f64 * w >= ended_s && (*i as f64 + 1.0) * w <= until_s);
    series::mean_us_over(group, inside)
}
