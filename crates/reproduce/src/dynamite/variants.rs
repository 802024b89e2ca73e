//! The lines of figure 5, and two of ours.

use serde::Serialize;
use sim::response::{
    ApplianceModel, ArrayModel, ResponseModel, ResponseResult, ZonesTold, backend_facts, respond,
};
use slo::ladder::RungKind;
use slo::seasonal::{Lookout, Recorded, Seasonal, SeasonalConfig};
use slo::{ResponderConfig, WarmForecast, WorkloadId};
use units::Nanos;

use super::scenario::{
    END_MIN, FIO, PEAK_BEGINS_MIN, PEAK_ENDS_MIN, SYS, StandIn, USR1, USR1_PROMISED, scenario,
};

/// One way of running the case study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// USR-1 by itself.
    Usr1Alone,
    /// FIO by itself.
    FioAlone,
    /// All three, and nothing is done.
    CoLocated,
    /// Nothing is known beforehand; the cache starts cold.
    Reactive,
    /// The same, and zones from before the violation are read at once.
    ReactiveWarm,
    /// The peak is known; the appliance is created at minute 20 and starts cold.
    Proactive,
    /// The same, and the peak's zones are read in advance.
    ProactiveWarm,
    /// Ours: reactive, with all rungs of the ladder and guarded warm-up.
    Ladder,
    /// Ours: created when the seasonal predictor says so, warmed at a fifth of what is spare.
    Seasonal,
}

impl Variant {
    /// Those that need nothing from another one, longest first.
    pub const FIRST: [Variant; 6] = [
        Variant::CoLocated,
        Variant::Reactive,
        Variant::ReactiveWarm,
        Variant::Ladder,
        Variant::FioAlone,
        Variant::Usr1Alone,
    ];
    /// Those that are told what the co-located run recorded.
    pub const SECOND: [Variant; 3] = [
        Variant::Proactive,
        Variant::ProactiveWarm,
        Variant::Seasonal,
    ];

    /// For people.
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
            Variant::Seasonal => "seasonal (ours)",
        }
    }

    /// Numbers in the results of the workloads that run.
    pub(crate) fn place_of(self, workload: usize) -> Option<usize> {
        match (self, workload) {
            (Variant::Usr1Alone, USR1) | (Variant::FioAlone, FIO) => Some(0),
            (Variant::Usr1Alone | Variant::FioAlone, _) => None,
            (_, USR1 | FIO | SYS) => Some(workload),
            _ => None,
        }
    }
}

/// The time that three gibibytes take at a fifth of what is spare, and a little more.
const LEAD_MIN: u64 = 15;
/// Minute of the paper's proactive creation.
const PROACTIVE_MIN: u64 = 20;
/// Window of the co-located run whose zones and curve stand for the history of peaks: well inside the peak.
const RECORDED_MIN: u64 = 65;

/// What is run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setup {
    /// Of loads and service times; the whole case study is run with each.
    pub seeds: Vec<u64>,
    /// The loads.
    pub stand_in: StandIn,
    /// The array.
    pub array: ArrayModel,
    /// Appliances.
    pub appliance: ApplianceModel,
}

/// All variants with one seed.
#[derive(Debug, Clone)]
pub struct Study {
    /// Which seed.
    pub seed: u64,
    /// One of each variant.
    pub runs: Vec<VariantRun>,
}

/// A variant and what came of it.
#[derive(Debug, Clone)]
pub struct VariantRun {
    /// Which.
    pub variant: Variant,
    /// Everything.
    pub result: ResponseResult,
}

fn minute(n: u64) -> Nanos {
    Nanos::from_secs(60 * n)
}

impl Setup {
    /// With so many seeds, from one on.
    pub fn new(first: u64, seeds: u64) -> Self {
        Self {
            seeds: (first..first + seeds).collect(),
            stand_in: StandIn::default(),
            array: ArrayModel::default(),
            appliance: ApplianceModel::default(),
        }
    }

    /// Runs one of [`Variant::FIRST`].
    pub fn run(&self, variant: Variant, seed: u64) -> VariantRun {
        let mut model = self.model(seed);
        match variant {
            Variant::Usr1Alone => model.workloads.truncate(1),
            Variant::FioAlone => {
                model.workloads.swap(0, FIO);
                model.workloads.truncate(1);
            }
            Variant::CoLocated => {
                model.curves_at = vec![minute(PEAK_BEGINS_MIN), minute(PEAK_BEGINS_MIN + 8)];
            }
            Variant::Reactive => model.responder = Some(appliance_only()),
            Variant::ReactiveWarm => {
                let mut config = appliance_only();
                config.warm.spare_share = None;
                config.warm.likeness_min = 0.0;
                model.responder = Some(config);
                model.zones_told = ZonesTold::BeforeViolation;
            }
            _ => model.responder = Some(ResponderConfig::default()),
        }
        let result = respond(&model);
        VariantRun { variant, result }
    }

    /// Runs one of [`Variant::SECOND`], with what the co-located run of the same seed recorded.
    ///
    /// # Panics
    /// When the co-located run is too short to have recorded anything of the peak.
    pub fn run_ahead(&self, variant: Variant, seed: u64, co_located: &VariantRun) -> VariantRun {
        let mut model = self.model(seed);
        let mut config = appliance_only();
        let recorded = self.recorded(co_located);
        let mut lookout = Lookout {
            workload: WorkloadId(USR1 as u16),
            promised_per_s: Some(USR1_PROMISED),
            lead: minute(LEAD_MIN),
            warm: WarmForecast::Read,
        };
        model.forecasts = match variant {
            Variant::Seasonal => {
                let seasonal = self.seasonal(co_located, &recorded);
                // After the spike, as the paper leaves spikes to others.
                let busy = |rate: f64| rate > 0.5 * USR1_PROMISED;
                let ahead = seasonal.forecast(minute(15), minute(END_MIN), &lookout, busy);
                let ahead = ahead.expect("a run of two hours has a peak");
                vec![(ahead.act_at, ahead.forecast)]
            }
            _ => {
                config.warm.spare_share = None;
                if variant == Variant::Proactive {
                    lookout.warm = WarmForecast::Leave;
                }
                let forecast = recorded.forecast(minute(PEAK_BEGINS_MIN), &lookout);
                let forecast = forecast.expect("a run of two hours has a peak");
                vec![(minute(PROACTIVE_MIN), forecast)]
            }
        };
        model.responder = Some(config);
        let result = respond(&model);
        VariantRun { variant, result }
    }

    fn model(&self, seed: u64) -> ResponseModel {
        let mut model = scenario(&self.stand_in, seed);
        model.array = self.array.clone();
        model.appliance = self.appliance;
        model
    }

    /// What is told of the peak beforehand: what the co-located run recorded of it.
    fn recorded(&self, co_located: &VariantRun) -> Recorded {
        let series = &co_located.result.series[USR1];
        let when = minute(RECORDED_MIN);
        let zones = series.zones.iter().find(|z| z.0 >= when);
        let curve = series.curves.iter().find(|c| c.0 >= when);
        let peak = &series.samples[6 * PEAK_BEGINS_MIN as usize..6 * PEAK_ENDS_MIN as usize];
        let zones = zones.expect("a run of two hours has a peak");
        let backend = backend_facts(&self.array);
        let curve = curve.and_then(|c| c.1.clone());
        Recorded::of(peak, &backend, zones.1.clone(), curve)
    }

    /// What a predictor remembers after two days like the co-located run, in slots of five minutes; of each slot of the peak what
    /// was recorded of all of it.
    fn seasonal(&self, co_located: &VariantRun, peak: &Recorded) -> Seasonal {
        const SLOT_MIN: u64 = 5;
        let mut seasonal = Seasonal::new(SeasonalConfig {
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
                    false => Recorded::default(),
                };
                seasonal.remember(minute(began), mean, recorded);
            }
        }
        seasonal
    }

    /// What is not published and was chosen, and what the world leaves out.
    pub fn assumptions(&self) -> Vec<String> {
        [
            "usr_1 of MSR Cambridge is not to be had: USR-1 is drawn in the published phases (0-7, 48-75 of 120 minutes); rates, sizes, working sets and skew are chosen so that the co-located run is near the published one. Agreement about it is a calibration.",
            "The spike is lower than the peak (its height is not published); USR-1's writes (5 %) go anywhere, its reads to one hot region per phase.",
            "FIO reads 4 KiB at random over 20 GiB that the array's memory is full of at the start, evenly at 5,000/s; what it cannot issue in time it leaves out.",
            "SYS has disks of its own (an array's root volume) and shares the controller: it is asked about, and the statistic says no.",
            "Disks: 3.4 ms for a random read (sigma 0.35) and 100 MB/s; first come first served, ten with data and one with parity; writes are acknowledged from battery-backed memory and take 1 ms of their disk later.",
            "Of the array's memory 13.2 GiB keep small reads, 0.9 GiB reads of 32 KiB and more; second chance. Without such a limit the peak would stay in memory and FIO would suffer for half an hour after it.",
            "Link: 117 MB/s of payload, shared by flow and bytes.",
            "An appliance serves at most 3,125 requests/s (0.32 ms of its processors each): near the 3,000 published, not measured.",
            "Latencies are from issue to completion: what a request waited before it could be issued is not in them.",
            "Creation 59 s, re-routing 1 s; the paper gives no times. Its 4 GB appliance is one of ours with a cache of 3 GiB and 1 GiB for itself.",
            "Violation: below 95 % of the promised rate, with requests outstanding all the time and more waiting; answered after 43 of 44 samples.",
            "Interference: first differences over the last 15 minutes, shifted around a circle, 5 % false discoveries.",
            "Curves come from reuse times of the last five to ten minutes (the paper's method is not published); a write forgets its object.",
            "Reactive-W reads, at once, the zones of ten minutes before the decision; proactive variants get what the co-located run recorded of its peak, as the paper simulates good history.",
        ]
        .map(String::from)
        .into()
    }
}

fn appliance_only() -> ResponderConfig {
    ResponderConfig {
        allowed: vec![RungKind::Appliance],
        ..ResponderConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::response::ResponseSeries;
    use slo::Sample;
    use slo::curve::Curve;

    /// Without its forecast the variant would be the co-located run under another name.
    #[test]
    #[should_panic(expected = "a run of two hours has a peak")]
    fn without_a_peak_there_is_no_seasonal_variant() {
        let when = minute(RECORDED_MIN);
        let series = ResponseSeries {
            name: "usr1".into(),
            samples: vec![Sample::default(); 6 * END_MIN as usize],
            standings: vec![],
            served: 0,
            unserved: 0,
            left_out: 0,
            caught_up: vec![],
            p99_us: vec![],
            zones: vec![(when, vec![])],
            curves: vec![(when, Some(Curve::default()))],
        };
        let result = ResponseResult {
            series: vec![series],
            events: vec![],
            decisions: vec![],
            curves: vec![],
            requests: 0,
            routed_away: vec![],
            moves: vec![],
            stale: 0,
        };
        let idle = VariantRun {
            variant: Variant::CoLocated,
            result,
        };
        Setup::new(1, 1).run_ahead(Variant::Seasonal, 1, &idle);
    }
}
