//! Parser of scenarios.

use config::scenario::Scenario;
use config::{Text, parameters, strategy};
use serde_json::Value;

use crate::ScenarioError;

/// Scenario with its text, so later errors can name their line.
#[derive(Debug, Clone)]
pub struct ScenarioFile {
    /// Parsed scenario.
    pub scenario: Scenario,
    /// Text of the file.
    pub source: Text,
}

impl ScenarioFile {
    /// Parses the text of `file`.
    ///
    /// # Errors
    /// Invalid TOML, unknown keys, invalid values, and a name that is not a valid directory name.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let (mut scenario, source) = config::read::<Scenario>(file, text)?;
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
                "{name:?} cannot name a directory of results: use letters, digits, - _ . + and blanks, at most 100 bytes, and not \"latest\""
            );
            return Err(source.fault("name", why));
        }
        if scenario.tiers.is_empty() && scenario.counting.is_none() {
            return Err(source.fault(
                "tiers",
                "missing field: a simulated array needs at least one tier",
            ));
        }
        Ok(Self { scenario, source })
    }

    /// Returns an error at `key`, with its line.
    pub fn fault(&self, key: &str, why: impl ToString) -> ScenarioError {
        self.source.fault(key, why)
    }

    /// Returns the strategy of a name in the scenario, with its parameters (null for the defaults).
    ///
    /// # Errors
    /// Unknown name of a strategy.
    pub fn parameters(&self, name: &str) -> Result<(String, Value), ScenarioError> {
        parameters(&self.source, &self.scenario.strategies, name)
    }

    /// Returns the strategy of a name, with the scenario's parameters for it.
    ///
    /// # Errors
    /// A name that is neither a strategy nor defined in the scenario. Parameters that are invalid, or do not fit the
    /// scenario's epochs and tiers.
    pub fn strategy(&self, name: &str) -> Result<Box<dyn planner::AnyStrategy>, ScenarioError> {
        let epochs = self.scenario.policy.epochs();
        let tiers = self.scenario.tiers.iter().map(|t| t.name.clone());
        let tiers: Vec<String> = tiers.collect();
        let strategies = &self.scenario.strategies;
        strategy(&self.source, strategies, name, &epochs, Some(&tiers))
    }
}

/// JSON schema of scenario files.
pub fn scenario_schema() -> Value {
    schemars::schema_for!(Scenario).to_value()
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
    fn minimal_scenario_has_defaults() {
        let file = ScenarioFile::parse("dir/x.toml", MINIMAL).unwrap();
        assert_eq!(file.scenario.name, "x");
        assert_eq!(file.scenario.strategy, "terrace");
        assert_eq!(
            file.scenario.compare,
            ["noop", "static", "idt", "edt", "autotiering", "terrace"]
        );
    }

    #[test]
    fn faults_name_file_line_key_and_a_suggestion() {
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
    fn later_fault_is_located_at_its_line() {
        let file = ScenarioFile::parse("x.toml", MINIMAL).unwrap();
        assert_eq!(file.fault("volumes[0].size", "too large").line, Some(8));
        assert_eq!(file.fault("volumes[0].nothing", "odd").line, Some(6));
        assert_eq!(file.fault("nothing", "odd").line, None);
    }
}
