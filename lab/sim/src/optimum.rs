//! Distance of decisions from the best possible ones: loads of volumes on every tier, the best paths through all
//! epochs, and the causes of the difference between the best paths and a strategy's decisions.
//!
//! ```text
//!  each volume alone on its own device, for each tier (crate::solo_loads) ──▶ true loads by volume, tier, epoch
//!      ──▶ Horizon: bound ≥ best ≥ chain of per-epoch optima ≥ …        with the objective of AutoTiering (Eq. 6, 7)
//!  decisions of a strategy, with the same objective and the true loads ──▶ its value
//!  predictions of a strategy ──▶ best paths with them ──▶ their value with the true loads
//! ```
//! There are three gaps, each relative to the best of the same problem. *Assignment*: a decision's placement compared
//! with the bound, with the strategy's own scores. *Horizon*: the optimum of each epoch in turn, compared with a look
//! ahead. *Prediction*: the best result with the strategy's predictions, compared with the best result with true loads.
//! best that can be done with the strategy's predictions, instead of the truth.
//! The value is not the best mean latency or IOPS of a run. It is the value of the named objective. Moves take no time
//! and cost the amount of Eq. 7, and loads are those of volumes without interference.

use config::scenario::{OperatorConfig, ResponseConfig};
use model::{Flow, MeasuredLoad, Report};
use planner::assign::{Place, RESOURCES, Shares};
use planner::horizon::Horizon;
use planner::{ScoreWeights, strategies::AutoTieringConfig};
use serde::{Deserialize, Serialize};
use units::{Nanos, TierId};

use crate::result::RunResult;
use crate::{Model, ScenarioError, ScenarioFile};

/// Description of the objective.
pub const OBJECTIVE: &str = "Eq. 6 match of true loads, summed over volumes and epochs, minus the Eq. 7 cost of moves \
     and the excess over a tier's share";

/// Loads by volume, tier, epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Loads(Vec<Vec<Vec<MeasuredLoad>>>);

/// Distance of all strategies from the best possible.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Optimality {
    /// Description of the maximized objective.
    pub objective: String,
    /// Number of epochs between decisions.
    pub epochs: usize,
    /// Value without moves.
    pub stay: f64,
    /// Value of the optimum of each epoch in turn.
    pub chain: f64,
    /// Value of the best paths that were found.
    pub best: f64,
    /// Upper bound of the value of any paths.
    pub bound: f64,
    /// Gain from a look ahead: (best − chain) / (best − stay); `None` if there is nothing to gain.
    pub horizon_gap: Option<f64>,
    /// Possible distance of `best` from the optimum: (bound − best) / (bound − stay).
    pub bound_gap: Option<f64>,
    /// Results by strategy.
    pub strategies: Vec<StrategyOptimality>,
}

/// Distance of one strategy from the best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StrategyOptimality {
    /// Name of the strategy in the scenario.
    pub strategy: String,
    /// Value of its decisions with true loads; `None` if they exceed a hard limit of the problem.
    pub value: Option<f64>,
    /// (value − stay) / (best − stay); `None` without a value or if there is nothing to gain.
    pub gained: Option<f64>,
    /// Gap of its assignments with its own scores; `None` if it solves no assignment problem.
    pub assignment: Option<AssignmentGap>,
    /// Value, with true loads, of the best paths with its predictions. `None` if it predicts nothing, or if the paths
    /// exceed a hard limit with true loads.
    pub predicted: Option<f64>,
    /// (best − predicted) / (best − stay).
    pub prediction_gap: Option<f64>,
}

/// Distance of decisions from the best of their own problem.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AssignmentGap {
    /// Description of the maximized objective.
    pub objective: String,
    /// Decisions within the limits of their problem.
    pub decisions: usize,
    /// Decisions outside the limits (the literal form permits staying volumes to exceed them). They are not counted
    /// here.
    pub beyond_limits: usize,
    /// Value of the chosen assignments, summed over decisions.
    pub value: f64,
    /// Value without moves.
    pub stay: f64,
    /// Upper bound of the value.
    pub bound: f64,
    /// Decisions with a known optimum.
    pub solved: usize,
    /// Sum over decisions of the optimum, or of the bound if the optimum is unknown.
    pub most: f64,
    /// (most − value) / (most − stay); `None` if there is nothing to gain.
    pub gap: Option<f64>,
}

/// Assignment problem of one decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssignmentRecord {
    /// Time of the decision, seconds.
    pub at_s: f64,
    /// Description of the maximized objective.
    pub objective: String,
    /// Value of the chosen assignment.
    pub value: f64,
    /// Value without moves.
    pub stay: f64,
    /// Upper bound of the value.
    pub bound: f64,
    /// True if the chosen assignment is within the limits.
    pub within_limits: bool,
    /// Value of the optimum, if it was found.
    pub optimum: Option<f64>,
}

/// Tolerance for sums of scores, each rounded to 1e-9.
const NOTHING: f64 = 1e-6;

/// Returns the share of the possible gain; `None` if there is none.
fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > NOTHING).then(|| part / whole)
}

impl AssignmentGap {
    /// Returns the gap of all decisions of a run; `None` without decisions.
    pub fn of(records: &[AssignmentRecord]) -> Option<Self> {
        let first = records.first()?;
        let all = records.len();
        let records: Vec<&AssignmentRecord> = records.iter().filter(|r| r.within_limits).collect();
        let sum =
            |value: fn(&AssignmentRecord) -> f64| records.iter().map(|r| value(r)).sum::<f64>();
        let (value, stay, bound) = (sum(|r| r.value), sum(|r| r.stay), sum(|r| r.bound));
        let most = sum(|r| r.optimum.unwrap_or(r.bound));
        Some(Self {
            objective: first.objective.clone(),
            decisions: records.len(),
            beyond_limits: all - records.len(),
            value,
            stay,
            bound,
            solved: records.iter().filter(|r| r.optimum.is_some()).count(),
            most,
            gap: share((most - value).max(0.0), most - stay),
        })
    }
}

/// Returns the number of epochs between decisions. The first one begins with the first decision.
pub(crate) fn epochs(model: &Model) -> usize {
    let migration = model.policy.epochs.migration.0;
    (model.duration.0.div_ceil(migration) as usize).saturating_sub(1)
}

/// Returns the reason that the best possible of this model is unknown; `None` if it can be computed.
///
/// A strategy receives facts about the load on the devices. Its decisions are compared with loads of volumes that are
/// each alone on a device with the configured caps. If a stage makes the two differ, a gap between them is not caused
/// by decisions.
pub fn why_unknown(model: &Model) -> Option<&'static str> {
    let answered = |remedies: &ResponseConfig| !remedies.remedies.is_empty();
    let limits = |o: &OperatorConfig| !o.throttle.is_empty();
    // A load that waits for no reply is the same on any device and over any link.
    let open = model.clients.is_empty()
        && (model.traces.iter()).all(|t| t.outstanding.is_none() && t.rates.is_none());
    let found = [
        (
            model.cache.is_some(),
            "[cache] serves a part of the requests, and strategies decide about the remaining requests",
        ),
        (
            model.remedies.as_deref().is_some_and(answered),
            "[response] throttles volumes and moves them independently of the strategy",
        ),
        (
            model.running.operators.iter().any(limits),
            "[[operator]] throttles volumes",
        ),
        (
            model.mirrors.is_some(),
            "[mirrors] serves reads on other tiers than the placement",
        ),
        (
            !open && model.servers.is_some(),
            "[hosts] adds delays of links, which the model of the optimum lacks",
        ),
        (
            !open && model.flash.iter().any(Option::is_some),
            "[flash] adds delays inside devices, which the caps of the devices do not describe",
        ),
        (
            !open && model.disks.iter().any(Option::is_some),
            "[disks] adds delays inside devices, which the caps of the devices do not describe",
        ),
    ];
    found.into_iter().find(|f| f.0).map(|f| f.1)
}

impl Loads {
    /// Creates the loads from the results of [`crate::solo_loads`] by tier.
    pub fn new(by_tier: Vec<Vec<Vec<MeasuredLoad>>>) -> Self {
        let volumes = by_tier.first().map_or(0, Vec::len);
        let of_volume = |v: usize| by_tier.iter().map(|tier| tier[v].clone()).collect();
        Self((0..volumes).map(of_volume).collect())
    }

    /// Returns the same loads at the rates that a strategy predicted at its decisions. Without a prediction for a
    /// volume, its last prediction applies, else its true load before the epoch on its initial tier. `None` if it never
    /// predicted.
    fn predicted(&self, model: &Model, decisions: &[Report]) -> Option<Self> {
        let mut any = false;
        let mut loads = self.clone();
        for (v, volume) in model.volumes.iter().enumerate() {
            let mut last: Vec<Option<f64>> = vec![None; model.topology.tiers.len()];
            for e in 0..epochs(model) {
                let at = model.policy.epochs.migration.0 * (e as u64 + 1);
                let report = decisions.iter().find(|d| d.at == Nanos(at));
                let row = report.and_then(|r| r.volumes.iter().find(|r| r.volume == volume.name));
                for (t, last) in last.iter_mut().enumerate() {
                    let option = row.and_then(|r| r.options.get(t));
                    if let Some(p) = option.and_then(|o| o.predicted) {
                        *last = Some(p.iops);
                        any = true;
                    }
                    // The mix of a future epoch is unknown. The mix of the previous epoch on the volume's initial tier
                    // is used.
                    let here = model.topology.tier_of(volume.device).index();
                    let known = &self.0[v][here][e.saturating_sub(1)];
                    loads.0[v][t][e] = at_rate(known, last.unwrap_or(known.iops()));
                }
            }
        }
        any.then_some(loads)
    }
}

/// Returns a load with the same mix at another rate.
fn at_rate(load: &MeasuredLoad, iops: f64) -> MeasuredLoad {
    let factor = if load.ios() == 0 {
        0.0
    } else {
        iops / load.iops()
    };
    let scaled = |flow: &Flow| Flow {
        ios: (flow.ios as f64 * factor).round() as u64,
        bytes: (flow.bytes as f64 * factor).round() as u64,
        ..*flow
    };
    MeasuredLoad {
        reads: scaled(&load.reads),
        writes: scaled(&load.writes),
        ..*load
    }
}

/// Returns the weights of the scenario's `[strategies.autotiering]`.
///
/// # Errors
/// Invalid parameters.
pub fn objective(file: &ScenarioFile) -> Result<ScoreWeights, ScenarioError> {
    let config = match file.parameters("autotiering")? {
        (strategy, config) if strategy == "autotiering" && !config.is_null() => {
            serde_json::from_value(config)
                .map_err(|e| file.fault("strategies.autotiering", e.to_string()))?
        }
        // Another strategy has that name, or the table is missing: the defaults apply.
        _ => AutoTieringConfig::default(),
    };
    Ok(ScoreWeights::new(&config))
}

/// Returns the problem of all epochs together.
pub fn horizon(model: &Model, objective: &ScoreWeights, loads: &Loads) -> Horizon {
    let (topology, policy) = (&model.topology, &model.policy);
    let headroom = &policy.headroom;
    let epochs = epochs(model);
    let places: Vec<Vec<Vec<Place>>> = model
        .volumes
        .iter()
        .enumerate()
        .map(|(v, volume)| {
            let weight = model.classes[volume.class.index()].weight;
            let place = |tier: TierId, e: usize| {
                let load = &loads.0[v][tier.index()][e];
                objective.place(topology, headroom, tier, weight, load, volume.size)
            };
            (0..epochs)
                .map(|e| topology.tier_ids().map(|t| place(t, e)).collect())
                .collect()
        })
        .collect();
    // The limit of space is the full capacity. Moves that wait for others may exceed a tier's share for some time, and
    // executed decisions must have a value.
    let limits = [headroom.performance, headroom.bandwidth, 1.0];
    let overload = topology
        .tier_ids()
        .map(|tier| overload_price(model, objective, &places, tier));
    let mut horizon = Horizon::new(
        epochs,
        vec![limits; topology.tiers.len()],
        overload.collect(),
    );
    for (v, volume) in model.volumes.iter().enumerate() {
        let cost = |from: TierId, to: TierId| {
            let source = &topology.device(topology.tier(from).devices[0]).spec;
            let target = &topology.device(topology.tier(to).devices[0]).spec;
            let spare = source.read_bandwidth.0.min(target.write_bandwidth.0) as f64;
            let rate =
                (policy.budget.copy_bandwidth.as_f64()).min(spare * policy.budget.copy_share);
            objective.move_cost(topology, to, policy, volume.size.as_f64() / rate)
        };
        let costs: Vec<Vec<f64>> = topology
            .tier_ids()
            .map(|from| topology.tier_ids().map(|to| cost(from, to)).collect())
            .collect();
        horizon.add(topology.tier_of(volume.device), &places[v], &costs);
    }
    horizon.admit_present();
    horizon
}

/// Returns the price of exceeding a tier's share. The excess reduces all volumes equally: its price is the mean value
/// that volumes get from a share there, weighted by use. Space is a hard limit, and so is a resource that the tier is
/// not valued for.
fn overload_price(
    model: &Model,
    objective: &ScoreWeights,
    places: &[Vec<Vec<Place>>],
    tier: TierId,
) -> Shares {
    let mut prices = [f64::INFINITY; RESOURCES];
    for (k, price) in prices.iter_mut().enumerate().take(2) {
        let (mut worth, mut used) = (0.0, 0.0);
        for (volume, places) in model.volumes.iter().zip(places) {
            let weight = model.classes[volume.class.index()].weight;
            let own = objective.worth(&model.topology, tier, weight)[k];
            for place in places {
                worth += place[tier.index()].uses[k] * own;
                used += place[tier.index()].uses[k];
            }
        }
        if worth > 0.0 {
            *price = worth / used;
        }
    }
    prices
}

/// Returns the tiers of a strategy's decisions, by volume and epoch. A move counts from its decision on, if it was
/// executed.
fn decided(model: &Model, run: &RunResult) -> Vec<Vec<TierId>> {
    let tier_named = |name: &str| {
        let found = model.topology.tiers.iter().position(|t| t.name == name);
        TierId::from_index(found.expect("the run's tiers are the model's"))
    };
    let migration_s = model.policy.epochs.migration.as_secs_f64();
    let path = |volume: &crate::VolumeModel| {
        let mut now = model.topology.tier_of(volume.device);
        let moves: Vec<(f64, TierId)> = run
            .move_log
            .iter()
            .filter(|m| m.volume == volume.name && m.started_s.is_some() && m.why_not.is_none())
            .map(|m| (m.planned_s, tier_named(&m.to)))
            .collect();
        (0..epochs(model))
            .map(|e| {
                let at = migration_s * (e as f64 + 1.0);
                if let Some(last) = moves.iter().rfind(|m| m.0 <= at + 1e-6) {
                    now = last.1;
                }
                now
            })
            .collect()
    };
    model.volumes.iter().map(path).collect()
}

/// Exact solver of a horizon, if this build has one. Returns the value of the best paths found and the upper bound, in
/// steps of a score.
pub type ExactHorizon = fn(&Horizon) -> Option<(i64, i64)>;

/// Compares runs of strategies with the best possible. `exact` improves the best value and its bound, if it is
/// available.
pub fn optimality(
    model: &Model,
    objective: &ScoreWeights,
    loads: &Loads,
    runs: &[RunResult],
    exact: Option<ExactHorizon>,
) -> Optimality {
    let problem = horizon(model, objective, loads);
    let (best, mut bound) = problem.solve();
    let mut best_value = best.value;
    if let Some((found, most)) = exact.and_then(|exact| exact(&problem)) {
        best_value = best_value.max(found);
        bound = bound.min(most).max(best_value);
    }
    let score = |steps: i64| steps as f64 * planner::assign::SCORE_STEP;
    let (stay, chain) = (score(problem.stay().value), score(problem.chain().value));
    let (best, bound) = (score(best_value), score(bound));
    let strategies = runs
        .iter()
        .map(|run| {
            // Exceeding a limit costs nothing in the sum and would look like a gain.
            let worth = |tiers: Vec<Vec<TierId>>| {
                let keeps = problem.admits(&tiers);
                keeps.then(|| score(problem.paths(tiers).value))
            };
            let value = worth(decided(model, run));
            let decisions = run.decisions.as_deref().unwrap_or(&[]);
            let predicted = loads
                .predicted(model, decisions)
                .and_then(|predicted| worth(horizon(model, objective, &predicted).solve().0.tiers));
            StrategyOptimality {
                strategy: run.manifest.strategy.clone(),
                value,
                gained: value.and_then(|v| share(v - stay, best - stay)),
                assignment: AssignmentGap::of(&run.assignments),
                predicted,
                prediction_gap: predicted.and_then(|p| share(best - p, best - stay)),
            }
        })
        .collect();
    Optimality {
        objective: OBJECTIVE.into(),
        epochs: problem.epochs(),
        stay,
        chain,
        best,
        bound,
        horizon_gap: share(best - chain, best - stay),
        bound_gap: share(bound - best, bound - stay),
        strategies,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "[[clients]]\nvolume = \"v\"\nhabits = { rate = \"40 IOPS\" }\n";
    const GENERATOR: &str =
        "[[generators]]\ncondition = \"A\"\nvolumes = [\"v\"]\npage = \"8 KiB\"\n";

    fn why(load: &str, tables: &str) -> Option<&'static str> {
        let text = format!(
            "duration = \"30s\"\n[[tiers]]\nname = \"t\"\npreset = \"pm863\"\ncapacity = \"4 GiB\"\n\
             [[classes]]\nname = \"c\"\nlatency = \"1ms\"\n\
             [[volumes]]\nname = \"v\"\nclass = \"c\"\nsize = \"1 GiB\"\n{load}{tables}"
        );
        let file = ScenarioFile::parse("x.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        why_unknown(&file.build(vec![]).unwrap_or_else(|e| panic!("{e}")))
    }

    #[test]
    fn optimum_is_known_only_if_devices_serve_the_guest_requests() {
        for load in [CLIENT, GENERATOR] {
            assert_eq!(why(load, ""), None);
            assert_eq!(why(load, "[response]\nremedies = []\n"), None);
            assert_eq!(why(load, "[[operator]]\nat = \"5s\"\npause = true\n"), None);
            for (table, name) in [
                ("[cache]\nsize = \"64 MiB\"\n", "[cache]"),
                ("[response]\nremedies = [\"throttle\"]\n", "[response]"),
                ("[mirrors]\nbudget = \"1 GiB\"\n", "[mirrors]"),
                (
                    "[[operator]]\nat = \"5s\"\nthrottle = { v = { iops = \"100 IOPS\" } }\n",
                    "[[operator]]",
                ),
            ] {
                assert!(why(load, table).unwrap().starts_with(name), "{name}");
            }
        }
        // For these tables the result depends on clients that wait for replies.
        for (table, name) in [
            ("[hosts.one]\nlink = \"98 MB/s\"\n", "[hosts]"),
            ("[flash.t]\npreset = \"tlc-nvme\"\n", "[flash]"),
            (
                "[disks.t]\npreset = \"disk-15k\"\ncount = 5\nraid = \"raid5\"\n",
                "[disks]",
            ),
        ] {
            assert!(why(CLIENT, table).unwrap().starts_with(name), "{name}");
            assert_eq!(why(GENERATOR, table), None, "{name}");
        }
    }
}
