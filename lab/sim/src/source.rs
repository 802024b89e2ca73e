//! Sources of requests with one small interface: traces (open, with limited outstanding requests, or played at other
//! times), closed-loop clients and generators.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use algo::{JitterTable, mix};
use model::Op;
use trace::{Client, ClientStep, Record};
use units::VolumeId;

use crate::Model;
use crate::generator::GeneratorSource;
use crate::played::PlayedSource;

/// Time of a source without further requests.
pub(crate) const NEVER: u64 = u64::MAX;

/// Request that can be issued.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Issue {
    pub(crate) volume: u32,
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// Start of the latency: the time in the trace for open replay, otherwise the time of the issue.
    pub(crate) arrival_ns: u64,
    /// Random bits of the request.
    pub(crate) bits: u64,
}

pub(crate) enum Source<'a> {
    Trace(TraceSource<'a>),
    Played(Box<PlayedSource<'a>>),
    Client(Box<ClientSource>),
    Generator(Box<GeneratorSource<'a>>),
}

pub(crate) struct TraceSource<'a> {
    records: &'a [Record],
    volumes: Vec<u32>,
    position: usize,
    rounds_left: u32,
    /// Time of record 0 in this replay.
    origin_ns: u64,
    round_ns: u64,
    /// Simulated nanoseconds per nanosecond of the trace.
    scale: f64,
    window: Option<Window>,
    stream: u64,
    issued: u64,
}

/// Completion times of outstanding requests, if their number is limited.
pub(crate) struct Window {
    limit: usize,
    completions: BinaryHeap<Reverse<u64>>,
    /// Number of outstanding requests with unknown completion times.
    on_their_way: usize,
    /// Due time of the request that waits for one of them.
    waits: Option<u64>,
}

pub(crate) struct ClientSource {
    client: Client,
    volume: u32,
    stream: u64,
    issued: u64,
}

/// Returns all sources of a model. For every event id, also returns its source and slot, and its first time.
pub(crate) fn sources(model: &Model) -> (Vec<Source<'_>>, Vec<(u32, u32)>, Vec<u64>) {
    let mut sources = Vec::new();
    let mut origins = Vec::new();
    let mut starts = Vec::new();
    let exponential = Arc::new(JitterTable::exponential());
    for (i, t) in model.traces.iter().enumerate() {
        if let Some(rates) = &t.rates {
            let of = (mix(model.seed, 0x7_0000 + i as u64), model.duration_max.0);
            let played = PlayedSource::new(t, rates, Arc::clone(&exponential), of);
            origins.push((sources.len() as u32, 0));
            starts.push(played.begins_ns());
            sources.push(Source::Played(Box::new(played)));
            continue;
        }
        let records = t.trace.records();
        let scale = 1.0 / t.speed;
        let source = TraceSource {
            records,
            volumes: t.volumes.iter().map(|v| v.0).collect(),
            position: 0,
            rounds_left: t.repeat - 1,
            origin_ns: t.start.0,
            round_ns: t.period.0,
            scale,
            window: t.outstanding.map(Window::new),
            stream: mix(model.seed, 0x7_0000 + i as u64),
            issued: 0,
        };
        origins.push((sources.len() as u32, 0));
        starts.push(if records.is_empty() {
            NEVER
        } else {
            source.due_ns()
        });
        sources.push(Source::Trace(source));
    }
    for (i, c) in model.clients.iter().enumerate() {
        let volume = &model.volumes[c.volume.index()];
        let client = Client::new(&c.spec, volume.size, model.seed, 0xC_0000 + i as u64)
            .expect("checked when built");
        for slot in 0..client.slots() {
            origins.push((sources.len() as u32, slot));
            starts.push(0);
        }
        let stream = mix(model.seed, 0xC0_0000 + i as u64);
        sources.push(Source::Client(Box::new(ClientSource {
            client,
            volume: c.volume.0,
            stream,
            issued: 0,
        })));
    }
    for i in 0..model.generators.len() {
        let source = GeneratorSource::new(model, i);
        origins.push((sources.len() as u32, 0));
        starts.push(source.due_ns());
        sources.push(Source::Generator(Box::new(source)));
    }
    (sources, origins, starts)
}

/// Returns the largest number of requests that a volume's sources may have outstanding together. `None` if a source has
/// no such limit, or one for several volumes together.
pub(crate) fn outstanding_max(model: &Model, volume: VolumeId) -> Option<u64> {
    let mut most = 0;
    for trace in model.traces.iter().filter(|t| t.volumes.contains(&volume)) {
        let alone = trace.volumes.iter().all(|v| *v == volume);
        most += u64::from(trace.outstanding.filter(|_| alone)?);
    }
    if model.generators.iter().any(|g| g.volumes.contains(&volume)) {
        return None;
    }
    let size = model.volumes[volume.index()].size;
    for client in model.clients.iter().filter(|c| c.volume == volume) {
        let client = Client::new(&client.spec, size, 0, 0).expect("checked when built");
        most += u64::from(client.slots());
    }
    (most > 0).then_some(most)
}

impl Source<'_> {
    /// Takes the source's request at `now_ns`, its due time; `Err` with another time if no request is due.
    #[inline]
    pub(crate) fn take(&mut self, now_ns: u64, slot: u32) -> Result<Issue, u64> {
        match self {
            Source::Trace(t) => Ok(t.take(now_ns)),
            Source::Played(p) => Ok(p.take(now_ns)),
            Source::Generator(g) => Ok(g.take()),
            Source::Client(c) => match c.client.next(now_ns, slot) {
                ClientStep::Later(at) => Err(at),
                ClientStep::Issue(r) => {
                    c.issued += 1;
                    Ok(Issue {
                        volume: c.volume,
                        op: r.op,
                        offset: r.offset,
                        length: u64::from(r.length),
                        arrival_ns: now_ns,
                        bits: mix(c.stream, c.issued),
                    })
                }
            },
        }
    }

    /// Returns the volume of a client; `None` for traces, and for sources that do not wait for replies.
    pub(crate) fn client_volume(&self) -> Option<u32> {
        match self {
            Source::Trace(_) | Source::Played(_) | Source::Generator(_) => None,
            Source::Client(c) => Some(c.volume),
        }
    }

    /// Returns true if the source waits for replies. Open replay and generators do not.
    pub(crate) fn waits(&self) -> bool {
        !matches!(
            self,
            Source::Generator(_) | Source::Trace(TraceSource { window: None, .. })
        )
    }

    /// Returns the number of a volume's requests that were due by `now_ns` and are not issued. It is 0 for open replay,
    /// which issues every request when it is due, and for a played trace, which draws its next request after the last
    /// issue.
    pub(crate) fn behind(&self, now_ns: u64, volume: u32) -> u64 {
        match self {
            Source::Trace(t) => t.behind(now_ns, volume),
            Source::Client(c) if c.volume == volume => c.client.behind(now_ns),
            Source::Client(_) | Source::Played(_) | Source::Generator(_) => 0,
        }
    }

    /// Returns the time of the source's next request, if the last one was issued at `now_ns` and completes at
    /// `done_ns`.
    #[inline]
    pub(crate) fn next_after(&mut self, now_ns: u64, done_ns: u64) -> u64 {
        match self {
            Source::Trace(t) => t.next_after(now_ns, done_ns),
            Source::Played(p) => p.next_after(now_ns, done_ns),
            Source::Client(c) => done_ns + c.client.think_ns(),
            Source::Generator(g) => g.due_ns().max(now_ns),
        }
    }
}

impl Source<'_> {
    /// Returns the time of the source's next request, if the last one was issued at `now_ns` with an unknown completion
    /// time. `None` if the source waits for a reply, see [`Source::answered`].
    pub(crate) fn set_out(&mut self, now_ns: u64) -> Option<u64> {
        match self {
            Source::Trace(t) => t.set_out(now_ns),
            Source::Played(p) => p.set_out(now_ns),
            Source::Client(_) => None,
            Source::Generator(g) => Some(g.due_ns().max(now_ns)),
        }
    }

    /// Returns true if the next request waits for a reply in transit.
    pub(crate) fn is_waiting(&self) -> bool {
        match self {
            Source::Trace(t) => t.window.as_ref().is_some_and(Window::is_waiting),
            Source::Played(p) => p.is_waiting(),
            Source::Client(_) | Source::Generator(_) => false,
        }
    }

    /// Handles such a reply. Returns the time of the next request, if the source has waited for the reply.
    pub(crate) fn answered(&mut self, now_ns: u64) -> Option<u64> {
        match self {
            Source::Trace(t) => t.window.as_mut()?.answered(now_ns),
            Source::Played(p) => p.answered(now_ns),
            Source::Client(c) => Some(now_ns + c.client.think_ns()),
            Source::Generator(_) => None,
        }
    }
}

impl TraceSource<'_> {
    fn set_out(&mut self, now_ns: u64) -> Option<u64> {
        let at_ns = self.next_due(now_ns);
        match &mut self.window {
            None => Some(at_ns),
            Some(window) => window.set_out(at_ns),
        }
    }

    #[inline]
    fn due_ns(&self) -> u64 {
        self.due_of(&self.records[self.position])
    }

    #[inline]
    fn due_of(&self, record: &Record) -> u64 {
        let time = record.time_ns;
        self.origin_ns
            + if self.scale == 1.0 {
                time
            } else {
                (time as f64 * self.scale) as u64
            }
    }

    /// Returns the number of requests to a volume in this replay that were due and are not issued.
    fn behind(&self, now_ns: u64, volume: u32) -> u64 {
        if self.window.is_none() {
            return 0;
        }
        let left = &self.records[self.position..];
        let due = left.partition_point(|r| self.due_of(r) < now_ns);
        let of_volume = |r: &&Record| self.volumes[r.volume() as usize] == volume;
        match self.volumes.iter().all(|v| *v == volume) {
            true => due as u64,
            false => left[..due].iter().filter(of_volume).count() as u64,
        }
    }

    #[inline]
    fn take(&mut self, now_ns: u64) -> Issue {
        let record = &self.records[self.position];
        let arrival_ns = if self.window.is_some() {
            now_ns
        } else {
            self.due_ns()
        };
        self.position += 1;
        self.issued += 1;
        Issue {
            volume: self.volumes[record.volume() as usize],
            op: record.op(),
            offset: record.offset_bytes,
            length: u64::from(record.length_bytes),
            arrival_ns,
            bits: mix(self.stream, self.issued),
        }
    }

    #[inline]
    fn next_after(&mut self, now_ns: u64, done_ns: u64) -> u64 {
        match (self.next_due(now_ns), &mut self.window) {
            (NEVER, _) => NEVER,
            (at, None) => at,
            (at, Some(window)) => window.admit(at, done_ns),
        }
    }

    /// Returns the due time of the next request, not before now; [`NEVER`] if there is none.
    #[inline]
    fn next_due(&mut self, now_ns: u64) -> u64 {
        if self.position == self.records.len() {
            if self.rounds_left == 0 {
                return NEVER;
            }
            self.rounds_left -= 1;
            self.position = 0;
            self.origin_ns += self.round_ns;
        }
        self.due_ns().max(now_ns)
    }
}

impl Window {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit: limit as usize,
            completions: BinaryHeap::with_capacity(limit as usize + 1),
            on_their_way: 0,
            waits: None,
        }
    }

    /// Returns the time of the next request, `at_ns` or later, after one was issued with an unknown completion time.
    /// `None` if the time is unknown.
    pub(crate) fn set_out(&mut self, at_ns: u64) -> Option<u64> {
        self.on_their_way += 1;
        if self.on_their_way < self.limit || at_ns == NEVER {
            return Some(at_ns);
        }
        self.waits = Some(at_ns);
        None
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waits.is_some()
    }

    /// Handles a reply. Returns the time of the request that waited for it.
    pub(crate) fn answered(&mut self, now_ns: u64) -> Option<u64> {
        self.on_their_way -= 1;
        self.waits.take().map(|at_ns| at_ns.max(now_ns))
    }

    /// Returns the time of the next request, `at_ns` or later, after one was issued that completes at `done_ns`.
    #[inline]
    pub(crate) fn admit(&mut self, mut at_ns: u64, done_ns: u64) -> u64 {
        self.completions.push(Reverse(done_ns));
        if self.completions.len() == self.limit {
            let Reverse(first) = self.completions.pop().expect("just pushed");
            at_ns = at_ns.max(first);
        }
        while self.completions.peek().is_some_and(|c| c.0 <= at_ns) {
            self.completions.pop();
        }
        at_ns
    }
}
