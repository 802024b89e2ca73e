//! Strategies in Python, which only recommend: modes, and failures as problems.

use manager::problem::ProblemKind;
use manager::question::{Question, Refusal};
use manager::settings::{ManagerConfig, Settings};
use model::{Goal, Mode, TierState};
use planner::hosted::{Decider, HostedDecision, WantedMove, wishes};
use planner::{AnyStrategy, Context, HostedStrategy, StrategyFailure};
use serde_json::Value;

use super::host::{BASE, Host};
use super::upside_down;

/// Stands for a strategy in another process: it fails, or moves the busy volume to the fast tier.
struct Stand(String);

impl Decider for Stand {
    fn name(&self) -> &str {
        &self.0
    }

    fn decide(
        &self,
        context: &Context<'_>,
        state: &Value,
    ) -> Result<Option<HostedDecision>, StrategyFailure> {
        if self.0.starts_with("fails") {
            if self.0.starts_with("fails_long") {
                return Err(format!("\u{1b}[2J{}", "long ".repeat(10_000)).into());
            }
            return Err("fails.py:3: KeyError: 'iops'\nTraceback, line by line".into());
        }
        let wanted = WantedMove {
            volume: "busy".into(),
            tier: "fast".into(),
            device: None,
            value: None,
            latency_us: None,
            reason: match self.0.starts_with("talks") {
                true => Some("word ".repeat(300)),
                false => None,
            },
        };
        let moves = match context.facts.placement_due {
            true => vec![wanted],
            false => vec![],
        };
        let wishes = wishes(context, &moves)?;
        let state = state.clone();
        Ok(Some(HostedDecision { wishes, state }))
    }
}

/// Access to strategies in Python for the settings of tests.
pub fn start(settings: &Settings) -> Box<dyn AnyStrategy> {
    Box::new(HostedStrategy(Stand(settings.strategy.0.clone())))
}

fn with(strategy: &str, extra: &str) -> String {
    BASE.replace("\"idt\"", &format!("\"{strategy}\"")) + extra
}

#[test]
fn moves_of_a_strategy_in_python_wait_for_approval() {
    let mut host = Host::new(&with("moves.py:M", ""), upside_down());
    let plan = host.until_plan();
    assert_eq!(plan.strategy, "moves.py:M");
    let busy = plan.moves.iter().find(|m| m.volume == "busy").unwrap();
    assert_eq!(busy.to_tier, "fast");
    host.windows(8);
    assert!(host.ordered().is_empty());
    let refused = host.ask(Question::SetMode {
        goal: Goal::Latency,
        mode: Mode::Auto,
    });
    assert!(
        matches!(&refused, Err(Refusal::Conflict(why)) if why.contains("only recommended")),
        "{refused:?}"
    );
}

#[test]
fn mode_set_before_a_change_of_strategy_starts_no_moves() {
    let mut host = Host::new(&with("idt", ""), upside_down());
    host.order(Question::SetMode {
        goal: Goal::Latency,
        mode: Mode::Auto,
    });
    host.config = with("moves.py:M", "");
    host.restart_controller();
    host.register();
    host.until_plan();
    host.windows(8);
    assert!(host.ordered().is_empty());
}

#[test]
fn automatic_modes_are_refused_with_a_python_strategy() {
    for mode in ["auto", "partial"] {
        for goal in ["drain", "latency"] {
            let text = with("my.py:Mine", &format!("[modes]\n{goal} = \"{mode}\"\n"));
            let (words, text) = config::read::<ManagerConfig>("test.toml", &text).unwrap();
            let why = Settings::new(text, words).unwrap_err().to_string();
            assert!(why.contains(&format!("modes.{goal}: is {mode}")), "{why}");
            assert!(why.contains("only recommended"), "{why}");
        }
    }
}

#[test]
fn failure_of_a_strategy_is_a_problem_and_drains_continue() {
    let mut host = Host::new(&with("fails.py:F", ""), upside_down());
    host.windows(1);
    host.order(Question::SetTier {
        tier: "fast".into(),
        state: TierState::Draining,
    });
    let plan = host.until_plan();
    let volumes: Vec<&str> = plan.moves.iter().map(|m| m.volume.as_str()).collect();
    assert_eq!(volumes, ["idle"]);
    assert_eq!(plan.moves[0].goal, Goal::Drain);
    let status = host.status();
    let problems = status.problems.iter();
    let failing: Vec<_> = problems
        .filter(|p| p.kind == ProblemKind::NoDecision)
        .collect();
    assert_eq!(failing.len(), 1, "{:?}", status.problems);
    assert!(
        failing[0]
            .what
            .contains("strategy fails.py:F failed: fails.py:3: KeyError: 'iops'; drains"),
        "{}",
        failing[0].what
    );
    assert_eq!(
        failing[0].undecided.as_deref(),
        Some("moves of alpha for latency")
    );
    let events = host.events();
    assert!(
        events.iter().any(|e| e.contains("Traceback, line by line")),
        "{events:?}"
    );
}

#[test]
fn long_failure_of_a_strategy_is_cut_and_escaped() {
    let mut host = Host::new(&with("fails_long.py:F", ""), upside_down());
    host.until_plan();
    let status = host.status();
    let problems = status.problems.iter();
    let failing: Vec<&str> = problems
        .filter(|p| p.kind == ProblemKind::NoDecision)
        .map(|p| p.what.as_str())
        .collect();
    assert_eq!(failing.len(), 1);
    assert!(failing[0].contains("\\u{1b}[2Jlong long"), "{}", failing[0]);
    assert!(failing[0].len() < 2_048, "{}", failing[0].len());
}

#[test]
fn long_reason_of_a_move_is_refused() {
    let mut host = Host::new(&with("talks.py:T", ""), upside_down());
    host.until_plan();
    let status = host.status();
    let words = "move 0: the reason has 1500 bytes, at most 1024 are permitted";
    let is_named = |p: &manager::problem::ProblemView| p.what.contains(words);
    assert!(
        status.problems.iter().any(is_named),
        "{:?}",
        status.problems
    );
}
