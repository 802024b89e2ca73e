//! What a score is made of: the numbers that a strategy put together, and the formula by which it did.
//!
//! A strategy computes its scores by these formulas, so that what is shown beside a score is what made it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The parts of one volume's score on one tier, by formula.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "formula", rename_all = "kebab-case")]
pub enum ScoreParts {
    /// How well the volume uses what the tier is good at, aged, less the cost of moving there (AutoTiering).
    Match(MatchParts),
    /// What the volume takes up of the tier, in money (EDT).
    Price(PriceParts),
}

impl ScoreParts {
    /// The score that they make.
    pub fn score(&self) -> f64 {
        match self {
            ScoreParts::Match(parts) => parts.score(),
            ScoreParts::Price(parts) => parts.score(),
        }
    }

    /// The numbers of a table in which every tier is a row, by the name of their column; the same columns for all tiers of
    /// one decision.
    pub fn columns(&self) -> Vec<(&'static str, Option<f64>)> {
        match self {
            ScoreParts::Match(p) => {
                let adds = |part: &Option<MatchPart>| part.map(|p| p.adds);
                vec![
                    ("performance", adds(&p.performance)),
                    ("bandwidth", adds(&p.bandwidth)),
                    ("space", adds(&p.space)),
                    ("before", p.aging.before),
                    ("move cost", Some(p.move_cost)),
                    ("confidence", Some(p.confidence)),
                ]
            }
            ScoreParts::Price(p) => vec![
                ("tier price $", Some(p.tier_usd)),
                ("space", Some(p.space)),
                ("IOPS", Some(p.iops)),
                ("bandwidth", Some(p.bandwidth)),
            ],
        }
    }

    /// How those numbers make the score, in lines.
    pub fn formula(&self) -> Vec<String> {
        match self {
            ScoreParts::Match(p) => {
                let Aging { by, keeps, .. } = p.aging;
                let (keeps, adds) = (short(keeps), short(1.0 - keeps));
                let score = match by {
                    AgedBy::Mean => format!(
                        "score = {keeps} × before + {adds} × match − move cost; without a before, match − move cost"
                    ),
                    AgedBy::Sum => format!("score = {keeps} × before + match − move cost"),
                };
                vec![
                    score,
                    "match = performance + bandwidth + space".into(),
                    format!(
                        "each of them: share of the tier × its specialty × weight × class weight {} × confidence",
                        short(p.class_weight)
                    ),
                ]
            }
            ScoreParts::Price(_) => {
                vec!["score = − tier price × the larger of space and IOPS + bandwidth, which are shares of the tier".into()]
            }
        }
    }
}

/// A parameter as it was written, without what binary fractions add to it.
fn short(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Paper 0, Eq. 6 and 7: `match = performance + bandwidth + space`, `score = aged(match) − move_cost`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct MatchParts {
    /// Weight of the volume's class.
    pub class_weight: f64,
    /// Confidence in the prediction for this tier, 0..=1.
    pub confidence: f64,
    /// What IOPS add; none where they do not count, as nothing does on a tier that cannot do what would be asked of it.
    pub performance: Option<MatchPart>,
    /// What bandwidth adds.
    pub bandwidth: Option<MatchPart>,
    /// What space adds; in the corrected form it counts on the last tier only.
    pub space: Option<MatchPart>,
    /// How earlier epochs count.
    pub aging: Aging,
    /// What the move there takes off.
    pub move_cost: f64,
}

impl MatchParts {
    /// What the present epoch adds.
    pub fn matched(&self) -> f64 {
        let adds = |part: &Option<MatchPart>| part.map_or(0.0, |p| p.adds);
        adds(&self.performance) + adds(&self.bandwidth) + adds(&self.space)
    }

    /// The present and the earlier epochs together.
    pub fn aged(&self) -> f64 {
        let Aging { by, keeps, before } = self.aging;
        let matched = self.matched();
        match by {
            AgedBy::Mean => keeps * before.unwrap_or(matched) + (1.0 - keeps) * matched,
            AgedBy::Sum => keeps * before.unwrap_or(0.0) + matched,
        }
    }

    /// The score.
    pub fn score(&self) -> f64 {
        self.aged() - self.move_cost
    }
}

/// What one capability of a tier adds to a match: `share · specialty · weight · class_weight · confidence`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatchPart {
    /// Share of the tier's capability that the volume is predicted to use.
    pub share: f64,
    /// How much the tier is one for that, against the other tiers.
    pub specialty: f64,
    /// Weight of this capability; those of all three add up to 1.
    pub weight: f64,
    /// The product.
    pub adds: f64,
}

/// How earlier epochs count in a score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Aging {
    /// The rule.
    pub by: AgedBy,
    /// What is kept of what was before, 0..=1.
    pub keeps: f64,
    /// What was before; none in a volume's first epoch.
    pub before: Option<f64>,
}

/// A rule of aging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgedBy {
    /// `keeps · before + (1 − keeps) · match`: a mean that forgets. In the first epoch it is the match.
    Mean,
    /// `keeps · before + match`, and `before` is the whole score, the cost of moving included (the paper's recursion).
    Sum,
}

/// The EDT paper's resource consumption in money: `score = −tier_usd · max(space, iops + bandwidth)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PriceParts {
    /// Price of the whole tier, dollars of hardware.
    pub tier_usd: f64,
    /// Share of its space that the volume takes.
    pub space: f64,
    /// Share of its IOPS.
    pub iops: f64,
    /// Share of its bandwidth.
    pub bandwidth: f64,
}

impl PriceParts {
    /// The volume's load as a share of what the tier can do.
    pub fn load(&self) -> f64 {
        self.iops + self.bandwidth
    }

    /// What it takes up of the tier, by what it takes up most of.
    pub fn consumption(&self) -> f64 {
        self.space.max(self.load())
    }

    /// That in dollars.
    pub fn usd(&self) -> f64 {
        self.tier_usd * self.consumption()
    }

    /// The score: cheaper is better.
    pub fn score(&self) -> f64 {
        -self.usd()
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
    fn a_match_is_aged_and_pays_for_its_move() {
        let score = |by, before| ScoreParts::Match(parts(by, before)).score();
        assert_eq!(score(AgedBy::Mean, None), 0.375 - 0.0625);
        assert_eq!(score(AgedBy::Mean, Some(1.0)), 0.75 + 0.25 * 0.375 - 0.0625);
        assert_eq!(score(AgedBy::Sum, None), 0.375 - 0.0625);
        assert_eq!(score(AgedBy::Sum, Some(1.0)), 0.75 + 0.375 - 0.0625);
    }

    #[test]
    fn a_price_is_that_of_what_is_taken_most_of() {
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

    #[test]
    fn the_formula_is_named_in_json() {
        let json = serde_json::to_value(ScoreParts::Match(parts(AgedBy::Mean, None))).unwrap();
        assert_eq!(json["formula"], "match");
        assert_eq!(json["aging"]["by"], "mean");
        assert_eq!(json["performance"]["adds"], 0.25);
        assert!(json["space"].is_null());
        let back: ScoreParts = serde_json::from_value(json).unwrap();
        assert_eq!(back.score(), 0.375 - 0.0625);
    }
}
