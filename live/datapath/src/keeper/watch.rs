//! Periodic work of the keeper between requests: held commits, dropped copies of the map, devices that fail or come
//! back.
//!
//! ```text
//!   device in use ──I/O errors──▶ tried (written, flushed, read) ──fails each time──▶ lost ──works, and it belongs──▶ in use
//! ```
//!
//! Each trial of a device has its own thread, so a device that hangs does not block the keeper.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use array::{DeviceKind, SUPERBLOCKS_BYTES, Superblock};
use units::DeviceId;

use super::look::Looks;
use super::members::whose;
use super::open::open_one;
use super::owners::claim_opened;
use super::refresh::Changes;
use super::{Keeper, LostDevice};
use crate::client;
use crate::device::{Device, Medium, StampError};
use crate::error::DatapathError;
use crate::text::explain;
use crate::worker::Message;

/// Interval of the periodic work. Bounds its cost.
const LOOK: Duration = Duration::from_secs(1);

/// Pause before another attempt to rebuild a copy of the map: an attempt may have to read and write all of it.
const REBUILD: Duration = Duration::from_secs(5);

/// Interval of the verification of the map's files. A start verifies them as well.
const VERIFY: Duration = Duration::from_secs(3600);

/// Pauses between attempts at a device in use before it is lost.
const TRIAL_PAUSES: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// A device that failed in use is taken back after this time. It doubles with each return, up to
/// [`RETURN_DOUBLINGS`] times, because guests see errors each time that it is lost.
const RETURN: Duration = Duration::from_secs(1);
const RETURN_DOUBLINGS: u32 = 8;

/// A device that has worked for this long since its last return is treated as if it had never failed.
const RETURN_FORGOTTEN: Duration = Duration::from_secs(3600);

/// Times of the periodic work and its state.
#[derive(Default)]
pub(super) struct Watch {
    /// Time of the start, or of the end of the last verification of the map's files.
    verified: Option<Instant>,
    looked: Option<Instant>,
    /// Time of the start, or of the last new generation.
    pub(super) refreshed: Option<Instant>,
    /// Changes that the last confirmed generation covers.
    pub(super) changes: Changes,
    rebuilt: Option<Instant>,
    /// Number of each device's failures that a trial has covered.
    failures: BTreeMap<DeviceId, u64>,
    /// Devices that were taken back after they failed in use: number of returns, and time of the last one.
    returned: BTreeMap<DeviceId, (u32, Instant)>,
    /// Trials in progress, each on its own thread.
    trials: BTreeMap<DeviceId, Receiver<TrialResult>>,
    /// Periodic checks.
    pub(super) looks: Looks,
}

/// Result of a trial.
enum TrialResult {
    /// The lost device works again.
    Back(Box<(Device, Superblock)>),
    /// The lost device is still unusable.
    Away(String),
    /// The device in use works.
    Works,
    /// The device in use fails.
    Fails(Arc<Device>, StampError),
}

impl Keeper {
    /// Does the periodic work about once a second. The keeper calls it often.
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
        let verified = *self.watch.verified.get_or_insert_with(Instant::now);
        if verified.elapsed() >= VERIFY {
            self.map.begin_check();
        }
        if self.map.end_check() {
            self.watch.verified = Some(Instant::now());
        }
        if self.serves {
            self.keep_fresh();
            self.look_at_devices();
            self.look_around();
        }
    }

    fn look_at_devices(&mut self) {
        let mut tried = vec![];
        self.watch
            .trials
            .retain(|id, trial| match trial.try_recv() {
                Ok(one) => {
                    tried.push((*id, one));
                    false
                }
                Err(TryRecvError::Empty) => true,
                Err(TryRecvError::Disconnected) => false,
            });
        for (id, tried) in tried {
            match tried {
                TrialResult::Back(device) => self.come_back(id, *device),
                TrialResult::Away(why) => {
                    if let Some(lost) = self.lost.get_mut(&id) {
                        (lost.why, lost.refused) = (why, None);
                    }
                }
                TrialResult::Works => {}
                // Another device may have replaced it meanwhile.
                TrialResult::Fails(tried, error) => {
                    let used = self.devices.get(&id);
                    if used.is_some_and(|d| Arc::ptr_eq(d, &tried)) {
                        self.lose_with(id, "it fails", &error);
                        self.renew_or_note();
                    }
                }
            }
        }
        self.look_at_owners();
        self.try_devices();
    }

    /// Returns the pause before a device that failed in use is tried again.
    fn return_pause(&mut self, id: DeviceId) -> Duration {
        let forgotten = |r: &mut (u32, Instant)| r.1.elapsed() >= RETURN_FORGOTTEN;
        if let Some(returned) = self.watch.returned.get_mut(&id)
            && forgotten(returned)
        {
            self.watch.returned.remove(&id);
        }
        let times = self.watch.returned.get(&id).map_or(0, |r| r.0);
        RETURN * 2_u32.pow(times.min(RETURN_DOUBLINGS))
    }

    fn come_back(&mut self, id: DeviceId, device: (Device, Superblock)) {
        let in_use = self.lost.get(&id).is_some_and(|l| l.in_use);
        match self.join(id, device, false) {
            Ok(()) => {
                if in_use {
                    let returned = self.watch.returned.entry(id).or_insert((0, Instant::now()));
                    *returned = (returned.0 + 1, Instant::now());
                }
                self.tell(|| Message::Device(self.devices[&id].clone()));
            }
            Err(why) => {
                let why = why.to_string();
                // The reason from the start also names the volumes.
                let known = |lost: &&mut LostDevice| !lost.why.starts_with(&why);
                if let Some(lost) = self.lost.get_mut(&id).filter(known) {
                    lost.why = why;
                }
            }
        }
    }

    /// Tries lost devices, and devices in use with new failures.
    fn try_devices(&mut self) {
        let (array, extent) = (self.map.id(), self.map.extent());
        let tried = self
            .lost
            .iter()
            .filter(|(_, l)| !l.in_use || !l.overwritten);
        let tried: Vec<_> = tried
            .map(|(id, l)| (*id, l.in_use.then_some(l.since)))
            .collect();
        for (id, failed) in tried {
            let record = self.records[&id].clone();
            let not_yet = failed.is_some_and(|at| at.elapsed() < self.return_pause(id));
            let not_ours = failed.is_some() && self.why_not_owned(id).is_some();
            if not_yet || not_ours || record.kind == DeviceKind::Gone {
                continue;
            }
            // Earlier operations on the device must end first: a late superblock must not overwrite a newer one.
            if self
                .left
                .get(&record.id)
                .is_some_and(|d| d.strong_count() > 0)
            {
                continue;
            }
            let claimant = self.claimant();
            let tried = move || {
                let back = open_one(extent, &record);
                let back = back.map_err(|not| DatapathError::Refused(not.why))?;
                // Devices of other arrays are not written.
                whose(array, extent, &record, &back.1)?;
                claim_opened(array, extent, &record, &back, &claimant)?;
                works(&back.0).map_err(|e| DatapathError::Refused(format!("it fails: {e}")))?;
                // Cached pages may be of writes that the device has lost.
                back.0.drop_cache();
                super::settle_direct(array, extent, &record, &back);
                Ok(TrialResult::Back(Box::new(back)))
            };
            let away = |why: DatapathError| TrialResult::Away(why.to_string());
            self.try_device(id, move || tried().unwrap_or_else(away));
        }
        for (id, device) in self.devices.clone() {
            let failures = device.failures();
            let known = self.watch.failures.insert(id, failures);
            if failures > known.unwrap_or(0) {
                self.try_device(id, move || try_failing(device));
            }
        }
    }

    /// Starts a trial of a device, unless one is in progress.
    fn try_device(&mut self, id: DeviceId, how: impl FnOnce() -> TrialResult + Send + 'static) {
        if self.watch.trials.contains_key(&id) {
            return;
        }
        let (sender, trial) = channel();
        let spawned = std::thread::Builder::new()
            .name("terrace-trial".into())
            .spawn(move || drop(sender.send(how())));
        if spawned.is_ok() {
            self.watch.trials.insert(id, trial);
        }
    }
}

/// Tries a device in use.
fn try_failing(device: Arc<Device>) -> TrialResult {
    if let Medium::Nbd(..) = device.medium {
        return TrialResult::Works; // the connection to a remote device shows its state
    }
    for pause in TRIAL_PAUSES {
        match works(&device) {
            Ok(()) => return TrialResult::Works,
            Err(StampError::Io(_)) => std::thread::sleep(pause),
            Err(error) => return TrialResult::Fails(device, error),
        }
    }
    match works(&device) {
        Ok(()) => TrialResult::Works,
        Err(error) => TrialResult::Fails(device, error),
    }
}

/// Writes to a reserved place, flushes, and reads the superblock. Writes nothing if another program
/// has overwritten the superblock.
fn works(device: &Device) -> Result<(), StampError> {
    device.check_superblock()?;
    let tried = match &device.medium {
        Medium::File(file, _) => {
            let written = file.write_all_at(&[0; 512], SUPERBLOCKS_BYTES as u64);
            let flushed = written.and_then(|()| file.sync_data());
            flushed.and_then(|()| file.read_exact_at(&mut [0; SUPERBLOCKS_BYTES], 0))
        }
        Medium::Nbd(uri) => {
            let written =
                client::write_durably(uri, &device.lease, SUPERBLOCKS_BYTES as u64, &[0; 512]);
            written.map_err(|e| io::Error::other(explain(&e)))
        }
        Medium::Lost => Err(io::ErrorKind::NotFound.into()),
    };
    match tried {
        // A full file system does not make the device a lost one.
        Err(e) if e.kind() == io::ErrorKind::StorageFull => Ok(()),
        tried => Ok(tried?),
    }
}
