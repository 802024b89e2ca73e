//! Best placement over many epochs with perfect knowledge (paper 0, Eq. 1–5 with all τ at once), with an upper bound.
//!
//! ```text
//!  maximize  Σ_τ Σ_v ( gain[τ][v][t(v,τ)] − cost[v][t(v,τ−1)][t(v,τ)] )  −  Σ_τ,t,k ρ[t][k] · overload[τ][t][k]
//!  subject to hard limits in every epoch; t(v,0) is the present tier of v
//! ```
//!
//! With a price on every capacity in every epoch, the volumes become independent problems. The best path of each volume
//! through the epochs is then a longest path (tiers × epochs). The prices give the bound ([`Horizon::solve`]) and a first
//! solution. Solutions are improved one volume at a time: it is removed and inserted again on the best path that the rest
//! allows.
//!
//! [`Horizon::chain`] takes the best placement of each epoch in turn. The difference to it is the value of knowing the
//! future.

#[cfg(test)]
mod tests;

use units::TierId;

use crate::assign::{
    self, Place, Problem, RESOURCES, SCORE_STEP, SLACK, Shares, overload_cost, steps,
};

/// Subgradient steps of the bound.
const ROUNDS: u32 = 600;
/// Number of steps without progress after which the step size is halved.
const PATIENCE: u32 = 10;
/// Largest number of improvement passes over all volumes.
const PASSES_MAX: usize = 8;
/// Largest number of pairs of volumes that one pass removes together.
const PAIRS_MAX: usize = 20_000;
/// Smallest gain that is not rounding, in steps of a score.
const GAIN_MIN: i64 = 10;

/// One instance. Volumes, tiers and epochs are numbered from zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Horizon {
    tiers: usize,
    epochs: usize,
    /// Usable share of a tier in every epoch.
    capacity: Vec<Shares>,
    /// Cost of using a whole capability too much; infinite for a hard limit.
    overload: Vec<Shares>,
    home: Vec<TierId>,
    /// Gains by volume, epoch and tier.
    gains: Vec<i64>,
    uses: Vec<Shares>,
    /// Costs of moves by volume, source and target.
    costs: Vec<i64>,
}

/// Tier of every volume in every epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Tiers by volume and epoch.
    pub tiers: Vec<Vec<TierId>>,
    /// Value of all paths, in steps of a score.
    pub value: i64,
}

impl Horizon {
    /// Creates an instance without volumes; `capacity` and `overload` by tier, as in [`Problem`].
    pub fn new(epochs: usize, capacity: Vec<Shares>, overload: Vec<Shares>) -> Self {
        assert_eq!(capacity.len(), overload.len(), "both by tier");
        Self {
            tiers: capacity.len(),
            epochs,
            capacity,
            overload,
            home: vec![],
            gains: vec![],
            uses: vec![],
            costs: vec![],
        }
    }

    /// Adds a volume: its gain and resource use by epoch and tier, and the cost of a move by source and target.
    ///
    /// # Panics
    /// Panics unless there is one place per epoch and tier, and one cost per pair of tiers.
    pub fn add(&mut self, home: TierId, places: &[Vec<Place>], costs: &[Vec<f64>]) {
        assert_eq!(places.len(), self.epochs, "places by epoch");
        assert_eq!(costs.len(), self.tiers, "costs by source");
        for places in places {
            assert_eq!(places.len(), self.tiers, "places by tier");
            for place in places {
                self.gains.push(assign::quantized(place.score));
                self.uses.push(place.uses);
            }
        }
        for (from, costs) in costs.iter().enumerate() {
            assert_eq!(costs.len(), self.tiers, "costs by target");
            for (to, cost) in costs.iter().enumerate() {
                let cost = if from == to { 0.0 } else { *cost };
                self.costs.push(assign::quantized(cost));
            }
        }
        self.home.push(home);
    }

    /// Raises hard limits to the resource use without moves. Call it after all volumes were added.
    pub fn admit_present(&mut self) {
        for epoch in 0..self.epochs {
            let mut used = vec![[0.0; RESOURCES]; self.tiers];
            for v in 0..self.len() {
                let tier = self.home[v].index();
                let uses = self.uses[self.at(v, epoch, tier)];
                (0..RESOURCES).for_each(|k| used[tier][k] += uses[k]);
            }
            for ((capacity, overload), used) in
                self.capacity.iter_mut().zip(&self.overload).zip(used)
            {
                for k in (0..RESOURCES).filter(|k| overload[*k].is_infinite()) {
                    capacity[k] = capacity[k].max(used[k]);
                }
            }
        }
    }

    /// Returns the number of volumes.
    pub fn len(&self) -> usize {
        self.home.len()
    }

    /// Returns true without volumes.
    pub fn is_empty(&self) -> bool {
        self.home.is_empty()
    }

    /// Returns the number of epochs.
    pub fn epochs(&self) -> usize {
        self.epochs
    }

    /// Returns the number of tiers.
    pub fn tiers(&self) -> usize {
        self.tiers
    }

    /// Returns the tier of a volume before the first epoch.
    pub fn home(&self, volume: usize) -> TierId {
        self.home[volume]
    }

    /// Returns the gain of a volume on a tier in an epoch, in steps of a score.
    pub fn gain(&self, volume: usize, epoch: usize, tier: usize) -> i64 {
        self.gains[self.at(volume, epoch, tier)]
    }

    /// Returns the resource use of a volume on a tier in an epoch.
    pub fn uses(&self, volume: usize, epoch: usize, tier: usize) -> Shares {
        self.uses[self.at(volume, epoch, tier)]
    }

    /// Returns the cost of a move, in steps of a score.
    pub fn cost(&self, volume: usize, from: usize, to: usize) -> i64 {
        self.costs[(volume * self.tiers + from) * self.tiers + to]
    }

    /// Returns the capacity of a tier and the cost of exceeding it.
    pub fn limits(&self, tier: usize) -> (Shares, Shares) {
        (self.capacity[tier], self.overload[tier])
    }

    fn at(&self, volume: usize, epoch: usize, tier: usize) -> usize {
        (volume * self.epochs + epoch) * self.tiers + tier
    }

    /// Returns paths with these tiers, by volume and epoch, and their value.
    pub fn paths(&self, tiers: Vec<Vec<TierId>>) -> Paths {
        let mut value = 0;
        let mut load = Load::empty(self);
        for (v, path) in tiers.iter().enumerate() {
            value += self.path_value(v, path);
            load.put(self, v, path, 1.0);
        }
        let value = value - steps(load.overload(self));
        Paths { tiers, value }
    }

    /// Returns true if the hard limits hold in every epoch.
    pub fn admits(&self, tiers: &[Vec<TierId>]) -> bool {
        let mut load = Load::empty(self);
        for (v, path) in tiers.iter().enumerate() {
            load.put(self, v, path, 1.0);
        }
        load.used.iter().enumerate().all(|(i, used)| {
            let t = i % self.tiers;
            let hard = |k: &usize| self.overload[t][*k].is_infinite();
            (0..RESOURCES)
                .filter(hard)
                .all(|k| used[k] <= self.capacity[t][k] + 1e3 * SLACK)
        })
    }

    /// Returns the gains less the costs of one volume's path.
    fn path_value(&self, volume: usize, path: &[TierId]) -> i64 {
        let mut from = self.home[volume];
        let mut value = 0;
        for (epoch, to) in path.iter().enumerate() {
            value += self.gain(volume, epoch, to.index());
            value -= self.cost(volume, from.index(), to.index());
            from = *to;
        }
        value
    }

    /// Returns the paths without moves.
    pub fn stay(&self) -> Paths {
        self.paths(self.home.iter().map(|h| vec![*h; self.epochs]).collect())
    }

    /// Returns the placement of each epoch in turn, each as good as [`assign::solve`] finds it for that epoch alone. Moves
    /// from the previous epoch are charged in full.
    pub fn chain(&self) -> Paths {
        self.chain_with(|problem| assign::solve(problem).expect("everything has a home").tiers)
    }

    /// Like [`Horizon::chain`], with another solver of each epoch.
    pub fn chain_with(&self, mut solve: impl FnMut(&Problem) -> Vec<TierId>) -> Paths {
        let mut now = self.home.clone();
        let mut tiers: Vec<Vec<TierId>> = vec![Vec::with_capacity(self.epochs); self.len()];
        for epoch in 0..self.epochs {
            let mut problem = Problem::new(self.capacity.clone());
            for (t, overload) in self.overload.iter().enumerate() {
                problem.price_overload(TierId::from_index(t), *overload);
            }
            for (v, now) in now.iter().enumerate() {
                let place = |t: usize| Place {
                    score: (self.gain(v, epoch, t) - self.cost(v, now.index(), t)) as f64
                        * SCORE_STEP,
                    uses: self.uses(v, epoch, t),
                };
                let places: Vec<Option<Place>> = (0..self.tiers).map(place).map(Some).collect();
                problem.add(Some(*now), &places);
            }
            problem.admit_present();
            now = solve(&problem);
            for (path, tier) in tiers.iter_mut().zip(&now) {
                path.push(*tier);
            }
        }
        self.paths(tiers)
    }

    /// Returns good paths and a bound. The paths are the best of three starts, improved volume by volume: staying, the
    /// chain, and the insertion by prices.
    pub fn solve(&self) -> (Paths, i64) {
        let mut best = self.improve(self.stay());
        let chain = self.improve(self.chain());
        if chain.value > best.value {
            best = chain;
        }
        let (bound, prices) = self.prices(best.value);
        if let Some(priced) = self.insert_by_price(&prices) {
            let priced = self.improve(priced);
            if priced.value > best.value {
                best = priced;
            }
        }
        (best, bound)
    }

    /// Returns an upper bound on the value of all paths, and the prices that give it, by epoch and tier.
    fn prices(&self, known: i64) -> (i64, Vec<Shares>) {
        let cells = self.epochs * self.tiers;
        let mut lambda = vec![[0.0f64; RESOURCES]; cells];
        let mut best = (f64::INFINITY, lambda.clone());
        let (mut step, mut since) = (1.0, 0);
        let target = known as f64 * SCORE_STEP;
        for _ in 0..ROUNDS {
            let mut load = Load::empty(self);
            let mut value = 0.0;
            for v in 0..self.len() {
                let (worth, path) = self
                    .best_path(v, |epoch, t| {
                        let (uses, price) =
                            (self.uses(v, epoch, t), lambda[epoch * self.tiers + t]);
                        let paid: f64 = (0..RESOURCES).map(|k| price[k] * uses[k]).sum();
                        Some(self.gain(v, epoch, t) as f64 * SCORE_STEP - paid)
                    })
                    .expect("every cell is allowed");
                value += worth;
                load.put(self, v, &path, 1.0);
            }
            for (i, price) in lambda.iter().enumerate() {
                let capacity = self.capacity[i % self.tiers];
                value += (0..RESOURCES).map(|k| price[k] * capacity[k]).sum::<f64>();
            }
            if value < best.0 - 1e-12 * value.abs() {
                best = (value, lambda.clone());
                since = 0;
            } else {
                since += 1;
                if since == PATIENCE {
                    (step, since) = (step * 0.5, 0);
                    lambda.clone_from(&best.1);
                    if step < 1e-5 {
                        break;
                    }
                    continue;
                }
            }
            let mut norm = 0.0;
            let mut slack = load.used;
            for (i, slack) in slack.iter_mut().enumerate() {
                let t = i % self.tiers;
                for k in 0..RESOURCES {
                    slack[k] = self.capacity[t][k] - slack[k];
                    let no_lower = slack[k] > 0.0 && lambda[i][k] <= 0.0;
                    let no_higher = slack[k] < 0.0 && lambda[i][k] >= self.overload[t][k];
                    if no_lower || no_higher {
                        slack[k] = 0.0;
                    }
                    norm += slack[k] * slack[k];
                }
            }
            if norm <= 1e-18 || value - target <= 1e-12 * value.abs().max(1e-9) {
                break;
            }
            let length = step * (value - target) / norm;
            for (i, price) in lambda.iter_mut().enumerate() {
                for k in 0..RESOURCES {
                    let most = self.overload[i % self.tiers][k];
                    price[k] = (price[k] - length * slack[i][k]).clamp(0.0, most);
                }
            }
        }
        let bound = best.0 / SCORE_STEP;
        ((bound + bound.abs() * 1e-12).ceil() as i64, best.1)
    }

    /// Returns the longest path of a volume through the epochs by these values; `None` if some epoch allows no tier.
    fn best_path(
        &self,
        volume: usize,
        cell: impl Fn(usize, usize) -> Option<f64>,
    ) -> Option<(f64, Vec<TierId>)> {
        let nowhere = f64::NEG_INFINITY;
        let mut worth = vec![nowhere; self.tiers];
        worth[self.home[volume].index()] = 0.0;
        let mut came_from = vec![0u16; self.epochs * self.tiers];
        let mut next = vec![nowhere; self.tiers];
        for epoch in 0..self.epochs {
            for to in 0..self.tiers {
                let mut best = (nowhere, 0);
                for (from, so_far) in worth.iter().enumerate() {
                    let arrived = so_far - self.cost(volume, from, to) as f64 * SCORE_STEP;
                    // The path without a move wins a tie.
                    if arrived > best.0 || (arrived == best.0 && from == to) {
                        best = (arrived, from);
                    }
                }
                next[to] = cell(epoch, to).map_or(nowhere, |gain| best.0 + gain);
                came_from[epoch * self.tiers + to] = best.1 as u16;
            }
            std::mem::swap(&mut worth, &mut next);
        }
        let (mut tier, most) = worth
            .iter()
            .enumerate()
            .fold((0, nowhere), |a, (t, w)| if *w > a.1 { (t, *w) } else { a });
        if most == nowhere {
            return None;
        }
        let mut path = vec![TierId(0); self.epochs];
        for epoch in (0..self.epochs).rev() {
            path[epoch] = TierId::from_index(tier);
            tier = usize::from(came_from[epoch * self.tiers + tier]);
        }
        Some((most, path))
    }

    /// Returns the best path of a volume in addition to this load, with prices charged on top.
    fn path_beside(
        &self,
        volume: usize,
        load: &Load,
        prices: Option<&[Shares]>,
    ) -> Option<Vec<TierId>> {
        let cell = |epoch: usize, t: usize| {
            let i = epoch * self.tiers + t;
            let (uses, overload) = (self.uses(volume, epoch, t), &self.overload[t]);
            let left: Shares = std::array::from_fn(|k| self.capacity[t][k] - load.used[i][k]);
            let after: Shares = std::array::from_fn(|k| left[k] - uses[k]);
            if (0..RESOURCES).any(|k| overload[k].is_infinite() && after[k] < -SLACK) {
                return None;
            }
            let charged = prices.map_or([0.0; RESOURCES], |p| p[i]);
            let rest: Shares = std::array::from_fn(|k| (overload[k] - charged[k]).max(0.0));
            let paid: f64 = (0..RESOURCES).map(|k| charged[k] * uses[k]).sum();
            let more = overload_cost(&rest, &after) - overload_cost(&rest, &left);
            Some(self.gain(volume, epoch, t) as f64 * SCORE_STEP - more - paid)
        };
        self.best_path(volume, cell).map(|p| p.1)
    }

    /// Inserts volumes one by one, those with the highest use of expensive resources first; `None` if one has no path.
    fn insert_by_price(&self, prices: &[Shares]) -> Option<Paths> {
        let mut order: Vec<(i64, usize)> = (0..self.len())
            .map(|v| {
                let mut paid = 0.0;
                for epoch in 0..self.epochs {
                    for t in 0..self.tiers {
                        let (uses, price) =
                            (self.uses(v, epoch, t), prices[epoch * self.tiers + t]);
                        paid += (0..RESOURCES).map(|k| price[k] * uses[k]).sum::<f64>();
                    }
                }
                (steps(paid), v)
            })
            .collect();
        order.sort_by_key(|(paid, v)| (std::cmp::Reverse(*paid), *v));
        let mut load = Load::empty(self);
        let mut tiers = vec![Vec::new(); self.len()];
        for (_, v) in order {
            let path = self.path_beside(v, &load, Some(prices))?;
            load.put(self, v, &path, 1.0);
            tiers[v] = path;
        }
        Some(self.paths(tiers))
    }

    /// Removes two volumes at a time and inserts them again one by one: finds exchanges.
    fn improve_pairs(&self, paths: &mut Paths, load: &mut Load) {
        let worth = |v: usize, path: &[TierId]| self.path_value(v, path);
        let mut overload = load.overload(self);
        let pairs = (0..self.len()).flat_map(|a| (a + 1..self.len()).map(move |b| (a, b)));
        for (a, b) in pairs.take(PAIRS_MAX) {
            let old = [paths.tiers[a].clone(), paths.tiers[b].clone()];
            let before = worth(a, &old[0]) + worth(b, &old[1]) - steps(overload);
            load.put(self, a, &old[0], -1.0);
            load.put(self, b, &old[1], -1.0);
            let mut best: Option<(i64, [Vec<TierId>; 2], f64)> = None;
            for (first, second) in [(a, b), (b, a)] {
                let Some(one) = self.path_beside(first, load, None) else {
                    continue;
                };
                load.put(self, first, &one, 1.0);
                if let Some(other) = self.path_beside(second, load, None) {
                    load.put(self, second, &other, 1.0);
                    let cost = load.overload(self);
                    load.put(self, second, &other, -1.0);
                    let value = worth(first, &one) + worth(second, &other) - steps(cost);
                    if best.as_ref().map_or(before + GAIN_MIN, |b| b.0) < value {
                        let both = if first == a {
                            [one.clone(), other]
                        } else {
                            [other, one.clone()]
                        };
                        best = Some((value, both, cost));
                    }
                }
                load.put(self, first, &one, -1.0);
            }
            let both = match best {
                Some((_, both, cost)) => {
                    overload = cost;
                    both
                }
                None => old,
            };
            load.put(self, a, &both[0], 1.0);
            load.put(self, b, &both[1], 1.0);
            [paths.tiers[a], paths.tiers[b]] = both;
        }
    }

    /// Removes each volume in turn and inserts it where it is best; then does the same with pairs.
    fn improve(&self, mut paths: Paths) -> Paths {
        let mut load = Load::empty(self);
        for (v, path) in paths.tiers.iter().enumerate() {
            load.put(self, v, path, 1.0);
        }
        for _ in 0..PASSES_MAX {
            let before = paths.value;
            for v in 0..self.len() {
                load.put(self, v, &paths.tiers[v], -1.0);
                if let Some(path) = self.path_beside(v, &load, None) {
                    paths.tiers[v] = path;
                }
                load.put(self, v, &paths.tiers[v], 1.0);
            }
            if self.paths(paths.tiers.clone()).value <= before + GAIN_MIN {
                self.improve_pairs(&mut paths, &mut load);
            }
            paths = self.paths(paths.tiers);
            if paths.value <= before + GAIN_MIN {
                break;
            }
        }
        paths
    }
}

/// Used shares, by epoch and tier.
struct Load {
    used: Vec<Shares>,
}

impl Load {
    fn empty(horizon: &Horizon) -> Self {
        Self {
            used: vec![[0.0; RESOURCES]; horizon.epochs * horizon.tiers],
        }
    }

    fn put(&mut self, horizon: &Horizon, volume: usize, path: &[TierId], sign: f64) {
        for (epoch, tier) in path.iter().enumerate() {
            let uses = horizon.uses(volume, epoch, tier.index());
            let used = &mut self.used[epoch * horizon.tiers + tier.index()];
            (0..RESOURCES).for_each(|k| used[k] += sign * uses[k]);
        }
    }

    fn overload(&self, horizon: &Horizon) -> f64 {
        let cells = self.used.iter().enumerate();
        cells
            .map(|(i, used)| {
                let (capacity, overload) = horizon.limits(i % horizon.tiers);
                let left = std::array::from_fn(|k| capacity[k] - used[k]);
                overload_cost(&overload, &left)
            })
            .sum()
    }
}
