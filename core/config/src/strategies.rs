//! The table `strategies`: parameters of strategies, under names of the user's choice.

use std::collections::BTreeMap;

use model::Epochs;
use planner::{AnyStrategy, ConfigError};
use serde_json::Value;
use toml_edit::{Document, Item};

use crate::unknown::check_keys_at;
use crate::{ConfigFault, Text};

/// Parameters of strategies, by name of the strategy. The key `uses` gives another name to a strategy with other
/// parameters: `[strategies.literal] uses = "autotiering"`.
pub type StrategyTables = BTreeMap<String, Value>;

/// Key of the table.
pub(crate) const STRATEGIES: &str = "strategies";
/// Key that names the strategy of a table, if the table has another name.
const USES: &str = "uses";

/// Rejects unknown strategies and unknown parameters: each strategy has its own schema.
pub(crate) fn check_strategies(text: &Text, document: &Document<&str>) -> Result<(), ConfigFault> {
    let tables = document.get(STRATEGIES).and_then(|s| s.as_table_like());
    for (name, item) in tables.into_iter().flat_map(|t| t.iter()) {
        let at = format!("{STRATEGIES}.{name}");
        let uses = item.get(USES).and_then(Item::as_str);
        let entry = planner::find(uses.unwrap_or(name))
            .map_err(|e| text.fault_from(item.span().map(|s| s.start), &at, e.to_string()))?;
        let mut schema = (entry.schema)();
        // A strategy without parameters has no properties at all.
        schema["properties"][USES] = serde_json::json!({ "type": "string" });
        check_keys_at(text, item, &schema, &at)?;
    }
    Ok(())
}

/// Returns the strategy of this name and its parameters (null without any).
///
/// # Errors
/// A value of `uses` that is not text.
pub fn parameters(
    text: &Text,
    tables: &StrategyTables,
    name: &str,
) -> Result<(String, Value), ConfigFault> {
    let mut config = tables.get(name).cloned().unwrap_or_default();
    match config.as_object_mut().and_then(|c| c.remove(USES)) {
        None => Ok((name.into(), config)),
        Some(Value::String(strategy)) => Ok((strategy, config)),
        Some(_) => {
            let key = format!("{STRATEGIES}.{name}.{USES}");
            Err(text.fault(&key, "must be the name of a strategy, as text"))
        }
    }
}

/// Builds the strategy of this name with the parameters of the file.
///
/// # Errors
/// An unknown name, or parameters that are invalid, also in combination with these decision intervals or, if known,
/// these tiers.
pub fn strategy(
    text: &Text,
    tables: &StrategyTables,
    name: &str,
    epochs: &Epochs,
    tiers: Option<&[String]>,
) -> Result<Box<dyn AnyStrategy>, ConfigFault> {
    let (strategy, config) = parameters(text, tables, name)?;
    let fault = |e: ConfigError| {
        let dot = if e.key.is_empty() { "" } else { "." };
        text.fault(&format!("{STRATEGIES}.{name}{dot}{}", e.key), e.why)
    };
    let built = planner::build(&strategy, config).map_err(|e| match e {
        planner::BuildError::Unknown(e) => text.fault("strategy", e.to_string()),
        planner::BuildError::Config(e) => fault(e),
    })?;
    built.suits(epochs, tiers).map_err(fault)?;
    Ok(built)
}
