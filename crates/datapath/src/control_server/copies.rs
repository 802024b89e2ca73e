//! The copies of the map, and backups of it.

use std::path::{Path, PathBuf};

use array::{
    Array, ArrayId, Change, CopyHealth, CopyPlace, FilePlace, Fresh, Image, MapState, Members,
    SecondCopy,
};

use super::{ControlAnswer, ControlServer, CopyInfo, Result, done, text};

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
                    // Not by the keeper: it may take long. The one that there is is only given up for one that can be.
                    let image = reader.and_then(|map| map.image()).map_err(text)?;
                    check_place(&path, id, &image)?;
                }
                wish
            }
        };
        self.with_keeper(move |keeper| keeper.set_second(wish))??;
        done(done_line)
    }

    /// Writes the map to a file beside everything that goes on. It replaces nothing but an older backup of the same array.
    pub(super) fn backup(&self, path: &Path) -> Result<ControlAnswer> {
        let (map, not_believed) =
            self.with_keeper(|keeper| (keeper.map.reader(), keeper.not_believed()))?;
        let map = map.map_err(text)?;
        if let Some(why) = not_believed {
            return Err(format!(
                "cannot back up the map, because this may not be its last state: {why}"
            ));
        }
        let place = FilePlace(path.into());
        if path.exists() {
            let before = place.look().ok();
            let same = before.filter(|a| a.id() == map.id());
            let backup = same.and_then(|a| a.state().ok());
            let Some(before) = backup.filter(|s| s.confirmed.members == Members::NONE) else {
                return Err(format!(
                    "{}: the file exists and is not a backup of this array",
                    path.display()
                ));
            };
            let age = |s: &MapState| (s.confirmed.stamp.generation, s.commits);
            let now = map.state().map_err(text)?;
            if age(&before) > age(&now) {
                return Err(format!(
                    "{}: the existing backup has generation {} with {} commits, and the map has generation {} with {}: an older map was restored, and its backup would replace a newer one",
                    path.display(),
                    before.confirmed.stamp.generation,
                    before.commits,
                    now.confirmed.stamp.generation,
                    now.commits
                ));
            }
        }
        let image = map.image().map_err(text)?;
        drop(map); // it may have to be opened again, however long the other disk takes
        let Fresh { array: copy, put } = image.make_in(&place).map_err(text)?;
        let commits = image.commits;
        copy.commit(&[Change::SetAside]).map_err(text)?;
        let generation = copy.state().map_err(text)?.confirmed.stamp.generation;
        drop(copy);
        put().map_err(text)?;
        done(format!(
            "wrote the map to {}: {commits} commits, generation {generation}",
            path.display()
        ))
    }
}

/// Whether a copy of the map can be in a place: the directory is there, nothing else is in its place, and it fits.
fn check_place(path: &Path, id: ArrayId, image: &Image) -> Result<()> {
    let dir = path.parent().filter(|d| d.is_dir());
    if !path.is_absolute() || dir.is_none() {
        return Err(format!(
            "{}: name a file in an existing directory",
            path.display()
        ));
    }
    if path.exists() && !Array::look_at(path).is_ok_and(|a| a.id() == id) {
        return Err(format!(
            "{}: another file with this name exists",
            path.display()
        ));
    }
    let trial = FilePlace(path.with_extension("trial"));
    // It never takes a place.
    let made = image.make_in(&trial).map(drop);
    trial.tidy();
    made.map_err(|e| format!("{}: {}", path.display(), text(e)))
}
