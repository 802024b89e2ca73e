//! Read rate of mapped records on one core. `bench/native_read.sh` builds and runs it.
//!
//! Writes a synthetic native trace, then measures medians of several runs with the file in the page cache:
//!
//! - `fold`: a fold over all fields of all records ([`trace::warmed`]). It sums lengths by kind, counts requests by volume, and mixes the
//!   other fields into a sum. A comparison of the result with the expected one prevents that the compiler removes the fold.
//! - `fold, cold lines`: the same fold over the plain slice, without a prefetch of cache lines.
//! - `fold, verified`: the same fold over blocks whose checksum and records are verified immediately before
//!   ([`NativeTrace::verified_blocks`]).
//! - `verify`: [`NativeTrace::verify`], which also recounts all totals.
//!
//! Arguments: number of records, number of runs, directory for the trace, `json` for JSON only.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use model::Op;
use trace::native::{Latencies, NativeFile, NativeOptions};
use trace::{NativeTrace, Record, Request, warmed};

use crate::BenchResult;

const VOLUMES: u32 = 64;

fn write(path: &Path, records: u64) -> Result<(), trace::TraceError> {
    let mut file = NativeFile::create(path, NativeOptions::default(), Latencies::Absent)?;
    let (mut state, mut time_ns) = (1u64, 0);
    for _ in 0..records {
        // xorshift64: cheap, and neither a branch predictor nor a compressor can predict it.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        time_ns += state & 0xffff;
        let op = if state >> 60 < 11 {
            Op::Read
        } else {
            Op::Write
        };
        let volume = (state >> 20) as u32 % VOLUMES;
        let (offset_bytes, length_bytes) =
            ((state >> 30 & 0xff_ffff) * 4096, 4096 << (state >> 56 & 3));
        file.push(
            Record::new(Request {
                time_ns,
                volume,
                op,
                offset_bytes,
                length_bytes,
            }),
            None,
        )?;
    }
    let names: Vec<String> = (0..VOLUMES).map(|v| format!("v{v}")).collect();
    file.finish(names.iter().map(String::as_str)).map(drop)
}

/// Number of independent sets of counters. They prevent that a request waits for the counter update of the request before it, if both
/// have the same kind or volume.
const LANES: usize = 4;

#[derive(PartialEq)]
struct Fold {
    bytes: [u64; 4],
    requests: [u64; VOLUMES as usize],
    mixed: u64,
}

#[inline(never)]
fn fold<'a>(blocks: impl Iterator<Item = &'a [Record]>) -> Fold {
    let mut bytes = [[0; 4]; LANES];
    let mut requests = [[0; VOLUMES as usize]; LANES];
    let mut mixed = 0u64;
    for block in blocks {
        let mut add = |lane: usize, r: &Record| {
            bytes[lane][r.op() as usize] += u64::from(r.length_bytes);
            requests[lane][(r.volume() % VOLUMES) as usize] += 1;
            mixed = mixed.wrapping_add(r.time_ns ^ r.offset_bytes);
        };
        let (groups, rest) = block.as_chunks::<LANES>();
        groups
            .iter()
            .for_each(|group| group.iter().enumerate().for_each(|(lane, r)| add(lane, r)));
        rest.iter().for_each(|r| add(0, r));
    }
    Fold {
        bytes: std::array::from_fn(|i| bytes.iter().map(|lane| lane[i]).sum()),
        requests: std::array::from_fn(|i| requests.iter().map(|lane| lane[i]).sum()),
        mixed,
    }
}

struct ReaderRates {
    name: &'static str,
    /// Millions of records per second, sorted.
    rates: Vec<f64>,
}

fn measure(name: &'static str, records: usize, runs: usize, mut run: impl FnMut()) -> ReaderRates {
    // An unmeasured run warms page cache and page tables.
    run();
    let mut rates: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            run();
            records as f64 / start.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    ReaderRates { name, rates }
}

pub(crate) fn main(args: &[String]) -> BenchResult {
    let number = |i: usize, default: usize| args.get(i).map_or(Ok(default), |a| a.parse());
    let (records, runs) = (number(0, 50_000_000)?, number(1, 7)?.max(5));
    let directory = args.get(2).map_or(".", String::as_str);
    let path = Path::new(directory).join("native_read.trc");
    let start = Instant::now();
    write(&path, records as u64)?;
    let write_rate = records as f64 / start.elapsed().as_secs_f64() / 1e6;
    let trace = NativeTrace::open_verified(&path)?;
    assert_eq!(trace.records().len(), records);

    let sound = |block: Result<_, _>| block.expect("the trace is sound");
    let expected = fold(std::iter::once(trace.records()));
    let check = |folded: Fold| {
        assert!(
            black_box(folded) == expected,
            "the same records were folded"
        )
    };
    let results = [
        measure("fold", records, runs, || {
            check(fold(warmed(trace.records())))
        }),
        measure("fold, cold lines", records, runs, || {
            check(fold(std::iter::once(trace.records())))
        }),
        measure("fold, verified", records, runs, || {
            check(fold(trace.verified_blocks().map(sound)))
        }),
        measure("verify", records, runs, || {
            trace.verify().expect("the trace is sound")
        }),
    ];

    if args.get(3).is_none_or(|a| a != "json") {
        println!(
            "{records} records, {} MiB, {runs} runs, one core, warm",
            (records * Record::SIZE_BYTES) >> 20
        );
        println!(
            "{:<16} {:>10} {:>10} {:>10}   million records/s",
            "", "median", "min", "max"
        );
        for ReaderRates { name, rates } in &results {
            println!(
                "{name:<16} {:>10.1} {:>10.1} {:>10.1}",
                rates[rates.len() / 2],
                rates[0],
                rates[rates.len() - 1]
            );
        }
        println!("{:<16} {write_rate:>10.1}   (once, with fsync)", "write");
    }
    let rows: Vec<String> = results
        .iter()
        .map(|ReaderRates { name, rates }| {
            let (median, min, max) = (rates[rates.len() / 2], rates[0], rates[rates.len() - 1]);
            format!(
                "{{\"name\":\"{name}\",\"median_records_per_s\":{:.0},\"min_records_per_s\":{:.0},\
                 \"max_records_per_s\":{:.0}}}",
                median * 1e6,
                min * 1e6,
                max * 1e6
            )
        })
        .collect();
    println!(
        "{{\"schema\":\"terrace.bench.native_read/1\",\"records\":{records},\"runs\":{runs},\"checksum\":{},\
         \"results\":[{}]}}",
        expected.mixed,
        rows.join(",")
    );
    if std::env::var_os("KEEP").is_none() {
        std::fs::remove_file(&path)?;
    }
    Ok(())
}
