//! Orders about the second level of the cache. Nothing of it outlives the server.

use std::collections::BTreeSet;
use std::iter::repeat_with;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use nbd::ExportFlags;
use units::Bytes;

use super::{ControlAnswer, ControlServer, Result, home_of, text};
use crate::cached::{CacheSettings, SecondLevel};
use crate::client;
use crate::clock;
use crate::device::{Device, nameless_file};
use crate::filter::is_lent;
use crate::keeper::random;
use crate::server::available_memory;
use crate::worker::{Inbox, Message, SECOND_DEVICE, SecondOf, SecondSetup, SecondStatus, WarmUp};

/// A node that is connected to answers within this time.
const NODE_TIME: Duration = Duration::from_secs(3);

/// Parts of workers begin at multiples of this: the largest page.
const PART_STEP: u64 = 256 << 10;

impl ControlServer {
    /// The cache has a second level in a directory, or at an export, from now on; or none.
    ///
    /// # Errors
    /// In words: there is no cache, or its second level cannot be there. Then what was there before goes on.
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

    /// The cache has memory or flash of a node as its second level, for one volume, of which it reads some before its guests ask.
    ///
    /// # Errors
    /// As [`ControlServer::use_second`]; the node does not answer soon, or a person has ordered a second level.
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
            return Err("an operator has set another L2 cache".into());
        }
        let uri = at.to_owned();
        let find = move || {
            // Nobody has looked at it: it is written over.
            let (device, size, is_lent) = export(&uri, Some(size))?;
            match is_lent {
                true => Ok((device, size)),
                false => Err(format!("{uri} is not an export of `terrace cache-node`")),
            }
        };
        let size = self.begin_second(|| soon(find), of, warm)?;
        let done = format!("set the L2 cache of volume {volume}: {size} at {at}");
        Ok(ControlAnswer::done(done))
    }

    /// The second level ends, if it is that answer's.
    ///
    /// # Errors
    /// Workers that have ended.
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

    /// All workers, and what caches they have.
    pub(super) fn workers(&self) -> Result<(Vec<Inbox>, Option<CacheSettings>)> {
        let server = self.server.as_ref();
        let server = server.ok_or("the array is not served: start the server")?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((server.workers.clone(), server.config.cache))
    }

    /// Gives workers parts of what is found; how much that is in all.
    fn begin_second(
        &self,
        find: impl FnOnce() -> Result<(Device, Bytes)>,
        of: &SecondOf,
        warm: Option<WarmUp>,
    ) -> Result<Bytes> {
        let (workers, cache) = self.workers()?;
        let homes = self.homes(of, workers.len())?;
        let cache = cache.ok_or("the server has no cache in memory: restart it with `--cache`")?;
        let (device, size) = find()?;
        let tables = Bytes(size.0 / cache.page.0 * SecondLevel::BYTES_PER_PLACE);
        if let Some(available) = available_memory().filter(|available| tables > *available) {
            return Err(format!(
                "the tables for {size} in pages of {} need {tables} of memory, and {available} are available: use larger pages",
                cache.page
            ));
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
                level: level.map_err(text)?,
                of: of.clone(),
                warm: warm.clone(),
            }))
        };
        let setups: Result<Vec<_>> = (0..workers.len()).map(setup).collect();
        tell(&workers, setups?)?;
        Ok(Bytes(part * homes.len() as u64))
    }

    /// How the second level is, over all workers; none where there is none.
    pub(super) fn second(&self) -> Result<ControlAnswer> {
        let status = self.second_status()?;
        Ok(ControlAnswer::Second { status })
    }

    fn second_status(&self) -> Result<Option<SecondStatus>> {
        let workers = self.workers_samples(clock::now_ns()).into_iter();
        let workers: Vec<_> = workers
            .collect::<std::result::Result<_, _>>()
            .map_err(text)?;
        let all = workers.into_iter().filter_map(|w| w.second);
        Ok(all.reduce(SecondStatus::and))
    }

    /// The workers whose volumes it is for, in order.
    fn homes(&self, of: &SecondOf, workers: usize) -> Result<Vec<usize>> {
        let Some(names) = &of.volumes else {
            return Ok((0..workers).collect());
        };
        let mut homes = BTreeSet::new();
        for name in names {
            homes.insert(home_of(self.volume(name)?.id, workers));
        }
        match homes.is_empty() {
            true => Err("no volume is named".into()),
            false => Ok(homes.into_iter().collect()),
        }
    }
}

/// Sends each worker the setup of its L2 cache, or none. Sends nothing while a worker is stalled.
fn tell(workers: &[Inbox], setups: Vec<Option<SecondSetup>>) -> Result<()> {
    let responds = workers.iter().try_for_each(Inbox::responds);
    responds.map_err(text)?;
    let setups = setups.into_iter().chain(repeat_with(|| None));
    let asked: Vec<_> = workers
        .iter()
        .zip(setups)
        .map(|(worker, setup)| {
            worker.begin(|answer| Message::UseSecond(setup.map(Box::new), answer))
        })
        .collect();
    asked.into_iter().try_for_each(|asked| {
        let used = asked.and_then(|asked| asked.wait());
        used.map_err(text)?
    })
}

/// What is not there soon is not waited for: an agent asks, which has other things to look after.
fn soon<T: Send + 'static>(what: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (sender, answer) = channel();
    std::thread::spawn(move || {
        // Nobody may listen any more.
        let _ = sender.send(what());
    });
    let late = |_| "its cache node does not respond".to_string();
    answer.recv_timeout(NODE_TIME).map_err(late)?
}

/// An export: all of it, or as much as is wanted, and whether it says that it is a node's.
fn export(at: &str, size: Option<Bytes>) -> Result<(Device, Bytes, bool)> {
    let uri: nbd::Uri = at.parse().map_err(|e| format!("{at}: {e}"))?;
    let export = client::connect(&uri).map_err(text)?.session.export;
    if export.flags.contains(ExportFlags::READ_ONLY) {
        return Err(format!("{at} is read-only"));
    }
    let has = Bytes(export.size);
    let size = size.unwrap_or(has);
    if size > has {
        return Err(format!("{at} has {has}, not {size}"));
    }
    let mut device = Device::remote(uri.to_string(), uri);
    device.id = SECOND_DEVICE;
    Ok((device, size, is_lent(&export)))
}

/// A file in a directory.
fn in_dir(dir: &Path, size: Option<Bytes>) -> Result<(Device, Bytes)> {
    let size = size.ok_or("--size is missing: give the size of the file")?;
    let file = nameless_file(dir, size)?;
    let name = dir.display().to_string();
    Ok((Device::second(SECOND_DEVICE, name, file), size))
}
