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
//! Slots are of the season's time: the responder's own, or that of a wall ([`Responder::wall_clock`]), whose slots are the same after a restart.
//! What is remembered can be kept elsewhere ([`Responder::take_remembered`]) and be given back ([`Responder::recall`]). Of the slot that goes on
//! nothing is.
//!
//! When not to use: for loads without a season, and for seasons that are not known yet.
//!
//! A peak that somebody knows of ([`KnownPeak`]) is acted on in the same way, once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::curve::Curve;
use crate::in_force::BeforeCopies;
use crate::responder::Responder;
use crate::sample::{SAMPLE, Sample, WorkloadId};
use crate::seasonal::{Lookout, Recorded, Seasonal, SeasonalConfig};
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

/// So long before a peak is acted on it is near: what is only looked at then has to be asked for.
const NEAR: Nanos = Nanos::from_secs(120);

/// What a responder remembers of seasons.
#[derive(Debug, Clone)]
pub(crate) struct Ahead {
    config: AheadConfig,
    workloads: Vec<OfWorkload>,
    /// The season's time less the responder's, modulo 2^64.
    shift: u64,
}

/// The season of one workload.
#[derive(Debug, Clone)]
struct OfWorkload {
    seasonal: Seasonal,
    /// Mean of what is expected of all slots that are.
    mean_per_s: f64,
    /// The slot that goes on; none before its first sample.
    going_on: Option<GoingOn>,
    /// The slot that was remembered last, until somebody has asked.
    ended: Option<u64>,
    /// Beginning of the peak that was told of last, in the season's time.
    told: Option<Nanos>,
    /// Whether a peak is to be acted on soon.
    near: bool,
}

/// A slot that goes on.
#[derive(Debug, Clone, Default)]
struct GoingOn {
    /// Its number since the season's time began.
    number: u64,
    samples: Vec<Sample>,
    /// Miss ratios as they were last known while the promise was missed: later they may not be.
    curve: Option<Curve>,
    /// What requests cost before there were second copies, where there are.
    before_copies: Option<BeforeCopies>,
}

impl Ahead {
    pub(crate) fn new(config: AheadConfig) -> Self {
        Self {
            config,
            workloads: Vec::new(),
            shift: 0,
        }
    }

    /// The season's time at one of the responder's.
    fn season_time(&self, now: Nanos) -> Nanos {
        Nanos(now.0.wrapping_add(self.shift))
    }

    fn of(&mut self, w: usize) -> &mut OfWorkload {
        while self.workloads.len() <= w {
            self.workloads
                .push(OfWorkload::new(Seasonal::new(self.config.seasonal)));
        }
        &mut self.workloads[w]
    }

    /// Takes in what is known of a workload; what cannot be remembered at once is until its slot has ended.
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
        let slot = of.going_on.get_or_insert_with(|| GoingOn {
            number,
            ..GoingOn::default()
        });
        slot.samples.push(sample.clone());
        if before_copies.is_some() {
            slot.before_copies = before_copies;
        }
    }

    /// Another workload has this number from now on.
    pub(crate) fn forget(&mut self, w: usize) {
        if let Some(of) = self.workloads.get_mut(w) {
            *of = OfWorkload::new(Seasonal::new(self.config.seasonal));
        }
    }

    /// A workload's next peak, where it begins within the lead and was not told of; its slot is remembered first, if it has ended.
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
    fn new(seasonal: Seasonal) -> Self {
        Self {
            mean_per_s: seasonal.mean_per_s(),
            seasonal,
            going_on: None,
            ended: None,
            told: None,
            near: false,
        }
    }

    /// Remembers the slot that went on, if it is over by now. Of one that less than half is known of nothing is remembered.
    fn end_slot(&mut self, at: Nanos, workload: WorkloadId, site: &Site, known: &dyn Knowledge) {
        let slot_ns = self.seasonal.config().slot.0;
        let number = at.0 / slot_ns;
        let next = GoingOn {
            number,
            ..GoingOn::default()
        };
        let is_over = |s: &mut GoingOn| s.number != number;
        let Some(GoingOn {
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
            let mut recorded = Recorded::of(&samples, &site.backend, zones, curve);
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
    /// From now on peaks that come again with a season are acted on before they begin.
    pub fn look_ahead(&mut self, config: AheadConfig) {
        self.ahead = Some(Ahead::new(config));
    }

    /// From now on peaks of seasons are not looked out for, and what was remembered of them is forgotten.
    pub fn look_no_more(&mut self) {
        self.ahead = None;
    }

    /// The season's time is that of a wall, which shows this now. A wall that is set to another time may cut the slot that goes on short, or take a
    /// part of it twice.
    pub fn wall_clock(&mut self, now: Nanos, wall: Nanos) {
        if let Some(ahead) = &mut self.ahead {
            ahead.shift = wall.0.wrapping_sub(now.0);
        }
    }

    /// Slots that were remembered since this was last asked: of which workload, and their numbers in the season.
    pub fn take_remembered(&mut self) -> Vec<(WorkloadId, u64)> {
        let workloads = self.ahead.iter_mut().flat_map(|a| &mut a.workloads);
        let ended = workloads.enumerate();
        let ended = ended.filter_map(|(w, of)| Some((WorkloadId(w as u16), of.ended.take()?)));
        ended.collect()
    }

    /// What is remembered of a workload.
    pub fn remembered(&self, workload: WorkloadId) -> Option<&Seasonal> {
        let of = self.ahead.as_ref()?.workloads.get(workload.index());
        of.map(|of| &of.seasonal)
    }

    /// What was remembered of a workload before, cut as it is now. Another season than that is not taken.
    pub fn recall(&mut self, workload: WorkloadId, seasonal: Seasonal) {
        if let Some(ahead) = &mut self.ahead {
            let of = ahead.of(workload.index());
            if of.seasonal.config() == seasonal.config() {
                *of = OfWorkload::new(seasonal);
            }
        }
    }

    /// Whether a workload's peak is to be acted on within two minutes, or was lately.
    pub fn is_near_peak(&self, workload: WorkloadId) -> bool {
        let of = self.ahead.as_ref();
        let of = of.and_then(|a| a.workloads.get(workload.index()));
        of.is_some_and(|of| of.near)
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
            // Of what has no curve yet nothing can be said: what it was like in an earlier peak is not known either.
            let forecast = recorded.forecast(peak.at, &lookout);
            if let Some(mut forecast) = forecast.filter(|f| f.curve.is_some()) {
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
            let violated = self.detectors[w].last().violates();
            if let Some(forecast) = ahead.next(now, w, violated, &self.site, known) {
                orders.extend(self.foresee(now, &forecast, known));
            }
        }
        self.ahead = Some(ahead);
    }
}
