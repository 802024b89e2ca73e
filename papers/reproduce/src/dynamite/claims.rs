//! Claims of section 7, and their results over all seeds of a reading.

use slo::WorkloadId;
use slo::curve::Curve;
use slo::sizing::SizingConfig;
use slo::solutions::{Temper, best, solutions};
use units::{Bytes, Nanos};

use super::figures::{Figures, run_of};
use super::result::CaseEvent;
use super::scenario::{
    FIO, FIO_PROMISED, PEAK_BEGINS_MIN, PEAK_ENDS_MIN, SYS, USR1, USR1_PROMISED,
};
use super::summary::{ApplianceSummary, Summary, WorkloadSummary, deciding};
use super::variants::{Study, Variant, VariantRun};
use crate::claim::{ClaimFinding, Measure, Outlook, PublishedClaim, Rule, Value, measure, said};

/// Place of publication of most claims.
const RESULTS: &str = "sec. 7.2";
/// FIO's published rate next to USR-1, and USR-1's after a remedy, in requests per second.
const ABOUT_3000: f64 = 3000.0;
/// Tolerance of "about" and "roughly".
const ABOUT: f64 = 0.15;

/// One seed of a reading, with its summaries.
pub(super) struct OfSeed<'a> {
    pub(super) runs: &'a [&'a VariantRun],
    pub(super) summaries: Vec<Summary>,
    pub(super) figures: Figures,
}

impl<'a> OfSeed<'a> {
    pub(super) fn new(study: &'a Study<'a>) -> Self {
        Self {
            runs: &study.runs,
            summaries: study.runs.iter().map(|r| Summary::new(r)).collect(),
            figures: Figures::new(&study.runs, &[]),
        }
    }

    fn of(&self, variant: Variant) -> Option<&Summary> {
        self.summaries.iter().find(|s| s.variant == variant)
    }

    fn usr1(&self, v: Variant, get: fn(&WorkloadSummary) -> f64) -> Option<f64> {
        self.of(v)?.usr1.as_ref().map(get)
    }

    fn fio(&self, v: Variant, get: fn(&WorkloadSummary) -> f64) -> Option<f64> {
        self.of(v)?.fio.as_ref().map(get)
    }

    fn created(&self, v: Variant, get: fn(&ApplianceSummary) -> Option<f64>) -> Option<f64> {
        get(self.of(v)?.created.as_ref()?)
    }

    /// Returns the time at which all of the peak's requests had been issued.
    fn done(&self, v: Variant) -> Option<f64> {
        self.of(v)?.usr1.as_ref()?.peak_done_min
    }

    /// Returns the minutes in violation of both workloads from the peak on.
    fn minutes(&self, v: Variant) -> Option<f64> {
        Some(self.usr1(v, |w| w.violation_peak_min)? + self.fio(v, |w| w.violation_peak_min)?)
    }

    /// Returns the mean strength of interference between two minutes.
    fn strength(&self, from: f64, to: f64) -> Option<f64> {
        let points = self.figures.fig6.over_time.iter();
        let within: Vec<f64> = points
            .filter(|p| p.0 >= from && p.0 < to)
            .map(|p| p.1)
            .collect();
        (!within.is_empty()).then(|| within.iter().sum::<f64>() / within.len() as f64)
    }

    /// Returns the strength of interference relative to the calm phase before the peak.
    fn over_calm(&self, from: f64, to: f64) -> Option<f64> {
        let calm = self.strength(20.0, PEAK_BEGINS_MIN as f64)?;
        Some(self.strength(from, to)? / calm)
    }

    /// Returns 1 if the interference sets are as printed.
    fn sets(&self) -> Option<f64> {
        let set = &self.figures.fig6.set;
        let as_printed = set.len() == 3 && set[USR1] == set[FIO] && set[SYS] != set[USR1];
        (!set.is_empty()).then(|| f64::from(u8::from(as_printed)))
    }

    fn orders_before_peak(&self) -> Option<f64> {
        let run = run_of(self.runs, Variant::Reactive)?;
        let early = |e: &&CaseEvent| e.at_s < 60.0 * PEAK_BEGINS_MIN as f64;
        Some(run.result.events.iter().filter(early).count() as f64)
    }

    /// Returns the size that the curves of figure 7 would give. They are of minute 48, so they do not contain the
    /// peak's data yet.
    fn size_at_48(&self) -> Option<f64> {
        let decided = run_of(self.runs, Variant::Reactive)?;
        let mut streams = deciding(&decided.result.decisions)?.streams.clone();
        let drawn = &run_of(self.runs, Variant::CoLocated)?.result.curves;
        let at = Nanos::from_secs(60 * PEAK_BEGINS_MIN);
        for pair in drawn.iter().filter(|c| c.at == at) {
            let points = pair.points.iter().map(|p| (p.0, p.1)).collect();
            streams[pair.workload].curve = Some(Curve::new(points));
        }
        let both = [USR1, FIO].map(|w| (WorkloadId(w as u16), Temper::default()));
        let backend = &decided.result.backend;
        let all = solutions(backend, &streams, &SizingConfig::default(), &both);
        best(&all, |s| s.prediction.fails.is_none(), |_| 0).map(|s| s.size.as_mib_f64() / 1024.0)
    }

    /// Returns the miss ratio of a cache of 3 GiB, from the last curve.
    fn miss_ratio(&self, workload: &str) -> Option<f64> {
        let mut curves = self.figures.fig7.iter();
        let curve = curves.rfind(|c| c.workload == workload)?;
        let point = curve.points.iter().find(|p| p.0 == Bytes::gib(3))?;
        Some(point.2)
    }

    fn curve_error(&self) -> Option<f64> {
        let errors = self.figures.fig7.iter().map(|c| c.error_max);
        errors.reduce(f64::max)
    }
}

/// Seeds of a reading.
struct Seeds<'a>(&'a [OfSeed<'a>]);

impl<'a> Seeds<'a> {
    /// Creates a measure over all seeds.
    fn measure(
        &self,
        name: &str,
        rule: Rule,
        of: impl Fn(&OfSeed<'a>) -> Option<f64>,
    ) -> Vec<Measure> {
        vec![measure(name, Value::over(self.0, of), rule)]
    }
}

/// Adds the printed value and the unit to the measures too.
fn printed(
    said: PublishedClaim,
    value: f64,
    unit: &'static str,
    measures: Vec<Measure>,
) -> ClaimFinding {
    let measures = measures.into_iter().map(|m| m.printed(value).unit(unit));
    said.printed(value).found(measures.collect())
}

/// Returns `a` minus `b`.
fn less(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? - b?)
}

/// Returns all claims. Runs without an appliance are shared by both readings, so their claims have equal results.
pub(super) fn claims(seeds: &[OfSeed<'_>]) -> Vec<ClaimFinding> {
    let seeds = Seeds(seeds);
    let mut all = before(&seeds);
    all.extend(interference(&seeds));
    all.extend(reactive(&seeds));
    let size_48 = said(
        "size-48",
        "fig. 7",
        "the same for the curves at minute 48, which the figure shows",
    );
    let size = seeds.measure("cache", Rule::Between(3.0, 3.0), OfSeed::size_at_48);
    all.push(printed(size_48, 3.0, "GiB", size));
    all.extend(warm_and_ahead(&seeds));
    all.extend(curves(&seeds));
    all
}

/// Claims for which the stand-in was built.
fn before(seeds: &Seeds<'_>) -> Vec<ClaimFinding> {
    use Variant as V;
    let calibrated = |id, says| said(id, RESULTS, says).outlook(Outlook::Calibrated);
    let about = Rule::within(ABOUT_3000, ABOUT);
    let rate = "requests per second";
    vec![
        printed(
            calibrated(
                "usr1-alone",
                "alone, USR-1 keeps its 1,800 IOPS in the peak",
            ),
            USR1_PROMISED,
            "IOPS",
            seeds.measure(rate, Rule::Above(USR1_PROMISED), |s| {
                s.usr1(V::Usr1Alone, |w| w.rate.peak)
            }),
        ),
        printed(
            calibrated("fio-alone", "alone, FIO keeps its 5,000 IOPS"),
            FIO_PROMISED,
            "IOPS",
            seeds.measure(rate, Rule::Above(0.95 * FIO_PROMISED), |s| {
                s.fio(V::FioAlone, |w| w.rate.peak)
            }),
        ),
        printed(
            calibrated(
                "fio-spike",
                "co-located, FIO has about 3,000 IOPS in the first spike",
            ),
            ABOUT_3000,
            "IOPS",
            seeds.measure(rate, about, |s| s.fio(V::CoLocated, |w| w.rate.spike)),
        ),
        printed(
            calibrated(
                "fio-peak",
                "co-located, FIO has about 3,000 IOPS in the peak",
            ),
            ABOUT_3000,
            "IOPS",
            seeds.measure(rate, about, |s| s.fio(V::CoLocated, |w| w.rate.peak)),
        ),
        printed(
            calibrated(
                "usr1-peak",
                "co-located, USR-1 does not have its 1,800 IOPS in the peak",
            ),
            USR1_PROMISED,
            "IOPS",
            seeds.measure(rate, Rule::Below(0.95 * USR1_PROMISED), |s| {
                s.usr1(V::CoLocated, |w| w.rate.peak)
            }),
        ),
        printed(
            calibrated(
                "late",
                "co-located, the peak is done roughly 5 minutes later than alone",
            ),
            5.0,
            "min",
            seeds.measure("later", Rule::within(5.0, ABOUT), |s| {
                less(s.done(V::CoLocated), s.done(V::Usr1Alone))
            }),
        ),
    ]
}

fn interference(seeds: &Seeds<'_>) -> Vec<ClaimFinding> {
    let (begins, ends) = (PEAK_BEGINS_MIN as f64, PEAK_ENDS_MIN as f64);
    let onset = begins + 5.0;
    let higher = Rule::Above(1.1);
    vec![
        printed(
            said(
                "sets",
                "fig. 6(a)",
                "USR-1 and FIO interfere, SYS with neither",
            ),
            1.0,
            "",
            seeds.measure("1: so", Rule::Between(1.0, 1.0), OfSeed::sets),
        ),
        said(
            "higher-onset",
            "fig. 6(b)",
            "interference is higher as the peak begins",
        )
        .found(
            seeds.measure("minutes 48 to 53 over the calm's mean", higher, |s| {
                s.over_calm(begins, onset)
            }),
        ),
        said(
            "higher",
            "fig. 6(b)",
            "and stays higher within the peak",
        )
        .note("first differences are correlated: within the peak all workloads are saturated and steady, so few changes remain")
        .found(
            seeds.measure("minutes 53 to 75 over the calm's mean", higher, |s| {
                s.over_calm(onset, ends)
            }),
        ),
        printed(
            said(
                "spike-ignored",
                RESULTS,
                "no remedy is taken for the first spike",
            )
            .outlook(Outlook::Designed),
            0.0,
            "",
            seeds.measure(
                "orders before minute 48",
                Rule::Between(0.0, 0.0),
                OfSeed::orders_before_peak,
            ),
        ),
    ]
}

fn reactive(seeds: &Seeds<'_>) -> Vec<ClaimFinding> {
    use Variant::Reactive as R;
    let claim = |id, says| said(id, RESULTS, says);
    let gib = |c: &ApplianceSummary| Some(c.cache.as_mib_f64() / 1024.0);
    let about = Rule::within(ABOUT_3000, ABOUT);
    vec![
        printed(
            claim("created", "reactive: the appliance is created at minute 55")
                .outlook(Outlook::Designed),
            55.0,
            "min",
            seeds.measure("ordered", Rule::Between(54.0, 56.5), |s| {
                s.created(R, |c| Some(c.ordered_min))
            }),
        ),
        printed(
            claim("whom", "it is USR-1's, not FIO's"),
            0.0,
            "",
            seeds.measure("0: USR-1, 1: FIO", Rule::Between(0.0, 0.0), |s| {
                s.created(R, |c| Some(c.workload as f64))
            }),
        ),
        printed(
            claim("size", "a cache of 3 GB does").outlook(Outlook::Calibrated),
            3.0,
            "GiB",
            seeds.measure("cache", Rule::Between(3.0, 3.0), |s| s.created(R, gib)),
        ),
        printed(
            claim("effective", "reactive: effective at minute 65")
                .note("the slow fill is limited to fill a cache in ten minutes, as in the paper"),
            65.0,
            "min",
            seeds.measure(
                "no workload in violation from",
                Rule::Between(63.0, 67.0),
                |s| s.created(R, |c| c.effective_min),
            ),
        ),
        printed(
            claim(
                "usr1-3000",
                "reactive: USR-1 has roughly 3,000 IOPS from minute 65 to 75",
            ),
            ABOUT_3000,
            "IOPS",
            seeds.measure("requests per second", about, |s| {
                s.usr1(R, |w| w.rate.late_peak)
            }),
        ),
        printed(
            claim(
                "usr1-best",
                "reactive: the same in its best minute, while it catches up",
            )
            .outlook(Outlook::Calibrated),
            ABOUT_3000,
            "IOPS",
            seeds.measure("requests per second", about, |s| {
                s.usr1(R, |w| w.rate.best_minute)
            }),
        ),
        printed(
            claim(
                "fio-kept",
                "reactive: FIO keeps its 5,000 IOPS from minute 65 on",
            ),
            FIO_PROMISED,
            "IOPS",
            seeds.measure(
                "requests per second",
                Rule::Above(0.95 * FIO_PROMISED),
                |s| s.fio(R, |w| w.rate.late_peak),
            ),
        ),
    ]
}

fn warm_and_ahead(seeds: &Seeds<'_>) -> Vec<ClaimFinding> {
    use Variant as V;
    let claim = |id, says| said(id, RESULTS, says);
    let minutes = |measures: Vec<Measure>| -> Vec<Measure> {
        measures.into_iter().map(|m| m.unit("min")).collect()
    };
    let some = Rule::Above(0.0);
    vec![
        claim("stale-warm", "reactive-W: old zones make it worse").found(minutes(seeds.measure(
            "more violation than reactive",
            some,
            |s| less(s.minutes(V::ReactiveWarm), s.minutes(V::Reactive)),
        ))),
        claim(
            "still-earlier",
            "reactive-W: even so the peak is done earlier than without an appliance",
        )
        .found(minutes(seeds.measure("earlier", some, |s| {
            less(s.done(V::CoLocated), s.done(V::ReactiveWarm))
        }))),
        claim("proactive", "proactive: effective earlier than reactive").found(minutes(
            seeds.measure("less violation than reactive", some, |s| {
                less(s.minutes(V::Reactive), s.minutes(V::Proactive))
            }),
        )),
        printed(
            claim("proactive-warm", "proactive-W: no violation in the peak"),
            0.0,
            "min",
            seeds.measure("violation, both", Rule::Between(0.0, 0.0), |s| {
                s.minutes(V::ProactiveWarm)
            }),
        ),
    ]
}

fn curves(seeds: &Seeds<'_>) -> Vec<ClaimFinding> {
    vec![
        said("cacheable", "fig. 7", "USR-1 is more cacheable")
            .outlook(Outlook::Calibrated)
            .found(seeds.measure(
                "FIO's miss ratio at 3 GiB minus USR-1's",
                Rule::Above(0.1),
                |s| less(s.miss_ratio("FIO"), s.miss_ratio("USR-1")),
            )),
        said(
            "curves",
            "fig. 7",
            "curves from working sets are those of an LRU cache",
        )
        .found(seeds.measure(
            "greatest difference",
            Rule::Below(0.05),
            OfSeed::curve_error,
        )),
    ]
}
