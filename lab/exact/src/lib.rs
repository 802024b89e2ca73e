//! The assignment problems of the planner, solved exactly as mixed-integer programs.
//!
//! Behind the feature `highs`, because the solver takes minutes to build. Purpose: to measure the distance of the planner's
//! own solutions and bounds from the optimum. Not for planning: it takes seconds for hundreds of volumes and may not end for
//! thousands.
//!
//! ```text
//!  x[v][t] ∈ {0,1}      Σ_t x[v][t] = 1
//!  o[t][k] ≥ 0          Σ_v u[v][t][k] · x[v][t] − o[t][k] ≤ C[t][k]        (o only where overload has a price)
//!  maximize             Σ s · x − Σ ρ · o
//! ```
//!
//! Over epochs, z[v][s][t][τ] is 1 if a volume is on s before epoch τ and on t in it: a flow through tiers and time (paper
//! 0, Eq. 1–5, without its products of two unknowns).

#[cfg(feature = "highs")]
mod solve;

#[cfg(feature = "highs")]
pub use solve::{assignment, horizon};

use thiserror::Error;

/// Result of the solver.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimum<T> {
    /// Best solution found.
    pub solution: T,
    /// Relative distance of its value from that of the best possible solution: 0 if the solution is the optimum.
    pub gap: f64,
}

/// Reason why there is no optimum.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExactError {
    /// The solver stopped without a usable solution.
    #[error("the solver ended with status {0}")]
    Status(String),
    /// The solution violates a constraint of the problem: a fault of this crate or of the solver.
    #[error("the solver's solution violates a constraint of the problem")]
    Inadmissible,
}
