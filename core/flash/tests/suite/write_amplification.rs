//! Comparison of greedy collection with an independent simulator, and of IOPS with the cost model.

use flash::ftl::{Ftl, FtlConfig, Streams, TenantId, Victim};
use flash::model::cost::PageCost;

/// Values of an independent program: 2,048 blocks of 128 pages, one stream, two reserve blocks, uniform traffic.
const SIMULATED: [(f64, f64); 6] = [
    (0.05, 9.62),
    (0.07, 7.03),
    (0.10, 5.04),
    (0.15, 3.45),
    (0.20, 2.66),
    (0.28, 1.97),
];

fn steady(config: FtlConfig, times: f64) -> (Ftl, TenantId) {
    let pages = config.host_pages();
    let (mut ftl, tenant) = Ftl::with_one_tenant(config).unwrap();
    ftl.precondition(times);
    let mut random = algo::Rng::new(5, 5);
    let batch: Vec<u32> = (0..3 * pages).map(|_| random.below(pages) as u32).collect();
    ftl.write_all(tenant, &batch, &mut ());
    (ftl, tenant)
}

#[test]
fn greedy_collection_matches_another_simulator_within_two_percent() {
    for (spare_share, published) in SIMULATED {
        let (ftl, _) = steady(
            FtlConfig {
                spare_share,
                ..FtlConfig::default()
            },
            4.0,
        );
        let waf = ftl.write_amplification().unwrap();
        assert!(
            (waf / published - 1.0).abs() < 0.02,
            "{spare_share}: {waf}, not {published}"
        );
        // The excess writes are the valid pages of the victims.
        let u = ftl.victim_utilization().unwrap();
        assert!(
            (waf * (1.0 - u) - 1.0).abs() < 0.002,
            "{spare_share}: {waf} {u}"
        );
        ftl.verify().unwrap();
    }
}

#[test]
fn ten_choices_are_near_greedy_and_one_choice_is_not() {
    let at = |victim| {
        let (ftl, _) = steady(
            FtlConfig {
                victim,
                blocks: 512,
                pages_per_block: 64,
                ..FtlConfig::default()
            },
            3.0,
        );
        ftl.verify().unwrap();
        ftl.write_amplification().unwrap()
    };
    let (greedy, ten, one) = (
        at(Victim::Greedy),
        at(Victim::Choices(10)),
        at(Victim::Choices(1)),
    );
    assert!(ten > greedy && ten < 1.08 * greedy, "{greedy} {ten}");
    // One choice is random collection: 1 / spare share, if blocks without gain were taken.
    assert!((8.5..10.2).contains(&one), "{one}");
}

/// 80 % of the writes go to 20 % of the data.
fn skewed(config: FtlConfig) -> f64 {
    let pages = config.host_pages();
    let (mut ftl, tenant) = Ftl::with_one_tenant(config).unwrap();
    ftl.fill(tenant).unwrap();
    let mut random = algo::Rng::new(6, 6);
    let hot = pages / 5;
    let batch: Vec<u32> = (0..10 * pages)
        .map(|_| match random.below(10) {
            0..8 => random.below(hot) as u32,
            _ => (hot + random.below(pages - hot)) as u32,
        })
        .collect();
    let (warm, counted) = batch.split_at(6 * pages as usize);
    ftl.write_all(tenant, warm, &mut ());
    ftl.clear_counts();
    ftl.write_all(tenant, counted, &mut ());
    ftl.verify().unwrap();
    ftl.write_amplification().unwrap()
}

#[test]
fn mixed_hot_and_cold_data_matches_published_cost() {
    let at = |streams, victim, reserve_blocks| {
        skewed(FtlConfig {
            spare_share: 0.2,
            streams,
            victim,
            reserve_blocks,
            ..FtlConfig::default()
        })
    };
    let mixed = at(Streams::One, Victim::Greedy, 2);
    assert!((mixed / 3.01 - 1.0).abs() < 0.02, "{mixed}");
    let host = at(Streams::HostAndCollected, Victim::Greedy, 3);
    assert!((host / 2.92 - 1.0).abs() < 0.02, "{host}");
    let apart = at(Streams::HotAndCold, Victim::CostBenefit, 3);
    assert!(apart < 0.85 * host, "{apart} {host}");
    let aged = at(Streams::HostAndCollected, Victim::CostBenefit, 3);
    assert!(aged < host, "{aged} {host}");
}

#[test]
fn summary_page_costs_its_program_and_space() {
    let config = FtlConfig {
        blocks: 256,
        pages_per_block: 32,
        summary_page: true,
        ..FtlConfig::default()
    };
    let pages = config.host_pages();
    assert_eq!(pages, (0.9 * 256.0 * 31.0) as u64);
    let (mut ftl, tenant) = Ftl::with_one_tenant(config).unwrap();
    ftl.precondition(2.0);
    let mut random = algo::Rng::new(1, 1);
    for _ in 0..3 * pages {
        ftl.write(tenant, random.below(pages) as u32, &mut ());
    }
    let moves = ftl.moves(tenant).own + ftl.host_writes();
    let summaries = ftl.flash_writes() - moves;
    assert!((summaries as f64 / (moves as f64 / 31.0) - 1.0).abs() < 0.01);
    ftl.verify().unwrap();
}

#[test]
fn state_takes_at_most_twelve_bytes_per_page() {
    for (blocks, pages_per_block) in [(2048, 128), (16_384, 256), (1024, 1024), (4096, 64)] {
        let config = FtlConfig {
            blocks,
            pages_per_block,
            spare_share: 0.05,
            ..FtlConfig::default()
        };
        let (ftl, _) = Ftl::with_one_tenant(config).unwrap();
        let bytes = ftl.bytes_per_page();
        assert!(bytes <= 12.0, "{blocks} x {pages_per_block}: {bytes}");
    }
}

/// The formula needs only the measured utilization.
#[test]
fn device_time_matches_the_cost_model_at_the_measured_utilization() {
    struct Clock(f64);
    impl flash::ftl::FlashWork for Clock {
        fn programmed(&mut self, _: u32) {
            self.0 += 800.0 + 102.0;
        }
        fn copied(&mut self, _: u32, survivors: &[u64], _: u32) {
            self.0 += survivors.len() as f64 * 860.0;
        }
        fn summarized(&mut self, _: u32) {}
        fn erased(&mut self, _: u32, _: u32) {
            self.0 += 1500.0;
        }
    }
    for spare_share in [0.05, 0.10, 0.20] {
        let config = FtlConfig {
            spare_share,
            ..FtlConfig::default()
        };
        let pages = config.host_pages();
        let (mut ftl, tenant) = Ftl::with_one_tenant(config).unwrap();
        ftl.precondition(3.0);
        let (mut clock, mut random) = (Clock(0.0), algo::Rng::new(2, 2));
        for _ in 0..pages {
            ftl.write(tenant, random.below(pages) as u32, &mut clock);
        }
        let iops = pages as f64 / clock.0 * 1e6;
        let model = PageCost::PAPER4.iops(ftl.victim_utilization().unwrap());
        assert!(
            (iops / model - 1.0).abs() < 0.02,
            "{spare_share}: {iops} {model}"
        );
    }
}
