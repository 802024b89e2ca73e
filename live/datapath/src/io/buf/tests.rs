use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// Returns true if a claim is refused, which must leave the buffer unchanged.
fn refused<R>(what: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(what)).is_err()
}

fn free(buf: &Buf) -> bool {
    buf.state.load(Ordering::Acquire) == State::FREE
}

#[test]
fn buffer_range_under_read_io_cannot_be_accessed() {
    let buf = Buf::new(16);
    let target = buf.target(4..8);
    assert!(refused(|| buf.with(0..1, |b| b[0])));
    assert!(refused(|| buf.reading(15..16).len()));
    assert!(refused(|| buf.source(0..1)));
    assert!(refused(|| buf.fill(7..9, |b| b.fill(1))));
    buf.fill(8..9, |b| b.fill(1));
    drop(target);
    assert_eq!(buf.with(7..9, <[u8]>::to_vec), [0, 1]);
    assert!(free(&buf));
}

#[test]
fn buffer_range_under_write_io_cannot_be_changed() {
    let buf = Buf::new(16);
    let (one, other) = (buf.source(0..16), buf.source(3..4));
    assert!(refused(|| buf.fill(15..16, |b| b.fill(1))));
    assert!(refused(|| buf.target(15..16)));
    assert_eq!(buf.with(0..16, <[u8]>::len), 16);
    drop((one, other));
    assert!(free(&buf));
}

#[test]
fn buffer_range_with_a_reader_cannot_be_changed() {
    let buf = Buf::new(16);
    assert!(refused(|| buf.with(0..4, |_| buf.fill(0..4, |b| b.fill(1)))));
    assert!(refused(
        || buf.with(0..4, |_| buf.fill(8..12, |b| b.fill(1)))
    ));
    assert!(refused(|| buf.fill(0..4, |_| buf.fill(3..5, |b| b.fill(1)))));
    assert!(refused(|| buf.fill(0..4, |_| buf.with(3..5, |b| b[0]))));
    assert!(free(&buf), "claims of those that panicked are over");
    buf.with(0..4, |one| buf.with(0..4, |other| assert_eq!(one, other)));
    assert_eq!(buf.with(0..16, <[u8]>::to_vec), [0; 16]);
}

#[test]
fn disjoint_buffer_ranges_can_be_filled_concurrently() {
    let buf = Buf::new(64);
    let mut parts: Vec<Target> = (0..8).map(|i| buf.target(8 * i..8 * i + 8)).collect();
    for range in [0..1, 7..9, 63..64, 0..64, 8..16] {
        assert!(refused(|| buf.target(range.clone())), "{range:?}");
        assert!(refused(|| buf.fill(range, |_| ())));
    }
    for (i, part) in parts.iter_mut().enumerate() {
        part.fill(i as u8);
    }
    // Each dropped claim frees its range for others, in any order.
    drop(parts.remove(3));
    assert!(refused(|| buf.target(23..32)));
    let mut again = buf.target(24..32);
    again.fill(9);
    assert!(refused(|| buf.with(24..32, |b| b[0])));
    drop(again);
    while parts.len() > 1 {
        drop(parts.remove(parts.len() / 2));
        assert!(!free(&buf));
    }
    drop(parts);
    assert!(free(&buf));
    let filled: Vec<u8> = [0, 1, 2, 9, 4, 5, 6, 7].map(|i| [i; 8]).concat();
    assert_eq!(buf.with(0..64, <[u8]>::to_vec), filled);
}

#[test]
fn threads_that_fill_disjoint_ranges_do_not_interfere() {
    const ROUNDS: usize = 2000;
    let buf = Buf::new(4 * 8);
    std::thread::scope(|scope| {
        for i in 0..4_u8 {
            let at = usize::from(i) * 8;
            let buf = &buf;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut part = buf.target(at..at + 8);
                    part.fill(round as u8 ^ i);
                    assert_eq!(*part, [round as u8 ^ i; 8]);
                }
            });
        }
    });
    assert!(free(&buf));
}

#[test]
fn buffer_claims_beyond_the_end_are_refused() {
    let buf = Buf::new(16);
    assert!(refused(|| buf.target(8..17)));
    assert!(refused(|| buf.source(17..17)));
    #[allow(clippy::reversed_empty_ranges)]
    let backwards = 5..4;
    assert!(refused(|| buf.fill(backwards, |_| ())));
    buf.fill(16..16, |b| assert!(b.is_empty()));
    assert!(free(&buf));
}

#[test]
fn pool_reuses_only_buffers_without_other_holders() {
    let mut pool = Pool::default();
    let a = pool.take(4096);
    let held = a.clone();
    pool.give(a);
    let b = pool.take(4096);
    assert!(!Arc::ptr_eq(&held, &b));
    let at = Arc::as_ptr(&b);
    pool.give(b);
    let c = pool.take(100);
    assert_eq!(Arc::as_ptr(&c), at);
    let target = c.target(0..100);
    pool.give(c);
    assert_ne!(Arc::as_ptr(&pool.take(100)), at, "an I/O holds it");
    drop(target);
    assert!(pool.take(5 << 20).len() >= 5 << 20);
}
