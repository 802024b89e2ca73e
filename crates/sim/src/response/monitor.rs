//! What is measured of one workload: samples every ten seconds, reuse times, heavy zones.

use algo::Histogram;
use algo::mrc::Exact;
use algo::objective::Overdue;
use slo::curve::Curve;
use slo::zones::Zone;
use slo::{Busy, Sample};
use units::{Bytes, Nanos};

use super::backend::Taken;
use super::load::LoadOp;
use crate::access::Accesses;

pub(super) struct Monitor {
    accesses: Accesses,
    /// Latencies of the sample that is going on.
    latencies: Histogram,
    sums: Sums,
    /// Reads since the start of those objects that are looked at, if they are wanted; writes have the top bit.
    pub(super) log: Option<Vec<u32>>,
}

/// Marks a write in the log.
pub(super) const WROTE: u32 = 1 << 31;

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    reads: u64,
    writes: u64,
    read_bytes: u64,
    write_bytes: u64,
    backend_reads: u64,
    memory_hits: u64,
    by_reads: Taken,
    by_writes: Taken,
}

/// What stood before a workload's storage in a sample; see [`Sample`] for what each is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Queue {
    pub(super) occupied: f64,
    pub(super) limited: f64,
    pub(super) waiting: u64,
    pub(super) overdue: Overdue,
}

/// What a completed request was.
pub(super) struct Completed {
    pub(super) op: LoadOp,
    pub(super) latency_ns: u64,
    pub(super) bytes: u64,
}

/// Above so many objects every eighth is looked at.
const ALL_UP_TO: u32 = 1 << 20;
const SAMPLED: u32 = 8;

impl Monitor {
    pub(super) fn new(objects: u32, object_bytes: u32, zone: Bytes) -> Self {
        Self {
            accesses: {
                let sampled = if objects > ALL_UP_TO { SAMPLED } else { 1 };
                Accesses::new(objects, object_bytes, zone, sampled)
            },
            latencies: Histogram::default(),
            sums: Sums::default(),
            log: None,
        }
    }

    /// Objects of a zone.
    pub(super) fn zone_objects(&self) -> u32 {
        self.accesses.zone_objects()
    }

    /// One of how many objects is looked at for reuse.
    pub(super) fn sampled(&self) -> u32 {
        self.accesses.sampled()
    }

    /// A request is issued.
    #[inline]
    pub(super) fn issued(&mut self, object: u32, op: LoadOp, follows: bool) {
        let read = op == LoadOp::Read;
        let looked_at = self.accesses.issued(object, read, follows);
        if let Some(log) = self.log.as_mut().filter(|_| looked_at) {
            log.push(if read { object } else { object | WROTE });
        }
    }

    pub(super) fn completed(&mut self, request: &Completed) {
        let sums = &mut self.sums;
        self.latencies.record(request.latency_ns);
        match request.op {
            LoadOp::Read => {
                sums.reads += 1;
                sums.read_bytes += request.bytes;
            }
            LoadOp::Write => {
                sums.writes += 1;
                sums.write_bytes += request.bytes;
            }
        }
    }

    /// A read gets to the backend; whether its memory has it.
    pub(super) fn backend_read(&mut self, hit: bool) {
        self.sums.backend_reads += 1;
        self.sums.memory_hits += u64::from(hit);
    }

    pub(super) fn took(&mut self, op: LoadOp, taken: Taken) {
        let by = match op {
            LoadOp::Read => &mut self.sums.by_reads,
            LoadOp::Write => &mut self.sums.by_writes,
        };
        by.disk_ns += taken.disk_ns;
        by.link_ns += taken.link_ns;
    }

    /// Ends a sample; disks are one resource of `disks` seconds a second.
    pub(super) fn sample(&mut self, lasting: Nanos, disks: u32, queue: Queue) -> Sample {
        let seconds = lasting.as_secs_f64();
        let s = std::mem::take(&mut self.sums);
        let requests = s.reads + s.writes;
        let latencies = (requests > 0).then(|| self.latencies.summary());
        self.latencies.clear();
        let share = |ns: u64, of: f64| ns as f64 / 1e9 / seconds / of;
        let busy = |reads: u64, writes: u64, of: f64| {
            Some(Busy {
                reads: share(reads, of),
                writes: share(writes, of),
            })
        };
        let disks = f64::from(disks);
        let touched = self.accesses.end_sample();
        Sample {
            lasting,
            reads_per_s: s.reads as f64 / seconds,
            writes_per_s: s.writes as f64 / seconds,
            latency_us: latencies.map(|l| l.mean_us),
            p50_us: latencies.map(|l| l.p50_us),
            p99_us: latencies.map(|l| l.p99_us),
            late: None,
            bytes_per_s: (s.read_bytes + s.write_bytes) as f64 / seconds,
            bytes_read_per_s: s.read_bytes as f64 / seconds,
            sequential: Some(touched.sequential as f64 / requests.max(1) as f64),
            occupied: queue.occupied,
            limited: queue.limited,
            waiting: queue.waiting,
            overdue: queue.overdue.count,
            overdue_us: (queue.overdue.count > 0)
                .then(|| queue.overdue.age_ns as f64 / 1e3 / queue.overdue.count as f64),
            working_set: Some(touched.working_set),
            backend_reads_per_s: s.backend_reads as f64 / seconds,
            memory_hits: (s.backend_reads > 0)
                .then(|| s.memory_hits as f64 / s.backend_reads as f64),
            busy: vec![
                busy(s.by_reads.disk_ns, s.by_writes.disk_ns, disks),
                busy(s.by_reads.link_ns, s.by_writes.link_ns, 1.0),
            ],
        }
    }

    /// See [`Accesses::curve`].
    pub(super) fn curve(&self) -> Option<Curve> {
        self.accesses.curve()
    }

    /// See [`Accesses::zones`].
    pub(super) fn zones(&self, ago: usize) -> Vec<Zone> {
        self.accesses.zones(ago)
    }
}

/// Miss ratios of an LRU cache at `sizes` (in objects) over the reads of `log` from `from` on, exactly; a write drops its object.
pub(super) fn exact_lru(log: &[u32], from: usize, sizes: &[u64]) -> Vec<f64> {
    let mut exact = Exact::new();
    let (before, after) = log.split_at(from.min(log.len()));
    follow(&mut exact, before);
    let hits = |exact: &Exact| -> Vec<u64> { sizes.iter().map(|s| exact.hits(*s)).collect() };
    let (reads_before, hits_before) = (exact.references(), hits(&exact));
    follow(&mut exact, after);
    let reads = (exact.references() - reads_before).max(1) as f64;
    let pairs = hits(&exact).into_iter().zip(hits_before);
    pairs
        .map(|(all, before)| 1.0 - (all - before) as f64 / reads)
        .collect()
}

fn follow(exact: &mut Exact, log: &[u32]) {
    for alike in log.chunk_by(|a, b| (a ^ b) & WROTE == 0) {
        if alike[0] & WROTE == 0 {
            exact.feed(alike);
        } else {
            alike.iter().for_each(|w| exact.invalidate(w & !WROTE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use algo::{Popularity, Rng};
    use std::collections::BTreeMap;

    /// A cache of `size` objects that writes go around and that drops what they write; misses of the reads from `from` on.
    fn simulated(log: &[u32], from: usize, size: usize) -> f64 {
        let mut order: BTreeMap<usize, u32> = BTreeMap::new();
        let mut when: BTreeMap<u32, usize> = BTreeMap::new();
        let (mut reads, mut misses) = (0, 0);
        for (now, entry) in log.iter().enumerate() {
            let object = entry & !WROTE;
            let held = when.remove(&object);
            held.map(|then| order.remove(&then));
            if entry & WROTE != 0 {
                continue;
            }
            if now >= from {
                reads += 1;
                misses += u32::from(held.is_none());
            }
            if order.len() == size {
                let (_, evicted) = order.pop_first().expect("it is full");
                when.remove(&evicted);
            }
            order.insert(now, object);
            when.insert(object, now);
        }
        f64::from(misses) / f64::from(reads)
    }

    fn log(objects: u64, theta: f64, writes: f64, n: usize, seed: u64) -> Vec<u32> {
        let (popularity, mut rng) = (Popularity::new(objects, theta), Rng::new(seed, 8));
        let mut one = || {
            let object = popularity.page(rng.next_u64()) as u32;
            let wrote = rng.unit() < writes;
            if wrote { object | WROTE } else { object }
        };
        (0..n).map(|_| one()).collect()
    }

    #[test]
    fn exact_ratios_are_those_of_a_cache() {
        let log = log(60, 0.5, 0.1, 4000, 8);
        let sizes = [1, 5, 20, 40, 60];
        let found = exact_lru(&log, 1000, &sizes);
        for (size, found) in sizes.iter().zip(found) {
            let want = simulated(&log, 1000, *size as usize);
            assert!((found - want).abs() < 1e-12, "size {size}: {found} {want}");
        }
    }

    /// Writes free room, which the next reads take: three in ten of the requests.
    #[test]
    fn curves_know_what_writes_drop() {
        const OBJECTS: u64 = 8000;
        for (theta, writes) in [(0.9, 0.3), (0.6, 0.3), (0.9, 0.0)] {
            let log = log(OBJECTS, theta, writes, 240_000, 3);
            let mut monitor = Monitor::new(OBJECTS as u32, 4096, Bytes::mib(1));
            let mut from = 0;
            // Three windows and a half, of which the last one and a half count.
            for (i, sample) in log.chunks(log.len() / 105).enumerate() {
                for entry in sample {
                    let op = if entry & WROTE == 0 {
                        LoadOp::Read
                    } else {
                        LoadOp::Write
                    };
                    monitor.issued(entry & !WROTE, op, false);
                }
                monitor.sample(slo::SAMPLE, 1, Queue::default());
                if i + 1 == 60 {
                    from = 60 * (log.len() / 105);
                }
            }
            let curve = monitor.curve().expect("enough reads");
            let sizes: Vec<u64> = (1..=16).map(|i| i * OBJECTS / 16).collect();
            let exact = exact_lru(&log, from, &sizes);
            for (size, want) in sizes.iter().zip(exact) {
                let ours = curve.at(Bytes(4096 * size));
                assert!(
                    (ours - want).abs() <= 0.02,
                    "theta {theta}, writes {writes}, size {size}: {ours} {want}"
                );
            }
        }
    }

    #[test]
    fn a_sample_adds_up() {
        let mut monitor = Monitor::new(100, 4096, Bytes::mib(1));
        for object in [1, 2, 3, 1] {
            monitor.issued(object, LoadOp::Read, object == 2);
            monitor.backend_read(object == 1);
            let completed = Completed {
                op: LoadOp::Read,
                latency_ns: if object == 3 { 7_000_000 } else { 2_000_000 },
                bytes: 4096,
            };
            monitor.completed(&completed);
        }
        monitor.took(
            LoadOp::Read,
            Taken {
                disk_ns: 10_000_000_000,
                link_ns: 5_000_000_000,
            },
        );
        let queue = Queue {
            occupied: 0.5,
            limited: 0.25,
            waiting: 3,
            overdue: Overdue {
                count: 2,
                age_ns: 30_000_000,
            },
        };
        let sample = monitor.sample(slo::SAMPLE, 10, queue);
        assert_eq!(
            (sample.occupied, sample.limited, sample.waiting),
            (0.5, 0.25, 3)
        );
        assert_eq!((sample.overdue, sample.overdue_us), (2, Some(15_000.0)));
        assert_eq!(sample.reads_per_s, 0.4);
        assert_eq!(sample.latency_us, Some(3250.0));
        // Histograms keep quantiles to 0.8 %.
        let about = |us: Option<f64>, want: f64| (us.unwrap() / want - 1.0).abs() < 0.008;
        assert!(about(sample.p50_us, 2000.0) && about(sample.p99_us, 7000.0));
        assert_eq!(sample.sequential, Some(0.25));
        assert_eq!(sample.working_set, Some(Bytes(3 * 4096)));
        assert_eq!(sample.memory_hits, Some(0.5));
        let reads = |r: usize| sample.busy[r].unwrap().reads;
        assert_eq!((reads(0), reads(1)), (0.1, 0.5));
        let nothing = monitor.sample(slo::SAMPLE, 10, Queue::default());
        assert_eq!((nothing.rate_per_s(), nothing.p99_us), (0.0, None));
    }
}
