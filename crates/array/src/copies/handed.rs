//! Handing the copies of a map to another process, and taking them back: the stores are closed, their files stay open, and locked.
//!
//! ```text
//!   members, open ──close_to_hand──▶ files, open and locked ──▶ another process opens them, and commits
//!                                              │
//!                 reopen ◀── it has not ───────┘ it has: the map is not this process's any more
//! ```

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use super::Copies;
use crate::membership::CopyId;
use crate::{Array, ArrayError};

/// A copy that is closed, and its file.
#[derive(Debug, Clone)]
pub struct HandedCopy {
    pub copy: CopyId,
    /// How its place is called.
    pub place: String,
    /// It, with the lock on it.
    pub file: Arc<File>,
}

/// Whoever reads a copy, or has just committed to it, lets it go within this time.
const LET_GO: Duration = Duration::from_millis(100);

impl Copies {
    /// Why the copies cannot be handed to another process now, if so.
    pub fn why_not_handed(&self) -> Option<String> {
        if self.in_doubt() {
            return Some("the last change of the map may not be durable".into());
        }
        if !self.confirmed() {
            return Some("the copies of the map do not agree yet".into());
        }
        if self.rebuild.is_some() {
            return Some("a copy of the map is being rebuilt".into());
        }
        for slot in self.slots.iter().flatten() {
            let place = slot.place.name();
            if !slot.member || slot.removed {
                return Some(format!("a copy of the map is out of date: {place}"));
            }
            let file = slot.array.as_ref().map(|a| a.file.is_some());
            if file != Some(true) {
                return Some(format!("a copy of the map is in no file: {place}"));
            }
        }
        None
    }

    /// The copies and their files, before they are closed.
    ///
    /// # Errors
    /// Why they cannot be handed over.
    pub fn files(&self) -> Result<Vec<HandedCopy>, String> {
        if let Some(why) = self.why_not_handed() {
            return Err(why);
        }
        let of = |copy: CopyId| {
            let slot = self.slots[copy.index()].as_ref()?;
            let file = slot.array.as_ref()?.file.as_ref()?.file.clone();
            let place = slot.place.name();
            Some(HandedCopy { copy, place, file })
        };
        Ok(CopyId::ALL.into_iter().filter_map(of).collect())
    }

    /// Closes the copies, and keeps their files. Until [`Copies::reopen`] nothing can be read or changed.
    ///
    /// # Errors
    /// Why they cannot be closed now: they are open as before.
    pub fn close_to_hand(&mut self) -> Result<Vec<HandedCopy>, String> {
        if let Some(why) = self.why_not_handed() {
            return Err(why);
        }
        self.check = None; // ends the verification, which holds the copies
        let (mut handed, mut open) = (vec![], vec![]);
        for copy in CopyId::ALL {
            let Some(slot) = &mut self.slots[copy.index()] else {
                continue;
            };
            let place = slot.place.name();
            let array = slot.array.take().expect("it was just looked at");
            match sole(array) {
                Ok(array) => {
                    let file = array.file.as_ref().expect("likewise").file.clone();
                    handed.push(HandedCopy { copy, place, file });
                    open.push((copy, array));
                }
                Err(shared) => {
                    slot.array = Some(shared);
                    for (copy, array) in open {
                        let slot = self.slots[copy.index()].as_mut().expect("it was there");
                        slot.array = Some(Arc::new(array));
                    }
                    return Err(format!("another program reads a copy of the map: {place}"));
                }
            }
        }
        drop(open); // which closes them
        Ok(handed)
    }

    /// Opens the copies again that were closed to be handed over. Whether nobody has committed anything meanwhile: otherwise the map is
    /// another process's.
    ///
    /// # Errors
    /// When one of them cannot be opened: then nothing is known.
    pub fn reopen(&mut self, handed: &[HandedCopy]) -> Result<bool, ArrayError> {
        let mut opened = vec![];
        for HandedCopy { copy, place, file } in handed {
            let array = Array::open_locked_file(file.clone(), place)?;
            if array.state()? != self.state {
                return Ok(false);
            }
            opened.push((*copy, array));
        }
        for (copy, array) in opened {
            let slot = self.slots[copy.index()].as_mut();
            slot.expect("it was closed here").array = Some(Arc::new(array));
        }
        Ok(true)
    }
}

/// It, once nobody else has it.
#[expect(
    clippy::disallowed_methods,
    reason = "who reads a copy is waited for, and not for long"
)]
fn sole(mut array: Arc<Array>) -> Result<Array, Arc<Array>> {
    for _ in 0..LET_GO.as_millis() {
        match Arc::try_unwrap(array) {
            Ok(array) => return Ok(array),
            Err(shared) => array = shared,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(array)
}
