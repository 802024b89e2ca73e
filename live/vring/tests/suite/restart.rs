//! A device that is killed at any moment, and its successor that reads the inflight buffer.

use testkit::virtio::Form;
use vring::{InflightBuffer, Queue, QueueSetup, RingError};

use crate::site::{BUFFERS, SIZE, Site};

/// Submits requests that are identified by their only byte.
fn hand_in(site: &mut Site, numbers: std::ops::Range<u8>) -> Vec<u16> {
    let heads = numbers.map(|number| {
        let at = BUFFERS + u64::from(number);
        site.driver.put(at, &[number]);
        site.driver.add(&[(at, 1)], &[], Form::Indirect).unwrap()
    });
    let heads = heads.collect();
    site.driver.expose();
    heads
}

fn take(queue: &mut Queue) -> (u8, vring::Chain) {
    let chain = queue.pop().unwrap().expect("something to take");
    let mut number = [0];
    chain.read(0, &mut number);
    (number[0], chain)
}

/// Returns the numbers of the remaining requests in the order in which they are taken.
fn left(queue: &mut Queue) -> Vec<u8> {
    let mut left = vec![];
    while let Some(chain) = queue.pop().unwrap() {
        let mut number = [0];
        chain.read(0, &mut number);
        left.push(number[0]);
    }
    left
}

#[test]
fn unanswered_requests_are_taken_again_in_order() {
    let mut site = Site::new(true);
    hand_in(&mut site, 0..5);
    let mut queue = site.queue_kept();
    let mut chains: Vec<_> = (0..4).map(|_| take(&mut queue).1).collect();
    // Out of order: the second and the fourth completion are published, the first one is not.
    queue.push(chains.remove(3), 0);
    queue.push(chains.remove(1), 0);
    queue.publish();
    queue.push(chains.remove(0), 0);
    drop((queue, chains));
    let answered: Vec<_> = std::iter::from_fn(|| site.driver.next_used()).collect();
    assert_eq!(answered.len(), 2);
    hand_in(&mut site, 5..6);

    let mut queue = site.queue_kept();
    assert_eq!((queue.resubmitted(), queue.in_flight()), (2, 2));
    assert_eq!(left(&mut queue), [0, 2, 4, 5]);
    // A second restart without completions: now five requests are in flight, in the old order.
    drop(queue);
    let mut queue = site.queue_kept();
    assert_eq!(queue.resubmitted(), 4);
    assert_eq!(left(&mut queue), [0, 2, 4, 5]);
}

/// Steps of a batch of completions: link, publish, clear the marks, record the index. A device that dies between two steps
/// leaves exactly the unpublished requests to its successor.
#[test]
fn interrupted_batch_is_completed_in_order() {
    for unmarked in 0..=3 {
        let mut site = Site::new(false);
        let heads = hand_in(&mut site, 0..5);
        let mut queue = site.queue_kept();
        let mut chains: Vec<_> = (0..5).map(|_| take(&mut queue).1).collect();
        queue.push(chains.remove(0), 0);
        queue.publish();
        let batch = [3, 1, 4];
        for number in batch {
            let at = chains.iter().position(|c| c.head() == heads[number]);
            queue.push(chains.remove(at.unwrap()), 0);
        }
        let before = site.inflight_bytes();
        queue.publish();
        let after = site.inflight_bytes();
        // State after publication in which only some of the marks are cleared.
        let mut torn = before.clone();
        let part = InflightBuffer::bytes(1, SIZE) - 64;
        for number in &batch[..unmarked] {
            let at = part + 16 + 16 * usize::from(heads[*number]);
            assert_eq!((before[at], after[at]), (1, 0));
            torn[at] = 0;
        }
        site.set_inflight_bytes(&torn);
        drop((queue, chains));
        let mut queue = site.queue_kept();
        assert_eq!(left(&mut queue), [2], "{unmarked} marks were off");
        assert_eq!(
            site.inflight_bytes()[part + 14],
            4,
            "the used index is noted"
        );
    }
}

/// A device that dies before the publication leaves the whole batch to its successor.
#[test]
fn unpublished_batch_is_processed_again() {
    let mut site = Site::new(false);
    hand_in(&mut site, 0..3);
    let mut queue = site.queue_kept();
    let chains: Vec<_> = (0..3).map(|_| take(&mut queue).1).collect();
    for chain in chains.into_iter().rev() {
        queue.push(chain, 0);
    }
    drop(queue);
    let mut queue = site.queue_kept();
    assert_eq!(left(&mut queue), [0, 1, 2]);
}

#[test]
fn new_inflight_buffer_starts_at_the_given_index() {
    let mut site = Site::new(true);
    // A guest that was migrated: its indices are not zero.
    let mut queue = site.queue();
    for round in 0..3 {
        hand_in(&mut site, round..round + 1);
        let (_, chain) = take(&mut queue);
        queue.push(chain, 0);
        queue.publish();
        site.driver.next_used().unwrap();
    }
    hand_in(&mut site, 7..8);
    site.setup.base = 3;
    let mut queue = site.queue_kept();
    assert_eq!((queue.resubmitted(), queue.next_available()), (0, 3));
    assert_eq!(take(&mut queue).0, 7);
    drop(queue);
    // From now on the inflight buffer determines the index.
    site.setup.base = 0;
    let mut queue = site.queue_kept();
    assert_eq!((queue.resubmitted(), queue.next_available()), (1, 4));
    assert_eq!(take(&mut queue).0, 7);
}

#[test]
fn foreign_inflight_buffer_is_refused() {
    let site = Site::new(false);
    drop(site.queue_kept());
    let refused = |setup: QueueSetup, bytes: &[u8]| {
        site.set_inflight_bytes(bytes);
        let account = site.inflight.account(1, setup.size).unwrap();
        Queue::new(site.memory.clone(), setup, Some(account)).map(drop)
    };
    let good = site.inflight_bytes();
    assert_eq!(refused(site.setup, &good), Ok(()));
    let half = QueueSetup {
        size: SIZE / 2,
        ..site.setup
    };
    let other = refused(half, &good).unwrap_err();
    assert!(matches!(other, RingError::InflightBuffer(_)), "{other}");
    // A list of completions that refers to a head that does not exist.
    let mut bad = good;
    let part = InflightBuffer::bytes(1, SIZE) - 64;
    bad[part + 12..part + 14].copy_from_slice(&SIZE.to_le_bytes());
    bad[part + 14..part + 16].copy_from_slice(&u16::MAX.to_le_bytes());
    let other = refused(site.setup, &bad).unwrap_err();
    assert!(matches!(other, RingError::InflightBuffer(_)), "{other}");

    assert!(site.inflight.account(2, SIZE).is_err());
    assert!(site.inflight.account(0, SIZE * 2).is_err());
    let map = site.inflight_map.clone();
    for (at, queues, size) in [
        (0, 3, SIZE),
        (64, 2, SIZE),
        (0, 0, SIZE),
        (0, 2, 12),
        (8, 1, SIZE),
    ] {
        assert!(
            InflightBuffer::new(map.clone(), at, queues, size).is_err(),
            "{at} {queues} {size}"
        );
    }
}

#[test]
fn write_through_flag_is_stored_separately_from_the_queues() {
    let mut site = Site::new(false);
    assert!(!site.inflight.writes_through());
    site.inflight.note_writes_through(true);
    hand_in(&mut site, 0..2);
    let mut queue = site.queue_kept();
    take(&mut queue);
    drop(queue);
    let again = InflightBuffer::new(site.inflight_map.clone(), 0, 2, SIZE).unwrap();
    assert!(again.writes_through());
    again.note_writes_through(false);
    assert!(!site.inflight.writes_through());
    assert_eq!(site.queue_kept().resubmitted(), 1);
}

/// A queue that stops completes all requests in flight, including those of an earlier process, and returns the next index.
#[test]
fn ending_queue_takes_no_new_requests() {
    let mut site = Site::new(true);
    hand_in(&mut site, 0..3);
    let mut queue = site.queue_kept();
    take(&mut queue);
    take(&mut queue);
    drop(queue);
    let mut queue = site.queue_kept();
    queue.end();
    assert_eq!(queue.arm(), Ok(true));
    for number in [0, 1] {
        let (taken, chain) = take(&mut queue);
        assert_eq!(taken, number);
        queue.push(chain, 0);
    }
    assert!(queue.pop().unwrap().is_none());
    assert_eq!(queue.arm(), Ok(false));
    queue.publish();
    assert_eq!((queue.in_flight(), queue.next_available()), (0, 2));
}
