//! Changes of a disk.

use crate::SECTOR;

/// Operation that changes the disk.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// Writes bytes at an offset.
    Write { at: u64, bytes: Vec<u8> },
    /// Writes zeroes at an offset.
    Zero { at: u64, length: u64 },
    /// Sets the length; added bytes read as zeroes.
    Length(u64),
}

impl Change {
    /// Returns start and end of the changed bytes; `None` for a length.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        match self {
            Change::Write { at, bytes } => Some((*at, at + bytes.len() as u64)),
            Change::Zero { at, length } => Some((*at, at + length)),
            Change::Length(_) => None,
        }
    }

    /// Returns the part of the change in `start..end`; `None` if it is empty, and for a length.
    pub(crate) fn cut(&self, start: u64, end: u64) -> Option<Change> {
        let (from, to) = self.range()?;
        let (at, cut_end) = (from.max(start), to.min(end));
        (at < cut_end).then(|| match self {
            Change::Write { bytes, .. } => Change::Write {
                at,
                bytes: bytes[(at - from) as usize..(cut_end - from) as usize].to_vec(),
            },
            _ => Change::Zero {
                at,
                length: cut_end - at,
            },
        })
    }

    /// Applies the change, which must be inside the image.
    pub(crate) fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Change::Write { at, bytes } => {
                let at = *at as usize;
                image[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Change::Zero { at, length } => image[*at as usize..(at + length) as usize].fill(0),
            Change::Length(length) => image.resize(*length as usize, 0),
        }
    }

    /// Applies the change in those sectors for which `lands` returns true, as far as they are inside the image. Lengths are
    /// ignored.
    pub(crate) fn apply_torn(&self, image: &mut [u8], mut lands: impl FnMut() -> bool) {
        let Some((start, end)) = self.range() else {
            return;
        };
        let mut from = start;
        while from < end {
            let to = end.min((from / SECTOR + 1) * SECTOR);
            let inside = to.min(image.len() as u64);
            if lands() && from < inside {
                let part = &mut image[from as usize..inside as usize];
                match self {
                    Change::Write { bytes, .. } => part.copy_from_slice(
                        &bytes[(from - start) as usize..(inside - start) as usize],
                    ),
                    _ => part.fill(0),
                }
            }
            from = to;
        }
    }
}
