//! What a rung of the ladder is held against: the promises where the model sees them broken, and else what it would take off the
//! busiest resource.

use crate::ladder::{Price, Remedy, RemedyAction, RemedyKind, Situation};
use crate::load::{Change, Prediction, predict};
use crate::price::Total;

/// Where the model does not see what is broken, an answer must take this share off the affected workload's busiest resource.
const UNSEEN_TAKES: f64 = 0.1;

/// A situation and what an answer is held against in it.
pub(crate) struct Judged<'a> {
    at: &'a Situation<'a>,
    /// Where the model sees nothing broken, and so would call every answer a success: the affected workload's busiest resource and
    /// its use; `None` within where it uses none.
    unseen: Option<Option<(usize, f64)>>,
}

impl<'a> std::ops::Deref for Judged<'a> {
    type Target = Situation<'a>;

    fn deref(&self) -> &Situation<'a> {
        self.at
    }
}

impl<'a> Judged<'a> {
    /// With what the model says of it as it is.
    pub(crate) fn new(at: &'a Situation<'a>) -> Self {
        let now = predict(at.backend, at.streams, &Change::None);
        let unseen = now.fails.is_none().then(|| busiest_of(at, &now));
        Self { at, unseen }
    }

    /// Whether the model sees a promise broken.
    pub(crate) fn sees(&self) -> bool {
        self.unseen.is_none()
    }

    /// Why an answer with this prediction is not taken; `None` if it would do.
    pub(crate) fn refusal(&self, kind: RemedyKind, prediction: &Prediction) -> Option<String> {
        let unseen = "the model does not predict this violation";
        match (&prediction.fails, self.unseen) {
            (Some(why), _) => Some(why.clone()),
            (None, None) => None,
            // Where nothing was ever measured only the answer is tried that takes seconds and ends after its cooldown.
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

    /// A rung that does `action`, refused where it would not do.
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

    /// Who is not known to disturb is not known not to: that is said with a refusal that the set is the reason of.
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

/// The busiest of the resources that the affected workload's requests take time of.
fn busiest_of(at: &Situation<'_>, now: &Prediction) -> Option<(usize, f64)> {
    let affected = at.streams.iter().find(|s| s.workload == at.affected)?;
    let costs = affected.costs.iter().zip(&now.uses).enumerate();
    costs
        .filter(|(_, (cost, _))| cost.read_s > 0.0 || cost.write_s > 0.0)
        .map(|(r, (_, used))| (r, *used))
        .max_by(|a, b| a.1.total_cmp(&b.1))
}
