//! Cost of measuring reuse in the data path: `cargo run --release -p bench -- reuse-time`.
//!
//! Prints nanoseconds per request of 4 KiB, with nine reads per write, for working sets of several sizes. The pages have Zipf
//! popularity 0.9, or are requested in order, each one once.

use std::time::Instant;

use algo::{Popularity, Rng};
use datapath::engine::{GuestOp, GuestRequest};
use datapath::reuse::{PAGE, Reuse};

use crate::BenchResult;

const REQUESTS: usize = 1 << 22;

/// Number of requests that are timed together. The median over these parts excludes interruptions by other processes.
const PART: usize = 1 << 14;

pub(crate) fn main(_: &[String]) -> BenchResult {
    for pages in [5_000u64, 50_000, 500_000, 5_000_000, 50_000_000] {
        for (what, theta) in [("zipf 0.9", 0.9), ("scan", -1.0)] {
            let mut rng = Rng::new(1, pages);
            let popularity = Popularity::new(pages, f64::max(theta, 0.0));
            let requests: Vec<GuestRequest> = (0..REQUESTS as u64)
                .map(|i| GuestRequest {
                    op: if rng.below(10) == 0 {
                        GuestOp::Write
                    } else {
                        GuestOp::Read
                    },
                    offset: 4096
                        * if theta < 0.0 {
                            i % pages
                        } else {
                            popularity.page(rng.next_u64())
                        },
                    length: 4096,
                    fua: false,
                })
                .collect();
            let mut reuse = Reuse::new(PAGE);
            // Warm-up: the first requests find no earlier references and allocate memory.
            requests[..REQUESTS / 4].iter().for_each(|r| reuse.count(r));
            let mut times: Vec<f64> = requests[REQUESTS / 4..]
                .chunks(PART)
                .map(|part| {
                    let began = Instant::now();
                    part.iter().for_each(|r| reuse.count(r));
                    began.elapsed().as_nanos() as f64 / part.len() as f64
                })
                .collect();
            times.sort_by(f64::total_cmp);
            let each = times[times.len() / 2];
            let began = Instant::now();
            let Some(counts) = reuse.look() else {
                return Err("no counts".into());
            };
            println!(
                "{pages:>9} pages, {what:<8}: {each:5.1} ns per request, rate {:.4}; a look {:.2} ms",
                counts.rate,
                began.elapsed().as_secs_f64() * 1e3
            );
        }
    }
    Ok(())
}
