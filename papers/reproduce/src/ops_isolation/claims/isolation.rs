//! Benefit of isolation, separated from the effect of the service.
//!
//! The paper's figure compares its scheme with a drive on the market and names no service. The size of spare space can
//! determine rates only if device time is shared, so two things change at once. So the claim is judged in one reading
//! per service: isolation with that service against one pool with the *same* service, and again with both changed.

use super::OfWay;
use crate::claim::{ClaimFinding, Measure, Rule, measure, said};
use crate::ops_isolation::cells::MIXES;
use crate::ops_isolation::effects::{Change, Effect, NOTEWORTHY};
use crate::ops_isolation::mode::{Mode, ServiceMode, SharingMode};

const WHERE: &str = "part 1, Evaluation";
const CONTROLLED: SharingMode = SharingMode::IsolatedByController;

pub(super) fn claims(of: OfWay<'_>, service: ServiceMode) -> Vec<ClaimFinding> {
    let alone = said(
        "isolation-helps",
        WHERE,
        "SLO satisfied (somewhat) by OPS: isolated, OPS adjusted, is nearer to the weights than one pool (same service)",
    )
    .note("isolation alone; \"nearer\" is an error lower by more than 0.01, mix by mix");
    let mut all = vec![alone.found(changes(of, service, |e| e.sharing_alone))];
    // First come, first served: only isolation changes, so both comparisons are the same.
    if service != ServiceMode::Fcfs {
        let both = said(
            "isolation-and-service",
            WHERE,
            "the same against one pool, first come, first served",
        )
        .note("combines two changes: isolation-helps isolates the effect of isolation");
        all.push(both.found(changes(of, service, |e| e.both)));
    }
    all
}

/// Differences of errors between isolation by the controller under a service and the compared mode, by mix.
fn changes(
    of: OfWay<'_>,
    service: ServiceMode,
    change: impl Fn(&Effect) -> Option<Change>,
) -> Vec<Measure> {
    let mode = Mode::new(CONTROLLED, service);
    let one = |mix: &&str| {
        let mut effects = of.figures.effects.iter().filter(|e| e.way == of.way);
        let effect = effects.find(|e| e.mix == **mix && e.mode == mode)?;
        let name = format!("{mix}: difference of proportionality errors");
        let error = change(effect)?.error;
        Some(measure(name, Some(error), Rule::Below(-NOTEWORTHY)))
    };
    MIXES.iter().filter_map(one).collect()
}
