//! Report of a decision: for every volume the reason for its move, or the filters that rejected other tiers.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use units::{Bytes, Nanos, counted};

use crate::{Reason, ScoreParts};

/// Explanation of one decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Time of the decision, on the clock of [`crate::Facts::at`].
    pub at: Nanos,
    /// Number of the monitor epoch.
    pub epoch: u64,
    /// Name of the strategy.
    pub strategy: String,
    /// Generation of the plan of the same decision.
    pub generation: u64,
    /// Volumes that the strategy considered.
    pub volumes: Vec<VolumeReport>,
    /// Notes on the whole decision.
    pub notes: Vec<String>,
}

/// Decision about one volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Name of the volume.
    pub volume: String,
    /// Tier of the volume at the time of the decision.
    pub tier: String,
    /// Decision about the volume as a whole.
    pub outcome: Outcome,
    /// All tiers, with score and verdict.
    pub options: Vec<TierOption>,
    /// Measurements behind the decision, by name with unit.
    pub evidence: BTreeMap<String, f64>,
    /// Further explanations, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Decisions about single extents; empty if the strategy places whole volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extents: Vec<ExtentOutcome>,
}

impl VolumeReport {
    /// Returns the tier of the volume after the decision.
    pub fn chosen_tier(&self) -> &str {
        match &self.outcome {
            Outcome::Move { to, .. } => to,
            Outcome::Stay | Outcome::Held { .. } => &self.tier,
        }
    }

    /// Returns the reason why the tier was chosen or not, in words.
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

/// Extents of one volume that a strategy wanted on another tier, and the decision about them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExtentOutcome {
    /// Present tier.
    pub from: String,
    /// Wanted tier.
    pub to: String,
    /// Number of extents.
    pub extents: u32,
    /// Size of the extents.
    pub bytes: Bytes,
    /// Number of requests to these extents since the last placement decision.
    pub requests: u64,
    /// Reason why the strategy wanted the move, in words.
    pub reason: String,
    /// Filter that keeps the extents in place; `None` if they move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Rejection>,
}

/// Decision about a volume as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// The volume stays.
    Stay,
    /// The volume moves.
    Move {
        /// Target tier.
        to: String,
        /// Reason, in words.
        reason: String,
        /// Reason with its values; `None` in records of versions that did not store it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Reason>,
    },
    /// The strategy wanted the volume on another tier, and a filter rejected the move.
    Held {
        /// Wanted tier.
        wanted: String,
        /// Filter that rejected the move.
        by: Rejection,
    },
}

/// Tier as a target for a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierOption {
    /// Name of the tier.
    pub tier: String,
    /// Score; higher is better. `None` if the strategy gives no scores. Scores are comparable within a tier.
    pub score: Option<f64>,
    /// Parts of the score; `None` without a score, in records of versions that did not store them, and for the fixed score that the
    /// literal form of AutoTiering gives to infeasible tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<ScoreParts>,
    /// Predicted behaviour on this tier; `None` without a prediction.
    pub predicted: Option<Prediction>,
    /// Duration of the move to this tier, seconds; zero for the present tier, `None` if unknown.
    pub move_s: Option<f64>,
    /// Decision about this tier.
    pub verdict: Verdict,
}

impl TierOption {
    /// Describes the advantage of this tier over another one, with the numbers that decide.
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

/// Decision about a tier as a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Verdict {
    /// The strategy chose this tier.
    Chosen,
    /// The tier was possible, but another one was chosen.
    NotNeeded,
    /// A filter rejected the tier.
    Rejected {
        /// Filter that rejected the tier, with its numbers.
        by: Rejection,
    },
}

/// Filter that rejected a move or a tier, with its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "filter", rename_all = "kebab-case")]
pub enum Rejection {
    /// The volume needs more of a resource than is left of the tier's planned share.
    Headroom {
        /// Resource: `iops`, `bandwidth` or `space`.
        resource: String,
        /// Amount that the volume needs: requests per second, bytes per second or bytes.
        need: f64,
        /// Amount that is left, in the same unit.
        left: f64,
    },
    /// The volume alone exceeds the capability of the whole tier (literal form of paper 0, Alg. 2 line 4).
    ExceedsTier {
        /// Resource: `iops`, `bandwidth` or `space`.
        resource: String,
        /// Amount that the volume needs: requests per second, bytes per second or bytes.
        need: f64,
        /// Amount that the whole tier has, in the same unit.
        max: f64,
    },
    /// The volume is larger than every device of the tier.
    TooBig {
        /// Space that the move needs.
        need: Bytes,
        /// Size of the largest device.
        largest: Bytes,
    },
    /// No single device of the tier has room for the volume.
    NoDevice {
        /// Space that the move needs.
        need: Bytes,
        /// Free space of the emptiest device.
        most_free: Bytes,
    },
    /// The space is needed before other moves free it.
    TransientSpace {
        /// Space that the move needs.
        need: Bytes,
        /// Largest free space of a device in the course of the plan.
        most_free: Bytes,
    },
    /// The volume is pinned to another tier.
    Pinned {
        /// Tier that the volume is pinned to.
        tier: String,
    },
    /// The tier is cordoned or draining and accepts no new data.
    Cordoned,
    /// No device of the tier can be reached from the node of the volume's virtual machine.
    Unreachable {
        /// The tier.
        tier: String,
    },
    /// Earlier moves of the volume to the device have failed.
    MoveFailed {
        /// Target device.
        device: String,
        /// Number of consecutive failed attempts.
        attempts: u32,
        /// Time until the next attempt is permitted; `None` if no attempt is permitted while the cause persists.
        left: Option<Nanos>,
        /// Cause of the last failure, in words.
        why: String,
    },
    /// An affinity rule of the volume and another one forbids the move.
    Affinity {
        /// Other volume of the rule.
        with: String,
        /// Kind of the rule: `same-tier` or `different-devices`.
        rule: String,
    },
    /// The budget of this migration epoch is used up.
    Budget {
        /// Name and value of the limit.
        limit: String,
    },
    /// The volume is already moving.
    MoveUnderWay,
    /// The load of the volume is unknown.
    NoMeasurement,
    /// The literal form of AutoTiering considers only the present tier of the volume.
    NotConsidered,
    /// The last move of the volume ended too recently.
    Cooldown {
        /// Time until the volume may move again.
        left: Nanos,
    },
    /// The strategy has not wanted the move in enough consecutive decisions.
    Hold {
        /// Number of consecutive decisions that wanted the move, including this one.
        seen: u32,
        /// Required number of decisions.
        needed: u32,
    },
    /// The predicted improvement of latency is too small.
    Margin {
        /// Predicted relative decrease of the mean latency, 0..=1.
        gain: f64,
        /// Required relative decrease, 0..=1.
        needed: f64,
    },
    /// The mean latency of the volume is already below the threshold of the policy.
    Threshold {
        /// Mean latency of the volume, microseconds.
        latency_us: f64,
        /// Mean latency below which volumes stay, microseconds.
        threshold_us: f64,
    },
    /// The move would make room for another volume, which does not move.
    NoBeneficiary,
    /// The move is predicted to avoid less violation than it costs.
    Price {
        /// Violation that the move avoids, class-weighted seconds.
        gain_s: f64,
        /// Cost of the move, class-weighted seconds.
        price_s: f64,
    },
    /// Staying has not yet cost as much as the move would.
    Regret {
        /// Violation that staying has cost so far, class-weighted seconds.
        regret_s: f64,
        /// Violation at which the volume moves, class-weighted seconds.
        price_s: f64,
    },
    /// The plan would make a volume without an objective slower than its class permits.
    SlowsOther {
        /// Volume that would become slower.
        volume: String,
        /// Predicted mean latency after the plan, as a multiple of the one at the volume's original place.
        factor: f64,
        /// Largest multiple that plans may predict: the limit of the class less a margin, or the present value if that is larger.
        most: f64,
    },
    /// The plan would make a volume violate an objective that it meets.
    ViolatesOther {
        /// Volume that would violate its objective.
        volume: String,
        /// Predicted probability of a violation after the plan, 0..=1.
        chance: f64,
    },
    /// The move would cause more violation for other volumes on the target than it avoids.
    Neighbours {
        /// Volume with the largest additional violation.
        volume: String,
        /// Additional violation of that volume, class-weighted seconds per second.
        most: f64,
        /// Additional violation of all volumes on the target, class-weighted seconds per second.
        others: f64,
        /// Violation that the move avoids for the volume and for the volumes on its source, class-weighted seconds per second.
        gain: f64,
    },
    /// The volume would have no less violation on the devices of the tier that have room for it.
    NoGain {
        /// Predicted violation on the present device, class-weighted seconds per second.
        here: f64,
        /// Predicted violation on the best of these devices, class-weighted seconds per second.
        there: f64,
    },
    /// The move would have helped in too few epochs; the violation may be a burst.
    Burst {
        /// Number of recorded epochs in which the move would have helped.
        epochs: u32,
        /// Required number of epochs.
        needed: u32,
    },
    /// The copy would end after the period that the load forecast covers.
    TooLate {
        /// Time until the end of the copy.
        done: Nanos,
        /// Period that the load forecast covers.
        horizon: Nanos,
    },
    /// The devices of the move are busy with other copies.
    CopiesFirst {
        /// Time until these copies end.
        left: Nanos,
    },
    /// The move alone would be worth its cost, but moves with a larger total gain come first.
    Outranked {
        /// Violation that the move alone would avoid, class-weighted seconds.
        gain_s: f64,
        /// Cost of the move, class-weighted seconds.
        price_s: f64,
    },
    /// The extents of the volume must stay together.
    StaysWhole {
        /// Reason, in words.
        why: String,
    },
    /// The plan contains another move of the volume, which comes first.
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
            Rejection::Unreachable { tier } => write!(
                f,
                "no device of tier {tier} can be reached from the node of its virtual machine"
            ),
            Rejection::MoveFailed {
                device,
                attempts,
                left,
                why,
            } => {
                let attempts = counted(*attempts, "attempt");
                write!(f, "move failed: {attempts} to {device}, ")?;
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
                "hold: {needed} consecutive decisions must agree; {seen} so far"
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
            Rejection::SlowsOther {
                volume,
                factor,
                most,
            } => {
                let (factor, most) = distinct(*factor, *most, 2);
                write!(
                    f,
                    "slows: {volume} would be {factor} times as slow as at its original place; plans may reach {most}"
                )
            }
            Rejection::ViolatesOther { volume, chance } => write!(
                f,
                "violates: {volume} meets its objective and would violate it with a probability of {:.1} %",
                100.0 * chance
            ),
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

/// Unit of gains and costs: seconds of violation multiplied by the weight of the class.
pub(crate) const VIOLATION: &str = "class-weighted SLO violation";

/// Formats both numbers with at least `digits` decimals, and with as many as make different numbers differ.
pub(crate) fn distinct(a: f64, b: f64, digits: usize) -> (String, String) {
    let shown = |digits| (format!("{a:.digits$}"), format!("{b:.digits$}"));
    let enough = |(a, b): &(String, String)| a != b;
    (digits..DIGITS_MAX)
        .map(shown)
        .find(enough)
        .unwrap_or_else(|| shown(digits))
}

/// Exclusive upper limit of the decimals of a comparison. Numbers that differ only in later decimals are displayed as equal.
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
    fn rejections_name_the_limit_and_the_value() {
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
    fn comparisons_have_enough_digits_to_be_true() {
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
    fn report_row_without_notes_is_readable() {
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
