//! One decision, from facts to a checked plan.

use model::{Action, Facts, MoveLimits, Plan, Policy, Report};
use thiserror::Error;

use crate::arrange::arrange;
use crate::evacuate::drain;
use crate::extents::goals::gather;
use crate::gates::{gate, remembered};
use crate::rules::{apply_pins, serve_rules};
use crate::{
    AnyStrategy, AssignmentTaken, Context, Draft, LintError, StrategyFailure, StrategyState, lint,
};

/// What came out.
#[derive(Clone)]
pub struct Decision {
    /// What to do.
    pub plan: Plan,
    /// Why, and why not.
    pub report: Report,
    /// What is remembered: the strategy's own state, and how long it has wanted what.
    pub state: StrategyState,
    /// The assignment problem behind it, where the strategy solves one.
    pub assignment: Option<AssignmentTaken>,
}

/// Why there is no plan.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The plan broke a rule that every plan must keep: a fault of ours, reported instead of carried out.
    #[error("strategy {strategy} made a plan that breaks a rule: {}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Lint {
        /// The strategy.
        strategy: String,
        /// What is wrong.
        errors: Vec<LintError>,
    },
    /// The strategy, which is outside this program, failed.
    #[error("strategy {strategy} failed: {why}")]
    Strategy {
        /// Name of the strategy.
        strategy: String,
        /// Reason, with the place in its source.
        why: StrategyFailure,
    },
}

/// Makes a plan. A pure function: the same arguments give the same result.
pub fn decide(
    strategy: &dyn AnyStrategy,
    facts: &Facts,
    policy: &Policy,
    state: &StrategyState,
    seed: u64,
) -> Result<Decision, PlanError> {
    let context = Context {
        facts,
        policy,
        seed: algo::mix(seed, facts.epoch),
    };
    let mut draft = Draft::default();
    let planned = strategy.plan(&context, state, &mut draft);
    let mut state = planned.map_err(|why| PlanError::Strategy {
        strategy: strategy.name().into(),
        why,
    })?;
    let Draft {
        mut wishes,
        mut extent_wishes,
        actions,
        notes,
        assignment,
    } = draft;
    if facts.placement_due {
        state.holds = remembered(facts, &wishes, &state.holds);
        apply_pins(&context, &mut wishes);
        drain(&context, &mut wishes);
        serve_rules(&context, &mut wishes);
        gate(&context, &state.holds, &mut wishes);
        gather(&context, &mut wishes, &mut extent_wishes);
    } else {
        wishes.clear();
        extent_wishes.clear();
    }
    let arranged = arrange(&context, wishes, &extent_wishes);
    let moves = arranged.moves.into_iter().map(Action::Move);
    let plan = Plan {
        generation: facts.generation + 1,
        parent: facts.generation,
        at: facts.at,
        strategy: strategy.name().into(),
        actions: moves.chain(actions).collect(),
        limits: MoveLimits {
            concurrent: policy.budget.concurrent,
            concurrent_per_device: policy.budget.concurrent_per_device,
        },
    };
    let errors = lint(&plan, facts, policy);
    if !errors.is_empty() {
        return Err(PlanError::Lint {
            strategy: plan.strategy,
            errors,
        });
    }
    let report = Report {
        at: facts.at,
        epoch: facts.epoch,
        strategy: plan.strategy.clone(),
        generation: plan.generation,
        volumes: arranged.volumes,
        notes,
    };
    Ok(Decision {
        plan,
        report,
        state,
        assignment,
    })
}
