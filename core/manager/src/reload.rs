//! Reload of the configuration while the controller runs: checks for changes that need a restart,
//! and a list of changes.

use config::ConfigFault;
use serde_json::Value;

use crate::settings::{ManagerConfig, Settings};

/// Keys that are used only at the start. Other changes take effect with the next reply, window or
/// decision.
const FIXED: [&str; 9] = [
    "window",
    "array",
    "lend",
    "controller.state",
    "controller.socket",
    "controller.listen",
    "controller.raw",
    "controller.rolled",
    "controller.record",
];

impl Settings {
    /// Checks that a controller that runs with `now` can take over these settings.
    ///
    /// # Errors
    /// A change that needs a restart, with file, line and key.
    pub fn check_reload(&self, now: &Settings) -> Result<(), ConfigFault> {
        let (old, new) = (plain(&now.words), plain(&self.words));
        let platforms = now
            .words
            .platforms
            .keys()
            .chain(self.words.platforms.keys());
        for key in FIXED.into_iter().chain(platforms.map(String::as_str)) {
            let at = |of: &Value| {
                let path = format!("/{}", key.replace('.', "/"));
                of.pointer(&path).cloned()
            };
            let (before, after) = (at(&old), at(&new));
            if before == after {
                continue;
            }
            let why = format!(
                "cannot change without a restart: it is {} now",
                before
                    .filter(|v| !v.is_null())
                    .map_or("not set".into(), |v| v.to_string())
            );
            return Err(self.fault(key, why));
        }
        Ok(())
    }

    /// Returns the keys whose values differ from `before`. Entries of lists are compared by name.
    pub fn changed_since(&self, before: &Settings) -> Vec<String> {
        let mut changed = Vec::new();
        let (old, new) = (plain(&before.words), plain(&self.words));
        differences("", &by_name(old), &by_name(new), &mut changed);
        changed
    }
}

fn plain(words: &ManagerConfig) -> Value {
    serde_json::to_value(words).expect("a configuration is plain data")
}

/// Converts lists of named entries to tables.
fn by_name(value: Value) -> Value {
    match value {
        Value::Object(map) => map.into_iter().map(|(k, v)| (k, by_name(v))).collect(),
        Value::Array(list) if list.iter().all(|v| v["name"].is_string()) => {
            let named = list.into_iter().map(|v| {
                let name = v["name"].as_str().unwrap_or_default().to_owned();
                (name, by_name(v))
            });
            named.collect()
        }
        other => other,
    }
}

fn differences(at: &str, old: &Value, new: &Value, into: &mut Vec<String>) {
    if old == new {
        return;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        into.push(at.into());
        return;
    };
    let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let path = match at {
            "" => key.clone(),
            at => format!("{at}.{key}"),
        };
        let of =
            |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
        differences(&path, &of(before), &of(after), into);
    }
}
