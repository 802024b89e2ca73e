//! Opening an array from what there is of it, and keeping its copies and devices of one mind about that.
//!
//! ```text
//!   copies of the map ─┐                          ┌─▶ devices that belong to it: used
//!                      ├─▶ choose (array::choose) ─┤
//!   superblocks ───────┘                          └─▶ others: lost, for now
//!
//!   renew: propose (map) ─▶ superblocks of all devices in use ─▶ confirm (map)       before guests are let in, and whenever
//!                                                                                    a copy or a device comes or goes
//! ```
//!
//! What may be believed is decided in [`array::choose`] and [`array::joins`]; here it is carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use array::{
    Array, ArrayError, Candidate, Change, CommitError, Copies, CopyHealth, CopyId, CopyPlace,
    DeviceKind, DeviceRecord, DeviceStamp, Extent, Health, Members, Membership, Seen, Slots, Stamp,
    Superblock, choose, choose_anyway, devices_needed, joins,
};
use units::{Bytes, DeviceId};

use super::{Keeper, KeeperError, LostDevice, watch};
use crate::device::{Device, DeviceError, SlotSpace, at_once};
use crate::text::explain;

/// What an operator accepts to lose: `map`, and names of devices.
#[derive(Debug, Clone, Default)]
pub struct AcceptLoss(pub BTreeSet<String>);

impl AcceptLoss {
    /// The word for the map.
    pub const MAP: &str = "map";

    fn contains(&self, what: &str) -> bool {
        self.0.contains(what)
    }
}

/// A copy of the map where one should be.
#[derive(Debug)]
pub struct FoundCopy {
    /// Which.
    pub copy: CopyId,
    /// Where.
    pub place: Box<dyn CopyPlace>,
    /// It, or why it cannot be read.
    pub array: Result<Array, ArrayError>,
}

/// What is to be known of the host.
pub struct Host {
    /// Its present boot; never 0.
    pub boot: u128,
    /// Random numbers.
    pub nonce: Box<dyn FnMut() -> u64 + Send>,
}

impl Host {
    /// This one.
    pub fn this() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.ok().and_then(|id| {
            let digits: String = id.chars().filter(char::is_ascii_hexdigit).collect();
            u128::from_str_radix(&digits, 16).ok()
        });
        Self {
            // Where the system does not say, every start may be on the same boot.
            boot: boot.filter(|b| *b != 0).unwrap_or(1),
            nonce: Box::new(random),
        }
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes));
    match read {
        Ok(()) => u64::from_le_bytes(bytes),
        // Without it two memberships that never met are told apart by time alone.
        Err(_) => crate::clock::now_ns() ^ u64::from(std::process::id()) << 32,
    }
}

/// A device that was opened, with its superblock, if its kind has one; or what is wrong with it.
pub type Opened<D> = Result<(D, Option<Superblock>), NotOpened>;

/// Why a device is not to be had.
#[derive(Debug, Clone)]
pub struct NotOpened {
    /// In words.
    pub why: String,
    /// Somebody else uses it: then nobody may use the array.
    pub in_use: bool,
}

impl<S: Into<String>> From<S> for NotOpened {
    fn from(why: S) -> Self {
        Self {
            why: why.into(),
            in_use: false,
        }
    }
}

/// Reads the superblock of a device that has just been opened, if its kind has one.
pub fn with_superblock<D: SlotSpace>(record: &DeviceRecord, device: D) -> Opened<D> {
    let found = match record.kind {
        DeviceKind::BareNbd => None,
        _ => Some(device.read_superblock()?),
    };
    Ok((device, found))
}

/// Proposals of which none was confirmed, after which one is used again: see [`Keeper::renew`].
const EARLIER_MAX: usize = 32;

/// Devices that have not answered in this time are lost for the start; they are tried again later.
const OPEN_TIME: Duration = Duration::from_secs(10);

/// Opens devices, all at the same time: one that hangs keeps no others.
pub(super) fn open_at_once(extent: Bytes, records: &[DeviceRecord]) -> Vec<Opened<Device>> {
    let one = |record: &DeviceRecord| {
        let record = record.clone();
        move || open_one(extent, &record)
    };
    let opened = at_once(records.iter().map(one).collect(), OPEN_TIME).into_iter();
    let opened = opened.map(|o| o.unwrap_or_else(|_| Err("it does not answer".into())));
    opened.collect()
}

/// Opens a device and reads its superblock.
pub(crate) fn open_one(extent: Bytes, record: &DeviceRecord) -> Opened<Device> {
    let device = Device::open(extent, record).map_err(|e| NotOpened {
        in_use: matches!(e, DeviceError::InUse { .. }),
        why: explain(&e),
    })?;
    with_superblock(record, device)
}

impl<D: SlotSpace> Keeper<D> {
    /// Chooses the map among the copies that were found, and opens its devices in some way.
    ///
    /// # Errors
    /// No copy that can be read and believed; a map that contradicts itself.
    pub fn open_with(
        found: Vec<FoundCopy>,
        host: Host,
        accept: &AcceptLoss,
        open: impl FnOnce(Bytes, &[DeviceRecord]) -> Vec<Opened<D>>,
    ) -> Result<Self, KeeperError> {
        let mut keeper = Self::look_with(found, host, accept, open)?;
        match keeper.not_believed.take() {
            Some(why) => Err(why),
            None => Ok(keeper),
        }
    }

    /// [`Keeper::open_with`], also of a map that cannot be believed: then nothing can be changed.
    ///
    /// # Errors
    /// No copy that can be read; a map that contradicts itself.
    pub fn look_with(
        found: Vec<FoundCopy>,
        host: Host,
        accept: &AcceptLoss,
        open: impl FnOnce(Bytes, &[DeviceRecord]) -> Vec<Opened<D>>,
    ) -> Result<Self, KeeperError> {
        let mut copies: Vec<(CopyId, Box<dyn CopyPlace>, Array)> = vec![];
        let mut unread: Vec<(CopyId, Box<dyn CopyPlace>, String)> = vec![];
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
        let whys: Vec<String> = unread
            .iter()
            .map(|(copy, _, why)| format!("{copy} copy: {why}"))
            .collect();
        let whys = whys.join("; ");
        if candidates.is_empty() {
            return Err(KeeperError::NoCopy { whys });
        }
        let mut opened = open_devices(&copies, open)?;
        let mut refused = opened.values().filter_map(|o| o.as_ref().err());
        if let Some(NotOpened { why, .. }) = refused.find(|n| n.in_use) {
            return Err(KeeperError::DeviceInUse { why: why.clone() });
        }
        let seen: Vec<Seen> = opened
            .iter()
            .filter_map(|(key, o)| seen(key.0, o))
            .collect();
        let accepts_map = accept.contains(AcceptLoss::MAP);
        let (mut not_believed, mut distrusts) = (None, false);
        let choice = match choose(&candidates, &seen) {
            Ok(choice) => choice,
            Err(why) => {
                let anyway = choose_anyway(&candidates, &seen);
                // A map that may be older than what is on the devices knows nothing of what was never used.
                distrusts = accepts_map;
                if !accepts_map {
                    not_believed = Some(KeeperError::NotBelieved {
                        whys: match whys.is_empty() {
                            true => String::new(),
                            false => format!(" ({whys})"),
                        },
                        loss: format!(
                            "volumes that were created since, and what was written to places that this copy does not know, are lost; where slots changed hands, volumes read one another's bytes. It knows {}",
                            known(&candidates)
                        ),
                        why,
                    });
                }
                anyway.expect("there is a candidate")
            }
        };
        let at = copies.iter().position(|c| c.0 == choice.copy);
        let (copy, place, array) = copies.swap_remove(at.expect("it is one of them"));
        let mut map = Copies::new(copy, place, array)?;
        for (copy, place, array) in copies {
            let current = choice.other_is_current.then_some(array);
            map.add(copy, place, current, "it was not up to date at the start");
        }
        for (copy, place, why) in unread {
            map.add(copy, place, None, why);
        }
        let mut keeper = Self::of(map, host)?;
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

    /// The array that a map describes, without its devices.
    fn of(map: Copies, host: Host) -> Result<Self, KeeperError> {
        let tiers = map.tiers()?;
        let records: BTreeMap<DeviceId, DeviceRecord> =
            map.devices()?.into_iter().map(|d| (d.id, d)).collect();
        let volumes: BTreeMap<_, _> = map.volumes()?.into_iter().map(|v| (v.id, v)).collect();
        let mut used = vec![];
        let (mut lost, mut contested) = (false, vec![]);
        for volume in volumes.values() {
            for extent in map.extents(volume.id)? {
                match (extent, volume.health) {
                    (Extent::At(location), Health::Whole) => used.push(location),
                    // Others may claim the same slot; none of them is served, and the slot is nobody else's.
                    (Extent::At(location), Health::Damaged) => contested.push(location),
                    (Extent::Lost, _) => lost = true,
                    (Extent::Hole, _) => {}
                }
            }
        }
        used.sort();
        contested.sort();
        contested.dedup();
        contested.retain(|c| used.binary_search(c).is_err());
        used.append(&mut contested);
        let all: Vec<DeviceRecord> = records.values().cloned().collect();
        let mut slots = Slots::new(&all, used.into_iter())?;
        if lost {
            // Any slot that was ever used may be the one that was lost: none of them is handed out, nor zeroed.
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
            host,
            next_generation: 1,
            held: None,
            pause: None,
            serves: false,
            guests: false,
            unstamped: BTreeMap::new(),
            left: BTreeMap::new(),
            spoiled: false,
            accepts_map: false,
            not_believed: None,
            distrusted: BTreeSet::new(),
            proposed: None,
            dir: None,
            watch: watch::Watch::default(),
        })
    }

    /// Takes the devices that belong to the array among those that were opened.
    fn join_found(
        &mut self,
        opened: &mut BTreeMap<(DeviceId, String), Opened<D>>,
        accept: &AcceptLoss,
    ) -> Result<(), KeeperError> {
        // Whether a process before this one may have left something that was not flushed, and that a power loss has not forgiven.
        let boot = self.host.boot;
        let unclean = |o: &Opened<D>| matches!(o, Ok((_, Some(b))) if !b.flushed && b.boot == boot);
        let told = opened
            .values()
            .filter(|o| matches!(o, Ok((_, Some(_)))))
            .count();
        let unflushed = told == 0 || opened.values().any(unclean);
        let stamps = self.map.stamps()?;
        let (mut unsettled, mut distrusted) = (vec![], vec![]);
        for record in self.records.values().cloned().collect::<Vec<_>>() {
            let (id, name) = (record.id, record.name);
            let found = opened.remove(&(id, record.path));
            let found = match (record.kind, found) {
                (DeviceKind::Gone, _) => Err(NotOpened::from("it was given up")),
                (_, Some(found)) => found,
                (_, None) => Err(NotOpened::from("it was not looked for")),
            };
            let taken = found.and_then(|(device, superblock)| {
                let stamp = stamps.iter().find(|s| s.device == id);
                if let Some(superblock) = superblock {
                    if let Err(why) = self.belongs(id, stamp, &superblock) {
                        if !accept.contains(&name) {
                            return Err(why.into());
                        }
                        distrusted.push(id);
                    }
                    self.superblocks.insert(id, superblock);
                    if is_unsettled(stamp) {
                        unsettled.push(id);
                    }
                }
                Ok(device)
            });
            match taken {
                Ok(device) => {
                    self.devices.insert(id, Arc::new(device));
                }
                Err(NotOpened { why, .. }) => {
                    let lost = LostDevice {
                        why,
                        unflushed: unflushed && record.kind != DeviceKind::Gone,
                        in_use: false,
                    };
                    self.lost.insert(id, lost);
                }
            }
        }
        distrusted.into_iter().for_each(|id| self.distrust(id));
        // Who only looks writes nothing.
        if self.not_believed.is_none() {
            self.settle_superblocks(&unsettled);
        }
        Ok(())
    }

    /// What is in slots of a device that were never used is not known any more: its mark rises with the next membership.
    fn distrust(&mut self, id: DeviceId) {
        self.slots.distrust(id);
        self.distrusted.insert(id);
    }

    /// Whether a device that is there belongs to the array, by its superblock.
    fn belongs(
        &self,
        id: DeviceId,
        expected: Option<&DeviceStamp>,
        found: &Superblock,
    ) -> Result<(), String> {
        joins(self.map.state(), expected, found, self.host.boot).map_err(|why| {
            let name = &self.records[&id].name;
            format!("{why} (`terrace device accept {name}` takes it as it is)")
        })
    }

    /// What was read may only be in a cache, if writing it did not come to its end: then it is written again. Otherwise a power loss
    /// could bring back one that nobody expects any more. Devices that cannot be written are lost.
    fn settle_superblocks(&mut self, devices: &[DeviceId]) {
        let again = devices.iter().map(|id| (*id, self.superblocks[id]));
        let again = again.collect();
        self.put_superblocks_or_lose(again);
    }

    /// Writes superblocks, and remembers those that are written; what came of each.
    fn put_superblocks(
        &mut self,
        new: BTreeMap<DeviceId, Superblock>,
    ) -> Vec<(DeviceId, std::io::Result<()>)> {
        let of = |(id, superblock): (&DeviceId, &Superblock)| {
            (*id, self.devices[id].clone(), *superblock)
        };
        let written = D::write_superblocks(new.iter().map(of).collect());
        for (id, _) in written.iter().filter(|w| w.1.is_ok()) {
            self.superblocks.insert(*id, new[id]);
        }
        written
    }

    /// [`Keeper::put_superblocks`]; devices that cannot be written are lost. The others.
    fn put_superblocks_or_lose(&mut self, new: BTreeMap<DeviceId, Superblock>) -> Vec<DeviceId> {
        let mut written = vec![];
        for (id, result) in self.put_superblocks(new) {
            match result {
                Ok(()) => written.push(id),
                Err(error) => self.lose(id, format!("its superblock cannot be written: {error}")),
            }
        }
        written
    }

    /// Takes a device that is back, or that was opened anew, if it belongs to the array; it is used once the membership is renewed.
    /// `found` is its superblock, if its kind has one.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn join(
        &mut self,
        id: DeviceId,
        (device, found): (D, Option<Superblock>),
        accepted: bool,
    ) -> Result<(), String> {
        let record = self.records.get(&id).ok_or("it was removed")?;
        if record.kind == DeviceKind::Gone {
            return Err("it was given up".into());
        }
        if let Some(lost) = self.lost.get(&id).filter(|l| l.in_use && !accepted) {
            return Err(lost.why.clone());
        }
        let mut unsettled = false;
        if let Some(found) = found {
            whose(self.map.id(), self.map.extent(), record, &found)?;
            let stamps = self.map.stamps().map_err(|e| explain(&e))?;
            let stamp = stamps.iter().find(|s| s.device == id);
            if let Err(why) = self.belongs(id, stamp, &self.as_before(id, found)) {
                if !accepted {
                    return Err(why);
                }
                self.distrust(id);
            }
            unsettled = is_unsettled(stamp);
            self.superblocks.insert(id, found);
        }
        let before = self.lost.remove(&id).unwrap_or(LostDevice {
            why: String::new(),
            unflushed: true,
            in_use: false,
        });
        self.devices.insert(id, Arc::new(device));
        if unsettled {
            self.settle_superblocks(&[id]);
        }
        if let Err(error) = self.renew_if_served() {
            self.devices.remove(&id);
            self.superblocks.remove(&id);
            let why = explain(&error);
            let lost = LostDevice {
                why: why.clone(),
                ..before
            };
            self.lost.insert(id, lost);
            return Err(why);
        }
        // It may have failed as it was stamped: no guest has used it meanwhile.
        match self.lost.get_mut(&id) {
            Some(lost) => {
                lost.in_use = before.in_use;
                Err(lost.why.clone())
            }
            None => {
                self.unstamped.remove(&id);
                Ok(())
            }
        }
    }

    /// A superblock as far as it says whether everything on its device is flushed. A device that was lost as it was stamped, before guests
    /// were let in, was given that stamp by this process and nothing else: what is said by the one from before holds.
    fn as_before(&self, id: DeviceId, found: Superblock) -> Superblock {
        match self.unstamped.get(&id) {
            Some(before) => Superblock {
                flushed: before.flushed,
                boot: before.boot,
                ..found
            },
            None => found,
        }
    }

    /// A new device of the array: nothing is on it.
    pub fn add(&mut self, record: &DeviceRecord, device: Arc<D>) {
        self.slots.add_device(record);
        self.devices.insert(record.id, device);
        if record.kind != DeviceKind::BareNbd {
            let (array, extent) = (self.map.id(), self.map.extent());
            let superblock = crate::device::superblock_of(array, extent, record);
            self.superblocks.insert(record.id, superblock);
        }
        self.records.insert(record.id, record.clone());
    }

    /// A device cannot be used any more. If guests used it, it is not taken back by itself: what it shows then may be what a cache has, and
    /// not it.
    pub fn lose(&mut self, id: DeviceId, why: String) {
        let Some(device) = self.devices.remove(&id) else {
            return;
        };
        self.left.insert(id, Arc::downgrade(&device));
        let stamp = self.superblocks.remove(&id).map(|s| s.stamp);
        // What it carries must not come to hold: it would look as if it had been there.
        self.spoiled |= stamp.is_some() && stamp == self.map.state().pending.map(|p| p.stamp);
        let lost = LostDevice {
            why,
            unflushed: true,
            in_use: self.guests,
        };
        self.lost.insert(id, lost);
        self.tell_lost(id);
    }

    /// Lets guests in: from here on nothing that another copy of the map, or another state of a device, says may be believed.
    ///
    /// # Errors
    /// When that cannot be made durable.
    pub fn begin_serving(&mut self) -> Result<(), ArrayError> {
        self.serves = true;
        let before = self.superblocks.clone();
        self.renew().inspect_err(|_| self.serves = false)?;
        self.guests = true;
        let lost = before.into_iter().filter(|b| self.lost.contains_key(&b.0));
        self.unstamped = lost.collect();
        // Devices that were given up go with the last extent that was on them.
        let given_up = self.records.values().filter(|r| r.kind == DeviceKind::Gone);
        let empty = given_up.filter(|r| !self.holds(r.id)).map(|r| r.id);
        for id in empty.collect::<Vec<_>>() {
            self.commit(&[Change::RemoveDevice(id)])?;
            self.forget(id);
        }
        Ok(())
    }

    /// Whether the array is open for guests.
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// [`Keeper::renew`], while guests are let in.
    ///
    /// # Errors
    /// As it.
    pub fn renew_if_served(&mut self) -> Result<(), ArrayError> {
        match self.serves {
            true => self.renew(),
            false => Ok(()),
        }
    }

    /// A device was removed from the map.
    pub fn forget(&mut self, id: DeviceId) {
        self.slots.remove_device(id);
        self.devices.remove(&id);
        self.lost.remove(&id);
        self.superblocks.remove(&id);
        self.unstamped.remove(&id);
        self.left.remove(&id);
        self.records.remove(&id);
    }

    /// Makes a membership of the copies and devices as they are now, durably: propose, stamp, confirm. Devices that cannot be stamped are
    /// lost.
    ///
    /// # Errors
    /// When a copy is to go on alone and too few devices can be told, or when the map fails. Nothing may be acknowledged then.
    pub fn renew(&mut self) -> Result<(), ArrayError> {
        self.check_believed()?;
        // Each turn but the last loses a copy or a device.
        loop {
            let members = self.map.members();
            // One that was not confirmed is tried again, unless a copy knows of it that is to be left behind.
            let state = self.map.state();
            let again = state.pending.filter(|p| {
                // One of an earlier process may be in an image of a device that somebody puts back: it is used again only where their
                // number is about to end.
                let own = self.proposed == Some(p.stamp) || state.earlier.len() > EARLIER_MAX;
                let left_behind = |c: &CopyId| p.members.contains(*c) && !members.contains(*c);
                let latest = p.stamp.generation + 1 == self.next_generation;
                own && latest && !self.spoiled && !CopyId::ALL.iter().any(left_behind)
            });
            let stamp = again.map_or_else(|| self.new_stamp(), |p| p.stamp);
            self.proposed = Some(stamp);
            let membership = Membership { stamp, members };
            let before = self.map.state().may_be_members();
            // Where it is clear that too few can be told nothing is begun: a proposal that others do not know stands in their way.
            self.check_told(members, before, self.superblocks.len())?;
            let devices = self
                .superblocks
                .iter()
                .map(|(id, s)| (*id, s.stamp))
                .collect();
            let propose = Change::Propose {
                membership,
                devices,
            };
            let mut changes = vec![propose];
            changes.extend(self.distrusted.iter().map(|id| Change::HighWater {
                device: *id,
                slots: self.slots.total(*id),
            }));
            self.commit_directly(&changes)?;
            self.remember_marks(&changes);
            self.distrusted.clear();
            if self.map.members() != members {
                continue;
            }
            let written = self.stamp_devices(stamp);
            if self.spoiled {
                continue;
            }
            self.check_told(members, before, written.len())?;
            self.commit_directly(&[Change::Confirm { devices: written }])?;
            if self.map.confirmed() {
                return Ok(());
            }
        }
    }

    /// [`Keeper::renew`]; where it cannot be now, that is a trouble, and it is tried again before anything is committed.
    pub fn renew_or_note(&mut self) {
        if let Err(error) = self.renew() {
            self.map_failing = Some(explain(&error));
        }
    }

    /// Whether enough devices are told of a membership, if a copy goes on alone with it that did not before.
    fn check_told(&self, members: Members, before: Members, told: usize) -> Result<(), ArrayError> {
        let goes_alone = CopyId::ALL.into_iter().find(|c| {
            members.contains(*c) && !members.contains(c.other()) && before.contains(c.other())
        });
        let Some(copy) = goes_alone.filter(|_| !self.accepts_map) else {
            return Ok(());
        };
        let counts = self.records.values().filter(|r| has_superblock(r.kind));
        let all = counts.count();
        let needed = devices_needed(copy, all);
        match told >= needed {
            true => Ok(()),
            false => Err(ArrayError::Away {
                why: format!(
                    "the other copy is not kept up to date, and of {all} devices {told} can be told so: it takes {needed} (`--accept-loss map` goes on without: then no other copy of the map may ever be used)"
                ),
            }),
        }
    }

    /// Nothing is changed in a map that is only looked at.
    pub(super) fn check_believed(&self) -> Result<(), ArrayError> {
        match &self.not_believed {
            None => Ok(()),
            Some(why) => Err(ArrayError::Away { why: explain(why) }),
        }
    }

    fn new_stamp(&mut self) -> Stamp {
        let generation = self.next_generation;
        self.next_generation += 1;
        self.spoiled = false;
        let nonce = (self.host.nonce)();
        Stamp { generation, nonce }
    }

    /// A commit that nobody waits for: one in doubt is found out, or begun anew with another generation.
    fn commit_directly(&mut self, changes: &[Change]) -> Result<(), ArrayError> {
        match self.map.commit(changes) {
            Ok(()) => Ok(()),
            Err(CommitError::InDoubt(_)) if self.map.resolve() == Some(true) => Ok(()),
            Err(error) => Err(error.into_error()),
        }
    }

    /// Writes a stamp on every device in use; those that have it now.
    fn stamp_devices(&mut self, stamp: Stamp) -> Vec<DeviceId> {
        let new = self.superblocks.iter().map(|(id, before)| {
            let superblock = match self.serves {
                true => Superblock {
                    stamp,
                    flushed: false,
                    boot: self.host.boot,
                    commits: 0,
                    ..*before
                },
                // Nobody has written anything.
                false => Superblock { stamp, ..*before },
            };
            (*id, superblock)
        });
        let new = new.collect();
        self.put_superblocks_or_lose(new)
    }

    /// Makes a dropped copy of the map anew, if it may, and lets one that has been made belong to the membership.
    pub fn look_at_copies(&mut self, may_begin: bool) {
        self.map.look_at_places();
        self.map.end_rebuild();
        // A copy was dropped, or has been made: nothing is acknowledged before there is a membership for that. Where something is held,
        // settling it brings one.
        if self.held.is_none() && !self.map.confirmed() {
            self.renew_or_note();
        }
        let dropped = self.map.health().into_iter();
        let dropped = dropped.filter(|(_, _, h)| matches!(h, CopyHealth::Dropped { .. }));
        let first = dropped.map(|d| d.0).next();
        if let Some(copy) = first.filter(|_| may_begin) {
            // Why it cannot be is part of how the copy is.
            let _ = self.map.begin_rebuild(copy);
        }
    }

    /// Says on the devices that everything is flushed, when nobody uses the array any more; so a device that is away at the next start is
    /// known to hold all that it should when it comes back. One that cannot be flushed has lost something that its guests may still count
    /// on, and is not taken by itself at the next start.
    pub fn close(&mut self) {
        if !self.serves {
            return;
        }
        let all: Vec<_> = self
            .devices
            .iter()
            .map(|(id, d)| (*id, d.clone()))
            .collect();
        let mut all_flushed = true;
        for (id, result) in D::flush_each(all) {
            if let Err(error) = result {
                self.lose(id, format!("it cannot be flushed: {error}"));
                all_flushed = false;
            }
        }
        let settled = self.held.is_none() && self.map.confirmed();
        if settled && (all_flushed || self.renew().is_ok()) {
            self.say_closed();
        }
    }

    /// Writes on the devices, of which everything is flushed, how many commits there were then.
    fn say_closed(&mut self) {
        let commits = self.map.state().commits;
        let closed = self.superblocks.iter().map(|(id, before)| {
            let superblock = Superblock {
                flushed: true,
                commits,
                ..*before
            };
            (*id, superblock)
        });
        let closed = closed.collect();
        // One that cannot be written does not say so: nothing is lost with that.
        let _ = self.put_superblocks(closed);
    }

    /// What was changed while nobody is served is said to the devices: otherwise a backup from before it would look like the last state.
    pub fn note_changes(&mut self) {
        let commits = self.map.state().commits;
        let behind = |s: &Superblock| s.flushed && s.stamp != Stamp::NONE && s.commits != commits;
        if !self.serves && self.superblocks.values().any(behind) {
            self.say_closed();
        }
    }

    /// Whether a device holds extents, or is to.
    pub fn holds(&self, id: DeviceId) -> bool {
        self.slots.free(id) < self.slots.total(id)
    }
}

/// Whether devices of this kind have one that counts.
pub(super) fn has_superblock(kind: DeviceKind) -> bool {
    !matches!(kind, DeviceKind::BareNbd | DeviceKind::Gone)
}

fn candidate(copy: CopyId, array: &Array) -> Result<Candidate, ArrayError> {
    let devices = array.devices()?;
    let devices = devices.iter().filter(|d| has_superblock(d.kind));
    Ok(Candidate {
        copy,
        state: array.state()?,
        devices: devices.map(|d| d.id).collect(),
    })
}

/// Whether a device's superblock may only be in a cache.
fn is_unsettled(stamp: Option<&DeviceStamp>) -> bool {
    stamp.is_some_and(|s| s.was.is_some())
}

/// Opens every device that one of the copies knows.
fn open_devices<D: SlotSpace>(
    copies: &[(CopyId, Box<dyn CopyPlace>, Array)],
    open: impl FnOnce(Bytes, &[DeviceRecord]) -> Vec<Opened<D>>,
) -> Result<BTreeMap<(DeviceId, String), Opened<D>>, KeeperError> {
    let (_, _, first) = copies.first().expect("there is a candidate");
    let (array, extent) = (first.id(), first.extent());
    let mut records: Vec<DeviceRecord> = vec![];
    for (_, _, copy) in copies {
        let of_copy = copy.devices()?.into_iter();
        for record in of_copy.filter(|r| r.kind != DeviceKind::Gone) {
            let same = |r: &DeviceRecord| r.id == record.id && r.path == record.path;
            if !records.iter().any(same) {
                records.push(record);
            }
        }
    }
    let opened = open(extent, &records);
    let whose = |(record, opened): (DeviceRecord, Opened<D>)| {
        let opened = opened.and_then(|(device, found)| {
            if let Some(found) = &found {
                whose(array, extent, &record, found)?;
            }
            Ok((device, found))
        });
        ((record.id, record.path), opened)
    };
    Ok(records.into_iter().zip(opened).map(whose).collect())
}

/// Whether a superblock is that of the device of a record.
fn whose(
    array: array::ArrayId,
    extent: Bytes,
    record: &DeviceRecord,
    found: &Superblock,
) -> Result<(), String> {
    match found.is_of(array, record.id, extent, record.slots) {
        true => Ok(()),
        false => Err(format!(
            "its superblock says device {} of array {} with {} slots of {}, not the device of this name",
            found.device.0, found.array, found.slots, found.extent
        )),
    }
}

fn seen<D>(device: DeviceId, opened: &Opened<D>) -> Option<Seen> {
    let Ok((_, Some(superblock))) = opened else {
        return None;
    };
    Some(Seen {
        device,
        stamp: superblock.stamp,
        closed_at: superblock.flushed.then_some(superblock.commits),
    })
}

/// What copies know, for a person.
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
