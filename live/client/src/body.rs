//! Request bodies of orders and the body of errors of the REST interface. All other types of the interface are in `manager`.

use manager::wire::Throttle;
use model::Goal;
use model::Mode;
use model::TierState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Selection of moves of the plan in the path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MovesBody {
    /// Name of the host; optional with one host.
    #[serde(default)]
    pub host: Option<String>,
    /// Positions in the plan, from 0; all moves if omitted or null.
    #[serde(default)]
    pub moves: Option<Vec<u32>>,
}

/// Host of the job in the path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostBody {
    /// Name of the host; optional with one host.
    #[serde(default)]
    pub host: Option<String>,
}

/// New state of the tier in the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TierStateBody {
    /// New state.
    pub state: TierState,
}

/// Pin of the volume in the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["tier"]))]
pub struct PinBody {
    /// Name of the tier; null removes the pin.
    #[serde(deserialize_with = "said")]
    pub tier: Option<String>,
}

/// Temporary limit of the volume in the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["to"]))]
pub struct ThrottleBody {
    /// Limits, at least one; null removes them.
    #[serde(deserialize_with = "said")]
    pub to: Option<Throttle>,
}

/// Mode of the goal in the path: which moves the controller carries out without approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModeBody {
    /// New mode.
    pub mode: Mode,
}

/// Error reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorBody {
    /// Cause of the error and the required action, in words.
    pub error: String,
}

/// Returns the name of a goal in paths, which is also its name in JSON.
pub fn goal_name(goal: Goal) -> &'static str {
    match goal {
        Goal::Drain => "drain",
        Goal::Rules => "rules",
        Goal::Space => "space",
        Goal::Latency => "latency",
    }
}

/// Deserializes a field that may be null but not omitted: a misspelled field name must not remove a pin.
fn said<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    d: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_names_match_serde() {
        for goal in [Goal::Drain, Goal::Rules, Goal::Space, Goal::Latency] {
            assert_eq!(serde_json::to_value(goal).unwrap(), goal_name(goal));
        }
    }

    #[test]
    fn pin_is_removed_only_by_an_explicit_null() {
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
