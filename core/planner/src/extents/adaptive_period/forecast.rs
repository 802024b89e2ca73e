//! Forecast of the requests of each extent: a combination of the forecasts of each candidate period and each memory of the
//! season. These forecasts are called ghosts. Their weights are learnt from their past errors.

use algo::{HeatCounters, NonNegativeFit, coarse};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::history::History;

/// Candidate periods, in slots. Periods longer than a season are not used.
const PERIODS: [usize; 5] = [1, 3, 6, 12, 24];
/// Further ghosts: the long average, the same slot of the last season, the usual load of that slot.
const LONG: usize = PERIODS.len();
const LAST_SEASON: usize = LONG + 1;
const USUAL: usize = LONG + 2;
/// Number of ghosts.
pub(super) const GHOSTS: usize = LONG + 3;

/// Largest number of extents used for learning at the end of a slot. More would cost time and teach little.
const SAMPLES_MAX: usize = 4096;
/// Half-life of the learnt data, in slots.
const MEMORY_SLOTS: f64 = 48.0;

/// Number of contexts: no recent break, a break in the last slot, a break in one of the two slots before. After a break, old
/// periods have little predictive value, so each context has its own weights.
const CONTEXTS: usize = 3;
/// Ratio of a forecast error to the usual error from which the slot is a break.
const BREAK: f64 = 2.0;

/// Weights of the ghosts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Forecast {
    /// Learnt weights by context.
    fits: [NonNegativeFit; CONTEXTS],
    /// Slots since the last break.
    since_break: u32,
    /// Usual error of a forecast.
    usual_error: f64,
    /// Weights for the next slot.
    pub(super) near: Vec<f64>,
    /// Weights for later slots: only ghosts that remain valid for a season.
    pub(super) far: Vec<f64>,
    /// Products of neighbouring excesses, one and two slots apart.
    lag_one: f64,
    lag_two: f64,
    recurrence: Recurrence,
}

/// Use of the time of the season.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Recurrence {
    /// The requests of an extent at this time of earlier seasons are a ghost like others.
    #[default]
    Used,
    /// Load is assumed not to recur.
    Ignored,
}

/// Forecasts of the ghosts for one extent: shares of all requests, in units of an even share.
pub(super) type Ghosts = [f64; GHOSTS];

impl Forecast {
    pub(super) fn new(recurrence: Recurrence, phases: usize) -> Self {
        let mut forecast = Self {
            fits: std::array::from_fn(|_| NonNegativeFit::new(GHOSTS)),
            since_break: u32::MAX,
            usual_error: 0.0,
            near: vec![],
            far: vec![],
            lag_one: 0.0,
            lag_two: 0.0,
            recurrence,
        };
        forecast.weigh(phases);
        forecast
    }

    /// Returns the share of an excess over the usual load that remains after a slot.
    pub(super) fn persistence(&self) -> f64 {
        if self.lag_one <= 0.0 {
            return 0.0;
        }
        (self.lag_two / self.lag_one).clamp(0.0, 0.98)
    }

    /// Compares the ghosts with the measured requests. Call it before the slot is added to the history.
    pub(super) fn learn(&mut self, history: &History, heat: &HeatCounters) {
        let (n, phases) = (history.len(), history.phases());
        let total: f64 = heat.unordered().map(|(_, c)| f64::from(c)).sum();
        if total == 0.0 || history.slots == 0 {
            return;
        }
        let keep = algo::Averages::keep_of(MEMORY_SLOTS);
        let context = self.context();
        self.fits[context].age(keep);
        let (mut error, mut samples) = (0.0, 0.0);
        self.lag_one *= keep;
        self.lag_two *= keep;
        let step = n.div_ceil(SAMPLES_MAX);
        let mut no = history.slots as usize % step;
        while no < n {
            let ghosts = self.ghosts(history, no);
            let came = f64::from(heat.count(no as u32)) / total * n as f64;
            let usual = ghosts[LONG];
            // The variance of counts grows with their mean.
            self.fits[context].add(&ghosts, came, 1.0 / (1.0 + usual));
            let said: f64 = ghosts.iter().zip(&self.near).map(|(g, w)| g * w).sum();
            error += (came - said) * (came - said) / (1.0 + usual);
            samples += 1.0;
            if history.slots >= 2 && phases >= 2 {
                let before = share(history.past(2).codes[no], history.past(2).total, n);
                let weight = 1.0 / (1.0 + usual) / (1.0 + usual);
                self.lag_one += weight * (came - usual) * (ghosts[0] - usual);
                self.lag_two += weight * (came - usual) * (before - usual);
            }
            no += step;
        }
        self.notice(error / samples);
        self.weigh(phases);
    }

    /// Detects a break: a slot whose forecast error is far above the usual error. Updates the usual error.
    fn notice(&mut self, error: f64) {
        let broke = error > BREAK * self.usual_error;
        let gain = match (self.usual_error == 0.0, broke) {
            (true, _) => 1.0,
            (false, false) => 0.1,
            (false, true) => 0.01,
        };
        self.since_break = if broke && self.usual_error > 0.0 {
            0
        } else {
            self.since_break.saturating_add(1)
        };
        self.usual_error += gain * (error - self.usual_error);
    }

    fn context(&self) -> usize {
        match self.since_break {
            0 => 1,
            1 | 2 => 2,
            _ => 0,
        }
    }

    fn weigh(&mut self, phases: usize) {
        let mut prior = [None; GHOSTS];
        for (i, period) in PERIODS.iter().enumerate() {
            prior[i] = (*period <= phases).then_some(0.1);
        }
        prior[LONG] = Some(0.2);
        if self.recurrence == Recurrence::Used && phases > 1 {
            prior[LAST_SEASON] = Some(0.1);
            prior[USUAL] = Some(0.2);
        }
        let fit = &self.fits[self.context()];
        self.near = fit.solve(&prior);
        for (i, period) in PERIODS.iter().enumerate() {
            if *period < phases.min(24) {
                prior[i] = None;
            }
        }
        self.far = fit.solve(&prior);
    }

    /// Returns each ghost's forecast of an extent's share in the next slot.
    pub(super) fn ghosts(&self, history: &History, no: usize) -> Ghosts {
        let (n, phases) = (history.len(), history.phases());
        let mut ghosts = [0.0; GHOSTS];
        let (mut sum, mut total, mut back) = (0.0, 0.0, 0);
        for (i, period) in PERIODS.iter().enumerate() {
            if *period > phases {
                break;
            }
            while back < *period {
                back += 1;
                let row = history.past(back);
                sum += f64::from(coarse::decode(row.codes[no]));
                total += row.total;
            }
            ghosts[i] = ratio(sum, total, n);
        }
        ghosts[LONG] = ratio(history.long.get(no as u32), history.long_total(), n);
        if self.recurrence == Recurrence::Used && phases > 1 {
            let last = history.past(phases);
            ghosts[LAST_SEASON] = share(last.codes[no], last.total, n);
            let usual = history.usual(0);
            ghosts[USUAL] = share(usual.codes[no], usual.total, n);
        }
        ghosts
    }
}

fn share(code: u16, total: f64, n: usize) -> f64 {
    ratio(f64::from(coarse::decode(code)), total, n)
}

fn ratio(part: f64, total: f64, n: usize) -> f64 {
    if total > 0.0 {
        part / total * n as f64
    } else {
        0.0
    }
}

/// Weights of the far forecast, by factor.
#[derive(Debug, Clone, Copy)]
pub(super) struct FarWeights {
    pub(super) season: f64,
    pub(super) long: f64,
    pub(super) last_season: f64,
    pub(super) usual: f64,
}

impl Forecast {
    /// Returns the weights of the far forecast.
    pub(super) fn far_weights(&self, phases: usize) -> FarWeights {
        let whole: f64 = PERIODS
            .iter()
            .zip(&self.far)
            .filter(|(p, _)| **p >= phases.min(24))
            .map(|(_, w)| *w)
            .sum();
        FarWeights {
            season: whole,
            long: self.far[LONG],
            last_season: self.far[LAST_SEASON],
            usual: self.far[USUAL],
        }
    }

    /// Returns the weights of the near forecast for the sums over the candidate periods. `out[back − 1]` is the weight of a
    /// request `back` slots ago through all periods that include it; `totals[i]` are all requests of period i.
    pub(super) fn past_weights(&self, history: &History) -> Vec<f32> {
        let phases = history.phases();
        let mut weights = vec![0.0f32; phases.min(24)];
        let (mut total, mut back) = (0.0, 0);
        for (i, period) in PERIODS.iter().enumerate().filter(|(_, p)| **p <= phases) {
            while back < *period {
                back += 1;
                total += history.past(back).total;
            }
            if total > 0.0 {
                let each = (self.near[i] / total) as f32;
                weights[..*period].iter_mut().for_each(|w| *w += each);
            }
        }
        weights
    }

    /// Returns the weights of the near forecast for the long average, the last season and the usual load.
    pub(super) fn near_rest(&self) -> (f64, f64, f64) {
        (self.near[LONG], self.near[LAST_SEASON], self.near[USUAL])
    }
}
