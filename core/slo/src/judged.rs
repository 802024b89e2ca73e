//! Criterion for remedies. If the model predicts the present violation, a remedy must end it. Otherwise it must relieve the
//! busiest resource of the affected workload.

use crate::ladder::{Price, Remedy, RemedyAction, RemedyKind, Situation};
use crate::load::{Change, Prediction, predict};
use crate::price::Total;

/// Smallest relative relief of the affected workload's busiest resource, for a violation that the model does not predict.
const UNSEEN_TAKES: f64 = 0.1;

/// Situation with the criterion for its remedies.
pub(crate) struct JudgedSituation<'a> {
    at: &'a Situation<'a>,
    /// `None` if the model predicts the present violation. Otherwise any remedy would appear to succeed, so this has the
    /// affected workload's busiest resource and its use, or an inner `None` if the workload uses no resource.
    unseen: Option<Option<(usize, f64)>>,
}

impl<'a> std::ops::Deref for JudgedSituation<'a> {
    type Target = Situation<'a>;

    fn deref(&self) -> &Situation<'a> {
        self.at
    }
}

impl<'a> JudgedSituation<'a> {
    /// Derives the criterion from the prediction without a remedy.
    pub(crate) fn new(at: &'a Situation<'a>) -> Self {
        let now = predict(at.backend, at.streams, &Change::None);
        let unseen = now.fails.is_none().then(|| busiest_of(at, &now));
        Self { at, unseen }
    }

    /// Returns true if the model predicts the present violation.
    pub(crate) fn sees(&self) -> bool {
        self.unseen.is_none()
    }

    /// Returns the reason to reject a remedy with this prediction; `None` if it suffices.
    pub(crate) fn refusal(&self, kind: RemedyKind, prediction: &Prediction) -> Option<String> {
        let unseen = "the model does not predict this violation";
        match (&prediction.fails, self.unseen) {
            (Some(why), _) => Some(why.clone()),
            (None, None) => None,
            // Without any measurement only a throttle is tried: it takes effect in seconds and ends after its cooldown.
            (None, Some(None)) if kind == RemedyKind::Throttle => None,
            (None, Some(None)) => Some(unseen.into()),
            (None, Some(Some((r, used)))) => {
                let after = prediction.uses[r];
                let name = &self.backend.resources[r].name;
                (after > used * (1.0 - UNSEEN_TAKES)).then(|| {
                    let (used, after) = (100.0 * used, 100.0 * after);
                    format!("{unseen}; {name}, now {used:.0} % busy, would be {after:.0} %")
                })
            }
        }
    }

    /// Returns the remedy `action`, rejected if its prediction does not suffice.
    pub(crate) fn remedy(
        &self,
        kind: RemedyKind,
        action: RemedyAction,
        price: Price,
        prediction: Prediction,
    ) -> Remedy {
        Remedy {
            kind,
            action: Some(action),
            price,
            total: Total::default(),
            refused: self.refusal(kind, &prediction),
            prediction: Some(prediction),
        }
    }

    /// Adds the number of untested pairs to a rejection that rests on the interfering set: untested workloads may interfere
    /// too.
    pub(crate) fn with_unknown(&self, mut remedy: Remedy) -> Remedy {
        if let (Some(why), n @ 1..) = (&mut remedy.refused, self.untested) {
            let workloads = if n == 1 { "workload" } else { "workloads" };
            let unknown = format!("interference with {n} {workloads} could not be tested yet");
            why.push_str("; ");
            why.push_str(&unknown);
        }
        remedy
    }
}

/// Returns the busiest resource on which the affected workload's requests have a cost, and its use.
fn busiest_of(at: &Situation<'_>, now: &Prediction) -> Option<(usize, f64)> {
    let affected = at.streams.iter().find(|s| s.workload == at.affected)?;
    let costs = affected.costs.iter().zip(&now.uses).enumerate();
    costs
        .filter(|(_, (cost, _))| cost.read_s > 0.0 || cost.write_s > 0.0)
        .map(|(r, (_, used))| (r, *used))
        .max_by(|a, b| a.1.total_cmp(&b.1))
}
