//! Opening of an array from its existing parts: copies of the map, and devices.
//!
//! ```text
//!   copies of the map ─┐                          ┌─▶ devices that belong to it: used
//!                      ├─▶ choose (array::choose) ─┤
//!   superblocks ───────┘                          └─▶ others: lost, for now
//! ```
//!
//! [`array::choose`] and [`array::joins`] decide which states are trusted; this file carries the decision out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use array::{
    Array, ArrayError, Candidate, Copies, CopyId, CopyPlace, DeviceKind, DeviceRecord, Extent,
    Health, MapState, Slots, Superblock, SuperblockInfo, UsedSlot, VolumeRecord, choose,
    choose_anyway,
};
use tracing::warn;
use units::{Bytes, DeviceId, VolumeId};
use volume::Location;

use super::members::{is_given_up, is_unsettled, whose};
use super::{Keeper, KeeperError, LostDevice, watch};
use crate::device::{Claimant, Device, DeviceError, SlotSpace};
use crate::helper_thread::at_once;
use crate::text::{explain, listed};

/// Places of volumes' extents.
pub type Places = BTreeMap<VolumeId, Vec<Option<Location>>>;

/// Losses that an operator accepts: `map`, and names of devices.
#[derive(Debug, Clone, Default)]
pub struct AcceptLoss(pub BTreeSet<String>);

impl AcceptLoss {
    /// Word for the map.
    pub const MAP: &str = "map";

    /// Word of `--force-remote`: the last owners of remote devices have ended.
    pub const REMOTE: &str = "remote owner";

    fn contains(&self, what: &str) -> bool {
        self.0.contains(what)
    }
}

/// Copy of the map at one of its places.
#[derive(Debug)]
pub struct FoundCopy {
    pub copy: CopyId,
    pub place: Box<dyn CopyPlace>,
    /// The copy, verified and open read-only, or handed over; otherwise the reason why it cannot be
    /// read.
    pub array: Result<Array, ArrayError>,
}

/// Properties of the host.
pub struct Host {
    /// Id of the present boot; never 0.
    pub boot: u128,
    /// Source of random numbers.
    pub nonce: Box<dyn FnMut() -> u64 + Send>,
    /// Identity of this process in its claims of remote devices.
    pub claimant: Arc<Claimant>,
}

impl Host {
    pub fn this() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.ok().and_then(|id| {
            let digits: String = id.chars().filter(char::is_ascii_hexdigit).collect();
            u128::from_str_radix(&digits, 16).ok()
        });
        Self {
            // Without a boot id, every start counts as the same boot.
            boot: boot.filter(|b| *b != 0).unwrap_or(1),
            nonce: Box::new(random),
            claimant: Arc::default(),
        }
    }

    /// Returns this host, with a claimant for the remote devices of an array directory.
    pub(super) fn of(dir: &Path, accept: &AcceptLoss) -> Self {
        Self {
            claimant: Arc::new(Claimant::new(
                Some(dir),
                accept.contains(AcceptLoss::REMOTE),
            )),
            ..Self::this()
        }
    }
}

/// Returns a random number.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes));
    match read {
        Ok(()) => u64::from_le_bytes(bytes),
        // The fallback distinguishes two independent memberships only by time.
        Err(_) => crate::clock::now_ns() ^ u64::from(std::process::id()) << 32,
    }
}

/// Opened device with its superblock, or the reason why it is unusable.
pub type OpenResult<D> = Result<(D, Superblock), OpenError>;

/// Reason why a device cannot be opened.
#[derive(Debug, Clone)]
pub struct OpenError {
    /// Message for the operator.
    pub why: String,
    /// True if another process uses the device, so the array must not be used.
    pub in_use: bool,
    /// True if another attempt would fail in the same way.
    pub is_final: bool,
}

impl<S: Into<String>> From<S> for OpenError {
    fn from(why: S) -> Self {
        Self {
            why: why.into(),
            in_use: false,
            is_final: false,
        }
    }
}

/// Reads the superblock of a device that has just been opened.
pub fn with_superblock<D: SlotSpace>(device: D) -> OpenResult<D> {
    let found = device.read_superblock().map_err(|e| e.to_string())?;
    Ok((device, found))
}

/// Time limit to open a device at the start. A slower device is lost for the start and is tried again later.
const OPEN_TIME: Duration = Duration::from_secs(10);

/// Opens devices in parallel, so one that hangs delays no other.
pub(super) fn open_at_once(extent: Bytes, records: &[DeviceRecord]) -> Vec<OpenResult<Device>> {
    let one = |record: &DeviceRecord| {
        let record = record.clone();
        move || open_one(extent, &record)
    };
    let opened = at_once(records.iter().map(one).collect(), OPEN_TIME).into_iter();
    let opened = opened.map(|o| o.unwrap_or_else(|_| Err("it does not answer".into())));
    opened.collect()
}

/// Pauses before a device, or a copy of the map, is opened again after an error.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];

/// Longest attempt that is repeated: others wait for the start.
const RETRY_TIME: Duration = Duration::from_secs(1);

/// Makes attempts until one succeeds, or fails in a way that `is_final`.
pub(crate) fn retried<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    is_final: impl Fn(&E) -> bool,
) -> Result<T, E> {
    for pause in RETRY_PAUSES {
        let began = Instant::now();
        match attempt() {
            Err(error) if !is_final(&error) && began.elapsed() < RETRY_TIME => {}
            done => return done,
        }
        std::thread::sleep(pause);
    }
    attempt()
}

/// Opens a device and reads its superblock. Repeats transient errors, so they do not make it a lost device.
pub(crate) fn open_one(extent: Bytes, record: &DeviceRecord) -> OpenResult<Device> {
    retried(|| open_once(extent, record), |not| not.is_final)
}

fn open_once(extent: Bytes, record: &DeviceRecord) -> OpenResult<Device> {
    let device = Device::open(extent, record).map_err(|e| OpenError {
        in_use: matches!(e, DeviceError::InUse { .. }),
        is_final: !e.is_transient(),
        why: explain(&e),
    })?;
    with_superblock(device)
}

/// Chooses direct I/O or the page cache for an opened device, if it belongs to the array.
pub(crate) fn settle_direct(
    array: array::ArrayId,
    extent: Bytes,
    record: &DeviceRecord,
    (device, superblock): &(Device, Superblock),
) {
    if superblock.is_of(array, record.id, extent, record.slots) {
        device.settle_direct();
    }
}

impl<D: SlotSpace> Keeper<D> {
    /// Chooses the map among the found copies, and opens its devices with `open`.
    ///
    /// # Errors
    /// No copy can be read and trusted, or the map contradicts itself.
    pub fn open_with(
        found: Vec<FoundCopy>,
        host: Host,
        accept: &AcceptLoss,
        open: impl FnOnce(Bytes, &[DeviceRecord]) -> Vec<OpenResult<D>>,
    ) -> Result<Self, KeeperError> {
        Self::open_knowing(found, host, accept, open, Places::default())
    }

    /// Like [`Keeper::open_with`]. `known` has the places of some volumes, as the map has them.
    pub(super) fn open_knowing(
        found: Vec<FoundCopy>,
        host: Host,
        accept: &AcceptLoss,
        open: impl FnOnce(Bytes, &[DeviceRecord]) -> Vec<OpenResult<D>>,
        known: Places,
    ) -> Result<Self, KeeperError> {
        let mut keeper = Self::look_knowing(found, host, accept, open, known, false)?;
        match keeper.not_believed.take() {
            Some(why) => Err(why),
            None => Ok(keeper),
        }
    }

    /// Opens the intact volumes of a map whose copies are all damaged. Nothing can be changed, and
    /// nothing is written to a device.
    ///
    /// # Errors
    /// Those of [`Keeper::open_with`].
    pub(super) fn open_salvaged_with(
        found: FoundCopy,
        host: Host,
        open: impl FnOnce(Bytes, &[DeviceRecord]) -> Vec<OpenResult<D>>,
    ) -> Result<Self, KeeperError> {
        let accept = AcceptLoss::default();
        let mut keeper =
            Self::look_knowing(vec![found], host, &accept, open, Places::default(), true)?;
        match keeper.not_believed.replace(KeeperError::Salvaged) {
            Some(KeeperError::Salvaged) => {
                keeper.quiet = true;
                Ok(keeper)
            }
            other => Err(other.expect("a salvaged map is only looked at")),
        }
    }

    /// Like [`Keeper::open_with`], but also opens a map that is not trusted. It cannot be changed.
    ///
    /// # Errors
    /// No copy can be read, or the map contradicts itself.
    pub fn look_with(
        found: Vec<FoundCopy>,
        host: Host,
        accept: &AcceptLoss,
        open: impl FnOnce(Bytes, &[DeviceRecord]) -> Vec<OpenResult<D>>,
    ) -> Result<Self, KeeperError> {
        Self::look_knowing(found, host, accept, open, Places::default(), false)
    }

    fn look_knowing(
        found: Vec<FoundCopy>,
        host: Host,
        accept: &AcceptLoss,
        open: impl FnOnce(Bytes, &[DeviceRecord]) -> Vec<OpenResult<D>>,
        places: Places,
        salvaged: bool,
    ) -> Result<Self, KeeperError> {
        let mut copies: Vec<(CopyId, Box<dyn CopyPlace>, Array)> = vec![];
        let mut unread: Vec<UnreadCopy> = vec![];
        let mut candidates = vec![];
        for FoundCopy { copy, place, array } in found {
            let read = array.and_then(|array| Ok((candidate(copy, &array)?, array)));
            match read {
                Ok((candidate, array)) => {
                    candidates.push(candidate);
                    copies.push((copy, place, array));
                }
                Err(error @ ArrayError::InUse { .. }) => return Err(error.into()),
                Err(error) => unread.push((copy, place, explain(&error))),
            }
        }
        let whys = whys_of(&unread);
        if candidates.is_empty() {
            return Err(KeeperError::NoCopy { whys });
        }
        let mut opened = open_devices(&copies, open)?;
        let mut refused = opened.values().filter_map(|o| o.as_ref().err());
        if let Some(OpenError { why, .. }) = refused.find(|n| n.in_use) {
            return Err(KeeperError::DeviceInUse { why: why.clone() });
        }
        let seen: Vec<SuperblockInfo> = opened
            .iter()
            .filter_map(|(key, o)| seen(key.0, o, host.boot))
            .collect();
        let accepts_map = accept.contains(AcceptLoss::MAP);
        let (mut not_believed, mut distrusts) = (None, false);
        let choice = match choose(&candidates, &seen) {
            Ok(choice) => {
                not_believed = salvaged.then_some(KeeperError::Salvaged);
                choice
            }
            Err(why) => {
                let anyway = choose_anyway(&candidates, &seen);
                // A map that may be older than the devices does not know which slots were never used.
                distrusts = accepts_map;
                if !accepts_map {
                    not_believed = Some(KeeperError::NotBelieved {
                        whys: match whys.is_empty() {
                            true => String::new(),
                            false => format!(" ({whys})"),
                        },
                        loss: format!(
                            "newer volumes, and data in slots that this copy does not list, are lost; where slots were reassigned, volumes read each other's data. The copies have {}. Affected volumes: {}",
                            known(&candidates),
                            names_of_volumes(&copies)
                        ),
                        why,
                    });
                }
                anyway.expect("there is a candidate")
            }
        };
        // A map that is not trusted stays read-only.
        let open = |array: Array, place: &dyn CopyPlace| match &not_believed {
            None => open_for_changes(array, place),
            Some(_) => Ok(array),
        };
        copies.sort_by_key(|c| c.0 != choice.copy);
        if copies.first().is_some_and(|c| c.2.is_rolled_back()) {
            warn!(
                "a power loss interrupted the last commit of the map, which is ignored: no acknowledged change is lost unless the file of the map is damaged"
            );
        }
        let mut map: Option<Copies> = None;
        for (copy, place, array) in copies {
            let current = copy == choice.copy || choice.other_is_current;
            let opened = match current {
                true => open(array, &*place).map_err(|error| explain(&error)),
                false => Err("it was out of date at the start".into()),
            };
            match (opened, &mut map) {
                (Ok(array), Some(map)) => map.add(copy, place, Some(array), ""),
                (Ok(array), None) => map = Some(Copies::new(copy, place, array)?),
                (Err(why), _) => unread.push((copy, place, why)),
            }
        }
        let mut map = map.ok_or_else(|| KeeperError::NoCopy {
            whys: whys_of(&unread),
        })?;
        for (copy, place, why) in unread {
            map.add(copy, place, None, why);
        }
        let mut keeper = Self::of(map, host, places)?;
        if distrusts {
            let all: Vec<DeviceId> = keeper.records.keys().copied().collect();
            all.into_iter().for_each(|id| keeper.distrust(id));
        }
        keeper.next_generation = choice.next_generation;
        keeper.accepts_map = accepts_map;
        keeper.not_believed = not_believed;
        keeper.join_found(&mut opened, accept)?;
        Ok(keeper)
    }

    /// Creates the keeper of a map, without devices.
    fn of(map: Copies, host: Host, known: Places) -> Result<Self, KeeperError> {
        let tiers = map.tiers()?;
        let records: BTreeMap<DeviceId, DeviceRecord> =
            map.devices()?.into_iter().map(|d| (d.id, d)).collect();
        let volumes: BTreeMap<_, _> = map.volumes()?.into_iter().map(|v| (v.id, v)).collect();
        let mut used = vec![];
        let (mut lost, mut contested) = (false, vec![]);
        for volume in volumes.values() {
            let family = volume.family();
            let whole = volume.health == Health::Whole && volume.source.is_none();
            if let Some(places) = known.get(&volume.id).filter(|_| whole) {
                let in_slots = (0..).zip(places);
                let by = |(extent, at): (u32, &Option<Location>)| {
                    let at = (*at)?;
                    Some(UsedSlot { at, family, extent })
                };
                used.extend(in_slots.filter_map(by));
                continue;
            }
            for (extent, found) in (0..).zip(map.extents(volume.id)?) {
                let by = |at| UsedSlot { at, family, extent };
                match (found, volume.health) {
                    // The place is at the source of an import and occupies no slot.
                    (Extent::At(location), _) if volume.is_at_source(location) => {}
                    (Extent::At(location), Health::Whole) => used.push(by(location)),
                    // Other extents may claim the same slot. None of them is served, and the slot is not free either.
                    (Extent::At(location), Health::Damaged) => contested.push(by(location)),
                    (Extent::Lost, _) => lost = true,
                    (Extent::Hole, _) => {}
                }
            }
        }
        // Sorting is needed only for contested slots.
        if !contested.is_empty() {
            used.sort();
        }
        contested.sort();
        // Further claims to a slot count only if they may share it with the first one.
        let shares = |a: &UsedSlot, b: &UsedSlot| (a.family, a.extent) == (b.family, b.extent);
        contested.dedup_by(|b, a| a.at == b.at && !shares(a, b));
        contested.retain(
            |c| match used.binary_search_by_key(&c.at, |u: &UsedSlot| u.at) {
                Ok(owner) => shares(&used[owner], c),
                Err(_) => true,
            },
        );
        used.append(&mut contested);
        let all: Vec<DeviceRecord> = records.values().cloned().collect();
        let mut slots = Slots::new(&all, used.into_iter())?;
        if lost {
            // Any slot that was ever used may hold the lost extent, so none of them is assigned or zeroed.
            for device in &all {
                let _ = slots.to_clean(device.id, usize::MAX);
            }
        }
        Ok(Self {
            map,
            slots,
            devices: BTreeMap::new(),
            lost: BTreeMap::new(),
            records,
            tiers,
            volumes,
            workers: vec![],
            failed: BTreeMap::new(),
            silent: BTreeMap::new(),
            waiting: vec![],
            store_error: None,
            map_failing: None,
            lost_flushes: vec![],
            newly_lost: vec![],
            superblocks: BTreeMap::new(),
            uncertain: BTreeMap::new(),
            not_owned: BTreeMap::new(),
            host,
            next_generation: 1,
            held: None,
            pause: None,
            serves: false,
            guests: false,
            unstamped: BTreeMap::new(),
            at_start: (MapState::default(), vec![]),
            left: BTreeMap::new(),
            spoiled: false,
            writing: None,
            accepts_map: false,
            not_believed: None,
            distrusted: BTreeSet::new(),
            proposed: None,
            dir: None,
            watch: watch::Watch::default(),
            known,
            sources: super::sources::Sources::default(),
            logged: super::log::LogState::default(),
            quiet: false,
        })
    }

    /// Names of the volumes with data on a device.
    fn volumes_on(&self, id: DeviceId) -> String {
        let on = |v: &&VolumeRecord| {
            let extents = self.map.extents(v.id).unwrap_or_default();
            let is = |e: &Extent| matches!(e, Extent::At(at) if at.device == id);
            extents.iter().any(is)
        };
        let names = self.volumes.values().filter(on).map(|v| v.name.clone());
        listed(&names.collect::<Vec<_>>())
    }

    /// Adds the opened devices that belong to the array.
    fn join_found(
        &mut self,
        opened: &mut BTreeMap<(DeviceId, String), OpenResult<D>>,
        accept: &AcceptLoss,
    ) -> Result<(), KeeperError> {
        // An earlier process may have left unflushed data only if it ran in the present boot: a power loss discards such data.
        let boot = self.host.boot;
        let unclean = |o: &OpenResult<D>| matches!(o, Ok((_, b)) if !b.flushed && b.boot == boot);
        let unflushed = !opened.values().any(Result::is_ok) || opened.values().any(unclean);
        let stamps = self.map.stamps()?;
        self.at_start = (self.map.state().clone(), stamps.clone());
        let (mut unsettled, mut distrusted) = (vec![], vec![]);
        for record in self.records.values().cloned().collect::<Vec<_>>() {
            let (id, name) = (record.id, record.name);
            let found = opened.remove(&(id, record.path));
            let found = match (record.kind, found) {
                (DeviceKind::Gone, _) => Err(OpenError::from("an operator accepted its loss")),
                (_, Some(found)) => found,
                (_, None) => Err(OpenError::from("it was not opened")),
            };
            let mut refused = None;
            let taken = found.and_then(|(device, superblock)| {
                let stamp = stamps.iter().find(|s| s.device == id);
                if let Err(why) = self.belongs(id, stamp, &superblock) {
                    let volumes = self.volumes_on(id);
                    if !accept.contains(&name) {
                        let text = format!("{why}; volumes with data on it: {volumes}");
                        refused = Some(why);
                        return Err(text.into());
                    }
                    warn!(device = name, volumes, %why, "the device is used with its present content");
                    distrusted.push(id);
                }
                self.superblocks.insert(id, superblock);
                if is_unsettled(stamp) {
                    unsettled.push(id);
                }
                Ok(device)
            });
            match taken {
                Ok(device) => {
                    self.devices.insert(id, Arc::new(device));
                }
                Err(OpenError { why, .. }) => {
                    let unflushed = unflushed && record.kind != DeviceKind::Gone;
                    let lost = LostDevice {
                        refused,
                        ..LostDevice::new(why, unflushed)
                    };
                    self.lost.insert(id, lost);
                }
            }
        }
        distrusted.into_iter().for_each(|id| self.distrust(id));
        // A read-only keeper writes nothing.
        if self.not_believed.is_none() {
            self.settle_superblocks(&unsettled);
        }
        Ok(())
    }
}

/// Opens a verified copy for changes. After an I/O error it is verified and opened once more.
fn open_for_changes(array: Array, place: &dyn CopyPlace) -> Result<Array, ArrayError> {
    let verified = array.state()?;
    let again = |error: ArrayError| {
        let array = place.look()?;
        match array.state()? == verified {
            true => array.open_for_changes(),
            false => Err(error),
        }
    };
    match array.open_for_changes() {
        Err(error) if error.is_transient() => again(error),
        opened => opened,
    }
}

/// Unused copy of the map, with the reason.
type UnreadCopy = (CopyId, Box<dyn CopyPlace>, String);

fn whys_of(unread: &[UnreadCopy]) -> String {
    let one = |(copy, _, why): &UnreadCopy| format!("{copy} copy: {why}");
    unread.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn candidate(copy: CopyId, array: &Array) -> Result<Candidate, ArrayError> {
    let devices = array.devices()?;
    let devices = devices.iter().filter(|d| !is_given_up(d));
    Ok(Candidate {
        copy,
        state: array.state()?,
        devices: devices.map(|d| d.id).collect(),
        rolled_back: array.is_rolled_back(),
    })
}

/// Opens every device that one of the copies contains.
fn open_devices<D: SlotSpace>(
    copies: &[(CopyId, Box<dyn CopyPlace>, Array)],
    open: impl FnOnce(Bytes, &[DeviceRecord]) -> Vec<OpenResult<D>>,
) -> Result<BTreeMap<(DeviceId, String), OpenResult<D>>, KeeperError> {
    let (_, _, first) = copies.first().expect("there is a candidate");
    let (array, extent) = (first.id(), first.extent());
    let mut records: Vec<DeviceRecord> = vec![];
    for (_, _, copy) in copies {
        let of_copy = copy.devices()?.into_iter();
        for record in of_copy.filter(|r| !is_given_up(r)) {
            let same = |r: &DeviceRecord| r.id == record.id && r.path == record.path;
            if !records.iter().any(same) {
                records.push(record);
            }
        }
    }
    let opened = open(extent, &records);
    let whose = |(record, opened): (DeviceRecord, OpenResult<D>)| {
        let opened = opened.and_then(|(device, found)| {
            whose(array, extent, &record, &found).map_err(|e| e.to_string())?;
            Ok((device, found))
        });
        ((record.id, record.path), opened)
    };
    Ok(records.into_iter().zip(opened).map(whose).collect())
}

fn seen<D>(device: DeviceId, opened: &OpenResult<D>, boot: u128) -> Option<SuperblockInfo> {
    let (_, superblock) = opened.as_ref().ok()?;
    Some(SuperblockInfo {
        device,
        stamp: superblock.stamp,
        closed_at: superblock.flushed.then_some(superblock.commits),
        lost_power: !superblock.flushed && superblock.boot != boot,
    })
}

/// Returns the names of all volumes in the readable copies.
fn names_of_volumes(copies: &[(CopyId, Box<dyn CopyPlace>, Array)]) -> String {
    let all = copies
        .iter()
        .flat_map(|c| c.2.volumes().unwrap_or_default());
    let names: BTreeSet<String> = all.map(|v| v.name).collect();
    listed(&names.into_iter().collect::<Vec<_>>())
}

/// Describes the state of the copies for the operator.
fn known(candidates: &[Candidate]) -> String {
    let of = |c: &Candidate| {
        let generation = c.state.confirmed.stamp.generation;
        format!(
            "{} commits up to generation {generation} ({} copy)",
            c.state.commits, c.copy
        )
    };
    let all: Vec<String> = candidates.iter().map(of).collect();
    all.join(", ")
}
