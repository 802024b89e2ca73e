//! How far decisions are from the best possible: what volumes would do on every tier, the best paths through all epochs,
//! and where the way from there to a strategy's decisions is lost.
//!
//! ```text
//!  every volume alone on a device of its own, for each tier (crate::solo_loads) ──▶ true loads by volume, tier, epoch
//!      ──▶ Horizon: bound ≥ best ≥ chain of per-epoch optima ≥ …        the objective is AutoTiering's (Eq. 6, 7)
//!  decisions of a strategy, by the same objective and the true loads ──▶ its value
//!  predictions of a strategy ──▶ best paths by them ──▶ their value by the true loads
//! ```
//!
//! Three gaps, each against the best of the same problem. *Assignment*: a decision's placement and the bound, with the
//! strategy's own scores. *Horizon*: taking the optimum of every epoch in turn, instead of looking ahead. *Prediction*: the
//! best that can be done with the strategy's predictions, instead of the truth.
//!
//! What this is not: the best mean latency or IOPS of a run. It is about the objective that is named; moves are taken to
//! be instantaneous and to cost what Eq. 7 charges; loads are those of volumes that nobody disturbs.

use config::scenario::{OperatorConfig, ResponseConfig};
use model::{Flow, Measured, Report};
use planner::assign::{Place, RESOURCES, Shares};
use planner::horizon::Horizon;
use planner::{ScoreWeights, strategies::AutoTieringConfig};
use serde::{Deserialize, Serialize};
use units::{Nanos, TierId};

use crate::result::RunResult;
use crate::{Model, ScenarioError, ScenarioFile};

/// What is maximized, in words.
pub const OBJECTIVE: &str = "Eq. 6 match of true loads, summed over volumes and epochs, minus the Eq. 7 cost of moves \
     and the excess over a tier's share";

/// Loads by volume, tier, epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Loads(Vec<Vec<Vec<Measured>>>);

/// How far everybody is from the best possible.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Optimality {
    /// What is maximized.
    pub objective: String,
    /// Epochs between decisions.
    pub epochs: usize,
    /// Value if nothing ever moves.
    pub stay: f64,
    /// Value of the optimum of every epoch in turn.
    pub chain: f64,
    /// Value of the best paths that were found.
    pub best: f64,
    /// No paths are worth more.
    pub bound: f64,
    /// What looking ahead adds: (best − chain) / (best − stay); none if there is nothing to gain.
    pub horizon_gap: Option<f64>,
    /// What the best may miss: (bound − best) / (bound − stay).
    pub bound_gap: Option<f64>,
    /// By strategy.
    pub strategies: Vec<StrategyOptimality>,
}

/// One strategy against the best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StrategyOptimality {
    /// Its name in the scenario.
    pub strategy: String,
    /// Value of its decisions by true loads; none if they break a hard limit of the problem.
    pub value: Option<f64>,
    /// (value − stay) / (best − stay); none if there is nothing to gain, or no value.
    pub gained: Option<f64>,
    /// Its assignments by its own scores; none if it solves no such problem.
    pub assignment: Option<AssignmentGap>,
    /// Value, by true loads, of the best paths by its predictions; none if it predicts nothing, or they break a hard limit
    /// by true loads.
    pub predicted: Option<f64>,
    /// (best − predicted) / (best − stay).
    pub prediction_gap: Option<f64>,
}

/// Decisions against the best of their own problem.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AssignmentGap {
    /// What is maximized.
    pub objective: String,
    /// Decisions that keep to the limits of their problem.
    pub decisions: usize,
    /// Decisions that do not (the literal form lets who stays exceed them), which count nowhere here.
    pub beyond_limits: usize,
    /// Value of what was chosen, summed over decisions.
    pub value: f64,
    /// Value of staying.
    pub stay: f64,
    /// Nothing is worth more.
    pub bound: f64,
    /// Decisions whose optimum is known.
    pub solved: usize,
    /// Value of the optimum, of the bound where that is not known, summed over decisions.
    pub most: f64,
    /// (most − value) / (most − stay); none if there is nothing to gain.
    pub gap: Option<f64>,
}

/// One decision's problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssignmentRecord {
    /// When, seconds.
    pub at_s: f64,
    /// What is maximized.
    pub objective: String,
    /// Value of what was chosen.
    pub value: f64,
    /// Value of staying.
    pub stay: f64,
    /// Nothing is worth more.
    pub bound: f64,
    /// Whether what was chosen keeps to the limits.
    pub within_limits: bool,
    /// The optimum, where it was found.
    pub optimum: Option<f64>,
}

/// Scores add up with roundings of 1e-9 each: less than this is nothing.
const NOTHING: f64 = 1e-6;

/// Share of what there was to gain; none if that is nothing.
fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > NOTHING).then(|| part / whole)
}

impl AssignmentGap {
    /// Of all decisions of a run.
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

/// Epochs between decisions: the first begins with the first decision.
pub(crate) fn epochs(model: &Model) -> usize {
    let migration = model.policy.epochs.migration.0;
    (model.duration.0.div_ceil(migration) as usize).saturating_sub(1)
}

/// Why nobody knows the best possible of this model; none where it is known.
///
/// A strategy is given facts of what reaches the devices, and decisions are held against what each volume does alone on a device that is
/// what its caps say. Where the two differ, a gap between them would be nobody's decision.
pub fn why_unknown(model: &Model) -> Option<&'static str> {
    let answered = |remedies: &ResponseConfig| !remedies.remedies.is_empty();
    let limits = |o: &OperatorConfig| !o.throttle.is_empty();
    // What waits for no answer asks for the same of any device, over any link.
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
    /// By tier: what [`crate::solo_loads`] says.
    pub fn new(by_tier: Vec<Vec<Vec<Measured>>>) -> Self {
        let volumes = by_tier.first().map_or(0, Vec::len);
        let of_volume = |v: usize| by_tier.iter().map(|tier| tier[v].clone()).collect();
        Self((0..volumes).map(of_volume).collect())
    }

    /// The same loads at the rates that a strategy predicted when it decided; where it predicted nothing for a volume, its
    /// last prediction, or else its true load before the epoch on the tier where it began. `None` if it never predicted.
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
                    // Nobody knows the mix of the epoch to come: the one before it, on the tier where the volume was.
                    let here = model.topology.tier_of(volume.device).index();
                    let known = &self.0[v][here][e.saturating_sub(1)];
                    loads.0[v][t][e] = at_rate(known, last.unwrap_or(known.iops()));
                }
            }
        }
        any.then_some(loads)
    }
}

/// A load of the same mix at another rate.
fn at_rate(load: &Measured, iops: f64) -> Measured {
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
    Measured {
        reads: scaled(&load.reads),
        writes: scaled(&load.writes),
        ..*load
    }
}

/// The weights of the scenario's `[strategies.autotiering]`.
///
/// # Errors
/// Parameters that make no sense.
pub fn objective(file: &ScenarioFile) -> Result<ScoreWeights, ScenarioError> {
    let config = match file.parameters("autotiering")? {
        (strategy, config) if strategy == "autotiering" && !config.is_null() => {
            serde_json::from_value(config)
                .map_err(|e| file.fault("strategies.autotiering", e.to_string()))?
        }
        // Another strategy under that name, or nothing: the defaults.
        _ => AutoTieringConfig::default(),
    };
    Ok(ScoreWeights::new(&config))
}

/// The problem of all epochs at once.
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
    // All space that there is: moves that wait for others may take a tier over its share for a while, and what was carried
    // out must have a value.
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

/// What is over a tier's share is taken from all alike: it costs what volumes make of a share there on average, weighted by
/// use. Space is a hard limit, and so is what the tier is not valued for.
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

/// The tiers that a strategy decided for, by volume and epoch: a move counts from its decision on, if it was made.
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

/// Solves a horizon exactly, where that is to be had: value of the best paths found, and what no paths exceed, in steps of a
/// score.
pub type ExactHorizon = fn(&Horizon) -> Option<(i64, i64)>;

/// Runs of strategies against the best possible. `exact` makes the best and its bound better, where it is to be had.
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
            // A limit that is broken costs nothing in the sum, and would look like a gain.
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
    fn the_best_possible_is_known_where_devices_get_what_guests_ask_for() {
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
        // Here it matters whether anything waits for its answers.
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
