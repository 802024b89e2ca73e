//! How good decisions are: scenarios as seeds draw them, what a run is judged by, harm to volumes, the best plan in hindsight, strategies side by
//! side.
//!
//! ```text
//!  scenario ─▶ draw(seed) ─▶ run (strategy) ─▶ Judged: V, excess, moves, moves back …   ─┐
//!                     └────▶ search with perfect knowledge (hindsight) ─▶ H             ─┴─▶ Comparison: ratios with intervals
//! ```
//!
//! Everything here is fixed before the strategies that it judges: what is changed later is followed by running all of them again.
//!
//! # What it is not
//!
//! No files, threads or tables: the caller runs simulations, keeps results and shows them.

mod ablation;
mod bound;
mod compare;
mod draw;
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
pub use draw::{Fixed, draw};
pub use figures::{FIGURES_SCHEMA, Figures, ScenarioFigures, StrategyFigures};
pub use fresh::{FRESH_MIN, NoHash, fresh_numbers};
pub use generate::generate;
pub use harm::{Baseline, HarmTotals, REQUESTS_MIN, Slowdown, Spread, VolumeHarm, means_us};
pub use hindsight::{Hindsight, Score, Search, search};
pub use judge::{ClassJudged, Judged, Offered, judge, violated};
pub use known::{CANDIDATES_MIN, KNOWN_SCHEMA, Known, KnownCase, KnownError, KnownPlan};
pub use planner::NOOP;
pub use replay::{MoveTrial, Moves, Replay};
pub use script::{Path, Script, path_of};
