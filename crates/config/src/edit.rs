//! A file with other values at some of its keys: as if it had been written that way.

use toml_edit::{DocumentMut, Item, Value};

use crate::{ConfigFault, Setting, Text, find};

/// The keys, first to last, by which an element of a list is known.
const NAMES: [&str; 3] = ["name", "file", "volume"];

/// A text, changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// As it is now. Its lines are not those of the file; comments are kept.
    pub text: Text,
    /// Where each value went: keys with numbers in place of names, such as `tiers[0].devices`.
    pub places: Vec<Vec<String>>,
}

/// A step of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// Into a table.
    Key(String),
    /// Into a list, or a table: by number or name.
    At(String),
    /// Into every element of a list.
    All,
}

impl Text {
    /// The text with values at keys, in this order. A key is written like those of faults (`policy.hold`,
    /// `tiers[0].devices`); an element may be named instead of counted (`tiers[fast].devices`, by its `name`, `file`
    /// or `volume`), or be all of them (`clients[*].habits.outstanding`); parts with dots are put into quotes or brackets.
    /// A key that is left out is added; whether there is such a key at all, only [`crate::read`] knows.
    ///
    /// # Errors
    /// A key that leads to an element that there is not, or through what is neither a table nor a list; the fault's key
    /// is the one that was given.
    pub fn with(&self, settings: &[(&str, &Setting)]) -> Result<Edited, ConfigFault> {
        let mut document: DocumentMut = self
            .text
            .parse()
            .map_err(|e: toml_edit::TomlError| self.fault_from(None, "", e.message()))?;
        let mut places = Vec::new();
        for (key, setting) in settings {
            let mut reached = Vec::new();
            steps(key)
                .and_then(|steps| {
                    let root = document.as_item_mut();
                    set(root, &steps, "", setting.value(), &mut reached)
                })
                .map_err(|why| self.fault_from(None, key, why))?;
            places.push(reached);
        }
        let text = Text {
            file: self.file.clone(),
            text: document.to_string(),
        };
        Ok(Edited { text, places })
    }
}

/// The steps of a key.
fn steps(key: &str) -> Result<Vec<Step>, String> {
    let fault = || format!("\"{key}\" is not of the form table.key, list[0].key or list[name].key");
    let mut steps = Vec::new();
    let mut rest = key;
    loop {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or_else(fault)?,
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        if name.is_empty() {
            return Err(fault());
        }
        steps.push(Step::Key(name.into()));
        rest = after;
        while let Some(inner) = rest.strip_prefix('[') {
            let (at, after) = inner.split_once(']').ok_or_else(fault)?;
            steps.push(match at {
                "" => return Err(fault()),
                "*" => Step::All,
                at => Step::At(at.into()),
            });
            rest = after;
        }
        match rest.strip_prefix('.') {
            Some(more) => rest = more,
            None if rest.is_empty() => return Ok(steps),
            None => return Err(fault()),
        }
    }
}

/// Puts the value where the steps lead from `item`, which is at the key `at`.
fn set(
    item: &mut Item,
    steps: &[Step],
    at: &str,
    value: &Value,
    places: &mut Vec<String>,
) -> Result<(), String> {
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
            return set(&mut item[name.as_str()], rest, &below, value, places);
        }
        (Step::All, Some(0)) => return Err(format!("{at} has no element")),
        (Step::All, Some(n)) => 0..n,
        (Step::At(name), Some(n)) => {
            let i = element(item, n, at, name)?;
            i..i + 1
        }
        (Step::Key(name), Some(_)) => {
            return Err(format!(
                "{at} is a list: write {at}[0].{name}, or a name or * for 0"
            ));
        }
        (_, None) if item.is_none() => return Err(format!("there is no list {at}")),
        (_, None) => return Err(format!("{at} is neither a table nor a list")),
    };
    for i in numbers {
        set(&mut item[i], rest, &format!("{at}[{i}]"), value, places)?;
    }
    Ok(())
}

/// The number of an element that is given by number or name.
fn element(list: &Item, n: usize, at: &str, name: &str) -> Result<usize, String> {
    if let Ok(number) = name.parse::<usize>() {
        return match number {
            i if i < n => Ok(i),
            i => Err(format!("{at} has {n} elements: there is no {at}[{i}]")),
        };
    }
    let name_of = |i: usize| {
        let mut names = NAMES
            .iter()
            .filter_map(|key| list.get(i)?.get(*key)?.as_str());
        names.next().unwrap_or("")
    };
    let names: Vec<&str> = (0..n).map(name_of).collect();
    let first = find(name, names.iter().copied()).map_err(|why| format!("{at}: {why}"))?;
    match names.iter().filter(|other| **other == name).count() {
        1 => Ok(first),
        many => Err(format!(
            "{at}: {many} elements are of \"{name}\": give the number of one"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "seed = 1 # of all\n\n[[tiers]]\nname = \"fast\"\ndevices = 1\n[[tiers]]\nname = \"a.b\"\n\n\
                        [[clients]]\nvolume = \"x\"\nhabits = { outstanding = 1 }\n[[clients]]\nvolume = \"x\"\n\n[policy]\nhold = 1\n";

    fn with(settings: &[&str]) -> Result<Edited, ConfigFault> {
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
    fn values_are_replaced_and_added_where_a_person_would_write_them() {
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
    fn keys_that_lead_nowhere_are_refused() {
        for (setting, expected) in [
            (
                "tiers[fats].devices=1",
                "tiers: unknown name \"fats\", did you mean \"fast\"?",
            ),
            (
                "tiers[2].devices=1",
                "tiers has 2 elements: there is no tiers[2]",
            ),
            (
                "tiers.devices=1",
                "tiers is a list: write tiers[0].devices, or a name or * for 0",
            ),
            ("volumes[0].size=1", "there is no list volumes"),
            ("seed.more=1", "seed is neither a table nor a list"),
            ("policy[*].hold=1", "policy is neither a table nor a list"),
            (
                "clients[x].preset=1",
                "clients: 2 elements are of \"x\": give the number of one",
            ),
        ] {
            assert_eq!(why(setting), expected);
        }
        for setting in ["=1", ".a=1", "a.=1", "a[=1", "a[]=1", "a[0]b=1", "\"a=1"] {
            assert!(why(setting).contains("is not of the form"), "{setting}");
        }
        let fault = with(&["seed=2", "tiers[9].name=a"]).unwrap_err();
        assert_eq!((fault.key.as_str(), fault.line), ("tiers[9].name", None));
    }
}
