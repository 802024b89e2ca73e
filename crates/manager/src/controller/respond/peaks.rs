//! Peaks that something was said of before they began: what came of them.

use slo::{Cause, Decision, Responder};
use units::Nanos;

use super::Said;
use super::live::{AwaitedPeak, Live};
use super::words::ViewChange;
use crate::view::{PeakOutcome, PeakView};

/// With less of what was expected it did not come.
const CAME_MIN: f64 = 0.5;

/// The peak that a decision is made ahead of, as it is shown; none of one that was made about a broken objective.
pub(super) fn shown(decision: &Decision) -> Option<PeakView> {
    let Cause::Forecast { at, .. } = decision.cause else {
        return None;
    };
    let peak = decision.peak?;
    Some(PeakView {
        at_ns: at.0,
        until_ns: peak.until.0,
        rate_per_s: peak.rate_per_s,
        outcome: None,
    })
}

/// A peak is waited for: it was said what would be done, or nothing would do. What was said of it before is over.
pub(super) fn wait_for(live: &mut Live, decision: &Decision, done: Option<String>) {
    let (Cause::Forecast { workload, at }, Some(peak)) = (&decision.cause, decision.peak) else {
        return;
    };
    let same = |p: &AwaitedPeak| (p.workload, p.at) == (*workload, *at);
    live.peaks.retain(|p| !same(p));
    live.peaks.push(AwaitedPeak {
        workload: *workload,
        at: *at,
        until: peak.until.max(*at),
        rate_per_s: peak.rate_per_s,
        done,
        outcome: PeakOutcome::default(),
    });
}

/// Takes in the window that was just told; what is to be said of peaks that are over with it.
pub(super) fn look(
    live: &mut Live,
    responder: &Responder,
    at: Nanos,
    measured: &[bool],
    said: &mut Vec<Said>,
) -> Vec<ViewChange> {
    for peak in live.peaks.iter_mut().filter(|p| p.at < at) {
        let w = peak.workload;
        let sample = responder.last_sample(w);
        let sample = sample.filter(|_| measured.get(w.index()) == Some(&true));
        let Some(sample) = sample else {
            continue;
        };
        let outcome = &mut peak.outcome;
        outcome.windows += 1;
        outcome.violated += u64::from(responder.standing(w).violates());
        outcome.rate_max_per_s = outcome.rate_max_per_s.max(sample.rate_per_s());
    }
    let is_over = |p: &mut AwaitedPeak| p.until <= at;
    let over: Vec<AwaitedPeak> = live.peaks.extract_if(.., is_over).collect();
    let change = |peak: AwaitedPeak| {
        let volume = &responder.site().workloads[peak.workload.index()].name;
        said.push((peak.workload.index(), in_words(volume, &peak)));
        ViewChange::PeakOver {
            volume: volume.clone(),
            peak: peak.at,
            outcome: peak.outcome,
        }
    };
    over.into_iter().map(change).collect()
}

fn in_words(volume: &str, peak: &AwaitedPeak) -> String {
    let PeakOutcome {
        windows,
        violated,
        rate_max_per_s,
    } = peak.outcome;
    let done = match &peak.done {
        Some(done) => format!("remedy applied in advance: {done}"),
        None => "no remedy was applied in advance".into(),
    };
    let expected = peak.rate_per_s;
    if windows == 0 {
        return format!("{volume}: its peak was not measured; {done}");
    }
    let came = match rate_max_per_s >= CAME_MIN * expected {
        true => "the peak has ended",
        false => "the peak did not occur",
    };
    format!(
        "{volume}: {came}: highest rate {rate_max_per_s:.0} requests/s, forecast {expected:.0}; \
         {violated} of {windows} windows violated its objective; {done}"
    )
}
