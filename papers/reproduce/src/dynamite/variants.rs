//! Variants of the case study: the lines of figure 5, and additional ones of this project.

use serde::{Deserialize, Serialize};
use slo::seasonal::{Lookout, SeasonRecord, SeasonalConfig, SlotRecord};
use slo::{WarmForecast, WorkloadId};
use units::Nanos;

use super::array::ArrayModel;
use super::case::{Case, peak_table};
use super::readings::FillRate;
use super::result::CaseResult;
use super::scenario::{
    END_MIN, FIO, PEAK_BEGINS_MIN, PEAK_ENDS_MIN, SYS, StandIn, USR1, USR1_PROMISED, scenario,
};

/// Variant of the case study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// USR-1 by itself.
    Usr1Alone,
    /// FIO by itself.
    FioAlone,
    /// All three workloads, without remedies.
    CoLocated,
    /// Without advance knowledge; the cache starts cold.
    Reactive,
    /// Reactive; zones from before the violation are read at once.
    ReactiveWarm,
    /// The peak is known; the appliance is created at minute 20 and starts cold.
    Proactive,
    /// Proactive; the peak's zones are read in advance.
    ProactiveWarm,
    /// Additional: reactive, with all remedies and guarded warm-up.
    Ladder,
    /// Additional: reactive, with an appliance that compresses data to half the size. The paper mentions this but does
    /// not build it.
    Compressing,
    /// Additional: created on a forecast of the seasonal predictor, warmed at a fifth of the spare rate.
    Seasonal,
}

impl Variant {
    /// All variants, longest first.
    pub const ALL: [Variant; 10] = [
        Variant::CoLocated,
        Variant::Reactive,
        Variant::ReactiveWarm,
        Variant::Ladder,
        Variant::Compressing,
        Variant::FioAlone,
        Variant::Usr1Alone,
        Variant::Proactive,
        Variant::ProactiveWarm,
        Variant::Seasonal,
    ];
    /// Variants of a quick run.
    const QUICK: [Variant; 4] = [
        Variant::CoLocated,
        Variant::Reactive,
        Variant::ReactiveWarm,
        Variant::Usr1Alone,
    ];

    /// Returns true if the variant receives the recording of the co-located run with the same seed.
    pub fn is_ahead(self) -> bool {
        matches!(
            self,
            Variant::Proactive | Variant::ProactiveWarm | Variant::Seasonal
        )
    }

    /// Returns true if the variant may have an appliance, so that the fill rate matters.
    fn has_appliance(self) -> bool {
        !matches!(
            self,
            Variant::CoLocated | Variant::FioAlone | Variant::Usr1Alone
        )
    }

    /// Returns the display name.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Usr1Alone => "USR-1 alone",
            Variant::FioAlone => "FIO alone",
            Variant::CoLocated => "co-located",
            Variant::Reactive => "reactive",
            Variant::ReactiveWarm => "reactive-W",
            Variant::Proactive => "proactive",
            Variant::ProactiveWarm => "proactive-W",
            Variant::Ladder => "ladder (ours)",
            Variant::Compressing => "compressing (ours)",
            Variant::Seasonal => "seasonal (ours)",
        }
    }

    /// Returns the index of a workload in the results.
    pub(crate) fn place_of(self, workload: usize) -> Option<usize> {
        match (self, workload) {
            (Variant::Usr1Alone, USR1) | (Variant::FioAlone, FIO) => Some(0),
            (Variant::Usr1Alone | Variant::FioAlone, _) => None,
            (_, USR1 | FIO | SYS) => Some(workload),
            _ => None,
        }
    }
}

/// Time to read three gibibytes at a fifth of the spare rate, plus a margin.
const LEAD_MIN: u64 = 15;
/// Minute of the paper's proactive creation.
const PROACTIVE_MIN: u64 = 20;
/// Window of the co-located run whose zones and curve represent the history of peaks: well inside the peak.
const RECORDED_MIN: u64 = 65;

/// Setup of the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setup {
    /// Seeds of loads and service times; the whole case study is run with each.
    pub seeds: Vec<u64>,
    /// Loads.
    pub stand_in: StandIn,
    /// Array.
    pub array: ArrayModel,
    /// Variants to run.
    pub variants: Vec<Variant>,
    /// End of a run in minutes.
    pub minutes: u64,
}

/// Identity of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOf {
    /// Variant.
    pub variant: Variant,
    /// Fill rate of its appliance; [`FillRate::Fast`] without one.
    pub filling: FillRate,
    /// Seed of loads and service times.
    pub seed: u64,
}

/// Run with its result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VariantRun {
    /// Variant.
    pub variant: Variant,
    /// Fill rate of its appliance.
    pub filling: FillRate,
    /// Seed of loads and service times.
    pub seed: u64,
    /// Result.
    pub result: CaseResult,
}

/// All variants with one seed, in one reading.
#[derive(Debug, Clone)]
pub struct Study<'a> {
    /// Fill rate of caches.
    pub filling: FillRate,
    /// Seed.
    pub seed: u64,
    /// One run of each variant.
    pub runs: Vec<&'a VariantRun>,
}

/// Last minute of a quick run: the peak's requests are done a few minutes earlier.
const QUICK_END_MIN: u64 = 85;
/// Assumed compression: half the size, at a gigabyte per second and processor, like fast compressors.
const REDUCING: (f64, Nanos) = (2.0, Nanos(4096));

/// Remedy of the paper.
const APPLIANCE: &str = "appliance";
/// All remedies that are possible without flash and with one kind of disk.
pub(super) const ALL_REMEDIES: [&str; 3] = ["throttle", "memory-share", APPLIANCE];
/// Warm-up that waits only for its own reads.
const AT_ONCE: &str = "rate_min_per_s = 1e6";

fn of(run: &RunOf, result: CaseResult) -> VariantRun {
    VariantRun {
        variant: run.variant,
        filling: run.filling,
        seed: run.seed,
        result,
    }
}

fn minute(n: u64) -> Nanos {
    Nanos::from_secs(60 * n)
}

impl Setup {
    /// Creates a setup with `seeds` seeds from `first` on. A quick one has fewer variants and ends after the peak.
    pub fn new(first: u64, seeds: u64, quick: bool) -> Self {
        Self {
            seeds: (first..first + seeds).collect(),
            stand_in: StandIn::default(),
            array: ArrayModel::default(),
            variants: match quick {
                true => Variant::QUICK.to_vec(),
                false => Variant::ALL.to_vec(),
            },
            minutes: if quick { QUICK_END_MIN } else { END_MIN },
        }
    }

    /// Returns all runs: those that receive a recording, or the others.
    pub fn runs(&self, ahead: bool) -> Vec<RunOf> {
        let mut all = Vec::new();
        for seed in &self.seeds {
            for variant in self.variants.iter().filter(|v| v.is_ahead() == ahead) {
                let fillings = FillRate::ALL.into_iter();
                let needed = fillings.filter(|f| variant.has_appliance() || *f == FillRate::Fast);
                all.extend(needed.map(|filling| RunOf {
                    variant: *variant,
                    filling,
                    seed: *seed,
                }));
            }
        }
        all
    }

    /// Returns all values that determine a run's result.
    pub fn identity(&self, run: &RunOf) -> impl Serialize + use<> {
        let fill_max = run.filling.fill_max();
        let array = self.array.clone();
        (
            "dynamite as a scenario/2",
            *run,
            fill_max,
            self.stand_in,
            array,
            self.minutes,
        )
    }

    /// Groups runs by reading and seed.
    pub fn studies<'a>(&self, runs: &'a [VariantRun]) -> Vec<Study<'a>> {
        let of = |filling: FillRate, seed: u64| {
            let belongs = |r: &&VariantRun| {
                r.seed == seed && (r.filling == filling || !r.variant.has_appliance())
            };
            Study {
                filling,
                seed,
                runs: runs.iter().filter(belongs).collect(),
            }
        };
        let fillings = FillRate::ALL.into_iter();
        let all = fillings.flat_map(|f| self.seeds.iter().map(move |s| of(f, *s)));
        all.filter(|s| !s.runs.is_empty()).collect()
    }

    /// Runs a variant without a recording.
    pub fn run(&self, run: &RunOf) -> VariantRun {
        let mut case = self.case(run);
        let answering = &mut case.answering;
        match run.variant {
            Variant::Usr1Alone | Variant::FioAlone => {}
            Variant::CoLocated => {
                case.curves_at = vec![minute(PEAK_BEGINS_MIN), minute(PEAK_BEGINS_MIN + 8)];
            }
            Variant::Reactive => answering.remedies = vec![APPLIANCE],
            Variant::ReactiveWarm => {
                answering.remedies = vec![APPLIANCE];
                answering.warm = vec![
                    "zones = \"before-violation\"",
                    "likeness_min = 0.0",
                    AT_ONCE,
                ];
            }
            Variant::Compressing => {
                answering.remedies = vec![APPLIANCE];
                answering.reduction = Some(REDUCING);
            }
            _ => answering.remedies = ALL_REMEDIES.to_vec(),
        }
        of(run, case.run())
    }

    /// Runs a variant with the recording of the co-located run with the same seed.
    ///
    /// # Panics
    /// If the co-located run is too short to contain the peak.
    pub fn run_ahead(&self, run: &RunOf, co_located: &VariantRun) -> VariantRun {
        let mut case = self.case(run);
        let variant = run.variant;
        let recorded = self.recorded(co_located);
        let mut lookout = Lookout {
            workload: WorkloadId(USR1 as u16),
            promised_per_s: Some(USR1_PROMISED),
            lead: minute(LEAD_MIN),
            warm: WarmForecast::Read,
        };
        let (act_at, forecast) = match variant {
            Variant::Seasonal => {
                let seasonal = self.seasonal(co_located, &recorded);
                // After the spike, because the paper leaves spikes to other remedies.
                let busy = |rate: f64| rate > 0.5 * USR1_PROMISED;
                let ahead = seasonal.forecast(minute(15), minute(END_MIN), &lookout, busy);
                let ahead = ahead.expect("a run of two hours has a peak");
                (ahead.act_at, ahead.forecast)
            }
            _ => {
                case.answering.warm = vec![AT_ONCE];
                if variant == Variant::Proactive {
                    lookout.warm = WarmForecast::Leave;
                }
                let forecast = recorded.forecast(minute(PEAK_BEGINS_MIN), &lookout);
                let forecast = forecast.expect("a run of two hours has a peak");
                (minute(PROACTIVE_MIN), forecast)
            }
        };
        let backend = &co_located.result.backend;
        case.answering.remedies = vec![APPLIANCE];
        case.answering.peaks = peak_table("USR-1", &forecast, act_at, backend);
        of(run, case.run())
    }

    fn case(&self, run: &RunOf) -> Case {
        let wanted: &[usize] = match run.variant {
            Variant::Usr1Alone => &[USR1],
            Variant::FioAlone => &[FIO],
            _ => &[USR1, FIO, SYS],
        };
        let of = (self.minutes, run.seed);
        let mut case = scenario(&self.stand_in, &self.array, wanted, of);
        case.answering.fill_max = run.filling.fill_max();
        case
    }

    /// Returns the recording of the peak in the co-located run.
    fn recorded(&self, co_located: &VariantRun) -> SlotRecord {
        let series = &co_located.result.series[USR1];
        let when = minute(RECORDED_MIN);
        let zones = series.zones.iter().find(|z| z.0 >= when);
        let curve = series.curves.iter().find(|c| c.0 >= when);
        let peak = &series.samples[6 * PEAK_BEGINS_MIN as usize..6 * PEAK_ENDS_MIN as usize];
        let zones = zones.expect("a run of two hours has a peak");
        let curve = curve.and_then(|c| c.1.clone());
        SlotRecord::of(peak, &co_located.result.backend, zones.1.clone(), curve)
    }

    /// Returns the state of a predictor after two days like the co-located run, in slots of five minutes. Each slot of
    /// the peak has the recording of the whole peak.
    fn seasonal(&self, co_located: &VariantRun, peak: &SlotRecord) -> SeasonRecord {
        const SLOT_MIN: u64 = 5;
        let mut seasonal = SeasonRecord::new(SeasonalConfig {
            season: minute(END_MIN),
            slot: minute(SLOT_MIN),
            ..SeasonalConfig::default()
        });
        let samples = &co_located.result.series[USR1].samples;
        for _ in 0..2 {
            for (began, samples) in (0..).step_by(SLOT_MIN as usize).zip(samples.chunks(30)) {
                let rates = samples.iter().map(|s| s.rate_per_s());
                let mean = rates.sum::<f64>() / samples.len() as f64;
                let in_peak = began + SLOT_MIN > PEAK_BEGINS_MIN && began < PEAK_ENDS_MIN;
                let recorded = match in_peak {
                    true => peak.clone(),
                    false => SlotRecord::default(),
                };
                seasonal.remember(minute(began), mean, recorded);
            }
        }
        seasonal
    }

    /// Returns the assumptions for details that are not published, and the limits of the model.
    pub fn assumptions(&self) -> Vec<String> {
        [
            "usr_1 of MSR Cambridge is not available: USR-1 is generated in the published phases (0-7, 48-75 of 120 minutes). Rates, sizes, working sets and skew were chosen to bring the co-located run near the published one, so agreement about it is a calibration.",
            "The spike is lower than the peak (its height is not published). USR-1's writes (5 %) are uniform; its reads go to one hot region per phase.",
            "FIO reads 4 KiB at random over 20 GiB at an even 5,000/s; at the start the array's memory is full of its data. FIO drops requests that it cannot issue in time.",
            "SYS has its own disk (an array's root volume) and shares the link, of which it uses half a percent. The statistic decides whether it interferes.",
            "Disks: 3.4 ms for a random read (± 62 %) and 100 MB/s; first come, first served; ten data disks and one parity disk. Writes are acknowledged from battery-backed memory and use 1 ms of their disk later.",
            "The array's memory has LRU shares of 13.2 GiB for FIO and 0.9 GiB for USR-1. Without these limits the peak would stay in memory and slow FIO down for half an hour after it.",
            "Link: 117 MB/s of payload, shared fairly between flows by bytes.",
            "An appliance serves at most 3,125 requests/s (0.32 ms of its processors each): near the published 3,000, not measured.",
            "Latencies are measured from issue to completion, without the time in the queue before the issue.",
            "Creation 59 s, re-routing 1 s; the paper gives no times. Its 4 GB appliance corresponds to one of ours with a cache of 3 GiB and 1 GiB for other purposes.",
            "Violation: below 95 % of the guaranteed rate, with requests outstanding all the time and more queued; a remedy follows after 43 of 44 samples.",
            "Interference: first differences over the last 15 minutes, shifted around a circle, 5 % false discoveries.",
            "Curves are computed from reuse times of the last five to ten minutes (the paper's method is not published); a write invalidates its object.",
            "Slow fill: an appliance keeps at most 3 GiB in 600 s of its reads, demand and warm-up together; further reads are served without being cached. The rate was chosen for the published ten minutes, so the resulting minute of effect is a calibration.",
            "Compressing: data shrinks to half its size at a cost of 4 us of the appliance's processors for each 4 KiB page read through it; one ratio for all data.",
            "Reactive-W immediately reads the zones of the ten minutes before the decision. Proactive variants use the peak that the co-located run recorded, as the paper simulates good history.",
        ]
        .map(String::from)
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamite::result::CaseSeries;
    use slo::Sample;
    use slo::curve::Curve;
    use slo::load::Backend;

    /// Without its forecast the variant would be the co-located run under another name.
    #[test]
    #[should_panic(expected = "a run of two hours has a peak")]
    fn seasonal_variant_requires_a_peak() {
        let when = minute(RECORDED_MIN);
        let series = CaseSeries {
            name: "usr1".into(),
            samples: vec![Sample::default(); 6 * END_MIN as usize],
            standings: vec![],
            unserved: 0,
            left_out: 0,
            caught_up: None,
            p99_us: None,
            zones: vec![(when, vec![])],
            curves: vec![(when, Some(Curve::default()))],
        };
        let result = CaseResult {
            series: vec![series],
            events: vec![],
            decisions: vec![],
            appliances: vec![],
            curves: vec![],
            backend: Backend {
                resources: vec![],
                memory: vec![],
                use_max: 0.8,
            },
            requests: 0,
        };
        let idle = VariantRun {
            variant: Variant::CoLocated,
            filling: FillRate::Fast,
            seed: 1,
            result,
        };
        let run = RunOf {
            variant: Variant::Seasonal,
            filling: FillRate::Fast,
            seed: 1,
        };
        Setup::new(1, 1, false).run_ahead(&run, &idle);
    }
}
