//! What isolation is worth: held apart from what service does.
//!
//! The paper's figure sets its scheme beside a drive as it is sold and changes two things at once, if its scheme is served by device
//! time, as it must be for spare space to set rates at all. So the claim is judged once for each service, isolation with that service
//! against one pool with the *same*, and once more as the paper compares.

use super::{Figures, noted, open};
use crate::dual_period::{Claim, Measure, Rule, measure};
use crate::ops_isolation::cells::MIXES;
use crate::ops_isolation::effects::{Change, Effect, NOTEWORTHY};
use crate::ops_isolation::mode::{Mode, ServiceMode, SharingMode};

const WHERE: &str = "part 1, Evaluation";
const AS_COMPARED: &str = "part 1, Evaluation, AS THE PAPER COMPARES";
const CONTROLLED: SharingMode = SharingMode::IsolatedByController;

pub(super) fn claims(figures: &Figures) -> Vec<Claim> {
    let alone = |service, id, says, note| {
        let measures = changes(figures, service, |e| e.sharing_alone);
        noted(open(id, WHERE, says, measures), note)
    };
    vec![
        alone(
            ServiceMode::EqualTime,
            "isolation-helps",
            "SLO satisfied (somewhat) by OPS: isolated, OPS adjusted, is nearer to the weights than one pool, both with equal device time",
            "isolation alone, under the service that the paper's formula assumes and does not name: everybody gets the same time of the device, and OPS says \
             how much is done in it",
        ),
        alone(
            ServiceMode::Fcfs,
            "isolation-helps-fcfs",
            "the same, both first come, first served",
            "isolation alone; with equal depths every VM gets as many requests served as any other, whatever its OPS",
        ),
        alone(
            ServiceMode::HostWeights,
            "isolation-helps-weights",
            "the same, both with host weights",
            "isolation alone; on one unit with one request at a time host weights are met without it",
        ),
        alone(
            ServiceMode::WeightedTime,
            "isolation-helps-weighted-time",
            "the same, both with device time by weight",
            "isolation alone, where the service and OPS pull the same way",
        ),
        noted(
            open(
                "isolation-and-service",
                AS_COMPARED,
                "isolated with adjusted OPS and equal device time against one pool, first come, first served",
                changes(figures, ServiceMode::EqualTime, |e| e.both),
            ),
            "two changes at once: how much of it is isolation's is in the rows before",
        ),
    ]
}

/// Differences of errors between isolation by the controller under a service and what it is compared with, mix by mix.
fn changes(
    figures: &Figures,
    service: ServiceMode,
    of: impl Fn(&Effect) -> Option<Change>,
) -> Vec<Measure> {
    let mode = Mode::new(CONTROLLED, service);
    let one = |mix: &&str| {
        let effect = figures
            .effects
            .iter()
            .find(|e| e.mix == **mix && e.mode == mode)?;
        let name = format!("{mix}: difference of proportionality errors");
        Some(measure(name, of(effect)?.error, Rule::Below(-NOTEWORTHY)))
    };
    MIXES.iter().filter_map(one).collect()
}
