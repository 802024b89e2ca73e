//! The plan: what to do, complete. The executor chooses nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, DeviceId, Nanos, VolumeId};

use crate::ExtentRanges;

/// An immutable list of actions, made from one set of facts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of this plan; an executor refuses one that is not newer than what it has.
    pub generation: u64,
    /// Generation that the facts were gathered under.
    pub parent: u64,
    /// When it was made.
    pub at: Nanos,
    /// The strategy that made it.
    pub strategy: String,
    /// Moves, in the order to start them.
    pub moves: Vec<Move>,
    /// Calibration sessions to start now.
    pub calibrations: Vec<CalibrationRun>,
    /// Limits on carrying out the moves.
    pub limits: MoveLimits,
}

/// One volume from one device to another, or some of its extents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// The volume.
    pub volume: VolumeId,
    /// Its source: the device that the facts showed.
    pub from: DeviceId,
    /// Its target.
    pub to: DeviceId,
    /// The extents that move, all of them on the source when planned; `None` is the whole volume, wherever it lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentRanges>,
    /// The volume's size, or that of the extents.
    pub size: Bytes,
    /// Positions in the plan of moves that must have ended first, because this one needs the space they free.
    pub after: Vec<u32>,
    /// Copy rate, at most.
    pub bandwidth: BytesPerSec,
    /// What it is for.
    #[serde(default)]
    pub goal: Goal,
    /// Why.
    pub reason: Reason,
    /// What it is expected to change.
    pub effect: Effect,
    /// What it costs.
    pub cost: MoveCost,
}

/// What a move is for. Earlier ones come first where they contradict one another.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// To empty a tier.
    Drain,
    /// To keep the operator's rules about where volumes belong.
    Rules,
    /// To keep a device from filling up.
    Space,
    /// What strategies are for: every volume on the tier that suits it.
    #[default]
    Latency,
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Goal::Drain => "drain",
            Goal::Rules => "rules",
            Goal::Space => "space",
            Goal::Latency => "latency",
        })
    }
}

/// Why a volume is moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reason {
    /// The target tier is filled in order of score, and it came in at this rank (1 is the highest).
    RankedByScore {
        /// Place in the target tier's order.
        rank: u32,
        /// On the target.
        score: f64,
        /// Where it is.
        score_here: f64,
    },
    /// All volumes together score most with this one on the target, and it scores higher there itself.
    BetterMatch {
        /// Place in the order of what the moves gain (1 gains most).
        rank: u32,
        /// On the target.
        score: f64,
        /// Where it is.
        score_here: f64,
    },
    /// Volumes with higher scores fill the tier where it is.
    Displaced {
        /// On the target.
        score: f64,
        /// Where it is.
        score_here: f64,
    },
    /// The operator pinned it to the target tier.
    Pinned,
    /// Busier volumes go to faster tiers (rank by IOPS, 1 is the busiest).
    RankedByIops {
        /// Place in the order.
        rank: u32,
        /// Measured rate.
        iops: f64,
    },
    /// The volume costs least there: the tier's price times the share of it that the volume needs (EDT).
    CheapestTier {
        /// On the target, dollars of hardware.
        usd: f64,
        /// Where it is, or was meant to be first.
        usd_here: f64,
    },
    /// Its device is asked for more than it can do, and this volume is among its largest loads (EDT's correction).
    Relief {
        /// The device.
        device: String,
        /// The volume's load, as a share of what the device can do.
        load: f64,
    },
    /// Higher service classes go to higher tiers.
    ClassOrder {
        /// Weight of the class.
        weight: f64,
    },
    /// The tier where it is is to be emptied.
    Drained {
        /// That tier.
        tier: String,
    },
    /// Its device is fuller than it should be, and this volume is among the least used ones there.
    SpaceRelief {
        /// The device.
        device: String,
        /// Share of its space that is in use, 0..=1.
        used_share: f64,
    },
    /// Extents that are asked for often enough to be on the fast tier.
    HotExtents {
        /// Time over which their requests were counted.
        period: Nanos,
        /// Requests of all of them.
        requests: u64,
    },
    /// Extents that are asked for less than those that take their place on the fast tier.
    CoolExtents {
        /// Time over which their requests were counted.
        period: Nanos,
        /// Requests of all of them.
        requests: u64,
    },
}

impl Reason {
    /// What a move for this reason is for. (A strategy's move that keeps a rule is for that rule all the same: see
    /// [`Move::goal`].)
    pub fn goal(&self) -> Goal {
        match self {
            Reason::Drained { .. } => Goal::Drain,
            Reason::Pinned => Goal::Rules,
            Reason::SpaceRelief { .. } => Goal::Space,
            Reason::RankedByScore { .. }
            | Reason::BetterMatch { .. }
            | Reason::Displaced { .. }
            | Reason::RankedByIops { .. }
            | Reason::CheapestTier { .. }
            | Reason::Relief { .. }
            | Reason::ClassOrder { .. }
            | Reason::HotExtents { .. }
            | Reason::CoolExtents { .. } => Goal::Latency,
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::RankedByScore {
                rank,
                score,
                score_here,
            } => {
                write!(
                    f,
                    "rank {rank} by score on the target (score {score:.4}, here {score_here:.4})"
                )
            }
            Reason::BetterMatch {
                rank,
                score,
                score_here,
            } => write!(
                f,
                "gain {rank} in size: matches the target better (score {score:.4}, here {score_here:.4})"
            ),
            Reason::Displaced { score, score_here } => write!(
                f,
                "displaced by volumes with higher scores (score on the target {score:.4}, here {score_here:.4})"
            ),
            Reason::Pinned => f.write_str("pinned to the target tier"),
            Reason::RankedByIops { rank, iops } => write!(f, "rank {rank} by IOPS ({iops:.0}/s)"),
            Reason::CheapestTier { usd, usd_here } => write!(
                f,
                "takes up {usd:.2} dollars of the target (here {usd_here:.2})"
            ),
            Reason::Relief { device, load } => write!(
                f,
                "relieves {device}, which is throttled, of {load:.2} of what it can do"
            ),
            Reason::ClassOrder { weight } => write!(f, "service class of weight {weight}"),
            Reason::Drained { tier } => write!(f, "tier {tier} is being emptied"),
            Reason::SpaceRelief { device, used_share } => write!(
                f,
                "little used, and {device} is {:.1} % full",
                used_share * 100.0
            ),
            Reason::HotExtents { period, requests } => write!(
                f,
                "hot enough for the fast tier ({requests} requests in {period})"
            ),
            Reason::CoolExtents { period, requests } => write!(
                f,
                "cooler than what takes their place ({requests} requests in {period})"
            ),
        }
    }
}

/// Predicted change for the moved volume; `None` where the strategy predicts nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Mean latency before, microseconds.
    pub latency_before_us: Option<f64>,
    /// Mean latency after, microseconds.
    pub latency_after_us: Option<f64>,
    /// Request rate before.
    pub iops_before: Option<f64>,
    /// Request rate after.
    pub iops_after: Option<f64>,
}

/// Price of a move.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MoveCost {
    /// Bytes read from the source and written to the target.
    pub bytes: Bytes,
    /// Time it takes at the planned rate.
    pub duration: Nanos,
}

/// How many copies may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveLimits {
    /// In all.
    pub concurrent: u32,
    /// Touching one device.
    pub concurrent_per_device: u32,
}

/// A session of injected latency on one volume (paper 0's TSSCS), with control windows between.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibrationRun {
    /// The volume.
    pub volume: VolumeId,
    /// Windows, in order.
    pub steps: Vec<CalibrationStep>,
}

/// One window of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalibrationStep {
    /// Latency to add to every request; zero is a control window.
    pub inject: Nanos,
    /// Length of the window.
    pub duration: Nanos,
}
