//! Lives of one seed, and the crashes between them.

use std::collections::{BTreeMap, BTreeSet};

use algo::{Rng, mix};
use array::{
    Array, ArrayId, Change, DeviceKind, DeviceRecord, Health, SecondCopy, Superblock, TierRecord,
    VolumeRecord,
};
use crashdisk::CrashDisk;
use datapath::AcceptLoss;
use datapath::device::superblock_of;
use datapath::engine::{GuestOp, GuestRequest, StopReason};
use model::DirectIo;
use units::{Bytes, DeviceId, TierId, VolumeId};

use super::Tally;
use super::copies::SimPlace;
use super::life::{Life, StartError};
use super::oracle::{Crash, Oracle, SECTOR, Whereabouts, fill};
use super::plan::{EXTENT, Faults, Plan, Tampering};
use super::rings::RingGuest;
use super::sources::{BEFORE, is_source};
use super::stays;

/// Limit of steps until a life completes all work: one simulated second has thousands.
const STEPS_MAX: u64 = 3_000_000;

/// Limit of failing flushes without injected faults: each device may have one unreported failure.
const FLUSHES_MAX: u32 = 4;

/// Runs a seed. An error describes lost data, or work that does not end.
pub fn run(seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut rng = Rng::new(seed, 0x7e55);
    let plan = Plan::of(&mut rng);
    let mut oracles: Vec<Oracle> = (0..)
        .zip(&plan.volumes)
        .map(|(v, s)| Oracle::new(v, *s))
        .collect();
    for ((oracle, source), size) in oracles.iter_mut().zip(&plan.sources).zip(&plan.volumes) {
        if let Some(source) = source {
            oracle.holds(&source.sectors(*size), BEFORE);
        }
    }
    let rings = || plan.rings.iter().map(|through| through.map(RingGuest::new));
    let mut guests: Vec<Option<RingGuest>> = rings().collect();
    let mut snapshots = vec![];
    let mut next_op = 0;
    let first = CrashDisk::default();
    create(&plan, &first).map_err(|e| format!("create: {e}"))?;
    let mut maps = [Some(first), plan.second.then(CrashDisk::default)];
    let blank = |(i, device): (usize, &super::plan::DevicePlan)| {
        let mut bytes = vec![0; (u64::from(device.slots) * EXTENT) as usize];
        if device.kind == DeviceKind::Block {
            fill(0xbad, i as u64 * SECTOR as u64, 1, &mut bytes); // foreign data
        }
        let superblock = superblock_of(ID, Bytes(EXTENT), &device_record(i as u16, device));
        bytes.extend(superblock.encode());
        bytes.extend(superblock.encode());
        CrashDisk::of(bytes)
    };
    let mut disks: Vec<CrashDisk> = plan.devices.iter().enumerate().map(blank).collect();
    let mut past = EarlierStates::default();
    // Last life that admitted guests with a device as part of the membership.
    let mut stamped: Vec<Option<usize>> = vec![None; disks.len()];
    let mut crash = Crash::Power;
    let mut boot = 1;
    // Number of lives in which a copy was made to propose to continue alone.
    let mut alone = 0;
    let mut settled: Vec<Vec<(usize, volume::Location)>> = vec![];
    for round in 0..=plan.rounds {
        let last = round == plan.rounds;
        let alternates =
            plan.alternates && !last && alone <= 2 && (alone > 0 || both_current(&maps));
        let faults = match last {
            true => Faults::default(),
            false => Faults {
                stamps: alternates && alone < 2,
                ..plan.faults
            },
        };
        let tampering = match last || round == 0 || alternates {
            true => Tampering::default(),
            false => plan.tampering,
        };
        let newest = of_last_membership(&disks, &plan);
        let devices: Vec<_> = stamped.iter().copied().zip(newest).collect();
        let mut found = past.tamper(tampering, &maps, &disks, &devices, &mut rng, tally);
        if faults.stamps {
            tally.copies_missing += 1;
            found.maps[alone] = None;
            found.copies_tampered = true;
        }
        alone += usize::from(alternates);
        past.remember(&maps, &disks);
        tally.proposals_by_both += u64::from(both_proposed(&found.maps));
        if tally.trace {
            let maps = found.maps.each_ref().map(Option::is_some);
            let disks: Vec<bool> = found.disks.iter().map(Option::is_some).collect();
            eprintln!(
                "life {round}: maps {maps:?} (tampered: {}), disks {disks:?}, old {:?}",
                found.copies_tampered, found.old
            );
        }
        let mut accept = AcceptLoss::default();
        let mut life = loop {
            let places = ["first", "second"].into_iter().zip(&found.maps);
            let mut places = places.map(|(name, disk)| SimPlace::new(name, disk.clone()));
            let places = [places.next(), places.next()].map(|p| p.expect("there are two"));
            let started = Life::start(
                &plan,
                faults,
                Rng::new(mix(seed, round), 1),
                places,
                found.disks.clone(),
                disks.clone(),
                boot,
                &accept,
                &mut oracles,
                &mut guests,
                &mut snapshots,
                &mut next_op,
                tally,
            );
            let why = match started {
                Ok(life) => break life,
                Err(why) => why,
            };
            if tally.trace {
                eprintln!("not started: {why:?}");
            }
            match why {
                StartError::Wrong(why) => return Err(format!("life {round}: {why}")),
                StartError::TooFew => {
                    tally.too_few += 1;
                    // Missing parts are put back: devices first, then copies. If that is not enough, an operator
                    // declares that no other copy will ever be used. So the remaining copy must not be one next to
                    // which another one has continued alone.
                    if found.disks.iter().all(Option::is_some) {
                        match found.copies_tampered {
                            true => {
                                found.maps = maps.clone();
                                found.copies_tampered = false;
                            }
                            false => drop(accept.0.insert(AcceptLoss::MAP.into())),
                        }
                    }
                    for (found, right) in found.disks.iter_mut().zip(&disks) {
                        found.get_or_insert_with(|| right.clone());
                    }
                }
                // Both copies have proposed to continue alone, and neither did: an operator consents.
                StartError::Refused(_) if !found.copies_tampered && both_proposed(&found.maps) => {
                    tally.both_proposed += 1;
                    accept.0.insert(AcceptLoss::MAP.into());
                }
                StartError::Refused(why) if !found.copies_tampered => {
                    return Err(format!(
                        "life {round}: refused with all copies there: {why}"
                    ));
                }
                // The right parts are put back.
                StartError::Refused(_) => {
                    tally.refused += 1;
                    found = StartState {
                        maps: maps.clone(),
                        copies_tampered: false,
                        ..found.clone()
                    };
                }
            }
        };
        if last {
            for (id, lost) in &life.keeper.lost {
                if !lost.why.contains("may not have been flushed") {
                    return Err(format!(
                        "device {} is not taken in the end: {}",
                        id.0, lost.why
                    ));
                }
            }
        }
        let opened = !life.crashed;
        if opened {
            for (stamped, device) in stamped.iter_mut().zip(&life.devices) {
                if device.is_some() {
                    *stamped = Some(round as usize);
                }
            }
            for (engine, settled) in life.engines.iter().zip(&settled) {
                let found = stays::found(settled, engine.map());
                found.map_err(|e| format!("life {round}, after {crash:?}: {e}"))?;
            }
            let checked = life.verify(crash);
            checked.map_err(|e| format!("life {round}, found after {crash:?}: {e}"))?;
            let checked = life.check_snapshots();
            checked.map_err(|e| format!("life {round}, found after {crash:?}: {e}"))?;
            let restored = life.restore_some();
            restored.map_err(|e| format!("life {round}, restored: {e}"))?;
            if !life.crashed {
                life.open_for_guests();
                let lived = if last {
                    life.rest()
                } else {
                    life.until_crash()
                };
                lived.map_err(|e| format!("life {round}, at {} ns: {e}", life.now_ns))?;
            }
            settled = life.engines.iter().map(stays::settled).collect();
            if let Some(volume) = life.in_doubt {
                settled[volume].clear();
            }
        } else if last {
            return Err("a disk has stopped that should not".into());
        }
        if last {
            break;
        }
        let end = life.end();
        if end != Crash::Power {
            life.keep_rings()
                .map_err(|e| format!("life {round}, a guest looks: {e}"))?;
        }
        if life.tally.trace {
            eprintln!("{end:?}");
        }
        let left: Vec<Option<CrashDisk>> = life.places.iter().map(SimPlace::disk).collect();
        let (taken, came_back) = (life.taken.clone(), life.came_back.clone());
        // A life without guests leaves the state of the life before it, which the oracle has not checked yet.
        crash = match opened {
            true => end,
            false => worse(crash, end),
        };
        let power = end == Crash::Power;
        let gone = |disk: &CrashDisk, rng: &mut Rng| match power {
            true => disk.power_loss(rng.next_u64()),
            false => disk.killed(),
        };
        for (i, disk) in disks.iter_mut().enumerate() {
            match &found.disks[i] {
                _ if came_back[i] => *disk = gone(disk, &mut rng),
                // Wrong parts are removed again.
                // An old state that equals the last one, because nothing was written since, becomes the device.
                Some(used) if !found.old[i] || taken[i] => *disk = gone(used, &mut rng),
                // A device that is pulled out loses its unflushed data. If no guest was admitted while it was out,
                // the loss is undetectable.
                _ if opened && rng.below(2) == 0 => *disk = disk.power_loss(rng.next_u64()),
                _ => *disk = gone(disk, &mut rng),
            }
        }
        for (i, map) in maps.iter_mut().enumerate() {
            let used = left.get(i).cloned().flatten();
            // A copy that was missing and not rebuilt comes back unchanged.
            *map = used.or(map.take()).map(|disk| gone(&disk, &mut rng));
        }
        boot += u128::from(power);
        drop(life); // closing its files writes, which a killed process does not do
        if power {
            guests = rings().collect();
        }
    }
    Ok(())
}

/// Returns the devices that carry the stamp of the latest membership on any device.
fn of_last_membership(disks: &[CrashDisk], plan: &Plan) -> Vec<bool> {
    let generation = |(disk, device): (&CrashDisk, &super::plan::DevicePlan)| {
        let mut head = vec![0; array::SUPERBLOCKS_BYTES];
        let at = u64::from(device.slots) * EXTENT;
        let read = disk.killed().read(at, &mut head);
        let found = read.is_ok().then(|| Superblock::decode_both(&head));
        found.and_then(Result::ok).map(|found| found.stamp)
    };
    let stamps: Vec<_> = disks.iter().zip(&plan.devices).map(generation).collect();
    let last = stamps.iter().max().copied().flatten();
    stamps
        .iter()
        .map(|s| *s == last && last.is_some())
        .collect()
}

fn states(maps: &[Option<CrashDisk>; 2]) -> [Option<array::MapState>; 2] {
    maps.each_ref().map(|disk| {
        let array = Array::open_on(disk.as_ref()?.killed()).ok()?;
        array.state().ok()
    })
}

/// Returns true if both copies are members with equal states.
fn both_current(maps: &[Option<CrashDisk>; 2]) -> bool {
    match states(maps) {
        [Some(a), Some(b)] => a == b && a.pending.is_none() && a.confirmed.members.second,
        _ => false,
    }
}

/// Returns true if both copies are equal except for a membership that each has proposed alone.
fn both_proposed(maps: &[Option<CrashDisk>; 2]) -> bool {
    match states(maps) {
        [Some(a), Some(b)] => {
            let apart = a.pending != b.pending && a.pending.is_some() && b.pending.is_some();
            apart && a.confirmed == b.confirmed
        }
        _ => false,
    }
}

/// Returns a durable copy of a disk.
fn image(disk: &CrashDisk) -> CrashDisk {
    let mut bytes = vec![0; disk.len().expect("it has not stopped") as usize];
    disk.read(0, &mut bytes).expect("as above");
    CrashDisk::of(bytes)
}

/// Combines the ends of two successive processes.
fn worse(before: Crash, end: Crash) -> Crash {
    match (before, end) {
        (Crash::Power, _) | (_, Crash::Power) => Crash::Power,
        (Crash::Kill { lossy: a }, Crash::Kill { lossy: b }) => Crash::Kill { lossy: a || b },
    }
}

/// State that a process finds.
#[derive(Debug, Clone)]
struct StartState {
    maps: [Option<CrashDisk>; 2],
    disks: Vec<Option<CrashDisk>>,
    /// Devices that were replaced by an old state.
    old: Vec<bool>,
    copies_tampered: bool,
}

/// States of earlier starts, which are put back at a wrong time.
#[derive(Debug, Default)]
struct EarlierStates {
    maps: Vec<[Option<CrashDisk>; 2]>,
    disks: Vec<Vec<CrashDisk>>,
}

impl EarlierStates {
    fn remember(&mut self, maps: &[Option<CrashDisk>; 2], disks: &[CrashDisk]) {
        let copy = |d: &CrashDisk| d.killed();
        self.maps.push([0, 1].map(|i| maps[i].as_ref().map(copy)));
        self.disks.push(disks.iter().map(copy).collect());
    }

    /// Returns the oldest complete state of a copy for which a device proves that it is old: guests were admitted
    /// with that device since, and it is of the last membership. (The other copy may have been dropped earlier, and
    /// may know no more than a former device.)
    fn old_copy(&self, i: usize, devices: &[(Option<usize>, bool)]) -> Option<(CrashDisk, usize)> {
        let states = self.maps.iter().map(|maps| maps[i].as_ref());
        let mut whole = states.map(|disk| disk.filter(|d| Array::open_on(d.killed()).is_ok()));
        let life = whole.position(|disk| disk.is_some())?;
        let knows = |(stamped, newest): &(Option<usize>, bool)| *stamped >= Some(life) && *newest;
        let device = devices.iter().position(knows)?;
        Some((self.maps[life][i].as_ref()?.killed(), device))
    }

    fn tamper(
        &self,
        odds: Tampering,
        maps: &[Option<CrashDisk>; 2],
        disks: &[CrashDisk],
        known: &[(Option<usize>, bool)],
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> StartState {
        let mut hits = |of_thousand: u64| of_thousand > 0 && rng.below(1000) < of_thousand;
        let mut found = StartState {
            maps: maps.clone(),
            disks: disks.iter().cloned().map(Some).collect(),
            old: vec![false; disks.len()],
            copies_tampered: false,
        };
        for i in 0..disks.len() {
            if hits(odds.device_missing) {
                found.disks[i] = None;
            } else if hits(odds.device_old)
                && let Some(old) = self.disks.last()
            {
                found.disks[i] = Some(image(&old[i]));
                found.old[i] = true;
            }
        }
        for (i, map) in maps.iter().enumerate() {
            if hits(odds.copy_missing) {
                tally.copies_missing += u64::from(map.is_some());
                found.maps[i] = None;
            } else if hits(odds.copy_old)
                && let Some((old, device)) = self.old_copy(i, known)
            {
                // If everything is put back at once, the old state equals a valid last one.
                found.disks[device] = Some(disks[device].clone());
                found.old[device] = false;
                found.maps[i] = Some(old);
                tally.copies_old[i] += 1;
            } else if hits(odds.copy_torn)
                && let Some(disk) = &found.maps[i]
            {
                let torn = disk.killed();
                let length = torn.len().unwrap_or(0);
                let half = (length / 2) & !4095;
                let _ = torn.write(0, &vec![0x5a; half as usize]);
                tally.copies_torn += 1;
                found.maps[i] = Some(torn);
            } else {
                continue;
            }
            found.copies_tampered = true;
        }
        found
    }
}

const ID: ArrayId = ArrayId([7; 16]);

fn device_record(i: u16, device: &super::plan::DevicePlan) -> DeviceRecord {
    DeviceRecord {
        id: DeviceId(i),
        tier: TierId(i),
        name: format!("device{i}"),
        kind: device.kind,
        path: format!("/device{i}"),
        slots: device.slots,
        high_water: if device.kind == DeviceKind::File {
            0
        } else {
            device.slots
        },
        emulate: None,
        direct: DirectIo::Off,
    }
}

fn create(plan: &Plan, disk: &CrashDisk) -> Result<(), array::ArrayError> {
    let array = Array::create_on(disk.clone(), ID, Bytes(EXTENT))?;
    let mut changes = vec![Change::SetSecondCopy(if plan.second {
        SecondCopy::At("second".into())
    } else {
        SecondCopy::Off
    })];
    for (i, device) in (0..).zip(&plan.devices) {
        changes.push(Change::AddTier(TierRecord {
            id: TierId(i),
            name: format!("tier{i}"),
        }));
        changes.push(Change::AddDevice(device_record(i, device)));
    }
    for (i, size) in (0..).zip(&plan.volumes) {
        let record = VolumeRecord {
            id: VolumeId(i),
            name: format!("volume{i}"),
            size: Bytes(*size),
            home: TierId((i % 3) as u16),
            class: "any".into(),
            logical_block: 512,
            health: Health::Whole,
            snapshot: None,
            source: None,
        };
        changes.push(match &plan.sources[i as usize] {
            None => Change::AddVolume(record),
            Some(source) => source.change(i as usize, record),
        });
    }
    array.commit(&changes)
}

impl Life<'_> {
    /// Checks that the found content is possible.
    fn verify(&mut self, crash: Crash) -> Result<(), String> {
        let contents = self.contents()?;
        for (v, (oracle, bytes)) in self.oracles.iter_mut().zip(&contents).enumerate() {
            let (map, devices) = (self.engines[v].map(), &self.devices);
            let whereabouts = |sector: usize| {
                let place = map.location(sector * SECTOR / EXTENT as usize);
                match place.filter(|at| devices[at.device.index()].is_none()) {
                    Some(absent) => Whereabouts::Absent(absent),
                    None => Whereabouts::There(place),
                }
            };
            let in_flight = self.rings[v].as_ref().map(|guest| &guest.kept);
            let goes_on = |op: u64| in_flight.is_some_and(|kept| kept.contains_key(&op));
            oracle.crashed(crash, bytes, &whereabouts, &goes_on)?;
        }
        self.space_adds_up()
    }

    /// Checks that every slot is free or the place of an extent.
    fn space_adds_up(&self) -> Result<(), String> {
        let (mut used, mut of_snapshots) = (BTreeSet::new(), vec![]);
        for map in self.engines.iter().map(|e| e.map()) {
            used.extend((0..map.extents()).filter_map(|e| map.location(e)));
        }
        for volume in self.keeper.volumes.values() {
            if volume.snapshot.is_some() {
                let places = self.keeper.map.places(volume.id);
                of_snapshots.extend(places.map_err(|e| e.to_string())?.into_iter().flatten());
            }
        }
        used.extend(&of_snapshots);
        let mut owners = BTreeMap::new();
        let maps = self.engines.iter().map(|e| e.map());
        let of_engines = maps.flat_map(|map| (0..map.extents()).filter_map(|e| map.location(e)));
        let all = of_engines.chain(of_snapshots.iter().copied());
        for at in all.filter(|at| !is_source(at.device)) {
            *owners.entry(at).or_insert(0) += 1;
        }
        for (at, count) in &owners {
            let known = self.keeper.slots.owners(*at);
            if known != *count {
                return Err(format!(
                    "{at:?} has {count} owners, and {known} are counted"
                ));
            }
        }
        for device in self.keeper.records.keys() {
            let placed = used.iter().filter(|at| at.device == *device).count() as u32;
            let (free, total) = (
                self.keeper.slots.free(*device),
                self.keeper.slots.total(*device),
            );
            if free + placed != total {
                return Err(format!(
                    "device {}: {free} slots are free and {placed} hold extents, of {total}",
                    device.0
                ));
            }
        }
        Ok(())
    }

    /// Runs until the crash, at a random moment.
    fn until_crash(&mut self) -> Result<(), String> {
        let moment = 1 << self.rng.below(11);
        let moment = self.rng.below(moment);
        if self.chance(self.plan.store_dies) {
            self.store_dies = true;
            let both = self.rng.below(4) == 0;
            let which = self.rng.below(2) as usize;
            for i in 0..2 {
                if let Some(disk) = self.places[i].disk().filter(|_| both || i == which) {
                    disk.fail_after(self.rng.below(200));
                }
            }
        }
        let mut events = u64::MAX;
        match self.rng.below(10) {
            0..4 if !self.store_dies => {
                let which = self.rng.below(2) as usize;
                let disk = self.places[which].disk().or(self.places[0].disk());
                if let Some(disk) = disk {
                    disk.fail_after(moment);
                }
            }
            4..7 => {
                let device = self.rng.below(self.devices.len() as u64) as usize;
                if let Some(device) = &self.devices[device] {
                    device.disk.fail_after(moment);
                }
            }
            _ => events = 8 * moment,
        }
        while events > 0 && (self.to_come > 0 || !self.asked.is_empty()) && self.step()? {
            events -= 1;
        }
        if !self.crashed && self.chance(self.plan.closes) {
            self.close()?;
        }
        Ok(())
    }

    /// Stops the process in order: guests disconnect, work in progress ends, all data is flushed.
    fn close(&mut self) -> Result<(), String> {
        self.to_come = 0;
        for _ in 0..STEPS_MAX {
            let quiet = self.asked.is_empty() && self.ios.is_empty() && self.store_idle();
            if quiet || !self.step()? {
                break;
            }
        }
        let lost_before = self
            .devices
            .iter()
            .flatten()
            .any(|d| d.lossy.load(std::sync::atomic::Ordering::Relaxed));
        if self.crashed || !self.asked.is_empty() || !self.ios.is_empty() {
            return Ok(());
        }
        self.keeper.close();
        self.look_at_disks();
        let lost = self
            .devices
            .iter()
            .flatten()
            .any(|d| d.lossy.load(std::sync::atomic::Ordering::Relaxed));
        // Data that a flush has lost is lost, whoever got the report.
        if !self.crashed
            && !lost
            && !lost_before
            && self.keeper.lost.is_empty()
            && self.store_idle()
        {
            self.tally.closed += 1;
            for oracle in self.oracles.iter_mut() {
                oracle.closed();
            }
        }
        Ok(())
    }

    /// Ends the process by a kill or a power loss.
    fn end(&mut self) -> Crash {
        self.tally.in_disk += u64::from(self.crashed);
        self.tear();
        if self.rng.below(2) == 0 {
            self.tally.power_losses += 1;
            return Crash::Power;
        }
        self.tally.kills += 1;
        let lossy = |d: &std::sync::Arc<super::device::SimDevice>| {
            d.lossy.load(std::sync::atomic::Ordering::Relaxed)
        };
        Crash::Kill {
            lossy: self.lossy || self.devices.iter().flatten().any(lossy),
        }
    }

    /// Completes all work, then reads everything.
    fn rest(&mut self) -> Result<(), String> {
        self.run_down()?;
        for volume in 0..self.engines.len() {
            let failed = self.tally.failed;
            let mut tries = 0;
            loop {
                let before = self.tally.failed;
                self.send(
                    volume,
                    GuestRequest {
                        op: GuestOp::Flush,
                        offset: 0,
                        length: 0,
                        fua: false,
                    },
                )?;
                self.run_down()?;
                tries += 1;
                if self.tally.failed == before {
                    break;
                }
                if tries == FLUSHES_MAX {
                    return Err("flushes go on to fail".into());
                }
            }
            self.tally.failed = failed;
            // The size that guests know: the engine's is larger if the new part of a volume could not be zeroed.
            let size = self.keeper.volumes[&VolumeId(volume as u32)].size.0;
            let mut lost = 0;
            for offset in (0..size).step_by(EXTENT as usize) {
                // Reads of lost data must fail, and no others.
                lost += u64::from(self.lost_under(volume, offset as usize / SECTOR).is_some());
                let length = EXTENT.min(size - offset);
                self.send(
                    volume,
                    GuestRequest {
                        op: GuestOp::Read,
                        offset,
                        length,
                        fua: false,
                    },
                )?;
            }
            self.run_down()?;
            if self.tally.failed != failed + lost {
                return Err(format!(
                    "{} reads fail, and {lost} extents are on devices that are lost",
                    self.tally.failed - failed
                ));
            }
            self.tally.failed = failed;
            let import = self.engines[volume].import_status();
            if let Some(import) = import.filter(|i| i.problem.is_none() && i.left > 0) {
                return Err(format!("{} extents are not imported", import.left));
            }
        }
        self.check_snapshots()?;
        self.space_adds_up()
    }

    /// Runs until no request is in flight and no move is in progress.
    fn run_down(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            let quiet = self.to_come == 0
                && self.asked.is_empty()
                && self.ios.is_empty()
                && self.store_idle();
            if quiet && self.engines.iter().all(|e| e.at_rest()) {
                return Ok(());
            }
            for volume in 0..self.engines.len() {
                // A mirror does not end by itself.
                if quiet && self.engines[volume].stop_mirror(self.now_ns, StopReason::Cancelled) {
                    self.settle(volume)?;
                }
            }
            self.step()?;
        }
        let phases: Vec<_> = self.engines.iter().map(|e| e.move_status()).collect();
        Err(format!(
            "it does not come to rest: {} requests, {} I/Os, {} answers of the store outstanding, moves {phases:?}",
            self.asked.len(),
            self.ios.len(),
            self.store_owes
        ))
    }
}
