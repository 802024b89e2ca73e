//! Imports: a volume that is made of an image, a block device or an NBD export, and used at once.

use array::{LOGICAL_BLOCK_MIN, SourceRecord, VOLUME_EXTENTS_MAX, VolumeRecord};
use model::NO_CLASS;
use units::{Bytes, BytesPerSec};

use super::underway::Taken;
use super::volumes::{NewVolume, is_no_snapshots, name_is_free};
use super::{ControlAnswer, ControlServer, Result, refused, tier_named};
use crate::source::{Source, Wanted};

/// An import that is asked for.
pub(super) struct Importing {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) format: Option<String>,
    pub(super) tier: String,
    pub(super) class: Option<String>,
    pub(super) bandwidth: Option<BytesPerSec>,
}

impl ControlServer {
    /// Makes a volume of a source. What may take long (a server for an image, looking for what it has) is done here, beside whatever else
    /// goes on; the keeper makes the records only.
    pub(super) fn import(&self, wanted: Importing) -> Result<ControlAnswer> {
        let Importing {
            name,
            from,
            format,
            tier,
            class,
            bandwidth,
        } = wanted;
        if self.server.is_none() {
            return Err(
                "an import needs a server: start one (`terrace volume export`) and run the import again".into(),
            );
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
            // Asked for in here: what another one has claimed may be its own in between.
            let last = self.with_keeper(|keeper| keeper.last_number())?;
            let last = last.max(others.keys().last().copied());
            let id = units::DeviceId(last.map_or(0, |d| d.0 + 1));
            let name = format!("the source of volume {name}");
            Ok((id, Taken { name, path: None }))
        })?;
        let wanted = Wanted {
            device: claim.id,
            from,
            format,
            dir,
        };
        let source = Source::open(&wanted).map_err(|why| why.to_string())?;
        source.is_whole()?;
        let size = source.mark.size;
        // Before all of it is looked through, which may take long.
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

/// Refuses a source with more extents than a volume has.
fn can_have_so_many(size: Bytes, extent: Bytes) -> Result<()> {
    match size.0.div_ceil(extent.0) <= VOLUME_EXTENTS_MAX {
        true => Ok(()),
        false => Err(format!(
            "the source has {size}, and a volume of this array can have at most {}",
            Bytes(extent.0.saturating_mul(VOLUME_EXTENTS_MAX))
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_no_volume_can_hold_is_refused_before_it_is_looked_through() {
        let most = Bytes::mib(VOLUME_EXTENTS_MAX);
        assert_eq!(can_have_so_many(most, Bytes::mib(1)), Ok(()));
        let why = can_have_so_many(Bytes(most.0 + 512), Bytes::mib(1)).unwrap_err();
        assert!(why.contains("at most 256 TiB"), "{why}");
        assert!(can_have_so_many(Bytes(u64::MAX), Bytes::mib(1)).is_err());
    }
}
