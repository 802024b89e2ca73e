//! Expected peaks for which a decision was shown, and their outcome.

use slo::{Cause, Decision, Responder};
use units::Nanos;

use super::EventText;
use super::live::{AwaitedPeak, LiveState};
use super::words::ViewChange;
use crate::view::{PeakOutcome, PeakView};

/// Share of the forecast rate below which the peak did not occur.
const CAME_MIN: f64 = 0.5;

/// View of the peak that a decision prepares for; none for a decision about a violation.
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

/// Records an expected peak, with the remedy that was applied. Replaces an earlier record of the same peak.
pub(super) fn wait_for(live: &mut LiveState, decision: &Decision, done: Option<String>) {
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

/// Evaluates the current window. Adds the texts of peaks that have ended, and returns their view changes.
pub(super) fn look(
    live: &mut LiveState,
    responder: &Responder,
    at: Nanos,
    measured: &[bool],
    said: &mut Vec<EventText>,
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
