//! What section 7 says, and what becomes of it here. With each seed a measure keeps its rule or does not; a claim agrees if it does
//! with all of them, and disagrees if it does with none.

use serde::Serialize;
use sim::response::backend_facts;
use slo::WorkloadId;
use slo::curve::Curve;
use slo::sizing::SizingConfig;
use slo::solutions::{Temper, best, solutions};
use units::{Bytes, Nanos};

use super::figures::{Figures, run_of};
use super::scenario::{
    FIO, FIO_PROMISED, PEAK_BEGINS_MIN, PEAK_ENDS_MIN, SYS, USR1, USR1_PROMISED,
};
use super::spread::Spread;
use super::summary::{Created, Summary, WorkloadSummary, deciding};
use super::variants::{Setup, Variant, VariantRun};
use crate::autotiering::Verdict;

/// What to make of agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outlook {
    /// The stand-in was built for it.
    Calibrated,
    /// A rule of ours was chosen for it.
    Designed,
    /// It was not: agreement or disagreement says something.
    Open,
}

/// One claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// Short name.
    pub id: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// In words.
    pub says: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The printed value, where there is one.
    pub published: Option<f64>,
    /// Between which values ours counts as the same.
    pub between: (f64, f64),
    /// Ours, the mean over the seeds; none where it was not reached.
    pub ours: Option<f64>,
    /// The same with its least and most.
    pub spread: Option<Spread>,
    /// What to make of agreement.
    pub outlook: Outlook,
    /// What became of it.
    pub verdict: Verdict,
}

/// Beyond any value, for rules with one side.
const MOST: f64 = 1e12;

/// A claim whose value is still to come.
struct Said(Claim);

fn said(id: &'static str, source: &'static str, says: &'static str) -> Said {
    Said(Claim {
        id,
        source,
        says,
        unit: "",
        published: None,
        between: (0.0, MOST),
        ours: None,
        spread: None,
        outlook: Outlook::Open,
        verdict: Verdict::Undecided,
    })
}

impl Said {
    fn printed(mut self, value: f64, unit: &'static str) -> Self {
        (self.0.published, self.0.unit) = (Some(value), unit);
        self
    }

    fn unit(mut self, unit: &'static str) -> Self {
        self.0.unit = unit;
        self
    }

    fn between(mut self, low: f64, high: f64) -> Self {
        self.0.between = (low, high);
        self
    }

    /// Within a part of the printed value.
    fn within(self, share: f64) -> Self {
        let value = self.0.published.expect("a printed value");
        self.between(value * (1.0 - share), value * (1.0 + share))
    }

    fn outlook(mut self, outlook: Outlook) -> Self {
        self.0.outlook = outlook;
        self
    }

    fn judge(mut self, ours: Option<f64>) -> Claim {
        let (low, high) = self.0.between;
        self.0.ours = ours;
        self.0.verdict = match ours {
            Some(v) if v >= low && v <= high => Verdict::Agrees,
            Some(_) => Verdict::Disagrees,
            None => Verdict::Undecided,
        };
        self.0
    }
}

/// The claims of several seeds as one list.
pub(super) fn merged(by_seed: &[Vec<Claim>]) -> Vec<Claim> {
    let Some(first) = by_seed.first() else {
        return Vec::new();
    };
    let one = |(i, claim): (usize, &Claim)| {
        let same = by_seed.iter().map(|claims| &claims[i]);
        let count = |v: Verdict| same.clone().filter(|c| c.verdict == v).count();
        let spread = Spread::of(same.clone().map(|c| c.ours));
        let verdict = match count(Verdict::Agrees) {
            n if n == by_seed.len() => Verdict::Agrees,
            0 if count(Verdict::Disagrees) > 0 => Verdict::Disagrees,
            _ => Verdict::Undecided,
        };
        Claim {
            ours: spread.map(|s| s.mean),
            spread,
            verdict,
            ..claim.clone()
        }
    };
    first.iter().enumerate().map(one).collect()
}

/// Looks values up.
struct Look<'a>(&'a [Summary]);

impl Look<'_> {
    fn of(&self, variant: Variant) -> Option<&Summary> {
        self.0.iter().find(|s| s.variant == variant)
    }

    fn usr1(&self, v: Variant, get: fn(&WorkloadSummary) -> f64) -> Option<f64> {
        self.of(v)?.usr1.as_ref().map(get)
    }

    fn fio(&self, v: Variant, get: fn(&WorkloadSummary) -> f64) -> Option<f64> {
        self.of(v)?.fio.as_ref().map(get)
    }

    fn created(&self, v: Variant, get: fn(&Created) -> Option<f64>) -> Option<f64> {
        get(self.of(v)?.created.as_ref()?)
    }

    /// When all of the peak's requests had been issued.
    fn done(&self, v: Variant) -> Option<f64> {
        self.of(v)?.usr1.as_ref()?.peak_done_min
    }

    /// Minutes in violation from the peak on, of both.
    fn minutes(&self, v: Variant) -> Option<f64> {
        Some(self.usr1(v, |w| w.violation_peak_min)? + self.fio(v, |w| w.violation_peak_min)?)
    }
}

/// `a` less `b`.
fn less(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? - b?)
}

/// All of them, judged on the runs of one seed.
pub(super) fn claims(
    setup: &Setup,
    runs: &[VariantRun],
    summaries: &[Summary],
    figures: &Figures,
) -> Vec<Claim> {
    let look = Look(summaries);
    let mut all = before(&look);
    all.extend(interference(runs, figures));
    all.extend(reactive(&look));
    all.push(size_at_48(setup, runs));
    all.extend(warm_and_ahead(&look));
    all.extend(curves(figures));
    all
}

/// What the stand-in was built for.
fn before(look: &Look<'_>) -> Vec<Claim> {
    use Variant as V;
    let calibrated = |id, says| said(id, "sec. 7.2", says).outlook(Outlook::Calibrated);
    vec![
        calibrated(
            "usr1-alone",
            "alone, USR-1 keeps its 1,800 IOPS in the peak",
        )
        .printed(USR1_PROMISED, "IOPS")
        .between(USR1_PROMISED, MOST)
        .judge(look.usr1(V::Usr1Alone, |w| w.rate.peak)),
        calibrated("fio-alone", "alone, FIO keeps its 5,000 IOPS")
            .printed(FIO_PROMISED, "IOPS")
            .between(0.95 * FIO_PROMISED, MOST)
            .judge(look.fio(V::FioAlone, |w| w.rate.peak)),
        calibrated(
            "fio-spike",
            "co-located, FIO has about 3,000 IOPS in the first spike",
        )
        .printed(3000.0, "IOPS")
        .within(0.15)
        .judge(look.fio(V::CoLocated, |w| w.rate.spike)),
        calibrated(
            "fio-peak",
            "co-located, FIO has about 3,000 IOPS in the peak",
        )
        .printed(3000.0, "IOPS")
        .within(0.15)
        .judge(look.fio(V::CoLocated, |w| w.rate.peak)),
        calibrated(
            "usr1-peak",
            "co-located, USR-1 does not have its 1,800 IOPS in the peak",
        )
        .unit("IOPS")
        .between(0.0, 0.95 * USR1_PROMISED)
        .judge(look.usr1(V::CoLocated, |w| w.rate.peak)),
        calibrated(
            "late",
            "co-located, the peak is done roughly 5 minutes later than alone",
        )
        .printed(5.0, "min")
        .within(0.3)
        .judge(less(look.done(V::CoLocated), look.done(V::Usr1Alone))),
    ]
}

fn interference(runs: &[VariantRun], figures: &Figures) -> Vec<Claim> {
    let set = &figures.fig6.set;
    let as_printed = set.len() == 3 && set[USR1] == set[FIO] && set[SYS] != set[USR1];
    let sets = (!set.is_empty()).then(|| f64::from(u8::from(as_printed)));
    let mean = |from: f64, to: f64| {
        let points = figures.fig6.over_time.iter();
        let within: Vec<f64> = points
            .filter(|p| p.0 >= from && p.0 < to)
            .map(|p| p.1)
            .collect();
        (!within.is_empty()).then(|| within.iter().sum::<f64>() / within.len() as f64)
    };
    let (begins, ends) = (PEAK_BEGINS_MIN as f64, PEAK_ENDS_MIN as f64);
    let calm = mean(20.0, begins);
    let over_calm = |from, to| mean(from, to).zip(calm).map(|(p, c)| p / c);
    let orders = run_of(runs, Variant::Reactive).map(|r| {
        let early = |e: &&sim::response::ResponseEvent| e.at_s < 60.0 * PEAK_BEGINS_MIN as f64;
        r.result.events.iter().filter(early).count() as f64
    });
    vec![
        said(
            "sets",
            "fig. 6(a)",
            "USR-1 and FIO interfere, SYS with neither (1: so)",
        )
        .printed(1.0, "")
        .within(0.0)
        .judge(sets),
        said(
            "higher-onset",
            "fig. 6(b)",
            "interference is higher as the peak begins, minutes 48 to 53 (over the calm's mean)",
        )
        .between(1.1, MOST)
        .judge(over_calm(begins, begins + 5.0)),
        said(
            "higher",
            "fig. 6(b)",
            "and stays higher within the peak, minutes 53 to 75 (over the calm's mean)",
        )
        .between(1.1, MOST)
        .judge(over_calm(begins + 5.0, ends)),
        said(
            "spike-ignored",
            "sec. 7.2",
            "nothing is done about the first spike (orders before minute 48)",
        )
        .printed(0.0, "")
        .between(0.0, 0.0)
        .outlook(Outlook::Designed)
        .judge(orders),
    ]
}

fn reactive(look: &Look<'_>) -> Vec<Claim> {
    use Variant::Reactive as R;
    let claim = |id, says| said(id, "sec. 7.2", says);
    let gib = |c: &Created| Some(c.cache.as_mib_f64() / 1024.0);
    vec![
        claim("created", "reactive: the appliance is created at minute 55")
            .printed(55.0, "min")
            .between(54.0, 56.5)
            .outlook(Outlook::Designed)
            .judge(look.created(R, |c| Some(c.ordered_min))),
        claim("whom", "it is USR-1's (0), not FIO's (1)")
            .printed(0.0, "")
            .between(0.0, 0.0)
            .judge(look.created(R, |c| Some(c.workload as f64))),
        claim("size", "a cache of 3 GB does")
            .printed(3.0, "GiB")
            .within(0.0)
            .outlook(Outlook::Calibrated)
            .judge(look.created(R, gib)),
        claim("effective", "reactive: effective at minute 65")
            .printed(65.0, "min")
            .between(63.0, 67.0)
            .judge(look.created(R, |c| c.effective_min)),
        claim(
            "usr1-3000",
            "reactive: USR-1 has roughly 3,000 IOPS from minute 65 to 75",
        )
        .printed(3000.0, "IOPS")
        .within(0.15)
        .judge(look.usr1(R, |w| w.rate.late_peak)),
        claim(
            "usr1-best",
            "reactive: the same in its best minute, while it catches up",
        )
        .printed(3000.0, "IOPS")
        .within(0.15)
        .outlook(Outlook::Calibrated)
        .judge(look.usr1(R, |w| w.rate.best_minute)),
        claim(
            "fio-kept",
            "reactive: FIO keeps its 5,000 IOPS from minute 65 on",
        )
        .printed(FIO_PROMISED, "IOPS")
        .between(0.95 * FIO_PROMISED, MOST)
        .judge(look.fio(R, |w| w.rate.late_peak)),
    ]
}

/// The size that the curves of figure 7 would have given, which are of minute 48: the peak's data is not in them yet.
fn size_at_48(setup: &Setup, runs: &[VariantRun]) -> Claim {
    let chosen = || {
        let decided = run_of(runs, Variant::Reactive)?;
        let mut streams = deciding(&decided.result.decisions)?.streams.clone();
        let drawn = &run_of(runs, Variant::CoLocated)?.result.curves;
        let at = Nanos::from_secs(60 * PEAK_BEGINS_MIN);
        for pair in drawn.iter().filter(|c| c.at == at) {
            let points = pair.points.iter().map(|p| (p.0, p.1)).collect();
            streams[pair.workload].curve = Some(Curve::new(points));
        }
        let both = [USR1, FIO].map(|w| (WorkloadId(w as u16), Temper::default()));
        let backend = backend_facts(&setup.array);
        let all = solutions(&backend, &streams, &SizingConfig::default(), &both);
        best(&all, |s| s.prediction.fails.is_none()).map(|s| s.size.as_mib_f64() / 1024.0)
    };
    said(
        "size-48",
        "fig. 7",
        "the same by the curves at minute 48, which the figure shows",
    )
    .printed(3.0, "GiB")
    .within(0.0)
    .judge(chosen())
}

fn warm_and_ahead(look: &Look<'_>) -> Vec<Claim> {
    use Variant as V;
    const SOME: f64 = 1e-9;
    let claim = |id, says| said(id, "sec. 7.2", says).unit("min");
    vec![
        claim(
            "stale-warm",
            "reactive-W: old zones make it worse (violation minutes more than reactive)",
        )
        .between(SOME, MOST)
        .judge(less(
            look.minutes(V::ReactiveWarm),
            look.minutes(V::Reactive),
        )),
        claim(
            "still-earlier",
            "reactive-W: even so the peak is done earlier than without an appliance",
        )
        .between(SOME, MOST)
        .judge(less(look.done(V::CoLocated), look.done(V::ReactiveWarm))),
        claim(
            "proactive",
            "proactive: effective earlier than reactive (violation minutes fewer)",
        )
        .between(SOME, MOST)
        .judge(less(look.minutes(V::Reactive), look.minutes(V::Proactive))),
        claim(
            "proactive-warm",
            "proactive-W: no violation in the peak (minutes, both)",
        )
        .printed(0.0, "min")
        .between(0.0, 0.0)
        .judge(look.minutes(V::ProactiveWarm)),
    ]
}

fn curves(figures: &Figures) -> Vec<Claim> {
    let simulated = |name| {
        let curve = figures.fig7.iter().rfind(|c| c.workload == name)?;
        let point = curve.points.iter().find(|p| p.0 == Bytes::gib(3))?;
        Some(point.2)
    };
    let errors = figures.fig7.iter().map(|c| c.error_max);
    vec![
        said(
            "cacheable",
            "fig. 7",
            "USR-1 is more cacheable (FIO's miss ratio at 3 GiB less USR-1's)",
        )
        .between(0.1, MOST)
        .outlook(Outlook::Calibrated)
        .judge(less(simulated("FIO"), simulated("USR-1"))),
        said(
            "curves",
            "fig. 7",
            "curves from working sets are those of an LRU cache (greatest difference)",
        )
        .between(0.0, 0.05)
        .judge(errors.reduce(f64::max)),
    ]
}
