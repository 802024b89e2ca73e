//! Early remedies for peaks that recur with a season. The load of each workload is recorded slot by slot
//! ([`crate::seasonal`]). A peak that begins within the lead time becomes a forecast for [`Responder::foresee`].
//!
//! ```text
//!  samples ─▶ the current slot ──ends──▶ season of the workload ──a peak within `lead`──▶ foresee, once for each peak
//!              zones and curve of its end
//! ```
//!
//! A peak consists of slots whose expected rate is a given multiple of the season's mean. Peaks of all workloads with an
//! objective are forecast. The remedy for a forecast is chosen as usual: none if all objectives would be met without it.
//!
//! Slots are in the season's time: the responder's own time, or wall-clock time ([`Responder::wall_clock`]), whose slots
//! remain the same after a restart. A caller can store the recorded slots ([`Responder::take_remembered`]) and restore them
//! ([`Responder::recall`]). The current slot is not stored.
//!
//! When not to use: for loads without a season, and before the season is known.
//!
//! A peak that is known in advance ([`KnownPeak`]) is treated in the same way, once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::curve::Curve;
use crate::in_force::BeforeCopies;
use crate::responder::Responder;
use crate::sample::{SAMPLE, Sample, WorkloadId};
use crate::seasonal::{Lookout, SeasonRecord, SeasonalConfig, SlotRecord};
use crate::site::{Forecast, Knowledge, ResponseOrder, Site, WarmForecast};

/// Early remedies for peaks that recur with a season.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AheadConfig {
    /// Season, its slots, and the history that forecasts use.
    pub seasonal: SeasonalConfig,
    /// Time before a peak at which remedies are applied, above 0 and at most a season: an appliance needs time to
    /// start and warm up. Default: 15 minutes.
    pub lead: Nanos,
    /// Smallest ratio of a slot's expected rate to the mean of the season for which the slot belongs to a peak,
    /// above 1 and at most 1000. Default: 1.5.
    pub over_mean: f64,
    /// Preloading of the zones that had many accesses in the last such peak. Default: read.
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
    /// Returns the first invalid key and the reason, for samples of this length.
    pub fn fault(&self, sample: Nanos) -> Option<(&'static str, String)> {
        let s = &self.seasonal;
        if s.slot < sample.max(SAMPLE) || !s.slot.0.is_multiple_of(sample.0.max(1)) {
            let why = format!(
                "{} is not a multiple of the window ({sample}) of at least 10 s",
                s.slot
            );
            return Some(("seasonal.slot", why));
        }
        if s.season < s.slot || !s.season.0.is_multiple_of(s.slot.0) {
            let why = format!("{} is not a multiple of the slot, {}", s.season, s.slot);
            return Some(("seasonal.season", why));
        }
        if !(1..=OCCURRENCES_MAX).contains(&s.occurrences) {
            let why = format!("{} is not from 1 to {OCCURRENCES_MAX}", s.occurrences);
            return Some(("seasonal.occurrences", why));
        }
        if !(1..=s.occurrences).contains(&s.occurrences_min) {
            let why = format!("{} is not from 1 to occurrences", s.occurrences_min);
            return Some(("seasonal.occurrences_min", why));
        }
        if !(0.0..=1.0).contains(&s.quantile) {
            return Some((
                "seasonal.quantile",
                format!("must be a share from 0 to 1, not {}", s.quantile),
            ));
        }
        if self.lead == Nanos::ZERO || self.lead > s.season {
            let why = format!("{} is not above 0 and at most a season", self.lead);
            return Some(("lead", why));
        }
        let over = (1.0..=1000.0).contains(&self.over_mean) && self.over_mean > 1.0;
        (!over).then(|| {
            (
                "over_mean",
                format!("{} is not above 1 and at most 1000", self.over_mean),
            )
        })
    }
}

/// Peak that is known in advance.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownPeak {
    /// Workload with the peak.
    pub workload: WorkloadId,
    /// Start of the peak.
    pub at: Nanos,
    /// Time at which the remedy is ordered.
    pub act_at: Nanos,
    /// Expected demand, requests per second; the forecast may be higher.
    pub rate_per_s: f64,
    /// Preloading of its zones.
    pub warm: WarmForecast,
    /// Record of an earlier peak of this kind. Without one, the workload's character at `act_at` is used.
    pub recorded: Option<SlotRecord>,
}

/// Largest number of remembered occurrences of a slot: bounds the memory per workload.
const OCCURRENCES_MAX: usize = 100;

/// Number of latest samples that replace the record of an earlier peak: five minutes.
const PRESENT_SAMPLES: usize = 30;

/// Time before `act_at` in which a peak counts as near: the caller then collects the data that a decision needs.
const NEAR: Nanos = Nanos::from_secs(120);

/// Recorded seasons of all workloads.
#[derive(Debug, Clone)]
pub(crate) struct WorkloadSeasons {
    config: AheadConfig,
    workloads: Vec<OfWorkload>,
    /// Difference of the season's time and the responder's time, modulo 2^64.
    shift: u64,
}

/// Season of one workload.
#[derive(Debug, Clone)]
struct OfWorkload {
    seasonal: SeasonRecord,
    /// Mean of the expected rates of all known slots.
    mean_per_s: f64,
    /// Current slot; `None` before its first sample.
    going_on: Option<CurrentSlot>,
    /// Last recorded slot, until [`Responder::take_remembered`] returns it.
    ended: Option<u64>,
    /// Start of the last forecast peak, in the season's time.
    told: Option<Nanos>,
    /// True if a peak must be acted on soon.
    near: bool,
}

/// Current slot with its samples.
#[derive(Debug, Clone, Default)]
struct CurrentSlot {
    /// Number of the slot, counted from the start of the season's time.
    number: u64,
    samples: Vec<Sample>,
    /// Last known curve during a violation; at the end of the slot it may be unknown.
    curve: Option<Curve>,
    /// Costs of requests without the present mirror, if there is one.
    before_copies: Option<BeforeCopies>,
}

impl WorkloadSeasons {
    pub(crate) fn new(config: AheadConfig) -> Self {
        Self {
            config,
            workloads: Vec::new(),
            shift: 0,
        }
    }

    /// Converts the responder's time to the season's time.
    fn season_time(&self, now: Nanos) -> Nanos {
        Nanos(now.0.wrapping_add(self.shift))
    }

    fn of(&mut self, w: usize) -> &mut OfWorkload {
        while self.workloads.len() <= w {
            self.workloads
                .push(OfWorkload::new(SeasonRecord::new(self.config.seasonal)));
        }
        &mut self.workloads[w]
    }

    /// Adds a sample to the current slot of a workload.
    pub(crate) fn note(
        &mut self,
        now: Nanos,
        w: usize,
        sample: &Sample,
        before_copies: Option<BeforeCopies>,
    ) {
        let began = self.season_time(now).saturating_sub(sample.lasting);
        let number = began.0 / self.config.seasonal.slot.0;
        let of = self.of(w);
        let slot = of.going_on.get_or_insert_with(|| CurrentSlot {
            number,
            ..CurrentSlot::default()
        });
        slot.samples.push(sample.clone());
        if before_copies.is_some() {
            slot.before_copies = before_copies;
        }
    }

    /// Clears the season of a number, which another workload gets.
    pub(crate) fn forget(&mut self, w: usize) {
        if let Some(of) = self.workloads.get_mut(w) {
            *of = OfWorkload::new(SeasonRecord::new(self.config.seasonal));
        }
    }

    /// Returns a workload's next peak if it begins within the lead and was not returned before. First it records the current
    /// slot if this has ended.
    fn next(
        &mut self,
        now: Nanos,
        w: usize,
        violated: bool,
        site: &Site,
        known: &dyn Knowledge,
    ) -> Option<Forecast> {
        let at = self.season_time(now);
        let config = &self.config;
        let of = &mut self.workloads[w];
        let workload = WorkloadId(w as u16);
        let promise = site.workloads[w].objective;
        if promise == Default::default() {
            (of.going_on, of.near) = (None, false);
            return None;
        }
        if let Some(slot) = of.going_on.as_mut().filter(|_| violated) {
            slot.curve = known.curve(workload).or(slot.curve.take());
        }
        of.end_slot(at, workload, site, known);
        let lookout = Lookout {
            workload,
            promised_per_s: promise.rate_min_per_s,
            lead: config.lead,
            warm: config.zones,
        };
        let least = config.over_mean * of.mean_per_s;
        let matters = |rate: f64| rate > 0.0 && rate >= least;
        let soon = Nanos(config.lead.0.saturating_add(NEAR.0));
        of.near = of.seasonal.expect(at, soon, matters).is_some();
        let mut next = of
            .seasonal
            .forecast(at, config.lead, &lookout, matters)?
            .forecast;
        let news = of.told.replace(next.at) != Some(next.at);
        for at in [&mut next.at, &mut next.by, &mut next.until] {
            *at = Nanos(at.0.wrapping_sub(self.shift));
        }
        news.then_some(next)
    }
}

impl OfWorkload {
    fn new(seasonal: SeasonRecord) -> Self {
        Self {
            mean_per_s: seasonal.mean_per_s(),
            seasonal,
            going_on: None,
            ended: None,
            told: None,
            near: false,
        }
    }

    /// Records the current slot if it has ended. A slot with samples for less than half of its length is dropped.
    fn end_slot(&mut self, at: Nanos, workload: WorkloadId, site: &Site, known: &dyn Knowledge) {
        let slot_ns = self.seasonal.config().slot.0;
        let number = at.0 / slot_ns;
        let next = CurrentSlot {
            number,
            ..CurrentSlot::default()
        };
        let is_over = |s: &mut CurrentSlot| s.number != number;
        let Some(CurrentSlot {
            number,
            samples,
            curve,
            before_copies,
        }) = self.going_on.take_if(is_over)
        else {
            return;
        };
        self.going_on = Some(next);
        let began = Nanos(number * slot_ns);
        let lasting: u64 = samples.iter().map(|s| s.lasting.0).sum();
        if 2 * lasting >= slot_ns {
            let requests = samples.iter().map(|s| s.rate_per_s() * s.lasting.as_f64());
            let rate_per_s = requests.sum::<f64>() / lasting as f64;
            let curve = known.curve(workload).or(curve);
            let zones = known.zones(workload);
            let mut recorded = SlotRecord::of(&samples, &site.backend, zones, curve);
            if let Some((before, habit)) = before_copies.as_ref().zip(recorded.habit.as_mut()) {
                before.put_back(habit);
            }
            self.seasonal.remember(began, rate_per_s, recorded);
            self.mean_per_s = self.seasonal.mean_per_s();
            self.ended = Some(self.seasonal.number(began));
        }
    }
}

impl Responder {
    /// Enables forecasts of peaks that recur with a season.
    pub fn look_ahead(&mut self, config: AheadConfig) {
        self.ahead = Some(WorkloadSeasons::new(config));
    }

    /// Disables forecasts from seasons and discards all recorded seasons.
    pub fn look_no_more(&mut self) {
        self.ahead = None;
    }

    /// Sets the season's time to a wall clock that shows `wall` now. A clock that is changed may cut the current slot short
    /// or repeat part of it.
    pub fn wall_clock(&mut self, now: Nanos, wall: Nanos) {
        if let Some(ahead) = &mut self.ahead {
            ahead.shift = wall.0.wrapping_sub(now.0);
        }
    }

    /// Returns the slots recorded since the last call, as workload and number of the slot in the season.
    pub fn take_remembered(&mut self) -> Vec<(WorkloadId, u64)> {
        let workloads = self.ahead.iter_mut().flat_map(|a| &mut a.workloads);
        let ended = workloads.enumerate();
        let ended = ended.filter_map(|(w, of)| Some((WorkloadId(w as u16), of.ended.take()?)));
        ended.collect()
    }

    /// Returns the recorded season of a workload.
    pub fn remembered(&self, workload: WorkloadId) -> Option<&SeasonRecord> {
        let of = self.ahead.as_ref()?.workloads.get(workload.index());
        of.map(|of| &of.seasonal)
    }

    /// Restores a recorded season of a workload. It is ignored if its configuration differs from the present one.
    pub fn recall(&mut self, workload: WorkloadId, seasonal: SeasonRecord) {
        if let Some(ahead) = &mut self.ahead {
            let of = ahead.of(workload.index());
            if of.seasonal.config() == seasonal.config() {
                *of = OfWorkload::new(seasonal);
            }
        }
    }

    /// Returns true from two minutes before a seasonal peak of the workload is acted on until the peak starts.
    pub fn is_near_peak(&self, workload: WorkloadId) -> bool {
        let of = self.ahead.as_ref();
        let of = of.and_then(|a| a.workloads.get(workload.index()));
        of.is_some_and(|of| of.near)
    }

    /// Adds a peak that is known in advance.
    pub fn know_of(&mut self, peak: KnownPeak) {
        self.peaks.push(peak);
    }

    /// Acts on the known peaks whose time has come.
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
                SlotRecord::of(&samples, &self.site.backend, zones, curve)
            });
            // Without a curve no prediction is possible, as the record of an earlier peak is missing too.
            let forecast = recorded.forecast(peak.at, &lookout);
            if let Some(mut forecast) = forecast.filter(|f| f.curve.is_some()) {
                forecast.rate_per_s = forecast.rate_per_s.max(peak.rate_per_s);
                orders.extend(self.foresee(now, &forecast, known));
            }
        }
    }

    /// Records slots that have ended, and acts on peaks within the lead.
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
            let violated = self.detectors[w].last().violates();
            if let Some(forecast) = ahead.next(now, w, violated, &self.site, known) {
                orders.extend(self.foresee(now, &forecast, known));
            }
        }
        self.ahead = Some(ahead);
    }
}
