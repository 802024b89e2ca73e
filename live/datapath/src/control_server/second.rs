//! Orders for the L2 cache, which ends with the server.

use std::collections::BTreeSet;
use std::iter::repeat_with;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use nbd::ExportFlags;
use units::Bytes;

use super::{ControlAnswer, ControlServer, DatapathError, Result, home_of};
use crate::cached::{CacheSettings, SecondLevel};
use crate::client;
use crate::clock;
use crate::device::{Device, nameless_file};
use crate::filter::is_lent;
use crate::keeper::random;
use crate::server::available_memory;
use crate::worker::{
    Inbox, Message, NoReply, SECOND_DEVICE, SecondOf, SecondSetup, SecondStatus, WarmUp,
};

/// Time limit for the connection to a cache node.
const NODE_TIME: Duration = Duration::from_secs(3);

/// Alignment of the workers' parts: the largest page size.
const PART_STEP: u64 = 256 << 10;

impl ControlServer {
    /// Sets an L2 cache in a directory or at an export, or removes it.
    ///
    /// # Errors
    /// [`DatapathError`]: the server has no cache, or the L2 cache cannot be set. The earlier one is unchanged.
    pub fn use_second(&self, at: Option<&str>, size: Option<Bytes>) -> Result<ControlAnswer> {
        let Some(at) = at else {
            tell(&self.workers()?.0, vec![])?;
            return Ok(ControlAnswer::done("the cache now has no L2 cache".into()));
        };
        let find = || match at.contains("://") {
            true => export(at, size).map(|(device, size, _)| (device, size)),
            false => in_dir(Path::new(at), size),
        };
        let size = self.begin_second(find, &SecondOf::default(), None)?;
        let done = format!("set the L2 cache: {size} at {at}");
        Ok(ControlAnswer::done(done))
    }

    /// Sets memory or flash of a cache node as the L2 cache of one volume, with an optional warm-up.
    ///
    /// # Errors
    /// As [`ControlServer::use_second`]; the node does not answer in time, or an operator has set an L2 cache.
    pub fn use_node(
        &self,
        volume: &str,
        of: &SecondOf,
        at: &str,
        size: Bytes,
        warm: Option<WarmUp>,
    ) -> Result<ControlAnswer> {
        if let Some(warm) = &warm {
            warm.check()?;
        }
        if self.second_status()?.is_some_and(|s| s.is_by_hand()) {
            return Err(DatapathError::Refused(
                "an operator has set another L2 cache".into(),
            ));
        }
        let uri = at.to_owned();
        let find = move || {
            // The content is overwritten, so the export must be one of a cache node: no operator has checked it.
            let (device, size, is_lent) = export(&uri, Some(size))?;
            match is_lent {
                true => Ok((device, size)),
                false => Err(DatapathError::Refused(format!(
                    "{uri} is not an export of `terrace cache-node`"
                ))),
            }
        };
        let size = self.begin_second(|| soon(find), of, warm)?;
        let done = format!("set the L2 cache of volume {volume}: {size} at {at}");
        Ok(ControlAnswer::done(done))
    }

    /// Removes the L2 cache if it belongs to this remedy.
    ///
    /// # Errors
    /// [`DatapathError::NotServed`] if a worker has ended.
    pub fn stop_node(&self, answer: u64) -> Result<ControlAnswer> {
        let there = self.second_status()?;
        if there.is_none_or(|s| s.of.answer != Some(answer)) {
            return Ok(ControlAnswer::done(
                "this L2 cache was already removed".into(),
            ));
        }
        tell(&self.workers()?.0, vec![])?;
        Ok(ControlAnswer::done("the cache now has no L2 cache".into()))
    }

    /// Returns all workers, and the settings of their caches.
    pub(super) fn workers(&self) -> Result<(Vec<Inbox>, Option<CacheSettings>)> {
        let server = self.server.as_ref();
        let not_served = "the array is not served: start the server";
        let server = server.ok_or_else(|| DatapathError::NotServed(not_served.into()))?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((server.workers.clone(), server.config.cache))
    }

    /// Gives each worker a part of the device, and returns the total size.
    fn begin_second(
        &self,
        find: impl FnOnce() -> Result<(Device, Bytes)>,
        of: &SecondOf,
        warm: Option<WarmUp>,
    ) -> Result<Bytes> {
        let (workers, cache) = self.workers()?;
        let homes = self.homes(of, workers.len())?;
        let none = "the server has no cache in memory: restart it with `--cache`";
        let cache = cache.ok_or_else(|| DatapathError::Refused(none.into()))?;
        let (device, size) = find()?;
        let tables = Bytes(size.0 / cache.page.0 * SecondLevel::BYTES_PER_PLACE);
        if let Some(available) = available_memory().filter(|available| tables > *available) {
            return Err(DatapathError::Refused(format!(
                "the tables for {size} in pages of {} need {tables} of memory, and {available} are available: use larger pages",
                cache.page
            )));
        }
        let device = Arc::new(device);
        let part = size.0 / homes.len() as u64 / PART_STEP * PART_STEP;
        let setup = |index: usize| {
            let Some(place) = homes.iter().position(|home| *home == index) else {
                return Ok(None);
            };
            let level = cache.second_level(Bytes(part), random());
            Ok(Some(SecondSetup {
                device: device.clone(),
                begin: place as u64 * part,
                size: Bytes(part),
                level: level.map_err(DatapathError::failed)?,
                of: of.clone(),
                warm: warm.clone(),
            }))
        };
        let setups: Result<Vec<_>> = (0..workers.len()).map(setup).collect();
        tell(&workers, setups?)?;
        Ok(Bytes(part * homes.len() as u64))
    }

    /// Returns the state of the L2 cache over all workers; none without an L2 cache.
    pub(super) fn second(&self) -> Result<ControlAnswer> {
        let status = self.second_status()?;
        Ok(ControlAnswer::Second { status })
    }

    fn second_status(&self) -> Result<Option<SecondStatus>> {
        let workers = self.workers_samples(clock::now_ns()).into_iter();
        let workers: Vec<_> = workers.collect::<Result<_, NoReply>>()?;
        let all = workers.into_iter().filter_map(|w| w.second);
        Ok(all.reduce(SecondStatus::and))
    }

    /// Returns the workers that own the volumes of an L2 cache, in order.
    fn homes(&self, of: &SecondOf, workers: usize) -> Result<Vec<usize>> {
        let Some(names) = &of.volumes else {
            return Ok((0..workers).collect());
        };
        let mut homes = BTreeSet::new();
        for name in names {
            homes.insert(home_of(self.volume(name)?.id, workers));
        }
        match homes.is_empty() {
            true => Err(DatapathError::Invalid("no volume is named".into())),
            false => Ok(homes.into_iter().collect()),
        }
    }
}

/// Sends each worker the setup of its L2 cache, or none. Sends nothing while a worker is stalled.
fn tell(workers: &[Inbox], setups: Vec<Option<SecondSetup>>) -> Result<()> {
    workers.iter().try_for_each(Inbox::responds)?;
    let setups = setups.into_iter().chain(repeat_with(|| None));
    let asked: Vec<_> = workers
        .iter()
        .zip(setups)
        .map(|(worker, setup)| {
            worker.begin(|answer| Message::UseSecond(setup.map(Box::new), answer))
        })
        .collect();
    asked.into_iter().try_for_each(|asked| asked?.wait()?)
}

/// Runs `what` with a time limit, because the calling agent has other work to do.
fn soon<T: Send + 'static>(what: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (sender, answer) = channel();
    std::thread::spawn(move || {
        // The caller may have stopped waiting.
        let _ = sender.send(what());
    });
    let late = |_| DatapathError::Late("its cache node does not respond".into());
    answer.recv_timeout(NODE_TIME).map_err(late)?
}

/// Returns the device and size of an export, and true if it is an export of a cache node.
fn export(at: &str, size: Option<Bytes>) -> Result<(Device, Bytes, bool)> {
    let uri = at.parse::<nbd::Uri>();
    let uri = uri.map_err(|e| DatapathError::Invalid(format!("{at}: {e}")))?;
    let connected = client::connect(&uri).map_err(DatapathError::failed)?;
    let export = connected.session.export;
    if export.flags.contains(ExportFlags::READ_ONLY) {
        return Err(DatapathError::Refused(format!("{at} is read-only")));
    }
    let has = Bytes(export.size);
    let size = size.unwrap_or(has);
    if size > has {
        return Err(DatapathError::Refused(format!(
            "{at} has {has}, not {size}"
        )));
    }
    let mut device = Device::remote(uri.to_string(), uri);
    device.id = SECOND_DEVICE;
    Ok((device, size, is_lent(&export)))
}

/// Returns a device in a new file without a name in a directory.
fn in_dir(dir: &Path, size: Option<Bytes>) -> Result<(Device, Bytes)> {
    let missing = "--size is missing: give the size of the file";
    let size = size.ok_or_else(|| DatapathError::Invalid(missing.into()))?;
    let file = nameless_file(dir, size)?;
    let name = dir.display().to_string();
    Ok((Device::second(SECOND_DEVICE, name, file), size))
}
