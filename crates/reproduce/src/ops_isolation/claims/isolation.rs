//! What isolation is worth: held apart from what service does.
//!
//! The paper's figure sets its scheme beside a drive as it is sold, and names no service. Sized spare space can only set rates where device
//! time is shared; then two things change at once. So the claim is asked in a reading for each service, isolation with that service
//! against one pool with the *same*, and once more with both changed.

use super::OfWay;
use crate::claim::{Found, Measure, Rule, measure, said};
use crate::ops_isolation::cells::MIXES;
use crate::ops_isolation::effects::{Change, Effect, NOTEWORTHY};
use crate::ops_isolation::mode::{Mode, ServiceMode, SharingMode};

const WHERE: &str = "part 1, Evaluation";
const CONTROLLED: SharingMode = SharingMode::IsolatedByController;

pub(super) fn claims(of: OfWay<'_>, service: ServiceMode) -> Vec<Found> {
    let alone = said(
        "isolation-helps",
        WHERE,
        "SLO satisfied (somewhat) by OPS: isolated, OPS adjusted, is nearer to the weights than one pool (same service)",
    )
    .note("isolation alone; \"nearer\" is an error lower by more than 0.01, mix by mix");
    let mut all = vec![alone.found(changes(of, service, |e| e.sharing_alone))];
    // First come, first served: nothing but isolation changes, and the two are one.
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

/// Differences of errors between isolation by the controller under a service and what it is compared with, mix by mix.
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
