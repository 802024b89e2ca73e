//! Write amplification by spare share, compared with an independent simulator and two models: `waf`.
//!
//! The flash has 2,048 blocks of 128 pages, one stream and two reserve blocks, with greedy collection and uniform overwrites. Rows: spare
//! share, simulated write amplification, the independent simulator's, their ratio, the models of Desnoyers and Menon, utilization of
//! victims, and IOPS of one unit by the formula of paper 4 at that utilization.

use flash::ftl::{Ftl, FtlConfig};
use flash::model::cleaning::{amplification, amplification_greedy, victim_utilization};
use flash::model::cost::PageCost;

use crate::BenchResult;

const ELSEWHERE: [(f64, f64); 6] = [
    (0.05, 9.62),
    (0.07, 7.03),
    (0.10, 5.04),
    (0.15, 3.45),
    (0.20, 2.66),
    (0.28, 1.97),
];

pub(crate) fn main(_: &[String]) -> BenchResult {
    for (spare_share, elsewhere) in ELSEWHERE {
        let config = FtlConfig {
            spare_share,
            ..FtlConfig::default()
        };
        let pages = config.host_pages();
        let (mut ftl, tenant) = Ftl::with_one_tenant(config)?;
        ftl.precondition(8.0);
        let mut random = algo::Rng::new(1, 1);
        let batch: Vec<u32> = (0..6 * pages).map(|_| random.below(pages) as u32).collect();
        ftl.write_all(tenant, &batch, &mut ());
        let waf = ftl.write_amplification().unwrap_or(f64::NAN);
        let u = ftl.victim_utilization().unwrap_or(f64::NAN);
        println!(
            "{spare_share:.2} {waf:.3} {elsewhere:.2} {:.4} {:.2} {:.2} {u:.4} {:.0}",
            waf / elsewhere,
            amplification_greedy(spare_share, 128),
            amplification(victim_utilization(1.0 - spare_share)),
            PageCost::PAPER4.iops(u)
        );
    }
    Ok(())
}
