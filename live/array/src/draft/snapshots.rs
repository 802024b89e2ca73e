//! Changes of snapshots, and effects of other changes on snapshots (`changed` has the rules).

use redb::ReadableTable;
use units::{Bytes, VolumeId};
use volume::Location;

use super::Draft;
use crate::ArrayError;
use crate::changed::{each_changed, each_difference};
use crate::commit::{Failure, store, unknown};
use crate::families::Families;
use crate::read::get;
use crate::record::{Health, VolumeRecord};
use crate::refusal::{Refusal, SNAPSHOTS_MAX};
use crate::tables::{extent_key, keys_of, seal_changed, seal_extent, split_key, unseal_extent};

/// Number of rows read before they are written again. Bounds memory.
const ROWS_AT_ONCE: usize = 1 << 16;

/// Number of snapshots named in a message.
const NAMED_MAX: usize = 5;

fn refuse(volume: VolumeId, why: impl Into<String>) -> Failure {
    Failure::Refused(Refusal::Snapshot {
        volume: volume.0,
        why: why.into(),
    })
}

impl Draft<'_> {
    pub(super) fn take_snapshot(&mut self, record: &VolumeRecord) -> Result<(), Failure> {
        let id = record.id;
        let Some(of) = record.snapshot else {
            return Err(refuse(id, "it is not a snapshot"));
        };
        self.id_is_free(id)?;
        let volume: Option<VolumeRecord> = get(&*self.volumes, of.volume.0)?;
        let volume = volume.ok_or_else(|| unknown("volume", of.volume.0))?;
        if volume.snapshot.is_some() {
            let why = format!("volume {} is a snapshot", volume.id.0);
            return Err(refuse(id, why));
        }
        if volume.health == Health::Damaged {
            let volume = volume.id.0;
            return Err(Failure::Refused(Refusal::Damaged { volume }));
        }
        if volume.source.is_some() {
            return Err(refuse(id, "its volume is being imported"));
        }
        if volume.size != record.size {
            let (size, of) = (record.size, volume.size);
            return Err(refuse(
                id,
                format!("a snapshot with {size} of a volume with {of}"),
            ));
        }
        self.all_are_known()?;
        let mut snapshots = self.families()?.snapshots(of.volume);
        if snapshots.len() >= SNAPSHOTS_MAX {
            let volume = of.volume.0;
            return Err(Failure::Refused(Refusal::TooManySnapshots { volume }));
        }
        if let Some((last, other)) = snapshots.next_back()
            && last >= of.sequence
        {
            let (sequence, other) = (of.sequence, other.0);
            let why =
                format!("sequence {sequence} does not come after {last}, that of snapshot {other}");
            return Err(refuse(id, why));
        }
        drop(snapshots);
        let mut marks = self.marks(of.volume)?;
        // If the record of the previous snapshot was corrupt, the shared slots were unknown.
        marks.extend(self.not_as_newest(of.volume)?);
        self.put_volume(record)?;
        self.copy_places(of.volume, id)?;
        self.put_marks(id, marks)?;
        self.forget_changed(of.volume)?;
        self.families()?.add(record);
        Ok(())
    }

    pub(super) fn restore_snapshot(&mut self, snapshot: VolumeId) -> Result<(), Failure> {
        let record: Option<VolumeRecord> = get(&*self.volumes, snapshot.0)?;
        let record = record.ok_or_else(|| unknown("volume", snapshot.0))?;
        let Some(of) = record.snapshot else {
            return Err(refuse(snapshot, "it is not a snapshot"));
        };
        let volume = of.volume;
        let before: Option<VolumeRecord> = get(&*self.volumes, volume.0)?;
        let before = before.ok_or_else(|| unknown("volume", volume.0))?;
        if self.moves.get(volume.0).map_err(store)?.is_some() {
            return Err(Failure::Refused(Refusal::Moves { volume: volume.0 }));
        }
        self.all_are_known()?;
        self.order_is_known(volume, snapshot)?;
        self.extents.clear(keys_of(volume)).map_err(store)?;
        self.copy_places(snapshot, volume)?;
        let mut marks = vec![];
        let states = self.families()?.states(volume);
        let later = states
            .iter()
            .skip_while(|state| **state != snapshot)
            .skip(1);
        for state in later.filter(|state| **state != volume) {
            marks.extend(self.marks(*state)?);
        }
        marks.extend(self.not_as_newest(volume)?);
        self.put_marks(volume, marks)?;
        self.write_volume(&VolumeRecord {
            size: record.size,
            health: record.health,
            ..before
        })
    }

    /// Records the removal of a volume. Its changed extents count as changed in the next state.
    pub(super) fn leave_family(&mut self, volume: VolumeId) -> Result<(), Failure> {
        if self.families()?.snapshots(volume).len() > 0 {
            let names = self.names_of_snapshots(volume)?;
            let volume = volume.0;
            return Err(Failure::Refused(Refusal::HasSnapshots { volume, names }));
        }
        let families = self.families()?;
        if families.is_unreadable(volume) {
            if !families.is_empty() {
                let volume = volume.0;
                return Err(Failure::Refused(Refusal::PerhapsSnapshot { volume }));
            }
            // If it was a snapshot, it was the last one.
            self.changed.clear(0..=u64::MAX).map_err(store)?;
        } else if let Some(of) = families.snapshot_of(volume) {
            self.leave(volume, of)?;
        }
        self.families()?.remove(volume);
        Ok(())
    }

    /// Records the removal of a snapshot.
    fn leave(&mut self, snapshot: VolumeId, of: VolumeId) -> Result<(), Failure> {
        let families = self.families()?;
        let (states, ordered) = (families.states(of), families.same_sequence(of).is_none());
        families.remove(snapshot);
        let (has_more, was_newest) = (
            families.newest(of).is_some(),
            states.iter().rev().nth(1) == Some(&snapshot),
        );
        if has_more {
            let after = states.iter().skip_while(|s| **s != snapshot).skip(1);
            let into: Vec<VolumeId> = match ordered {
                true => after.take(1).copied().collect(),
                // The next state is unknown.
                false => states.iter().filter(|s| **s != snapshot).copied().collect(),
            };
            let left = self.marks(snapshot)?;
            for state in into {
                let mut marks = self.marks(state)?;
                marks.extend(&left);
                if state == of && was_newest {
                    marks.extend(self.not_as_newest(of)?);
                }
                self.put_marks(state, marks)?;
            }
        } else {
            self.forget_changed(of)?;
        }
        self.forget_changed(snapshot)
    }

    fn names_of_snapshots(&mut self, volume: VolumeId) -> Result<String, Failure> {
        let snapshots = self.families()?.snapshots(volume);
        let count = snapshots.len();
        let first: Vec<VolumeId> = snapshots.take(NAMED_MAX).map(|s| s.1).collect();
        let mut names = vec![];
        for id in first {
            let record: Option<VolumeRecord> = get(&*self.volumes, id.0)?;
            names.extend(record.map(|r| r.name));
        }
        let more = match count.saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Ok(names.join(", ") + &more)
    }

    /// Records a new place of an extent, also its first one.
    pub(super) fn placed(
        &mut self,
        volume: VolumeId,
        extent: u32,
        had_one: bool,
    ) -> Result<(), Failure> {
        let Some(of) = self.families()?.snapshot_of(volume) else {
            return self.mark(volume, extent);
        };
        if !had_one {
            let why = format!("extent {extent} is not allocated, and a snapshot never changes");
            return Err(refuse(volume, why));
        }
        match self.families()?.newest(of) == Some(volume) {
            // The volume does not share that slot with the snapshot any more.
            true => self.mark(of, extent),
            false => Ok(()),
        }
    }

    /// Records that an extent has a place of its own.
    pub(super) fn copied_up(
        &mut self,
        volume: VolumeId,
        extent: u32,
        had_one: bool,
    ) -> Result<(), Failure> {
        if self.families()?.snapshot_of(volume).is_some() {
            return Err(refuse(volume, "a snapshot cannot be written"));
        }
        if !had_one {
            let volume = volume.0;
            return Err(Failure::Refused(Refusal::NoPlace { volume, extent }));
        }
        self.mark(volume, extent)
    }

    /// Records that an extent became a hole.
    pub(super) fn vacated(&mut self, volume: VolumeId, extent: u32) -> Result<(), Failure> {
        match self.families()?.snapshot_of(volume) {
            Some(_) => Err(refuse(volume, "a snapshot cannot be trimmed")),
            None => self.mark(volume, extent),
        }
    }

    /// Records a new size of a volume. The extent in which the smaller size ends now has other valid bytes than before.
    pub(super) fn resized(
        &mut self,
        volume: VolumeId,
        from: Bytes,
        to: Bytes,
    ) -> Result<(), Failure> {
        match self.extent_that_ends_elsewhere(from, to) {
            Some(extent) => self.mark(volume, extent),
            None => Ok(()),
        }
    }

    /// Returns the extent in which the smaller of two sizes ends, unless the other ends there as well.
    fn extent_that_ends_elsewhere(&self, a: Bytes, b: Bytes) -> Option<u32> {
        let end = a.min(b).0;
        let differs = a != b && !end.is_multiple_of(self.extent.0);
        differs.then(|| (end / self.extent.0) as u32)
    }

    /// Counts an extent of a volume as changed, if a snapshot exists to compare with.
    fn mark(&mut self, volume: VolumeId, extent: u32) -> Result<(), Failure> {
        if self.families()?.newest(volume).is_none() {
            return Ok(());
        }
        let key = extent_key(volume, extent);
        let value = seal_changed(key);
        let found = self.changed.get(key).map_err(store)?;
        let there = found.is_some_and(|found| *found.value() == value);
        // An existing record is not rewritten, which saves a page.
        if !there {
            self.changed.insert(key, &value).map_err(store)?;
        }
        Ok(())
    }

    /// Restores the change records of a state after a loss of records. Extents that share a slot with the state before are equal.
    pub(super) fn count_changed(&mut self, state: VolumeId) -> Result<(), Failure> {
        let families = self.families()?;
        let family = families.snapshot_of(state).unwrap_or(state);
        let states = families.states(family);
        let mut marks = self.marks(state)?;
        let at = states.iter().position(|s| *s == state);
        if let Some(before) = at.and_then(|at| at.checked_sub(1)) {
            let before = states[before];
            marks.extend(self.differences(before, state)?);
            let size = |id: VolumeId| -> Result<Option<Bytes>, Failure> {
                let record: Option<VolumeRecord> = get(&*self.volumes, id.0)?;
                Ok(record.map(|r| r.size))
            };
            if let (Some(from), Some(to)) = (size(before)?, size(state)?) {
                marks.extend(self.extent_that_ends_elsewhere(from, to));
            }
        }
        self.put_marks(state, marks)
    }

    /// Returns the extents that count as changed in a state, including those with unreadable records.
    fn marks(&mut self, state: VolumeId) -> Result<Vec<u32>, Failure> {
        let mut marks = vec![];
        each_changed(&*self.changed, state, |extent, _| {
            marks.push(extent);
            Ok(())
        })?;
        Ok(marks)
    }

    /// Replaces the change records of a state.
    fn put_marks(&mut self, state: VolumeId, mut marks: Vec<u32>) -> Result<(), Failure> {
        marks.sort_unstable();
        marks.dedup();
        self.forget_changed(state)?;
        let keys = marks.into_iter().map(|extent| extent_key(state, extent));
        let records = keys.map(|key| (key, seal_changed(key)));
        self.changed
            .append(*keys_of(state).end(), records)
            .map_err(store)
    }

    /// Returns the extents of a volume that are not in the same slot as in its newest snapshot.
    fn not_as_newest(&mut self, volume: VolumeId) -> Result<Vec<u32>, Failure> {
        match self.families()?.newest(volume) {
            Some(newest) => self.differences(newest, volume),
            None => Ok(vec![]),
        }
    }

    /// Removes all change records of a state.
    pub(super) fn forget_changed(&mut self, state: VolumeId) -> Result<(), Failure> {
        self.changed.clear(keys_of(state)).map_err(store)
    }

    /// Returns the extents whose slots differ between two states.
    fn differences(&self, a: VolumeId, b: VolumeId) -> Result<Vec<u32>, Failure> {
        let mut all = vec![];
        each_difference(&*self.extents, a, b, |extent| {
            all.push(extent);
            Ok(())
        })?;
        Ok(all)
    }

    /// Copies all places of one volume to another one that has none.
    fn copy_places(&mut self, from: VolumeId, to: VolumeId) -> Result<(), Failure> {
        let mut first = Some(0);
        while let Some(next) = first {
            let keys = extent_key(from, next)..=*keys_of(from).end();
            let rows = self.extents.range(keys).map_err(store)?.take(ROWS_AT_ONCE);
            let rows: Result<Vec<(u32, Location)>, Failure> = rows
                .map(|row| {
                    let (key, value) = row.map_err(store)?;
                    let at = unseal_extent(key.value(), value.value())?;
                    Ok((split_key(key.value()).1, at))
                })
                .collect();
            let rows = rows?;
            let records = rows.iter().map(|(extent, at)| {
                let key = extent_key(to, *extent);
                (key, seal_extent(key, *at))
            });
            let end = *keys_of(to).end();
            self.extents.append(end, records).map_err(store)?;
            first = rows.last().and_then(|(last, _)| last.checked_add(1));
        }
        Ok(())
    }

    /// Returns the families of snapshots, as they will be after the commit.
    pub(super) fn families(&mut self) -> Result<&mut Families, ArrayError> {
        let families = match self.families.take() {
            Some(known) => known,
            None => Families::read(&*self.volumes)?,
        };
        Ok(self.families.insert(families))
    }

    /// Fails if a volume with an unreadable record may be one of the snapshots in question.
    fn all_are_known(&mut self) -> Result<(), ArrayError> {
        match self.families()?.unreadable() {
            Some(volume) => get::<VolumeRecord>(&*self.volumes, volume.0).map(drop),
            None => Ok(()),
        }
    }

    fn order_is_known(&mut self, volume: VolumeId, snapshot: VolumeId) -> Result<(), Failure> {
        match self.families()?.same_sequence(volume) {
            None => Ok(()),
            Some((a, b)) => {
                let (a, b) = (a.0, b.0);
                let why = format!("the order of the snapshots {a} and {b} is unknown");
                Err(refuse(snapshot, why))
            }
        }
    }
}
