//! The worker's cache on the way of its volumes' requests: [`crate::cached`] has the rules, this file has buffers and answers.

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

/// Whole pages are read for a request only up to so many bytes: no device has to take larger requests than guests may make.
pub(super) const WHOLE_MAX: u64 = 1 << 20;

/// So many bytes of whole pages may be under way at once, beside what guests asked for; more are read as they were asked for, and not kept.
pub(super) const WIDENED_MAX: u64 = 32 << 20;

/// Where whole pages could not be read, requests go as they are for so long: what is beside them may hang.
const NARROW_NS: u64 = 10_000_000_000;

/// What a guest asked for, while whole pages are read for it.
#[derive(Debug)]
pub(super) struct Asked {
    request: GuestRequest,
    buf: Arc<Buf>,
}

/// The cache of a worker, and the time that its policy counts in.
pub(super) struct WorkerCache {
    pub(super) memory: CacheMemory,
    slice_ns: u64,
    slices_per_hour: u32,
    slice_ends_ns: u64,
    slices: u32,
    /// Bytes of whole pages that are being read.
    widened: u64,
    /// What classes have of it.
    pub(super) classes: BTreeMap<String, ClassShare>,
    /// Shares that volumes begin with.
    pub(super) of_volumes: BTreeMap<String, f64>,
}

/// The cached pages of a volume that is served.
#[derive(Debug)]
pub(super) struct LiveCache {
    pub(super) cache: VolumeCache,
    pub(super) parts: Parts,
    /// Its class is to have nothing.
    pub(super) class_has_none: bool,
    /// Until then no more is read than what is asked for.
    narrow_until_ns: u64,
    /// Requests that were answered since the last look at how the volume stands.
    answered: u64,
    /// Requests that the cache answered while it had a second level as an answer to a broken objective.
    pub(super) by_appliance: u64,
    /// Since the hour began: requests, and their response times over the objective, weighted with them; then requests of the slice.
    responses: (u64, f64, u64),
}

/// How the cache of a volume is; counters only grow while it is cached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheSample {
    /// Bytes that are cached.
    pub bytes: Bytes,
    /// The part that it has for itself; none where it has what is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Bytes>,
    /// Of what kind that is, where it has it for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent: Option<LentPart>,
    /// The cache that it is in.
    #[serde(default)]
    pub of: CacheOfWorker,
    /// What it shares with others of its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_part: Option<Bytes>,
    /// Nothing of it is kept: its share is nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept_out: bool,
    /// Accesses to pages, and what they found.
    #[serde(flatten)]
    pub counts: PageCounts,
    /// Requests that the cache, memory or second level, answered while that was an answer to a broken objective.
    #[serde(default)]
    pub by_appliance: u64,
    /// Its priority, percent, under a policy that has priorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_percent: Option<i32>,
}

/// A worker's cache: each has one for its volumes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheOfWorker {
    /// The worker's number.
    pub worker: usize,
    /// What it holds.
    pub size: Bytes,
    /// Size of its pages.
    pub page: Bytes,
    /// Whether volumes can be given parts of it as answers: not under policies without parts, nor where classes have theirs.
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

    /// A volume of so many bytes, at rest, is cached from now on; none, with a word in the log, where it cannot be.
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

    /// Whether an operator has said who has what.
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
    /// A request was answered without any device.
    pub(super) fn answered_by_cache(&mut self, second: &WorkerSecond) {
        if self.cache.has_second() {
            self.by_appliance += u64::from(second.is_remedy());
        }
    }
}

impl LiveVolume {
    /// What was answered since the last look stood like this to the objective.
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
    /// Answers a read from memory, or prepares a request for the engine; none if it is answered.
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

    /// Prepares a request for the engine, which the cache cannot answer.
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
            // What was answered late may still be under way beside it, and it would wait for that.
            let may = length <= WHOLE_MAX
                && cache.widened + length <= WIDENED_MAX
                && self.now_ns >= cached.narrow_until_ns
                && !live.engine.has_late_changes();
            if length != request.length && may {
                cache.widened += length;
                let whole = self.pool.take(HEAD + length as usize);
                let buf = guest.buf.replace(whole).expect("it has one");
                guest.asked = Some(Box::new(Asked { request, buf }));
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

    /// The engine is done with a request: keeps what may be kept, and gives the guest what it asked for. None where that is read once
    /// more, without the rest of its pages.
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
        let Asked {
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
            // Of what is beside it nobody wants to know: it may be that alone that cannot be read.
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

    /// Nothing that was cached of any volume may be used any more, or of those that have something on one device.
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

    /// A volume is larger: its cache begins anew.
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

    /// A volume is not served any more.
    pub(super) fn end_cache(&mut self, live: &mut LiveVolume) {
        if let (Some(cached), Some(cache)) = (live.cached.take(), &mut self.cache) {
            cached.cache.end(&mut cache.memory);
        }
    }

    /// How the cache of a volume is, if it is cached.
    pub(super) fn cache_sample(&self, live: &LiveVolume) -> Option<CacheSample> {
        let cached = live.cached.as_ref()?;
        let (worker, now_ns) = (self.index, self.now_ns);
        let cache = self.cache.as_ref();
        cache.map(|cache| cache.sample(cached, worker, now_ns))
    }

    /// Once in a while, after a look at how volumes stand: what policies want to know of time.
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
