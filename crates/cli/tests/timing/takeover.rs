//! How long guests wait while a server with very many extents is taken over.

use std::time::Duration;

use crate::support::checking::{Guest, Seen};
use crate::support::extents::with_extents;

/// Extents; `TERRACE_EXTENTS` says another number.
const EXTENTS: u32 = 1_000_000;

/// Guests, and how often each of them asks: 5 000 requests per second in all.
const GUESTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(2);

/// What nobody should wait longer.
const STALL: Duration = Duration::from_millis(300);

#[test]
fn guests_of_a_million_extents_wait_for_a_moment() {
    let extents = std::env::var("TERRACE_EXTENTS").ok();
    let extents = extents.map_or(EXTENTS, |n| n.parse().unwrap());
    let mut site = with_extents(extents);
    site.serve(&[]);
    site.copies_are_current();
    let uri = site.uri("db");
    let first = |n: usize| n * 1000;
    let guests: Vec<Guest> = (0..GUESTS)
        .map(|n| Guest::new(&uri, first(n), 1000, PAUSE))
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    for _ in 0..3 {
        site.take_over(&[]);
        std::thread::sleep(Duration::from_secs(1));
    }
    let guests = guests.into_iter().enumerate();
    let seen: Vec<Seen> = guests.map(|(n, guest)| guest.end(first(n))).collect();
    let worst = seen.iter().map(|s| s.worst).max().unwrap();
    let requests: u64 = seen.iter().map(|s| s.requests).sum();
    println!("{extents} extents, {requests} requests, the worst took {worst:?}");
    println!("{}", site.log());
    assert!(worst < STALL, "{worst:?}");
}
