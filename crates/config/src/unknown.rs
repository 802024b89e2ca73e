//! Keys and names that nobody knows, and what was meant.

use serde_json::Value;
use toml_edit::Item;

use crate::{ConfigFault, Text};

/// Refuses keys below `item` that the schema does not know. `deny_unknown_fields` would too, but could not say what was
/// meant.
pub(crate) fn check_keys(text: &Text, item: &Item, schema: &Value) -> Result<(), ConfigFault> {
    check_keys_at(text, item, schema, "")
}

/// The same, of the part of the file that is at the key `at`.
pub(crate) fn check_keys_at(
    text: &Text,
    item: &Item,
    schema: &Value,
    at: &str,
) -> Result<(), ConfigFault> {
    let mut found = None;
    walk(item, schema, schema, at, &mut found);
    match found {
        None => Ok(()),
        Some(Unknown { key, offset, why }) => Err(text.fault_from(offset, &key, why)),
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
            None => return walk_named(item, schema, root, at, found),
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

/// The same of a map with names of the user's own, whose values are all alike, or free.
fn walk_named(item: &Item, schema: &Value, root: &Value, at: &str, found: &mut Option<Unknown>) {
    let below = schema.get("additionalProperties").filter(|s| s.is_object());
    let (Some(table), Some(below)) = (item.as_table_like(), below) else {
        return;
    };
    for (name, value) in table.iter() {
        walk(value, below, root, &format!("{at}.{name}"), found);
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
pub fn suggestion<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> String {
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

/// The position of `name` among the known ones, or that it is unknown and what was meant.
///
/// # Errors
/// If it is none of them; in words.
pub fn find<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Result<usize, String> {
    known
        .clone()
        .position(|k| k == name)
        .ok_or_else(|| format!("unknown name \"{name}\"{}", suggestion(name, known)))
}
