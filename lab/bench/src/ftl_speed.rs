//! Throughput of the flash translation layer alone, in pages per second: `ftl-speed [BLOCKS PAGES SPARE RUNS]`.
//!
//! The load is uniform random overwrites in steady state, with greedy collection and one stream. Rows: write amplification, million host
//! writes per second and million programs per second. Seconds are processor time, which includes the generation of the page numbers.
use algo::Rng;
use flash::ftl::{Ftl, FtlConfig};

use crate::BenchResult;
use crate::cpu::cpu_s;

pub(crate) fn main(args: &[String]) -> BenchResult {
    let args: Vec<f64> = args.iter().map(|a| a.parse()).collect::<Result<_, _>>()?;
    let arg = |i: usize, default: f64| args.get(i).copied().unwrap_or(default);
    let config = FtlConfig {
        blocks: arg(0, 16_384.0) as u32,
        pages_per_block: arg(1, 256.0) as u32,
        spare_share: arg(2, 0.15),
        ..FtlConfig::default()
    };
    let pages = config.host_pages();
    let (mut ftl, tenant) = Ftl::with_one_tenant(config)?;
    println!(
        "{pages} host pages, {:.2} bytes of state per page",
        ftl.bytes_per_page()
    );
    ftl.precondition(3.0);
    let mut random = Rng::new(7, 1);
    let writes = (2 * pages).max(10_000_000);
    let mut batch = vec![0_u32; 4096];
    for _ in 0..arg(3, 3.0) as usize {
        ftl.clear_counts();
        let begun = cpu_s();
        for _ in 0..writes / 4096 {
            batch.fill_with(|| random.below(pages) as u32);
            ftl.write_all(tenant, &batch, &mut ());
        }
        let spent = cpu_s() - begun;
        let waf = ftl.write_amplification().unwrap_or(0.0);
        let host = ftl.host_writes() as f64 / spent / 1e6;
        println!("{waf:.3} {host:.2} {:.2}", host * waf);
    }
    Ok(())
}
