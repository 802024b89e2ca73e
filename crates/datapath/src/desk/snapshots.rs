//! Snapshots of volumes: taken while guests write, restored while none is connected.
//!
//! ```text
//!  worker:  rest ──▶ changes wait ──▶ flushed ──┐                       ┌──▶ go on: slots are shared
//!  keeper:                                      └─▶ one durable commit ─┘
//! ```

use std::sync::PoisonError;
use std::sync::mpsc::channel;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use array::{Health, SnapshotOf, VolumeRecord};
use model::NO_CLASS;
use units::{Nanos, VolumeId};

use super::volumes::record_of;
use super::{Desk, Result, Told, done, home_of, refused};
use crate::engine::Fault;
use crate::keeper::Keeper;
use crate::worker::{Inbox, Message, OfGuests};

/// A volume that is at rest. Goes on, whatever becomes of the one who had it rest.
struct AtRest {
    worker: Inbox,
    volume: VolumeId,
    /// Its slots may be others' too: said unless it is known that they are not.
    shared: bool,
}

impl Drop for AtRest {
    fn drop(&mut self) {
        self.worker.send(Message::GoOn(self.volume, self.shared));
    }
}

impl Desk {
    /// Keeps a volume as it is now, under a name of its own.
    pub(super) fn take_snapshot(&self, volume: &str, name: &str) -> Result<Told> {
        let of = self.volume(volume)?;
        if of.snapshot.is_some() {
            return Err(format!(
                "{volume} is a snapshot itself, and does not change"
            ));
        }
        if name.is_empty() || name.contains(['@', '/']) {
            return Err(format!(
                "{name:?} is no name for a snapshot: say one without `@` and `/`"
            ));
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
        let held = Nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        result?;
        self.export(&full)?;
        done(format!(
            "snapshot {full} is there; writes waited for {held}"
        ))
    }

    fn bring_to_rest(&self, name: &str, volume: VolumeId) -> Result<AtRest> {
        let server = self.server.as_ref();
        let server = server.ok_or_else(|| {
            format!("volume {name} is not served: a snapshot is taken of one that is")
        })?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = server.workers[home_of(volume, server.workers.len())].clone();
        drop(server);
        let (answer, answered) = channel();
        worker.send(Message::Rest(volume, answer));
        let still = answered.recv().unwrap_or(Err(Fault::Shutdown));
        // Where it is not at rest, this changes nothing.
        let at_rest = AtRest {
            worker,
            volume,
            shared: false,
        };
        match still {
            Ok(()) => Ok(at_rest),
            Err(Fault::Shutdown) => Err(format!("volume {name} is not served")),
            Err(Fault::Io) => Err(format!(
                "volume {name} could not be brought to rest in time: it moves, has another snapshot taken, or waits for a device; try again"
            )),
            Err(fault) => Err(format!(
                "what was written to volume {name} cannot be made durable: {fault}"
            )),
        }
    }

    /// Makes a volume what it was when a snapshot was taken. What was written since is lost.
    pub(super) fn restore(&self, snapshot: &str) -> Result<Told> {
        let record = self.volume(snapshot)?;
        let Some(SnapshotOf { volume: id, .. }) = record.snapshot else {
            return Err(format!("{snapshot} is no snapshot"));
        };
        let of = self.with_keeper(move |keeper| record_of(keeper, id))??;
        let name = of.name;
        self.detach(&name, id, OfGuests::None).map_err(|why| {
            why.replace(
                "`--force` deletes it",
                "disconnect it first; deleting it by force discards it",
            )
        })?;
        let done_so =
            self.with_keeper(move |keeper| keeper.restore_snapshot(record.id).map_err(refused));
        let served = match self.server {
            Some(_) => self.export(&name),
            None => Ok(()),
        };
        done_so.and_then(|done| done)?;
        served?;
        done(format!("volume {name} is what {snapshot} is"))
    }
}

fn may_be_taken(keeper: &Keeper, of: VolumeId, full: &str) -> Result<()> {
    let record = record_of(keeper, of)?;
    if record.health == Health::Damaged {
        return Err(format!("volume {:?} is damaged", record.name));
    }
    match keeper.volumes.values().any(|v| v.name == full) {
        true => Err(format!("there is a snapshot {full:?} already")),
        false => Ok(()),
    }
}

fn take(keeper: &mut Keeper, of: VolumeId, name: String) -> Result<()> {
    let before = record_of(keeper, of)?;
    let all = keeper.volumes.values().filter_map(|v| v.snapshot);
    let last = all.filter(|s| s.volume == of).map(|s| s.sequence).max();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let id = keeper.volumes.keys().last().map_or(0, |v| v.0 + 1);
    let record = VolumeRecord {
        id: VolumeId(id),
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
