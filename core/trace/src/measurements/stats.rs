//! Statistics of measurements: means, peaks and working sets, per volume and in total.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Interval, MEASUREMENT_PAGE, MEASUREMENT_SLOT, Measurements};

/// Schema of [`LoadInfo`] as JSON.
pub const LOAD_SCHEMA: &str = "terrace.trace.load/1";

/// Statistics of [`Measurements`]. Serializes as schema [`LOAD_SCHEMA`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadInfo {
    /// [`LOAD_SCHEMA`].
    pub schema: &'static str,
    /// File name as given.
    pub file: String,
    /// Length of a slot in seconds.
    pub slot_s: f64,
    /// Bytes per access, the unit of the counts.
    pub access_bytes: u64,
    /// Sum over all volumes, as if all had started at the same time: slots of the same index are added. Its working set
    /// is the largest sum of a slot, its span is the longest one, and its number of intervals is that of distinct
    /// slots.
    pub total: LoadStats,
    /// Volumes in the order of the file.
    pub volumes: Vec<VolumeLoad>,
}

/// Statistics of one volume.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VolumeLoad {
    /// Name of the volume.
    pub name: String,
    /// Statistics.
    #[serde(flatten)]
    pub load: LoadStats,
}

/// Load over time. "IOPS" are accesses to 4 KiB pages per second, because requests were not counted. Peaks are over
/// slots of half an hour. A volume's last slot, which the end of the capture shortens, counts for a peak only if at
/// least half of it was measured, or if there is no other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LoadStats {
    /// Number of measured slots.
    pub intervals: u64,
    /// Measured time without gaps, seconds.
    pub measured_s: f64,
    /// Read accesses.
    pub reads_4k: u64,
    /// Write accesses.
    pub writes_4k: u64,
    /// Share of writes among all accesses, 0..=1; `null` without accesses.
    pub write_share: Option<f64>,
    /// Mean accesses per second of measured time.
    pub iops_4k_mean: f64,
    /// Accesses per second in the busiest slot.
    pub iops_4k_peak: f64,
    /// Mean bytes per second of measured time.
    pub bandwidth_bytes_per_s_mean: f64,
    /// Bytes per second in the busiest slot.
    pub bandwidth_bytes_per_s_peak: f64,
    /// Ratio of peak to mean, the same for IOPS and bandwidth; `null` without accesses.
    pub peak_to_mean: Option<f64>,
    /// Largest working set of a slot, in bytes.
    pub working_set_bytes_max: u64,
}

impl Interval {
    /// Returns the length in seconds, above zero.
    pub fn seconds(&self) -> f64 {
        self.end.saturating_sub(self.start).as_secs_f64()
    }

    /// Returns the accesses to 4 KiB pages, reads and writes. The reader checks that the sum does not overflow.
    pub fn pages(&self) -> u64 {
        self.read_pages.saturating_add(self.write_pages)
    }

    /// Returns the accesses to 4 KiB pages per second.
    pub fn iops_4k(&self) -> f64 {
        self.pages() as f64 / self.seconds()
    }

    fn counts_for_peak(&self) -> bool {
        long_enough(self.seconds())
    }
}

/// Returns true if the measured part of a slot is long enough for a comparable rate: at least half of the slot.
fn long_enough(seconds: f64) -> bool {
    2.0 * seconds >= MEASUREMENT_SLOT.as_secs_f64()
}

/// Returns the rate of the busiest interval: among the long ones, if there are any.
fn peak(rates: impl Iterator<Item = (bool, f64)>) -> f64 {
    let (long, any) = rates.fold(
        (None, 0f64),
        |(long, any): (Option<f64>, f64), (is_long, rate)| {
            let long = if is_long {
                Some(long.unwrap_or(0.0).max(rate))
            } else {
                long
            };
            (long, any.max(rate))
        },
    );
    long.unwrap_or(any)
}

impl LoadStats {
    /// Creates the statistics from sums and the rate of the busiest slot.
    fn new(
        intervals: u64,
        measured_s: f64,
        [reads_4k, writes_4k]: [u64; 2],
        peak: f64,
        working_set_bytes_max: u64,
    ) -> Self {
        let accesses = reads_4k as f64 + writes_4k as f64;
        let mean = if measured_s > 0.0 {
            accesses / measured_s
        } else {
            0.0
        };
        let page = MEASUREMENT_PAGE.as_f64();
        Self {
            intervals,
            measured_s,
            reads_4k,
            writes_4k,
            write_share: (accesses > 0.0).then(|| writes_4k as f64 / accesses),
            iops_4k_mean: mean,
            iops_4k_peak: peak,
            bandwidth_bytes_per_s_mean: mean * page,
            bandwidth_bytes_per_s_peak: peak * page,
            // A very short last slot counts only for the mean, which may then exceed all peaks.
            peak_to_mean: (mean > 0.0).then(|| (peak / mean).max(1.0)),
            working_set_bytes_max,
        }
    }

    /// Returns the statistics of one volume's intervals.
    pub fn of(intervals: &[Interval]) -> Self {
        Self::new(
            intervals.len() as u64,
            intervals.iter().map(Interval::seconds).sum(),
            sums(intervals),
            peak(intervals.iter().map(|i| (i.counts_for_peak(), i.iops_4k()))),
            intervals.iter().map(|i| i.working_set.0).max().unwrap_or(0),
        )
    }
}

fn sums(intervals: &[Interval]) -> [u64; 2] {
    intervals.iter().fold([0u64; 2], |[reads, writes], i| {
        [
            reads.saturating_add(i.read_pages),
            writes.saturating_add(i.write_pages),
        ]
    })
}

/// Activity of all volumes in one slot.
#[derive(Default)]
struct Slot {
    pages: u64,
    working_set: u64,
    /// Longest measured time of any volume.
    seconds: f64,
}

impl Measurements {
    /// Returns the statistics of every volume, in the order of [`Self::volumes`].
    pub fn loads(&self) -> Vec<LoadStats> {
        self.volumes
            .iter()
            .map(|v| LoadStats::of(&v.intervals))
            .collect()
    }

    /// Returns the statistics of all volumes together, as if all had started at the same time.
    pub fn total_load(&self) -> LoadStats {
        let mut slots: BTreeMap<u64, Slot> = BTreeMap::new();
        let mut pages = [0u64; 2];
        for volume in &self.volumes {
            let [reads, writes] = sums(&volume.intervals);
            pages = [
                pages[0].saturating_add(reads),
                pages[1].saturating_add(writes),
            ];
            for interval in &volume.intervals {
                let slot = slots.entry(interval.start.0).or_default();
                slot.pages = slot.pages.saturating_add(interval.pages());
                slot.working_set = slot.working_set.saturating_add(interval.working_set.0);
                slot.seconds = slot.seconds.max(interval.seconds());
            }
        }
        let rates = slots
            .values()
            .map(|s| (long_enough(s.seconds), s.pages as f64 / s.seconds));
        LoadStats::new(
            slots.len() as u64,
            slots.values().map(|s| s.seconds).sum(),
            pages,
            peak(rates),
            slots.values().map(|s| s.working_set).max().unwrap_or(0),
        )
    }

    /// Returns the content of `terrace trace info`. `file` is the name in the result.
    pub fn info(&self, file: &str) -> LoadInfo {
        LoadInfo {
            schema: LOAD_SCHEMA,
            file: file.to_owned(),
            slot_s: MEASUREMENT_SLOT.as_secs_f64(),
            access_bytes: MEASUREMENT_PAGE.0,
            total: self.total_load(),
            volumes: self
                .volumes
                .iter()
                .zip(self.loads())
                .map(|(volume, load)| VolumeLoad {
                    name: volume.name.clone(),
                    load,
                })
                .collect(),
        }
    }
}
