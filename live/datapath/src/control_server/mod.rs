//! The control server: requests of operators and agents about an array, served or not.

mod claims;
mod copies;
mod data;
mod devices;
mod handed;
mod heat;
mod holds;
mod imports;
mod lease;
mod limits;
mod losses;
mod mirrors;
mod moves;
mod objectives;
mod policy;
mod reuse;
mod samples;
mod sampling;
mod second;
mod shares;
mod snapshots;
mod underway;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use array::{Health, VolumeRecord};
use model::ExtentRanges;
use units::{TierId, VolumeId};
use volume::{Lease, Limits};

use crate::error::{DatapathError, Result};
use crate::keeper::{Keeper, KeeperMessage};
use crate::registry::{Access, Home};
use crate::server::Server;
use crate::stages::throttle::Share;
use crate::stages::{StageVolume, StagesSetup};
use crate::takeover::Gate;
use crate::worker::{Answer, Inbox, Message, OfGuests, Question, SecondOf, VolumeSetup};
use claims::Claims;
pub(crate) use holds::Hold;
use imports::ImportRequest;
use moves::MoveGoal;
use policy::NewVolumeLimits;
use underway::DeviceReservations;

pub use data::{
    ControlAnswer, ControlRequest, CopyInfo, DeviceInfo, ImportInfo, NewDevice, NewSource,
    SnapshotInfo, TierInfo, VolumeInfo,
};
pub use heat::{HeatCounts, HeatCursor, HeatSample};
use limits::VolumeLimits;
pub(crate) use limits::weighable;
pub use mirrors::MIRROR_SPAN_MAX;
pub(crate) use policy::boundable;
pub use reuse::ReuseSample;
pub use samples::{
    DeviceErrors, DeviceSample, DeviceTimeSample, MovingSample, Problem, ProblemKind, Samples,
    VolumeSample,
};

/// Control server of an array.
pub struct ControlServer {
    access: KeeperAccess,
    server: Option<Mutex<Server>>,
    volumes: Mutex<BTreeMap<VolumeId, VolumeLimits>>,
    tiers: Mutex<BTreeMap<TierId, Limits>>,
    /// Volumes with a move that is being ordered. The durable move of such a volume must be the one that its worker has
    /// accepted.
    ordering: Mutex<BTreeSet<VolumeId>>,
    /// Limits on new volumes.
    allowed: Mutex<NewVolumeLimits>,
    /// Problems of the controller in this process.
    of_controller: Mutex<Vec<Problem>>,
    /// Devices that are being added or removed.
    underway: DeviceReservations,
    /// Volumes with an exclusive operation.
    changing: Claims,
    /// Lease of the array. Orders of controllers hold the lock for reading, claims of the lease for writing.
    lease: RwLock<Lease>,
    /// Admission of requests.
    pub(crate) gate: Arc<Gate>,
}

enum KeeperAccess {
    Here(Box<Mutex<Keeper>>),
    There(Mutex<Sender<KeeperMessage>>),
}

/// Unit of volume sizes: the sector size of guests and their tools.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Returns the error of a refused change, without its number in the commit: an operator orders one change at a time.
fn refused(error: array::ArrayError) -> DatapathError {
    match error {
        array::ArrayError::Refused { refusal, .. } => DatapathError::Refused(refusal.to_string()),
        other => other.into(),
    }
}

/// Returns the error of a request that needs a served volume.
fn not_served() -> DatapathError {
    DatapathError::NotServed("the volume is not served: run `terrace volume export`".into())
}

impl ControlServer {
    /// Creates the control server of an array that is not served.
    pub fn offline(keeper: Keeper) -> Self {
        Self {
            access: KeeperAccess::Here(Box::new(Mutex::new(keeper))),
            server: None,
            volumes: Mutex::default(),
            tiers: Mutex::default(),
            ordering: Mutex::default(),
            allowed: Mutex::default(),
            of_controller: Mutex::default(),
            underway: DeviceReservations::default(),
            changing: Claims::default(),
            lease: RwLock::default(),
            gate: Arc::default(),
        }
    }

    /// Creates the control server of a served array.
    pub fn online(server: Server) -> Self {
        let sender = server.keeper().expect("a server with an array").clone();
        let online = Self {
            access: KeeperAccess::There(Mutex::new(sender)),
            server: Some(Mutex::new(server)),
            volumes: Mutex::default(),
            tiers: Mutex::default(),
            ordering: Mutex::default(),
            allowed: Mutex::default(),
            of_controller: Mutex::default(),
            underway: DeviceReservations::default(),
            changing: Claims::default(),
            lease: RwLock::default(),
            gate: Arc::default(),
        };
        online.load_lease();
        online
    }

    pub fn server(&self) -> Option<&Mutex<Server>> {
        self.server.as_ref()
    }

    fn with_keeper<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Keeper) -> R + Send + 'static,
    ) -> Result<R> {
        match &self.access {
            KeeperAccess::Here(keeper) => {
                let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
                let result = what(&mut keeper);
                keeper.note_changes();
                Ok(result)
            }
            KeeperAccess::There(sender) => {
                let (answer, answered) = channel();
                let what = move |keeper: &mut Keeper| drop(answer.send(what(keeper)));
                let ended = || DatapathError::NotServed("the array's keeper has ended".into());
                let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
                let sent = sender.send(KeeperMessage::Do(Box::new(what)));
                drop(sender);
                sent.map_err(|_| ended())?;
                answered.recv().map_err(|_| ended())
            }
        }
    }

    /// Returns the reason why a map that is only opened for reading may be outdated.
    pub fn not_believed(&self) -> Option<String> {
        self.with_keeper(|keeper| keeper.not_believed())
            .ok()
            .flatten()
    }

    /// Returns the worker of a volume.
    fn worker(&self, volume: VolumeId) -> Result<Inbox> {
        let server = self.server.as_ref().ok_or_else(not_served)?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(server.workers[home_of(volume, server.workers.len())].clone())
    }

    fn ask_worker(&self, volume: VolumeId, question: Question) -> Result<Answer> {
        let worker = self.worker(volume)?;
        worker.ask(|answer| Message::Ask(volume, question, answer))?
    }

    /// Sends the worker of a volume a change that is already durable in the map. A stalled worker carries it out when it recovers.
    fn tell_worker(&self, volume: VolumeId, question: Question) -> Result<Answer> {
        let worker = self.worker(volume)?;
        worker.insist(|answer| Message::Ask(volume, question, answer))?
    }

    fn ask_stages<R: Send + 'static>(
        &self,
        volume: VolumeId,
        what: impl FnOnce(StageVolume<'_>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.worker(volume)?.at_stages(volume, what)
    }

    /// Runs a closure at the stages of a volume, on its worker, and returns its result.
    ///
    /// # Errors
    /// [`DatapathError`]: the volume is not served, its worker does not respond, or `what` fails. The message names
    /// the volume.
    pub fn at_stages<R: Send + 'static>(
        &self,
        volume: &str,
        what: impl FnOnce(StageVolume<'_>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let id = self.volume(volume)?.id;
        let done = self.ask_stages(id, what);
        done.map_err(|why| why.of_volume(volume))
    }

    /// Sends a request to the worker of a volume. An error names the volume.
    fn order(&self, volume: &str, question: Question) -> Result<Answer> {
        let id = self.volume(volume)?.id;
        let answer = self.ask_worker(id, question);
        answer.map_err(|why| why.of_volume(volume))
    }

    fn volume(&self, name: &str) -> Result<VolumeRecord> {
        let wanted = name.to_owned();
        self.with_keeper(move |keeper| {
            let found = keeper.volumes.values().find(|v| v.name == wanted).cloned();
            found.ok_or_else(|| unknown_volume(keeper, &wanted))
        })?
    }

    /// Returns the names of all volumes and their health. Does not read the places of extents.
    ///
    /// # Errors
    /// [`DatapathError::NotServed`] if the keeper has ended.
    pub fn names(&self) -> Result<Vec<(String, Health)>> {
        self.with_keeper(|keeper| {
            let all = keeper.volumes.values();
            all.map(|v| (v.name.clone(), v.health)).collect()
        })
    }

    /// Starts to serve a volume.
    ///
    /// # Errors
    /// [`DatapathError`]: the volume does not exist or is damaged, or the array is not served.
    pub fn export(&self, name: &str) -> Result<()> {
        let record = self.volume(name)?;
        let id = record.id;
        let known = record.clone();
        let (map, past, resume, lost, salvaged) = self.with_keeper(move |keeper| -> Result<_> {
            let record = known;
            let past = snapshots::past_of(keeper, &record)?;
            let map = match record.health {
                Health::Whole => keeper.volume_map(&record)?,
                Health::Damaged => {
                    return Err(DatapathError::Refused(format!(
                        "volume {:?} is damaged: `terrace volume check` describes the damage",
                        record.name
                    )));
                }
            };
            let moves = keeper.map.moves()?;
            let order = moves
                .into_iter()
                .find(|m| m.volume == id)
                .map(|m| m.order());
            if let Some(last) = order.iter().flat_map(|o| &o.extents).filter_map(ExtentRanges::last).next()
                && last as usize >= map.extents()
            {
                return Err(DatapathError::Refused(format!(
                    "volume {:?} has a move from extent {last}, which does not exist: `terrace volume repair` cancels that move",
                    record.name
                )));
            }
            let lost = keeper.lost.iter().map(|(id, l)| (*id, l.unflushed && !l.in_use));
            // A salvaged array is read-only, so nothing is copied.
            let salvaged = keeper.is_salvaged();
            let order = order.filter(|_| !salvaged);
            Ok((map, past, order, lost.collect(), salvaged))
        })??;
        let server = self.server.as_ref().ok_or_else(|| {
            DatapathError::NotServed("the array is not served: run `terrace volume export`".into())
        })?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let (share, objective) = (Arc::new(Share::default()), Arc::default());
        let mut limits = VolumeLimits {
            share: share.clone(),
            objective: Arc::clone(&objective),
            ..VolumeLimits::new()
        };
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        // A volume that was served before keeps its limits.
        if let Some(before) = volumes.remove(&id) {
            (limits.own, limits.for_a_time, limits.weight) =
                (before.own, before.for_a_time, before.weight);
            limits.share.limit(limits.all());
        }
        volumes.insert(id, limits);
        let size = map.size().0;
        let worker = home_of(id, server.workers.len());
        server.workers[worker].send(Message::Attach(Box::new(VolumeSetup {
            id,
            name: name.into(),
            class: record.class,
            map,
            limits: server.config.limits,
            resume,
            import: record
                .source
                .as_ref()
                .filter(|_| !salvaged)
                .map(|s| s.bandwidth),
            stages: StagesSetup {
                measure: server.config.measure(),
                throttle: share,
                ..StagesSetup::default()
            },
            objective,
            cached: record.snapshot.is_none().then_some(units::Bytes(size)),
            lost,
        })));
        if let Some(past) = past {
            server.shared.registry.set_snapshot(name, past);
        }
        let home = Home { worker, volume: id };
        let access = match record.snapshot {
            None if !salvaged => Access::ReadWrite,
            _ => Access::ReadOnly,
        };
        let block = record.logical_block;
        let offered = server.offer(name, size, block, access, home);
        offered.map_err(DatapathError::failed)
    }

    /// Carries out a request.
    ///
    /// # Errors
    /// [`DatapathError`].
    pub fn ask(&self, ask: ControlRequest) -> Result<ControlAnswer> {
        let _inside = self.gate.enter()?;
        self.answer(ask)
    }

    fn answer(&self, ask: ControlRequest) -> Result<ControlAnswer> {
        match ask {
            ControlRequest::Claim {
                controller,
                lasting,
            } => self.claim_lease(&controller, lasting),
            ControlRequest::TakeOver { .. } => Err(DatapathError::Invalid(
                "only a starting server can take over the array".into(),
            )),
            ControlRequest::Tiers => self.tiers(),
            ControlRequest::Samples => self.samples(),
            ControlRequest::Heat { volume, since } => self.heat(&volume, since),
            ControlRequest::Reuse { volume } => self.reuse(&volume),
            ControlRequest::AddDevice(new) => self.add_device(new),
            ControlRequest::RemoveDevice {
                device,
                accept_loss,
            } => self.remove_device(&device, accept_loss),
            ControlRequest::ReplaceDevice {
                device,
                new,
                accept_loss,
            } => self.replace_device(&device, new, accept_loss),
            ControlRequest::AcceptDevice { device } => self.accept_device(&device),
            ControlRequest::SetDirect { device, direct } => self.set_direct(&device, direct),
            ControlRequest::RemoveTier { tier } => self.remove_tier(&tier),
            ControlRequest::Copies => self.copies(),
            ControlRequest::SetSecondCopy { dir } => self.set_second_copy(dir),
            ControlRequest::Backup { path } => self.backup(&path),
            ControlRequest::TierLimits {
                tier,
                iops,
                bandwidth,
            } => self.limit_tier(&tier, Limits { iops, bandwidth }),
            ControlRequest::Volumes => self.volumes(None),
            ControlRequest::Show { volume } => self.volumes(Some(volume)),
            ControlRequest::Create {
                volume,
                size,
                tier,
                class,
            } => self.create(volume, size, tier, class),
            ControlRequest::Delete { volume, force } => {
                let guests = if force { OfGuests::All } else { OfGuests::None };
                self.delete(&volume, guests)
            }
            ControlRequest::Import {
                volume,
                from,
                format,
                tier,
                class,
                bandwidth,
            } => self.import(ImportRequest {
                name: volume,
                from,
                format,
                tier,
                class,
                bandwidth,
            }),
            ControlRequest::Resize { volume, size } => self.resize(&volume, size),
            ControlRequest::Rename { volume, to } => self.rename(&volume, to),
            ControlRequest::ShareCache { volume, part } => {
                let lent = match self.order(&volume, Question::ShareCache(part))? {
                    Answer::Bytes(lent) => Some(lent),
                    _ => None,
                };
                done(match (part, lent) {
                    (Some(part), None) => {
                        format!("reserved {part} of the cache for volume {volume}")
                    }
                    (None, None) => {
                        format!("volume {volume} now uses the common part of the cache")
                    }
                    (Some(part), Some(lent)) => format!(
                        "volume {volume} will have {part} of the cache when the remedy for its SLO violation ends, which now gives it {lent}"
                    ),
                    (None, Some(lent)) => format!(
                        "volume {volume} will use the common part of the cache when the remedy for its SLO violation ends, which now gives it {lent}"
                    ),
                })
            }
            ControlRequest::LendCache {
                volume,
                part,
                lasting,
            } => {
                self.order(&volume, Question::LendCache(part, lasting))?;
                done(match part {
                    Some(part) => {
                        format!("reserved {part} of the cache for volume {volume} for {lasting}")
                    }
                    None => format!("volume {volume} has its earlier part of the cache again"),
                })
            }
            ControlRequest::SetCacheShare { of, share } => self.set_cache_share(&of, share),
            ControlRequest::UseSecond { at, size } => self.use_second(at.as_deref(), size),
            ControlRequest::UseNode {
                answer,
                volume,
                server,
                at,
                size,
                warm,
            } => {
                let of = SecondOf {
                    volumes: Some([volume.clone()].into()),
                    answer: Some(answer),
                    server,
                };
                self.use_node(&volume, &of, &at, size, warm)
            }
            ControlRequest::StopNode { answer } => self.stop_node(answer),
            ControlRequest::Second => self.second(),
            ControlRequest::TakeSnapshot { volume, name } => self.take_snapshot(&volume, &name),
            ControlRequest::RestoreSnapshot { snapshot } => self.restore(&snapshot),
            ControlRequest::Hold { .. } | ControlRequest::Release => Err(DatapathError::Invalid(
                "hold and release need a connection to the control socket of the server".into(),
            )),
            ControlRequest::Policy {
                classes,
                overcommit_max,
            } => self.allow(NewVolumeLimits {
                classes,
                overcommit_max,
            }),
            ControlRequest::Objectives {
                objectives,
                lasting,
            } => self.hold_to(&objectives, lasting),
            ControlRequest::Move {
                volume,
                to,
                device,
                bandwidth,
                extents,
            } => {
                let goal = MoveGoal {
                    tier: to,
                    device,
                    extents,
                };
                self.start_move(&volume, goal, bandwidth)
            }
            ControlRequest::Mirror {
                volume,
                to,
                device,
                bandwidth,
                extents,
                lasting,
            } => {
                let goal = MoveGoal {
                    tier: to,
                    device,
                    extents,
                };
                self.start_mirror(&volume, goal, bandwidth, lasting)
            }
            ControlRequest::StopMirror { volume, lent_only } => {
                let question = match lent_only {
                    true => Question::StopLentMirror,
                    false => Question::StopMirror(None),
                };
                self.order(&volume, question)?;
                done(format!("deleting the mirror of volume {volume}"))
            }
            ControlRequest::SetClass { volume, class } => self.set_class(&volume, class),
            ControlRequest::CancelMove { volume } => {
                self.order(&volume, Question::CancelMove)?;
                done(format!("cancelling the move of volume {volume}"))
            }
            ControlRequest::Stage(word) => {
                word.check()?;
                word.carry_out(self)
            }
        }
    }
}

fn done(message: String) -> Result<ControlAnswer> {
    Ok(ControlAnswer::done(message))
}

/// Returns the number of the worker that owns a volume.
pub(crate) fn home_of(volume: VolumeId, workers: usize) -> usize {
    volume.index() % workers
}

fn unknown_volume(keeper: &Keeper, name: &str) -> DatapathError {
    let all = keeper.volumes.values();
    DatapathError::unknown("volume", name, all.map(|v| v.name.as_str()))
}

fn tier_name(keeper: &Keeper, tier: TierId) -> String {
    let found = keeper.tiers.iter().find(|t| t.id == tier);
    found.map_or_else(|| format!("tier {}", tier.0), |t| t.name.clone())
}

fn tier_named(keeper: &Keeper, name: &str) -> Result<TierId> {
    let names = keeper.tiers.iter().map(|t| t.name.as_str());
    let found = keeper.tiers.iter().find(|t| t.name == name);
    found
        .map(|t| t.id)
        .ok_or_else(|| DatapathError::unknown("tier", name, names))
}
