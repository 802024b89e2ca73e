//! Text of a configuration file with values replaced at some of its keys.

use toml_edit::{DocumentMut, Item, Value};

use crate::{ConfigFault, Setting, Text, find};

/// Keys that name an element of a list, tried in this order.
const NAMES: [&str; 3] = ["name", "file", "volume"];

/// Changed text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedText {
    /// The new text. Its lines differ from those of the file; comments are kept.
    pub text: Text,
    /// Places of each value: keys with numbers in place of names, such as `tiers[0].devices`.
    pub places: Vec<Vec<String>>,
}

/// One step of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// Key of a table.
    Key(String),
    /// Element of a list or entry of a table, by number or name.
    At(String),
    /// All elements of a list.
    All,
}

impl Text {
    /// Returns the text with values set at keys, in this order.
    ///
    /// Keys are written as in error messages (`policy.hold`, `tiers[0].devices`). An element may be named instead
    /// of numbered (`tiers[fast].devices`, by its `name`, `file` or `volume`). `*` stands for all elements
    /// (`clients[*].habits.outstanding`). Parts with dots are put into quotes or brackets. A missing key is added;
    /// only [`crate::read`] checks that the key is valid.
    ///
    /// # Errors
    /// A key of an element that does not exist, or of a value that is neither a table nor a list. The key of the
    /// error is the given one.
    pub fn with(&self, settings: &[(&str, &Setting)]) -> Result<EditedText, ConfigFault> {
        let mut document: DocumentMut = self
            .text
            .parse()
            .map_err(|e: toml_edit::TomlError| self.fault_from(None, "", e.message()))?;
        let mut places = Vec::new();
        for (key, setting) in settings {
            let mut reached = Vec::new();
            let fault = |why: String| self.fault_from(None, key, why);
            let steps = steps(key).ok_or_else(|| {
                let form = "table.key, list[0].key or list[name].key";
                fault(format!("\"{key}\" does not have the form {form}"))
            })?;
            let root = document.as_item_mut();
            set(root, &steps, "", setting.value(), &mut reached, &fault)?;
            places.push(reached);
        }
        let text = Text {
            file: self.file.clone(),
            text: document.to_string(),
        };
        Ok(EditedText { text, places })
    }
}

/// Parses a key into its steps; `None` for a key of another form.
fn steps(key: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = key;
    loop {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        if name.is_empty() {
            return None;
        }
        steps.push(Step::Key(name.into()));
        rest = after;
        while let Some(inner) = rest.strip_prefix('[') {
            let (at, after) = inner.split_once(']')?;
            steps.push(match at {
                "" => return None,
                "*" => Step::All,
                at => Step::At(at.into()),
            });
            rest = after;
        }
        match rest.strip_prefix('.') {
            Some(more) => rest = more,
            None if rest.is_empty() => return Some(steps),
            None => return None,
        }
    }
}

/// Sets the value at the end of the steps that start at `item`, whose key is `at`.
fn set(
    item: &mut Item,
    steps: &[Step],
    at: &str,
    value: &Value,
    places: &mut Vec<String>,
    fault: &impl Fn(String) -> ConfigFault,
) -> Result<(), ConfigFault> {
    let Some((step, rest)) = steps.split_first() else {
        let mut value = value.clone();
        if let Some(old) = item.as_value() {
            *value.decor_mut() = old.decor().clone();
        }
        *item = Item::Value(value);
        places.push(at.into());
        return Ok(());
    };
    let elements = match item {
        Item::ArrayOfTables(list) => Some(list.len()),
        Item::Value(Value::Array(list)) => Some(list.len()),
        _ => None,
    };
    let numbers = match (step, elements) {
        (Step::Key(name), None) | (Step::At(name), None)
            if item.is_table_like() || (item.is_none() && matches!(step, Step::Key(_))) =>
        {
            let below = match at {
                "" => name.clone(),
                at => format!("{at}.{name}"),
            };
            return set(&mut item[name.as_str()], rest, &below, value, places, fault);
        }
        (Step::All, Some(0)) => return Err(fault(format!("{at} has no element"))),
        (Step::All, Some(n)) => 0..n,
        (Step::At(name), Some(n)) => {
            let i = element(item, n, at, name, fault)?;
            i..i + 1
        }
        (Step::Key(name), Some(_)) => {
            return Err(fault(format!(
                "{at} is a list: use {at}[0].{name}, with an index, a name or * in brackets"
            )));
        }
        (_, None) if item.is_none() => return Err(fault(format!("list {at} does not exist"))),
        (_, None) => return Err(fault(format!("{at} is neither a table nor a list"))),
    };
    for i in numbers {
        set(
            &mut item[i],
            rest,
            &format!("{at}[{i}]"),
            value,
            places,
            fault,
        )?;
    }
    Ok(())
}

/// Returns the index of an element that is given by number or name.
fn element(
    list: &Item,
    n: usize,
    at: &str,
    name: &str,
    fault: &impl Fn(String) -> ConfigFault,
) -> Result<usize, ConfigFault> {
    if let Ok(number) = name.parse::<usize>() {
        return match number {
            i if i < n => Ok(i),
            i => Err(fault(format!(
                "{at}[{i}] does not exist: {at} has {n} elements"
            ))),
        };
    }
    let name_of = |i: usize| {
        let mut names = NAMES
            .iter()
            .filter_map(|key| list.get(i)?.get(*key)?.as_str());
        names.next().unwrap_or("")
    };
    let names: Vec<&str> = (0..n).map(name_of).collect();
    let first = find(name, names.iter().copied()).map_err(|why| fault(format!("{at}: {why}")))?;
    match names.iter().filter(|other| **other == name).count() {
        1 => Ok(first),
        many => Err(fault(format!(
            "{at}: \"{name}\" matches {many} elements: use the index of one"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "seed = 1 # of all\n\n[[tiers]]\nname = \"fast\"\ndevices = 1\n[[tiers]]\nname = \"a.b\"\n\n\
                        [[clients]]\nvolume = \"x\"\nhabits = { outstanding = 1 }\n[[clients]]\nvolume = \"x\"\n\n[policy]\nhold = 1\n";

    fn with(settings: &[&str]) -> Result<EditedText, ConfigFault> {
        let text = Text {
            file: "s.toml".into(),
            text: FILE.into(),
        };
        let settings: Vec<(&str, Setting)> = settings
            .iter()
            .map(|s| s.split_once('=').unwrap())
            .map(|(key, value)| (key, Setting::parse(value)))
            .collect();
        let settings: Vec<(&str, &Setting)> = settings.iter().map(|(k, v)| (*k, v)).collect();
        text.with(&settings)
    }

    fn why(setting: &str) -> String {
        with(&[setting]).unwrap_err().why
    }

    #[test]
    fn values_are_replaced_in_place_or_added_to_their_table() {
        let edited = with(&[
            "seed=7",
            "tiers[fast].devices=3",
            "tiers[a.b].capacity=4 GiB",
            "clients[*].habits.outstanding=8",
            "policy.hold=2",
            "policy.pins.\"v.1\"=fast",
            "policy.pins[v.2]=fast",
            "strategies.idt.levels=[1, 2]",
        ])
        .unwrap();
        let expected = FILE
            .replace(
                "seed = 1 #",
                "strategies = { idt = { levels = [1, 2] } }\nseed = 7 #",
            )
            .replace("devices = 1", "devices = 3")
            .replace("\"a.b\"", "\"a.b\"\ncapacity = \"4 GiB\"")
            .replace("{ outstanding = 1 }\n", "{ outstanding = 8 }\n")
            .replace("\"x\"\n\n", "\"x\"\nhabits = { outstanding = 8 }\n\n")
            .replace(
                "hold = 1",
                "hold = 2\npins = { \"v.1\" = \"fast\", \"v.2\" = \"fast\" }",
            );
        let value = |text: &str| text.parse::<DocumentMut>().unwrap().to_string();
        let words = |text: &str| -> serde_json::Value { toml_edit::de::from_str(text).unwrap() };
        assert_eq!(
            words(&edited.text.text),
            words(&expected),
            "{}",
            edited.text.text
        );
        assert_eq!(value(&edited.text.text), edited.text.text);
        assert!(edited.text.text.contains("seed = 7 # of all\n"));
        let places: Vec<String> = edited.places.iter().map(|p| p.join(" ")).collect();
        assert_eq!(places[1], "tiers[0].devices");
        assert_eq!(
            places[3],
            "clients[0].habits.outstanding clients[1].habits.outstanding"
        );
        assert_eq!(places[5], "policy.pins.v.1");
    }

    #[test]
    fn unknown_keys_are_refused() {
        for (setting, expected) in [
            (
                "tiers[fats].devices=1",
                "tiers: unknown name \"fats\", did you mean \"fast\"?",
            ),
            (
                "tiers[2].devices=1",
                "tiers[2] does not exist: tiers has 2 elements",
            ),
            (
                "tiers.devices=1",
                "tiers is a list: use tiers[0].devices, with an index, a name or * in brackets",
            ),
            ("volumes[0].size=1", "list volumes does not exist"),
            ("seed.more=1", "seed is neither a table nor a list"),
            ("policy[*].hold=1", "policy is neither a table nor a list"),
            (
                "clients[x].preset=1",
                "clients: \"x\" matches 2 elements: use the index of one",
            ),
        ] {
            assert_eq!(why(setting), expected);
        }
        for setting in ["=1", ".a=1", "a.=1", "a[=1", "a[]=1", "a[0]b=1", "\"a=1"] {
            assert!(why(setting).contains("does not have the form"), "{setting}");
        }
        let fault = with(&["seed=2", "tiers[9].name=a"]).unwrap_err();
        assert_eq!((fault.key.as_str(), fault.line), ("tiers[9].name", None));
    }
}
