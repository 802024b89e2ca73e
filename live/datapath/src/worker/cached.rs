//! The worker's cache on the path of requests. [`crate::cached`] has the rules; this file handles buffers and answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use cache::PageCounts;
use serde::{Deserialize, Serialize};
use units::{Bytes, DeviceId};
use volume::Slack;

use crate::cached::{CacheMemory, VolumeCache};
use crate::engine::{Fault, GuestOp, GuestRequest};
use crate::io::Buf;

use super::Worker;
use super::cache_parts::{ClassShare, LentPart, Parts};
use super::guests::{Guest, HEAD};
use super::second::WorkerSecond;
use super::volumes::LiveVolume;

/// Largest read that is widened to whole pages. No device has to take larger requests than guests may make.
pub(super) const WHOLE_MAX: u64 = 1 << 20;

/// Limit on the bytes of widened reads in flight, in addition to the reads of guests. Further reads are not widened, and
/// their pages are not cached.
pub(super) const WIDENED_MAX: u64 = 32 << 20;

/// Time without widened reads after a widened read has failed. The rest of the pages may be on a part of the device that
/// hangs.
const NARROW_NS: u64 = 10_000_000_000;

/// Request of a guest while a read that is widened to whole pages replaces it.
#[derive(Debug)]
pub(super) struct OriginalRequest {
    request: GuestRequest,
    buf: Arc<Buf>,
}

/// Cache of a worker, and the time that its policy counts in.
pub(super) struct WorkerCache {
    pub(super) memory: CacheMemory,
    slice_ns: u64,
    slices_per_hour: u32,
    slice_ends_ns: u64,
    slices: u32,
    /// Bytes of widened reads in flight.
    widened: u64,
    /// Shares of classes.
    pub(super) classes: BTreeMap<String, ClassShare>,
    /// Shares that volumes get when they are served.
    pub(super) of_volumes: BTreeMap<String, f64>,
}

/// Cache of one served volume.
#[derive(Debug)]
pub(super) struct LiveCache {
    pub(super) cache: VolumeCache,
    pub(super) parts: Parts,
    /// True if the share of its class is empty.
    pub(super) class_has_none: bool,
    /// Time until which reads are not widened to whole pages.
    narrow_until_ns: u64,
    /// Number of requests since the last assessment of the volume's latency.
    answered: u64,
    /// Number of requests that the cache answered while the L2 cache was a remedy for an SLO violation.
    pub(super) by_appliance: u64,
    /// Since the hour began: number of requests, and the sum of their ratios of latency to objective. Then the number of
    /// requests in the slice.
    responses: (u64, f64, u64),
}

/// State of the cache of a volume. Counters only grow while the volume is cached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheSample {
    /// Cached bytes.
    pub bytes: Bytes,
    /// Part that only this volume uses; none if it uses the common part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Bytes>,
    /// Lent part, if the volume has one now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent: Option<LentPart>,
    /// Cache that the volume uses.
    #[serde(default)]
    pub of: CacheOfWorker,
    /// Part that it shares with the other volumes of its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_part: Option<Bytes>,
    /// True if the volume is not cached, because its part or share is empty.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept_out: bool,
    /// Accesses to pages, and their results.
    #[serde(flatten)]
    pub counts: PageCounts,
    /// Number of requests answered by memory or the L2 cache while the L2 cache was a remedy for an SLO violation.
    #[serde(default)]
    pub by_appliance: u64,
    /// Priority in percent, under a policy that has priorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_percent: Option<i32>,
}

/// Cache of one worker; each worker has a cache for its volumes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheOfWorker {
    /// Number of the worker.
    pub worker: usize,
    /// Capacity.
    pub size: Bytes,
    /// Size of its pages.
    pub page: Bytes,
    /// True if remedies can give volumes parts of this cache: not under policies without parts, nor where an operator has
    /// set shares.
    pub in_parts: bool,
}

impl WorkerCache {
    pub(super) fn new(
        memory: CacheMemory,
        slice_ns: u64,
        slices_per_hour: u32,
        now_ns: u64,
    ) -> Self {
        Self {
            memory,
            slice_ns,
            slices_per_hour: slices_per_hour.max(1),
            slice_ends_ns: now_ns + slice_ns,
            slices: 0,
            widened: 0,
            classes: BTreeMap::new(),
            of_volumes: BTreeMap::new(),
        }
    }

    /// Starts to cache a volume of this size that has no requests in flight. If that fails, logs a warning and returns
    /// none.
    pub(super) fn begin(
        &mut self,
        name: &str,
        size: Bytes,
        second: &WorkerSecond,
    ) -> Option<LiveCache> {
        let begun = VolumeCache::new(&mut self.memory, size.0, 0);
        let cache = begun
            .inspect_err(|why| tracing::warn!(volume = name, %why, "the volume is not cached"));
        let mut cache = cache.ok()?;
        if second.may_have(name)
            && let Err(why) = cache.begin_second(&mut self.memory)
        {
            tracing::warn!(volume = name, %why, "the volume does not use the L2 cache");
        }
        Some(LiveCache {
            cache,
            parts: Parts::default(),
            class_has_none: false,
            narrow_until_ns: 0,
            answered: 0,
            by_appliance: 0,
            responses: (0, 0.0, 0),
        })
    }

    /// Returns true if an operator has set shares that exclude parts for remedies.
    fn is_shared_out(&self) -> bool {
        !self.classes.is_empty() || self.of_volumes.values().any(|share| *share <= 0.0)
    }

    fn sample(&self, live: &LiveCache, worker: usize, now_ns: u64) -> CacheSample {
        let pages = self.memory.pages();
        let (volume, bytes) = (live.cache.volume(), |n: u32| {
            Bytes(u64::from(n) * self.memory.page_bytes())
        });
        CacheSample {
            bytes: bytes(pages.cached(volume)),
            part: pages.part(volume).map(bytes),
            lent: live.parts.lent(now_ns),
            class_part: pages.shared_part(volume).map(bytes),
            kept_out: live.cache.is_kept_out(),
            of: CacheOfWorker {
                worker,
                size: bytes(pages.capacity()),
                page: Bytes(self.memory.page_bytes()),
                in_parts: pages.can_have_parts().is_ok() && !self.is_shared_out(),
            },
            counts: pages.counts(volume),
            by_appliance: live.by_appliance,
            priority_percent: pages.priority(volume),
        }
    }
}

impl LiveCache {
    /// Counts a request that was answered without a device.
    pub(super) fn answered_by_cache(&mut self, second: &WorkerSecond) {
        if self.cache.has_second() {
            self.by_appliance += u64::from(second.is_remedy());
        }
    }
}

impl LiveVolume {
    /// Adds the requests since the last call to the sums, with the present ratio of latency to objective.
    fn stood(&mut self) {
        let (slack, Some(cached)) = (self.slack, &mut self.cached) else {
            return;
        };
        let ios = std::mem::take(&mut cached.answered);
        if let Slack::Used(over) = slack {
            let (all, sum, in_slice) = cached.responses;
            cached.responses = (
                all + ios,
                sum + f64::from(over) * ios as f64,
                in_slice + ios,
            );
        }
    }
}

impl Worker {
    /// Answers a read from memory, or prepares a request for the engine. Returns none if the read is answered.
    #[inline]
    pub(super) fn through_cache(
        &mut self,
        volume: u32,
        mut guest: Guest,
        mut request: GuestRequest,
    ) -> Option<(Guest, GuestRequest)> {
        let live = self.volumes[volume as usize].as_mut();
        let live = live.expect("it has connections");
        let (Some(cached), Some(cache)) = (&mut live.cached, &mut self.cache) else {
            return Some((guest, request));
        };
        let memory = &mut cache.memory;
        cached.answered += 1;
        if let (GuestOp::Read, Some(buf)) = (request.op, &guest.buf) {
            let copy = |at: usize, bytes: &[u8]| {
                let to = HEAD + at..HEAD + at + bytes.len();
                buf.fill(to, |to| to.copy_from_slice(bytes));
            };
            if cached.cache.read(memory, &request, copy) {
                let latency_ns = self.now_ns.saturating_sub(guest.arrival_ns);
                live.engine.answered_from_memory(self.now_ns, latency_ns);
                cached.answered_by_cache(&self.second);
                guest.from_memory = true;
                self.ready(volume, guest, request, Ok(()));
                return None;
            }
            (guest, request) = self.read_second(volume, guest, request)?;
        }
        Some(self.past_cache(volume, guest, request))
    }

    /// Prepares a request that the cache cannot answer for the engine.
    pub(super) fn past_cache(
        &mut self,
        volume: u32,
        mut guest: Guest,
        mut request: GuestRequest,
    ) -> (Guest, GuestRequest) {
        let live = self.volumes[volume as usize].as_mut();
        let live = live.expect("it has connections");
        let (Some(cached), Some(cache)) = (&mut live.cached, &mut self.cache) else {
            return (guest, request);
        };
        let memory = &mut cache.memory;
        if request.op == GuestOp::Read && guest.buf.is_some() {
            let (offset, length) = cached.cache.whole(memory, &request);
            // A late change may still be in flight on the rest of the pages, and a widened read would wait for it.
            let may = length <= WHOLE_MAX
                && cache.widened + length <= WIDENED_MAX
                && self.now_ns >= cached.narrow_until_ns
                && !live.engine.has_late_changes();
            if length != request.length && may {
                cache.widened += length;
                let whole = self.pool.take(HEAD + length as usize);
                let buf = guest.buf.replace(whole).expect("it has one");
                guest.asked = Some(Box::new(OriginalRequest { request, buf }));
                request = GuestRequest {
                    offset,
                    length,
                    ..request
                };
            }
        }
        guest.pass = cached.cache.pass(memory, &request);
        (guest, request)
    }

    /// Completes a request of the engine in the cache: keeps the pages that may be kept, and returns the request of the
    /// guest. Returns none if a widened read has failed: the request is then submitted again as the guest made it.
    pub(super) fn cached_over(
        &mut self,
        volume: u32,
        mut guest: Guest,
        request: GuestRequest,
        result: Result<(), Fault>,
    ) -> Option<(Guest, GuestRequest)> {
        let live = self.volumes[volume as usize].as_mut();
        let live = live.expect("it has requests");
        let mut kept = false;
        if let (Some(cached), Some(cache)) = (&mut live.cached, &mut self.cache) {
            let memory = &mut cache.memory;
            let moves_data = matches!(request.op, GuestOp::Read | GuestOp::Write);
            match (&guest.buf, result) {
                (_, Err(_)) => {
                    cached.cache.over(memory, guest.pass, &request, None);
                }
                (Some(buf), Ok(())) if moves_data => {
                    let bytes = HEAD..HEAD + request.length as usize;
                    buf.with(bytes, |data| {
                        kept = cached.cache.over(memory, guest.pass, &request, Some(data));
                    });
                }
                (_, Ok(())) => {
                    cached.cache.over(memory, guest.pass, &request, Some(&[]));
                }
            }
        }
        if let (true, Some(buf)) = (kept, guest.buf.clone()) {
            self.fill_second(volume, &request, &buf);
        }
        let Some(asked) = guest.asked.take() else {
            return Some((guest, request));
        };
        let OriginalRequest {
            request: wanted,
            buf,
        } = *asked;
        let whole = guest
            .buf
            .replace(buf.clone())
            .expect("it was read into one");
        if let Some(cache) = &mut self.cache {
            cache.widened -= request.length;
        }
        if result.is_err() {
            // The request does not include the rest of the pages, which may be the only unreadable part.
            self.pool.give(whole);
            let live = self.volumes[volume as usize].as_mut().expect("as above");
            if let (Some(cached), Some(cache)) = (&mut live.cached, &self.cache) {
                cached.narrow_until_ns = self.now_ns + NARROW_NS;
                guest.pass = cached.cache.pass(&cache.memory, &wanted);
            }
            live.engine.submit(self.now_ns, guest, wanted);
            return None;
        }
        let from = HEAD + (wanted.offset - request.offset) as usize;
        whole.with(from..from + wanted.length as usize, |bytes| {
            let to = HEAD..HEAD + bytes.len();
            buf.fill(to, |to| to.copy_from_slice(bytes));
        });
        self.pool.give(whole);
        Some((guest, wanted))
    }

    /// Invalidates the cached pages of all volumes, or of those that have data on one device.
    pub(super) fn forget_cached(&mut self, on: Option<DeviceId>) {
        let Some(cache) = &mut self.cache else {
            return;
        };
        for live in self.volumes.iter_mut().flatten() {
            let Some(cached) = &mut live.cached else {
                continue;
            };
            match on {
                None => cached.cache.keep_nothing(),
                Some(device) if live.engine.map().holders().iter().any(|h| h.0 == device) => {
                    cached.cache.forget(&mut cache.memory);
                }
                Some(_) => {}
            }
        }
        if on.is_none() {
            cache.memory.clear_all();
        }
    }

    /// Adapts the cache to a volume that has grown: the volume starts with no cached pages.
    pub(super) fn cached_grew(&mut self, volume: u32) {
        let live = self.volumes[volume as usize].as_mut();
        let live = live.expect("it has grown");
        let (Some(cached), Some(cache)) = (&mut live.cached, &mut self.cache) else {
            return;
        };
        let size = live.engine.map().size().0;
        if let Err(why) = cached.cache.grew(&mut cache.memory, size) {
            tracing::warn!(volume = live.name, %why, "the volume is not cached any more");
            live.cached = None;
        }
    }

    /// Ends the cache of a volume that is not served any more.
    pub(super) fn end_cache(&mut self, live: &mut LiveVolume) {
        if let (Some(cached), Some(cache)) = (live.cached.take(), &mut self.cache) {
            cached.cache.end(&mut cache.memory);
        }
    }

    /// Returns the state of the cache of a volume, if the volume is cached.
    pub(super) fn cache_sample(&self, live: &LiveVolume) -> Option<CacheSample> {
        let cached = live.cached.as_ref()?;
        let (worker, now_ns) = (self.index, self.now_ns);
        let cache = self.cache.as_ref();
        cache.map(|cache| cache.sample(cached, worker, now_ns))
    }

    /// Ends overdue lent parts, and reports the end of slices and hours to the policy. Runs at each tick, after the
    /// assessment of latencies.
    pub(super) fn tick_cache(&mut self) {
        self.end_lent_parts();
        let Some(cache) = &mut self.cache else {
            return;
        };
        self.volumes
            .iter_mut()
            .flatten()
            .for_each(LiveVolume::stood);
        if self.now_ns < cache.slice_ends_ns {
            return;
        }
        cache.slice_ends_ns = self.now_ns + cache.slice_ns;
        cache.slices += 1;
        let ends_hour = cache.slices.is_multiple_of(cache.slices_per_hour);
        let mut over = vec![];
        for live in self.volumes.iter_mut().flatten() {
            let Some(cached) = &mut live.cached else {
                continue;
            };
            let (ios, sum, in_slice) = cached.responses;
            let number = cached.cache.volume().index();
            if over.len() <= number {
                over.resize(number + 1, None);
            }
            over[number] = (in_slice > 0).then(|| sum / ios as f64);
            cached.responses.2 = 0;
            if ends_hour {
                cached.responses = (0, 0.0, 0);
            }
        }
        cache.memory.pages_mut().slice_ended(&over);
        if ends_hour {
            cache.memory.hour_ended();
        }
    }
}
