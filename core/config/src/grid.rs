//! Lists of values for keys of a file: the axes of a grid of runs.
//!
//! ```text
//!  policy.hold=1,2,4                         on a command line
//!  [grid]
//!  "policy.hold" = [1, 2, 4]                 in a file, or with tables for the parts of the key:
//!  policy.hold = [1, 2, 4]
//! ```
//!
//! This module does not check whether the file has such keys: see [`Text::with`].

use std::fmt;

use toml_edit::{Document, Item, TableLike, Value};

use crate::{ConfigFault, Text, ValueError};

/// Key, such as `policy.hold` or `tiers[fast].devices`, with the values that it takes in turn.
#[derive(Debug, Clone)]
pub struct Axis {
    /// Key in the file.
    pub key: String,
    /// Values of the key: at least one, all different.
    pub values: Vec<Setting>,
}

/// Value for a key.
#[derive(Debug, Clone)]
pub struct Setting {
    value: Value,
}

impl Setting {
    fn new(mut value: Value) -> Self {
        value.decor_mut().clear();
        Self { value }
    }

    /// Parses a value from a command line: TOML, or text without quotes.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        match text.parse::<Value>() {
            // No key takes a date; a name may look like one.
            Ok(Value::Datetime(_)) | Err(_) => Self::new(text.into()),
            Ok(value) => Self::new(value),
        }
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the value as JSON.
    pub fn json(&self) -> serde_json::Value {
        json(&self.value)
    }
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::String(s) => s.value().as_str().into(),
        Value::Integer(i) => (*i.value()).into(),
        Value::Float(f) => (*f.value()).into(),
        Value::Boolean(b) => (*b.value()).into(),
        Value::Datetime(d) => d.value().to_string().into(),
        Value::Array(a) => a.iter().map(json).collect(),
        Value::InlineTable(t) => t.iter().map(|(k, v)| (k.to_owned(), json(v))).collect(),
    }
}

/// Prints the value as on a command line.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::String(s) => f.pad(s.value()),
            other => f.pad(other.to_string().trim()),
        }
    }
}

impl Axis {
    /// Parses `KEY=VALUE,VALUE`. Commas within brackets, braces and quotes belong to the value.
    ///
    /// # Errors
    /// [`ValueError`] for text of another form, and for values that are listed twice.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let Some((key, list)) = text.split_once('=') else {
            return Err(ValueError::AxisForm(text.into()));
        };
        let values: Vec<&str> = split(list);
        if let Some(empty) = values.iter().position(|v| v.trim().is_empty()) {
            return Err(ValueError::EmptyValue {
                key: key.into(),
                number: empty + 1,
            });
        }
        let values = values.into_iter().map(Setting::parse).collect();
        Self::new(key.trim(), values)
    }

    fn new(key: &str, values: Vec<Setting>) -> Result<Self, ValueError> {
        if values.is_empty() {
            return Err(ValueError::NoValue(key.into()));
        }
        for (i, value) in values.iter().enumerate() {
            if values[..i].iter().any(|v| v.json() == value.json()) {
                let (key, value) = (key.into(), value.to_string());
                return Err(ValueError::Repeated { key, value });
            }
        }
        Ok(Self {
            key: key.into(),
            values,
        })
    }
}

/// Splits at commas that are not within brackets, braces or quotes.
fn split(list: &str) -> Vec<&str> {
    let (mut depth, mut quote, mut start) = (0i32, None, 0);
    let mut parts = Vec::new();
    for (i, c) in list.char_indices() {
        match (quote, c) {
            (Some(open), _) => quote = (c != open).then_some(open),
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(&list[start..i]);
                start = i + 1;
            }
            (None, _) => {}
        }
    }
    parts.push(&list[start..]);
    parts
}

/// Returns the axes in the table at the key `at`, in the file's order.
///
/// # Errors
/// Lists that are empty or repeat a value, and text that is not TOML.
pub fn axes(text: &Text, at: &str) -> Result<Vec<Axis>, ConfigFault> {
    let document = Document::parse(text.text.as_str())
        .map_err(|e| text.fault_from(e.span().map(|s| s.start), "", e.message()))?;
    let mut found = Vec::new();
    if let Some(table) = document.get(at).and_then(Item::as_table_like) {
        collect(text, at, "", table, &mut found)?;
    }
    Ok(found)
}

fn collect(
    text: &Text,
    at: &str,
    above: &str,
    table: &dyn TableLike,
    found: &mut Vec<Axis>,
) -> Result<(), ConfigFault> {
    for (name, item) in table.iter() {
        let key = match above {
            "" => name.to_owned(),
            above => format!("{above}.{name}"),
        };
        if let Some(below) = item.as_table_like() {
            collect(text, at, &key, below, found)?;
            continue;
        }
        let values = match item {
            Item::Value(Value::Array(list)) => list.iter().cloned().map(Setting::new).collect(),
            Item::Value(one) => vec![Setting::new(one.clone())],
            _ => vec![],
        };
        let place = item.span().map(|s| s.start);
        let axis = Axis::new(&key, values).map_err(|why| text.fault_from(place, at, why))?;
        found.push(axis);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(axis: &Axis) -> String {
        let values: Vec<String> = axis.values.iter().map(|v| v.json().to_string()).collect();
        format!("{}: {}", axis.key, values.join(" "))
    }

    #[test]
    fn axis_values_are_toml_or_unquoted_text() {
        for (text, expected) in [
            ("policy.hold=1,2", "policy.hold: 1 2"),
            ("a = 60s, 2m", r#"a: "60s" "2m""#),
            ("a=true,\"true\",0.5", r#"a: true "true" 0.5"#),
            ("a=[1,2],[]", "a: [1,2] []"),
            ("a={ x = 1, y = 2 },x=y", r#"a: {"x":1,"y":2} "x=y""#),
            ("a='p,q',2026-01-01", r#"a: "p,q" "2026-01-01""#),
        ] {
            assert_eq!(shown(&Axis::parse(text).unwrap()), expected);
        }
        for (text, why) in [
            (
                "policy.hold",
                "\"policy.hold\" does not have the form KEY=VALUE,VALUE",
            ),
            ("a=1,,2", "a: value 2 of the list is empty"),
            ("a=", "a: value 1 of the list is empty"),
            ("a=x,y,\"x\"", "a: x is listed twice"),
        ] {
            assert_eq!(Axis::parse(text).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn axes_of_a_file_are_in_file_order() {
        let text = Text {
            file: "s.toml".into(),
            text: "[grid]\n\"tiers[fast].devices\" = [2, 1]\npolicy.hold = [1, 2]\nextent = \"1 MiB\"\n\
                   [grid.policy.pins]\ndb = [\"fast\", \"slow\"]\n"
                .into(),
        };
        let shown: Vec<String> = axes(&text, "grid").unwrap().iter().map(shown).collect();
        assert_eq!(
            shown,
            [
                "tiers[fast].devices: 2 1",
                "policy.hold: 1 2",
                "policy.pins.db: \"fast\" \"slow\"",
                "extent: \"1 MiB\"",
            ]
        );
        assert!(axes(&text, "nothing").unwrap().is_empty());
        for (line, why) in [
            ("a = []", "s.toml:2: grid: a: at least one value is needed"),
            ("a = [1, 1]", "s.toml:2: grid: a: 1 is listed twice"),
            (
                "[[grid.a]]",
                "s.toml:2: grid: a: at least one value is needed",
            ),
        ] {
            let text = Text {
                file: "s.toml".into(),
                text: format!("[grid]\n{line}\n"),
            };
            assert_eq!(axes(&text, "grid").unwrap_err().to_string(), why);
        }
    }
}
