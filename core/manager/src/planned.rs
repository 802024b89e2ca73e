//! Views of plans with their reasons, for current plans and for plans from the store.

use std::collections::BTreeMap;

use model::{Facts, Outcome, Plan, Report, TierOption, VolumeReport};
use units::{DeviceId, VolumeId, counted};

use crate::ManagerError;
use crate::store::{StoredDecision, read};
use crate::view::{HeldMove, MoveState, OptionView, PlanState, PlanView, PlannedMove};

/// Names for the ids in a plan.
pub(crate) struct Names<'a> {
    pub volume: &'a dyn Fn(VolumeId) -> String,
    pub device: &'a dyn Fn(DeviceId) -> String,
    pub tier: &'a dyn Fn(DeviceId) -> String,
}

/// Returns the view of a plan. `state` returns job and progress of the move at a position.
pub(crate) fn view(
    host: &str,
    plan: &Plan,
    report: &Report,
    names: &Names<'_>,
    state: impl Fn(usize) -> (Option<u32>, MoveState),
) -> PlanView {
    let mut scored = scored(report);
    let moves = plan.moves().into_iter().enumerate().map(|(i, m)| {
        let (job, state) = state(i);
        let volume = (names.volume)(m.volume);
        PlannedMove {
            position: i as u32,
            job,
            from_tier: (names.tier)(m.from),
            to_tier: (names.tier)(m.to),
            from: (names.device)(m.from),
            to: (names.device)(m.to),
            extents: m.extents.clone(),
            goal: m.terms.goal,
            reason: m.terms.reason.to_string(),
            bytes: m.terms.cost.bytes.0,
            duration_ns: m.terms.cost.duration.0,
            before_us: m.terms.effect.latency_before_us,
            after_us: m.terms.effect.latency_after_us,
            after_range_us: m.terms.effect.latency_after_range_us,
            after_moves: m.after.clone(),
            scored: scored.remove(volume.as_str()).unwrap_or_default(),
            volume,
            state,
            by_hand: None,
            command: None,
            no_command: None,
            doubt: None,
        }
    });
    let stays = |v: &&VolumeReport| {
        v.outcome == Outcome::Stay && v.extents.iter().all(|e| e.refused.is_some())
    };
    PlanView {
        host: host.into(),
        generation: plan.generation,
        parent: plan.parent,
        at_ns: plan.at.0,
        strategy: plan.strategy.clone(),
        state: PlanState::Current,
        moves: moves.collect(),
        held: held(report),
        staying: report.volumes.iter().filter(stays).count() as u32,
        notes: report.notes.clone(),
    }
}

/// Returns the view of a superseded plan, as it was created.
///
/// # Errors
/// [`ManagerError::Removed`] and [`ManagerError::Part`].
pub fn old(decision: &StoredDecision) -> Result<PlanView, ManagerError> {
    let plan: Plan = read("moves", &decision.plan)?;
    let report: Report = read("reasons", &decision.report)?;
    let facts: Option<Facts> = read("facts", &decision.facts).ok();
    let facts = facts.as_ref();
    let names = Names {
        volume: &|v| match facts {
            Some(f) => f.volumes[v.index()].name.clone(),
            None => format!("volume {}", v.0),
        },
        device: &|d| match facts {
            Some(f) => f.topology.device(d).name.clone(),
            None => format!("device {}", d.0),
        },
        tier: &|d| match facts {
            Some(f) => f.topology.tier(f.topology.tier_of(d)).name.clone(),
            None => "unknown".into(),
        },
    };
    let why = "superseded by a newer plan; see `terrace job list` for its jobs";
    let ended = |_| (None, MoveState::Ended { why: why.into() });
    Ok(PlanView {
        state: PlanState::Superseded,
        ..view(&decision.host, &plan, &report, &names, ended)
    })
}

/// Returns the volumes, then the extents, that a strategy wanted on another tier and that stay.
pub fn held(report: &Report) -> Vec<HeldMove> {
    let volumes = report.volumes.iter().filter_map(|v| match &v.outcome {
        Outcome::Held { wanted, by } => Some(HeldMove {
            volume: v.volume.clone(),
            tier: v.tier.clone(),
            wanted: wanted.clone(),
            why: by.to_string(),
        }),
        Outcome::Stay | Outcome::Move { .. } => None,
    });
    let extents = report.volumes.iter().flat_map(|v| {
        v.extents.iter().filter_map(|e| {
            let by = e.refused.as_ref()?;
            Some(HeldMove {
                volume: v.volume.clone(),
                tier: e.from.clone(),
                wanted: e.to.clone(),
                why: format!("{}, {}: {by}", counted(e.extents, "extent"), e.reason),
            })
        })
    });
    volumes.chain(extents).collect()
}

/// Returns the view of a tier that was considered for a volume.
pub(crate) fn option_view(row: &VolumeReport, option: &TierOption) -> OptionView {
    OptionView {
        tier: option.tier.clone(),
        score: option.score,
        parts: option.parts,
        latency_us: option.predicted.map(|p| p.latency_us),
        iops: option.predicted.map(|p| p.iops),
        verdict: row.verdict(option),
    }
}

/// Returns the tiers of each volume whose scores have parts.
fn scored(report: &Report) -> BTreeMap<&str, Vec<OptionView>> {
    let of = |row: &VolumeReport| {
        let with_parts = row.options.iter().filter(|o| o.parts.is_some());
        with_parts.map(|o| option_view(row, o)).collect()
    };
    let rows = report.volumes.iter();
    rows.map(|row| (row.volume.as_str(), of(row))).collect()
}
