//! Tags: requests that the device holds, and its choice of the next one to begin.
//!
//! ```text
//!  service ─▶ waiting in a tag ─▶ begun, when the resource of its first page is free ─▶ completed: the tag is free
//!                   └─ wakes the run at that time
//! ```

use super::{Event, Host};
use crate::drive::Op;
use crate::ftl::TenantId;
use crate::host::load::RecordedRequest;
use crate::host::plan::Target;

/// Number of times that other requests may overtake a request in a tag.
const PASSED_MAX: u32 = 64;

#[derive(Debug, Clone, Copy)]
pub(super) struct TaggedRequest {
    tenant: usize,
    from_ns: u64,
    request: RecordedRequest,
    passed: u32,
    /// Earliest possible start: units are not free before the predicted time.
    ready_ns: u64,
}

/// Requests that the device holds. Their number is limited by the tags, so a run does not allocate.
#[derive(Debug)]
pub(super) struct Tags {
    /// Waiting requests, oldest first.
    waiting: Vec<TaggedRequest>,
    /// Requests in progress.
    begun: Vec<Option<TaggedRequest>>,
    free_places: Vec<usize>,
    /// Next time at which the run checks the tags, if nothing else happens.
    wake_ns: u64,
    /// First requests of the tenants, for the service.
    heads: Vec<Option<(u64, u32)>>,
}

impl Tags {
    pub(super) fn new(tags: usize, tenants: usize) -> Self {
        Self {
            waiting: Vec::with_capacity(tags),
            begun: vec![None; tags],
            free_places: (0..tags).rev().collect(),
            wake_ns: u64::MAX,
            heads: Vec::with_capacity(tenants),
        }
    }

    fn are_left(&self) -> bool {
        self.waiting.len() < self.free_places.len()
    }

    /// Takes back a tenant's requests that have not begun.
    pub(super) fn take_back(&mut self, tenant: usize) {
        self.waiting.retain(|t| t.tenant != tenant);
    }

    /// Marks waiting writes for a new check, because the next page to be programmed has changed. A read whose page was
    /// moved by collection keeps the time of its old unit.
    pub(super) fn look_again(&mut self) {
        for tagged in self
            .waiting
            .iter_mut()
            .filter(|t| t.request.op == Op::Write)
        {
            tagged.ready_ns = 0;
        }
    }

    /// Returns true if this is the requested time of a check. The run may have found an earlier time since it requested
    /// this one.
    pub(super) fn woken(&mut self, now: u64) -> bool {
        let due = self.wake_ns <= now;
        if due {
            self.wake_ns = u64::MAX;
        }
        due
    }

    fn ended(&mut self, place: usize) -> Option<TaggedRequest> {
        let tagged = self.begun[place].take()?;
        self.free_places.push(place);
        Some(tagged)
    }
}

impl<T: Target> Host<'_, T> {
    /// Assigns tags, begins the requests that the device can begin, and schedules the next check.
    pub(super) fn dispatch(&mut self) {
        loop {
            self.give_tags();
            let Some(next) = self.device_picks() else {
                break;
            };
            let tagged = self.tags.waiting.remove(next);
            for earlier in &mut self.tags.waiting[..next] {
                earlier.passed += 1;
            }
            self.begin_work(tagged);
        }
        let ready = self.tags.waiting.iter().map(|t| t.ready_ns).min();
        if let Some(ready) = ready.filter(|at| *at < self.tags.wake_ns) {
            self.tags.wake_ns = ready;
            self.at(ready, Event::Ready);
        }
    }

    fn give_tags(&mut self) {
        while self.tags.are_left() {
            let now = self.now;
            let heads = self.states.iter().map(|s| {
                let head = s.waiting.front();
                let head = head.filter(|(at, _)| *at <= now && s.id.is_some());
                head.map(|(at, r)| (*at, r.bytes))
            });
            self.tags.heads.clear();
            self.tags.heads.extend(heads);
            let Some(tenant) = self.server.pick(&self.tags.heads) else {
                return;
            };
            let Some((from_ns, request)) = self.states[tenant].waiting.pop_front() else {
                return;
            };
            self.tags.waiting.push(TaggedRequest {
                tenant,
                from_ns,
                request,
                passed: 0,
                ready_ns: 0,
            });
        }
    }

    /// Returns the request that the device begins now, if any can begin: reads first, then the oldest. No request waits
    /// for ever.
    fn device_picks(&mut self) -> Option<usize> {
        if self.tags.waiting.first()?.passed >= PASSED_MAX {
            return Some(0);
        }
        let now = self.now;
        let mut first: Option<(bool, usize)> = None;
        for (i, t) in self.tags.waiting.iter_mut().enumerate() {
            if t.ready_ns > now {
                continue;
            }
            let id = self.states[t.tenant].id.unwrap_or(TenantId(0));
            let RecordedRequest {
                op, offset, bytes, ..
            } = t.request;
            t.ready_ns = self.target.ready_ns(now, id, op, offset, bytes.into());
            let key = (op != Op::Read, i);
            if t.ready_ns <= now && first.is_none_or(|f| key < f) {
                first = Some(key);
            }
        }
        first.map(|(_, i)| i)
    }

    fn begin_work(&mut self, tagged: TaggedRequest) {
        let state = &mut self.states[tagged.tenant];
        let Some(id) = state.id else {
            return;
        };
        let r = tagged.request;
        let served = self
            .target
            .serve(self.now, id, r.op, r.offset, r.bytes.into());
        self.server.charge(tagged.tenant, served.device_ns);
        if self.counting {
            state.device_ns += served.device_ns;
        }
        if r.op == Op::Write {
            self.tags.look_again();
        }
        let Some(place) = self.tags.free_places.pop() else {
            return;
        };
        self.tags.begun[place] = Some(tagged);
        self.at(served.done_ns, Event::Answer(place));
    }

    pub(super) fn answered(&mut self, place: usize) {
        let Some(tagged) = self.tags.ended(place) else {
            return;
        };
        let state = &mut self.states[tagged.tenant];
        if state.gone {
            return;
        }
        let bytes = u64::from(tagged.request.bytes);
        // Trims move no data and take no time, so counting them as requests would flatter the result.
        let counts = tagged.request.op != Op::Trim;
        if counts {
            state.interval.requests += 1;
            state.interval.bytes += bytes;
        }
        if self.counting && counts {
            state.requests += 1;
            state.reads += u64::from(tagged.request.op == Op::Read);
            state.bytes += bytes;
            state.latency.record(self.now - tagged.from_ns);
            let window = (self.now - self.config.warmup.0) / self.window_ns;
            if let Some(sum) = state.series.get_mut(window as usize) {
                *sum += bytes;
            }
        }
        let plan = &self.plans[tagged.tenant];
        if plan.rate.is_none() && plan.depth > 0 {
            self.ask(tagged.tenant);
        }
    }
}
