//! The second copy of the map: where it is, and how it comes and goes.
//!
//! The array's directory has a hint to it (`map.second`), for a start that finds no first copy: only a hint, since what is believed
//! is decided by what the copies and the devices say.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use array::{Change, CopyHealth, CopyId, DeviceKind, DeviceRecord, FilePlace, SecondCopy};

use super::Keeper;
use crate::device::{Device, Medium};
use crate::text::explain;

/// The file in an array's directory that names the second copy.
pub const HINT_FILE: &str = "map.second";

impl Keeper {
    /// Makes a second copy beside one of the devices, where nobody has said otherwise and there is a place for it; another one, where it is
    /// lost with the device that it is beside.
    ///
    /// # Errors
    /// When the map cannot be changed.
    pub fn second_by_default(&mut self) -> Result<(), String> {
        if self.map.state().second != SecondCopy::Auto && !self.second_is_lost() {
            return Ok(());
        }
        match self.default_second() {
            Some(path) => self.set_second(SecondCopy::At(path.display().to_string())),
            None => Ok(()),
        }
    }

    /// Whether the second copy is out of date, and beside a device that is lost.
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

    /// Moves the second copy, makes one, or does without. Whether it can be in its place has been tried.
    ///
    /// # Errors
    /// A map that cannot be changed; where nothing is served, a copy that cannot be made.
    pub fn set_second(&mut self, wish: SecondCopy) -> Result<(), String> {
        let said = |e: array::ArrayError| explain(&e);
        let before = match &self.map.state().second {
            SecondCopy::At(path) => Some(PathBuf::from(path)),
            _ => None,
        };
        if !self.map.members().first {
            return Err(
                "the first copy of the map is out of date, so the second one is needed".into(),
            );
        }
        self.map
            .exclude(CopyId::Second, "it was moved to another directory");
        if !self.map.confirmed() {
            self.renew().map_err(said)?;
        }
        self.map.forget(CopyId::Second);
        let change = Change::SetSecondCopy(wish.clone());
        if let Err(error) = self.commit(&[change]) {
            // It is still where the map says, and is made anew there.
            if let Some(before) = before {
                let place = Box::new(FilePlace(before));
                self.map.add(
                    CopyId::Second,
                    place,
                    None,
                    "it is being moved to another directory",
                );
            }
            return Err(said(error));
        }
        self.write_hint()
            .map_err(|e| format!("cannot write {HINT_FILE}: {e}"))?;
        let leaves = before.filter(|b| wish != SecondCopy::At(b.display().to_string()));
        if let SecondCopy::At(path) = wish {
            let place = Box::new(FilePlace(path.into()));
            self.map.add(CopyId::Second, place, None, "it is new");
            self.map.begin_rebuild(CopyId::Second).map_err(said)?;
            // Where nothing is served it is there at once.
            if self.map.end_rebuild() {
                self.renew().map_err(said)?;
            } else if !self.serves {
                let second = self
                    .map
                    .health()
                    .into_iter()
                    .find(|h| h.0 == CopyId::Second);
                return Err(match second {
                    Some((_, place, CopyHealth::Dropped { why })) => format!("{place}: {why}"),
                    _ => "cannot write the second copy of the map".into(),
                });
            }
        }
        if let Some(leaves) = leaves {
            // It is out of date, and known to be. Its disk may hang: nobody waits for that.
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

    /// Waits until copies that are being made are made, where nothing else is to be done.
    pub fn finish_copies(&mut self) -> Result<(), String> {
        let dropped = |h: &CopyHealth| matches!(h, CopyHealth::Dropped { .. });
        let all = self.map.health().into_iter();
        for (copy, place, _) in all.filter(|(_, _, h)| dropped(h)) {
            self.map.begin_rebuild(copy).map_err(|e| explain(&e))?;
            if !self.map.end_rebuild() {
                return Err(format!("{place}: cannot rebuild this copy of the map"));
            }
            self.renew().map_err(|e| explain(&e))?;
        }
        Ok(())
    }
}
