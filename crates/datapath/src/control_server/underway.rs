//! Devices that come or go at this moment: what they are called and where they are is nobody else's meanwhile.
//!
//! Making a device ready, and wiping one, may take long, and nobody waits for it but who asked. So two of them can be under way at
//! the same time, and one that hangs keeps no others.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use units::DeviceId;

/// What a device takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taken {
    pub name: String,
    /// Its file, block device or URI, once that is known.
    pub path: Option<String>,
}

/// Those that are under way.
#[derive(Debug, Default)]
pub(super) struct Underway(Mutex<BTreeMap<DeviceId, Taken>>);

/// A device that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    all: &'a Underway,
    pub id: DeviceId,
}

impl Underway {
    fn all(&self) -> MutexGuard<'_, BTreeMap<DeviceId, Taken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims what `choose` takes, beside what is under way.
    ///
    /// # Errors
    /// Those of `choose`; a device that is under way already.
    pub(super) fn claim(
        &self,
        choose: impl FnOnce(&BTreeMap<DeviceId, Taken>) -> Result<(DeviceId, Taken), String>,
    ) -> Result<Claim<'_>, String> {
        let mut all = self.all();
        let (id, taken) = choose(&all)?;
        if all.contains_key(&id) {
            return Err(format!("device {:?} is already being removed", taken.name));
        }
        all.insert(id, taken);
        Ok(Claim { all: self, id })
    }
}

impl Claim<'_> {
    /// What the device is called.
    pub(super) fn name(&self) -> String {
        self.all.all()[&self.id].name.clone()
    }

    /// Where the device is to be.
    ///
    /// # Errors
    /// Another one is there, or will be.
    pub(super) fn place(&self, path: &str) -> Result<(), String> {
        let mut all = self.all.all();
        let there = all.iter().find(|(_, t)| t.path.as_deref() == Some(path));
        if let Some((_, taken)) = there {
            let name = &taken.name;
            return Err(format!(
                "{path} belongs to device {name:?}, which is being added or removed: try again"
            ));
        }
        let own = all.get_mut(&self.id).expect("it is claimed");
        own.path = Some(path.into());
        Ok(())
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.all.all().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_claimed_is_nobody_elses_until_it_is_over() {
        let all = Underway::default();
        let taken = |name: &str| Taken {
            name: name.into(),
            path: None,
        };
        let first = all.claim(|_| Ok((DeviceId(1), taken("a-0")))).unwrap();
        first.place("/a").unwrap();
        assert!(all.claim(|_| Ok((DeviceId(1), taken("a-0")))).is_err());
        let second = all.claim(|others| {
            assert_eq!(others[&DeviceId(1)].name, "a-0");
            Ok((DeviceId(2), taken("a-1")))
        });
        let second = second.unwrap();
        assert!(second.place("/a").unwrap_err().contains("\"a-0\""));
        drop(first);
        second.place("/a").unwrap();
        assert!(all.claim(|_| Err("no".into())).is_err());
    }
}
