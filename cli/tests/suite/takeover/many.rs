//! Take-over of a server with very many extents. `tests/timing` measures the pause of its guests.

use std::time::Duration;

use super::Guest;
use crate::support::extents::with_extents;

#[test]
fn take_over_of_many_extents_loses_no_write() {
    let mut site = with_extents(200_000);
    site.serve(&[]);
    site.copies_are_current();
    let uri = site.uri("db");
    let first = |n: usize| n * 1000;
    let guests: Vec<Guest> = (0..4)
        .map(|n| Guest::new(&uri, first(n), 1000, Duration::from_millis(2)))
        .collect();
    for _ in 0..3 {
        site.take_over(&[]);
    }
    for (n, guest) in guests.into_iter().enumerate() {
        guest.end(first(n));
    }
    site.stop();
    site.ok(&["volume", "check"]);
}
