//! Snapshots of volumes: taken, kept over crashes, deleted, restored. A snapshot never changes, whatever happens to
//! its volume.

use array::{SnapshotOf, VolumeRecord};
use datapath::engine::Fault;
use units::VolumeId;

use super::life::{Event, Life, engine_of};
use super::oracle::SECTOR;
use super::plan::{DEVICES, EXTENT};

/// Limit of snapshots per volume, for lack of space.
const MOST: usize = 2;

/// Expected content of a snapshot.
#[derive(Debug)]
pub struct ExpectedSnapshot {
    pub(super) id: VolumeId,
    pub(super) of: usize,
    /// Sectors; `None` for those on devices that were lost when it was taken.
    sectors: Vec<Option<Vec<u8>>>,
    /// True if the snapshot certainly exists.
    sure: bool,
    /// True if its deletion was ordered and may have happened.
    going: bool,
}

impl Life<'_> {
    /// Orders an operation on the snapshots of a volume.
    pub(super) fn order_snapshot(&mut self, volume: usize) -> Result<(), String> {
        if self.keeper.volumes[&VolumeId(volume as u32)]
            .source
            .is_some()
        {
            return Ok(()); // refused
        }
        let of_this = self.snapshots.iter().filter(|k| k.of == volume);
        let ids: Vec<VolumeId> = of_this
            .filter(|k| k.sure && !k.going)
            .map(|k| k.id)
            .collect();
        if ids.len() >= MOST || (!ids.is_empty() && self.rng.below(3) == 0) {
            let which = self.rng.below(ids.len() as u64) as usize;
            self.delete_snapshot(ids[which]);
            return Ok(());
        }
        if self.growing[volume].is_some() || self.engines[volume].rest(self.now_ns).is_none() {
            return Ok(());
        }
        self.settle(volume)
    }

    /// Handles the end of a volume's requests in flight, or the failure to reach it.
    pub(super) fn at_rest(
        &mut self,
        volume: usize,
        result: Result<(), Fault>,
    ) -> Result<(), String> {
        match result {
            Ok(()) => {
                let wait_ns = self.some(self.plan.store_ns);
                self.after(wait_ns, Event::Keep(volume));
                Ok(())
            }
            Err(_) => {
                self.tally.restless += 1;
                Ok(())
            }
        }
    }

    /// Takes a snapshot: all acknowledged writes are durable, and their content is recorded.
    pub(super) fn take_snapshot(&mut self, volume: usize) -> Result<(), String> {
        let of = VolumeId(volume as u32);
        let grows = self.growing[volume].is_some();
        let mut shared = false;
        let size = self.keeper.volumes[&of].size.0;
        let sectors = self.sectors_of(of, size);
        self.look_at_disks();
        if self.crashed {
            return Ok(());
        }
        if let (false, Ok(mut sectors)) = (grows, sectors) {
            let last = *self.keeper.volumes.keys().last().expect("there are some");
            let family = self.keeper.volumes.values().filter_map(|v| v.snapshot);
            let sequences = family.filter(|s| s.volume == of).map(|s| s.sequence);
            let sequence = sequences.max().map_or(0, |s| s + 1);
            let before = self.keeper.volumes[&of].clone();
            let id = VolumeId(last.0 + 1);
            for (at, sector) in sectors.iter_mut().enumerate() {
                // Sectors that the guest knows as possibly lost may be lost in the snapshot too.
                let known = |bytes: &Vec<u8>| self.oracles[volume].is_now(at, bytes);
                let lasts = sector.as_ref().map(known).transpose()?;
                sector.take_if(|_| lasts == Some(false));
            }
            let record = VolumeRecord {
                id,
                name: format!("volume{volume}@{}", id.0),
                snapshot: Some(SnapshotOf {
                    volume: of,
                    sequence,
                    taken_s: 0,
                }),
                ..before
            };
            let held = self.keeper.is_held(); // the snapshot is refused then
            let done = self.keeper.take_snapshot(record);
            self.look_at_disks();
            self.tell_failures();
            shared = done.is_ok() || self.keeper.is_held();
            if self.tally.trace {
                let doubt = self.keeper.is_held();
                eprintln!(
                    "  snapshot {}, {size} bytes: {done:?}, in doubt: {doubt}",
                    id.0
                );
            }
            self.tally.snapshots += u64::from(done.is_ok());
            if (shared || self.crashed) && !held {
                // An earlier snapshot with this number has been deleted, even if that was unknown.
                self.snapshots.retain(|k| k.id != id);
                self.snapshots.push(ExpectedSnapshot {
                    id,
                    of: volume,
                    sectors,
                    sure: done.is_ok(),
                    going: false,
                });
            }
            if self.crashed {
                return Ok(());
            }
        }
        let number = self.engines[volume].rest_number();
        self.engines[volume].go_on(self.now_ns, number, shared);
        self.settle(volume)
    }

    fn delete_snapshot(&mut self, id: VolumeId) {
        let done = self.keeper.remove_volume(id);
        self.look_at_disks();
        self.tell_failures();
        let at = self.snapshots.iter().position(|k| k.id == id);
        let at = at.expect("it was chosen of these");
        if self.tally.trace {
            eprintln!("  snapshot {} is deleted: {done:?}", id.0);
        }
        match done {
            Ok(()) => {
                self.tally.snapshots_deleted += 1;
                self.snapshots.swap_remove(at);
            }
            Err(_) => {
                // If the deletion is in doubt, its slots are not free before the next start.
                self.leaks |= self.keeper.is_held();
                self.snapshots[at].going = true;
            }
        }
    }

    /// Restores a volume from a snapshot before guests are admitted.
    pub(super) fn restore_some(&mut self) -> Result<(), String> {
        for volume in 0..self.engines.len() {
            let of = VolumeId(volume as u32);
            let size = self.keeper.volumes[&of].size;
            let guest = self.rings[volume].as_ref();
            let goes_on = guest.is_some_and(|g| !g.kept.is_empty());
            let all = self.keeper.map.moves().map_err(|e| e.to_string())?;
            let moves = all.iter().any(|m| m.volume == of);
            let there = self.devices.iter().take(DEVICES).all(Option::is_some);
            if goes_on || moves || !there || self.rng.below(3) == 0 {
                continue;
            }
            let whole = |k: &&ExpectedSnapshot| {
                let same = self.keeper.volumes[&k.id].size == size;
                k.of == volume && !k.going && same && k.sectors.iter().all(Option::is_some)
            };
            let Some(kept) = self.snapshots.iter().find(whole) else {
                continue;
            };
            let done = self.keeper.restore_snapshot(kept.id);
            let sectors = kept.sectors.iter().flatten();
            let bytes: Vec<u8> = sectors.flatten().copied().collect();
            self.look_at_disks();
            self.tell_failures();
            match done {
                Ok(()) => self.oracles[volume].restored(&bytes)?,
                Err(_) if self.crashed || self.keeper.is_held() => {
                    // The volume has one of the two states.
                    self.oracles[volume].may_be_restored(&bytes)?;
                    self.crashed = true;
                    self.in_doubt = Some(volume);
                    return Ok(());
                }
                Err(_) => continue,
            }
            self.tally.restored += 1;
            let map = self.keeper.volume_map(&self.keeper.volumes[&of]);
            let map = map.map_err(|e| e.to_string())?;
            self.engines[volume] = engine_of(map, self.plan, &self.keeper);
        }
        Ok(())
    }

    /// Returns the sectors of a volume by map and devices.
    fn sectors_of(&self, volume: VolumeId, size: u64) -> Result<Vec<Option<Vec<u8>>>, String> {
        let places = self.keeper.map.places(volume).map_err(|e| e.to_string())?;
        let mut sectors = vec![];
        for (extent, at) in (0..).zip(places) {
            let begin: u64 = extent * EXTENT;
            if begin >= size {
                break; // the map has grown, but the keeper does not know it yet
            }
            let mut bytes = vec![0; EXTENT.min(size - begin) as usize];
            let device = at.map(|at| self.devices[at.device.index()].as_ref());
            if let (Some(at), Some(Some(device))) = (at, device) {
                let read = device.disk.read(u64::from(at.slot) * EXTENT, &mut bytes);
                read.map_err(|e| e.to_string())?;
            }
            let known = !matches!(device, Some(None));
            let all = bytes.chunks(SECTOR);
            sectors.extend(all.map(|sector| known.then(|| sector.to_vec())));
        }
        Ok(sectors)
    }

    /// Checks that every certain snapshot exists and has its content.
    pub(super) fn check_snapshots(&mut self) -> Result<(), String> {
        let known: Vec<VolumeRecord> = self.keeper.volumes.values().cloned().collect();
        let there = |id| known.iter().find(|v| v.id == id);
        for kept in self.snapshots.iter() {
            if kept.sure && !kept.going && there(kept.id).is_none() {
                return Err(format!("snapshot {} is gone", kept.id.0));
            }
        }
        self.snapshots.retain(|kept| there(kept.id).is_some());
        for i in 0..self.snapshots.len() {
            (self.snapshots[i].sure, self.snapshots[i].going) = (true, false);
            let kept = &self.snapshots[i];
            let size = there(kept.id).expect("as above").size.0;
            let found = self.sectors_of(kept.id, size)?;
            if found.len() != kept.sectors.len() {
                let (id, was, is) = (kept.id.0, kept.sectors.len(), found.len());
                return Err(format!("snapshot {id} had {was} sectors, and has {is}"));
            }
            for (at, (found, kept_sector)) in found.iter().zip(&kept.sectors).enumerate() {
                if let (Some(found), Some(was)) = (found, kept_sector)
                    && found != was
                {
                    return Err(format!(
                        "snapshot {} of volume {}, sector {at}: {:?} was kept, and {:?} is there",
                        kept.id.0,
                        kept.of,
                        &was[..16],
                        &found[..16]
                    ));
                }
            }
        }
        Ok(())
    }
}
