//! Reading a scenario: errors name the file, the line, the key and the reason, and guess what was meant.

use serde_json::Value;
use thiserror::Error;
use toml_edit::{Document, Item};

use crate::Scenario;

/// A fault in a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{}{}: {why}", .file, .line.map(|l| format!(":{l}")).unwrap_or_default(), key_part(.key))]
pub struct ScenarioError {
    /// The file.
    pub file: String,
    /// The line, from 1, where it is known.
    pub line: Option<usize>,
    /// The key, such as `volumes[2].size`; empty for the whole file.
    pub key: String,
    /// What is wrong.
    pub why: String,
}

fn key_part(key: &str) -> String {
    if key.is_empty() {
        String::new()
    } else {
        format!(": {key}")
    }
}

/// A scenario with its text, so that later faults can name their line too.
#[derive(Debug, Clone)]
pub struct ScenarioFile {
    /// Name of the file, as the user wrote it.
    pub file: String,
    /// The words of the file.
    pub scenario: Scenario,
    /// The text.
    pub text: String,
}

impl ScenarioFile {
    /// Parses the text of `file`.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let document = Document::parse(text).map_err(|e| {
            let line = e.span().map(|s| line_of(text, s.start));
            ScenarioError {
                file: file.into(),
                line,
                key: String::new(),
                why: e.message().into(),
            }
        })?;
        check_keys(file, text, &document)?;
        let mut scenario: Scenario =
            toml_edit::de::from_str(text).map_err(|e: toml_edit::de::Error| {
                let line = e.span().map(|s| line_of(text, s.start));
                ScenarioError {
                    file: file.into(),
                    line,
                    key: String::new(),
                    why: e.message().into(),
                }
            })?;
        if scenario.name.is_empty() {
            let stem = file.rsplit(['/', '\\']).next().unwrap_or(file);
            scenario.name = stem.strip_suffix(".toml").unwrap_or(stem).into();
        }
        let plain = |c: char| c.is_alphanumeric() || "-_. +".contains(c);
        let name = scenario.name.as_str();
        if name.len() > 100
            || !name.chars().all(plain)
            || name.trim() != name
            || name.is_empty()
            || name.starts_with('.')
            || name == "latest"
        {
            let why = format!(
                "{name:?} cannot name a directory of results: letters, digits, - _ . + and blanks, up to 100 bytes, not \"latest\""
            );
            return Err(ScenarioError {
                file: file.into(),
                line: None,
                key: "name".into(),
                why,
            });
        }
        Ok(Self {
            file: file.into(),
            scenario,
            text: text.into(),
        })
    }

    /// A fault at `key`, with its line.
    pub fn fault(&self, key: &str, why: impl Into<String>) -> ScenarioError {
        let line = Document::parse(self.text.as_str())
            .ok()
            .and_then(|d| span_of(d.as_item(), key))
            .map(|start| line_of(&self.text, start));
        ScenarioError {
            file: self.file.clone(),
            line,
            key: key.into(),
            why: why.into(),
        }
    }
}

/// The key of a strategy's parameters that names the strategy, where the table's name is another.
const USES: &str = "uses";

impl ScenarioFile {
    /// Which strategy goes by that name, and its parameters (null without any).
    ///
    /// # Errors
    /// If the name of the strategy is none.
    pub fn parameters(&self, name: &str) -> Result<(String, Value), ScenarioError> {
        let config = self.scenario.strategies.get(name).cloned();
        let mut config = config.unwrap_or_default();
        match config.as_object_mut().and_then(|c| c.remove(USES)) {
            None => Ok((name.into(), config)),
            Some(Value::String(strategy)) => Ok((strategy, config)),
            Some(_) => {
                let key = format!("strategies.{name}.{USES}");
                Err(self.fault(&key, "is the name of a strategy"))
            }
        }
    }

    /// The strategy of that name with the scenario's parameters for it.
    ///
    /// # Errors
    /// A name that is neither a strategy's nor one that the scenario gives to one; parameters that make no sense.
    pub fn strategy(&self, name: &str) -> Result<Box<dyn planner::AnyStrategy>, ScenarioError> {
        let (strategy, config) = self.parameters(name)?;
        planner::build(&strategy, config).map_err(|e| match e {
            planner::BuildError::Unknown(e) => self.fault("strategy", e.to_string()),
            planner::BuildError::Config(e) => {
                let dot = if e.key.is_empty() { "" } else { "." };
                self.fault(&format!("strategies.{name}{dot}{}", e.key), e.why)
            }
        })
    }
}

/// JSON schema of scenario files.
pub fn scenario_schema() -> Value {
    schemars::schema_for!(Scenario).to_value()
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())]
        .iter()
        .filter(|b| **b == b'\n')
        .count()
        + 1
}

/// Offset of the value at a key such as `volumes[2].size`, or of the nearest one above it.
fn span_of(root: &Item, key: &str) -> Option<usize> {
    let mut item = root;
    let mut start = None;
    for part in key.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<usize>().ok()),
            None => (part, None),
        };
        let Some(next) = item.get(name) else { break };
        item = next;
        if let Some(next) = index.and_then(|i| item.get(i)) {
            item = next;
        }
        start = item.span().map(|s| s.start).or(start);
    }
    start
}

/// Refuses keys that the schema does not know. `deny_unknown_fields` would too, but could not say what was meant.
fn check_keys(file: &str, text: &str, document: &Document<&str>) -> Result<(), ScenarioError> {
    let schema = scenario_schema();
    let mut found = None;
    walk(document.as_item(), &schema, &schema, "", &mut found);
    if found.is_none() {
        // Parameters of strategies have schemas of their own.
        let strategies = document.get("strategies").and_then(|s| s.as_table_like());
        for (name, item) in strategies.into_iter().flat_map(|t| t.iter()) {
            let at = format!("strategies.{name}");
            let uses = item.get(USES).and_then(Item::as_str);
            match planner::find(uses.unwrap_or(name)) {
                Ok(entry) => {
                    let mut schema = (entry.schema)();
                    // A strategy without parameters has no properties at all.
                    schema["properties"][USES] = serde_json::json!({ "type": "string" });
                    walk(item, &schema, &schema, &at, &mut found);
                }
                Err(e) => {
                    let line = item.span().map(|s| line_of(text, s.start));
                    return Err(ScenarioError {
                        file: file.into(),
                        line,
                        key: at,
                        why: e.to_string(),
                    });
                }
            }
        }
    }
    match found {
        None => Ok(()),
        Some(Unknown { key, offset, why }) => Err(ScenarioError {
            file: file.into(),
            line: offset.map(|o| line_of(text, o)),
            key,
            why,
        }),
    }
}

struct Unknown {
    key: String,
    offset: Option<usize>,
    why: String,
}

/// The first key below `item` that `schema` does not list.
fn walk(item: &Item, schema: &Value, root: &Value, at: &str, found: &mut Option<Unknown>) {
    let schema = resolve(schema, root);
    if found.is_some() {
        return;
    }
    if let Some(table) = item.as_table_like() {
        let none = serde_json::Map::new();
        let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        let properties = match schema.get("properties").and_then(Value::as_object) {
            Some(properties) => properties,
            None if closed => &none,
            None => return, // a map with names of the user's own
        };
        for (key, value) in table.iter() {
            let here = if at.is_empty() {
                key.to_string()
            } else {
                format!("{at}.{key}")
            };
            match properties.get(key) {
                Some(below) => walk(value, below, root, &here, found),
                None => {
                    let offset = value.span().map(|s| s.start);
                    let why = format!(
                        "unknown key{}",
                        suggestion(key, properties.keys().map(String::as_str))
                    );
                    *found = Some(Unknown {
                        key: here,
                        offset,
                        why,
                    });
                }
            }
            if found.is_some() {
                return;
            }
        }
    } else if let Some(below) = schema.get("items") {
        let tables = item
            .as_array_of_tables()
            .map(|a| a.iter().map(|t| Item::Table(t.clone())).collect());
        let values = || {
            item.as_array()
                .map(|a| a.iter().map(|v| Item::Value(v.clone())).collect())
        };
        let elements: Vec<Item> = tables.or_else(values).unwrap_or_default();
        for (i, element) in elements.iter().enumerate() {
            walk(element, below, root, &format!("{at}[{i}]"), found);
        }
    }
}

/// Follows references, and looks through "or null".
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(reference.trim_start_matches('#'));
        return target.map_or(schema, |t| resolve(t, root));
    }
    let some = schema
        .get("anyOf")
        .and_then(Value::as_array)
        .and_then(|list| {
            list.iter()
                .find(|s| s.get("type").and_then(Value::as_str) != Some("null"))
        });
    some.map_or(schema, |s| resolve(s, root))
}

/// `, did you mean "x"?` and what is known.
pub(crate) fn suggestion<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let near = known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(k, given), *k))
        .min();
    match near {
        Some((distance, name)) if distance <= 2.max(given.len() / 3) => {
            format!(", did you mean \"{name}\"?")
        }
        _ if known.is_empty() => ": there is none".into(),
        _ => format!("; known: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"
duration = "1m"
[[tiers]]
name = "fast"
preset = "pm953"
[[volumes]]
name = "a"
size = "1 GiB"
"#;

    fn fault(text: &str) -> String {
        ScenarioFile::parse("x.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn a_minimal_scenario_has_defaults() {
        let file = ScenarioFile::parse("dir/x.toml", MINIMAL).unwrap();
        assert_eq!(file.scenario.name, "x");
        assert_eq!(
            file.scenario.compare,
            ["noop", "static", "idt", "edt", "autotiering"]
        );
    }

    #[test]
    fn faults_name_file_line_key_and_what_was_meant() {
        let typo = MINIMAL.replace("size =", "siez =");
        assert_eq!(
            fault(&typo),
            "x.toml:8: volumes[0].siez: unknown key, did you mean \"size\"?"
        );
        let unit = MINIMAL.replace("1 GiB", "1");
        let text = fault(&unit);
        assert!(
            text.starts_with("x.toml:8: ") && text.contains("no unit"),
            "{text}"
        );
        let bare = MINIMAL.replace("\"1m\"", "60");
        assert!(fault(&bare).contains("with its unit"), "{}", fault(&bare));
        let nested =
            format!("{MINIMAL}[[clients]]\nvolume = \"a\"\nhabits = {{ outstandin = 3 }}\n");
        assert_eq!(
            fault(&nested),
            "x.toml:11: clients[0].habits.outstandin: unknown key, did you mean \"outstanding\"?"
        );
        for entry in planner::REGISTRY {
            let text = format!("{MINIMAL}[strategies.mine]\nuses = \"{}\"\n", entry.name);
            let file = ScenarioFile::parse("x.toml", &text).unwrap();
            assert_eq!(file.strategy("mine").unwrap().name(), entry.name);
        }
        let strategy = format!("{MINIMAL}[strategies.autotiering]\nagin = 0.5\n");
        assert_eq!(
            fault(&strategy),
            "x.toml:10: strategies.autotiering.agin: unknown key, did you mean \"aging\"?"
        );
        let unknown = format!("{MINIMAL}[strategies.autotierin]\naging = 0.5\n");
        assert!(
            fault(&unknown).contains("did you mean \"autotiering\"?"),
            "{}",
            fault(&unknown)
        );
        assert!(fault("tiers = [").starts_with("x.toml:1: "));
        assert!(fault("").contains("missing field"), "{}", fault(""));
    }

    #[test]
    fn a_fault_found_later_finds_its_line() {
        let file = ScenarioFile::parse("x.toml", MINIMAL).unwrap();
        assert_eq!(file.fault("volumes[0].size", "too large").line, Some(8));
        assert_eq!(file.fault("volumes[0].nothing", "odd").line, Some(6));
        assert_eq!(file.fault("nothing", "odd").line, None);
    }
}
