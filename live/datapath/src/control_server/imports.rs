//! Imports: volumes that are made of an image, a block device or an NBD export, and usable at once.

use array::{LOGICAL_BLOCK_MIN, SourceRecord, VOLUME_EXTENTS_MAX, VolumeRecord};
use model::NO_CLASS;
use units::{Bytes, BytesPerSec};

use super::underway::ReservedName;
use super::volumes::{NewVolume, is_no_snapshots, name_is_free};
use super::{ControlAnswer, ControlServer, DatapathError, Result, refused, tier_named};
use crate::source::{Source, SourceSpec};

/// Requested import.
pub(super) struct ImportRequest {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) format: Option<String>,
    pub(super) tier: String,
    pub(super) class: Option<String>,
    pub(super) bandwidth: Option<BytesPerSec>,
}

impl ControlServer {
    /// Creates a volume from a source. Long operations (a server for an image, its allocation map) run here, concurrently
    /// with all others; the keeper only makes the records.
    pub(super) fn import(&self, wanted: ImportRequest) -> Result<ControlAnswer> {
        let ImportRequest {
            name,
            from,
            format,
            tier,
            class,
            bandwidth,
        } = wanted;
        if self.server.is_none() {
            return Err(DatapathError::NotServed("an import needs a server: start one (`terrace volume export`) and run the import again".into()));
        }
        let allowed = self.allowed();
        let class = class.unwrap_or_else(|| NO_CLASS.into());
        allowed.class(&class)?;
        is_no_snapshots(&name)?;
        let (wanted_name, wanted_tier) = (name.clone(), tier.clone());
        let (dir, extent) = self.with_keeper(move |keeper| -> Result<_> {
            name_is_free(keeper, &wanted_name)?;
            tier_named(keeper, &wanted_tier)?;
            let dir = keeper.dir.clone().unwrap_or_else(std::env::temp_dir);
            Ok((dir, keeper.map.extent()))
        })??;
        let claim = self.underway.claim(|others| {
            // The number is chosen within the claim, so that no concurrent operation gets the same one.
            let last = self.with_keeper(|keeper| keeper.last_number())?;
            let last = last.max(others.keys().last().copied());
            let id = units::DeviceId(last.map_or(0, |d| d.0 + 1));
            let name = format!("the source of volume {name}");
            Ok((id, ReservedName { name, path: None }))
        })?;
        let wanted = SourceSpec {
            device: claim.id,
            from,
            format,
            dir,
        };
        let source = Source::open(&wanted)?;
        source.is_whole()?;
        let size = source.mark.size;
        // This check comes before the search for data in the source, which may take long.
        can_have_so_many(size, extent)?;
        let what = format!("import volume {name:?} of {size}");
        let (early, asked) = (allowed.clone(), what.clone());
        self.with_keeper(move |keeper| early.room(keeper, &asked, size))??;
        let extents = source.extents(extent)?;
        let there: u64 = extents.iter().map(|(from, to)| u64::from(to - from)).sum();
        let record = SourceRecord {
            device: claim.id,
            format: source.format.clone(),
            from: wanted.from,
            mark: source.mark,
            bandwidth: bandwidth.unwrap_or(BytesPerSec(0)),
        };
        let (called, from) = (name.clone(), record.from.clone());
        let (logical_block, more) = (source.logical_block, source.more.clone());
        let new = NewVolume {
            name,
            size,
            logical_block,
            tier,
            class,
        };
        self.with_keeper(move |keeper| -> Result<()> {
            let record = VolumeRecord {
                source: Some(record),
                ..new.record(keeper, &allowed, &what)?
            };
            let begun = keeper.begin_import(record, extents, source);
            begun.map_err(refused)
        })??;
        drop(claim);
        self.export(&called)?;
        let there = Bytes((there * extent.0).min(size.0));
        let sectors = match logical_block {
            LOGICAL_BLOCK_MIN => String::new(),
            bytes => format!(", logical blocks of {bytes} bytes"),
        };
        Ok(ControlAnswer::Importing {
            message: format!(
                "created volume {called} ({size}{sectors}); importing up to {there} from {from}"
            ),
            more,
        })
    }
}

/// Refuses a source with more extents than a volume can have.
fn can_have_so_many(size: Bytes, extent: Bytes) -> Result<()> {
    match size.0.div_ceil(extent.0) <= VOLUME_EXTENTS_MAX {
        true => Ok(()),
        false => Err(DatapathError::Refused(format!(
            "the source has {size}, and a volume of this array can have at most {}",
            Bytes(extent.0.saturating_mul(VOLUME_EXTENTS_MAX))
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_source_above_the_maximum_volume_size_is_refused_at_once() {
        let most = Bytes::mib(VOLUME_EXTENTS_MAX);
        can_have_so_many(most, Bytes::mib(1)).unwrap();
        let why = can_have_so_many(Bytes(most.0 + 512), Bytes::mib(1)).unwrap_err();
        let why = why.to_string();
        assert!(why.contains("at most 256 TiB"), "{why}");
        assert!(can_have_so_many(Bytes(u64::MAX), Bytes::mib(1)).is_err());
    }
}
