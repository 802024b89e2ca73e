//! Why something is to be done: a kind and its numbers for programs, a text for people.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

/// Why a plan has an action.
///
/// Whoever has a reason makes it, in its own file: nothing here knows the strategies. Kinds and names of values are what programs
/// read, so they stay what they are; texts may change.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// What kind of reason, in lower case with hyphens.
    kind: Cow<'static, str>,
    /// For people; empty in records from before it was kept.
    #[serde(default)]
    text: Cow<'static, str>,
    /// Its numbers and names.
    #[serde(flatten)]
    values: BTreeMap<Cow<'static, str>, ReasonValue>,
}

/// A number or a name in a reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ReasonValue {
    /// How many.
    Count(u64),
    /// Any other number.
    Number(f64),
    /// A name, or a quantity with its unit.
    Text(String),
}

impl Reason {
    /// Of this kind, with this text.
    pub fn new(kind: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: kind.into(),
            text: text.into(),
            values: BTreeMap::new(),
        }
    }

    /// The operator pinned the volume to the target tier.
    pub fn pinned() -> Self {
        Self::new("pinned", "pinned to the target tier")
    }

    /// The same with a value more. `kind` and `text` are no names for one.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<ReasonValue>) -> Self {
        debug_assert!(!["kind", "text"].contains(&name), "these are taken");
        self.values.insert(name.into(), value.into());
        self
    }

    /// Its kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// One of its values.
    pub fn value(&self, name: &str) -> Option<&ReasonValue> {
        self.values.get(name)
    }

    /// One of its numbers.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.value(name)? {
            ReasonValue::Count(n) => Some(*n as f64),
            ReasonValue::Number(x) => Some(*x),
            ReasonValue::Text(_) => None,
        }
    }
}

/// The same kind with the same values; how that is put in words is another matter.
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
    fn what_is_kept_is_what_was_said() {
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

    #[test]
    fn one_that_was_kept_without_a_text_loses_nothing() {
        let kept = r#"{"kind":"hot-extents","period":"5m","requests":12}"#;
        let reason: Reason = serde_json::from_str(kept).unwrap();
        assert_eq!(reason.kind(), "hot-extents");
        assert_eq!(reason.number("requests"), Some(12.0));
        assert_eq!(reason.to_string(), "hot extents: period 5m, requests 12");
        let kept = r#"{"kind":"better-match","rank":1,"score":0.5,"score_here":0.25}"#;
        let reason: Reason = serde_json::from_str(kept).unwrap();
        let text = "better match: rank 1, score 0.5000, score here 0.2500";
        assert_eq!(reason.to_string(), text);
        assert!(serde_json::from_str::<Reason>(r#"{"rank":1}"#).is_err());
        assert!(serde_json::from_str::<Reason>(r#"{"kind":"relief","load":[1]}"#).is_err());
    }
}
