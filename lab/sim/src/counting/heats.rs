//! Heats from recorded loads: reads and writes of each extent in each interval.

use std::collections::BTreeMap;

use model::Op;
use planner::extents::ExtentNo;
use trace::measurements::Measurements;
use trace::{LoadedTrace, Record};
use units::{Bytes, Nanos};

/// Reads and writes per extent and interval. Only extents with at least one are included, numbered by volume and
/// address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heats {
    /// Number of extents.
    pub extents: u32,
    /// Extents with their number of requests, ascending by extent, by interval.
    pub intervals: Vec<Vec<(ExtentNo, u32)>>,
}

/// Interval and number of requests, by volume and extent.
type ExtentRequests = BTreeMap<(u32, u64), Vec<(u64, u32)>>;

/// Counts the requests of a trace: each read and each write once for every extent that it touches, in the interval of its start.
/// Flushes and trims transfer no data, so no placement makes them faster.
pub fn of_trace(trace: &LoadedTrace, extent: Bytes, interval: Nanos) -> Heats {
    let mut asked = ExtentRequests::new();
    let transfers = |record: &&Record| matches!(record.op(), Op::Read | Op::Write);
    for record in trace.records().iter().filter(transfers) {
        let at = record.time_ns / interval.0;
        let first = record.offset_bytes / extent.0;
        let bytes = u64::from(record.length_bytes).max(1);
        let last = (record.offset_bytes + bytes - 1) / extent.0;
        for place in first..=last {
            let counts = asked.entry((record.volume(), place)).or_default();
            match counts.last_mut() {
                Some((seen, n)) if *seen == at => *n += 1,
                _ => counts.push((at, 1)),
            }
        }
    }
    numbered(&asked)
}

/// Returns the heats of measurements. A volume is one extent of any size. Requests of a slot count in the interval in
/// which the slot begins. All volumes start at time zero, whatever their real start.
pub fn of_measurements(measurements: &Measurements, interval: Nanos) -> Heats {
    let mut asked = ExtentRequests::new();
    for (v, volume) in measurements.volumes.iter().enumerate() {
        let counts = asked.entry((v as u32, 0)).or_default();
        for slot in &volume.intervals {
            let pages = slot.read_pages + slot.write_pages;
            let n = u32::try_from(pages).unwrap_or(u32::MAX);
            counts.push((slot.start.0 / interval.0, n));
        }
    }
    numbered(&asked)
}

fn numbered(asked: &ExtentRequests) -> Heats {
    let last = asked.values().flatten().map(|c| c.0).max();
    let mut intervals = vec![vec![]; last.map_or(0, |l| l as usize + 1)];
    for (no, counts) in asked.values().enumerate() {
        for (at, n) in counts.iter().filter(|c| c.1 > 0) {
            let heat: &mut Vec<(ExtentNo, u32)> = &mut intervals[*at as usize];
            match heat.last_mut() {
                Some((last, sum)) if *last == no as u32 => *sum = sum.saturating_add(*n),
                _ => heat.push((no as u32, *n)),
            }
        }
    }
    Heats {
        extents: asked.len() as u32,
        intervals,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use trace::{ReadOptions, TraceStream, load_stream};

    #[test]
    fn heats_of_a_trace_are_its_reads_and_writes() {
        let text = "time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n\
                    0,a,F,0,0,\n\
                    1,a,R,0,4096,\n\
                    2,a,W,4096,8192,\n\
                    3,a,D,8192,4096,\n\
                    4,b,D,0,1048576,\n\
                    15,b,F,0,0,\n\
                    16,a,R,4096,4096,\n";
        let options = ReadOptions::default();
        let stream = TraceStream::from_reader("x", Cursor::new(text), &options).unwrap();
        let trace = load_stream(stream, &options).unwrap();
        let heats = of_trace(&trace, Bytes(4096), Nanos(10));
        let expected = Heats {
            extents: 3,
            intervals: vec![vec![(0, 1), (1, 1), (2, 1)], vec![(1, 1)]],
        };
        assert_eq!(heats, expected);
    }
}
