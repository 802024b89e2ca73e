//! Volumes: creation, description, moves, deletion.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::mpsc::channel;
use std::time::Duration;

use array::{Change, Health, LOGICAL_BLOCK_MIN, MoveRecord, VolumeRecord};
use model::NO_CLASS;
use units::{Bytes, TierId, VolumeId};

use super::policy::NewVolumeLimits;
use super::{
    ControlAnswer, ControlServer, DatapathError, ImportInfo, Result, SECTOR_BYTES, SnapshotInfo,
    VolumeInfo, done, home_of, refused, tier_name, tier_named, unknown_volume,
};
use crate::keeper::Keeper;
use crate::text::explain;
use crate::worker::{Answer, DetachRefusal, Message, NoReply, OfGuests, Question};

/// Time limit for reads from the source of an import when the service of its volume ends.
const SOURCE_TIME: Duration = Duration::from_secs(5);

impl ControlServer {
    pub(super) fn volumes(&self, only: Option<String>) -> Result<ControlAnswer> {
        let wanted = only.clone();
        let found = self.with_keeper(move |keeper| -> Result<_> {
            let moves = keeper.map.moves()?;
            let mut all = vec![];
            for volume in keeper.volumes.values() {
                if wanted.as_ref().is_some_and(|w| *w != volume.name) {
                    continue;
                }
                all.push((volume.id, info(keeper, volume, &moves)?));
            }
            if let (Some(wanted), true) = (&wanted, all.is_empty()) {
                return Err(unknown_volume(keeper, wanted));
            }
            Ok(all)
        })??;
        let mut volumes = vec![];
        for (id, mut info) in found {
            let asked = self
                .worker(id)
                .map(|worker| worker.ask(|answer| Message::Ask(id, Question::Status, answer)));
            match asked {
                Ok(Ok(Ok(Answer::Status(status)))) => {
                    info.exported = true;
                    if let Some(import) = &mut info.import {
                        let waits = status.import_waits.clone();
                        import.problem = import.problem.take().or(waits);
                    }
                    info.status = Some(*status);
                }
                Ok(Err(why)) => info.stalled = why.is_stall(),
                _ => {}
            }
            volumes.push(info);
        }
        Ok(ControlAnswer::Volumes { volumes })
    }

    pub(super) fn create(
        &self,
        name: String,
        size: Bytes,
        tier: String,
        class: Option<String>,
    ) -> Result<ControlAnswer> {
        let allowed = self.allowed();
        let class = class.unwrap_or_else(|| NO_CLASS.into());
        allowed.class(&class)?;
        can_be(size)?;
        is_no_snapshots(&name)?;
        let called = name.clone();
        let what = format!("create volume {name:?} of {size}");
        let new = NewVolume {
            name,
            size,
            logical_block: LOGICAL_BLOCK_MIN,
            tier,
            class,
        };
        self.with_keeper(move |keeper| -> Result<()> {
            let record = new.record(keeper, &allowed, &what)?;
            keeper
                .commit(&[Change::AddVolume(record.clone())])
                .map_err(refused)?;
            keeper.volumes.insert(record.id, record);
            Ok(())
        })??;
        if self.server.is_some() {
            self.export(&called)?;
        }
        done(format!("created volume {called} ({size})"))
    }

    pub(super) fn delete(&self, name: &str, guests: OfGuests) -> Result<ControlAnswer> {
        let family = self.volume(name)?.family();
        let _claim = self.changing.claim(family, name)?;
        let record = self.volume(name)?;
        let id = record.id;
        self.with_keeper(move |keeper| has_no_snapshots(keeper, id))??;
        if let Ok(Answer::Status(status)) = self.ask_worker(id, Question::Status) {
            // Most connected guests are found here, before any change. `detach` handles a guest that connects at the same
            // time.
            if status.moving.is_some() {
                return Err(kept(name, DetachRefusal::Moving));
            }
            if guests == OfGuests::None && status.connections > 0 {
                return Err(kept(name, DetachRefusal::Connected(status.connections)));
            }
        }
        let cut = self.detach(name, id, guests)?;
        let removed = self.with_keeper(move |keeper| keeper.remove_volume(id).map_err(refused));
        if let Err(why) = removed.and_then(|removed| removed) {
            // The volume still exists, so it is served again.
            let served = match self.server {
                Some(_) => self.export(name),
                None => Ok(()),
            };
            return Err(match served {
                Ok(()) => why,
                Err(other) => DatapathError::Refused(format!(
                    "{why}; the volume still exists, but is no longer served: {other}"
                )),
            });
        }
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.remove(&id);
        drop(volumes);
        if let Some(snapshot) = record.snapshot {
            self.one_snapshot_less(name, snapshot)?;
        }
        done(match cut {
            0 => format!("deleted volume {name}"),
            cut => format!(
                "deleted volume {name}; {} closed",
                crate::text::guests(cut, "was", "were")
            ),
        })
    }

    /// Ends the service of a volume, and returns the number of connections that were cut.
    pub(super) fn detach(&self, name: &str, id: VolumeId, guests: OfGuests) -> Result<usize> {
        let Some(server) = &self.server else {
            return Ok(0);
        };
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let registry = server.shared.registry.clone();
        let worker = server.workers[home_of(id, server.workers.len())].clone();
        drop(server);
        // The export is removed before connections are counted, so that no new guest is missed.
        let entry = registry.remove(name);
        let answered = worker
            .begin(|answer| Message::Detach(id, guests, answer))
            .and_then(|pending| match pending.wait_for(SOURCE_TIME)? {
                Some(detached) => Ok(detached),
                None => {
                    // Otherwise the detach would wait for a silent source without a limit.
                    let given_up = self.with_keeper(move |keeper| keeper.give_up_source(id));
                    given_up.map_err(|_| NoReply::Ended)?;
                    pending.wait()
                }
            });
        match answered {
            Ok(Ok(cut)) => {
                self.no_new_guests(name);
                Ok(cut)
            }
            Ok(Err(refusal)) => {
                registry.restore(name, entry);
                Err(kept(name, refusal))
            }
            Err(why) if why.may_take_effect() => Err(DatapathError::Late(format!(
                "volume {name:?}: {why}; new guests are refused: run the command again later"
            ))),
            Err(why) => {
                registry.restore(name, entry);
                Err(DatapathError::from(why).of_volume(name))
            }
        }
    }

    /// Removes the socket of a volume, if each volume has one. Its worker has handled guests that have connected meanwhile.
    fn no_new_guests(&self, name: &str) {
        if let Some(server) = &self.server {
            let server = server.lock().unwrap_or_else(PoisonError::into_inner);
            server.withdraw(name);
        }
    }

    pub(super) fn set_class(&self, name: &str, class: String) -> Result<ControlAnswer> {
        let id = self.volume(name)?.id;
        self.allowed().class(&class)?;
        let done_line = match class.as_str() {
            NO_CLASS => format!("volume {name} now has no class"),
            class => format!("volume {name} now has class {class}"),
        };
        let new = class.clone();
        self.with_keeper(move |keeper| {
            let before = record_of(keeper, id)?;
            set(keeper, VolumeRecord { class, ..before })
        })??;
        let _ = self.tell_worker(id, Question::OfClass(new)); // the volume may not be served
        done(done_line)
    }
}

impl ControlServer {
    /// Grows a volume. Its worker learns the size before guests do, so that no guest writes where the map has no extents.
    pub(super) fn resize(&self, name: &str, size: Bytes) -> Result<ControlAnswer> {
        can_be(size)?;
        let family = self.volume(name)?.family();
        let _claim = self.changing.claim(family, name)?;
        let id = self.volume(name)?.id;
        let allowed = self.allowed();
        let now = self.with_keeper(move |keeper| -> Result<Bytes> {
            let record = record_of(keeper, id)?;
            if record.snapshot.is_some() {
                return Err(DatapathError::Refused(format!(
                    "{:?} is a snapshot, and a snapshot never changes",
                    record.name
                )));
            }
            let more = size.0.checked_sub(record.size.0);
            let more = more.ok_or_else(|| DatapathError::Invalid(format!(
                    "cannot resize volume {:?}: it has {}, and {size} is less; a volume can only grow",
                    record.name, record.size
                )))?;
            if !size.0.is_multiple_of(u64::from(record.logical_block)) {
                return Err(DatapathError::Invalid(format!(
                    "volume {:?} has logical blocks of {} bytes: its size must be a multiple of that, and {size} is not",
                    record.name, record.logical_block
                )));
            }
            if record.health == Health::Damaged {
                return Err(DatapathError::Refused(format!("volume {:?} is damaged", record.name)));
            }
            not_importing(&record)?;
            let moves = keeper.map.moves()?;
            if moves.iter().any(|m| m.volume == id) {
                let name = &record.name;
                return Err(DatapathError::Busy(format!(
                    "volume {name:?} is moving: wait, or run `terrace volume cancel {name}` first"
                )));
            }
            let what = format!("grow volume {:?} to {size}", record.name);
            allowed.room(keeper, &what, Bytes(more))?;
            Ok(record.size)
        })??;
        if now == size {
            return done(format!("volume {name} already has {size}"));
        }
        let of = |why: DatapathError| why.of_volume(name);
        if self.server.is_some() {
            self.without_mirror(id, "a change of size");
            let (zeroed, answered) = channel();
            let (from, to) = (now, size);
            let grow = Question::Grow { from, to, zeroed };
            self.ask_worker(id, grow).map_err(of)?;
            let zeroed = self.worker(id)?.answer_on(answered).wait();
            let zeroed = zeroed.map_err(|why| of(why.into()))?;
            zeroed.map_err(|why| {
                of(DatapathError::Refused(format!(
                    "the new part of its last extent cannot be zeroed: {why}"
                )))
            })?;
        } else if !now
            .0
            .is_multiple_of(self.with_keeper(|keeper| keeper.map.extent())?.0)
        {
            return Err(of(DatapathError::NotServed(
                "the new part of its last extent must be zeroed, which needs a server: resize it while it is served"
                    .into(),
            )));
        }
        self.with_keeper(move |keeper| -> Result<()> {
            let before = record_of(keeper, id)?;
            if before.size != now {
                return Err(DatapathError::Refused(format!(
                    "another command has resized it: it has {}",
                    before.size
                )));
            }
            set(keeper, VolumeRecord { size, ..before })
        })??;
        if let Some(server) = &self.server {
            let server = server.lock().unwrap_or_else(PoisonError::into_inner);
            server.resized(name, size);
        }
        done(format!(
            "resized volume {name} to {size}; guests see the new size after they reconnect"
        ))
    }

    /// Renames a volume. Connections stay; new connections must use the new name.
    pub(super) fn rename(&self, name: &str, to: String) -> Result<ControlAnswer> {
        let family = self.volume(name)?.family();
        let _claim = self.changing.claim(family, name)?;
        let record = self.volume(name)?;
        if record.snapshot.is_some() {
            return Err(DatapathError::Refused(format!(
                "{name} is a snapshot: rename its volume instead"
            )));
        }
        is_no_snapshots(&to)?;
        let id = record.id;
        let wanted = to.clone();
        self.with_keeper(move |keeper| -> Result<()> {
            name_is_free(keeper, &wanted)?;
            // Names of snapshots begin with the name of their volume.
            has_no_snapshots(keeper, id)?;
            let before = record_of(keeper, id)?;
            let name = wanted;
            set(keeper, VolumeRecord { name, ..before })
        })??;
        let mut done_line = format!("renamed volume {name} to {to}");
        if let Some(server) = &self.server {
            let server = server.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(why) = server.renamed(name, &to) {
                let why = explain(&why);
                done_line += &format!("; guests by vhost-user cannot connect to it: {why}");
            }
            drop(server);
            // The worker needs the name for its log and for its cache shares.
            let _ = self.tell_worker(id, Question::Rename(to));
        }
        done(done_line)
    }
}

/// Stores the record of a volume.
fn set(keeper: &mut Keeper, record: VolumeRecord) -> Result<()> {
    let change = Change::SetVolume(record.clone());
    keeper.commit(&[change]).map_err(refused)?;
    keeper.volumes.insert(record.id, record);
    Ok(())
}

/// Refuses a volume name that could be the name of a snapshot.
pub(super) fn is_no_snapshots(name: &str) -> Result<()> {
    match name.contains('@') {
        false => Ok(()),
        true => Err(DatapathError::Invalid(format!(
            "invalid volume name {name:?}: `@` is reserved for snapshots"
        ))),
    }
}

pub(super) fn name_is_free(keeper: &Keeper, name: &str) -> Result<()> {
    match keeper.volumes.values().any(|v| v.name == name) {
        true => Err(DatapathError::Refused(format!(
            "volume {name:?} already exists"
        ))),
        false => Ok(()),
    }
}

/// Properties of a new volume, without its content.
pub(super) struct NewVolume {
    pub(super) name: String,
    pub(super) size: Bytes,
    pub(super) logical_block: u32,
    pub(super) tier: String,
    pub(super) class: String,
}

impl NewVolume {
    /// Returns the record, without a source, if the name is free, the tier exists and the size is permitted. `what`
    /// describes the operation for messages.
    pub(super) fn record(
        self,
        keeper: &Keeper,
        allowed: &NewVolumeLimits,
        what: &str,
    ) -> Result<VolumeRecord> {
        name_is_free(keeper, &self.name)?;
        let home = tier_named(keeper, &self.tier)?;
        allowed.room(keeper, what, self.size)?;
        Ok(VolumeRecord {
            id: next_volume(keeper),
            name: self.name,
            size: self.size,
            home,
            class: self.class,
            logical_block: self.logical_block,
            health: Health::Whole,
            snapshot: None,
            source: None,
        })
    }
}

/// Returns the number of a new volume or snapshot.
pub(super) fn next_volume(keeper: &Keeper) -> VolumeId {
    let last = keeper.volumes.keys().last();
    VolumeId(last.map_or(0, |v| v.0 + 1))
}

/// Checks the size of a volume.
fn can_be(size: Bytes) -> Result<()> {
    if size.0 == 0 || size.0 > i64::MAX as u64 {
        return Err(DatapathError::Invalid(format!(
            "the size of a volume must be between 1 byte and 8 EiB, not {size}"
        )));
    }
    match size.0.is_multiple_of(SECTOR_BYTES) {
        true => Ok(()),
        false => Err(DatapathError::Invalid(format!(
            "the size of a volume must be a multiple of {SECTOR_BYTES} bytes, and {size} is not"
        ))),
    }
}

/// Returns the error for a volume that is not deleted.
fn kept(name: &str, refusal: DetachRefusal) -> DatapathError {
    match refusal {
        DetachRefusal::Connected(connections) => DatapathError::InUse {
            volume: name.into(),
            connections,
            consequence: "; `--force` closes them and deletes it".into(),
        },
        DetachRefusal::Moving => DatapathError::Busy(format!(
            "volume {name:?} is moving: run `terrace volume cancel {name}` first"
        )),
        DetachRefusal::Ending => {
            DatapathError::Busy(format!("volume {name:?} is already being deleted"))
        }
    }
}

/// Refuses an operation that a volume with snapshots does not permit.
fn has_no_snapshots(keeper: &Keeper, id: VolumeId) -> Result<()> {
    let is_of = |v: &&VolumeRecord| v.snapshot.is_some_and(|s| s.volume == id);
    let mut of_it = keeper.volumes.values().filter(is_of);
    match (of_it.next(), of_it.count()) {
        (None, _) => Ok(()),
        (Some(first), more) => Err(DatapathError::Refused(format!(
            "the volume has snapshots: {}{}; delete them first",
            first.name,
            if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            }
        ))),
    }
}

/// Refuses an operation on a volume that is not imported completely.
pub(super) fn not_importing(record: &VolumeRecord) -> Result<()> {
    match &record.source {
        None => Ok(()),
        Some(source) => Err(DatapathError::Busy(format!(
            "volume {:?} is being imported from {}: wait for the end of the import",
            record.name, source.from
        ))),
    }
}

/// Returns the present record of a volume, which may have changed or been deleted since it was found by name.
pub(super) fn record_of(keeper: &Keeper, id: VolumeId) -> Result<VolumeRecord> {
    let record = keeper.volumes.get(&id).cloned();
    record.ok_or_else(|| DatapathError::Refused("another command has deleted the volume".into()))
}

fn info(keeper: &Keeper, volume: &VolumeRecord, moves: &[MoveRecord]) -> Result<VolumeInfo> {
    let extent = keeper.map.extent().0;
    let mut by_tier: BTreeMap<TierId, u64> = BTreeMap::new();
    let mut at_source = 0;
    for place in keeper.map.extents(volume.id)? {
        if let array::Extent::At(place) = place
            && !volume.is_at_source(place)
        {
            let tier = keeper.records[&place.device].tier;
            *by_tier.entry(tier).or_default() += extent;
        } else if let array::Extent::At(_) = place {
            at_source += 1;
        }
    }
    let moving = moves.iter().find(|m| m.volume == volume.id);
    Ok(VolumeInfo {
        name: volume.name.clone(),
        size: volume.size,
        allocated: Bytes(by_tier.values().sum()),
        tiers: by_tier
            .iter()
            .map(|(t, b)| (tier_name(keeper, *t), Bytes(*b)))
            .collect(),
        home: tier_name(keeper, volume.home),
        class: volume.class.clone(),
        logical_block: volume.logical_block,
        healthy: volume.health == Health::Whole,
        snapshot: volume.snapshot.map(|s| SnapshotInfo {
            of: keeper
                .volumes
                .get(&s.volume)
                .map_or_else(String::new, |v| v.name.clone()),
            taken_s: s.taken_s,
        }),
        import: volume.source.as_ref().map(|s| ImportInfo {
            from: s.from.clone(),
            format: s.format.clone(),
            left: Bytes(at_source * extent),
            problem: keeper.source_away(volume),
            warning: keeper.source_warning(volume),
            more: keeper.source_has_more(volume),
        }),
        exported: false,
        stalled: false,
        moving_to: moving.map(|m| tier_name(keeper, keeper.records[&m.to].tier)),
        moving_extents: moving.and_then(|m| m.extents.clone()),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::serving::one_volume;

    /// The worker counts connections again, so it also finds a guest that connects after the first check. This test skips
    /// the first check.
    #[test]
    fn worker_refuses_to_disconnect_a_guest_without_force() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, listen) = one_volume(dir.path());
        let control_server = serving.control_server();
        let id = control_server.volume("data").unwrap().id;
        let connect = || Client::connect(&listen.uri("data").parse().unwrap());

        let mut guest = connect().unwrap();
        guest.write(0, &[3; 512]).unwrap();
        let refused = control_server
            .detach("data", id, OfGuests::None)
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("1 connection of a guest is open"),
            "{refused}"
        );
        // The volume is exported and served as before.
        let mut other = connect().unwrap();
        assert_eq!(other.read(0, 512).unwrap(), [3; 512]);
        guest.write(512, &[4; 512]).unwrap();
        assert_eq!(control_server.detach("data", id, OfGuests::All).unwrap(), 2);
        assert!(connect().is_err() && guest.read(0, 512).is_err());
        serving.stop().unwrap();
    }
}
