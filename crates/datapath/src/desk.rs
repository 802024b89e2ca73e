//! The desk: what operators may ask of an array, served or not, as plain data.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use array::{Change, DeviceKind, DeviceRecord, Health, MoveRecord, TierRecord, VolumeRecord};
use model::DeviceSpec;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, DeviceId, Iops, Nanos, TierId, VolumeId};
use volume::{Claim, Limits, VolumeMap, shares};

use crate::device::{Device, file_bytes};
use crate::engine::MoveOrder;
use crate::keeper::{Keeper, ToKeeper};
use crate::record::Recorded;
use crate::registry::{Access, Home};
use crate::server::Server;
use crate::share::Share;
use crate::text::{explain, unknown};
use crate::worker::{Answer, Message, Question, VolumeSetup, VolumeStatus};

/// What may be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    /// All tiers.
    Tiers,
    /// A device for a tier; the tier is made if it is new.
    AddDevice(NewDevice),
    /// What the volumes of a tier share, by weight; `None` lifts a limit.
    TierLimits {
        /// The tier.
        tier: String,
        /// Requests per second.
        iops: Option<Iops>,
        /// Bytes per second.
        bandwidth: Option<BytesPerSec>,
    },
    /// All volumes.
    Volumes,
    /// One volume with its measurements.
    Show {
        /// Its name.
        volume: String,
    },
    /// A new volume.
    Create {
        /// Its name.
        volume: String,
        /// Its size.
        size: Bytes,
        /// The tier of its first extents.
        tier: String,
        /// Its service class.
        class: String,
    },
    /// Its data is gone for good.
    Delete {
        /// Its name.
        volume: String,
    },
    /// To another tier.
    Move {
        /// Its name.
        volume: String,
        /// The tier.
        to: String,
        /// At most so fast.
        bandwidth: BytesPerSec,
    },
    /// Give its move up.
    CancelMove {
        /// Its name.
        volume: String,
    },
    /// Limits and weight; `None` leaves as it is, a limit of zero lifts it.
    Limit {
        /// Its name.
        volume: String,
        /// Requests per second.
        iops: Option<Iops>,
        /// Bytes per second.
        bandwidth: Option<BytesPerSec>,
        /// Weight among the volumes of a limited tier.
        weight: Option<f64>,
    },
    /// Hold answers back.
    Inject {
        /// Its name.
        volume: String,
        /// Delay of reads.
        read: Nanos,
        /// Delay of writes.
        write: Nanos,
        /// For so long.
        lasting: Nanos,
    },
    /// Measure or not; switching on starts from zero.
    Measure {
        /// Its name.
        volume: String,
        /// Whether to.
        on: bool,
    },
    /// Record to a file.
    Record {
        /// Its name.
        volume: String,
        /// The file.
        path: PathBuf,
    },
    /// End a recording and write it.
    RecordEnd {
        /// Its name.
        volume: String,
    },
}

/// A device to add.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewDevice {
    /// The tier.
    pub tier: String,
    /// Where its bytes are.
    pub source: NewSource,
    /// How much of it to use; all of a block device or export if left out.
    pub size: Option<Bytes>,
    /// The device to behave like.
    pub emulate: Option<DeviceSpec>,
}

/// Where a new device's bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NewSource {
    /// A directory: a file in it.
    Dir(PathBuf),
    /// A block device.
    Block(PathBuf),
    /// An export of an NBD server.
    Nbd(String),
}

/// A tier as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierInfo {
    /// Name.
    pub name: String,
    /// Bytes that are taken.
    pub used: Bytes,
    /// All bytes.
    pub size: Bytes,
    /// Devices.
    pub devices: Vec<DeviceInfo>,
    /// Requests per second that its volumes share.
    pub iops: Option<Iops>,
    /// Bytes per second that its volumes share.
    pub bandwidth: Option<BytesPerSec>,
}

/// A device as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Name.
    pub name: String,
    /// File, block device or URI.
    pub path: String,
    /// Bytes that are taken.
    pub used: Bytes,
    /// All bytes.
    pub size: Bytes,
    /// Whether it behaves like another device.
    pub emulated: bool,
}

/// A volume as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Name.
    pub name: String,
    /// Size that the guest sees.
    pub size: Bytes,
    /// Bytes that have a place.
    pub allocated: Bytes,
    /// Bytes by tier, high end first, those with any.
    pub tiers: Vec<(String, Bytes)>,
    /// The tier of its next extents.
    pub home: String,
    /// Service class.
    pub class: String,
    /// Whether its map is whole.
    pub healthy: bool,
    /// Whether it is served now.
    pub exported: bool,
    /// The move that is under way, or waits to be resumed: the tier.
    pub moving_to: Option<String>,
    /// What its worker knows, if it is served.
    pub status: Option<VolumeStatus>,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Told {
    /// Done; what a person would like to read of it.
    Done {
        /// One line.
        message: String,
    },
    /// All tiers.
    Tiers {
        /// High end first.
        tiers: Vec<TierInfo>,
    },
    /// Volumes.
    Volumes {
        /// In order of creation.
        volumes: Vec<VolumeInfo>,
    },
    /// A recording.
    Recorded {
        /// The file.
        path: PathBuf,
        /// Requests in it.
        requests: u64,
        /// Requests that did not fit.
        lost: u64,
    },
}

/// Limits of one volume, as its operator set them.
#[derive(Debug, Clone)]
struct VolumeLimits {
    share: Arc<Share>,
    own: Limits,
    weight: f64,
    before: (u64, u64),
    demand: (f64, f64),
}

/// Where questions are answered.
pub struct Desk {
    access: KeeperAccess,
    server: Option<Mutex<Server>>,
    volumes: Mutex<BTreeMap<VolumeId, VolumeLimits>>,
    tiers: Mutex<BTreeMap<TierId, Limits>>,
}

enum KeeperAccess {
    Here(Box<Mutex<Keeper>>),
    There(Mutex<Sender<ToKeeper>>),
}

/// What is said of a volume that can only be asked while it is served.
const NOT_SERVED: &str = "it is not served: run `terrace volume export`";

/// Sizes of volumes are multiples of this: what guests and their tools count in.
const SECTOR_BYTES: u64 = 512;

type Result<T> = std::result::Result<T, String>;

fn text(error: impl std::error::Error) -> String {
    explain(&error)
}

/// Why a change was refused, without the number that it had in its commit: operators ask for one thing at a time.
fn refused(error: array::ArrayError) -> String {
    match error {
        array::ArrayError::Refused { refusal, .. } => refusal.to_string(),
        other => explain(&other),
    }
}

impl Desk {
    /// Of an array that is not served.
    pub fn offline(keeper: Keeper) -> Self {
        Self {
            access: KeeperAccess::Here(Box::new(Mutex::new(keeper))),
            server: None,
            volumes: Mutex::default(),
            tiers: Mutex::default(),
        }
    }

    /// Of a server with an array.
    pub fn online(server: Server) -> Self {
        let sender = server.keeper().expect("a server with an array").clone();
        Self {
            access: KeeperAccess::There(Mutex::new(sender)),
            server: Some(Mutex::new(server)),
            volumes: Mutex::default(),
            tiers: Mutex::default(),
        }
    }

    /// The server.
    pub fn server(&self) -> Option<&Mutex<Server>> {
        self.server.as_ref()
    }

    /// Ends it; the server, if there is one.
    pub fn into_server(self) -> Option<Server> {
        self.server
            .map(|s| s.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn with_keeper<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Keeper) -> R + Send + 'static,
    ) -> Result<R> {
        match &self.access {
            KeeperAccess::Here(keeper) => Ok(what(
                &mut keeper.lock().unwrap_or_else(PoisonError::into_inner),
            )),
            KeeperAccess::There(sender) => {
                let (answer, answered) = channel();
                let what = move |keeper: &mut Keeper| drop(answer.send(what(keeper)));
                let gone = |_| "the array's keeper has ended".to_string();
                let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
                let sent = sender.send(ToKeeper::Do(Box::new(what)));
                drop(sender);
                sent.map_err(|_| "the array's keeper has ended".to_string())?;
                answered.recv().map_err(gone)
            }
        }
    }

    fn ask_worker(&self, volume: VolumeId, question: Question) -> Result<Answer> {
        let server = self.server.as_ref().ok_or(NOT_SERVED)?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = server.workers[home_of(volume, server.workers.len())].clone();
        drop(server);
        let (answer, answered) = channel();
        worker.send(Message::Ask(volume, question, answer));
        answered
            .recv()
            .map_err(|_| "its worker has ended".to_string())?
    }

    /// Asks the worker of a volume; an error says which volume it is about.
    fn order(&self, volume: &str, question: Question) -> Result<Answer> {
        let id = self.volume(volume)?.id;
        let answer = self.ask_worker(id, question);
        answer.map_err(|why| format!("volume {volume:?}: {why}"))
    }

    fn volume(&self, name: &str) -> Result<VolumeRecord> {
        let wanted = name.to_owned();
        self.with_keeper(move |keeper| {
            let found = keeper.volumes.values().find(|v| v.name == wanted).cloned();
            found.ok_or_else(|| unknown_volume(keeper, &wanted))
        })?
    }

    /// Starts to serve a volume.
    ///
    /// # Errors
    /// When there is no such volume, or no server.
    pub fn export(&self, name: &str) -> Result<()> {
        let record = self.volume(name)?;
        let id = record.id;
        let (map, resume) = self.with_keeper(move |keeper| -> Result<_> {
            let places = match record.health {
                Health::Whole => keeper.array.places(id).map_err(text)?,
                Health::Damaged => {
                    return Err(format!(
                        "volume {:?} is damaged: `terrace volume check` says how",
                        record.name
                    ));
                }
            };
            let map = VolumeMap::at(record.size, keeper.array.extent(), places);
            let moves = keeper.array.moves().map_err(text)?;
            let order = moves
                .into_iter()
                .find(|m| m.volume == id)
                .map(|m| MoveOrder {
                    to: m.to,
                    bandwidth: m.bandwidth,
                });
            Ok((map, order))
        })??;
        let server = self.server.as_ref().ok_or("there is no server")?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let share = Arc::new(Share::default());
        let limits = VolumeLimits {
            share: share.clone(),
            own: Limits::default(),
            weight: 1.0,
            before: (0, 0),
            demand: (0.0, 0.0),
        };
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.insert(id, limits);
        let size = map.size().0;
        let worker = home_of(id, server.workers.len());
        server.workers[worker].send(Message::Attach(Box::new(VolumeSetup {
            id,
            name: name.into(),
            map,
            limits: server.config.limits,
            resume,
            share,
            measured: server.config.measured,
        })));
        let home = Home { worker, volume: id };
        server
            .shared
            .registry
            .add(name, size, Access::ReadWrite, home);
        Ok(())
    }

    /// Answers a question.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn ask(&self, ask: Ask) -> Result<Told> {
        match ask {
            Ask::Tiers => self.tiers(),
            Ask::AddDevice(new) => self.add_device(new),
            Ask::TierLimits {
                tier,
                iops,
                bandwidth,
            } => self.limit_tier(&tier, Limits { iops, bandwidth }),
            Ask::Volumes => self.volumes(None),
            Ask::Show { volume } => self.volumes(Some(volume)),
            Ask::Create {
                volume,
                size,
                tier,
                class,
            } => self.create(volume, size, tier, class),
            Ask::Delete { volume } => self.delete(&volume),
            Ask::Move {
                volume,
                to,
                bandwidth,
            } => self.start_move(&volume, to, bandwidth),
            Ask::CancelMove { volume } => {
                self.order(&volume, Question::CancelMove)?;
                done(format!("the move of {volume} is being given up"))
            }
            Ask::Limit {
                volume,
                iops,
                bandwidth,
                weight,
            } => self.limit_volume(&volume, iops, bandwidth, weight),
            Ask::Inject {
                volume,
                read,
                write,
                lasting,
            } => {
                let question = Question::Inject {
                    delay_ns: [read.0, write.0],
                    for_ns: lasting.0,
                };
                self.order(&volume, question)?;
                done(format!(
                    "answers of {volume} are held back: reads {read}, writes {write}, for {lasting}"
                ))
            }
            Ask::Measure { volume, on } => {
                self.order(&volume, Question::Measure(on))?;
                let how = if on {
                    "measured from now on"
                } else {
                    "not measured"
                };
                done(format!("{volume} is {how}"))
            }
            Ask::Record { volume, path } => {
                self.order(&volume, Question::Record(path.clone()))?;
                done(format!("{volume} is being recorded to {}", path.display()))
            }
            Ask::RecordEnd { volume } => {
                let Answer::Recorded(recorder) = self.order(&volume, Question::RecordEnd)? else {
                    return Err("its worker answered something else".into());
                };
                let Recorded {
                    path,
                    requests,
                    lost,
                } = recorder.finish().map_err(text)?;
                Ok(Told::Recorded {
                    path,
                    requests,
                    lost,
                })
            }
        }
    }

    fn tiers(&self) -> Result<Told> {
        let limits = self
            .tiers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let tiers = self.with_keeper(move |keeper| {
            let extent = keeper.array.extent().0;
            let info = |tier: &TierRecord| {
                let (used, size) = keeper.space(tier.id);
                let of_tier = keeper.records.values().filter(|d| d.tier == tier.id);
                let devices = of_tier.map(|d| {
                    let slots = keeper.slots.total(d.id);
                    DeviceInfo {
                        name: d.name.clone(),
                        path: d.path.clone(),
                        used: Bytes(u64::from(slots - keeper.slots.free(d.id)) * extent),
                        size: Bytes(u64::from(slots) * extent),
                        emulated: d.emulate.is_some(),
                    }
                });
                let limit = limits.get(&tier.id).copied().unwrap_or_default();
                TierInfo {
                    name: tier.name.clone(),
                    used,
                    size,
                    devices: devices.collect(),
                    iops: limit.iops,
                    bandwidth: limit.bandwidth,
                }
            };
            keeper.tiers.iter().map(info).collect()
        })?;
        Ok(Told::Tiers { tiers })
    }

    fn add_device(&self, new: NewDevice) -> Result<Told> {
        let (device, message) = self.with_keeper(move |keeper| add_device(keeper, new))??;
        if let Some(server) = &self.server {
            let server = server.lock().unwrap_or_else(PoisonError::into_inner);
            for worker in &server.workers {
                worker.send(Message::Device(device.clone()));
            }
        }
        done(message)
    }

    fn volumes(&self, only: Option<String>) -> Result<Told> {
        let wanted = only.clone();
        let found = self.with_keeper(move |keeper| -> Result<_> {
            let moves = keeper.array.moves().map_err(text)?;
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
            if let Ok(Answer::Status(status)) = self.ask_worker(id, Question::Status) {
                info.exported = true;
                info.status = Some(*status);
            }
            volumes.push(info);
        }
        Ok(Told::Volumes { volumes })
    }

    fn create(&self, name: String, size: Bytes, tier: String, class: String) -> Result<Told> {
        if size.0 == 0 || size.0 > i64::MAX as u64 {
            return Err(format!("a volume has between 1 byte and 8 EiB, not {size}"));
        }
        if !size.0.is_multiple_of(SECTOR_BYTES) {
            return Err(format!(
                "the size of a volume is a multiple of {SECTOR_BYTES} bytes, {size} is not"
            ));
        }
        let told = name.clone();
        self.with_keeper(move |keeper| -> Result<()> {
            if keeper.volumes.values().any(|v| v.name == name) {
                return Err(format!("there is a volume {name:?} already"));
            }
            let home = tier_named(keeper, &tier)?;
            let id = keeper.volumes.keys().last().map_or(0, |v| v.0 + 1);
            let record = VolumeRecord {
                id: VolumeId(id),
                name,
                size,
                home,
                class,
                health: Health::Whole,
            };
            keeper
                .commit(&[Change::AddVolume(record.clone())])
                .map_err(refused)?;
            keeper.volumes.insert(record.id, record);
            Ok(())
        })??;
        if self.server.is_some() {
            self.export(&told)?;
        }
        done(format!("volume {told} of {size} is there"))
    }

    fn delete(&self, name: &str) -> Result<Told> {
        let id = self.volume(name)?.id;
        if let Ok(Answer::Status(status)) = self.ask_worker(id, Question::Status)
            && status.moving.is_some()
        {
            return Err(format!(
                "volume {name:?} is being moved: `terrace volume cancel {name}` first"
            ));
        }
        if let Some(server) = &self.server {
            let server = server.lock().unwrap_or_else(PoisonError::into_inner);
            server.shared.registry.remove(name);
            let worker = server.workers[home_of(id, server.workers.len())].clone();
            drop(server);
            let (answer, answered) = channel();
            worker.send(Message::Detach(id, answer));
            answered
                .recv()
                .map_err(|_| "its worker has ended".to_string())??;
        }
        self.with_keeper(move |keeper| -> Result<()> {
            let places = keeper.array.extents(id).map_err(text)?;
            keeper
                .commit(&[Change::RemoveVolume(id)])
                .map_err(refused)?;
            keeper.volumes.remove(&id);
            for place in places {
                if let array::Extent::At(place) = place {
                    keeper.slots.give_back(place);
                }
            }
            Ok(())
        })??;
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.remove(&id);
        done(format!("volume {name} is gone"))
    }

    fn start_move(&self, name: &str, to: String, bandwidth: BytesPerSec) -> Result<Told> {
        if bandwidth.0 == 0 {
            return Err("a move needs some bandwidth".into());
        }
        let record = self.volume(name)?;
        let id = record.id;
        let Answer::Status(status) = self.order(name, Question::Status)? else {
            return Err("its worker answered something else".into());
        };
        let told = to.clone();
        let order = self.with_keeper(move |keeper| -> Result<MoveOrder> {
            let tier = tier_named(keeper, &to)?;
            let extent = keeper.array.extent().0;
            let target = move_target(keeper, tier, &status, extent)?;
            let mut record = record;
            record.home = tier;
            let order = MoveRecord {
                volume: id,
                to: target,
                bandwidth,
            };
            let changes = [Change::SetVolume(record.clone()), Change::SetMove(order)];
            keeper.commit(&changes).map_err(refused)?;
            keeper.volumes.insert(id, record);
            Ok(MoveOrder {
                to: target,
                bandwidth,
            })
        })??;
        self.order(name, Question::Move(order))?;
        done(format!("volume {name} is moving to {told}"))
    }

    fn limit_volume(
        &self,
        name: &str,
        iops: Option<Iops>,
        bandwidth: Option<BytesPerSec>,
        weight: Option<f64>,
    ) -> Result<Told> {
        let id = self.volume(name)?.id;
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = volumes
            .get_mut(&id)
            .ok_or_else(|| format!("volume {name:?}: {NOT_SERVED}"))?;
        if let Some(iops) = iops {
            limits.own.iops = (iops.0 > 0.0).then_some(iops);
        }
        if let Some(bandwidth) = bandwidth {
            limits.own.bandwidth = (bandwidth.0 > 0).then_some(bandwidth);
        }
        if let Some(weight) = weight {
            if !(0.01..=100.0).contains(&weight) {
                return Err(format!("a weight is between 0.01 and 100, not {weight}"));
            }
            limits.weight = weight;
        }
        limits.share.limit(limits.own);
        done(format!("limits of {name} are set"))
    }

    fn limit_tier(&self, name: &str, limits: Limits) -> Result<Told> {
        let wanted = name.to_owned();
        let tier = self.with_keeper(move |keeper| tier_named(keeper, &wanted))??;
        if self.server.is_none() {
            return Err("the array is not served: run `terrace volume export`".into());
        }
        let mut tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        tiers.insert(tier, limits);
        done(format!("volumes of {name} share its limits by weight"))
    }

    /// Divides what limited tiers may do among their volumes. To be called about ten times a second.
    pub fn share_tiers(&self, seconds: f64) {
        let tiers = self
            .tiers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if tiers.is_empty() || seconds <= 0.0 {
            return;
        }
        let homes = self.with_keeper(|keeper| {
            let all = keeper.volumes.values();
            all.map(|v| (v.id, v.home)).collect::<BTreeMap<_, _>>()
        });
        let Ok(homes) = homes else { return };
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        for limits in volumes.values_mut() {
            let now = limits.share.totals();
            // A little more than it did, so that it can find out whether there is more for it.
            let rate = |now: u64, before: u64| (now - before) as f64 / seconds * 1.25;
            limits.demand = (rate(now.0, limits.before.0), rate(now.1, limits.before.1));
            limits.before = now;
        }
        for (tier, limit) in tiers {
            let of_tier: Vec<VolumeId> = volumes
                .keys()
                .copied()
                .filter(|v| homes.get(v) == Some(&tier))
                .collect();
            let divide = |total: Option<f64>, demand: &dyn Fn(&VolumeLimits) -> f64, least: f64| {
                let claims: Vec<Claim> = of_tier
                    .iter()
                    .map(|v| Claim {
                        weight: volumes[v].weight,
                        demand: demand(&volumes[v]).max(least),
                    })
                    .collect();
                total.map(|total| shares(total, &claims))
            };
            let iops = divide(limit.iops.map(|i| i.0), &|v| v.demand.0, 100.0);
            let bandwidth = divide(
                limit.bandwidth.map(|b| b.0 as f64),
                &|v| v.demand.1,
                (1 << 20) as f64,
            );
            for (i, id) in of_tier.iter().enumerate() {
                let volume = volumes.get_mut(id).expect("just listed");
                let least = |own: Option<f64>, share: Option<f64>| match (own, share) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                let own = volume.own;
                let iops = least(own.iops.map(|x| x.0), iops.as_ref().map(|s| s[i]));
                let bytes = own.bandwidth.map(|x| x.0 as f64);
                let bytes = least(bytes, bandwidth.as_ref().map(|s| s[i]));
                volume.share.limit(Limits {
                    iops: iops.map(Iops),
                    bandwidth: bytes.map(|b| BytesPerSec(b as u64)),
                });
            }
        }
    }
}

fn done(message: String) -> Result<Told> {
    Ok(Told::Done { message })
}

/// The worker of a volume.
pub(crate) fn home_of(volume: VolumeId, workers: usize) -> usize {
    volume.index() % workers
}

fn unknown_volume(keeper: &Keeper, name: &str) -> String {
    unknown(
        "volume",
        name,
        keeper.volumes.values().map(|v| v.name.as_str()),
    )
}

fn tier_named(keeper: &Keeper, name: &str) -> Result<TierId> {
    let names = keeper.tiers.iter().map(|t| t.name.as_str());
    let found = keeper.tiers.iter().find(|t| t.name == name);
    found
        .map(|t| t.id)
        .ok_or_else(|| unknown("tier", name, names))
}

/// The device of a tier that takes a whole volume: the one with most room.
fn move_target(
    keeper: &Keeper,
    tier: TierId,
    status: &VolumeStatus,
    extent: u64,
) -> Result<DeviceId> {
    if let Some(moving) = &status.moving {
        return Err(format!(
            "the volume is being moved already: {} left",
            moving.left
        ));
    }
    let of_tier = keeper.records.values().filter(|d| d.tier == tier);
    let best = of_tier.max_by_key(|d| (keeper.slots.free(d.id), u16::MAX - d.id.0));
    let best = best.ok_or("the tier has no device")?;
    let elsewhere = status.placed.iter().filter(|(d, _)| *d != best.id.0);
    let need = elsewhere.map(|(_, bytes)| bytes).sum::<u64>();
    let free = u64::from(keeper.slots.free(best.id)) * extent;
    if need > free {
        let (free, need) = (Bytes(free), Bytes(need));
        return Err(format!(
            "device {:?} has {free} free, the volume needs {need}",
            best.name
        ));
    }
    Ok(best.id)
}

fn info(keeper: &Keeper, volume: &VolumeRecord, moves: &[MoveRecord]) -> Result<VolumeInfo> {
    let extent = keeper.array.extent().0;
    let tier_name = |tier: TierId| {
        let found = keeper.tiers.iter().find(|t| t.id == tier);
        found.map_or_else(|| format!("tier {}", tier.0), |t| t.name.clone())
    };
    let mut by_tier: BTreeMap<TierId, u64> = BTreeMap::new();
    for place in keeper.array.extents(volume.id).map_err(text)? {
        if let array::Extent::At(place) = place {
            let tier = keeper.records[&place.device].tier;
            *by_tier.entry(tier).or_default() += extent;
        }
    }
    let moving = moves.iter().find(|m| m.volume == volume.id);
    Ok(VolumeInfo {
        name: volume.name.clone(),
        size: volume.size,
        allocated: Bytes(by_tier.values().sum()),
        tiers: by_tier
            .iter()
            .map(|(t, b)| (tier_name(*t), Bytes(*b)))
            .collect(),
        home: tier_name(volume.home),
        class: volume.class.clone(),
        healthy: volume.health == Health::Whole,
        exported: false,
        moving_to: moving.map(|m| tier_name(keeper.records[&m.to].tier)),
        status: None,
    })
}

fn add_device(keeper: &mut Keeper, new: NewDevice) -> Result<(Arc<Device>, String)> {
    let extent = keeper.array.extent();
    let id = DeviceId(keeper.records.keys().last().map_or(0, |d| d.0 + 1));
    let known = keeper.tiers.iter().find(|t| t.name == new.tier);
    let tier = known.map_or(TierId(keeper.tiers.len() as u16), |t| t.id);
    let tier_record = known.is_none().then(|| TierRecord {
        id: tier,
        name: new.tier.clone(),
    });
    let number = keeper.records.values().filter(|d| d.tier == tier).count();
    let name = format!("{}-{number}", new.tier);
    let io = |what: &str, path: &PathBuf, e: std::io::Error| {
        format!("cannot {what} {}: {e}", path.display())
    };
    let (kind, path, all) = match &new.source {
        NewSource::Dir(dir) => {
            let dir = dir
                .canonicalize()
                .map_err(|e| io("use directory", dir, e))?;
            if !dir.is_dir() {
                return Err(format!("{} is not a directory", dir.display()));
            }
            let path = dir.join(format!("{name}.extents"));
            (DeviceKind::File, path.display().to_string(), None)
        }
        NewSource::Block(device) => {
            let path = device.canonicalize().map_err(|e| io("use", device, e))?;
            let file = std::fs::File::open(&path).map_err(|e| io("open", &path, e))?;
            let meta = file.metadata().map_err(|e| io("look at", &path, e))?;
            if !std::os::unix::fs::FileTypeExt::is_block_device(&meta.file_type()) {
                return Err(format!("{} is not a block device", path.display()));
            }
            let bytes = file_bytes(&file).map_err(|e| io("measure", &path, e))?;
            let usable = bytes.saturating_sub(array::DATA_START);
            (DeviceKind::Block, path.display().to_string(), Some(usable))
        }
        NewSource::Nbd(uri) => {
            let parsed: nbd::Uri = uri.parse().map_err(text)?;
            let (_, session) = crate::client::connect(&parsed).map_err(text)?;
            if !session
                .export
                .flags
                .contains(nbd::ExportFlags::SEND_WRITE_ZEROES)
                || !session.export.flags.contains(nbd::ExportFlags::SEND_FLUSH)
            {
                return Err(format!(
                    "{uri} cannot flush or write zeroes: no device for guests' data"
                ));
            }
            (DeviceKind::Nbd, uri.clone(), Some(session.export.size))
        }
    };
    let size = match (new.size, all) {
        (Some(size), Some(all)) if size.0 > all => {
            return Err(format!("{path} has {}, not {size}", Bytes(all)));
        }
        (Some(size), _) => size.0,
        (None, Some(all)) => all,
        (None, None) => {
            return Err("how much of the directory's filesystem may be used? Give --size".into());
        }
    };
    let slots = u32::try_from(size / extent.0).map_err(|_| "that is too large".to_string())?;
    if slots == 0 {
        return Err(format!(
            "{} is less than one extent of {extent}",
            Bytes(size)
        ));
    }
    let record = DeviceRecord {
        id,
        tier,
        name: name.clone(),
        kind,
        path,
        slots,
        high_water: if kind.begins_as_zeroes() { 0 } else { slots },
        emulate: new.emulate,
    };
    if keeper.records.values().any(|d| d.path == record.path) {
        return Err(format!("{} is a device of this array already", record.path));
    }
    Device::format(&keeper.array, &record).map_err(text)?;
    let mut changes: Vec<Change> = tier_record.iter().cloned().map(Change::AddTier).collect();
    changes.push(Change::AddDevice(record.clone()));
    keeper.commit(&changes).map_err(refused)?;
    let device = Arc::new(Device::open(&keeper.array, &record).map_err(text)?);
    keeper.tiers.extend(tier_record);
    keeper.slots.add_device(&record);
    keeper.devices.insert(id, device.clone());
    keeper.records.insert(id, record);
    let size = Bytes(u64::from(slots) * extent.0);
    Ok((
        device,
        format!("device {name} of {size} is in tier {}", new.tier),
    ))
}
