//! Orders that change a volume as a whole, and its snapshots, come one after the other.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use units::VolumeId;

/// Volumes that such an order is about, with their snapshots.
#[derive(Debug, Clone, Default)]
pub(super) struct Claims(Arc<Mutex<BTreeSet<VolumeId>>>);

/// Nobody else changes a volume as a whole until this is dropped.
#[derive(Debug)]
pub(super) struct VolumeClaim {
    all: Claims,
    volume: VolumeId,
}

impl Claims {
    fn all(&self) -> MutexGuard<'_, BTreeSet<VolumeId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a volume, by the one that its snapshots are of.
    ///
    /// # Errors
    /// Somebody has it.
    pub(super) fn claim(&self, volume: VolumeId, name: &str) -> Result<VolumeClaim, String> {
        match self.all().insert(volume) {
            true => Ok(VolumeClaim {
                all: self.clone(),
                volume,
            }),
            false => Err(format!(
                "another command is changing or saving volume {name:?}: try again"
            )),
        }
    }

    /// One that is claimed.
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
    fn a_volume_is_claimed_once_at_a_time() {
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
