//! Volumes that are imported. Extents that are not copied yet have places at the source.

use redb::ReadableTable;
use units::{DeviceId, VolumeId};
use volume::Location;

use super::Draft;
use crate::commit::{Failure, store};
use crate::read::{each, each_extent};
use crate::record::VolumeRecord;
use crate::refusal::Refusal;
use crate::tables::{extent_key, keys_of, seal_extent, split_key};

fn refuse(volume: VolumeId, why: impl Into<String>) -> Failure {
    let (volume, why) = (volume.0, why.into());
    Failure::Refused(Refusal::Source { volume, why })
}

impl Draft<'_> {
    pub(super) fn import(
        &mut self,
        record: &VolumeRecord,
        extents: &[(u32, u32)],
    ) -> Result<(), Failure> {
        let id = record.id;
        let Some(source) = &record.source else {
            return Err(refuse(id, "it has no source"));
        };
        if self.devices.get(source.device.0).map_err(store)?.is_some() {
            let why = format!("its source has the number of device {}", source.device.0);
            return Err(refuse(id, why));
        }
        self.is_no_source(source.device, Some(id))?;
        self.id_is_free(id)?;
        self.put_volume(record)?;
        let count = record.extents(self.extent);
        let mut next = 0;
        for (first, end) in extents {
            if *first < next || first >= end || u64::from(*end) > count {
                let why = format!("extents {first} to {end} of {count}, after {next}");
                return Err(refuse(id, why));
            }
            next = *end;
        }
        let all = extents.iter().flat_map(|(first, end)| *first..*end);
        let records = all.map(|extent| {
            let key = extent_key(id, extent);
            let at = Location {
                device: source.device,
                slot: extent,
            };
            (key, seal_extent(key, at))
        });
        let end = *keys_of(id).end();
        self.extents.append(end, records).map_err(store)
    }

    /// Checks that the number is not in use by the source of another volume.
    pub(super) fn is_no_source(
        &self,
        device: DeviceId,
        but: Option<VolumeId>,
    ) -> Result<(), Failure> {
        let mut refusal = None;
        each::<VolumeRecord>(&*self.volumes, |_, found| {
            let found = found?;
            let is = found.source.as_ref().is_some_and(|s| s.device == device);
            if is && Some(found.id) != but {
                let why = format!("its source has the number {}", device.0);
                refusal = Some(refuse(found.id, why));
            }
            Ok(())
        })?;
        refusal.map_or(Ok(()), Err)
    }

    /// Checks that a volume keeps its source until no extent is left there.
    pub(super) fn source_is_kept(
        &self,
        before: &VolumeRecord,
        after: &VolumeRecord,
    ) -> Result<(), Failure> {
        let number = |v: &VolumeRecord| v.source.as_ref().map(|s| s.device);
        let Some(source) = number(before) else {
            return match number(after) {
                None => Ok(()),
                Some(_) => Err(refuse(after.id, "it already exists")),
            };
        };
        match number(after) {
            Some(same) if same == source => Ok(()),
            Some(_) => Err(refuse(after.id, "its source keeps its number")),
            None => {
                let mut left = None;
                each_extent(&*self.extents, keys_of(after.id), |key, at| {
                    // An unreadable record may be at the source.
                    if left.is_none() && at.is_ok_and(|at| at.device == source) {
                        left = Some(split_key(key).1);
                    }
                    Ok(())
                })?;
                match left {
                    None => Ok(()),
                    Some(extent) => Err(refuse(
                        after.id,
                        format!("extent {extent} is not copied yet"),
                    )),
                }
            }
        }
    }
}
