//! The second copy of the map: where it is, and how it comes and goes.
//!
//! The array's directory has a hint to it (`map.second`), for a start that finds no first copy: only a hint, since what is believed
//! is decided by what the copies and the devices say.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use array::{Change, CopyHealth, CopyId, DeviceKind, FilePlace, SecondCopy};

use super::Keeper;
use crate::device::{Device, Medium};
use crate::text::explain;

/// The file in an array's directory that names the second copy.
pub const HINT_FILE: &str = "map.second";

impl Keeper {
    /// Makes a second copy beside one of the devices, where nobody has said otherwise and there is a place for it.
    ///
    /// # Errors
    /// When the map cannot be changed.
    pub fn second_by_default(&mut self) -> Result<(), String> {
        if self.map.state().second != SecondCopy::Auto {
            return Ok(());
        }
        match self.default_second() {
            Some(path) => self.set_second(SecondCopy::At(path.display().to_string())),
            None => Ok(()),
        }
    }

    /// Beside a device in another directory than the first copy's; on another file system, if there is one. Not in memory, unless
    /// the first one is there too.
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

    /// Moves the second copy, makes one, or does without.
    ///
    /// # Errors
    /// A place where it cannot be; a map that cannot be changed.
    pub fn set_second(&mut self, wish: SecondCopy) -> Result<(), String> {
        let said = |e: array::ArrayError| explain(&e);
        if let SecondCopy::At(path) = &wish {
            let path = Path::new(path);
            let dir = path.parent().filter(|d| d.is_dir());
            if !path.is_absolute() || dir.is_none() {
                return Err(format!(
                    "{}: no file in a directory that is there",
                    path.display()
                ));
            }
            if path.exists() && self.map.state().second != wish && !self.is_own(path) {
                return Err(format!("{}: there is another file already", path.display()));
            }
        }
        let before = match &self.map.state().second {
            SecondCopy::At(path) => Some(PathBuf::from(path)),
            _ => None,
        };
        if !self.map.members().first {
            return Err(
                "the first copy of the map is not up to date: the second one is needed".into(),
            );
        }
        self.map
            .exclude(CopyId::Second, "another place was chosen for it");
        if !self.map.confirmed() {
            self.renew().map_err(said)?;
        }
        self.map.forget(CopyId::Second);
        let change = Change::SetSecondCopy(wish.clone());
        self.commit(&[change]).map_err(said)?;
        if let Some(before) = before {
            let _ = std::fs::remove_file(before); // what is left of it is out of date, and known to be
        }
        self.write_hint()
            .map_err(|e| format!("cannot write {HINT_FILE}: {e}"))?;
        if let SecondCopy::At(path) = wish {
            let place = Box::new(FilePlace(path.into()));
            self.map.add(CopyId::Second, place, None, "it is new");
            self.map.begin_rebuild(CopyId::Second).map_err(said)?;
            // Where nothing is served it is there at once.
            if self.map.end_rebuild() {
                self.renew().map_err(said)?;
            }
        }
        Ok(())
    }

    /// Whether a file is a copy of this array's map that is out of date.
    fn is_own(&self, path: &Path) -> bool {
        array::Array::open_file(path).is_ok_and(|a| a.id() == self.map.id())
    }

    /// Notes in the array's directory where the second copy is.
    pub fn write_hint(&self) -> std::io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let hint = dir.join(HINT_FILE);
        match &self.map.state().second {
            SecondCopy::At(path) => {
                if std::fs::read_to_string(&hint).is_ok_and(|h| h.trim_end() == path) {
                    return Ok(());
                }
                let fresh = dir.join(format!("{HINT_FILE}.new"));
                std::fs::write(&fresh, format!("{path}\n"))?;
                std::fs::File::open(&fresh)?.sync_all()?;
                std::fs::rename(fresh, hint)?;
                std::fs::File::open(dir)?.sync_all()
            }
            _ => match std::fs::remove_file(hint) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
                _ => Ok(()),
            },
        }
    }

    /// Waits until copies that are being made are made, where nothing else is to be done.
    pub fn finish_copies(&mut self) -> Result<(), String> {
        let dropped = |h: &CopyHealth| matches!(h, CopyHealth::Dropped { .. });
        let all = self.map.health().into_iter();
        for (copy, place, _) in all.filter(|(_, _, h)| dropped(h)) {
            self.map.begin_rebuild(copy).map_err(|e| explain(&e))?;
            if !self.map.end_rebuild() {
                return Err(format!("{place}: this copy of the map cannot be made anew"));
            }
            self.renew().map_err(|e| explain(&e))?;
        }
        Ok(())
    }
}
