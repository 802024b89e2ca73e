//! Throughput of the drive model, in requests per second of processor time: `drive-speed [REQUESTS RUNS]`.
//!
//! The drive has 64 units on 8 channels, a write buffer, 32 tags and paced collection. Its erase blocks and spare space are those of
//! `ftl-speed` (16,384 blocks of 256 pages, 15 %). The load is uniform random writes of 4 KiB, then the same with half of the requests
//! as reads. 32 requests are in flight at any time.
//!
//! Rows: share of reads, write amplification, million requests per second of processor time (which includes the generation of the
//! requests), simulated thousand IOPS, and mean latency.
use algo::Rng;
use flash::Drive;
use flash::drive::Op;
use units::Bytes;

use crate::BenchResult;
use crate::cpu::cpu_s;
use crate::speed;

pub(crate) fn main(args: &[String]) -> BenchResult {
    let args: Vec<u64> = args.iter().map(|a| a.parse()).collect::<Result<_, _>>()?;
    let requests = args.first().copied().unwrap_or(10_000_000);
    let config = speed::drive();
    let pages = (16_384.0 * 256.0 * 0.85) as u64;
    for reads in [0, 5] {
        let mut drive = Drive::new(config.clone(), Bytes(pages * 4096))?;
        let tenant = drive.add_tenant(Bytes(pages * 4096), 0.0)?;
        drive.age(3.0);
        let mut random = Rng::new(7, 1);
        let mut batch = vec![(Op::Write, 0_u64); 4096];
        let mut now = 0;
        for _ in 0..args.get(1).copied().unwrap_or(3) {
            drive.clear_counts();
            let (mut latency, mut begin) = (0_u128, None);
            let began = cpu_s();
            let mut ring = [now; 32];
            for _ in 0..requests / 4096 {
                batch.fill_with(|| {
                    let op = if random.below(10) < reads {
                        Op::Read
                    } else {
                        Op::Write
                    };
                    (op, random.below(pages) * 4096)
                });
                for (i, (op, offset)) in batch.iter().enumerate() {
                    now = ring[i % 32].max(now);
                    let served = drive.submit(now, tenant, *op, *offset, 4096);
                    begin.get_or_insert(now);
                    latency += u128::from(served.done_ns - now);
                    ring[i % 32] = served.done_ns;
                }
            }
            let n = (requests / 4096 * 4096) as f64;
            let spent = cpu_s() - began;
            let report = drive.report();
            let seconds = (now - begin.unwrap_or(0)) as f64 / 1e9;
            println!(
                "{:.1} {:.3} {:.2} {:.1} k/s {:.0} us",
                reads as f64 / 10.0,
                report.waf.unwrap_or(0.0),
                n / spent / 1e6,
                n / seconds / 1e3,
                latency as f64 / n / 1e3
            );
        }
    }
    Ok(())
}
