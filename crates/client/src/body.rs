//! Bodies of orders and of errors: the words of the REST interface that are not the manager's own.

use manager::wire::Throttle;
use model::Goal;
use model::Mode;
use model::TierState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which moves of the plan in the path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MovesBody {
    /// The host; may be left out when there is one.
    #[serde(default)]
    pub host: Option<String>,
    /// Positions in the plan; all if left out.
    #[serde(default)]
    pub moves: Option<Vec<u32>>,
}

/// Whose job is in the path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostBody {
    /// The host; may be left out when there is one.
    #[serde(default)]
    pub host: Option<String>,
}

/// What the tier in the path takes and keeps from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TierStateBody {
    /// Its new state.
    pub state: TierState,
}

/// Where the volume in the path is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["tier"]))]
pub struct PinBody {
    /// The tier; `null` takes the pin away.
    #[serde(deserialize_with = "said")]
    pub tier: Option<String>,
}

/// What the volume in the path may do at most, for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["to"]))]
pub struct ThrottleBody {
    /// The limits, one at least; `null` lifts them.
    #[serde(deserialize_with = "said")]
    pub to: Option<Throttle>,
}

/// How far the controller may go for the goal in the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModeBody {
    /// How far.
    pub mode: Mode,
}

/// Why a question is not answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorBody {
    /// Why, in words, with what to do.
    pub error: String,
}

/// A goal as it is written in paths, which is as it is written everywhere else.
pub fn goal_name(goal: Goal) -> &'static str {
    match goal {
        Goal::Drain => "drain",
        Goal::Rules => "rules",
        Goal::Space => "space",
        Goal::Latency => "latency",
    }
}

/// A field that may be `null`, but not left out: a typing error must not take a pin away.
fn said<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    d: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_have_the_names_that_serde_gives_them() {
        for goal in [Goal::Drain, Goal::Rules, Goal::Space, Goal::Latency] {
            assert_eq!(serde_json::to_value(goal).unwrap(), goal_name(goal));
        }
    }

    #[test]
    fn a_pin_is_only_taken_away_when_that_is_said() {
        let read = |text| serde_json::from_str::<PinBody>(text);
        assert_eq!(read(r#"{"tier":null}"#).unwrap().tier, None);
        assert_eq!(
            read(r#"{"tier":"fast"}"#).unwrap().tier.as_deref(),
            Some("fast")
        );
        assert!(read("{}").is_err_and(|e| e.to_string().contains("missing field `tier`")));
        assert!(read(r#"{"teir":"x"}"#).is_err_and(|e| e.to_string().contains("`teir`")));
    }
}
