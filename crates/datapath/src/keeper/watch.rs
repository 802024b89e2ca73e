//! What the keeper looks after between requests: commits that could not be acknowledged, copies of the map that were dropped, devices that
//! fail and devices that come back.
//!
//! ```text
//!   device in use ──I/O errors──▶ tried (written, flushed, read) ──fails──▶ lost ──there again, and it belongs──▶ in use
//! ```
//!
//! Devices are tried by a thread of their own: one that hangs must not keep the keeper.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use array::{DeviceKind, DeviceRecord, SUPERBLOCKS_BYTES};
use units::{Bytes, DeviceId};

use super::Keeper;
use crate::device::{Device, Medium, SlotSpace};
use crate::text::explain;
use crate::worker::Message;

/// Time between two looks. Bounds what they cost.
const LOOK: Duration = Duration::from_secs(1);

/// A copy of the map that could not be made anew is tried again after this time: it may have to be read and written as a whole.
const REBUILD: Duration = Duration::from_secs(5);

/// When what was last done.
#[derive(Default)]
pub(super) struct Watch {
    looked: Option<Instant>,
    rebuilt: Option<Instant>,
    /// Failures of devices that are known, and were looked into.
    failures: BTreeMap<DeviceId, u64>,
    trial: Option<Receiver<Vec<(DeviceId, Tried)>>>,
}

/// What came of trying a device.
enum Tried {
    /// It was lost, and is there again.
    Back(Box<Device>),
    /// It is lost still.
    Away(String),
    /// It is in use, and works.
    Works,
    /// It is in use, and does not.
    Fails(String),
}

impl Keeper {
    /// To be called often; looks about once a second.
    pub(super) fn look_after(&mut self) {
        let due = |at: Option<Instant>, every: Duration| at.is_none_or(|at| at.elapsed() >= every);
        if !due(self.watch.looked, LOOK) {
            return;
        }
        self.watch.looked = Some(Instant::now());
        let answers = self.settle();
        self.answer(answers);
        let may_begin = due(self.watch.rebuilt, REBUILD);
        self.look_at_copies(may_begin);
        if may_begin {
            self.watch.rebuilt = Some(Instant::now());
        }
        if self.serves {
            self.look_at_devices();
        }
    }

    fn look_at_devices(&mut self) {
        let tried = match &self.watch.trial {
            None => vec![],
            Some(trial) => match trial.try_recv() {
                Ok(tried) => tried,
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => vec![],
            },
        };
        self.watch.trial = None;
        for (id, tried) in tried {
            match tried {
                Tried::Back(device) => self.come_back(id, *device),
                Tried::Away(why) => {
                    if let Some(lost) = self.lost.get_mut(&id) {
                        lost.why = why;
                    }
                }
                Tried::Works => {}
                Tried::Fails(why) => {
                    self.lose(id, why);
                    if let Err(error) = self.renew() {
                        self.map_failing = Some(explain(&error));
                    }
                }
            }
        }
        self.try_devices();
    }

    fn come_back(&mut self, id: DeviceId, device: Device) {
        match self.join(id, device, false) {
            Ok(()) => {
                for worker in &self.workers {
                    worker.send(Message::Device(self.devices[&id].clone()));
                }
            }
            Err(why) => {
                if let Some(lost) = self.lost.get_mut(&id) {
                    lost.why = why;
                }
            }
        }
    }

    /// Tries devices that are lost, and those that have failed since they were last tried.
    fn try_devices(&mut self) {
        let extent = self.map.extent();
        let lost = self.lost.iter().filter(|(_, l)| !l.in_use);
        let lost = lost.map(|(id, _)| self.records[id].clone());
        let lost: Vec<DeviceRecord> = lost.filter(|r| r.kind != DeviceKind::Gone).collect();
        let mut failing: Vec<(DeviceId, Arc<Device>)> = vec![];
        for (id, device) in &self.devices {
            let failures = device.failures();
            let known = self.watch.failures.insert(*id, failures);
            if failures > known.unwrap_or(0) {
                failing.push((*id, device.clone()));
            }
        }
        if lost.is_empty() && failing.is_empty() {
            return;
        }
        let (sender, trial) = channel();
        let work = move || {
            let back = lost.into_iter().map(|r| (r.id, try_lost(extent, &r)));
            let works = failing.into_iter().map(|(id, d)| (id, try_failing(&d)));
            let _ = sender.send(back.chain(works).collect());
        };
        let spawned = std::thread::Builder::new()
            .name("terrace-trial".into())
            .spawn(work);
        self.watch.trial = spawned.is_ok().then_some(trial);
    }
}

fn try_lost(extent: Bytes, record: &DeviceRecord) -> Tried {
    let device = match Device::open(extent, record) {
        Ok(device) => device,
        Err(error) => return Tried::Away(explain(&error)),
    };
    match device.read_superblock() {
        Ok(_) => Tried::Back(Box::new(device)),
        Err(why) => Tried::Away(why),
    }
}

/// Writes where nothing is kept, flushes, and reads the superblock.
fn try_failing(device: &Device) -> Tried {
    let Medium::File(file, _) = &device.medium else {
        return Tried::Works; // a remote device has its connection to say so
    };
    let tried = file
        .write_all_at(&[0; 512], SUPERBLOCKS_BYTES as u64)
        .and_then(|()| file.sync_data())
        .and_then(|()| file.read_exact_at(&mut [0; SUPERBLOCKS_BYTES], 0));
    match tried {
        Ok(()) => Tried::Works,
        // A full file system is no lost device.
        Err(e) if e.kind() == std::io::ErrorKind::StorageFull => Tried::Works,
        Err(error) => Tried::Fails(format!("it fails: {error}")),
    }
}
