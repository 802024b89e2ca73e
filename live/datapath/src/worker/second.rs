//! I/O of the L2 cache. [`crate::cached`] decides the places of pages; this file reads and writes them.
//!
//! ```text
//!   read ─▶ in memory? ─ no ─▶ all its pages in the L2 cache? ─ yes ─▶ read there ─▶ intact, and unchanged since ─▶ answered
//!                                              │ no                        │ else, or late
//!                                              ▼                           ▼
//!                                            engine ◀──────────────────────┘        pages that the engine reads are also written there
//! ```
//!
//! The device of the L2 cache is not part of the array. Any failure there removes the L2 cache and causes no error for
//! guests: its reads go to the engine instead.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use slab::Slab;
use tracing::{info, warn};
use units::{Bytes, DeviceId};

use crate::cached::{L2ReadResult, SecondLevel, StoredPage, StoredRead};
use crate::clock;
use crate::device::{Device, Medium};
use crate::engine::{GuestRequest, IoKind};
use crate::error::DatapathError;
use crate::io::{Buf, Io, Op, Outcome, close_elsewhere};
use crate::keeper::errno_name;

use super::Worker;
use super::cached::{WHOLE_MAX, WIDENED_MAX};
use super::guests::{Guest, HEAD};
use super::timers::TimerAction;
use super::volumes::{LiveIo, may_retry};
use super::warming::{WarmUp, WarmUpState};
use super::zeroes::ZeroMethod;

/// Number in place of a volume in I/Os of the L2 cache; below, the number in place of a device of the array.
pub(super) const NO_VOLUME: u32 = u32::MAX;
pub const SECOND_DEVICE: DeviceId = DeviceId(u16::MAX);

/// Longest read of the L2 cache. A slower one removes it, because the engine would have been faster.
const LATE_NS: u64 = 1_000_000_000;

/// Longest write of a page. A slower one removes the L2 cache.
const FILL_LATE_NS: u64 = 5_000_000_000;

/// Limit on the bytes of pages that are being written. Further pages are not kept in the L2 cache. Reads queue behind these
/// writes.
pub(super) const FILLING_MAX: u64 = 1 << 20;

/// Limit on the I/Os in flight on its file, so that hanging ones do not take resources from guests' I/O. Further requests
/// bypass the L2 cache.
const ON_FILE_MAX: usize = 32;
const BY_THREADS_MAX: usize = 2;

/// L2 cache of a worker.
#[derive(Debug)]
pub struct SecondSetup {
    /// Device: a file, or a remote export.
    pub device: Arc<Device>,
    /// First byte of the worker's part.
    pub begin: u64,
    /// Size of the part.
    pub size: Bytes,
    /// Tables of the L2 cache. They are large, so another thread allocates them.
    pub level: SecondLevel,
    /// Use and origin.
    pub of: SecondOf,
    /// Warm-up: data of its volume that is read before guests read it.
    pub warm: Option<WarmUp>,
}

/// Volumes that may use an L2 cache, and its origin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondOf {
    /// Volumes whose pages it may keep; none for all volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<BTreeSet<String>>,
    /// Number of the remedy that it is; none if an operator ordered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<u64>,
    /// Name of the cache node, as the caller names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

impl SecondOf {
    fn may_have(&self, volume: &str) -> bool {
        self.volumes.as_ref().is_none_or(|v| v.contains(volume))
    }
}

/// Part of a device that is in use.
struct Place {
    device: Arc<Device>,
    begin: u64,
    size: Bytes,
    of: SecondOf,
}

/// State of the L2 cache of a worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondStatus {
    /// Capacity.
    pub size: Bytes,
    /// Cached bytes.
    pub bytes: Bytes,
    /// Number of pages that were read from it.
    pub hits: u64,
    /// Number of pages that were written to it.
    pub fills: u64,
    /// True if its device is connected and usable.
    pub ready: bool,
    /// Number of bytes that the warm-up has read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warmed: Bytes,
    /// Number of bytes that the warm-up has yet to read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub to_warm: Bytes,
    /// Reason for its removal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Use and origin, also after its removal.
    #[serde(flatten)]
    pub of: SecondOf,
}

/// Returns true for 0 bytes.
fn is_zero(bytes: &Bytes) -> bool {
    *bytes == Bytes::ZERO
}

/// L2 cache and its I/Os in flight.
#[derive(Default)]
pub(super) struct WorkerSecond {
    place: Option<Place>,
    /// Number of this L2 cache. Results of an earlier one are ignored.
    pub(super) time: u32,
    reads: Slab<PendingRead>,
    parts: Slab<Part>,
    filling: u64,
    /// Number of bytes that are being read.
    reading: u64,
    /// Warm-up in progress.
    pub(super) warming: Option<WarmUpState>,
    /// Reason for the removal of the last L2 cache, with its use and origin.
    ended: Option<(String, SecondOf)>,
    /// Reason for which the L2 cache is removed in the next turn.
    pub(super) failed: Option<String>,
}

/// Read of a guest that waits for pages of the L2 cache.
struct PendingRead {
    volume: u32,
    guest: Guest,
    request: GuestRequest,
    read: StoredRead,
    buf: Arc<Buf>,
    left: u32,
}

/// I/O of the L2 cache.
#[derive(Clone, Copy)]
struct Part {
    time: u32,
    what: L2Operation,
    since_ns: u64,
}

#[derive(Clone, Copy)]
enum L2Operation {
    /// Part of the read with this number.
    Read(u32),
    /// Write of a page.
    Fill(StoredPage),
}

impl SecondStatus {
    /// Returns true if an L2 cache of an operator exists, on at least one worker.
    pub fn is_by_hand(&self) -> bool {
        self.of.answer.is_none() && self.size > Bytes::ZERO
    }

    /// Returns the combined state of two workers.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            size: Bytes(self.size.0 + other.size.0),
            bytes: Bytes(self.bytes.0 + other.bytes.0),
            hits: self.hits + other.hits,
            fills: self.fills + other.fills,
            ready: self.ready && other.ready,
            warmed: Bytes(self.warmed.0 + other.warmed.0),
            to_warm: Bytes(self.to_warm.0 + other.to_warm.0),
            ended: self.ended.or(other.ended),
            of: self.of,
        }
    }
}

impl WorkerSecond {
    /// Returns true if the L2 cache is a remedy for an SLO violation.
    pub(super) fn is_remedy(&self) -> bool {
        let place = self.place.as_ref();
        place.is_some_and(|p| p.of.answer.is_some())
    }

    /// Returns the bytes of pages that are being written.
    pub(super) fn filling(&self) -> u64 {
        self.filling
    }

    /// Returns true if the L2 cache may keep pages of a volume.
    pub(super) fn may_have(&self, volume: &str) -> bool {
        let place = self.place.as_ref();
        place.is_some_and(|p| p.of.may_have(volume))
    }

    /// Returns true if a read of a volume waits for the L2 cache.
    pub(super) fn any_of(&self, volume: u32) -> bool {
        self.reads.iter().any(|(_, w)| w.volume == volume)
    }
}

impl Worker {
    /// Replaces the L2 cache, or removes it. The new one is empty.
    pub(super) fn use_second(&mut self, setup: Option<SecondSetup>) -> Result<(), DatapathError> {
        self.end_second(None);
        self.second.ended = None;
        let Some(setup) = setup else { return Ok(()) };
        let none = "the server has no cache in memory: restart it with `--cache`";
        let cache = self.cache.as_mut();
        let cache = cache.ok_or_else(|| DatapathError::Refused(none.into()))?;
        let memory = &mut cache.memory;
        let SecondSetup {
            device,
            begin,
            size,
            level,
            of,
            warm,
        } = setup;
        memory.begin_second(level);
        let page = memory.page_bytes();
        for (number, live) in (0..).zip(&mut self.volumes) {
            let Some(live) = live else { continue };
            if !of.may_have(&live.name) {
                continue;
            }
            let begun = live.cached.as_mut().map(|c| c.cache.begin_second(memory));
            if let Some(Err(why)) = begun {
                warn!(volume = live.name, %why, "the volume does not use the L2 cache");
            } else if let (Some(Ok(())), Some(warm)) = (begun, &warm) {
                let size = live.engine.map().size().0;
                self.second.warming = Some(WarmUpState::new(number, warm, size, page));
            }
        }
        if self.second.warming.is_some() {
            self.timers
                .at(self.now_ns, TimerAction::Warm(self.second.time));
        }
        self.add_remote(&device);
        info!(device = device.name, %size, "the cache has a second level");
        self.second.place = Some(Place {
            device,
            begin,
            size,
            of,
        });
        Ok(())
    }

    /// Removes the L2 cache; with the reason after a failure. Reads that wait for it go to the engines.
    pub(super) fn end_second(&mut self, why: Option<String>) {
        let Some(place) = self.second.place.take() else {
            return;
        };
        if let Some(why) = &why {
            warn!(device = place.device.name, why, "the L2 cache was removed");
        }
        // The last close of a file without a name frees its space, which may take long.
        close_elsewhere(place.device);
        self.second.ended = why.map(|why| (why, place.of));
        (self.second.failed, self.second.warming) = (None, None);
        self.second.time += 1;
        (self.second.filling, self.second.reading) = (0, 0);
        if let Some(cache) = &mut self.cache {
            cache.memory.end_second();
        }
        let live = self.volumes.iter_mut().flatten();
        live.filter_map(|v| v.cached.as_mut())
            .for_each(|c| c.cache.end_second());
        self.drop_remote(SECOND_DEVICE);
        for (_, waiting) in std::mem::take(&mut self.second.reads) {
            self.stored_is_over(waiting, false);
        }
    }

    fn second_is_ready(&self) -> bool {
        if self.second.failed.is_some() {
            return false;
        }
        match self.second.place.as_ref().map(|s| &s.device.medium) {
            None | Some(Medium::Lost) => false,
            Some(Medium::File(..)) => true,
            Some(Medium::Nbd(..)) => self.is_linked(SECOND_DEVICE),
        }
    }

    /// Returns true if the L2 cache accepts another I/O now.
    pub(super) fn second_may(&self) -> bool {
        let place = self.second.place.as_ref();
        let is_file = place.is_some_and(|p| matches!(p.device.medium, Medium::File(..)));
        let most = match self.io {
            _ if !is_file => usize::MAX,
            Io::Ring(_) => ON_FILE_MAX,
            Io::Threads(_) => BY_THREADS_MAX,
        };
        // The number includes hanging I/Os on the file of an earlier L2 cache.
        self.second_is_ready() && self.second.parts.len() < most
    }

    /// Reads a request of a guest from the L2 cache, if it has all pages. Else returns the guest and the request.
    pub(super) fn read_second(
        &mut self,
        volume: u32,
        guest: Guest,
        request: GuestRequest,
    ) -> Option<(Guest, GuestRequest)> {
        if !self.second_may() {
            return Some((guest, request));
        }
        let live = self.volumes[volume as usize].as_mut();
        let live = live.expect("it has connections");
        let (Some(cached), Some(cache)) = (&mut live.cached, &mut self.cache) else {
            return Some((guest, request));
        };
        let (_, whole) = cached.cache.whole(&cache.memory, &request);
        if whole > WHOLE_MAX || self.second.reading + whole > WIDENED_MAX {
            return Some((guest, request));
        }
        let Some(read) = cached.cache.read_stored(&mut cache.memory, &request) else {
            return Some((guest, request));
        };
        let page = cache.memory.page_bytes();
        self.second.reading += whole;
        let buf = self.pool.take(whole as usize);
        // Adjacent pages are read together: each run has its first page and its number of pages.
        let runs = read.places.chunk_by(|a, b| a.is_before(*b));
        let runs: Vec<(StoredPage, u64)> = runs.map(|run| (run[0], run.len() as u64)).collect();
        let waiting = self.second.reads.insert(PendingRead {
            volume,
            guest,
            request,
            read,
            buf: buf.clone(),
            left: runs.len() as u32,
        }) as u32;
        let mut from = 0;
        for (place, pages) in runs {
            let length = pages * page;
            let what = L2Operation::Read(waiting);
            self.start_second(what, place.at(page), length, buf.clone(), from as usize);
            from += length;
        }
        None
    }

    /// Writes pages that an engine has read to the L2 cache.
    pub(super) fn fill_second(&mut self, volume: u32, request: &GuestRequest, buf: &Arc<Buf>) {
        if !self.second_may() {
            return;
        }
        let live = self.volumes[volume as usize].as_mut();
        let live = live.expect("it has requests");
        let (Some(cached), Some(cache)) = (&mut live.cached, &mut self.cache) else {
            return;
        };
        let memory = &mut cache.memory;
        let page = memory.page_bytes();
        let room = FILLING_MAX.saturating_sub(self.second.filling) / page;
        let (bytes, pool) = (HEAD..HEAD + request.length as usize, &mut self.pool);
        let pages: Vec<_> = buf.with(bytes, |data| {
            let places = cached.cache.fill(memory, request, data, room as usize);
            let copied = places.into_iter().map(|(stored, at)| {
                let copy = pool.take(page as usize);
                let from = &data[at..at + page as usize];
                copy.fill(0..from.len(), |to| to.copy_from_slice(from));
                (stored, copy)
            });
            copied.collect()
        });
        for (stored, copy) in pages {
            self.second.filling += page;
            self.start_second(L2Operation::Fill(stored), stored.at(page), page, copy, 0);
        }
    }

    fn start_second(
        &mut self,
        what: L2Operation,
        at: u64,
        length: u64,
        buf: Arc<Buf>,
        from: usize,
    ) {
        // The L2 cache may have failed between two pages.
        let Some(setup) = self
            .second
            .place
            .as_ref()
            .filter(|_| self.second.failed.is_none())
        else {
            return;
        };
        let kind = match what {
            L2Operation::Read(_) => IoKind::Read,
            L2Operation::Fill(_) => IoKind::Write { durable: false },
        };
        let is_remote = matches!(setup.device.medium, Medium::Nbd(..));
        let at = setup.begin + at;
        let part = self.second.parts.insert(Part {
            time: self.second.time,
            what,
            since_ns: self.now_ns,
        }) as u32;
        let id = self.ios.insert(LiveIo {
            volume: NO_VOLUME,
            io: part,
            kind,
            device: SECOND_DEVICE.0,
            start: 0,
            at,
            length,
            buf: Some(buf),
            from,
            done: 0,
            retries: 0,
            background: kind != IoKind::Read,
            copies: false,
            zeroing: ZeroMethod::Asked,
            opening: 0,
            turn: None,
            by_buffer: None,
            not_before_ns: 0,
            result: Ok(()),
        }) as u32;
        match is_remote {
            true => self.start_remote(id),
            false => self.start_second_file(id),
        }
    }

    fn start_second_file(&mut self, id: u32) {
        let live = &self.ios[id as usize];
        let file = self.second.place.as_ref().and_then(|s| file_of(&s.device));
        let Some(file) = file else {
            return self.second_over(id, false);
        };
        let (at, range) = (
            live.place(),
            live.in_memory()..live.from + live.length as usize,
        );
        let buf = live.buf.as_ref().expect("it has one");
        let urgency = live.urgency();
        let op = match live.kind {
            IoKind::Read => Op::Read {
                file,
                at,
                to: buf.target(range),
                urgency,
            },
            _ => Op::Write {
                file,
                at,
                from: buf.source(range),
                durable: false,
                urgency,
            },
        };
        self.io.start(super::Token::Device(id).pack(), op);
    }

    /// Handles the result of an I/O on the file of the L2 cache, which may be partial.
    pub(super) fn second_file_done(&mut self, id: u32, outcome: Outcome) {
        let live = &mut self.ios[id as usize];
        let part = self.second.parts[live.io as usize];
        let of_now = part.time == self.second.time;
        match outcome {
            Ok(0) => return self.second_over(id, false),
            Ok(n) => live.done += u64::from(n),
            Err(Errno::INTR | Errno::AGAIN) if may_retry(&mut live.retries) => {}
            Err(errno) => {
                if of_now {
                    let what = live.kind.name();
                    self.second_failed(format!("{what}: {}", errno_name(errno.raw_os_error())));
                }
                return self.second_over(id, false);
            }
        }
        match live.done < live.length && of_now {
            true => self.start_second_file(id),
            false => self.second_over(id, true),
        }
    }

    /// Handles the end of an I/O of the L2 cache.
    pub(super) fn second_over(&mut self, id: u32, went_well: bool) {
        let live = self.ios.remove(id as usize);
        let part = self.second.parts.remove(live.io as usize);
        if part.time != self.second.time {
            return;
        }
        if !went_well {
            let what = live.kind.name();
            return self.second_failed(format!("{what} failed, or the connection was lost"));
        }
        match part.what {
            L2Operation::Fill(stored) => {
                self.second.filling -= live.length;
                if let Some(buf) = live.buf {
                    self.pool.give(buf);
                }
                let second = self.cache.as_mut().and_then(|c| c.memory.second_mut());
                if let Some(second) = second {
                    second.filled(stored);
                }
            }
            L2Operation::Read(waiting) => {
                drop(live.buf);
                let of = &mut self.second.reads[waiting as usize];
                of.left -= 1;
                if of.left == 0 {
                    let waiting = self.second.reads.remove(waiting as usize);
                    self.stored_is_over(waiting, true);
                }
            }
        }
    }

    /// Removes the L2 cache in the next turn, because an engine may be in the middle of an operation.
    pub(super) fn second_failed(&mut self, why: String) {
        self.second.failed.get_or_insert(why);
    }

    /// Removes the L2 cache if it has failed.
    pub(super) fn end_failed_second(&mut self) {
        if let Some(why) = self.second.failed.take() {
            self.now_ns = clock::now_ns();
            self.end_second(Some(why));
        }
    }

    /// Ends the read of a guest from the L2 cache, or the attempt: answers the guest, or submits the read to the engine.
    fn stored_is_over(&mut self, waiting: PendingRead, was_read: bool) {
        let PendingRead {
            volume,
            mut guest,
            request,
            read,
            buf,
            ..
        } = waiting;
        let live = self.volumes[volume as usize].as_mut();
        let live = live.expect("it has requests");
        let mut answered = L2ReadResult::Overtaken;
        if let (Some(cached), Some(cache)) = (&mut live.cached, &mut self.cache) {
            let memory = &mut cache.memory;
            answered = match was_read {
                false => cached.cache.stored_over(memory, &read, None),
                true => buf.with(0..buf.len(), |data| {
                    cached.cache.stored_over(memory, &read, Some(data))
                }),
            };
        }
        let whole = read.bytes.end - read.bytes.start;
        self.second.reading = self.second.reading.saturating_sub(whole);
        if answered == L2ReadResult::Right {
            let from = (request.offset - read.bytes.start) as usize;
            let to = guest.buf.as_ref().expect("a read has a buffer");
            buf.with(from..from + request.length as usize, |bytes| {
                to.fill(HEAD..HEAD + bytes.len(), |to| to.copy_from_slice(bytes));
            });
            self.pool.give(buf);
            let latency_ns = self.now_ns.saturating_sub(guest.arrival_ns);
            live.engine.answered_from_memory(self.now_ns, latency_ns);
            guest.from_memory = true;
            if let Some(cached) = &mut live.cached {
                cached.answered_by_cache(&self.second);
            }
            return self.ready(volume, guest, request, Ok(()));
        }
        if answered == L2ReadResult::Wrong {
            self.second_failed("its content differs from the data that was written to it".into());
        }
        let (guest, request) = self.past_cache(volume, guest, request);
        let live = self.volumes[volume as usize].as_mut();
        let engine = &mut live.expect("as above").engine;
        engine.submit(self.now_ns, guest, request);
        self.carry_out(volume);
    }

    /// Removes the L2 cache if one of its I/Os is late. Runs at each tick.
    pub(super) fn tick_second(&mut self) {
        let (now_ns, time) = (self.now_ns, self.second.time);
        let late = self.second.parts.iter().find(|(_, part)| {
            let may = match part.what {
                L2Operation::Read(_) => LATE_NS,
                L2Operation::Fill(_) => FILL_LATE_NS,
            };
            part.time == time && now_ns.saturating_sub(part.since_ns) > may
        });
        if late.is_some() {
            self.end_second(Some("the device does not respond".into()));
        }
    }

    /// Returns the state of the L2 cache; none if there has been none since the last order.
    pub(super) fn second_status(&self) -> Option<SecondStatus> {
        let ended = self.second.ended.clone();
        let memory = self.cache.as_ref().map(|c| &c.memory);
        let level = memory.and_then(|m| Some((m.second()?, m.page_bytes())));
        let (Some(setup), Some((level, page))) = (&self.second.place, level) else {
            return ended.map(|(why, of)| SecondStatus {
                ended: Some(why),
                of,
                ..SecondStatus::default()
            });
        };
        let counts = level.counts();
        Some(SecondStatus {
            size: setup.size,
            bytes: Bytes(u64::from(level.pages().len()) * page),
            hits: counts.hits,
            fills: counts.fills,
            ready: self.second_is_ready(),
            warmed: Bytes(self.second.warming.as_ref().map_or(0, |w| w.read)),
            to_warm: Bytes(self.second.warming.as_ref().map_or(0, WarmUpState::left)),
            ended: ended.map(|(why, _)| why),
            of: setup.of.clone(),
        })
    }
}

/// Returns the file of a device, for direct I/O if possible.
fn file_of(device: &Device) -> Option<Arc<File>> {
    let Medium::File(file, _) = &device.medium else {
        return None;
    };
    Some(device.direct().map_or(file, |direct| &direct.file).clone())
}
