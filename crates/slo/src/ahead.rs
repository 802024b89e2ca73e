//! Peaks that come again with a season, acted on before they begin: what each workload had is remembered slot by slot
//! ([`crate::seasonal`]), and a peak that begins within the lead is a forecast for [`Responder::foresee`].
//!
//! ```text
//!  samples ─▶ the slot that goes on ──ends──▶ season of the workload ──a peak within `lead`──▶ foresee, once for each peak
//!              zones and curve as its end shows them
//! ```
//!
//! A peak is slots whose expected rate is so many times the mean of the season. Each workload that was promised anything is looked at. What a
//! forecast is answered by is decided as ever: nothing where all promises would be kept without it.
//!
//! When not to use: for loads without a season, and for seasons that are not known yet. Nothing is stored: after a restart it learns anew.
//!
//! A peak that somebody knows of ([`KnownPeak`]) is acted on in the same way, once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::responder::Responder;
use crate::sample::{SAMPLE, Sample, WorkloadId};
use crate::seasonal::{Lookout, Recorded, Seasonal, SeasonalConfig};
use crate::site::{Forecast, Knowledge, ResponseOrder, Site, WarmForecast};

/// How peaks are looked out for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AheadConfig {
    /// How a season is cut, and how much of it is remembered.
    pub seasonal: SeasonalConfig,
    /// So long before a peak begins it is acted on: an appliance has to boot and to warm up.
    pub lead: Nanos,
    /// A slot whose expected rate is at least so many times the season's mean is part of a peak; above 1.
    pub over_mean: f64,
    /// Whether zones that were heavily accessed in the last such peak are read in advance.
    pub zones: WarmForecast,
}

impl Default for AheadConfig {
    fn default() -> Self {
        Self {
            seasonal: SeasonalConfig::default(),
            lead: Nanos::from_secs(900),
            over_mean: 1.5,
            zones: WarmForecast::Read,
        }
    }
}

impl AheadConfig {
    /// The key of what cannot be, and why, where samples are so long; none if it can.
    pub fn fault(&self, sample: Nanos) -> Option<(&'static str, String)> {
        let s = &self.seasonal;
        if s.slot < sample.max(SAMPLE) || !s.slot.0.is_multiple_of(sample.0.max(1)) {
            let why = format!(
                "{} is not some windows of {sample}, and 10 s at least",
                s.slot
            );
            return Some(("seasonal.slot", why));
        }
        if s.season < s.slot || !s.season.0.is_multiple_of(s.slot.0) {
            let why = format!("{} is not a multiple of the slot's {}", s.season, s.slot);
            return Some(("seasonal.season", why));
        }
        if !(1..=OCCURRENCES_MAX).contains(&s.occurrences) {
            let why = format!("{} are not from 1 to {OCCURRENCES_MAX}", s.occurrences);
            return Some(("seasonal.occurrences", why));
        }
        if !(1..=s.occurrences).contains(&s.occurrences_min) {
            let why = format!("{} are not from 1 to the occurrences", s.occurrences_min);
            return Some(("seasonal.occurrences_min", why));
        }
        if !(0.0..=1.0).contains(&s.quantile) {
            return Some(("seasonal.quantile", format!("{} is not 0 to 1", s.quantile)));
        }
        if self.lead == Nanos::ZERO || self.lead > s.season {
            let why = format!("{} is not above 0, up to a season", self.lead);
            return Some(("lead", why));
        }
        let over = (1.0..=1000.0).contains(&self.over_mean) && self.over_mean > 1.0;
        (!over).then(|| {
            (
                "over_mean",
                format!("{} is not above 1, up to 1000", self.over_mean),
            )
        })
    }
}

/// A peak that is known beforehand.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownPeak {
    /// Whose.
    pub workload: WorkloadId,
    /// When it begins.
    pub at: Nanos,
    /// When it is acted on.
    pub act_at: Nanos,
    /// Requests per second that it asks for at least.
    pub rate_per_s: f64,
    /// Whether its zones are read in advance.
    pub warm: WarmForecast,
    /// What an earlier one was like; if it is not known, it is more of what there is when it is acted on.
    pub recorded: Option<Recorded>,
}

/// Occurrences of a slot that are remembered at most: bounds what a workload's memory takes.
const OCCURRENCES_MAX: usize = 100;

/// Samples that say what a workload is like now, of which no earlier peak is known: five minutes.
const PRESENT_SAMPLES: usize = 30;

/// What a responder remembers of seasons.
#[derive(Debug, Clone)]
pub(crate) struct Ahead {
    config: AheadConfig,
    workloads: Vec<OfWorkload>,
}

/// The season of one workload.
#[derive(Debug, Clone)]
struct OfWorkload {
    seasonal: Seasonal,
    /// Mean of what is expected of all slots that are.
    mean_per_s: f64,
    /// Number of the slot that goes on, since the beginning, and its samples.
    slot: u64,
    samples: Vec<Sample>,
    /// Beginning of the peak that was told of last.
    told: Option<Nanos>,
}

impl Ahead {
    pub(crate) fn new(config: AheadConfig) -> Self {
        Self {
            config,
            workloads: Vec::new(),
        }
    }

    /// Takes in what is known of a workload; what cannot be remembered at once is until its slot has ended.
    pub(crate) fn note(&mut self, w: usize, sample: &Sample) {
        while self.workloads.len() <= w {
            self.workloads.push(OfWorkload {
                seasonal: Seasonal::new(self.config.seasonal),
                mean_per_s: 0.0,
                slot: 0,
                samples: Vec::new(),
                told: None,
            });
        }
        self.workloads[w].samples.push(sample.clone());
    }

    /// Another workload has this number from now on.
    pub(crate) fn forget(&mut self, w: usize) {
        if let Some(of) = self.workloads.get_mut(w) {
            of.seasonal = Seasonal::new(self.config.seasonal);
            of.samples.clear();
            (of.mean_per_s, of.told) = (0.0, None);
        }
    }

    /// A workload's next peak, where it begins within the lead and was not told of; its slot is remembered first, if it has ended.
    fn next(
        &mut self,
        now: Nanos,
        w: usize,
        site: &Site,
        known: &dyn Knowledge,
    ) -> Option<Forecast> {
        let config = &self.config;
        let of = &mut self.workloads[w];
        let workload = WorkloadId(w as u16);
        let promise = site.workloads[w].objective;
        if promise == Default::default() {
            of.samples.clear();
            return None;
        }
        of.end_slot(now, workload, site, known);
        let lookout = Lookout {
            workload,
            promised_per_s: promise.rate_min_per_s,
            lead: config.lead,
            warm: config.zones,
        };
        let least = config.over_mean * of.mean_per_s;
        let matters = |rate: f64| rate > 0.0 && rate >= least;
        let next = of.seasonal.forecast(now, config.lead, &lookout, matters)?;
        let at = Some(next.forecast.at);
        let news = std::mem::replace(&mut of.told, at) != at;
        news.then_some(next.forecast)
    }
}

impl OfWorkload {
    /// Remembers the slot that went on, if it is over by now. Of one that less than half is known of nothing is remembered.
    fn end_slot(&mut self, now: Nanos, workload: WorkloadId, site: &Site, known: &dyn Knowledge) {
        let slot_ns = self.seasonal.config().slot.0;
        let slot = now.0 / slot_ns;
        if slot == self.slot {
            return;
        }
        let began = Nanos(self.slot * slot_ns);
        let samples = std::mem::take(&mut self.samples);
        let lasting: u64 = samples.iter().map(|s| s.lasting.0).sum();
        if 2 * lasting >= slot_ns {
            let requests = samples.iter().map(|s| s.rate_per_s() * s.lasting.as_f64());
            let rate_per_s = requests.sum::<f64>() / lasting as f64;
            let (zones, curve) = (known.zones(workload), known.curve(workload));
            let recorded = Recorded::of(&samples, &site.backend, zones, curve);
            self.seasonal.remember(began, rate_per_s, recorded);
            self.mean_per_s = self.seasonal.mean_per_s();
        }
        self.slot = slot;
    }
}

impl Responder {
    /// From now on peaks that come again with a season are acted on before they begin.
    pub fn look_ahead(&mut self, config: AheadConfig) {
        self.ahead = Some(Ahead::new(config));
    }

    /// From now on this peak is known of.
    pub fn know_of(&mut self, peak: KnownPeak) {
        self.peaks.push(peak);
    }

    /// Acts on peaks that are known of, when it is time.
    pub(crate) fn act_on_known(
        &mut self,
        now: Nanos,
        known: &dyn Knowledge,
        orders: &mut Vec<ResponseOrder>,
    ) {
        let due: Vec<KnownPeak> = self.peaks.extract_if(.., |p| p.act_at <= now).collect();
        for peak in due {
            let w = peak.workload;
            if !self.is_here(w) {
                continue;
            }
            let promise = self.site.workloads[w.index()].objective;
            let lookout = Lookout {
                workload: w,
                promised_per_s: promise.rate_min_per_s,
                lead: Nanos(peak.at.0.saturating_sub(peak.act_at.0)),
                warm: peak.warm,
            };
            let recorded = peak.recorded.unwrap_or_else(|| {
                let last = self.history[w.index()].iter().rev().take(PRESENT_SAMPLES);
                let samples: Vec<Sample> = last.rev().cloned().collect();
                let (zones, curve) = (known.zones(w), known.curve(w));
                Recorded::of(&samples, &self.site.backend, zones, curve)
            });
            // Of what has no curve yet nothing can be said.
            if let Some(mut forecast) = recorded.forecast(peak.at, &lookout) {
                forecast.rate_per_s = forecast.rate_per_s.max(peak.rate_per_s);
                orders.extend(self.foresee(now, &forecast, known));
            }
        }
    }

    /// Remembers slots that have ended, and acts on peaks that are near.
    pub(crate) fn foresee_seasons(
        &mut self,
        now: Nanos,
        known: &dyn Knowledge,
        orders: &mut Vec<ResponseOrder>,
    ) {
        let Some(mut ahead) = self.ahead.take() else {
            return;
        };
        for w in 0..ahead.workloads.len() {
            if let Some(forecast) = ahead.next(now, w, &self.site, known) {
                orders.extend(self.foresee(now, &forecast, known));
            }
        }
        self.ahead = Some(ahead);
    }
}
