//! Devices that are being added or removed: their names and places are reserved meanwhile.
//!
//! Preparing or wiping a device may take long, and only its caller waits. Several such operations can therefore run at the
//! same time, and one that hangs does not block the others.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use units::DeviceId;

use crate::error::{DatapathError, Result};

/// Name and place that a device reserves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReservedName {
    pub name: String,
    /// File, block device or URI, once it is known.
    pub path: Option<String>,
}

/// Devices that are being added or removed.
#[derive(Debug, Default)]
pub(super) struct DeviceReservations(Mutex<BTreeMap<DeviceId, ReservedName>>);

/// Reservation of a device until this is dropped.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    all: &'a DeviceReservations,
    pub id: DeviceId,
}

impl DeviceReservations {
    fn all(&self) -> MutexGuard<'_, BTreeMap<DeviceId, ReservedName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the device that `choose` returns. `choose` receives the present reservations.
    ///
    /// # Errors
    /// Those of `choose`; [`DatapathError::Busy`] if the device is already reserved.
    pub(super) fn claim(
        &self,
        choose: impl FnOnce(&BTreeMap<DeviceId, ReservedName>) -> Result<(DeviceId, ReservedName)>,
    ) -> Result<Claim<'_>> {
        let mut all = self.all();
        let (id, taken) = choose(&all)?;
        if all.contains_key(&id) {
            return Err(DatapathError::Busy(format!(
                "device {:?} is already being removed",
                taken.name
            )));
        }
        all.insert(id, taken);
        Ok(Claim { all: self, id })
    }
}

impl Claim<'_> {
    /// Returns the name of the device.
    pub(super) fn name(&self) -> String {
        self.all.all()[&self.id].name.clone()
    }

    /// Reserves the place of the device.
    ///
    /// # Errors
    /// [`DatapathError::Busy`] if another device has reserved the place.
    pub(super) fn place(&self, path: &str) -> Result<()> {
        let mut all = self.all.all();
        let there = all.iter().find(|(_, t)| t.path.as_deref() == Some(path));
        if let Some((_, taken)) = there {
            let name = &taken.name;
            return Err(DatapathError::Busy(format!(
                "{path} belongs to device {name:?}, which is being added or removed: try again"
            )));
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
    fn claimed_device_id_and_path_are_exclusive_until_released() {
        let all = DeviceReservations::default();
        let taken = |name: &str| ReservedName {
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
        let refused = second.place("/a").unwrap_err().to_string();
        assert!(refused.contains("\"a-0\""), "{refused}");
        drop(first);
        second.place("/a").unwrap();
        let no = all.claim(|_| Err(DatapathError::Refused("no".into())));
        assert!(no.is_err());
    }
}
