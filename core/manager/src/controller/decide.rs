//! One decision: its time, its facts and policy, and the proposed plan.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use executor::{Input, Job, JobId, JobState};
use model::{Action, CalibrationRun, Facts, Goal, Move, Pin, Plan, Policy};
use planner::{Decision, PlanError, decide};
use units::{Nanos, TierId, VolumeId, counted};

use super::host::{CurrentPlan, Host};
use super::{Controller, PlacementDecision, bounds, facts};
use crate::ManagerError;
use crate::settings::UnknownTiers;
use crate::store::{Change, StoredDecision};
use crate::view::EventKind;
use crate::wire::CalibrationOrder;
use model::Mode;
use model::TierState;

/// Most bytes of the reason for which a decision failed. Protects status and metrics.
const PROBLEM_BYTES_MAX: usize = 1_024;

impl Controller {
    /// Ends a monitor epoch when it is due.
    pub(super) fn decide_when_due(&mut self, name: &str, as_of: Nanos) {
        let host = &self.hosts[name];
        let Some(began) = host.epoch.as_ref().map(|e| e.began) else {
            return;
        };
        if host.lends_only() {
            return; // it has no data to place
        }
        let Ok(rules) = self.settings.policy(&[], &[], UnknownTiers::Skip) else {
            return; // the configuration was checked when it was loaded
        };
        let epochs = rules.policy.epochs;
        // Windows rarely have the exact length.
        let slack = Nanos(self.settings.words.window.0 / 2);
        if as_of.saturating_sub(began) + slack < epochs.monitor {
            return;
        }
        let mut host = self.hosts.remove(name).expect("the host was just read");
        host.kept.epoch += 1;
        let per_migration = epochs.migration.0 / epochs.monitor.0;
        let due = host.kept.epoch.is_multiple_of(per_migration);
        self.observe_outcomes(&mut host);
        self.forget_failures(&mut host);
        let failure = self.decide(&mut host, due).err().map(|e| e.to_string());
        let problem = failure.as_ref().map(|why| match self.stores {
            true => bounds::tidy(why.lines().next().unwrap_or_default(), PROBLEM_BYTES_MAX),
            false => why.clone(),
        });
        if let Some(why) = failure.filter(|_| host.problem != problem) {
            let text = format!("no decision about {name}: {why}");
            self.event(EventKind::Host, Some(name), None, text);
        }
        host.problem = problem;
        host.epoch = Some(super::host::Epoch {
            began: as_of,
            ..Default::default()
        });
        host.dirty.kept = true;
        self.hosts.insert(name.into(), host);
    }

    fn decide(&mut self, host: &mut Host, placement_due: bool) -> Result<(), ManagerError> {
        let leaves = |volume: &str, tier: &str| {
            let drained = self.tier_state(&host.name, tier) == TierState::Draining;
            drained
                || self
                    .pin_of(&host.name, volume)
                    .is_some_and(|pin| pin != tier)
        };
        let gathered = facts::gather(host, &self.settings, self.now.at, placement_due, &leaves)?;
        let facts = gathered.facts;
        if host.kept.devices != gathered.devices {
            // The ids in the state refer to other devices.
            if !host.kept.devices.is_empty() {
                host.state = self.strategy.initial_state();
                let text =
                    "the devices of the array have changed: the state of the strategy is reset"
                        .into();
                self.event(EventKind::Host, Some(&host.name.clone()), None, text);
            }
            host.kept.devices = gathered.devices;
        }
        let policy = self.policy_for(host, &facts)?;
        let before = self.stores.then(|| host.state.to_json());
        let seed = self.settings.words.seed;
        let latency_off = self.mode_of(Goal::Latency) == Mode::Off;
        // A panic of the strategy affects only this host.
        let without_strategy = || {
            let noop = planner::build("noop", serde_json::Value::Null)?;
            let decision = decide(&*noop, &facts, &policy, &noop.initial_state(), seed);
            decision.map_err(ManagerError::Plan)
        };
        host.strategy_failed = false;
        let mut failed = None;
        let decided = catch_unwind(AssertUnwindSafe(|| {
            if latency_off {
                return without_strategy();
            }
            self.strategy.next_array(&host.name);
            match decide(&*self.strategy, &facts, &policy, &host.state, seed) {
                // Drains, rules and space do not depend on the strategy.
                Err(why @ PlanError::Strategy { .. }) if self.stores => {
                    failed = Some(ManagerError::Plan(why));
                    without_strategy()
                }
                decision => decision.map_err(ManagerError::Plan),
            }
        }));
        let decision = decided.unwrap_or(Err(ManagerError::Panicked));
        host.strategy_failed = failed.is_some();
        let without_strategy = latency_off || failed.is_some();
        let Decision {
            plan,
            report,
            state,
            assignment,
        } = decision?;
        if !without_strategy {
            host.state = state;
        }
        host.dirty.decision = true;
        // The agent may forget results that the decision has used.
        for result in std::mem::take(&mut host.results) {
            host.kept.calibrations.retain(|c| c.id != result.id);
            host.kept.taken.insert(result.id);
            self.counters.calibrations += 1;
        }
        self.order_calibrations(host, &facts, &policy, &plan.calibrations());
        if placement_due && !self.stores {
            self.made.push(PlacementDecision {
                at: self.now.at,
                report: report.clone(),
                assignment,
            });
        }
        if placement_due && let Some(before) = before {
            let (strategy, parameters) = if without_strategy {
                ("noop".to_string(), serde_json::Value::Null)
            } else {
                self.settings.strategy.clone()
            };
            self.changes.push(Change::Decision(Box::new(StoredDecision {
                host: host.name.clone(),
                generation: plan.generation,
                at_ns: self.now.at.0,
                strategy,
                parameters,
                seed,
                facts: serde_json::to_value(&facts)?,
                policy: serde_json::to_value(&policy)?,
                state: if without_strategy {
                    serde_json::Value::Null
                } else {
                    before
                },
                plan: serde_json::to_value(&plan)?,
                report: serde_json::to_value(&report)?,
            })));
        }
        if placement_due {
            self.propose(host, &facts, plan, report);
        }
        host.facts = Some(facts);
        failed.map_or(Ok(()), Err)
    }

    /// Current mode of a goal: a setting of an operator has precedence over the file.
    pub(super) fn mode_of(&self, goal: Goal) -> Mode {
        let set = self.operator.modes.get(&goal).copied();
        let mode = set.unwrap_or_else(|| self.settings.mode(goal));
        // An operator may have set the mode before the strategy was changed.
        match mode.starts_moves() && self.settings.recommends_only() {
            true => Mode::Recommend,
            false => mode,
        }
    }

    /// Policy of the file for this host, with the later settings of operators.
    pub(super) fn policy_for(&self, host: &Host, facts: &Facts) -> Result<Policy, ManagerError> {
        let tiers: Vec<&str> = facts
            .topology
            .tiers
            .iter()
            .map(|t| t.name.as_str())
            .collect();
        let volumes: Vec<&str> = facts.volumes.iter().map(|v| v.name.as_str()).collect();
        // With several hosts, a rule may refer to tiers of another host.
        let unknown = if self.hosts.is_empty() {
            UnknownTiers::Refuse
        } else {
            UnknownTiers::Skip
        };
        let rules = self.settings.policy(&tiers, &volumes, unknown)?;
        let mut policy = rules.policy;
        for (i, tier) in tiers.iter().enumerate() {
            let id = TierId::from_index(i);
            let Some(state) = self.operator.tiers.get(&format!("{}/{tier}", host.name)) else {
                continue;
            };
            policy.cordoned.retain(|t| *t != id);
            policy.draining.retain(|t| *t != id);
            match state {
                TierState::Open => {}
                TierState::Cordoned => policy.cordoned.push(id),
                TierState::Draining => policy.draining.push(id),
            }
        }
        for (i, volume) in volumes.iter().enumerate() {
            let id = VolumeId::from_index(i);
            let Some(pin) = self.operator.pins.get(&format!("{}/{volume}", host.name)) else {
                continue;
            };
            policy.pins.retain(|p| p.volume != id);
            let tier = pin.as_ref().and_then(|p| tiers.iter().position(|t| t == p));
            if let Some(tier) = tier {
                policy.pins.push(Pin {
                    volume: id,
                    tier: TierId::from_index(tier),
                });
            }
        }
        if let Some(report) = host.report() {
            let stay = report.volumes.iter().filter(|v| v.stays());
            let stay: BTreeSet<&str> = stay.map(|v| &*v.name).collect();
            let stays = |v: VolumeId| stay.contains(&*facts.volumes[v.index()].name);
            policy.pins.retain(|p| !stays(p.volume));
            for (i, v) in facts.volumes.iter().enumerate() {
                let volume = VolumeId::from_index(i);
                if stays(volume) {
                    let tier = facts.topology.tier_of(v.device);
                    policy.pins.push(Pin { volume, tier });
                }
            }
            // The effect of data on an undescribed tier is unknown, so it accepts none. If no tier is described, drained data
            // still needs a target, and nothing else moves.
            let undescribed: Vec<&String> =
                super::facts::undescribed(report, &self.settings).collect();
            let none = undescribed.len() == tiers.len();
            let shut = |tier: &&&str| {
                (!none && undescribed.iter().any(|t| *t == **tier))
                    || self.unreachable(report, tier)
            };
            for tier in tiers.iter().filter(shut) {
                let id = TierId::from_index(tiers.iter().position(|t| t == tier).unwrap_or(0));
                if !policy.takes_no_data(id) {
                    policy.cordoned.push(id);
                }
            }
        }
        policy.cordoned.sort();
        policy.draining.sort();
        policy.pins.sort_by_key(|p| p.volume);
        if self.mode_of(Goal::Drain) == Mode::Off {
            let draining = std::mem::take(&mut policy.draining);
            policy.cordoned.extend(draining);
        }
        if self.mode_of(Goal::Space) == Mode::Off {
            policy.space_high = None;
        }
        if self.mode_of(Goal::Rules) == Mode::Off {
            // No volume moves for a pin, and a pinned volume in its place stays.
            let tier_of = |v: VolumeId| facts.topology.tier_of(facts.volumes[v.index()].device);
            policy.pins.retain(|p| tier_of(p.volume) == p.tier);
        }
        Ok(policy)
    }

    /// Passes a plan to the executor, and keeps it by names.
    fn propose(&mut self, host: &mut Host, facts: &Facts, plan: Plan, report: model::Report) {
        let now = self.now.at;
        let waiting = |j: &&Job| j.state == JobState::Waiting;
        let by_person = |j: &&Job| !host.kept.by_mode.contains(&j.id.0);
        let jobs = host.executor.jobs().iter();
        let waited: Vec<Move> = jobs
            .filter(waiting)
            .filter(by_person)
            .map(|j| j.order.clone())
            .collect();
        let names = &mut host.kept.names;
        let by_name = |m: &Move| Move {
            volume: names.volume(&facts.volumes[m.volume.index()].name),
            from: names.device(&facts.topology.device(m.from).name),
            to: names.device(&facts.topology.device(m.to).name),
            ..m.clone()
        };
        let moves: Vec<Action> = plan
            .moves()
            .into_iter()
            .map(by_name)
            .map(Action::Move)
            .collect();
        let count = moves.len();
        let for_executor = Plan {
            actions: moves,
            ..plan.clone()
        };
        host.dirty.kept = true;
        let first_job = host.executor.next_job().0;
        let doubts = self.doubts_of(host, facts, &plan);
        let held = report.volumes.iter();
        let held = held
            .filter(|v| matches!(v.outcome, model::Outcome::Held { .. }))
            .count();
        host.current = Some(CurrentPlan {
            volumes: facts.volumes.iter().map(|v| v.name.clone()).collect(),
            devices: facts
                .topology
                .devices
                .iter()
                .map(|d| d.name.clone())
                .collect(),
            tiers: facts
                .topology
                .devices
                .iter()
                .map(|d| facts.topology.tier(d.tier).name.clone())
                .collect(),
            first_job,
            doubts,
            plan,
            report,
        });
        self.counters.plans += 1;
        self.input(host, now, Input::Propose(Box::new(for_executor)));
        let generation = host.executor.generation();
        let (moves, rejected) = (counted(count, "move"), counted(held, "rejected candidate"));
        let text = format!("plan {generation}: {moves}, {rejected}");
        self.event(EventKind::Plan, Some(&host.name.clone()), None, text);
        // A move that an operator approved and that has not started stays approved if the new plan contains it; modes decide again.
        let again: Vec<JobId> = host
            .executor
            .jobs()
            .iter()
            .filter(|j| j.state == JobState::Proposed)
            .filter(|j| waited.iter().any(|w| is_same(&j.order, w)))
            .filter(|j| Self::not_ours(host, j).is_none())
            .map(|j| j.id)
            .collect();
        for job in again {
            self.input(host, now, Input::Approve(job));
        }
    }

    /// Orders the calibration sessions of a decision within their budget.
    fn order_calibrations(
        &mut self,
        host: &mut Host,
        facts: &Facts,
        policy: &Policy,
        runs: &[&CalibrationRun],
    ) {
        for run in runs {
            let known = &facts.volumes[run.volume.index()];
            let share = added_share(run, known.measured.as_ref(), policy.epochs.migration);
            let volume = known.name.clone();
            let budget = self.settings.words.watch.calibration_budget;
            let within = |s: f64| s <= budget && budget > 0.0;
            if budget.is_finite() && !share.is_some_and(within) {
                let text = match share {
                    Some(share) => format!(
                        "no calibration of {volume}: it would add {:.1} % to the latency of its requests, the budget is {:.1} %",
                        share * 100.0,
                        budget * 100.0
                    ),
                    None => format!("no calibration of {volume}: its load is unknown"),
                };
                self.say_once(host, &volume, "over budget", text);
                continue;
            }
            host.kept.next_calibration += 1;
            let (id, steps) = (host.kept.next_calibration, run.steps.clone());
            host.kept
                .calibrations
                .push(CalibrationOrder { id, volume, steps });
        }
    }
}

/// Returns true if a move is the approved one. A move of extents differs from plan to plan: at least half must be approved.
fn is_same(wanted: &Move, approved: &Move) -> bool {
    let part = match (&wanted.extents, &approved.extents) {
        (None, None) => true,
        (Some(now), Some(then)) => 2 * u64::from(now.common(then)) >= u64::from(now.count()),
        _ => false,
    };
    part && (wanted.volume, wanted.to) == (approved.volume, approved.to)
}

/// Injected latency of a session as a share of the total latency of the volume's requests in a migration epoch, at the
/// present rate and latency; none without load.
fn added_share(
    run: &CalibrationRun,
    measured: Option<&model::MeasuredLoad>,
    epoch: Nanos,
) -> Option<f64> {
    let mean_us = measured?.latency_mean_us()?;
    let steps = run.steps.iter();
    let injected: f64 = steps
        .map(|s| s.inject.as_micros_f64() * s.duration.as_secs_f64())
        .sum();
    Some(injected / (mean_us * epoch.as_secs_f64()).max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{Bytes, BytesPerSec, DeviceId};

    fn of(extents: Option<&str>) -> Move {
        Move {
            volume: VolumeId(1),
            from: DeviceId(0),
            to: DeviceId(1),
            extents: extents.map(|e| e.parse().unwrap()),
            size: Bytes::gib(1),
            after: vec![],
            bandwidth: BytesPerSec(1 << 20),
            terms: model::Terms {
                goal: Goal::Latency,
                reason: model::Reason::pinned(),
                effect: model::Effect::default(),
                cost: model::Cost::default(),
            },
        }
    }

    #[test]
    fn extent_move_is_the_approved_one_if_half_of_it_was() {
        let whole = of(None);
        assert!(is_same(&whole, &whole));
        assert!(!is_same(&of(Some("0-3")), &whole) && !is_same(&whole, &of(Some("0-3"))));
        assert!(is_same(&of(Some("0-3")), &of(Some("2-9"))));
        assert!(!is_same(&of(Some("0-3")), &of(Some("3-9"))));
        let elsewhere = Move {
            to: DeviceId(2),
            ..of(None)
        };
        assert!(!is_same(&elsewhere, &whole));
    }
}
