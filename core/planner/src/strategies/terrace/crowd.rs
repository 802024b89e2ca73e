//! Total cost of a device's volumes after changes: volumes leave or come, or the demand rises.
//!
//! With few volumes, costs are computed exactly. With many, a table has the cost of the present volumes at other uses of the
//! device, computed once per device. The cost of a change is then looked up, whatever the number of volumes.

use super::forecast::Forecast;
use super::latency::{DeviceLoad, Use};

/// Largest number of volumes on a device with exact costs; volumes without weight do not count.
const EXACT_MAX: usize = 10;
/// Changes of the use of a device at which costs are tabulated, as shares of its time.
const AT: [f64; 9] = [-1.0, -0.3, -0.1, -0.03, 0.0, 0.03, 0.1, 0.3, 1.0];

/// Violation per second by pattern, and in case of surges.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Costs {
    pub patterns: Vec<f64>,
    pub surge: f64,
}

/// Volumes of a device, with their costs.
#[derive(Debug, Clone, Default)]
pub(super) struct Crowd {
    /// Volumes in rising order.
    pub volumes: Vec<usize>,
    /// Present costs.
    pub now: Costs,
    /// Use of the device, mean over the epochs.
    pub mean: Use,
    /// Tables by pattern; the last one is for surges, at the mean over the epochs. Empty if costs are exact.
    tables: Vec<Table>,
}

/// Use of a device by its volumes, and their costs at other uses.
#[derive(Debug, Clone)]
struct Table {
    /// Present use.
    sum: Use,
    /// Use for which the table was made; its entries are relative to it.
    about: Use,
    costs: [f64; AT.len()],
}

impl Table {
    /// Creates the table with the costs at each use.
    fn of(about: Use, costs: impl Fn(&Use) -> f64) -> Self {
        Self {
            sum: about,
            about,
            costs: AT.map(|more| costs(&with_more(&about, more))),
        }
    }

    /// Returns the costs if this share of the device is in use.
    fn at(&self, share: f64) -> f64 {
        at(&self.costs, share - self.about.share)
    }

    /// Adds one volume, or removes it.
    fn change(&mut self, own: &Use, times: f64, cost: impl Fn(&Use) -> f64) {
        self.sum = self.sum.plus(own, times);
        for (more, of) in AT.iter().zip(&mut self.costs) {
            *of += times * cost(&with_more(&self.about, *more));
        }
    }
}

/// Returns a sum of uses with `more` of the device's time added.
fn with_more(sum: &Use, more: f64) -> Use {
    match sum.share > 0.0 {
        true => sum.plus(sum, (more / sum.share).max(-1.0)),
        false => Use {
            share: more.max(0.0),
            ..*sum
        },
    }
}

/// Interpolates a table, and extrapolates beyond it from the last two entries.
fn at(table: &[f64; AT.len()], more: f64) -> f64 {
    between(more, |i| table[i])
}

/// Interpolates computed entries.
fn between(more: f64, entry: impl Fn(usize) -> f64) -> f64 {
    let i = AT.partition_point(|x| *x <= more).clamp(1, AT.len() - 1);
    let part = ((more - AT[i - 1]) / (AT[i] - AT[i - 1])).max(0.0);
    let (low, high) = (entry(i - 1), entry(i));
    low + part * (high - low)
}

impl Crowd {
    /// Creates the crowd of these volumes, in rising order, on a device.
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
                    let busy = DeviceLoad::of_sum(*sum);
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

    /// Updates the present costs from the tables.
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

    /// Removes and adds volumes. With tables, the costs of the remaining volumes are not recomputed.
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
                let cost = |sum: &Use| forecast.cost(v, d, p, &DeviceLoad::of_sum(*sum)).0;
                table.change(&forecast.use_at(v, d, p), times, cost);
            }
            let own = forecast.mean_use(v, d);
            let cost = |sum: &Use| forecast.surged(v, d, sum.plus(&own, -1.0));
            surges.change(&own, times, cost);
        }
        self.mean = surges.sum;
        self.sum_up();
    }

    /// Returns the costs after some volumes leave and others come, with `more` of the device's time in use.
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
            let busy = DeviceLoad::of_sum(with_more(&after, more));
            let cost = |v: &usize| forecast.cost(*v, d, p, &busy).0;
            table.at(after.share + more) - leave.iter().map(cost).sum::<f64>()
                + come.iter().map(cost).sum::<f64>()
        };
        let after = after(&surges.sum, &|v| forecast.mean_use(v, d));
        let surged =
            |v: &usize| forecast.surged(*v, d, after.plus(&forecast.mean_use(*v, d), -1.0));
        // The table contains the leaving volumes.
        let left = surges.at(after.share) - leave.iter().map(surged).sum::<f64>();
        Costs {
            patterns: patterns.iter().enumerate().map(pattern).collect(),
            surge: left.max(0.0) + come.iter().map(surged).sum::<f64>(),
        }
    }

    /// Returns the load of the device in a pattern with volume `v` in addition, if it is on another device.
    pub(super) fn busy_with(
        &self,
        forecast: &Forecast<'_>,
        d: usize,
        p: usize,
        v: usize,
    ) -> DeviceLoad {
        let comes = self.volumes.binary_search(&v).is_err().then_some(v);
        match self.tables.get(p) {
            Some(Table { sum, .. }) => {
                let own = comes.map(|v| forecast.use_at(v, d, p));
                DeviceLoad::of_sum(own.map_or(*sum, |own| sum.plus(&own, 1.0)))
            }
            None => {
                let with = self.volumes.iter().copied().chain(comes);
                DeviceLoad::of(with.map(|u| forecast.use_at(u, d, p)), 0.0)
            }
        }
    }

    /// Returns the load of the device in a pattern after some volumes leave and others come, with every demand increased by
    /// the share `more`.
    pub(super) fn busy_after(
        &self,
        forecast: &Forecast<'_>,
        (d, p): (usize, usize),
        [leave, come]: [&[usize]; 2],
        more: f64,
    ) -> DeviceLoad {
        let of = |v: &usize| forecast.use_at(*v, d, p);
        match self.tables.get(p) {
            Some(Table { sum, .. }) => {
                let less = leave.iter().fold(*sum, |sum, v| sum.plus(&of(v), -1.0));
                let after = come.iter().fold(less, |sum, v| sum.plus(&of(v), 1.0));
                DeviceLoad::of_sum(after.plus(&after, more))
            }
            None => {
                let stay = self.volumes.iter().filter(|v| !leave.contains(v));
                let more = |own: Use| own.plus(&own, more);
                DeviceLoad::of(stay.chain(come).map(|v| more(of(v))), 0.0)
            }
        }
    }

    /// Returns the additional cost of the other volumes in a pattern by the presence of volume `v`, whether it is there now
    /// or not.
    pub(super) fn more_for_others(
        &self,
        forecast: &Forecast<'_>,
        d: usize,
        p: usize,
        v: usize,
    ) -> f64 {
        let there = self.volumes.binary_search(&v).is_ok();
        let own = forecast.use_at(v, d, p);
        let cost = |u: usize, busy: &DeviceLoad| forecast.cost(u, d, p, busy).0;
        let more = match self.tables.get(p) {
            // The table contains the volume.
            Some(table) if there => {
                let about = |i: usize| DeviceLoad::of_sum(with_more(&table.about, AT[i]));
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
                let busy = DeviceLoad::of(uses.map(|u| forecast.use_at(u, d, p)), 0.0);
                let changed: f64 = others.map(|u| cost(u, &busy)).sum();
                let now = self.now.patterns[p];
                match there {
                    true => now - cost(v, &self.busy_with(forecast, d, p, v)) - changed,
                    false => changed - now,
                }
            }
        };
        // Negative only by rounding, or if the models of full and other devices differ.
        more.max(0.0)
    }

    /// Returns the cost of a new volume itself, next to the present volumes.
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
