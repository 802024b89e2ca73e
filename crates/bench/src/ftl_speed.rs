//! How many pages a second the bare translation layer takes: `ftl-speed [BLOCKS PAGES SPARE RUNS]`.
//!
//! Uniform random overwrites, greedy collection, one stream, steady state; rows of write amplification, million host writes per
//! second and million programs per second, each per second of processor time; drawing the pages is part of it.
use algo::Rng;
use flash::ftl::{Ftl, FtlConfig};

use crate::Done;
use crate::cpu::cpu_s;

pub(crate) fn main(args: &[String]) -> Done {
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
