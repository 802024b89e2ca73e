//! The copies of the map, and backups of it.

use std::path::{Path, PathBuf};

use array::{Change, CopyHealth, CopyPlace, FilePlace, Members, SecondCopy};

use super::{CopyInfo, Desk, Result, Told, done, text};

impl Desk {
    pub(super) fn copies(&self) -> Result<Told> {
        self.with_keeper(|keeper| {
            let info = |(copy, path, health): (array::CopyId, String, CopyHealth)| {
                let (state, why) = match health {
                    CopyHealth::Member => ("current", None),
                    CopyHealth::Rebuilding => ("rebuilding", None),
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
                    "a change was not acknowledged yet: it is not known whether it is durable in every copy that counts"
                        .to_owned(),
                ),
                (None, false) => None,
            };
            Told::Copies {
                unsettled,
                copies: keeper.map.health().into_iter().map(info).collect(),
                commits: state.commits,
                generation: state.confirmed.stamp.generation,
            }
        })
    }

    pub(super) fn set_second_copy(&self, dir: Option<PathBuf>) -> Result<Told> {
        let told = match &dir {
            Some(dir) => format!(
                "the second copy of the map is being made in {}",
                dir.display()
            ),
            None => "the map has one copy".to_owned(),
        };
        self.with_keeper(move |keeper| {
            keeper.set_second(match dir {
                None => SecondCopy::Off,
                Some(dir) => {
                    let name = format!("map-{}.redb", keeper.map.id());
                    SecondCopy::At(dir.join(name).display().to_string())
                }
            })
        })??;
        done(told)
    }

    /// Writes the map to a file beside everything that goes on. It replaces nothing but an older backup of the same array.
    pub(super) fn backup(&self, path: &Path) -> Result<Told> {
        let map = self
            .with_keeper(|keeper| keeper.map.reader())?
            .map_err(text)?;
        let place = FilePlace(path.into());
        if path.exists() {
            let before = place.open().ok();
            let same = before.filter(|a| a.id() == map.id());
            let members = same
                .and_then(|a| a.state().ok())
                .map(|s| s.confirmed.members);
            if members != Some(Members::NONE) {
                return Err(format!(
                    "{}: there is a file already, and it is no backup of this array",
                    path.display()
                ));
            }
        }
        let copy = place.begin(map.id(), map.extent()).map_err(text)?;
        let commits = map.copy_into(&copy).map_err(text)?;
        copy.commit(&[Change::SetAside]).map_err(text)?;
        let generation = copy.state().map_err(text)?.confirmed.stamp.generation;
        drop(copy);
        place.replace().map_err(text)?;
        done(format!(
            "the map is in {}: {commits} commits, generation {generation}",
            path.display()
        ))
    }
}
