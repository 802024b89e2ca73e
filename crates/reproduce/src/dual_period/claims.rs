//! What paper 1 says about its evaluation, and what becomes of it in one reading.

mod on_a;
mod synthetic;

use super::grid::View;
use crate::claim::Found;

/// All of them, judged.
pub(super) fn claims(view: View<'_>) -> Vec<Found> {
    let mut all = on_a::calibrated(view);
    all.extend(on_a::shapes(view));
    all.extend(synthetic::claims(view));
    all
}
