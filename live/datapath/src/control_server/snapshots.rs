//! Snapshots of volumes: taken while guests write, restored while none is connected.
//!
//! ```text
//!  worker:  rest ──▶ changes wait ──▶ flushed ──┐                       ┌──▶ go on: slots are shared
//!  keeper:                                      └─▶ one durable commit ─┘
//! ```

use std::sync::PoisonError;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use array::{Health, SnapshotOf, VolumeRecord};
use model::NO_CLASS;
use units::VolumeId;

use super::volumes::{next_volume, not_importing, record_of};
use super::{ControlAnswer, ControlServer, DatapathError, Result, done, home_of, refused};
use crate::engine::Fault;
use crate::keeper::Keeper;
use crate::registry::SnapshotExport;
use crate::worker::{Inbox, Message, NoReply, OfGuests};

/// Volume at rest. The rest ends when this is dropped.
struct RestGuard {
    worker: Inbox,
    volume: VolumeId,
    number: u32,
    /// True if its slots may be shared with a snapshot; false only if that is excluded.
    shared: bool,
}

impl Drop for RestGuard {
    fn drop(&mut self) {
        let go_on = Message::GoOn(self.volume, self.number, self.shared);
        self.worker.send(go_on);
    }
}

impl ControlServer {
    /// Takes a snapshot of a volume.
    pub(super) fn take_snapshot(&self, volume: &str, name: &str) -> Result<ControlAnswer> {
        let family = self.volume(volume)?.family();
        let _claim = self.changing.claim(family, volume)?;
        let of = self.volume(volume)?;
        if of.snapshot.is_some() {
            return Err(DatapathError::Refused(format!(
                "{volume} is a snapshot, and a snapshot never changes: name its volume"
            )));
        }
        if name.is_empty() || name.contains(['@', '/']) {
            return Err(DatapathError::Invalid(format!(
                "invalid snapshot name {name:?}: use a name without `@` and `/`"
            )));
        }
        let id = of.id;
        let full = format!("{volume}@{name}");
        let taken = full.clone();
        self.with_keeper(move |keeper| may_be_taken(keeper, id, &taken))??;
        let began = Instant::now();
        let mut at_rest = self.bring_to_rest(volume, id)?;
        let name = full.clone();
        let (result, shared) = self.with_keeper(move |keeper| {
            let result = take(keeper, id, name);
            let shared = result.is_ok() || keeper.is_held();
            (result, shared)
        })?;
        at_rest.shared = shared;
        drop(at_rest);
        let held_ms = began.elapsed().as_secs_f64() * 1e3;
        result?;
        self.export(&full)?;
        done(format!(
            "created snapshot {full}; writes were paused for {held_ms:.1} ms"
        ))
    }

    fn bring_to_rest(&self, name: &str, volume: VolumeId) -> Result<RestGuard> {
        let server = self.server.as_ref();
        let server = server.ok_or_else(|| {
            DatapathError::NotServed(format!(
                "volume {name} is not served, which a snapshot needs: run `terrace volume export`"
            ))
        })?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = server.workers[home_of(volume, server.workers.len())].clone();
        drop(server);
        let still = worker.ask(|answer| Message::Rest(volume, answer));
        let still = match still {
            Err(NoReply::Ended) => Err(Fault::Shutdown),
            Err(why) => {
                if why.may_take_effect() {
                    worker.send(Message::NoRest(volume));
                }
                return Err(DatapathError::from(why).of_volume(name));
            }
            Ok(still) => still,
        };
        match still {
            Ok(number) => Ok(RestGuard {
                worker,
                volume,
                number,
                shared: true,
            }),
            Err(Fault::Shutdown) => Err(DatapathError::NotServed(format!(
                "volume {name} is not served"
            ))),
            Err(Fault::Io) => Err(DatapathError::Late(format!(
                "could not pause writes to volume {name} in time: it moves, another snapshot is in progress, or a device does not respond; try again"
            ))),
            Err(fault) => Err(DatapathError::Refused(format!(
                "cannot flush the writes of volume {name}: {fault}"
            ))),
        }
    }

    /// Restores a volume to the state of a snapshot. Later writes are lost.
    pub(super) fn restore(&self, snapshot: &str) -> Result<ControlAnswer> {
        let family = self.volume(snapshot)?.family();
        let _claim = self.changing.claim(family, snapshot)?;
        let record = self.volume(snapshot)?;
        let Some(SnapshotOf { volume: id, .. }) = record.snapshot else {
            return Err(DatapathError::Refused(format!(
                "{snapshot} is not a snapshot"
            )));
        };
        if record.health == Health::Damaged {
            return Err(DatapathError::Refused(format!(
                "snapshot {snapshot} is damaged"
            )));
        }
        let name = self.with_keeper(move |keeper| record_of(keeper, id))??.name;
        let ended = self.detach(&name, id, OfGuests::None);
        ended.map_err(|why| match why {
            DatapathError::InUse {
                volume,
                connections,
                ..
            } => DatapathError::InUse {
                volume,
                connections,
                consequence: ": disconnect first".into(),
            },
            why => why,
        })?;
        let (restored, in_doubt) = self.with_keeper(move |keeper| {
            let restored = keeper.restore_snapshot(record.id).map_err(refused);
            (restored, keeper.is_held())
        })?;
        if in_doubt && let Err(why) = restored {
            return Err(DatapathError::Refused(format!(
                "{why}; it is unknown whether volume {name} was restored: it is not served until the server restarts, which resolves this"
            )));
        }
        if self.server.is_some() {
            self.export(&name)?;
        }
        restored?;
        done(format!("restored volume {name} from {snapshot}"))
    }
}

impl ControlServer {
    /// Updates the changed parts of the next snapshot after one is deleted: they now refer to the one before it.
    pub(super) fn one_snapshot_less(&self, name: &str, gone: SnapshotOf) -> Result<()> {
        let Some(server) = &self.server else {
            return Ok(());
        };
        let next = self.with_keeper(move |keeper| -> Result<_> {
            let later = |v: &&VolumeRecord| {
                let of = v.snapshot.filter(|s| s.volume == gone.volume);
                of.is_some_and(|s| s.sequence > gone.sequence)
            };
            let sequence = |v: &&VolumeRecord| v.snapshot.map(|s| s.sequence);
            let next = keeper.volumes.values().filter(later).min_by_key(sequence);
            let past = |v: &VolumeRecord| Ok((v.name.clone(), past_of(keeper, v)?));
            next.map(past).transpose()
        })??;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let registry = &server.shared.registry;
        // In this order, the changed parts are complete at every moment.
        if let Some((next, Some(past))) = next {
            registry.set_snapshot(&next, past);
        }
        registry.forget_snapshot(name);
        Ok(())
    }
}

/// Returns the parts of a snapshot that have changed since the one before it; none for a volume that is not a snapshot.
pub(super) fn past_of(keeper: &Keeper, record: &VolumeRecord) -> Result<Option<SnapshotExport>> {
    let Some(own) = record.snapshot else {
        return Ok(None);
    };
    let all = keeper.volumes.values();
    let family = all.filter_map(|v| Some((v.snapshot?, v.id)));
    let earlier = family.filter(|(s, _)| s.volume == own.volume && s.sequence < own.sequence);
    let before = earlier.max_by_key(|(s, _)| s.sequence);
    let changed = match before {
        None => vec![],
        Some((_, before)) => keeper.map.changed_between(Some(before), record.id)?,
    };
    let (_, name) = record.name.rsplit_once('@').unwrap_or(("", &record.name));
    Ok(Some(SnapshotExport {
        of: (own.volume, own.sequence),
        after: before.map(|(s, _)| s.sequence),
        name: name.to_owned(),
        extent: keeper.map.extent().0,
        changed: changed.into(),
    }))
}

fn may_be_taken(keeper: &Keeper, of: VolumeId, full: &str) -> Result<()> {
    let record = record_of(keeper, of)?;
    if record.health == Health::Damaged {
        return Err(DatapathError::Refused(format!(
            "volume {:?} is damaged",
            record.name
        )));
    }
    not_importing(&record)?;
    match keeper.volumes.values().any(|v| v.name == full) {
        true => Err(DatapathError::Refused(format!(
            "snapshot {full:?} already exists"
        ))),
        false => Ok(()),
    }
}

fn take(keeper: &mut Keeper, of: VolumeId, name: String) -> Result<()> {
    let before = record_of(keeper, of)?;
    let all = keeper.volumes.values().filter_map(|v| v.snapshot);
    let last = all.filter(|s| s.volume == of).map(|s| s.sequence).max();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let record = VolumeRecord {
        id: next_volume(keeper),
        name,
        class: NO_CLASS.into(),
        snapshot: Some(SnapshotOf {
            volume: of,
            sequence: last.map_or(0, |last| last + 1),
            taken_s: now.map_or(0, |now| now.as_secs()),
        }),
        ..before
    };
    keeper.take_snapshot(record).map_err(refused)
}
