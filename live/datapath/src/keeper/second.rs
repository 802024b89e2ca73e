//! Second copy of the map: its location, creation and removal.
//!
//! The array's directory has a hint to it (`map.second`), for a start without a first copy. It is only a hint: the
//! content of copies and devices decides which copy is trusted.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use array::{Change, CopyHealth, CopyId, DeviceKind, DeviceRecord, FilePlace, SecondCopy};

use super::Keeper;
use crate::device::{Device, Medium};
use crate::error::DatapathError;

/// File in an array's directory that names the second copy.
pub const HINT_FILE: &str = "map.second";

impl Keeper {
    /// Creates a second copy next to one of the devices, unless an operator has chosen otherwise or no suitable place
    /// exists. Replaces a second copy that was lost together with its device.
    ///
    /// # Errors
    /// [`DatapathError`]: the map cannot be changed.
    pub fn second_by_default(&mut self) -> Result<(), DatapathError> {
        if self.map.state().second != SecondCopy::Auto && !self.second_is_lost() {
            return Ok(());
        }
        match self.default_second() {
            Some(path) => self.set_second(SecondCopy::At(path.display().to_string())),
            None => Ok(()),
        }
    }

    /// Returns true if the second copy is outdated and its device is lost.
    fn second_is_lost(&self) -> bool {
        let second = self.map.health().into_iter();
        let mut second = second.filter(|(c, _, _)| *c == CopyId::Second);
        let Some((_, path, CopyHealth::Dropped { .. })) = second.next() else {
            return false;
        };
        let dir = Path::new(&path).parent();
        let beside =
            |r: &&DeviceRecord| r.kind == DeviceKind::File && Path::new(&r.path).parent() == dir;
        let mut beside = self.records.values().filter(beside).peekable();
        beside.peek().is_some() && beside.all(|r| self.lost.contains_key(&r.id))
    }

    /// Returns the default path: next to a device in another directory than the first copy's, if possible on another
    /// file system. It is in memory only if the first copy is.
    fn default_second(&self) -> Option<PathBuf> {
        let first = self.dir.as_ref()?.canonicalize().ok()?;
        let file_system = |path: &Path| std::fs::metadata(path).ok().map(|m| m.dev());
        let in_memory = crate::device::is_in_memory(&first);
        let of_files = self
            .devices
            .values()
            .filter_map(|device: &std::sync::Arc<Device>| {
                let Medium::File(..) = device.medium else {
                    return None;
                };
                let record = self.records.get(&device.id)?;
                let dir = Path::new(&record.path).parent()?;
                let usable = record.kind == DeviceKind::File
                    && dir != first
                    && (in_memory || !crate::device::is_in_memory(dir));
                usable.then(|| (file_system(dir) == file_system(&first), device.id, dir))
            });
        let (_, _, dir) = of_files.min()?;
        Some(dir.join(format!("map-{}.redb", self.map.id())))
    }

    /// Moves, creates or removes the second copy. The caller has checked that its place is usable.
    ///
    /// # Errors
    /// [`DatapathError`]: the map cannot be changed, or, if nothing is served, the copy cannot be created.
    pub fn set_second(&mut self, wish: SecondCopy) -> Result<(), DatapathError> {
        let before = match &self.map.state().second {
            SecondCopy::At(path) => Some(PathBuf::from(path)),
            _ => None,
        };
        if !self.map.members().first {
            return Err(DatapathError::Refused(
                "the first copy of the map is out of date, so the second one is needed".into(),
            ));
        }
        self.map
            .exclude(CopyId::Second, "it was moved to another directory");
        if !self.map.confirmed() {
            self.renew()?;
        }
        self.map.forget(CopyId::Second);
        let change = Change::SetSecondCopy(wish.clone());
        if let Err(error) = self.commit(&[change]) {
            // The map still has the old place, and the copy is rebuilt there.
            if let Some(before) = before {
                let place = Box::new(FilePlace(before));
                self.map.add(
                    CopyId::Second,
                    place,
                    None,
                    "it is being moved to another directory",
                );
            }
            return Err(error.into());
        }
        self.write_hint()
            .map_err(DatapathError::system("write", &HINT_FILE))?;
        let leaves = before.filter(|b| wish != SecondCopy::At(b.display().to_string()));
        if let SecondCopy::At(path) = wish {
            let place = Box::new(FilePlace(path.into()));
            self.map.add(CopyId::Second, place, None, "it is new");
            self.map.begin_rebuild(CopyId::Second)?;
            // If nothing is served, the copy is complete at once.
            if self.map.end_rebuild() {
                self.renew()?;
            } else if !self.serves {
                let second = self
                    .map
                    .health()
                    .into_iter()
                    .find(|h| h.0 == CopyId::Second);
                return Err(DatapathError::Refused(match second {
                    Some((_, place, CopyHealth::Dropped { why })) => format!("{place}: {why}"),
                    _ => "cannot write the second copy of the map".into(),
                }));
            }
        }
        if let Some(leaves) = leaves {
            // The removed copy is outdated and marked so. Its disk may hang, so nothing waits for its deletion.
            let remove = move || drop(std::fs::remove_file(leaves));
            match self.serves {
                true => drop(
                    std::thread::Builder::new()
                        .name("terrace-map-leaves".into())
                        .spawn(remove),
                ),
                false => remove(),
            }
        }
        Ok(())
    }

    /// Writes two lines to a file in the array's directory: the path of the second copy, if there is
    /// one, and the id of the array.
    pub fn write_hint(&self) -> std::io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let hint = dir.join(HINT_FILE);
        let path = match &self.map.state().second {
            SecondCopy::At(path) => path,
            SecondCopy::Auto | SecondCopy::Off => "",
        };
        let text = format!("{path}\n{}\n", self.map.id());
        if std::fs::read_to_string(&hint).is_ok_and(|before| before == text) {
            return Ok(());
        }
        let fresh = dir.join(format!("{HINT_FILE}.new"));
        std::fs::write(&fresh, text)?;
        std::fs::File::open(&fresh)?.sync_all()?;
        std::fs::rename(fresh, hint)?;
        std::fs::File::open(dir)?.sync_all()
    }

    /// Completes the copies that are being rebuilt. Requires that the array is not served.
    ///
    /// # Errors
    /// [`DatapathError`]: a copy cannot be rebuilt, or the map cannot be changed.
    pub fn finish_copies(&mut self) -> Result<(), DatapathError> {
        let dropped = |h: &CopyHealth| matches!(h, CopyHealth::Dropped { .. });
        let all = self.map.health().into_iter();
        for (copy, place, _) in all.filter(|(_, _, h)| dropped(h)) {
            self.map.begin_rebuild(copy)?;
            if !self.map.end_rebuild() {
                return Err(DatapathError::Refused(format!(
                    "{place}: cannot rebuild this copy of the map"
                )));
            }
            self.renew()?;
        }
        Ok(())
    }
}
