//! Reasons of actions: a kind and values for programs, and a text for people.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

/// Reason for an action of a plan.
///
/// Programs read the kind and the names of the values, which stay the same in later versions. The text may change.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Kind of the reason, in lower case with hyphens, such as `pinned`.
    kind: Cow<'static, str>,
    /// Text for people.
    text: Cow<'static, str>,
    /// Numbers and names that belong to the reason.
    #[serde(flatten)]
    values: BTreeMap<Cow<'static, str>, ReasonValue>,
}

/// Value of a reason: a number or a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ReasonValue {
    /// Whole number, from 0.
    Count(u64),
    /// Decimal number.
    Number(f64),
    /// Name, or quantity with its unit.
    Text(String),
}

impl Reason {
    /// Returns a reason without values.
    pub fn new(kind: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: kind.into(),
            text: text.into(),
            values: BTreeMap::new(),
        }
    }

    /// Reason of a move to the tier to which an operator has pinned the volume.
    pub fn pinned() -> Self {
        Self::new("pinned", "pinned to the target tier")
    }

    /// Adds a value. The names `kind` and `text` are reserved.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<ReasonValue>) -> Self {
        debug_assert!(
            !["kind", "text"].contains(&name),
            "names kind and text are reserved"
        );
        self.values.insert(name.into(), value.into());
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the value with this name; `None` if the reason has none.
    pub fn value(&self, name: &str) -> Option<&ReasonValue> {
        self.values.get(name)
    }

    /// Returns the number with this name; `None` if the value is missing or a text.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.value(name)? {
            ReasonValue::Count(n) => Some(*n as f64),
            ReasonValue::Number(x) => Some(*x),
            ReasonValue::Text(_) => None,
        }
    }
}

/// Compares kind and values; texts may differ.
impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.values == other.values
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.text.is_empty() {
            return f.write_str(&self.text);
        }
        f.write_str(&self.kind.replace('-', " "))?;
        for (i, (name, value)) in self.values.iter().enumerate() {
            let before = if i == 0 { ": " } else { ", " };
            write!(f, "{before}{} {value}", name.replace('_', " "))?;
        }
        Ok(())
    }
}

impl fmt::Display for ReasonValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReasonValue::Count(n) => write!(f, "{n}"),
            ReasonValue::Number(x) => write!(f, "{x:.4}"),
            ReasonValue::Text(text) => f.write_str(text),
        }
    }
}

impl From<f64> for ReasonValue {
    fn from(number: f64) -> Self {
        ReasonValue::Number(number)
    }
}

impl From<u32> for ReasonValue {
    fn from(count: u32) -> Self {
        ReasonValue::Count(count.into())
    }
}

impl From<u64> for ReasonValue {
    fn from(count: u64) -> Self {
        ReasonValue::Count(count)
    }
}

impl From<&str> for ReasonValue {
    fn from(text: &str) -> Self {
        ReasonValue::Text(text.into())
    }
}

impl From<Nanos> for ReasonValue {
    fn from(time: Nanos) -> Self {
        ReasonValue::Text(time.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_round_trips_with_its_text_and_numbers() {
        let reason = Reason::new("relief", "relieves d1, which is throttled")
            .with("device", "d1")
            .with("load", 2.0)
            .with("requests", 7u64);
        let kept = serde_json::to_value(&reason).unwrap();
        let expected = serde_json::json!({
            "kind": "relief", "text": "relieves d1, which is throttled", "device": "d1", "load": 2.0, "requests": 7,
        });
        assert_eq!(kept, expected);
        assert_eq!(serde_json::from_value::<Reason>(kept).unwrap(), reason);
    }
}
