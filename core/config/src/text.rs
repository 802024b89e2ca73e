//! Reader of configuration files. Errors name the file, line, key and reason.

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, IntoDeserializer};
use thiserror::Error;
use toml_edit::{Document, Item};

use crate::ValueError;
use crate::strategies::{STRATEGIES, check_strategies};
use crate::unknown::{check_keys, check_keys_at};

/// Error in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{}{}: {why}", .file, .line.map(|l| format!(":{l}")).unwrap_or_default(), key_part(.key))]
pub struct ConfigFault {
    /// Name of the file.
    pub file: String,
    /// Line, counted from 1; `None` if it is unknown.
    pub line: Option<usize>,
    /// Key, such as `volumes[2].size`; empty for errors of the whole file.
    pub key: String,
    /// Reason.
    pub why: String,
}

fn key_part(key: &str) -> String {
    if key.is_empty() {
        String::new()
    } else {
        format!(": {key}")
    }
}

/// Text of a file, kept to find the lines of later errors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    /// Name of the file, as the user wrote it.
    pub file: String,
    /// Content of the file.
    pub text: String,
}

/// Parses the text of `file`, and returns the configuration with its text.
///
/// If `T` has a table `strategies`, its parameters are checked against the schemas of the strategies.
///
/// # Errors
/// Text that is not TOML, unknown keys, and values of the wrong type.
pub fn read<T: DeserializeOwned + JsonSchema>(
    file: &str,
    text: &str,
) -> Result<(T, Text), ConfigFault> {
    let source = Text {
        file: file.into(),
        text: text.into(),
    };
    let document = Document::parse(text)
        .map_err(|e| source.fault_from(e.span().map(|s| s.start), "", e.message()))?;
    let schema = schemars::schema_for!(T).to_value();
    check_characters(&source, "", document.as_item())?;
    check_keys(&source, document.as_item(), &schema)?;
    if schema
        .pointer(&format!("/properties/{STRATEGIES}"))
        .is_some()
    {
        check_strategies(&source, &document)?;
    }
    let words = toml_edit::de::from_str(text).map_err(|e: toml_edit::de::Error| {
        source.fault_from(e.span().map(|s| s.start), "", e.message())
    })?;
    Ok((words, source))
}

/// Reads one table of a file, whose owner alone knows its keys, and which [`read`] left unchecked.
///
/// # Errors
/// Unknown keys, and values of the wrong type.
pub fn table<T: DeserializeOwned + JsonSchema>(text: &Text, name: &str) -> Result<T, ConfigFault> {
    let document = Document::parse(text.text.as_str())
        .map_err(|e| text.fault_from(e.span().map(|s| s.start), name, e.message()))?;
    let none = Item::Table(toml_edit::Table::new());
    let item = document.get(name).unwrap_or(&none);
    let schema = schemars::schema_for!(T).to_value();
    check_keys_at(text, item, &schema, name)?;
    let offset = item.span().map(|s| s.start);
    let value = item.clone().into_value();
    let value = value.map_err(|_| text.fault_from(offset, name, "must be a table"))?;
    T::deserialize(value.into_deserializer()).map_err(|e: toml_edit::de::Error| {
        let inside = e.span().map(|s| s.start);
        text.fault_from(inside.or(offset), name, e.message())
    })
}

/// Rejects keys and strings with control or invisible characters.
fn check_characters(text: &Text, key: &str, item: &Item) -> Result<(), ConfigFault> {
    let refuse = |why| text.fault_from(item.span().map(|s| s.start), key, why);
    if let Some(fault) = item.as_str().and_then(units::hidden_fault) {
        return Err(refuse(fault));
    }
    let inside = |name: &str| match key {
        "" => name.to_string(),
        key => format!("{key}.{name}"),
    };
    if let Some(table) = item.as_table_like() {
        for (name, item) in table.iter() {
            if let Some(fault) = units::hidden_fault(name) {
                return Err(refuse(format!(
                    "the key \"{}\" {fault}",
                    units::shown(name)
                )));
            }
            check_characters(text, &inside(name), item)?;
        }
    }
    let arrays = [
        item.as_array().map(toml_edit::Array::len),
        item.as_array_of_tables().map(toml_edit::ArrayOfTables::len),
    ];
    for i in 0..arrays.into_iter().flatten().sum() {
        if let Some(element) = item.get(i) {
            check_characters(text, &format!("{key}[{i}]"), element)?;
        }
    }
    Ok(())
}

impl Text {
    /// Returns an error at `key`, with the line of the key or of the nearest key above it.
    pub fn fault(&self, key: &str, why: impl ToString) -> ConfigFault {
        let document = Document::parse(self.text.as_str()).ok();
        let offset = document.and_then(|d| find_key(d.as_item(), key).nearest);
        self.fault_from(offset, key, why)
    }

    /// Returns the line of `key`, counted from 1, or `None` if the file omits the key.
    pub fn line_of(&self, key: &str) -> Option<usize> {
        let document = Document::parse(self.text.as_str()).ok()?;
        let offset = find_key(document.as_item(), key).exact?;
        Some(self.line_at(offset))
    }

    /// Returns an error at an offset of the text, if one is known.
    pub(crate) fn fault_from(
        &self,
        offset: Option<usize>,
        key: &str,
        why: impl ToString,
    ) -> ConfigFault {
        ConfigFault {
            file: self.file.clone(),
            line: offset.map(|o| self.line_at(o)),
            key: key.into(),
            why: why.to_string(),
        }
    }

    pub(crate) fn line_at(&self, offset: usize) -> usize {
        self.text.as_bytes()[..offset.min(self.text.len())]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
            + 1
    }
}

/// Place of a key, as offsets of its value.
struct Place {
    /// Offset of the key's value; `None` if the file omits the key.
    exact: Option<usize>,
    /// Offset of the key's value, or of the nearest key above it.
    nearest: Option<usize>,
}

/// Finds a key such as `volumes[2].size`.
fn find_key(root: &Item, key: &str) -> Place {
    let mut item = root;
    let mut nearest = None;
    let mut whole = true;
    for part in key.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<usize>().ok()),
            None => (part, None),
        };
        let Some(next) = item.get(name) else {
            whole = false;
            break;
        };
        item = next;
        let element = index.and_then(|i| item.get(i));
        whole &= index.is_none() || element.is_some();
        item = element.unwrap_or(item);
        nearest = item.span().map(|s| s.start).or(nearest);
    }
    let exact = item.span().map(|s| s.start).filter(|_| whole);
    Place { exact, nearest }
}

/// Returns the top-level keys of a file in their order; none if the text is not TOML.
pub fn root_keys(text: &str) -> Vec<String> {
    let document = Document::parse(text).ok();
    let keys = document.iter().flat_map(|d| d.iter());
    keys.map(|(key, _)| key.to_owned()).collect()
}

/// Returns the text with only these top-level keys; `None` if it is not TOML.
pub fn only(text: &str, keys: &[&str]) -> Option<String> {
    let mut document: toml_edit::DocumentMut = text.parse().ok()?;
    document.retain(|key, _| keys.contains(&key));
    Some(document.to_string())
}

/// Writes a configuration as TOML.
///
/// # Errors
/// [`ValueError::Toml`] for a value that TOML cannot represent, such as null in a list.
pub fn write<T: serde::Serialize>(words: &T) -> Result<String, ValueError> {
    toml_edit::ser::to_string_pretty(words).map_err(ValueError::toml)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PolicyConfig, TierConfig};
    use serde::Deserialize;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Words {
        tiers: Vec<TierConfig>,
        #[serde(default)]
        policy: PolicyConfig,
        #[serde(default)]
        strategies: crate::StrategyTables,
    }

    const FILE: &str = "[[tiers]]\nname = \"fast\"\npreset = \"pm953\"\n\n[policy]\nspace_high = 0.9\npins = { a = \"fast\" }\n";

    fn fault(text: &str) -> String {
        read::<Words>("x.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn line_of_a_key_is_known_if_the_file_contains_it() {
        let (words, text) = read::<Words>("x.toml", FILE).unwrap();
        assert_eq!(words.tiers[0].name, "fast");
        assert_eq!(words.policy.space_high, Some(0.9));
        assert!(words.strategies.is_empty());
        for (key, line) in [
            ("tiers[0].preset", Some(3)),
            ("policy", Some(5)),
            ("policy.space_high", Some(6)),
            ("policy.pins.a", Some(7)),
            ("policy.hold", None),
            ("tiers[1].preset", None),
            ("tiers[0].preset.more", None),
            ("nothing", None),
        ] {
            assert_eq!(text.line_of(key), line, "{key}");
        }
        // An error uses the line of the nearest key above.
        assert_eq!(text.fault("policy.hold", "odd").line, Some(5));
        assert_eq!(text.fault("nothing", "odd").line, None);
    }

    #[test]
    fn keys_at_the_root_are_listed() {
        assert_eq!(root_keys(FILE), ["tiers", "policy"]);
        assert!(root_keys("").is_empty());
        assert!(root_keys("tiers = [").is_empty());
    }

    #[test]
    fn faults_name_file_line_and_key() {
        let typo = FILE.replace("space_high", "space_hihg");
        assert_eq!(
            fault(&typo),
            "x.toml:6: policy.space_hihg: unknown key, did you mean \"space_high\"?"
        );
        assert!(fault("tiers = [").starts_with("x.toml:1: "));
        let strategy = format!("{FILE}[strategies.mine]\nuses = \"edt\"\nmore = 1\n");
        assert!(
            fault(&strategy).starts_with("x.toml:10: strategies.mine.more: unknown key"),
            "{}",
            fault(&strategy)
        );
        let odd = format!("{FILE}[strategies.edd]\n");
        assert!(fault(&odd).starts_with("x.toml:8: strategies.edd: unknown strategy"));
    }
}
