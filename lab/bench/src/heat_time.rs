//! Cost of counting heat per extent: `cargo run --release -p bench -- heat-time EXTENTS`.
//!
//! Prints nanoseconds per request, and the time of reading the counters. Each request touches one extent. The requests are uniformly
//! random over the volume, then four fifths of them go to one fifth of it. The counters are read at regular intervals.

use std::time::Instant;

use algo::Rng;
use datapath::engine::{GuestOp, GuestRequest};
use datapath::heat::HeatMap;

use crate::BenchResult;

const EXTENT: u64 = 1 << 20;
const REQUESTS: usize = 1 << 22;

/// Requests between two reads of the counters: five seconds at 200,000 requests per second.
const LOOK_EVERY: usize = 1_000_000;

pub(crate) fn main(args: &[String]) -> BenchResult {
    let extents = args.first().and_then(|a| a.parse::<u64>().ok());
    let Some(extents) = extents.filter(|e| *e > 0) else {
        return Err(crate::WRONG.into());
    };
    for (what, hot_share) in [("random", 0.0), ("80 % in 20 %", 0.8)] {
        let mut rng = Rng::new(1, 2);
        let requests: Vec<GuestRequest> = (0..REQUESTS)
            .map(|_| {
                let among = match rng.unit() < hot_share {
                    true => (extents / 5).max(1),
                    false => extents,
                };
                GuestRequest {
                    op: [GuestOp::Read, GuestOp::Write][rng.below(2) as usize],
                    offset: rng.below(among) * EXTENT + 4096 * rng.below(256),
                    length: 4096,
                    fua: false,
                }
            })
            .collect();
        let Some(mut map) = HeatMap::new(0, extents as usize, EXTENT) else {
            return Err("too many extents".into());
        };
        // Baseline: only iterates over the requests.
        let began = Instant::now();
        let sum: u64 = requests.iter().map(|r| r.offset ^ r.length).sum();
        let bare = began.elapsed();
        let (mut cursor, mut looks) = (None, vec![]);
        let mut counting = std::time::Duration::ZERO;
        for part in requests.chunks(LOOK_EVERY) {
            let began = Instant::now();
            for request in part {
                map.count(1, request);
            }
            counting += began.elapsed();
            let began = Instant::now();
            let seen = map.look(cursor);
            looks.push((began.elapsed(), seen.touched.len()));
            cursor = Some((seen.since_ns, seen.turn));
        }
        let (look, touched) = looks.iter().max().expect("some looks");
        println!(
            "{extents} extents, {what}: {:.1} ns per request (of which {:.1} ns is going through them, {sum:x}); a look at {touched} touched extents {:.2} ms",
            counting.as_nanos() as f64 / REQUESTS as f64,
            bare.as_nanos() as f64 / REQUESTS as f64,
            look.as_secs_f64() * 1e3,
        );
    }
    Ok(())
}
