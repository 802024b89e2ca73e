//! The report: why, and why not. One per decision, for every volume.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use units::{Bytes, Nanos};

use crate::{Reason, ScoreParts};

/// What a strategy thought at one decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// When.
    pub at: Nanos,
    /// Monitor epoch.
    pub epoch: u64,
    /// The strategy.
    pub strategy: String,
    /// Generation of the plan beside it.
    pub generation: u64,
    /// A row per volume that the strategy considered.
    pub volumes: Vec<VolumeReport>,
    /// Remarks that concern the whole decision.
    pub notes: Vec<String>,
}

/// One volume in a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Name of the volume.
    pub volume: String,
    /// Tier that it was on.
    pub tier: String,
    /// What was decided.
    pub outcome: Outcome,
    /// Every tier, with its score and the verdict.
    pub options: Vec<TierOption>,
    /// Numbers that the strategy rests on, by name with unit.
    pub evidence: BTreeMap<String, f64>,
    /// What no number says, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What was decided for its extents, where they are placed one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extents: Vec<ExtentOutcome>,
}

impl VolumeReport {
    /// The tier that the decision leaves the volume on, or moves it to.
    pub fn chosen_tier(&self) -> &str {
        match &self.outcome {
            Outcome::Move { to, .. } => to,
            Outcome::Stay | Outcome::Held { .. } => &self.tier,
        }
    }

    /// Why a tier was chosen or not, as a sentence.
    pub fn verdict(&self, option: &TierOption) -> String {
        match &option.verdict {
            Verdict::Chosen => "chosen".into(),
            Verdict::Rejected { by } => format!("rejected by {by}"),
            Verdict::NotNeeded => {
                let chosen = self.chosen_tier();
                match self.options.iter().find(|o| o.tier == chosen) {
                    Some(best) if chosen != option.tier => best.better_than(option),
                    _ => "possible".into(),
                }
            }
        }
    }
}

/// Extents of one volume that a strategy wanted on another tier, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExtentOutcome {
    /// Tier that they are on.
    pub from: String,
    /// Tier that they were wanted on.
    pub to: String,
    /// How many.
    pub extents: u32,
    /// Their bytes.
    pub bytes: Bytes,
    /// Requests that they had since the last decision about placement.
    pub requests: u64,
    /// Why, in words.
    pub reason: String,
    /// What keeps them where they are; `None` where they move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Rejection>,
}

/// What was decided for a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// It stays.
    Stay,
    /// It moves.
    Move {
        /// Target tier.
        to: String,
        /// In words.
        reason: String,
        /// With its numbers; none in records from before it was kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Reason>,
    },
    /// The strategy wanted it on another tier, and a constraint kept it where it is.
    Held {
        /// Wanted tier.
        wanted: String,
        /// The constraint.
        by: Rejection,
    },
}

/// One tier as a place for one volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierOption {
    /// Name of the tier.
    pub tier: String,
    /// Score; `None` where the strategy gives none. Higher is better, comparable within a tier.
    pub score: Option<f64>,
    /// What the score is made of; `None` where there is none, where it is only a mark (the literal form of AutoTiering gives
    /// one to tiers that a volume cannot be on), and in records from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<ScoreParts>,
    /// Prediction, if there is one.
    pub predicted: Option<Prediction>,
    /// Time to move it there, seconds; zero where it is.
    pub move_s: Option<f64>,
    /// What came of it.
    pub verdict: Verdict,
}

impl TierOption {
    /// The advantage of this tier over another one, with the numbers that decide.
    fn better_than(&self, other: &TierOption) -> String {
        let tier = &self.tier;
        if let (Some(ScoreParts::Violated(here)), Some(ScoreParts::Violated(there))) =
            (self.parts, other.parts)
            && let Some(comparison) = here.compared(&there)
        {
            return format!("{tier} is better: {comparison}");
        }
        match (self.score, other.score) {
            (Some(a), Some(b)) => {
                let (a, b) = distinct(a, b, 4);
                format!("{tier} is better: score {a} against {b}")
            }
            _ => format!("possible; placed on {tier} first"),
        }
    }
}

/// Predicted behaviour of a volume on a tier.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Mean latency, microseconds.
    pub latency_us: f64,
    /// Requests per second.
    pub iops: f64,
    /// Bandwidth, MiB/s.
    pub mib_per_s: f64,
}

/// What came of an option.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Verdict {
    /// Taken.
    Chosen,
    /// Possible, but the volume was placed elsewhere first.
    NotNeeded,
    /// Refused.
    Rejected {
        /// By which filter, with its numbers.
        by: Rejection,
    },
}

/// A filter that refused, with its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "filter", rename_all = "kebab-case")]
pub enum Rejection {
    /// The tier's planned share of a resource is used up.
    Headroom {
        /// `iops`, `bandwidth` or `space`.
        resource: String,
        /// Needed.
        need: f64,
        /// Left.
        left: f64,
    },
    /// The volume alone exceeds what the tier can do (literal form of paper 0, Alg. 2 line 4).
    ExceedsTier {
        /// `iops`, `bandwidth` or `space`.
        resource: String,
        /// Needed.
        need: f64,
        /// The tier's maximum.
        max: f64,
    },
    /// It is larger than every device of the tier.
    TooBig {
        /// Its size.
        need: Bytes,
        /// The largest device.
        largest: Bytes,
    },
    /// No single device of the tier has room for it.
    NoDevice {
        /// Its size.
        need: Bytes,
        /// The most that one device has free.
        most_free: Bytes,
    },
    /// Space would be free only after moves that themselves wait.
    TransientSpace {
        /// Its size.
        need: Bytes,
        /// The most that one device has free in the course of the plan.
        most_free: Bytes,
    },
    /// It is pinned to another tier.
    Pinned {
        /// That tier.
        tier: String,
    },
    /// The tier takes no new data.
    Cordoned,
    /// Moves of it there have failed.
    MoveFailed {
        /// The target.
        device: String,
        /// Attempts that have failed, one after the other.
        attempts: u32,
        /// Time until the next attempt; none while the cause lasts.
        left: Option<Nanos>,
        /// The last cause.
        why: String,
    },
    /// A rule binds it to other volumes.
    Affinity {
        /// The other volume.
        with: String,
        /// `same-tier` or `different-devices`.
        rule: String,
    },
    /// The budget of this epoch is used up.
    Budget {
        /// Which one, with its value.
        limit: String,
    },
    /// It is being moved already.
    MoveUnderWay,
    /// Its load is not known, so nothing is concluded.
    NoMeasurement,
    /// Only the tier where the volume is was considered (literal form).
    NotConsidered,
    /// Its last move ended too short a time ago.
    Cooldown {
        /// Until it may move again.
        left: Nanos,
    },
    /// The strategy has not wanted it there for long enough.
    Hold {
        /// Decisions in a row that wanted it there, this one included.
        seen: u32,
        /// As many are needed.
        needed: u32,
    },
    /// It would gain too little.
    Margin {
        /// Predicted fall of its mean latency, as a share of it.
        gain: f64,
        /// As much is needed.
        needed: f64,
    },
    /// It is fast enough where it is.
    Threshold {
        /// Its mean latency, microseconds.
        latency_us: f64,
        /// Below this a volume is left alone, microseconds.
        threshold_us: f64,
    },
    /// It was to make room for what does not come.
    NoBeneficiary,
    /// A move there is forecast to save less than it costs.
    Price {
        /// Violation that it saves, class-weighted seconds.
        gain_s: f64,
        /// What it costs, in the same.
        price_s: f64,
    },
    /// Staying has not cost as much yet as a move there does.
    Regret {
        /// Violation that staying has cost, class-weighted seconds.
        regret_s: f64,
        /// What it has to have cost.
        price_s: f64,
    },
    /// Others there would miss more than the move gains.
    Neighbours {
        /// Who would most.
        volume: String,
        /// That one's part, weighted seconds per second.
        most: f64,
        /// Of all of them.
        others: f64,
        /// What the volume and those that it leaves would miss less.
        gain: f64,
    },
    /// It would not miss less on the devices there that have room for it.
    NoGain {
        /// What it misses where it is, weighted seconds per second.
        here: f64,
        /// What it would miss there.
        there: f64,
    },
    /// It was missed in too few epochs to be more than a burst.
    Burst {
        /// Epochs that are kept in which it would have helped to be there.
        epochs: u32,
        /// As many are needed.
        needed: u32,
    },
    /// The copies would be done when nothing is known of its load any more.
    TooLate {
        /// When they would be done, from now.
        done: Nanos,
        /// For how long loads are taken to stay as they are.
        horizon: Nanos,
    },
    /// Its devices have other copies to make first.
    CopiesFirst {
        /// For so long.
        left: Nanos,
    },
    /// By itself the move would be worth it, but others that are worth more, or all together, keep the volume where it is.
    Outranked {
        /// Violation that it would save, class-weighted seconds.
        gain_s: f64,
        /// What it would cost.
        price_s: f64,
    },
    /// Its extents stay together.
    StaysWhole {
        /// In words.
        why: String,
    },
    /// Another move of it, which comes before, is in this plan.
    #[serde(alias = "whole-volume")]
    OtherMove,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = |resource: &str, v: f64| match resource {
            "space" => format!("{:.1} GiB", v / (1u64 << 30) as f64),
            "bandwidth" => format!("{:.1} MiB/s", v / (1u64 << 20) as f64),
            _ => format!("{v:.0} IOPS"),
        };
        match self {
            Rejection::Headroom {
                resource,
                need,
                left,
            } => write!(
                f,
                "headroom: needs {} of {resource}; {} of the tier's planned share is left",
                amount(resource, *need),
                amount(resource, *left)
            ),
            Rejection::ExceedsTier {
                resource,
                need,
                max,
            } => write!(
                f,
                "exceeds tier: needs {} of {resource}; the whole tier has {}",
                amount(resource, *need),
                amount(resource, *max)
            ),
            Rejection::TooBig { need, largest } => write!(
                f,
                "too big: needs {} on one device; the tier's largest device has {}",
                gib(need),
                gib(largest)
            ),
            Rejection::NoDevice { need, most_free } => {
                write!(
                    f,
                    "no device: needs {} on one device; the emptiest device has {} free",
                    gib(need),
                    gib(most_free)
                )
            }
            Rejection::TransientSpace { need, most_free } => write!(
                f,
                "transient space: needs {} before other moves free space; at most {} is free until then",
                gib(need),
                gib(most_free)
            ),
            Rejection::Pinned { tier } => write!(f, "pinned to tier {tier}"),
            Rejection::Cordoned => f.write_str("the tier is cordoned"),
            Rejection::MoveFailed {
                device,
                attempts,
                left,
                why,
            } => {
                write!(f, "move failed: {attempts} attempt(s) to {device}, ")?;
                match left {
                    Some(left) => write!(f, "the next one in {}: {why}", left.words()),
                    None => write!(f, "none more while its cause lasts: {why}"),
                }
            }
            Rejection::Affinity { with, rule } => write!(f, "affinity: rule {rule} with {with}"),
            Rejection::Budget { limit } => {
                write!(f, "budget: {limit} is used up in this migration epoch")
            }
            Rejection::MoveUnderWay => f.write_str("the volume is already moving"),
            Rejection::NoMeasurement => f.write_str("no measurement of its load in this epoch"),
            Rejection::NotConsidered => f.write_str(
                "the literal form of AutoTiering considers only the current tier of the volume",
            ),
            Rejection::Cooldown { left } => {
                let left = left.words();
                write!(f, "cooldown: moved recently; may move again in {left}")
            }
            Rejection::Hold { seen, needed } => write!(
                f,
                "hold: wanted by {seen} decisions in a row; {needed} are required"
            ),
            Rejection::Margin { gain, needed } => {
                let (gain, needed) = distinct(gain * 100.0, needed * 100.0, 1);
                write!(
                    f,
                    "margin: mean latency would fall by {gain} %; {needed} % is required"
                )
            }
            Rejection::Threshold {
                latency_us,
                threshold_us,
            } => write!(
                f,
                "threshold: mean latency is {}; volumes below {} stay",
                micros(*latency_us),
                micros(*threshold_us)
            ),
            Rejection::NoBeneficiary => {
                f.write_str("it would make room for a volume that does not move in")
            }
            Rejection::Price { gain_s, price_s } => {
                let (gain, price) = distinct(*gain_s, *price_s, 1);
                write!(
                    f,
                    "price: moving avoids {gain} s of {VIOLATION} and costs {price} s"
                )
            }
            Rejection::Regret { regret_s, price_s } => {
                let (regret, price) = distinct(*regret_s, *price_s, 1);
                write!(
                    f,
                    "regret: staying has cost {regret} s of {VIOLATION}; the move is made at {price} s"
                )
            }
            Rejection::Neighbours {
                volume,
                most,
                others,
                gain,
            } => {
                let (others, gain) = distinct(*others, *gain, 3);
                write!(
                    f,
                    "neighbours: per second the move avoids {gain} s of {VIOLATION} and adds {others} s for other volumes there, most for {volume} ({most:.3} s)"
                )
            }
            Rejection::NoGain { here, there } => {
                let (here, there) = distinct(*here, *there, 3);
                write!(
                    f,
                    "no gain: per second {there} s of {VIOLATION} on the best device there with room, {here} s on the current one"
                )
            }
            Rejection::Burst { epochs, needed } => write!(
                f,
                "burst: the move would have helped in {epochs} of the recorded epochs; {needed} are required"
            ),
            Rejection::TooLate { done, horizon } => write!(
                f,
                "too late: the copy would end in {}; the forecast covers {}",
                done.words(),
                horizon.words()
            ),
            Rejection::CopiesFirst { left } => write!(
                f,
                "copies first: its devices are busy with other copies for {}; a later plan decides again",
                left.words()
            ),
            Rejection::Outranked { gain_s, price_s } => {
                let (gain, price) = distinct(*gain_s, *price_s, 1);
                write!(
                    f,
                    "outranked: alone the move avoids {gain} s of {VIOLATION} and costs {price} s, but moves with a larger total gain come first"
                )
            }
            Rejection::StaysWhole { why } => {
                write!(f, "its extents stay together: the volume is {why}")
            }
            Rejection::OtherMove => f.write_str("another move of the volume comes first"),
        }
    }
}

/// The unit of gains and costs: seconds of violation times the weight of the class.
pub(crate) const VIOLATION: &str = "class-weighted SLO violation";

/// Both numbers with at least `digits` decimals, and as many as make different numbers differ.
pub(crate) fn distinct(a: f64, b: f64, digits: usize) -> (String, String) {
    let shown = |digits| (format!("{a:.digits$}"), format!("{b:.digits$}"));
    let enough = |(a, b): &(String, String)| a != b;
    (digits..DIGITS_MAX)
        .map(shown)
        .find(enough)
        .unwrap_or_else(|| shown(digits))
}

/// Decimals of a comparison; two numbers that are equal up to here are shown as equal.
const DIGITS_MAX: usize = 9;

pub(crate) fn micros(us: f64) -> String {
    Nanos((us * 1e3).max(0.0) as u64).words()
}

fn gib(b: &Bytes) -> String {
    format!("{:.2} GiB", b.as_f64() / (1u64 << 30) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_in_rejections_have_units() {
        let left = Nanos(3_123_456_789_123);
        let said = Rejection::Cooldown { left }.to_string();
        assert_eq!(said, "cooldown: moved recently; may move again in 52m 3s");
        let threshold = Rejection::Threshold {
            latency_us: 1234.567,
            threshold_us: 2000.0,
        };
        assert_eq!(
            threshold.to_string(),
            "threshold: mean latency is 1.23ms; volumes below 2ms stay"
        );
    }

    #[test]
    fn rejections_have_the_limit_and_the_value() {
        let regret = Rejection::Regret {
            regret_s: 3.12,
            price_s: 12.0,
        };
        assert_eq!(
            regret.to_string(),
            "regret: staying has cost 3.1 s of class-weighted SLO violation; the move is made at 12.0 s"
        );
        let late = Rejection::TooLate {
            done: Nanos::from_secs(1500),
            horizon: Nanos::from_secs(600),
        };
        assert_eq!(
            late.to_string(),
            "too late: the copy would end in 25m; the forecast covers 10m"
        );
    }

    #[test]
    fn comparisons_have_the_digits_that_make_them_true() {
        let by = Rejection::Price {
            gain_s: 0.0412,
            price_s: 0.0431,
        };
        assert_eq!(
            by.to_string(),
            "price: moving avoids 0.041 s of class-weighted SLO violation and costs 0.043 s"
        );
        assert_eq!(distinct(1.0, 1.0, 1), ("1.0".into(), "1.0".into()));
    }

    #[test]
    fn a_row_from_before_notes_is_read() {
        let row = VolumeReport {
            volume: "a".into(),
            tier: "t".into(),
            outcome: Outcome::Stay,
            options: vec![],
            evidence: BTreeMap::new(),
            notes: vec![],
            extents: vec![],
        };
        let json = serde_json::to_string(&row).unwrap();
        assert!(!json.contains("notes"), "{json}");
        assert_eq!(serde_json::from_str::<VolumeReport>(&json).unwrap(), row);
    }
}
