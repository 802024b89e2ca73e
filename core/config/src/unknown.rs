//! Detection of unknown keys and names, with suggestions.

use serde_json::Value;
use toml_edit::Item;

use crate::{ConfigFault, Text, ValueError};

/// Rejects keys below `item` that the schema does not list. `deny_unknown_fields` would reject them too, but
/// without a suggestion.
pub(crate) fn check_keys(text: &Text, item: &Item, schema: &Value) -> Result<(), ConfigFault> {
    check_keys_at(text, item, schema, "")
}

/// Like [`check_keys`], for the part of the file at the key `at`.
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
        Some(UnknownKey { key, offset, why }) => Err(text.fault_from(offset, &key, why)),
    }
}

struct UnknownKey {
    key: String,
    offset: Option<usize>,
    why: String,
}

/// Finds the first key below `item` that `schema` does not list.
fn walk(item: &Item, schema: &Value, root: &Value, at: &str, found: &mut Option<UnknownKey>) {
    let schema = resolve(schema, root);
    if found.is_some() {
        return;
    }
    if let Some(table) = item.as_table_like() {
        let none = serde_json::Map::new();
        let more = schema.get("additionalProperties");
        let closed = more == Some(&Value::Bool(false));
        let open = more == Some(&Value::Bool(true));
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
                // Tables with keys of their own, which their user checks (`table`).
                None if open && value.is_table_like() => {}
                None => {
                    let offset = value.span().map(|s| s.start);
                    let why = format!(
                        "unknown key{}",
                        suggestion(key, properties.keys().map(String::as_str))
                    );
                    *found = Some(UnknownKey {
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

/// Checks the values of a map with user-defined names, if the schema restricts them.
fn walk_named(item: &Item, schema: &Value, root: &Value, at: &str, found: &mut Option<UnknownKey>) {
    let below = schema.get("additionalProperties").filter(|s| s.is_object());
    let (Some(table), Some(below)) = (item.as_table_like(), below) else {
        return;
    };
    for (name, value) in table.iter() {
        walk(value, below, root, &format!("{at}.{name}"), found);
    }
}

/// Follows references, and skips the null variant of optional values.
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

/// Returns `, did you mean "x"?`, or the list of valid names.
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
        _ if known.is_empty() => ": none is defined".into(),
        _ => format!("; known: {}", known.join(", ")),
    }
}

/// Returns the position of `name` in `known`.
///
/// # Errors
/// [`ValueError::UnknownName`] with a suggestion.
pub fn find<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, ValueError> {
    known
        .clone()
        .position(|k| k == name)
        .ok_or_else(|| ValueError::UnknownName {
            name: name.into(),
            suggestion: suggestion(name, known),
        })
}
