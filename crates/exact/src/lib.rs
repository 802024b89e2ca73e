//! The assignment problems of the planner, solved exactly as mixed-integer programs.
//!
//! Behind the feature `highs`, since the solver takes minutes to build. What it is for: to say how far the planner's own
//! solutions are from the optimum, and how far its bounds are. Not for planning: it takes seconds for hundreds of volumes
//! and may take for ever for thousands.
//!
//! ```text
//!  x[v][t] ∈ {0,1}      Σ_t x[v][t] = 1
//!  o[t][k] ≥ 0          Σ_v u[v][t][k] · x[v][t] − o[t][k] ≤ C[t][k]        (o only where overload has a price)
//!  maximize             Σ s · x − Σ ρ · o
//! ```
//!
//! Over epochs z[v][s][t][τ] says that a volume is on s before epoch τ and on t in it: a flow through tiers and time
//! (paper 0, Eq. 1–5, without its products of two unknowns).

#[cfg(feature = "highs")]
mod solve;

#[cfg(feature = "highs")]
pub use solve::{assignment, horizon};

use thiserror::Error;

/// What the solver found.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimum<T> {
    /// The best solution it found.
    pub solution: T,
    /// Its value less that of the best that could still exist, as a share of it: 0 if the solution is the optimum.
    pub gap: f64,
}

/// Why there is no optimum.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExactError {
    /// The solver gave up.
    #[error("the solver ended with status {0}")]
    Status(String),
    /// Its solution breaks a rule of the problem: a fault of ours or of the solver's.
    #[error("the solver's solution violates a constraint of the problem")]
    Inadmissible,
}
