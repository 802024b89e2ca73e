//! Part of a window: measurements of the volumes whose ids are in one block, as columns.
//!
//! Each number is stored exactly. Latencies are usually middles of histogram buckets, and byte counts are multiples of
//! sectors. These are stored as small codes; any other value is stored as code 0 followed by the value.

use algo::{bucket_of, bucket_value_ns};
use manager::store::FlowSummary;

use crate::failure::Failure;
use crate::varint::{Reader, id, put, put_step};

/// Common divisor of the bytes of most requests.
const SECTOR_BYTES: u64 = 512;

/// Volume in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct VolumeRow {
    /// Id of the volume's name.
    pub volume: u32,
    /// Id of the name of the device with most of its data.
    pub device: u32,
    /// Measured time: the length of the window, or of the rolled-up windows that have this volume, ns.
    pub measured_ns: u64,
    pub outstanding_milli: u64,
    pub reads: FlowSummary,
    pub writes: FlowSummary,
    pub p99_ns: u64,
    pub slo_ns: u64,
}

/// Encodes a part, column by column.
pub(crate) fn encode(rows: &[VolumeRow]) -> Vec<u8> {
    let mut out = Vec::with_capacity(48 * rows.len() + 16);
    put(&mut out, rows.len() as u64);
    put_steps(&mut out, rows, |r| u64::from(r.volume));
    put_steps(&mut out, rows, |r| u64::from(r.device));
    put_steps(&mut out, rows, |r| r.measured_ns);
    rows.iter().for_each(|r| put(&mut out, r.outstanding_milli));
    put_flows(&mut out, rows, |r| &r.reads);
    put_flows(&mut out, rows, |r| &r.writes);
    for r in rows {
        put_latency(&mut out, r.p99_ns, r.reads.p99_ns.max(r.writes.p99_ns));
    }
    for r in rows {
        put_latency(&mut out, r.slo_ns, r.p99_ns);
    }
    out
}

fn put_flows(out: &mut Vec<u8>, rows: &[VolumeRow], flow: fn(&VolumeRow) -> &FlowSummary) {
    rows.iter().for_each(|r| put(out, flow(r).ios));
    rows.iter().for_each(|r| put_bytes(out, flow(r).bytes));
    rows.iter().for_each(|r| put(out, flow(r).mean_ns));
    for r in rows {
        put_latency(out, flow(r).p50_ns, 0);
    }
    for r in rows {
        put_latency(out, flow(r).p95_ns, flow(r).p50_ns);
    }
    for r in rows {
        put_latency(out, flow(r).p99_ns, flow(r).p95_ns);
    }
    for r in rows {
        put_latency(out, flow(r).p999_ns, flow(r).p99_ns);
    }
}

/// Decodes the rows of a part.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<VolumeRow>, Failure> {
    let mut from = Reader::new(bytes);
    let mut rows = vec![VolumeRow::default(); from.take_count()?];
    take_steps(&mut from, &mut rows, |r, n| {
        r.volume = id(n)?;
        Ok(())
    })?;
    take_steps(&mut from, &mut rows, |r, n| {
        r.device = id(n)?;
        Ok(())
    })?;
    take_steps(&mut from, &mut rows, |r, n| {
        r.measured_ns = n;
        Ok(())
    })?;
    for r in &mut rows {
        r.outstanding_milli = from.take()?;
    }
    take_flows(&mut from, &mut rows, |r| &mut r.reads)?;
    take_flows(&mut from, &mut rows, |r| &mut r.writes)?;
    for r in &mut rows {
        r.p99_ns = take_latency(&mut from, r.reads.p99_ns.max(r.writes.p99_ns))?;
    }
    for r in &mut rows {
        r.slo_ns = take_latency(&mut from, r.p99_ns)?;
    }
    from.finish()?;
    Ok(rows)
}

fn take_flows(
    from: &mut Reader,
    rows: &mut [VolumeRow],
    flow: fn(&mut VolumeRow) -> &mut FlowSummary,
) -> Result<(), Failure> {
    for r in rows.iter_mut() {
        flow(r).ios = from.take()?;
    }
    for r in rows.iter_mut() {
        flow(r).bytes = take_bytes(from)?;
    }
    for r in rows.iter_mut() {
        flow(r).mean_ns = from.take()?;
    }
    for r in rows.iter_mut() {
        flow(r).p50_ns = take_latency(from, 0)?;
    }
    for r in rows.iter_mut() {
        flow(r).p95_ns = take_latency(from, flow(r).p50_ns)?;
    }
    for r in rows.iter_mut() {
        flow(r).p99_ns = take_latency(from, flow(r).p95_ns)?;
    }
    for r in rows.iter_mut() {
        flow(r).p999_ns = take_latency(from, flow(r).p99_ns)?;
    }
    Ok(())
}

/// Appends a column of differences, each to the previous row, the first to 0.
pub(crate) fn put_steps<R>(out: &mut Vec<u8>, rows: &[R], field: impl Fn(&R) -> u64) {
    let mut before = 0;
    for row in rows {
        put_step(out, field(row), before);
        before = field(row);
    }
}

/// Reads a column of differences.
pub(crate) fn take_steps<R>(
    from: &mut Reader,
    rows: &mut [R],
    set: impl Fn(&mut R, u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut before = 0;
    for row in rows {
        before = from.take_step(before)?;
        set(row, before)?;
    }
    Ok(())
}

fn put_bytes(out: &mut Vec<u8>, bytes: u64) {
    if bytes.is_multiple_of(SECTOR_BYTES) {
        put(out, bytes / SECTOR_BYTES + 1);
    } else {
        put(out, 0);
        put(out, bytes);
    }
}

fn take_bytes(from: &mut Reader) -> Result<u64, Failure> {
    match from.take()? {
        0 => from.take(),
        n => (n - 1)
            .checked_mul(SECTOR_BYTES)
            .ok_or_else(|| Failure::Damaged(format!("a window has {n} sectors"))),
    }
}

/// Returns the code of a latency. 0: not the middle of a bucket; 1: zero, as for an idle volume; from 2 on: the bucket.
fn code(ns: u64) -> u64 {
    let bucket = bucket_of(ns);
    match ns {
        0 => 1,
        _ if bucket_value_ns(bucket) == ns => bucket as u64 + 2,
        _ => 0,
    }
}

/// Appends a latency that is probably close to another one.
fn put_latency(out: &mut Vec<u8>, ns: u64, near_ns: u64) {
    put_step(out, code(ns), code(near_ns));
    if code(ns) == 0 {
        put(out, ns);
    }
}

fn take_latency(from: &mut Reader, near_ns: u64) -> Result<u64, Failure> {
    match from.take_step(code(near_ns))? {
        0 => from.take(),
        1 => Ok(0),
        n if n - 2 < algo::BUCKETS as u64 => Ok(bucket_value_ns(n as usize - 2)),
        n => Err(Failure::Damaged(format!("unknown bucket {}", n - 2))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn latency() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            any::<u64>(),
            (0..algo::BUCKETS).prop_map(bucket_value_ns),
            (0..algo::BUCKETS).prop_map(|b| bucket_value_ns(b).wrapping_add(1)),
        ]
    }

    fn flow() -> impl Strategy<Value = FlowSummary> {
        let bytes = prop_oneof![any::<u64>(), (0..u64::MAX / 512).prop_map(|n| n * 512)];
        let percentiles = (latency(), latency(), latency(), latency());
        (any::<u64>(), bytes, any::<u64>(), percentiles).prop_map(|(ios, bytes, mean_ns, p)| {
            FlowSummary {
                ios,
                bytes,
                mean_ns,
                p50_ns: p.0,
                p95_ns: p.1,
                p99_ns: p.2,
                p999_ns: p.3,
            }
        })
    }

    fn row() -> impl Strategy<Value = VolumeRow> {
        let ids = (any::<u32>(), any::<u32>());
        let numbers = (any::<u64>(), 0..100_000u64);
        (ids, numbers, flow(), flow(), latency(), latency()).prop_map(
            |(ids, numbers, reads, writes, p99_ns, slo_ns)| VolumeRow {
                volume: ids.0,
                device: ids.1,
                measured_ns: numbers.0,
                outstanding_milli: numbers.1,
                reads,
                writes,
                p99_ns,
                slo_ns,
            },
        )
    }

    proptest! {
        #[test]
        fn rows_round_trip(rows in proptest::collection::vec(row(), 0..80)) {
            prop_assert_eq!(decode(&encode(&rows)).unwrap(), rows);
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn idle_volume_takes_one_byte_per_column() {
        let idle = |volume| VolumeRow {
            volume,
            ..VolumeRow::default()
        };
        assert_eq!(
            encode(&[idle(1), idle(2)]).len() - encode(&[idle(1)]).len(),
            20
        );
    }
}
