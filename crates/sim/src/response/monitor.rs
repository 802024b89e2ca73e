//! What is measured of one workload: samples every ten seconds, reuse times, heavy zones.

use std::collections::VecDeque;

use algo::mix;
use slo::curve::{Curve, ReuseTimes};
use slo::zones::{Zone, ZoneCounter};
use slo::{Busy, Sample};
use units::Bytes;

use super::backend::Taken;
use super::load::LoadOp;

/// Length of a window of zones and of reuse times, in samples: five minutes.
const WINDOW_SAMPLES: u32 = 30;
/// Windows of reuse times, the current one included: what is older is not what the load is like now.
const WINDOWS: usize = 2;
/// And windows of zones, the current one included.
const ZONE_WINDOWS: usize = 4;
/// Above so many objects every eighth is looked at for reuse and working sets, and every eighth request for zones.
const ALL_UP_TO: u32 = 1 << 20;
const SAMPLED: u32 = 8;

pub(super) struct Monitor {
    object_bytes: u32,
    zone_objects: u32,
    sampled: u32,
    /// By object: 1 + number of the read that was its last; 0 for none since a write.
    last_read: Vec<u32>,
    /// By object: 1 + number of the sample in which it was touched last.
    last_sample: Vec<u32>,
    reads: u32,
    issues: u32,
    samples: u32,
    reuse: VecDeque<ReuseTimes>,
    zones: VecDeque<ZoneCounter>,
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
    latency_ns: u64,
    read_bytes: u64,
    write_bytes: u64,
    sequential: u64,
    touched: u64,
    backend_reads: u64,
    memory_hits: u64,
    by_reads: Taken,
    by_writes: Taken,
}

/// What a completed request was.
pub(super) struct Completed {
    pub(super) op: LoadOp,
    pub(super) latency_ns: u64,
    pub(super) bytes: u64,
}

impl Monitor {
    pub(super) fn new(objects: u32, object_bytes: u32, zone: Bytes) -> Self {
        Self {
            object_bytes,
            zone_objects: (zone.0 / u64::from(object_bytes)).max(1) as u32,
            sampled: if objects > ALL_UP_TO { SAMPLED } else { 1 },
            last_read: vec![0; objects as usize],
            last_sample: vec![0; objects as usize],
            reads: 0,
            issues: 0,
            samples: 0,
            reuse: VecDeque::from([ReuseTimes::default()]),
            zones: VecDeque::from([ZoneCounter::default()]),
            sums: Sums::default(),
            log: None,
        }
    }

    /// Objects of a zone.
    pub(super) fn zone_objects(&self) -> u32 {
        self.zone_objects
    }

    /// One of how many objects is looked at for reuse.
    pub(super) fn sampled(&self) -> u32 {
        self.sampled
    }

    /// A request is issued.
    #[inline]
    pub(super) fn issued(&mut self, object: u32, op: LoadOp, follows: bool) {
        self.sums.sequential += u64::from(follows);
        let read = op == LoadOp::Read;
        self.reads += u32::from(read);
        self.issues = self.issues.wrapping_add(1);
        if self.issues.is_multiple_of(self.sampled) {
            self.zones[0].record(u64::from(object / self.zone_objects));
        }
        if self.sampled > 1
            && !mix(0x5A3, u64::from(object)).is_multiple_of(u64::from(self.sampled))
        {
            return;
        }
        let at = object as usize;
        if self.last_sample[at] != self.samples + 1 {
            self.last_sample[at] = self.samples + 1;
            self.sums.touched += 1;
        }
        if let Some(log) = &mut self.log {
            log.push(if read { object } else { object | WROTE });
        }
        if read {
            let before = self.last_read[at];
            let ago = (before > 0).then(|| u64::from(self.reads - (before - 1)));
            self.reuse[0].record(ago.filter(|a| *a > 0));
            self.last_read[at] = self.reads + 1;
        } else {
            // A cache that writes around has forgotten it.
            self.last_read[at] = 0;
        }
    }

    pub(super) fn completed(&mut self, request: &Completed) {
        let sums = &mut self.sums;
        sums.latency_ns += request.latency_ns;
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

    /// Ends a sample of `seconds`; disks are one resource of `disks` seconds a second.
    pub(super) fn sample(
        &mut self,
        seconds: f64,
        disks: u32,
        occupied: f64,
        waiting: u64,
    ) -> Sample {
        let s = std::mem::take(&mut self.sums);
        let requests = s.reads + s.writes;
        let share = |ns: u64, of: f64| ns as f64 / 1e9 / seconds / of;
        let busy = |reads: u64, writes: u64, of: f64| Busy {
            reads: share(reads, of),
            writes: share(writes, of),
        };
        let disks = f64::from(disks);
        let sample = Sample {
            reads_per_s: s.reads as f64 / seconds,
            writes_per_s: s.writes as f64 / seconds,
            latency_us: (requests > 0).then(|| s.latency_ns as f64 / requests as f64 / 1e3),
            bytes_per_s: (s.read_bytes + s.write_bytes) as f64 / seconds,
            bytes_read_per_s: s.read_bytes as f64 / seconds,
            sequential: s.sequential as f64 / requests.max(1) as f64,
            occupied,
            waiting,
            working_set: Bytes(s.touched * u64::from(self.sampled) * u64::from(self.object_bytes)),
            backend_reads_per_s: s.backend_reads as f64 / seconds,
            memory_hits: (s.backend_reads > 0)
                .then(|| s.memory_hits as f64 / s.backend_reads as f64),
            busy: vec![
                busy(s.by_reads.disk_ns, s.by_writes.disk_ns, disks),
                busy(s.by_reads.link_ns, s.by_writes.link_ns, 1.0),
            ],
        };
        self.samples += 1;
        if self.samples.is_multiple_of(WINDOW_SAMPLES) {
            self.reuse.push_front(ReuseTimes::default());
            self.reuse.truncate(WINDOWS);
            self.zones.push_front(ZoneCounter::default());
            self.zones.truncate(ZONE_WINDOWS);
        }
        sample
    }

    /// Miss ratios of the reads of the last five to ten minutes, from working sets; `None` with too few reads.
    pub(super) fn curve(&self) -> Option<Curve> {
        let mut all = ReuseTimes::default();
        self.reuse.iter().for_each(|r| all.merge(r));
        const ENOUGH: u64 = 5_000;
        (all.total() >= ENOUGH).then(|| all.curve(Bytes(u64::from(self.object_bytes))))
    }

    /// Heavy zones of the window `ago` windows before the latest one that has enough in it, or of the oldest that there is; none
    /// where that is the latest itself.
    pub(super) fn zones(&self, ago: usize) -> Vec<Zone> {
        let latest = usize::from(self.samples % WINDOW_SAMPLES < WINDOW_SAMPLES / 2);
        let window = (latest + ago).min(self.zones.len() - 1);
        if ago > 0 && window <= latest {
            return Vec::new();
        }
        self.zones[window].heavy()
    }
}

/// Miss ratios of an LRU cache at `sizes` (in objects) over the reads of `log` from `from` on, exactly: a tree over positions
/// says how many distinct objects were read since.
pub(super) fn exact_lru(log: &[u32], from: usize, objects: u32, sizes: &[u64]) -> Vec<f64> {
    let mut last = vec![0u32; objects as usize];
    let mut tree = vec![0i32; log.len() + 2];
    let add = |tree: &mut Vec<i32>, mut at: usize, by: i32| {
        while at < tree.len() {
            tree[at] += by;
            at += at & at.wrapping_neg();
        }
    };
    let upto = |tree: &Vec<i32>, mut at: usize| {
        let mut sum = 0i64;
        while at > 0 {
            sum += i64::from(tree[at]);
            at -= at & at.wrapping_neg();
        }
        sum
    };
    let (mut reads, mut misses) = (0u64, vec![0u64; sizes.len()]);
    let mut held = 0i64;
    for (i, entry) in log.iter().enumerate() {
        let (object, position) = ((entry & !WROTE) as usize, i + 1);
        let before = std::mem::take(&mut last[object]) as usize;
        let mut distance = None;
        if before > 0 {
            distance = Some((held - upto(&tree, before)) as u64);
            add(&mut tree, before, -1);
            held -= 1;
        }
        if entry & WROTE != 0 {
            continue;
        }
        add(&mut tree, position, 1);
        held += 1;
        last[object] = position as u32;
        if i >= from {
            reads += 1;
            for (size, count) in sizes.iter().zip(&mut misses) {
                *count += u64::from(distance.is_none_or(|d| d >= *size));
            }
        }
    }
    misses
        .iter()
        .map(|m| *m as f64 / reads.max(1) as f64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use algo::Rng;

    #[test]
    fn exact_distances_are_those_of_a_list() {
        let mut rng = Rng::new(8, 8);
        let log: Vec<u32> = (0..4000)
            .map(|_| rng.below(60) as u32 | if rng.below(9) == 0 { WROTE } else { 0 })
            .collect();
        let sizes = [1, 5, 20, 59];
        let found = exact_lru(&log, 1000, 60, &sizes);
        for (size, found) in sizes.iter().zip(found) {
            let mut list: Vec<u32> = Vec::new();
            let (mut reads, mut misses) = (0, 0);
            for (i, entry) in log.iter().enumerate() {
                let object = entry & !WROTE;
                // What was written is forgotten; what lies behind it moves up.
                let hit = list.iter().position(|o| *o == object);
                list.retain(|o| *o != object);
                if entry & WROTE != 0 {
                    continue;
                }
                if i >= 1000 {
                    reads += 1;
                    misses += u32::from(hit.is_none_or(|h| h as u64 >= *size));
                }
                list.insert(0, object);
            }
            assert!((found - f64::from(misses) / f64::from(reads)).abs() < 1e-12);
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
                latency_ns: 2_000_000,
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
        let sample = monitor.sample(10.0, 10, 0.5, 3);
        assert_eq!(sample.reads_per_s, 0.4);
        assert_eq!(sample.latency_us, Some(2000.0));
        assert_eq!(sample.sequential, 0.25);
        assert_eq!(sample.working_set, Bytes(3 * 4096));
        assert_eq!(sample.memory_hits, Some(0.5));
        assert_eq!((sample.busy[0].reads, sample.busy[1].reads), (0.1, 0.5));
        assert_eq!(monitor.sample(10.0, 10, 0.0, 0).rate_per_s(), 0.0);
    }
}
