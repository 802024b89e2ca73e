//! What following reuse costs the data path: `cargo run --release -p bench -- reuse-time`.
//!
//! Nanoseconds per request of 4 KiB, nine reads to a write, over footprints of several sizes: Zipf 0.9, and once each page.

use std::time::Instant;

use algo::{Popularity, Rng};
use datapath::engine::{GuestOp, GuestRequest};
use datapath::reuse::{PAGE, Reuse};

use crate::Done;

const REQUESTS: usize = 1 << 22;

/// Requests that are timed together: the median of the parts does not count what else the machine did.
const PART: usize = 1 << 14;

pub(crate) fn main(_: &[String]) -> Done {
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
            // What came before: the first requests find nothing and take memory.
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
