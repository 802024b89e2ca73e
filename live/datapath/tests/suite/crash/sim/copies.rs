//! Disks of the map's copies. Each may be missing, old or damaged, or may fail while the process runs.

use std::sync::{Arc, Mutex, PoisonError};

use array::{Array, ArrayError, ArrayId, CopyPlace, NewMap};
use crashdisk::CrashDisk;
use units::Bytes;

/// Place of a copy.
#[derive(Debug, Clone)]
pub struct SimPlace(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    /// `None` if the disk is missing.
    disk: Option<CrashDisk>,
}

impl SimPlace {
    pub fn new(name: &'static str, disk: Option<CrashDisk>) -> Self {
        Self(Arc::new(Mutex::new(Inner { name, disk })))
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn disk(&self) -> Option<CrashDisk> {
        self.inner().disk.clone()
    }

    fn there(&self) -> Result<CrashDisk, ArrayError> {
        let Inner { name, disk } = &*self.inner();
        let path = (*name).into();
        disk.clone().ok_or(ArrayError::Missing { path })
    }
}

impl CopyPlace for SimPlace {
    fn name(&self) -> String {
        self.inner().name.into()
    }

    fn look(&self) -> Result<Array, ArrayError> {
        self.there().and_then(Array::look_on)
    }

    fn open(&self) -> Result<Array, ArrayError> {
        self.there().and_then(Array::open_on)
    }

    fn begin(&self, id: ArrayId, extent: Bytes) -> Result<NewMap, ArrayError> {
        let inner = self.inner();
        // A disk that has stopped accepts no new file either.
        if inner.disk.as_ref().is_none_or(|d| d.stopped()) {
            return Err(ArrayError::Away {
                why: "simulated: the disk is gone".into(),
            });
        }
        let fresh = CrashDisk::new(0);
        let array = Array::create_on(fresh.clone(), id, extent)?;
        let place = self.clone();
        let put = Box::new(move || {
            place.inner().disk = Some(fresh);
            Ok(())
        });
        Ok(NewMap { array, put })
    }
}
