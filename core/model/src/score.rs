//! Parts of scores: the terms of a strategy's score and the formula that combines them.
//!
//! Strategies compute their scores with these formulas. The displayed parts of a score are therefore the ones that produced it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SloStatistic;
use crate::report::{VIOLATION, distinct, micros};

/// Parts of the score of a volume on a tier, by formula. A higher score is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "formula", rename_all = "kebab-case")]
pub enum ScoreParts {
    /// Match between the load of the volume and the specialty of the tier, minus the cost of the move (AutoTiering).
    Match(MatchParts),
    /// Price of the share of the tier that the volume uses (EDT).
    Price(PriceParts),
    /// Predicted violation of the volume on the tier, and the additional violation of other volumes there (terrace).
    Violated(ViolatedParts),
}

/// Cell of a table of scores with one row for each tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreColumn {
    /// Name of the column.
    pub name: &'static str,
    /// Unit; may be empty.
    pub unit: &'static str,
    /// Value; `None` if the tier has none.
    pub value: Option<f64>,
    /// Number of significant decimals.
    pub digits: usize,
}

impl ScoreColumn {
    fn part(name: &'static str, value: Option<f64>) -> Self {
        let (unit, digits) = ("", 4);
        Self {
            name,
            unit,
            value,
            digits,
        }
    }

    fn micros(name: &'static str, value: Option<f64>) -> Self {
        let (unit, digits) = ("µs", 0);
        Self {
            name,
            unit,
            value,
            digits,
        }
    }
}

impl ScoreParts {
    /// Returns the score.
    pub fn score(&self) -> f64 {
        match self {
            ScoreParts::Match(parts) => parts.score(),
            ScoreParts::Price(parts) => parts.score(),
            ScoreParts::Violated(parts) => parts.score(),
        }
    }

    /// Returns the terms of the score, with the same columns for all tiers of one decision.
    pub fn columns(&self) -> Vec<ScoreColumn> {
        let part = ScoreColumn::part;
        match self {
            ScoreParts::Match(p) => {
                let adds = |part: &Option<MatchPart>| part.map(|p| p.adds);
                vec![
                    part("performance", adds(&p.performance)),
                    part("bandwidth", adds(&p.bandwidth)),
                    part("space", adds(&p.space)),
                    part("before", p.aging.before),
                    part("move cost", Some(p.move_cost)),
                    part("confidence", Some(p.confidence)),
                ]
            }
            ScoreParts::Price(p) => vec![
                part("tier price $", Some(p.tier_usd)),
                part("space", Some(p.space)),
                part("IOPS", Some(p.iops)),
                part("bandwidth", Some(p.bandwidth)),
            ],
            ScoreParts::Violated(p) => p.columns(),
        }
    }

    /// Returns the predictions behind the score, with the same columns for all tiers of one decision.
    pub fn predictions(&self) -> Vec<ScoreColumn> {
        match self {
            ScoreParts::Match(_) | ScoreParts::Price(_) => vec![],
            ScoreParts::Violated(p) => p.predictions(),
        }
    }

    /// Returns the lines that explain the formula of the score.
    pub fn formula(&self) -> Vec<String> {
        match self {
            ScoreParts::Match(p) => {
                let Aging { by, keeps, .. } = p.aging;
                let (keeps, adds) = (short(keeps), short(1.0 - keeps));
                let score = match by {
                    AgedBy::Mean => format!(
                        "score = {keeps} × before + {adds} × match − move cost; without a before score, match − move cost"
                    ),
                    AgedBy::Sum => format!("score = {keeps} × before + match − move cost"),
                };
                vec![
                    score,
                    "match = performance + bandwidth + space".into(),
                    format!(
                        "each term: share of the tier × its specialty × weight × class weight {} × confidence",
                        short(p.class_weight)
                    ),
                ]
            }
            ScoreParts::Price(_) => {
                vec![
                    "score = − tier price × max(space, IOPS + bandwidth), as shares of the tier"
                        .into(),
                ]
            }
            ScoreParts::Violated(p) => p.formula(),
        }
    }
}

/// Rounds a parameter to six decimals, which removes the error of its binary representation.
fn short(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Score of AutoTiering (paper 0, Eq. 6 and 7): `match = performance + bandwidth + space`, `score = aged(match) − move_cost`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct MatchParts {
    /// Weight of the volume's class.
    pub class_weight: f64,
    /// Confidence in the prediction for this tier, 0..=1.
    pub confidence: f64,
    /// Term of IOPS; null on a tier that cannot serve the load of the volume.
    pub performance: Option<MatchPart>,
    /// Term of bandwidth; null on a tier that cannot serve the load of the volume.
    pub bandwidth: Option<MatchPart>,
    /// Term of space; null on a tier that cannot serve the load of the volume. The corrected form of the strategy has it only on the
    /// last tier.
    pub space: Option<MatchPart>,
    /// Influence of earlier epochs.
    pub aging: Aging,
    /// Cost of the move to this tier, in units of the score.
    pub move_cost: f64,
}

impl MatchParts {
    /// Match of the present epoch: the sum of the three terms.
    pub fn matched(&self) -> f64 {
        let adds = |part: &Option<MatchPart>| part.map_or(0.0, |p| p.adds);
        adds(&self.performance) + adds(&self.bandwidth) + adds(&self.space)
    }

    /// Match of the present epoch combined with that of earlier epochs.
    pub fn aged(&self) -> f64 {
        let Aging { by, keeps, before } = self.aging;
        let matched = self.matched();
        match by {
            AgedBy::Mean => keeps * before.unwrap_or(matched) + (1.0 - keeps) * matched,
            AgedBy::Sum => keeps * before.unwrap_or(0.0) + matched,
        }
    }

    /// Returns the score.
    pub fn score(&self) -> f64 {
        self.aged() - self.move_cost
    }
}

/// Term of a match for one capability of a tier: `share · specialty · weight · class_weight · confidence`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatchPart {
    /// Share of the tier's capability that the volume is predicted to use, from 0.
    pub share: f64,
    /// Specialty of the tier for this capability, 0..=1.
    pub specialty: f64,
    /// Weight of this capability. The weights of the three capabilities add up to 1.
    pub weight: f64,
    /// Value of the term: the product of its factors.
    pub adds: f64,
}

/// Influence of earlier epochs on a score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Aging {
    /// Rule that combines the epochs.
    pub by: AgedBy,
    /// Weight of the earlier value, 0..=1.
    pub keeps: f64,
    /// Value of the previous epoch; null in the first epoch of a volume.
    pub before: Option<f64>,
}

/// Rule that combines the present epoch with earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgedBy {
    /// Exponentially weighted mean, `keeps · before + (1 − keeps) · match`. In the first epoch it is the match.
    Mean,
    /// Recursion of the paper, `keeps · before + match`, where `before` is the previous score including the cost of the move.
    Sum,
}

/// Resource consumption in US dollars, from the EDT paper: `score = −tier_usd · max(space, iops + bandwidth)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PriceParts {
    /// Hardware price of the whole tier, US dollars.
    pub tier_usd: f64,
    /// Share of the tier's space that the volume needs, from 0.
    pub space: f64,
    /// Share of the tier's IOPS that the volume needs, from 0.
    pub iops: f64,
    /// Share of the tier's bandwidth that the volume needs, from 0.
    pub bandwidth: f64,
}

impl PriceParts {
    /// Load of the volume as a share of the tier's performance.
    pub fn load(&self) -> f64 {
        self.iops + self.bandwidth
    }

    /// Share of the tier that the volume consumes: the larger of its shares of space and performance.
    pub fn consumption(&self) -> f64 {
        self.space.max(self.load())
    }

    /// Price of the consumed share, US dollars.
    pub fn usd(&self) -> f64 {
        self.tier_usd * self.consumption()
    }

    /// Returns the score; a cheaper tier has a higher score.
    pub fn score(&self) -> f64 {
        -self.usd()
    }
}

/// Predicted violation of a volume on the best device of a tier, and of other volumes because of it. All parts are class-weighted
/// seconds of violation per second: `score = −(violated + excess + faster + latency + others)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ViolatedParts {
    /// Weight of the volume's class.
    pub class_weight: f64,
    /// Probability of a violation of the objective, times the class weight.
    pub violated: f64,
    /// Expected size of the violation; 0 without an objective.
    pub excess: f64,
    /// Ratio of mean latency to objective, with a very small weight; 0 without an objective.
    pub faster: f64,
    /// Logarithm of the mean latency, with a small weight; 0 for a volume with an objective.
    pub latency: f64,
    /// Additional violation of the other volumes on the device.
    pub others: f64,
    /// Statistic of the objective; null without an objective.
    pub statistic: Option<SloStatistic>,
    /// Objective, microseconds; null without an objective.
    pub target_us: Option<f64>,
    /// Predicted value of this statistic, microseconds; null without an objective or a known load.
    pub statistic_us: Option<Bounded>,
    /// Predicted mean latency, microseconds; null without a known load.
    pub mean_us: Option<Bounded>,
}

/// Predicted value with an interval that is expected to contain 90 % of the outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bounded {
    /// Predicted value.
    pub value: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
}

impl ViolatedParts {
    /// Describes the advantage over another tier for the same volume: the predicted statistic of its objective, and the violation of
    /// other volumes if it decides. `None` without an objective or prediction.
    pub(crate) fn compared(&self, other: &Self) -> Option<String> {
        let statistic = self.statistic?.name();
        let target = self.target_us?;
        let (this, that) = (self.statistic_us?.value, other.statistic_us?.value);
        let meets = |us: f64| if us <= target { "meets" } else { "exceeds" };
        let mut text = format!(
            "predicted {statistic} {} {} the {} objective, against {}",
            micros(this),
            meets(this),
            micros(target),
            micros(that)
        );
        // The two values do not decide if both meet the objective, or neither does.
        let on_one_side = (this <= target) == (that <= target);
        let probability = |of: &Self| 100.0 * of.violated / of.class_weight;
        let (this, that) = (probability(self), probability(other));
        if on_one_side && self.class_weight > 0.0 && this < that {
            let (less, more) = distinct(this, that, 1);
            text += &format!("; probability of a violation {less} % against {more} %");
        }
        if (other.others - self.others) > (other.own() - self.own()).abs() {
            let (more, less) = distinct(other.others, self.others, 3);
            text += &format!(
                "; other volumes lose {more} s of {VIOLATION} per second there, {less} s here"
            );
        }
        Some(text)
    }

    /// Returns the violation of the volume itself.
    pub fn own(&self) -> f64 {
        self.violated + self.excess + self.faster + self.latency
    }

    /// Returns the score; a tier with less violation has a higher score.
    pub fn score(&self) -> f64 {
        -(self.own() + self.others)
    }

    fn columns(&self) -> Vec<ScoreColumn> {
        let part = |name, value| ScoreColumn::part(name, Some(value));
        let mut columns = match self.statistic {
            Some(_) => vec![
                part("violated", self.violated),
                part("excess", self.excess),
                part("faster", self.faster),
            ],
            None => vec![part("latency", self.latency)],
        };
        columns.push(part("others", self.others));
        columns
    }

    fn predictions(&self) -> Vec<ScoreColumn> {
        let bounded = |name, of: Option<Bounded>| {
            [
                ScoreColumn::micros(name, of.map(|b| b.value)),
                ScoreColumn::micros("from", of.map(|b| b.low)),
                ScoreColumn::micros("to", of.map(|b| b.high)),
            ]
        };
        // The mean always has its own columns.
        let statistic = self.statistic.filter(|s| *s != SloStatistic::Mean);
        let statistic = statistic.map(|s| bounded(s.name(), self.statistic_us));
        let mean = bounded("mean", self.mean_us);
        statistic.into_iter().flatten().chain(mean).collect()
    }

    fn formula(&self) -> Vec<String> {
        let weight = short(self.class_weight);
        let others = "others: additional violations of the other volumes on the device";
        let bounds = "from, to: interval that is expected to contain 90 % of the outcomes";
        match self.statistic.zip(self.target_us) {
            Some((statistic, target_us)) => vec![
                "score = − (violated + excess + faster + others), in class-weighted seconds per second".into(),
                format!(
                    "violated: class weight {weight} × the probability that {} exceeds {target_us:.0} µs; excess: size of the violation; faster: mean over objective, with a very small weight",
                    statistic.name()
                ),
                others.into(),
                bounds.into(),
            ],
            None => vec![
                "score = − (latency + others), in class-weighted seconds per second".into(),
                format!(
                    "latency: class weight {weight} × the logarithm of the mean, with a small weight; the class has no objective"
                ),
                others.into(),
                bounds.into(),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(share: f64, adds: f64) -> Option<MatchPart> {
        Some(MatchPart {
            share,
            specialty: 1.0,
            weight: 0.5,
            adds,
        })
    }

    fn parts(by: AgedBy, before: Option<f64>) -> MatchParts {
        MatchParts {
            class_weight: 1.0,
            confidence: 1.0,
            performance: part(0.5, 0.25),
            bandwidth: part(0.25, 0.125),
            space: None,
            aging: Aging {
                by,
                keeps: 0.75,
                before,
            },
            move_cost: 0.0625,
        }
    }

    #[test]
    fn match_score_is_aged_and_includes_the_move_cost() {
        let score = |by, before| ScoreParts::Match(parts(by, before)).score();
        assert_eq!(score(AgedBy::Mean, None), 0.375 - 0.0625);
        assert_eq!(score(AgedBy::Mean, Some(1.0)), 0.75 + 0.25 * 0.375 - 0.0625);
        assert_eq!(score(AgedBy::Sum, None), 0.375 - 0.0625);
        assert_eq!(score(AgedBy::Sum, Some(1.0)), 0.75 + 0.375 - 0.0625);
    }

    #[test]
    fn price_score_is_that_of_the_largest_share() {
        let loaded = PriceParts {
            tier_usd: 100.0,
            space: 0.25,
            iops: 0.25,
            bandwidth: 0.125,
        };
        assert_eq!(ScoreParts::Price(loaded).score(), -37.5);
        let large = PriceParts {
            space: 0.5,
            ..loaded
        };
        assert_eq!(ScoreParts::Price(large).score(), -50.0);
    }

    fn violated(statistic: Option<SloStatistic>) -> ViolatedParts {
        let bounded = |value: f64| Bounded {
            value,
            low: value / 2.0,
            high: value * 2.0,
        };
        ViolatedParts {
            class_weight: 4.0,
            violated: 2.0,
            excess: 0.5,
            faster: 0.25,
            latency: 0.125,
            others: 1.0,
            statistic,
            target_us: statistic.map(|_| 1000.0),
            statistic_us: statistic.map(|_| bounded(1200.0)),
            mean_us: Some(bounded(300.0)),
        }
    }

    #[test]
    fn comparison_gives_probability_if_both_meet_or_miss_the_objective() {
        let at = |us: f64, share: f64| {
            let mut parts = violated(Some(SloStatistic::P99));
            parts.statistic_us.as_mut().unwrap().value = us;
            parts.violated = share;
            parts
        };
        let text = |a: ViolatedParts, b: ViolatedParts| a.compared(&b).unwrap();
        assert_eq!(
            text(at(400.0, 0.02), at(900.0, 0.8)),
            "predicted p99 400us meets the 1ms objective, against 900us; probability of a violation 0.5 % against 20.0 %"
        );
        assert_eq!(
            text(at(400.0, 0.02), at(1200.0, 2.8)),
            "predicted p99 400us meets the 1ms objective, against 1.2ms"
        );
    }

    #[test]
    fn violation_score_adds_up_with_the_columns_of_its_class() {
        let names = |columns: Vec<ScoreColumn>| columns.iter().map(|c| c.name).collect::<Vec<_>>();
        let aimed = ScoreParts::Violated(violated(Some(SloStatistic::P95)));
        assert_eq!(aimed.score(), -3.875);
        let all = ["violated", "excess", "faster", "others"];
        assert_eq!(names(aimed.columns()), all);
        let told = ["p95", "from", "to", "mean", "from", "to"];
        assert_eq!(names(aimed.predictions()), told);
        let of_mean = ScoreParts::Violated(violated(Some(SloStatistic::Mean)));
        assert_eq!(names(of_mean.predictions()), ["mean", "from", "to"]);
        let free = ScoreParts::Violated(violated(None));
        assert_eq!(names(free.columns()), ["latency", "others"]);
        let json = serde_json::to_value(aimed).unwrap();
        assert_eq!(
            (&json["formula"], &json["violated"]),
            (&"violated".into(), &2.0.into())
        );
        assert_eq!(serde_json::from_value::<ScoreParts>(json).unwrap(), aimed);
    }

    #[test]
    fn score_formula_is_named_in_json() {
        let json = serde_json::to_value(ScoreParts::Match(parts(AgedBy::Mean, None))).unwrap();
        assert_eq!(json["formula"], "match");
        assert_eq!(json["aging"]["by"], "mean");
        assert_eq!(json["performance"]["adds"], 0.25);
        assert!(json["space"].is_null());
        let back: ScoreParts = serde_json::from_value(json).unwrap();
        assert_eq!(back.score(), 0.375 - 0.0625);
    }
}
