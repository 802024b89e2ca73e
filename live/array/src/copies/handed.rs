//! Handover of the copies of a map to another process, and their return. The stores are closed; their files stay open
//! and locked.
//!
//! ```text
//!   members, open ──close_to_hand──▶ files, open and locked ──▶ another process opens them, and commits
//!                                              │
//!                 reopen ◀── no commit ────────┘ a commit: the map belongs to the other process
//! ```

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use super::Copies;
use crate::membership::CopyId;
use crate::{Array, ArrayError};

/// Closed copy and its file.
#[derive(Debug, Clone)]
pub struct HandedCopy {
    pub copy: CopyId,
    /// Name of its place.
    pub place: String,
    /// File with its lock.
    pub file: Arc<File>,
}

/// Time within which a reader or a completed commit releases a copy.
const LET_GO: Duration = Duration::from_millis(100);

impl Copies {
    /// Reason the copies cannot be handed to another process now, if any.
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

    /// Returns the copies and their files before they are closed.
    ///
    /// # Errors
    /// [`ArrayError::NotHanded`].
    pub fn files(&self) -> Result<Vec<HandedCopy>, ArrayError> {
        if let Some(why) = self.why_not_handed() {
            return Err(ArrayError::NotHanded { why });
        }
        let of = |copy: CopyId| {
            let slot = self.slots[copy.index()].as_ref()?;
            let file = slot.array.as_ref()?.file.as_ref()?.file.clone();
            let place = slot.place.name();
            Some(HandedCopy { copy, place, file })
        };
        Ok(CopyId::ALL.into_iter().filter_map(of).collect())
    }

    /// Closes the copies and keeps their files. Until [`Copies::reopen`] nothing can be read or changed.
    ///
    /// # Errors
    /// [`ArrayError::NotHanded`]. The copies stay open.
    pub fn close_to_hand(&mut self) -> Result<Vec<HandedCopy>, ArrayError> {
        if let Some(why) = self.why_not_handed() {
            return Err(ArrayError::NotHanded { why });
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
                    return Err(ArrayError::NotHanded {
                        why: format!("another program reads a copy of the map: {place}"),
                    });
                }
            }
        }
        drop(open); // which closes them
        Ok(handed)
    }

    /// Reopens the copies that were closed for a handover. Returns true if no other process has made a commit
    /// meanwhile; otherwise the map belongs to that process.
    ///
    /// # Errors
    /// A copy could not be opened. Then the state of the map is unknown.
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

/// Returns the array as soon as no other reference to it exists.
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
