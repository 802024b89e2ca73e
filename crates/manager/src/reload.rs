//! A configuration that is read anew while the controller runs: what cannot change so, and what has changed.

use config::ConfigFault;
use serde_json::Value;

use crate::settings::{ManagerConfig, Settings};

/// What is opened or agreed upon at a start. The rest takes effect with the next answer, window or decision.
const FIXED: [&str; 11] = [
    "window",
    "array",
    "libvirt",
    "qemu",
    "lend",
    "controller.state",
    "controller.socket",
    "controller.listen",
    "controller.raw",
    "controller.rolled",
    "controller.record",
];

impl Settings {
    /// Whether a controller that runs with `now` can take these.
    ///
    /// # Errors
    /// With file, line and key of what only a restart can change.
    pub fn check_reload(&self, now: &Settings) -> Result<(), ConfigFault> {
        let (old, new) = (plain(&now.words), plain(&self.words));
        for key in FIXED {
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

    /// Keys with other values than `before`, lists of named things by their names.
    pub fn changed_since(&self, before: &Settings) -> Vec<String> {
        let mut changed = Vec::new();
        let (old, new) = (plain(&before.words), plain(&self.words));
        differences("", &by_name(old), &by_name(new), &mut changed);
        changed
    }
}

fn plain(words: &ManagerConfig) -> Value {
    serde_json::to_value(words).expect("it is plain data")
}

/// Lists of things with names as tables.
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
