//! Copies of the map, and its backups.

use std::path::{Path, PathBuf};

use array::{
    Array, ArrayId, Change, CopyHealth, CopyPlace, FilePlace, Image, MapState, Members, NewMap,
    SecondCopy,
};

use super::{ControlAnswer, ControlServer, CopyInfo, DatapathError, Result, done};

impl ControlServer {
    pub(super) fn copies(&self) -> Result<ControlAnswer> {
        self.with_keeper(|keeper| {
            let info = |(copy, path, health): (array::CopyId, String, CopyHealth)| {
                let (state, why) = match health {
                    CopyHealth::Member => ("current", None),
                    CopyHealth::Removed => (
                        "current",
                        Some("its file was removed or replaced: the copy is lost when the server stops".to_owned()),
                    ),
                    CopyHealth::Damaged { why } => ("damaged", Some(why)),
                    CopyHealth::Rebuilding { why } => ("rebuilding", Some(why)),
                    CopyHealth::Dropped { why } => ("out of date", Some(why)),
                };
                CopyInfo {
                    copy: copy.to_string(),
                    path,
                    state: state.into(),
                    why,
                }
            };
            let state = keeper.map.state();
            let unsettled = match (keeper.not_believed(), keeper.is_held()) {
                (Some(why), _) => Some(why),
                (None, true) => Some(
                    "the last change is not acknowledged yet: it may not be durable in every copy"
                        .to_owned(),
                ),
                (None, false) => None,
            };
            ControlAnswer::Copies {
                unsettled,
                copies: keeper.map.health().into_iter().map(info).collect(),
                commits: state.commits,
                generation: state.confirmed.stamp.generation,
            }
        })
    }

    pub(super) fn set_second_copy(&self, dir: Option<PathBuf>) -> Result<ControlAnswer> {
        let done_line = match &dir {
            Some(dir) => format!(
                "started to write the second copy of the map to {}",
                dir.display()
            ),
            None => "the map now has only one copy".to_owned(),
        };
        let (id, before, reader) = self.with_keeper(|keeper| {
            let state = keeper.map.state();
            (keeper.map.id(), state.second.clone(), keeper.map.reader())
        })?;
        let wish = match dir {
            None => SecondCopy::Off,
            Some(dir) => {
                let path = dir.join(format!("map-{id}.redb"));
                let wish = SecondCopy::At(path.display().to_string());
                if wish != before {
                    // This test runs outside the keeper, because it may take long. The present second copy is replaced only
                    // if the new place is usable.
                    let image = reader.and_then(|map| map.image())?;
                    check_place(&path, id, &image)?;
                }
                wish
            }
        };
        self.with_keeper(move |keeper| keeper.set_second(wish))??;
        done(done_line)
    }

    /// Writes the map to a file while all other operations continue. It replaces only an older backup of the same array.
    pub(super) fn backup(&self, path: &Path) -> Result<ControlAnswer> {
        let (map, not_believed) =
            self.with_keeper(|keeper| (keeper.map.reader(), keeper.not_believed()))?;
        let map = map?;
        if let Some(why) = not_believed {
            return Err(DatapathError::Refused(format!(
                "cannot back up the map, because this may not be its last state: {why}"
            )));
        }
        let place = FilePlace(path.into());
        if path.exists() {
            let before = place.look().ok();
            let same = before.filter(|a| a.id() == map.id());
            let backup = same.and_then(|a| a.state().ok());
            let Some(before) = backup.filter(|s| s.confirmed.members == Members::NONE) else {
                return Err(DatapathError::Refused(format!(
                    "{}: the file exists and is not a backup of this array",
                    path.display()
                )));
            };
            let age = |s: &MapState| (s.confirmed.stamp.generation, s.commits);
            let now = map.state()?;
            if age(&before) > age(&now) {
                return Err(DatapathError::Refused(format!(
                    "{}: the existing backup has generation {} with {} commits, and the map has generation {} with {}: an older map was restored, and its backup would replace a newer one",
                    path.display(),
                    before.confirmed.stamp.generation,
                    before.commits,
                    now.confirmed.stamp.generation,
                    now.commits
                )));
            }
        }
        let image = map.image()?;
        drop(map); // the keeper may have to open the map again, and the other disk may be slow
        let NewMap { array: copy, put } = image.make_in(&place)?;
        let commits = image.commits;
        copy.commit(&[Change::SetAside])?;
        let generation = copy.state()?.confirmed.stamp.generation;
        drop(copy);
        put()?;
        done(format!(
            "wrote the map to {}: {commits} commits, generation {generation}",
            path.display()
        ))
    }
}

/// Checks that a copy of the map can be in a place: the directory exists, no other file has the name, and the space is
/// sufficient.
fn check_place(path: &Path, id: ArrayId, image: &Image) -> Result<()> {
    let dir = path.parent().filter(|d| d.is_dir());
    if !path.is_absolute() || dir.is_none() {
        return Err(DatapathError::Refused(format!(
            "{}: name a file in an existing directory",
            path.display()
        )));
    }
    if path.exists() && !Array::look_at(path).is_ok_and(|a| a.id() == id) {
        return Err(DatapathError::Refused(format!(
            "{}: another file with this name exists",
            path.display()
        )));
    }
    let trial = FilePlace(path.with_extension("trial"));
    // The trial file is removed again.
    let made = image.make_in(&trial).map(drop);
    trial.tidy();
    made.map_err(|e| DatapathError::from(e).about(path.display()))
}
