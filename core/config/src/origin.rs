//! Output of a configuration as text, with the origin of each value.

use serde::Serialize;
use toml_edit::{Document, DocumentMut, Item, TableLike, Value};

use crate::{Text, ValueError};

/// Writes a configuration as TOML, with `# FILE:LINE` after each value that `text` sets, and `# default` after the
/// others.
///
/// # Errors
/// [`ValueError::Toml`] for a value that TOML cannot represent, such as null in a list.
pub fn write_with_origin<T: Serialize>(words: &T, text: &Text) -> Result<String, ValueError> {
    let mut document: DocumentMut = crate::write(words)?.parse().map_err(ValueError::toml)?;
    let given = Document::parse(text.text.as_str()).map_err(ValueError::toml)?;
    mark_table(document.as_table_mut(), Some(given.as_item()), text);
    Ok(document.to_string())
}

fn mark_table(table: &mut dyn TableLike, given: Option<&Item>, text: &Text) {
    for (key, item) in table.iter_mut() {
        let given = given.and_then(|g| g.get(key.get()));
        match item {
            Item::None => {}
            Item::Table(table) => mark_table(table, given, text),
            Item::ArrayOfTables(tables) => {
                for (i, table) in tables.iter_mut().enumerate() {
                    mark_table(table, given.and_then(|g| g.get(i)), text);
                }
            }
            Item::Value(value) => mark_value(value, given, text),
        }
    }
}

fn mark_value(value: &mut Value, given: Option<&Item>, text: &Text) {
    let offset = given.and_then(Item::span).map(|s| s.start);
    let origin = match offset {
        Some(offset) => format!("{}:{}", text.file, text.line_at(offset)),
        None => "default".into(),
    };
    // A file name may contain line breaks, which would end the comment.
    let origin = units::shown(&origin);
    value.decor_mut().set_suffix(format!("  # {origin}"));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::{PolicyConfig, TierConfig};

    #[derive(Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Words {
        #[serde(default)]
        seed: u64,
        tiers: Vec<TierConfig>,
        #[serde(default)]
        policy: PolicyConfig,
        #[serde(default)]
        sizes: BTreeMap<String, Vec<u32>>,
    }

    const FILE: &str = "[[tiers]]\nname = \"fast\"\npreset = \"pm953\"\n\n[policy]\nspace_high = 0.9\npins = { \"a.b\" = \"fast\" }\n\n[sizes]\nx = [\n  1,\n  2,\n]\n";

    #[test]
    fn each_value_is_shown_with_its_origin() {
        let (words, text) = crate::read::<Words>("x.toml", FILE).unwrap();
        let shown = write_with_origin(&words, &text).unwrap();
        for line in [
            "seed = 0  # default",
            "name = \"fast\"  # x.toml:2",
            "preset = \"pm953\"  # x.toml:3",
            "space_high = 0.9  # x.toml:6",
            // A quoted key with a dot is one key.
            "\"a.b\" = \"fast\"  # x.toml:7",
            "cordon = []  # default",
            "]  # x.toml:10",
        ] {
            assert!(shown.lines().any(|l| l == line), "{line}: {shown}");
        }
    }

    #[test]
    fn shown_configuration_can_be_read_again() {
        let (words, text) = crate::read::<Words>("a\nb.toml", FILE).unwrap();
        let shown = write_with_origin(&words, &text).unwrap();
        let (again, _) = crate::read::<Words>("y.toml", &shown).unwrap_or_else(|e| panic!("{e}"));
        let json = |w: &Words| serde_json::to_value(w).unwrap();
        assert_eq!(json(&words), json(&again));
    }
}
