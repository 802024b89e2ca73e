//! Speed of miss-ratio curves from a native trace that is mapped and in the page cache, on one core. `bench/mrc.sh` builds and runs it.
//!
//! - `mrc-native generate FILE.trc MILLION_REQUESTS THOUSAND_PAGES` writes a trace of reads of 4 KiB with Zipf popularity 0.9. It writes
//!   the same references to FILE.oracle in libCacheSim's binary layout, with pages as objects of one byte and without times of next
//!   accesses.
//! - `mrc-native measure FILE.trc RATE RUNS PAGES METHOD…` prints a line per method (shards, shards-verified, shards-size, exact): the
//!   median of million references per second of one core, and the miss ratio of a cache of PAGES pages.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::path::Path;

use algo::mrc::{Curve, ExactCurve, FixedRate, FixedSize, Sampler};
use algo::{DenseIds, Popularity, Rng};
use model::Op;
use trace::native::{Latencies, NativeFile, NativeOptions};
use trace::{CacheKind, NativeTrace, PageReferences, Record, Request};
use units::Bytes;

use crate::BenchResult;
use crate::cpu::cpu_s;

type Failure = Box<dyn std::error::Error>;

fn generate(path: &Path, requests: u64, pages: u64) -> Result<(), Failure> {
    let mut file = NativeFile::create(path, NativeOptions::default(), Latencies::Absent)?;
    let (popularity, mut rng) = (Popularity::new(pages, 0.9), Rng::new(1, 0));
    let mut oracle = BufWriter::new(File::create(path.with_extension("oracle"))?);
    for i in 0..requests {
        let page = popularity.page(rng.next_u64());
        oracle.write_all(&((i / 100_000) as u32).to_le_bytes())?;
        oracle.write_all(&page.to_le_bytes())?;
        oracle.write_all(&1u32.to_le_bytes())?;
        oracle.write_all(&(-1i64).to_le_bytes())?;
        let request = Request {
            time_ns: i * 10_000,
            volume: 0,
            op: Op::Read,
            offset_bytes: page * 4096,
            length_bytes: 4096,
        };
        file.push(Record::new(request), None)?;
    }
    file.finish(["v"])?;
    oracle.flush()?;
    Ok(())
}

fn curve(trace: &NativeTrace, method: &str, rate: f64) -> Result<Curve, Failure> {
    let pages = PageReferences::new(Bytes(4096), CacheKind::ReadWrite).ok_or("no page")?;
    let sampler = Sampler::new(rate, 1);
    match method {
        "shards" | "shards-verified" => {
            let mut shards = FixedRate::new(sampler);
            let mut feed = |records: &[Record]| {
                let passed =
                    pages.sampled(records, &sampler, |page, _| shards.sampled_reference(page));
                shards.passed(passed);
            };
            if method == "shards" {
                feed(trace.records());
            } else {
                for block in trace.verified_blocks() {
                    feed(block?);
                }
            }
            Ok(shards.curve())
        }
        "shards-size" => {
            let mut shards = FixedSize::new(8192, 1);
            pages.each(trace.records(), |page, _| shards.reference(page));
            Ok(shards.curve())
        }
        "exact" => {
            let (mut names, mut ids) = (Vec::new(), Vec::new());
            let (mut table, mut exact) = (DenseIds::new(), ExactCurve::new());
            for part in trace.records().chunks(1 << 16) {
                names.clear();
                ids.clear();
                pages.each(part, |page, _| names.push(page));
                table.ids(&names, &mut ids);
                exact.feed(&ids);
            }
            Ok(exact.curve())
        }
        other => Err(format!("{other} is no method").into()),
    }
}

pub(crate) fn main(args: &[String]) -> BenchResult {
    let argument = |at: usize| args.get(at).map(String::as_str).ok_or(crate::WRONG);
    let path = Path::new(argument(1)?);
    if argument(0)? == "generate" {
        let (requests, pages): (u64, u64) = (argument(2)?.parse()?, argument(3)?.parse()?);
        return generate(path, requests * 1_000_000, pages * 1000);
    }
    let (rate, runs): (f64, usize) = (argument(2)?.parse()?, argument(3)?.parse()?);
    let size: u64 = argument(4)?.parse()?;
    let trace = NativeTrace::open_verified(path)?;
    let references = trace.records().len() as f64;
    for method in args.get(5..).ok_or(crate::WRONG)? {
        let mut seconds = Vec::new();
        let ratio = curve(&trace, method, rate)?.at(size);
        for _ in 0..runs.max(1) {
            let before = cpu_s();
            black_box(curve(&trace, method, rate)?);
            seconds.push(cpu_s() - before);
        }
        seconds.sort_by(f64::total_cmp);
        let median = seconds[seconds.len() / 2];
        println!("{method} {:.2} {ratio:.6}", references / median / 1e6);
    }
    Ok(())
}
