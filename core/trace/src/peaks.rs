//! Peaks and means per volume in one pass over a trace, with memory per volume, not per window.
//!
//! Windows of 1 s and 60 s begin with the trace. Records come in order of time, so a window is complete when a record
//! of a later one arrives, and only the present window of each volume is kept. A trace shorter than a window has no
//! peak for it.

use serde::Serialize;

use crate::record::Record;

const NS_PER_S: u64 = 1_000_000_000;
/// Lengths of the windows, seconds.
const WINDOWS_S: [u64; 2] = [1, 60];

/// Requests and bytes per second: mean over the trace's span, and busiest windows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RequestLoad {
    /// Requests of all kinds per second.
    pub iops: PeakAndMean,
    /// Bytes read and written per second.
    pub bandwidth_bytes_per_s: PeakAndMean,
}

/// Rate with its busiest second and minute.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PeakAndMean {
    /// Mean over the span of the whole trace; `null` if the span is zero.
    pub mean: Option<f64>,
    /// Rate in the busiest second, counted from the start of the trace; `null` if the trace is shorter.
    pub peak_1s: Option<f64>,
    /// Rate in the busiest minute, counted from the start of the trace; `null` if the trace is shorter.
    pub peak_60s: Option<f64>,
    /// Ratio of peak second to mean.
    pub peak_1s_to_mean: Option<f64>,
    /// Ratio of peak minute to mean.
    pub peak_60s_to_mean: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Window {
    number: u64,
    current: [u64; 2],
    peak: [u64; 2],
}

impl Window {
    #[inline]
    fn add(&mut self, number: u64, amounts: [u64; 2]) {
        if number != self.number {
            *self = Self {
                number,
                current: [0; 2],
                ..*self
            };
        }
        for (i, amount) in amounts.into_iter().enumerate() {
            self.current[i] = self.current[i].saturating_add(amount);
            self.peak[i] = self.peak[i].max(self.current[i]);
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    total: [u64; 2],
    windows: [Window; 2],
}

impl Tally {
    fn load(&self, span_ns: u64) -> RequestLoad {
        let span_s = span_ns as f64 / NS_PER_S as f64;
        let [iops, bandwidth_bytes_per_s] = std::array::from_fn(|i| {
            let mean = (span_ns > 0).then(|| self.total[i] as f64 / span_s);
            let peaks: [Option<f64>; 2] = std::array::from_fn(|w| {
                (span_ns >= WINDOWS_S[w] * NS_PER_S)
                    .then(|| self.windows[w].peak[i] as f64 / WINDOWS_S[w] as f64)
            });
            let ratio = |peak: Option<f64>| Some(peak? / mean.filter(|mean| *mean > 0.0)?);
            PeakAndMean {
                mean,
                peak_1s: peaks[0],
                peak_60s: peaks[1],
                peak_1s_to_mean: ratio(peaks[0]),
                peak_60s_to_mean: ratio(peaks[1]),
            }
        });
        RequestLoad {
            iops,
            bandwidth_bytes_per_s,
        }
    }
}

/// Peaks of each volume and of all together.
#[derive(Debug, Default)]
pub(crate) struct Peaks {
    all: Tally,
    volumes: Vec<Tally>,
}

impl Peaks {
    /// Adds a record, which must not be before the last one.
    #[inline]
    pub(crate) fn add(&mut self, record: &Record) {
        let volume = record.volume() as usize;
        if self.volumes.len() <= volume {
            self.volumes.resize(volume + 1, Tally::default());
        }
        let bytes = match record.op() {
            model::Op::Read | model::Op::Write => u64::from(record.length_bytes),
            model::Op::Trim | model::Op::Flush => 0,
        };
        let second = record.time_ns / NS_PER_S;
        for tally in [&mut self.all, &mut self.volumes[volume]] {
            tally.total[0] += 1;
            tally.total[1] = tally.total[1].saturating_add(bytes);
            for (window, length_s) in tally.windows.iter_mut().zip(WINDOWS_S) {
                window.add(second / length_s, [1, bytes]);
            }
        }
    }

    /// Returns the number of requests in the busiest second, also for a trace shorter than a second.
    pub(crate) fn most_in_a_second(&self) -> u64 {
        self.all.windows[0].peak[0]
    }

    pub(crate) fn all(&self, span_ns: u64) -> RequestLoad {
        self.all.load(span_ns)
    }

    pub(crate) fn of(&self, volume: usize, span_ns: u64) -> RequestLoad {
        self.volumes
            .get(volume)
            .copied()
            .unwrap_or_default()
            .load(span_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Request;
    use proptest::prelude::*;

    fn record(time_ns: u64, volume: u32, length_bytes: u32) -> Record {
        Record::new(Request {
            time_ns,
            volume,
            op: model::Op::Write,
            offset_bytes: 0,
            length_bytes,
        })
    }

    proptest! {
        /// The oracle counts every window in a table.
        #[test]
        fn peaks_match_a_table_of_windows(gaps_ms in prop::collection::vec((0..40_000u64, 0..2u32, 1..5000u32), 1..80)) {
            let mut peaks = Peaks::default();
            let mut table = std::collections::BTreeMap::new();
            let mut now = 0;
            for (i, (gap, volume, bytes)) in gaps_ms.iter().enumerate() {
                now += if i == 0 { 0 } else { gap * 1_000_000 };
                peaks.add(&record(now, *volume, *bytes));
                for w in [1, 60] {
                    let slot = table.entry((*volume, w, now / (w * 1_000_000_000))).or_insert((0u64, 0u64));
                    *slot = (slot.0 + 1, slot.1 + u64::from(*bytes));
                }
            }
            for volume in 0..2 {
                let load = peaks.of(volume as usize, now);
                let most = |w: u64, get: fn(&(u64, u64)) -> u64| {
                    let of = table.iter().filter(|((v, length, _), _)| *v == volume && *length == w);
                    let most = of.map(|(_, n)| get(n)).max().unwrap_or(0);
                    (now >= w * 1_000_000_000).then_some(most as f64 / w as f64)
                };
                prop_assert_eq!(load.iops.peak_1s, most(1, |n| n.0));
                prop_assert_eq!(load.iops.peak_60s, most(60, |n| n.0));
                prop_assert_eq!(load.bandwidth_bytes_per_s.peak_60s, most(60, |n| n.1));
            }
        }
    }
}
