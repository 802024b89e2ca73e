//! Claims of paper 1's evaluation, and their results in one reading.

mod on_a;
mod synthetic;

use super::grid::View;
use crate::claim::ClaimFinding;

/// Returns all claims, judged.
pub(super) fn claims(view: View<'_>) -> Vec<ClaimFinding> {
    let mut all = on_a::calibrated(view);
    all.extend(on_a::shapes(view));
    all.extend(synthetic::claims(view));
    all
}
