//! Exclusive operations: those that change a whole volume or its snapshots run one after another.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use units::VolumeId;

use crate::error::{DatapathError, Result};

/// Volumes with an exclusive operation, including operations on their snapshots.
#[derive(Debug, Clone, Default)]
pub(super) struct Claims(Arc<Mutex<BTreeSet<VolumeId>>>);

/// Exclusive right to change a whole volume, until it is dropped.
#[derive(Debug)]
pub(super) struct VolumeClaim {
    all: Claims,
    volume: VolumeId,
}

impl Claims {
    fn all(&self) -> MutexGuard<'_, BTreeSet<VolumeId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a volume; a snapshot is claimed by its volume.
    ///
    /// # Errors
    /// [`DatapathError::Busy`] if another operation has the claim.
    pub(super) fn claim(&self, volume: VolumeId, name: &str) -> Result<VolumeClaim> {
        match self.all().insert(volume) {
            true => Ok(VolumeClaim {
                all: self.clone(),
                volume,
            }),
            false => Err(DatapathError::Busy(format!(
                "another command is changing or saving volume {name:?}: try again"
            ))),
        }
    }

    /// Returns a claimed volume.
    pub(super) fn any(&self) -> Option<VolumeId> {
        self.all().first().copied()
    }
}

impl Drop for VolumeClaim {
    fn drop(&mut self) {
        self.all.all().remove(&self.volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claimed_volume_cannot_be_claimed_again() {
        let claims = Claims::default();
        let first = claims.claim(VolumeId(1), "data").unwrap();
        assert!(claims.claim(VolumeId(1), "data").is_err());
        let other = claims.claim(VolumeId(2), "other").unwrap();
        drop(first);
        let again = claims.claim(VolumeId(1), "data").unwrap();
        assert_eq!(claims.any(), Some(VolumeId(1)));
        drop((other, again));
        assert_eq!(claims.any(), None);
        assert!(claims.all().is_empty());
    }
}
