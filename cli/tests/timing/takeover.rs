//! Longest wait of guests during the take-over of a server with very many extents.

use std::time::Duration;

use crate::support::checking::{Guest, GuestStats};
use crate::support::extents::with_extents;

/// Number of extents; `TERRACE_EXTENTS` overrides it.
const EXTENTS: u32 = 1_000_000;

/// Number of guests. With [`PAUSE`] between the requests of each guest, they send 5 000 requests per second in all.
const GUESTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(2);

/// Limit of the longest wait of a guest.
const STALL: Duration = Duration::from_millis(300);

#[test]
fn guests_of_a_million_extents_pause_briefly_during_a_take_over() {
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
    let seen: Vec<GuestStats> = guests.map(|(n, guest)| guest.end(first(n))).collect();
    let worst = seen.iter().map(|s| s.worst).max().unwrap();
    let requests: u64 = seen.iter().map(|s| s.requests).sum();
    println!("{extents} extents, {requests} requests, the worst took {worst:?}");
    println!("{}", site.log());
    assert!(worst < STALL, "{worst:?}");
}
