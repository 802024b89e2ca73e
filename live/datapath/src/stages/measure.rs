//! Measurements of one volume: latency by direction and size, queue depth, bytes, heat of extents, reuse of pages.
//!
//! Counters start when measuring is switched on, or at its last reset. Latency is that of the guest: from the arrival
//! of the request's last byte until its reply is passed to the socket, including injected delays and throttling.

use std::borrow::Cow;
use std::collections::VecDeque;

use algo::Histogram;
use serde::{Deserialize, Serialize};
use units::Bytes;
use volume::VolumeMap;

use super::{Completion, Stage};
use crate::control_server::{ControlAnswer, ControlServer};
use crate::counts::{Arrivals, Counts, DirectionCounts, saturated};
use crate::engine::{GuestOp, GuestRequest};
use crate::error::Result;
use crate::heat::{Heat, HeatMap, HeatSince};
use crate::reuse::{PAGE, Reuse, ReuseCounts};

/// Upper bounds of the size classes in bytes; one more class is above the last.
pub const SIZE_CLASSES: [u64; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// Names of the size classes.
pub const SIZE_NAMES: [&str; 5] = ["≤4 KiB", "≤16 KiB", "≤64 KiB", "≤256 KiB", ">256 KiB"];

/// Names of the directions.
pub const DIRECTIONS: [&str; 3] = ["read", "write", "other"];

/// Measures requests from their arrival to their reply.
#[derive(Debug)]
pub struct Measure {
    on: Option<Measurements>,
    /// Size of the pages whose reuse is counted.
    page: Bytes,
}

/// Initial settings.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// True if measuring is on from the start.
    pub on: bool,
    /// Size of the pages whose reuse is counted: that of the cache in front of the volume.
    pub page: Bytes,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            on: false,
            page: PAGE,
        }
    }
}

/// Measurements of one volume.
#[derive(Debug)]
struct Measurements {
    since_ns: u64,
    latency: Vec<Histogram>,
    requests: [u64; 3],
    bytes: [u64; 2],
    /// Total delay of replies to reads and to writes, in nanoseconds.
    held_ns: [u128; 2],
    errors: u64,
    outstanding: u32,
    outstanding_max: u32,
    waiting: ArrivalQueue,
    /// Integral of outstanding requests over time.
    depth_ns: u128,
    depth_since_ns: u64,
    arrivals: Arrivals,
    /// End of the last read or write.
    follows: u64,
    heat: Option<HeatMap>,
    reuse: Reuse,
    /// Reads that a cache served; `None` before the first.
    memory: Option<Box<MemoryReads>>,
}

/// Reads that no device took part in. They also count among all reads.
#[derive(Debug, Default)]
struct MemoryReads {
    latency: Histogram,
    bytes: u64,
    held_ns: u128,
}

/// Commands of the stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Command {
    /// Switch measuring on or off. Switching on resets all counters.
    Measure {
        /// Name of the volume.
        volume: String,
        on: bool,
    },
}

/// Status of the stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Measurements; `None` while measuring is off.
    pub measured: Option<MeasureStatus>,
}

/// Short status of the stage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Counters of the volume; `None` if it is not served or not measured.
    pub counts: Option<Counts>,
}

impl Measure {
    /// Switches measuring on or off. Either discards the measurements.
    pub(crate) fn switch(&mut self, on: bool, map: &VolumeMap, now_ns: u64) {
        let (extents, bytes) = (map.extents(), map.extent_bytes().0);
        self.on = on.then(|| Measurements::new(now_ns, extents, bytes, self.page));
    }

    /// Returns the heat of extents since the turn of an earlier look. `None` while measuring is off, or if the volume
    /// has more than [`crate::heat::HEAT_EXTENTS_MAX`] extents.
    pub(crate) fn heat(&mut self, since: Option<(u64, u32)>) -> Option<HeatSince> {
        let heat = self.on.as_mut()?.heat.as_mut();
        heat.map(|h| h.look(since))
    }

    /// Returns the reuse of pages; `None` while measuring is off and before the first read or write.
    pub(crate) fn reuse(&self) -> Option<ReuseCounts> {
        self.on.as_ref()?.reuse.look()
    }
}

impl Stage for Measure {
    type Setup = Setup;
    type Command = Command;
    const WORDS: &'static [&'static str] = &["measure"];
    type Status = Status;
    type Sample = Sample;

    fn new(setup: Setup, map: &VolumeMap, now_ns: u64) -> Self {
        let mut measure = Self {
            on: None,
            page: setup.page,
        };
        measure.switch(setup.on, map, now_ns);
        measure
    }

    #[inline]
    fn arrived(&mut self, now_ns: u64, request: &GuestRequest) -> u64 {
        if let Some(measurements) = &mut self.on {
            measurements.arrived(now_ns, request);
        }
        0
    }

    #[inline]
    fn answered(&mut self, request: &GuestRequest, how: &Completion) {
        if let Some(measurements) = &mut self.on {
            measurements.answered(request, how);
        }
    }

    /// Restarts the counters of extents, because their number has changed.
    fn grew(&mut self, map: &VolumeMap, now_ns: u64) {
        if let Some(measured) = &mut self.on {
            let before = measured.heat.as_ref().map_or(0, HeatMap::since_ns);
            let anew_ns = now_ns.max(before + 1);
            measured.heat = HeatMap::new(anew_ns, map.extents(), map.extent_bytes().0);
        }
    }

    fn status(&self, now_ns: u64) -> Status {
        Status {
            measured: self.on.as_ref().map(|m| m.read(now_ns)),
        }
    }

    fn sample(&self, at_ns: u64) -> Sample {
        Sample {
            counts: self.on.as_ref().map(|m| m.counts(at_ns)),
        }
    }

    fn carry_out(command: Command, control_server: &ControlServer) -> Result<ControlAnswer> {
        let Command::Measure { volume, on } = command;
        control_server.at_stages(&volume, move |v| {
            v.stages.measure.switch(on, v.map, v.now_ns);
            Ok(())
        })?;
        let how = if on {
            "measured from now on"
        } else {
            "not measured"
        };
        Ok(ControlAnswer::done(format!("volume {volume} is {how}")))
    }
}

/// Measurements up to now.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct MeasureStatus {
    /// Measured time in seconds.
    pub seconds: f64,
    /// Directions: read, write, other.
    pub directions: Vec<Direction>,
    /// Failed requests.
    pub errors: u64,
    /// Requests in flight now.
    pub outstanding: u32,
    /// Most requests that were in flight at once.
    pub outstanding_max: u32,
    /// Mean number of requests in flight.
    pub queue_depth_mean: f64,
    /// Number of touched extents; 0 if the volume has too many extents to count ([`crate::heat::HEAT_EXTENTS_MAX`]).
    pub extents_touched: u64,
    /// The extents with most accesses, hottest first.
    pub hottest: Vec<(u32, Heat)>,
}

/// Measurements of one direction.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Direction {
    pub name: Cow<'static, str>,
    pub requests: u64,
    pub bytes: u64,
    pub latency: Latency,
    /// Latency by size class, without empty classes.
    pub sizes: Vec<(Cow<'static, str>, Latency)>,
}

/// A latency distribution in microseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Default)]
pub struct Latency {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
}

impl Latency {
    /// Converts a histogram of nanoseconds.
    pub fn of(histogram: &Histogram) -> Self {
        let us = |q| histogram.quantile_ns(q) as f64 / 1e3;
        if histogram.count() == 0 {
            return Self::default();
        }
        Self {
            count: histogram.count(),
            mean_us: histogram.mean_us(),
            p50_us: us(0.5),
            p95_us: us(0.95),
            p99_us: us(0.99),
            p999_us: us(0.999),
        }
    }
}

/// Arrival times of outstanding requests, oldest first.
///
/// Arrivals never decrease. Requests with equal arrival therefore share the last entry, and a completed request is
/// found by its arrival time, usually at the front. Entries without outstanding requests are dropped from the front.
/// If they are most of the list, all of them are dropped. The list is thus bounded by the requests in flight,
/// independent of the age of the oldest one.
#[derive(Debug, Default)]
struct ArrivalQueue {
    /// Arrival time, with the number of its outstanding requests.
    arrivals: VecDeque<(u64, u32)>,
    /// Number of entries without outstanding requests.
    gone: usize,
}

/// Entries without outstanding requests that are tolerated before the list is compacted.
const GONE_MIN: usize = 64;

impl ArrivalQueue {
    #[inline]
    fn arrived(&mut self, now_ns: u64) {
        match self.arrivals.back_mut() {
            Some((at, n)) if *at == now_ns => {
                self.gone -= usize::from(*n == 0);
                *n += 1;
            }
            _ => self.arrivals.push_back((now_ns, 1)),
        }
    }

    /// Removes a request by its arrival. A request that arrived before the start of measuring is not in the list.
    #[inline]
    fn answered(&mut self, arrival_ns: u64) {
        let first = self.arrivals.front().is_some_and(|f| f.0 == arrival_ns);
        let at = if first {
            0
        } else {
            let Ok(at) = self.arrivals.binary_search_by_key(&arrival_ns, |a| a.0) else {
                return;
            };
            at
        };
        let n = &mut self.arrivals[at].1;
        if *n == 0 {
            return;
        }
        *n -= 1;
        if *n > 0 {
            return;
        }
        self.gone += 1;
        while self.arrivals.front().is_some_and(|f| f.1 == 0) {
            self.arrivals.pop_front();
            self.gone -= 1;
        }
        if self.gone > GONE_MIN.max(self.arrivals.len() / 2) {
            self.arrivals.retain(|a| a.1 > 0);
            self.gone = 0;
        }
    }

    /// Returns the ages of outstanding requests as counts by bucket, ascending.
    fn ages(&self, at_ns: u64) -> Vec<(u16, u64)> {
        let mut ages: Vec<(u16, u64)> = vec![];
        for (arrival_ns, n) in self.arrivals.iter().rev().filter(|a| a.1 > 0) {
            // The number of buckets fits: it is a few thousand.
            let bucket = algo::bucket_of(at_ns.saturating_sub(*arrival_ns)) as u16;
            match ages.last_mut() {
                Some((last, sum)) if *last == bucket => *sum += u64::from(*n),
                _ => ages.push((bucket, u64::from(*n))),
            }
        }
        ages
    }
}

fn direction(op: GuestOp) -> usize {
    match op {
        GuestOp::Read => 0,
        GuestOp::Write => 1,
        _ => 2,
    }
}

/// Number of extents in the list of the hottest.
const HOTTEST: usize = 16;

impl Measurements {
    /// Creates counters at zero.
    fn new(now_ns: u64, extents: usize, extent_bytes: u64, page: Bytes) -> Self {
        Self {
            since_ns: now_ns,
            latency: vec![Histogram::default(); DIRECTIONS.len() * SIZE_NAMES.len()],
            requests: [0; 3],
            bytes: [0; 2],
            held_ns: [0; 2],
            errors: 0,
            outstanding: 0,
            outstanding_max: 0,
            waiting: ArrivalQueue::default(),
            depth_ns: 0,
            depth_since_ns: now_ns,
            arrivals: Arrivals::default(),
            follows: u64::MAX,
            heat: HeatMap::new(now_ns, extents, extent_bytes),
            reuse: Reuse::new(page),
            memory: None,
        }
    }

    fn depth_ns_at(&self, at_ns: u64) -> u128 {
        let tail = u128::from(at_ns.saturating_sub(self.depth_since_ns));
        self.depth_ns + tail * u128::from(self.outstanding)
    }

    fn occupied_ns_at(&self, at_ns: u64) -> u64 {
        let tail = at_ns.saturating_sub(self.depth_since_ns);
        self.arrivals.occupied_ns + if self.outstanding > 0 { tail } else { 0 }
    }

    fn depth_until(&mut self, now_ns: u64) {
        self.depth_ns = self.depth_ns_at(now_ns);
        self.arrivals.occupied_ns = self.occupied_ns_at(now_ns);
        self.depth_since_ns = now_ns;
    }

    /// Counts the arrival of a request.
    #[inline]
    fn arrived(&mut self, now_ns: u64, request: &GuestRequest) {
        self.depth_until(now_ns);
        self.outstanding += 1;
        self.outstanding_max = self.outstanding_max.max(self.outstanding);
        self.waiting.arrived(now_ns);
        self.arrivals.all += 1;
        if matches!(request.op, GuestOp::Read | GuestOp::Write) {
            self.arrivals.sequential += u64::from(request.offset == self.follows);
            self.follows = request.offset + request.length;
        }
        self.reuse.count(request);
    }

    /// Counts a completed request. One that arrived before the start of measuring counts as completed, but not as
    /// outstanding.
    #[inline]
    fn answered(&mut self, request: &GuestRequest, how: &Completion) {
        self.depth_until(how.at_ns);
        self.outstanding = self.outstanding.saturating_sub(1);
        self.waiting.answered(how.arrival_ns);
        let dir = direction(request.op);
        if how.from_memory {
            let memory = self.memory.get_or_insert_default();
            memory.latency.record(how.latency_ns());
            memory.bytes += request.length;
            memory.held_ns += u128::from(how.held_ns);
        } else if let Some(heat) = &mut self.heat {
            // Heat decides on places, so only requests that reach devices count.
            heat.count(how.at_ns, request);
        }
        if !how.ok {
            self.errors += 1;
            return;
        }
        self.requests[dir] += 1;
        if dir < 2 {
            self.bytes[dir] += request.length;
            self.held_ns[dir] += u128::from(how.held_ns);
        }
        let above = |bound: &&u64| request.length > **bound;
        let size = SIZE_CLASSES.iter().filter(above).count();
        self.latency[dir * SIZE_NAMES.len() + size].record(how.latency_ns());
    }

    /// Returns the counters. The integral of the queue depth extends to `at_ns`, or to the last change if that was
    /// later.
    fn counts(&self, at_ns: u64) -> Counts {
        let n = SIZE_NAMES.len();
        let of = |directions: &[Histogram], dir: usize| {
            let mut all = Histogram::default();
            directions.iter().for_each(|h| all.merge(h));
            DirectionCounts::of(&all, self.bytes[dir], self.held_ns[dir])
        };
        Counts {
            since_ns: self.since_ns,
            reads: of(&self.latency[..n], 0),
            writes: of(&self.latency[n..], 1),
            errors: self.errors,
            outstanding: self.outstanding,
            waiting: self.waiting.ages(at_ns),
            depth_ns: saturated(self.depth_ns_at(at_ns)),
            from_memory: self.memory.as_ref().map_or_else(Default::default, |m| {
                DirectionCounts::of(&m.latency, m.bytes, m.held_ns)
            }),
            arrivals: Some(Arrivals {
                occupied_ns: self.occupied_ns_at(at_ns),
                ..self.arrivals
            }),
        }
    }

    /// Returns the measurements up to now.
    fn read(&self, now_ns: u64) -> MeasureStatus {
        let n = SIZE_NAMES.len();
        let directions = (0..DIRECTIONS.len()).map(|d| {
            let mut all = Histogram::default();
            let mut sizes = vec![];
            for (size, histogram) in SIZE_NAMES.iter().zip(&self.latency[d * n..(d + 1) * n]) {
                all.merge(histogram);
                if histogram.count() > 0 {
                    sizes.push((Cow::Borrowed(*size), Latency::of(histogram)));
                }
            }
            Direction {
                name: Cow::Borrowed(DIRECTIONS[d]),
                requests: self.requests[d],
                bytes: self.bytes.get(d).copied().unwrap_or(0),
                latency: Latency::of(&all),
                sizes,
            }
        });
        let heat = self.heat.as_ref().map(|h| h.hottest(HOTTEST));
        let (extents_touched, hottest) = heat.unwrap_or_default();
        let span_ns = now_ns.saturating_sub(self.since_ns);
        let depth_ns = self.depth_ns_at(now_ns);
        MeasureStatus {
            seconds: span_ns as f64 / 1e9,
            directions: directions.collect(),
            errors: self.errors,
            outstanding: self.outstanding,
            outstanding_max: self.outstanding_max,
            queue_depth_mean: depth_ns as f64 / (span_ns as f64).max(1.0),
            extents_touched,
            hottest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::tests::request;

    fn answered(at_ns: u64, latency_ns: u64) -> Completion {
        Completion {
            at_ns,
            arrival_ns: at_ns - latency_ns,
            held_ns: 0,
            ok: true,
            from_memory: false,
        }
    }

    #[test]
    fn counters_cover_two_directions_and_only_they_have_bytes() {
        let at = |ns: u64| 1_000_000 + ns;
        let mut measure = Measurements::new(at(100), 4, 1 << 20, PAGE);
        let read = request(GuestOp::Read, 0, 4096);
        let write = request(GuestOp::Write, 0, 1 << 20);
        let trim = request(GuestOp::Trim, 0, 1 << 20);
        let flush = request(GuestOp::Flush, 0, 0);
        for one in [&read, &read, &write, &trim, &flush, &read] {
            measure.arrived(at(1000), one);
        }
        let held = |at_ns, latency_ns, held_ns| Completion {
            held_ns,
            ..answered(at_ns, latency_ns)
        };
        measure.answered(&read, &held(at(2000), 1000, 300));
        measure.answered(&read, &held(at(2000), 1_000_000, 200));
        measure.answered(&write, &held(at(2000), 1000, 50));
        measure.answered(&trim, &answered(at(2000), 5000));
        measure.answered(&flush, &answered(at(2000), 5000));
        let failed = Completion {
            ok: false,
            ..held(at(3000), 9000, 7000)
        };
        measure.answered(&read, &failed);
        let counts = measure.counts(at(3500));
        let Counts { reads, writes, .. } = &counts;
        assert_eq!((reads.ios, reads.bytes), (2, 8192));
        assert_eq!((reads.sum_ns, reads.held_ns), (1_001_000, 500));
        let bucket = |ns| algo::bucket_of(ns) as u16;
        assert_eq!(reads.buckets, [(bucket(1000), 1), (bucket(1_000_000), 1)]);
        assert_eq!((writes.ios, writes.bytes), (3, 1 << 20));
        assert_eq!((writes.sum_ns, writes.held_ns), (11_000, 50));
        assert_eq!(writes.buckets, [(bucket(1000), 1), (bucket(5000), 2)]);
        assert_eq!((counts.since_ns, counts.errors), (at(100), 1));
        assert_eq!((counts.outstanding, counts.depth_ns), (0, 6000 + 1000));
    }

    #[test]
    fn waiting_requests_are_counted_by_age() {
        let mut measure = Measurements::new(0, 1, 1 << 20, PAGE);
        let read = request(GuestOp::Read, 0, 512);
        for at in [1_000, 1_000, 400_000, 900_000] {
            measure.arrived(at, &read);
        }
        measure.answered(&read, &answered(950_000, 550_000)); // the one of 400 us
        let bucket = |ns| algo::bucket_of(ns) as u16;
        let want = vec![(bucket(100_000), 1), (bucket(999_000), 2)];
        assert_eq!(measure.counts(1_000_000).waiting, want);
        measure.answered(&read, &answered(1_000_000, 999_000));
        measure.answered(&read, &answered(1_000_000, 100_000));
        assert_eq!(measure.counts(2_001_000).waiting, [(bucket(2_000_000), 1)]);
        // A request that arrived before the start of measuring matches no entry.
        measure.answered(&read, &answered(2_001_000, 2_000_500));
        measure.answered(&read, &answered(3_001_000, 3_000_000));
        assert_eq!(measure.counts(9_000_000).waiting, []);
    }

    proptest::proptest! {
        #[test]
        fn waiting_requests_match_a_list_as_oracle(steps in proptest::collection::vec((0u64..3, proptest::option::of(0usize..8)), 0..2_000)) {
            let (mut waiting, mut list, mut now) = (ArrivalQueue::default(), vec![], 0);
            for (passed, answer) in steps {
                now += passed * 1_000;
                match answer {
                    // The oldest request stays, like one that hangs.
                    Some(i) if i + 1 < list.len() => waiting.answered(list.remove(i + 1)),
                    _ => {
                        waiting.arrived(now);
                        list.push(now);
                    }
                }
                let bound = 2 * (list.len() + GONE_MIN) + 2;
                proptest::prop_assert!(waiting.arrivals.len() <= bound, "{}", waiting.arrivals.len());
            }
            let mut want = std::collections::BTreeMap::new();
            for at in &list {
                *want.entry(algo::bucket_of(now - at) as u16).or_insert(0u64) += 1;
            }
            proptest::prop_assert_eq!(waiting.ages(now), want.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn disabled_measurement_has_no_values_and_restarts_at_zero() {
        let map = crate::stages::tests::map();
        let mut measure = Measure::new(
            Setup {
                on: true,
                page: PAGE,
            },
            &map,
            0,
        );
        let read = request(GuestOp::Read, 0, 4096);
        let serve = |measure: &mut Measure| {
            measure.arrived(1000, &read);
            measure.answered(&read, &answered(2000, 1000));
            let sample = measure.sample(2000);
            sample.counts.map(|c| (c.since_ns, c.reads.ios))
        };
        assert_eq!(serve(&mut measure), Some((0, 1)));
        assert!(measure.reuse().is_some() && measure.heat(None).is_some());
        measure.switch(false, &map, 3000);
        assert_eq!(serve(&mut measure), None);
        assert_eq!(measure.status(4000), Status::default());
        assert!(measure.reuse().is_none() && measure.heat(None).is_none());
        measure.switch(true, &map, 500);
        assert_eq!(serve(&mut measure), Some((500, 1)));
    }

    #[test]
    fn queue_depth_accumulates_between_events_and_never_decreases() {
        let mut measure = Measurements::new(0, 1, 1 << 20, PAGE);
        measure.arrived(1000, &request(GuestOp::Read, 0, 512));
        assert_eq!(measure.counts(1500).depth_ns, 500);
        assert_eq!(measure.counts(900).depth_ns, 0);
        measure.answered(&request(GuestOp::Read, 0, 512), &answered(1500, 500));
        assert_eq!(measure.counts(1400).depth_ns, 500);
    }

    #[test]
    fn arrivals_and_busy_time_are_counted() {
        let mut measure = Measurements::new(0, 1, 1 << 20, PAGE);
        let read = |offset| request(GuestOp::Read, offset, 4096);
        measure.arrived(1_000, &read(0));
        measure.arrived(2_000, &request(GuestOp::Write, 4096, 512));
        measure.arrived(2_000, &request(GuestOp::Flush, 0, 0));
        for _ in 0..3 {
            measure.answered(&read(0), &answered(5_000, 3_000));
        }
        // 4,000 ns with requests in flight, then none, then one that is not completed.
        let of = |measure: &Measurements, at| measure.counts(at).arrivals.unwrap();
        assert_eq!(of(&measure, 9_000).occupied_ns, 4_000);
        measure.arrived(10_000, &read(4096 + 512));
        let arrivals = of(&measure, 12_000);
        assert_eq!((arrivals.all, arrivals.sequential), (4, 2));
        assert_eq!(arrivals.occupied_ns, 6_000);
        let earlier = Arrivals {
            all: 1,
            sequential: 0,
            occupied_ns: 500,
        };
        let since = arrivals.since(&earlier).unwrap();
        assert_eq!((since.all, since.occupied_ns), (3, 5_500));
        assert_eq!(earlier.since(&arrivals), None);
    }

    #[test]
    fn measured_counts_match_the_requests() {
        let mut measure = Measurements::new(0, 4, 1 << 20, PAGE);
        let a = request(GuestOp::Read, 0, 4096);
        let b = request(GuestOp::Write, 1 << 20, 1 << 20);
        measure.arrived(0, &a);
        measure.arrived(500, &b);
        measure.answered(&a, &answered(1000, 1000));
        measure.answered(&b, &answered(2000, 1500));
        let read = measure.read(2000);
        assert_eq!((read.outstanding, read.outstanding_max), (0, 2));
        assert!((read.queue_depth_mean - 1.25).abs() < 1e-9);
        assert_eq!(read.directions[0].requests, 1);
        assert_eq!(read.directions[1].bytes, 1 << 20);
        assert_eq!(read.directions[1].sizes[0].0, ">256 KiB");
        assert_eq!(read.extents_touched, 2);
        assert_eq!(
            read.hottest[0],
            (
                0,
                Heat {
                    reads: 1,
                    writes: 0
                }
            )
        );
    }
}
