//! The lives of one seed, and the crashes between them.

use algo::{Rng, mix};
use array::{Array, ArrayId, Change, DeviceKind, DeviceRecord, Health, TierRecord, VolumeRecord};
use crashdisk::CrashDisk;
use datapath::engine::{GuestOp, GuestRequest};
use units::{Bytes, DeviceId, TierId, VolumeId};

use super::Tally;
use super::life::Life;
use super::oracle::{Crash, Oracle, SECTOR, fill};
use super::plan::{EXTENT, Faults, Plan};
use super::stays;

/// Steps of a life at rest, at most: a second of them is thousands.
const STEPS_MAX: u64 = 3_000_000;

/// Flushes that may fail when nothing fails any more: of each device one failure may be untold.
const FLUSHES_MAX: u32 = 4;

/// Runs a seed; an error says what was lost, or what stands still.
pub fn run(seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut rng = Rng::new(seed, 0x7e55);
    let plan = Plan::of(&mut rng);
    let mut oracles: Vec<Oracle> = (0..)
        .zip(&plan.volumes)
        .map(|(v, s)| Oracle::new(v, *s))
        .collect();
    let mut next_op = 0;
    let mut map_disk = CrashDisk::default();
    create(&plan, &map_disk).map_err(|e| format!("create: {e}"))?;
    let mut disks: Vec<CrashDisk> = plan
        .devices
        .iter()
        .enumerate()
        .map(|(i, device)| {
            let mut bytes = vec![0; (u64::from(device.slots) * EXTENT) as usize];
            if device.kind == DeviceKind::Block {
                fill(0xbad, i as u64 * SECTOR as u64, 1, &mut bytes); // what somebody else left
            }
            CrashDisk::of(bytes)
        })
        .collect();
    let mut crash = Crash::Power;
    let mut settled: Vec<Vec<(usize, volume::Location)>> = vec![];
    for round in 0..=plan.rounds {
        let last = round == plan.rounds;
        let faults = if last { Faults::default() } else { plan.faults };
        let round_rng = Rng::new(mix(seed, round), 1);
        let mut life = Life::start(
            &plan,
            faults,
            round_rng,
            map_disk.clone(),
            &disks,
            &mut oracles,
            &mut next_op,
            tally,
        )
        .map_err(|e| format!("life {round}: {e}"))?;
        for (engine, settled) in life.engines.iter().zip(&settled) {
            let found = stays::found(settled, engine.map());
            found.map_err(|e| format!("life {round}, after {crash:?}: {e}"))?;
        }
        let checked = life.verify(crash);
        checked.map_err(|e| format!("life {round}, found after {crash:?}: {e}"))?;
        life.open_for_guests();
        let lived = if last {
            life.rest()
        } else {
            life.until_crash()
        };
        lived.map_err(|e| format!("life {round}, at {} ns: {e}", life.now_ns))?;
        if last {
            break;
        }
        settled = life.engines.iter().map(stays::settled).collect();
        crash = life.end();
        if life.tally.trace {
            eprintln!("{crash:?}");
        }
        let found = |disk: &CrashDisk, rng: &mut Rng| match crash {
            Crash::Power => disk.power_loss(rng.next_u64()),
            Crash::Kill { .. } => disk.killed(),
        };
        disks = disks.iter().map(|d| found(d, &mut rng)).collect();
        map_disk = found(&map_disk, &mut rng);
    }
    Ok(())
}

fn create(plan: &Plan, disk: &CrashDisk) -> Result<(), array::ArrayError> {
    let array = Array::create_on(disk.clone(), ArrayId([7; 16]), Bytes(EXTENT))?;
    let mut changes = vec![];
    for (i, device) in (0..).zip(&plan.devices) {
        changes.push(Change::AddTier(TierRecord {
            id: TierId(i),
            name: format!("tier{i}"),
        }));
        changes.push(Change::AddDevice(DeviceRecord {
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
        }));
    }
    for (i, size) in (0..).zip(&plan.volumes) {
        changes.push(Change::AddVolume(VolumeRecord {
            id: VolumeId(i),
            name: format!("volume{i}"),
            size: Bytes(*size),
            home: TierId((i % 3) as u16),
            class: "any".into(),
            health: Health::Whole,
        }));
    }
    array.commit(&changes)
}

impl Life<'_> {
    /// What is found is possible.
    fn verify(&mut self, crash: Crash) -> Result<(), String> {
        let contents = self.contents()?;
        for (oracle, bytes) in self.oracles.iter_mut().zip(&contents) {
            oracle.crashed(crash, bytes)?;
        }
        self.space_adds_up()
    }

    /// Every slot is free or an extent's place.
    fn space_adds_up(&self) -> Result<(), String> {
        for device in self.keeper.records.keys() {
            let places = |e: &datapath::engine::Engine<u64>| {
                let holders = e.map().holders();
                holders.iter().find(|h| h.0 == *device).map_or(0, |h| h.1)
            };
            let placed: u32 = self.engines.iter().map(places).sum();
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

    /// Runs until the moment of the crash, wherever that is.
    fn until_crash(&mut self) -> Result<(), String> {
        let moment = 1 << self.rng.below(11);
        let moment = self.rng.below(moment);
        if self.chance(self.plan.store_dies) {
            self.store_dies = true;
            self.map_disk.fail_after(self.rng.below(200));
        }
        let mut events = u64::MAX;
        match self.rng.below(10) {
            0..4 if !self.store_dies => self.map_disk.fail_after(moment),
            4..7 => {
                let device = self.rng.below(self.devices.len() as u64) as usize;
                self.devices[device].disk.fail_after(moment);
            }
            _ => events = 8 * moment,
        }
        while events > 0 && (self.to_come > 0 || !self.asked.is_empty()) && self.step()? {
            events -= 1;
        }
        Ok(())
    }

    /// The process ends, in one way or another.
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
            lossy: self.devices.iter().any(lossy),
        }
    }

    /// Lets everything end, then reads everything.
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
            let size = self.plan.volumes[volume];
            for offset in (0..size).step_by(EXTENT as usize) {
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
            if self.tally.failed != failed {
                return Err("reads fail on devices that do not".into());
            }
        }
        self.space_adds_up()
    }

    /// Runs until nothing is in flight and no move goes on.
    fn run_down(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            let quiet = self.to_come == 0
                && self.asked.is_empty()
                && self.ios.is_empty()
                && self.store_idle();
            if quiet && self.engines.iter().all(|e| e.at_rest()) {
                return Ok(());
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
