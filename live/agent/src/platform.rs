//! Platforms of virtual machines. A platform is a folder with its [`Keys`], and a line in [`PLATFORMS`].
//!
//! ```text
//!   [NAME] in a configuration ─▶ Keys ─open─▶ Host
//! ```

use std::path::Path;

use config::{ConfigFault, Text};
use manager::settings::ManagerConfig;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Result;
use crate::host::Host;
use crate::libvirt::LibvirtKeys;
use crate::machines::MachinesSettings;
use crate::proxmox::ProxmoxKeys;
use crate::qemu::QemuKeys;
use crate::survey::{Candidate, SurveyRequest};

/// Value of a configuration that cannot be used: its key, and the reason.
pub type KeyFault = (&'static str, String);

/// Keys of a platform's table in a configuration, and its constructor.
pub(crate) trait Keys: Serialize + DeserializeOwned + JsonSchema {
    /// Name of the table.
    const NAME: &'static str;

    /// Returns a description of the host, such as `virtual machines under libvirt`.
    fn title(&self) -> String;

    /// Opens the host; the host need not respond yet. Paths are relative to `base`.
    ///
    /// # Errors
    /// Values that cannot be used, with the key.
    fn open(self, base: &Path, settings: MachinesSettings) -> Result<Box<dyn Host>, KeyFault>;

    /// Checks the values that only the host can confirm, for `terrace config check`. Returns lines for the operator.
    ///
    /// # Errors
    /// The key that is at fault, and the reason.
    fn check(&self, _: &Path, _: &MachinesSettings) -> Result<Vec<String>, KeyFault> {
        Ok(vec![])
    }

    /// Returns the wanted host if it is of this platform, or the hosts of this machine.
    ///
    /// # Errors
    /// The wanted host cannot be used.
    fn candidates(_: &SurveyRequest) -> Result<Vec<Candidate>> {
        Ok(vec![])
    }
}

/// An opened platform, or the key that is at fault.
type OpenResult = Result<Box<dyn Host>, KeyFault>;

/// A platform of virtual machines.
pub struct Platform {
    pub name: &'static str,
    schema: fn(&mut SchemaGenerator) -> Schema,
    check: fn(&Text) -> Result<(), ConfigFault>,
    fill: fn(&Value) -> Result<Value, KeyFault>,
    title: fn(&Value) -> Result<String, KeyFault>,
    open: fn(&Value, &Path, MachinesSettings) -> OpenResult,
    check_host: fn(&Value, &Path, &MachinesSettings) -> Result<Vec<String>, KeyFault>,
    candidates: fn(&SurveyRequest) -> Result<Vec<Candidate>>,
}

impl Platform {
    const fn of<K: Keys>() -> Self {
        Self {
            name: K::NAME,
            schema: SchemaGenerator::subschema_for::<K>,
            check: |text| config::table::<K>(text, K::NAME).map(|_| ()),
            fill: |table| {
                let filled = serde_json::to_value(read::<K>(table)?);
                filled.map_err(|e| (K::NAME, e.to_string()))
            },
            title: |table| Ok(read::<K>(table)?.title()),
            open: |table, base, settings| read::<K>(table)?.open(base, settings),
            check_host: |table, base, settings| read::<K>(table)?.check(base, settings),
            candidates: K::candidates,
        }
    }

    /// Finds a platform by the name of its table.
    pub fn find(name: &str) -> Option<&'static Platform> {
        PLATFORMS.iter().find(|p| p.name == name)
    }

    /// Opens a host; the host need not respond yet. Paths in its table are relative to `base`.
    ///
    /// # Errors
    /// Values that cannot be used, with the key.
    pub fn open(
        &self,
        table: &Value,
        base: &Path,
        settings: MachinesSettings,
    ) -> Result<Box<dyn Host>, KeyFault> {
        (self.open)(table, base, settings)
    }

    /// Checks the values that only the host can confirm. Returns lines for the operator.
    ///
    /// # Errors
    /// The key that is at fault, and the reason.
    pub fn check(
        &self,
        table: &Value,
        base: &Path,
        settings: &MachinesSettings,
    ) -> Result<Vec<String>, KeyFault> {
        (self.check_host)(table, base, settings)
    }

    /// Returns the wanted host if it is of this platform, or the hosts of this machine.
    pub(crate) fn candidates(&self, wanted: &SurveyRequest) -> Result<Vec<Candidate>> {
        (self.candidates)(wanted)
    }

    /// Returns a description of the host.
    ///
    /// # Errors
    /// Values of the wrong type.
    pub fn title(&self, table: &Value) -> Result<String, KeyFault> {
        (self.title)(table)
    }
}

fn read<K: Keys>(table: &Value) -> Result<K, KeyFault> {
    K::deserialize(table).map_err(|e| (K::NAME, e.to_string()))
}

/// Checks the tables of platforms in a configuration.
///
/// # Errors
/// An unknown table, unknown keys and values of the wrong type, with the line.
pub fn check_platforms(words: &ManagerConfig, text: &Text) -> Result<(), ConfigFault> {
    for name in words.platforms.keys() {
        match Platform::find(name) {
            Some(platform) => (platform.check)(text)?,
            None => {
                let schema = config_schema();
                let known = schema["properties"].as_object().into_iter();
                let known = known.flat_map(|p| p.keys().map(String::as_str));
                let why = format!("unknown key{}", config::suggestion(name, known));
                return Err(text.fault(name, why));
            }
        }
    }
    Ok(())
}

/// Fills the defaults of platforms into a checked configuration.
///
/// # Errors
/// Values of the wrong type.
pub fn fill_platforms(words: &mut ManagerConfig) -> Result<(), KeyFault> {
    for (name, table) in &mut words.platforms {
        if let Some(platform) = Platform::find(name) {
            *table = (platform.fill)(table)?;
        }
    }
    Ok(())
}

/// Returns the JSON schema of live configurations, with the tables of all platforms.
pub fn config_schema() -> Value {
    let mut generator = SchemaGenerator::default();
    let tables: Vec<(&str, Schema)> = PLATFORMS
        .iter()
        .map(|p| (p.name, (p.schema)(&mut generator)))
        .collect();
    let mut schema = generator.into_root_schema_for::<ManagerConfig>().to_value();
    for (name, table) in tables {
        let table = table.to_value();
        // Unknown keys in the table are errors, as in all other tables.
        let keys = table["$ref"].as_str().and_then(|r| r.strip_prefix('#'));
        if let Some(keys) = keys.and_then(|path| schema.pointer_mut(path)) {
            keys["additionalProperties"] = false.into();
        }
        schema["properties"][name] = table;
    }
    schema["additionalProperties"] = false.into();
    schema
}

/// All platforms.
pub const PLATFORMS: &[Platform] = &[
    Platform::of::<LibvirtKeys>(),
    Platform::of::<QemuKeys>(),
    Platform::of::<ProxmoxKeys>(),
    #[cfg(test)]
    Platform::of::<crate::toy::ToyKeys>(),
];

#[cfg(test)]
mod tests {
    use manager::settings::Settings;

    use super::*;

    const TOY: &str = "[toy]\nmachines = [\"web\"]\nclasses = [{ disks = \"*\", class = \"gold\" }]\n[[tiers]]\nname = \"fast\"\npreset = \"nvme-tlc\"\npools = [\"shelf\"]\n[[classes]]\nname = \"gold\"\n";

    fn settings(text: &str) -> Result<Settings, ConfigFault> {
        let (words, text) = config::read::<ManagerConfig>("live.toml", text)?;
        check_platforms(&words, &text)?;
        Settings::new(text, words)
    }

    /// The toy platform is its folder and its line: keys, defaults, schema and host follow from them.
    #[test]
    fn toy_platform_is_parsed_validated_and_opened() {
        let settings = settings(TOY).unwrap();
        let mut words = settings.words.clone();
        let (name, common) = words.machines().unwrap().unwrap();
        assert_eq!((name, common.host.as_str()), ("toy", "local"));
        let platform = Platform::find(name).unwrap();
        let table = &words.platforms["toy"];
        assert_eq!(platform.title(table).unwrap(), "1 toy machines");
        let tiers = vec!["fast=shelf".parse().unwrap()];
        let of = MachinesSettings {
            tiers,
            classes: vec![("*".into(), "gold".into())],
            moving: None,
        };
        let mut host = platform.open(table, Path::new("/"), of).unwrap();
        let snapshot = host.snapshot().unwrap();
        let volumes = snapshot.volumes.iter();
        let volumes: Vec<_> = volumes.map(|v| (&*v.name, &*v.class)).collect();
        assert_eq!(volumes, [("web:disk", "gold")]);
        fill_platforms(&mut words).unwrap();
        assert_eq!(words.platforms["toy"]["color"], "red");
        let schema = config_schema();
        let properties = &schema["properties"]["toy"]["$ref"];
        assert_eq!(properties, "#/$defs/ToyKeys");
    }

    #[test]
    fn platform_tables_are_refused_with_key_and_line() {
        for (text, said) in [
            (
                "[toys]\n",
                "live.toml:1: toys: unknown key, did you mean \"toy\"?",
            ),
            (
                "[toy]\nmachines = []\n\nmachine = 1\n",
                "live.toml:4: toy.machine: unknown key, did you mean \"machines\"?",
            ),
            ("[toy]\nmachines = 7\n", ": toy: invalid type"),
            ("windows = 5\n", "live.toml:1: windows: unknown key"),
            ("toy = 5\n", "live.toml:1: toy: unknown key"),
            (
                "[toy]\nmachines = []\n[qemu]\nsockets = \"s\"\n",
                "is another host than [toy]",
            ),
            (
                "[toy]\nmachines = []\n[array]\ndir = \"a\"\n",
                "is another host than [array]",
            ),
            (
                "[toy]\nmachines = []\nhost = \"a b\"\n",
                "live.toml:3: toy.host: ",
            ),
        ] {
            let why = settings(text).unwrap_err().to_string();
            assert!(why.contains(said), "{why}");
        }
    }
}
