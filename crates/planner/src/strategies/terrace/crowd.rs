//! What the volumes of a device cost together when some of them leave, others come, or more is asked of it.
//!
//! Of few volumes exactly. Of many by a table of what those that are there cost at other uses of the device, computed once per device: what a
//! change costs is then looked up, whatever their number.

use super::forecast::Forecast;
use super::latency::{Busy, Use};

/// Volumes of a device up to which everything is computed exactly; those that cost nothing wherever they are do not count.
const EXACT_MAX: usize = 10;
/// Uses more or less of a device at which its volumes' cost is tabulated, shares of its time.
const AT: [f64; 9] = [-1.0, -0.3, -0.1, -0.03, 0.0, 0.03, 0.1, 0.3, 1.0];

/// What volumes miss per second, by pattern, and what they would miss if any of them surged.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Costs {
    pub patterns: Vec<f64>,
    pub surge: f64,
}

/// The volumes of a device.
#[derive(Debug, Clone, Default)]
pub(super) struct Crowd {
    /// Rising.
    pub volumes: Vec<usize>,
    /// What they cost as they are.
    pub now: Costs,
    /// What they use, mean over the epochs.
    pub mean: Use,
    /// By pattern; the mean over the epochs and surges last. Empty where it is computed exactly.
    tables: Vec<Table>,
}

/// What the volumes of a device use, and what they cost at other uses of it.
#[derive(Debug, Clone)]
struct Table {
    /// What they use.
    sum: Use,
    /// The use that the table is about: what it was when it was made.
    about: Use,
    costs: [f64; AT.len()],
}

impl Table {
    /// The costs of all of them at each use.
    fn of(about: Use, costs: impl Fn(&Use) -> f64) -> Self {
        Self {
            sum: about,
            about,
            costs: AT.map(|more| costs(&with_more(&about, more))),
        }
    }

    /// What they cost where so much of the device is in use.
    fn at(&self, share: f64) -> f64 {
        at(&self.costs, share - self.about.share)
    }

    /// With one more of them, or without it.
    fn change(&mut self, own: &Use, times: f64, cost: impl Fn(&Use) -> f64) {
        self.sum = self.sum.plus(own, times);
        for (more, of) in AT.iter().zip(&mut self.costs) {
            *of += times * cost(&with_more(&self.about, *more));
        }
    }
}

/// A sum of uses with so much more of the device's time.
fn with_more(sum: &Use, more: f64) -> Use {
    match sum.share > 0.0 {
        true => sum.plus(sum, (more / sum.share).max(-1.0)),
        false => Use {
            share: more.max(0.0),
            ..*sum
        },
    }
}

/// Between the entries of a table, and beyond them as between the last two.
fn at(table: &[f64; AT.len()], more: f64) -> f64 {
    between(more, |i| table[i])
}

/// The same of entries that are computed.
fn between(more: f64, entry: impl Fn(usize) -> f64) -> f64 {
    let i = AT.partition_point(|x| *x <= more).clamp(1, AT.len() - 1);
    let part = ((more - AT[i - 1]) / (AT[i] - AT[i - 1])).max(0.0);
    let (low, high) = (entry(i - 1), entry(i));
    low + part * (high - low)
}

impl Crowd {
    /// Of these volumes, in rising order, on a device.
    pub(super) fn of(forecast: &Forecast<'_>, d: usize, volumes: Vec<usize>) -> Self {
        let mean = forecast.mean_sum(d, &volumes);
        let counts = |v: &&usize| forecast.class(**v).weight > 0.0;
        if volumes.iter().filter(counts).count() <= EXACT_MAX {
            let now = exact(forecast, d, &volumes, 0.0);
            return Self {
                volumes,
                now,
                mean,
                tables: vec![],
            };
        }
        let patterns = 0..forecast.patterns.len();
        let mut tables: Vec<Table> = patterns
            .map(|p| {
                let cost = |sum: &Use| {
                    let busy = Busy::of_sum(*sum);
                    let of = |v: &usize| forecast.cost(*v, d, p, &busy).0;
                    volumes.iter().map(of).sum()
                };
                Table::of(forecast.sum_at(d, p, &volumes), cost)
            })
            .collect();
        let surges = |sum: &Use| {
            let of = |v: &usize| forecast.surged(*v, d, sum.plus(&forecast.mean_use(*v, d), -1.0));
            volumes.iter().map(of).sum()
        };
        tables.push(Table::of(mean, surges));
        let mut crowd = Self {
            volumes,
            now: Costs::default(),
            mean,
            tables,
        };
        crowd.sum_up();
        crowd
    }

    /// What they cost as they are, by the tables.
    fn sum_up(&mut self) {
        let mut now: Vec<f64> = self.tables.iter().map(|t| t.at(t.sum.share)).collect();
        let surge = now.pop().unwrap_or_default();
        self.now = Costs {
            patterns: now,
            surge,
        };
    }

    /// True if costs are computed exactly, of all volumes each time.
    pub(super) fn is_exact(&self) -> bool {
        self.tables.is_empty()
    }

    /// Volumes leave, others come. Of many, what those cost who stay is not computed again.
    pub(super) fn change(
        &mut self,
        forecast: &Forecast<'_>,
        d: usize,
        leave: &[usize],
        come: &[usize],
    ) {
        self.volumes.retain(|v| !leave.contains(v));
        for v in come {
            let at = self.volumes.partition_point(|u| u < v);
            self.volumes.insert(at, *v);
        }
        let Some((surges, patterns)) = self.tables.split_last_mut() else {
            *self = Self::of(forecast, d, std::mem::take(&mut self.volumes));
            return;
        };
        let each = leave.iter().map(|v| (*v, -1.0));
        for (v, times) in each.chain(come.iter().map(|v| (*v, 1.0))) {
            for (p, table) in patterns.iter_mut().enumerate() {
                let cost = |sum: &Use| forecast.cost(v, d, p, &Busy::of_sum(*sum)).0;
                table.change(&forecast.use_at(v, d, p), times, cost);
            }
            let own = forecast.mean_use(v, d);
            let cost = |sum: &Use| forecast.surged(v, d, sum.plus(&own, -1.0));
            surges.change(&own, times, cost);
        }
        self.mean = surges.sum;
        self.sum_up();
    }

    /// What they would cost without those who leave, with those who come, and with so much more to do.
    pub(super) fn changed(
        &self,
        forecast: &Forecast<'_>,
        d: usize,
        leave: &[usize],
        come: &[usize],
        more: f64,
    ) -> Costs {
        let Some((surges, patterns)) = self.tables.split_last() else {
            let stay = self.volumes.iter().filter(|v| !leave.contains(v));
            let volumes: Vec<usize> = stay.chain(come).copied().collect();
            return exact(forecast, d, &volumes, more);
        };
        let after = |sum: &Use, of: &dyn Fn(usize) -> Use| {
            let less = leave.iter().fold(*sum, |sum, v| sum.plus(&of(*v), -1.0));
            come.iter().fold(less, |sum, v| sum.plus(&of(*v), 1.0))
        };
        let pattern = |(p, table): (usize, &Table)| {
            let after = after(&table.sum, &|v| forecast.use_at(v, d, p));
            let busy = Busy::of_sum(with_more(&after, more));
            let cost = |v: &usize| forecast.cost(*v, d, p, &busy).0;
            table.at(after.share + more) - leave.iter().map(cost).sum::<f64>()
                + come.iter().map(cost).sum::<f64>()
        };
        let after = after(&surges.sum, &|v| forecast.mean_use(v, d));
        let surged =
            |v: &usize| forecast.surged(*v, d, after.plus(&forecast.mean_use(*v, d), -1.0));
        // Those who leave are in the table as if they were there.
        let left = surges.at(after.share) - leave.iter().map(surged).sum::<f64>();
        Costs {
            patterns: patterns.iter().enumerate().map(pattern).collect(),
            surge: left.max(0.0) + come.iter().map(surged).sum::<f64>(),
        }
    }

    /// How busy the device is in a pattern with one more, if it is not there anyway.
    pub(super) fn busy_with(&self, forecast: &Forecast<'_>, d: usize, p: usize, v: usize) -> Busy {
        let comes = self.volumes.binary_search(&v).is_err().then_some(v);
        match self.tables.get(p) {
            Some(Table { sum, .. }) => {
                let own = comes.map(|v| forecast.use_at(v, d, p));
                Busy::of_sum(own.map_or(*sum, |own| sum.plus(&own, 1.0)))
            }
            None => {
                let with = self.volumes.iter().copied().chain(comes);
                Busy::of(with.map(|u| forecast.use_at(u, d, p)), 0.0)
            }
        }
    }

    /// How busy the device is in a pattern when some leave and others come, and each asks for this share more than it is known to.
    pub(super) fn busy_after(
        &self,
        forecast: &Forecast<'_>,
        (d, p): (usize, usize),
        [leave, come]: [&[usize]; 2],
        more: f64,
    ) -> Busy {
        let of = |v: &usize| forecast.use_at(*v, d, p);
        match self.tables.get(p) {
            Some(Table { sum, .. }) => {
                let less = leave.iter().fold(*sum, |sum, v| sum.plus(&of(v), -1.0));
                let after = come.iter().fold(less, |sum, v| sum.plus(&of(v), 1.0));
                Busy::of_sum(after.plus(&after, more))
            }
            None => {
                let stay = self.volumes.iter().filter(|v| !leave.contains(v));
                let more = |own: Use| own.plus(&own, more);
                Busy::of(stay.chain(come).map(|v| more(of(v))), 0.0)
            }
        }
    }

    /// What the others cost more in a pattern with a volume there than without it, whether it is there now or not.
    pub(super) fn more_for_others(
        &self,
        forecast: &Forecast<'_>,
        d: usize,
        p: usize,
        v: usize,
    ) -> f64 {
        let there = self.volumes.binary_search(&v).is_ok();
        let own = forecast.use_at(v, d, p);
        let cost = |u: usize, busy: &Busy| forecast.cost(u, d, p, busy).0;
        let more = match self.tables.get(p) {
            // Who is there is in the table.
            Some(table) if there => {
                let about = |i: usize| Busy::of_sum(with_more(&table.about, AT[i]));
                let others = |share: f64| {
                    let more = share - table.about.share;
                    between(more, |i| table.costs[i] - cost(v, &about(i)))
                };
                others(table.sum.share) - others(table.sum.share - own.share)
            }
            Some(table) => table.at(table.sum.share + own.share) - table.at(table.sum.share),
            None => {
                let others = self.volumes.iter().copied().filter(|u| *u != v);
                let comes = (!there).then_some(v);
                let uses = others.clone().chain(comes);
                let busy = Busy::of(uses.map(|u| forecast.use_at(u, d, p)), 0.0);
                let changed: f64 = others.map(|u| cost(u, &busy)).sum();
                let now = self.now.patterns[p];
                match there {
                    true => now - cost(v, &self.busy_with(forecast, d, p, v)) - changed,
                    false => changed - now,
                }
            }
        };
        // Less only by rounding, or where who waits for a full device is told by another model than who does not.
        more.max(0.0)
    }

    /// What one who is not there would cost by itself beside those that are.
    pub(super) fn own(&self, forecast: &Forecast<'_>, d: usize, v: usize) -> Costs {
        let pattern = |p: usize| {
            let busy = self.busy_with(forecast, d, p, v);
            forecast.cost(v, d, p, &busy).0
        };
        Costs {
            patterns: (0..forecast.patterns.len()).map(pattern).collect(),
            surge: forecast.surged(v, d, self.mean),
        }
    }
}

fn exact(forecast: &Forecast<'_>, d: usize, volumes: &[usize], more: f64) -> Costs {
    Costs {
        patterns: forecast.device_cost(d, volumes, more),
        surge: forecast.surge_cost(d, volumes),
    }
}
