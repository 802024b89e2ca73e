//! A device that is killed at any moment, and the next one that reads its inflight buffer.

use testkit::virtio::Form;
use vring::{InflightBuffer, Queue, QueueSetup, RingError};

use crate::site::{BUFFERS, SIZE, Site};

/// Requests that are told apart by the one byte that they hold.
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

/// What is left to do, in the order in which it is done, by the numbers of requests.
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
fn what_was_not_answered_is_taken_again_in_its_order() {
    let mut site = Site::new(true);
    hand_in(&mut site, 0..5);
    let mut queue = site.queue_kept();
    let mut chains: Vec<_> = (0..4).map(|_| take(&mut queue).1).collect();
    // Out of order: the second and the fourth are answered and seen, the first is answered and not seen.
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
    // Once more, after nothing was answered: now five are in flight, and their order is the old one.
    drop(queue);
    let mut queue = site.queue_kept();
    assert_eq!(queue.resubmitted(), 4);
    assert_eq!(left(&mut queue), [0, 2, 4, 5]);
}

/// The steps of a batch of answers: chained, seen by the guest, marks off, index noted. A device that dies between any two of them leaves the next
/// one with what the guest has not seen.
#[test]
fn a_batch_that_was_cut_short_is_put_in_order() {
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
        // As it was when the guest had seen the answers, and only some of the marks were taken off.
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

/// One that died before the guest saw the batch leaves all of it to be done again.
#[test]
fn a_batch_that_nobody_saw_is_done_again() {
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
fn an_inflight_buffer_that_is_new_begins_where_it_is_told() {
    let mut site = Site::new(true);
    // A guest that has come from elsewhere: its indices are not zero.
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
    // And from now on the inflight buffer knows better than anybody.
    site.setup.base = 0;
    let mut queue = site.queue_kept();
    assert_eq!((queue.resubmitted(), queue.next_available()), (1, 4));
    assert_eq!(take(&mut queue).0, 7);
}

#[test]
fn an_inflight_buffer_of_something_else_is_refused() {
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
    // A chain of answers that leads to a head that does not exist.
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
fn the_memo_is_kept_apart_from_the_queues() {
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

/// A queue that is to stop finishes what is in flight, also what an earlier process left, and says where the next one begins.
#[test]
fn a_queue_that_ends_takes_nothing_new() {
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
