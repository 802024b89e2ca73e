//! Quality of decisions: scenarios drawn by seeds, metrics of a run, harm to volumes, the best plan in hindsight, and
//! comparisons of strategies.
//!
//! ```text
//!  scenario ─▶ draw(seed) ─▶ run (strategy) ─▶ Judged: V, excess, moves, moves back …   ─┐
//!                     └────▶ search with perfect knowledge (hindsight) ─▶ H             ─┴─▶ Comparison: ratios with intervals
//! ```
//!
//! All parts of this crate are fixed before the strategies that they judge. After a change, all strategies must run again.
//!
//! # Not its responsibility
//!
//! Files, threads and tables: the caller runs simulations, stores results and shows them.

mod ablation;
mod bound;
mod compare;
mod draw;
mod error;
mod figures;
mod fresh;
mod generate;
mod harm;
mod hindsight;
mod judge;
mod known;
mod replay;
mod returns;
mod script;

pub use ablation::{ABLATION_SCHEMA, Ablation, Variant, ablation};
pub use bound::solo_violation;
pub use compare::{
    Comparison, DECISIONS_SCHEMA, EPSILON, RatioInterval, Runs, ScenarioRow, StrategyRow,
    StrategyTotals, compare,
};
pub use draw::{FixedParameter, draw};
pub use error::DecisionsError;
pub use figures::{ContestRules, FIGURES_SCHEMA, Figures, ScenarioFigures, StrategyFigures};
pub use fresh::{FRESH_MIN, fresh_numbers};
pub use generate::generate;
pub use harm::{Baseline, HarmTotals, REQUESTS_MIN, Slowdown, Spread, VolumeHarm, means_us};
pub use hindsight::{Hindsight, Score, Search, search};
pub use judge::{ClassJudged, OfferedLoads, RunMetrics, judge, violated};
pub use known::{CANDIDATES_MIN, KNOWN_SCHEMA, KnownCase, KnownPlan, KnownPlans};
pub use planner::NOOP;
pub use replay::{MoveTrial, Moves, Replay};
pub use script::{Path, Script, path_of};
