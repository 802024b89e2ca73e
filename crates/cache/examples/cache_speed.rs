//! How many references a second each policy takes, on a generated trace.
//!
//! `cache_speed OBJECTS REFERENCES THETA [POLICY…]`: popularity falls as rank^-THETA; capacity is a tenth of the objects that occur.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement has arguments and a clock"
)]

use std::time::Instant;

use algo::{Popularity, Rng};
use cache::{LazySegmentedLru, Policy, Position, SegmentedLru, replay};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let objects: u64 = args[0].parse().expect("objects");
    let references: usize = args[1].parse().expect("references");
    let theta: f64 = args[2].parse().expect("theta");
    let only = &args[3..];
    let popularity = Popularity::new(objects, theta);
    let mut rng = Rng::new(1, 1);
    let mut dense = vec![u32::MAX; objects as usize];
    let mut universe = 0;
    let trace: Vec<u32> = (0..references)
        .map(|_| {
            let no = &mut dense[popularity.page(rng.next_u64()) as usize];
            if *no == u32::MAX {
                *no = universe;
                universe += 1;
            }
            *no
        })
        .collect();
    drop(dense);
    let c = universe / 10;
    println!("{universe} objects, capacity {c}");
    let wanted = |name: &str| only.is_empty() || only.iter().any(|n| n == name);
    macro_rules! time {
        ($name:expr, $policy:expr) => {
            if wanted($name) {
                let mut best = f64::INFINITY;
                let mut ratio = 0.0;
                let mut bytes = 0;
                for _ in 0..3 {
                    let mut policy = $policy;
                    let started = Instant::now();
                    let counts = replay(&mut policy, &trace);
                    best = best.min(started.elapsed().as_secs_f64());
                    ratio = counts.hit_ratio().unwrap_or(0.0);
                    bytes = policy.memory_bytes() - 4 * universe as usize;
                }
                println!(
                    "{:<20} {:7.1} M/s  hit ratio {ratio:.6}  {:.1} bytes a page and 4 a number",
                    $name,
                    references as f64 / best / 1e6,
                    bytes as f64 / f64::from(c)
                );
            }
        };
    }
    time!("lru", cache::Lru::new(c, universe));
    time!("fifo", cache::Fifo::new(c, universe));
    time!("clock", cache::Clock::new(c, universe));
    time!("slru", cache::Slru::new(c, universe));
    time!("sieve", cache::Sieve::new(c, universe));
    time!("s3-fifo", cache::S3Fifo::new(c, universe));
    time!("arc", cache::Arc::new(c, universe));
    time!("places-three", Places(SegmentedLru::new(c, universe), 3));
    time!("places", Places(SegmentedLru::new(c, universe), 17));
    time!(
        "places-lazy",
        Places(LazySegmentedLru::new(c, universe), 17)
    );
}

/// Every page has a place of its own: one of 3 (HR-LRU) or of 17 (Priority-LRU).
struct Places<Q>(Q, u64);

impl<Q: Policy> Policy for Places<Q> {
    #[inline]
    fn access(&mut self, page: u32) -> cache::Outcome {
        let bits = u64::from(page.wrapping_mul(0x9E37_79B9));
        let segment = 3 + ((bits * self.1) >> 32) as u32 * 16 / (self.1 as u32 - 1);
        self.0.access_at(page, Position::from_segment(segment))
    }
    fn remove(&mut self, page: u32) -> bool {
        self.0.remove(page)
    }
    fn contains(&self, page: u32) -> bool {
        self.0.contains(page)
    }
    fn len(&self) -> u32 {
        self.0.len()
    }
    fn capacity(&self) -> u32 {
        self.0.capacity()
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
    #[inline]
    fn warm(&self, page: u32) -> u32 {
        self.0.warm(page)
    }
    #[inline]
    fn warm_victims(&self) -> u32 {
        self.0.warm_victims()
    }
}
