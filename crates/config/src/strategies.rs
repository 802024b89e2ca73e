//! The table `strategies`: parameters of strategies, by names of the user's own.

use std::collections::BTreeMap;

use model::Epochs;
use planner::{AnyStrategy, ConfigError};
use serde_json::Value;
use toml_edit::{Document, Item};

use crate::unknown::check_keys_at;
use crate::{ConfigFault, Text};

/// Parameters of strategies, by name. Another name may be given to a strategy with other parameters by its key `uses`:
/// `[strategies.literal] uses = "autotiering"`.
pub type StrategyTables = BTreeMap<String, Value>;

/// The key of the table.
pub(crate) const STRATEGIES: &str = "strategies";
/// The key of a strategy's parameters that names the strategy, where the table's name is another.
const USES: &str = "uses";

/// Refuses strategies and parameters that there are not: strategies have schemas of their own.
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

/// Which strategy goes by that name, and its parameters (null without any).
///
/// # Errors
/// If the name of the strategy is none.
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
            Err(text.fault(&key, "is the name of a strategy"))
        }
    }
}

/// The strategy of that name with the file's parameters for it.
///
/// # Errors
/// A name that is neither a strategy's nor one that the file gives to one; parameters that make no sense, or not with
/// these decision intervals, nor, where they are known, with these tiers.
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
