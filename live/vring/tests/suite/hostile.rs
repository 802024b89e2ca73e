//! Guests that violate the protocol: their queue ends with the reason.

use testkit::virtio::{Driver, Form};
use vring::{CHAIN_MAX, Queue, QueueSetup, RingError};

use crate::site::{BUFFERS, SIZE, Site};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// Returns the result of taking a request with these descriptors, from the first one on.
fn popped(descriptors: &[(u64, u32, u16, u16)]) -> Result<(u64, u64), RingError> {
    let mut site = Site::new(false);
    let mut queue = site.queue();
    let [table, _, _] = site.driver.places();
    for (n, (address, length, flags, next)) in descriptors.iter().enumerate() {
        let buffer = (*address, *length);
        site.driver.describe(table, n as u16, buffer, *flags, *next);
    }
    offer(&mut site.driver, 0);
    let chain = queue.pop()?.expect("one was handed in");
    Ok((chain.readable(), chain.writable()))
}

fn offer(driver: &mut Driver, head: u16) {
    driver.offer(head);
    driver.expose();
}

#[test]
fn descriptor_loop_is_refused() {
    let refused = popped(&[(BUFFERS, 1, NEXT, 1), (BUFFERS, 1, NEXT, 0)]);
    assert_eq!(refused, Err(RingError::Endless(CHAIN_MAX)));
    let refused = popped(&[(BUFFERS, 1, NEXT, 0)]);
    assert_eq!(refused, Err(RingError::Endless(CHAIN_MAX)));
    // Also with empty descriptors.
    let refused = popped(&[(BUFFERS, 0, NEXT, 0)]);
    assert_eq!(refused, Err(RingError::Endless(CHAIN_MAX)));
}

#[test]
fn buffers_outside_memory_are_refused() {
    for (address, length) in [
        (1 << 20, 1),
        ((1 << 20) - 1, 2),
        (u64::MAX, 1),
        (u64::MAX - 1, u32::MAX),
        (0, u32::MAX),
    ] {
        let outside = RingError::Outside {
            what: "a buffer",
            address,
            length: length.into(),
        };
        assert_eq!(popped(&[(address, length, 0, 0)]), Err(outside));
        let refused = popped(&[(address, 16, INDIRECT, 0)]);
        if address > 0 {
            assert!(
                matches!(refused, Err(RingError::Outside { .. })),
                "{refused:?}"
            );
        }
    }
    assert_eq!(popped(&[((1 << 20) - 1, 1, WRITE, 0)]), Ok((0, 1)));
}

#[test]
fn missing_descriptors_are_refused() {
    let refused = popped(&[(BUFFERS, 1, NEXT, SIZE)]);
    let index = RingError::Index {
        index: SIZE,
        size: SIZE,
    };
    assert_eq!(refused, Err(index));
    let mut site = Site::new(false);
    let mut queue = site.queue();
    offer(&mut site.driver, SIZE);
    assert_eq!(queue.pop().map(drop), Err(index));
}

#[test]
fn readable_descriptors_must_come_first() {
    let refused = popped(&[(BUFFERS, 1, WRITE | NEXT, 1), (BUFFERS, 1, 0, 0)]);
    assert_eq!(refused, Err(RingError::Order(1)));
    // Also with an empty writable buffer.
    let refused = popped(&[(BUFFERS, 0, WRITE | NEXT, 1), (BUFFERS, 1, 0, 0)]);
    assert_eq!(refused, Err(RingError::Order(1)));
}

#[test]
fn invalid_indirect_tables_are_refused() {
    let table = |length: u32, flags: u16| popped(&[(BUFFERS, length, INDIRECT | flags, 1)]);
    for refused in [table(0, 0), table(17, 0), table(16, NEXT)] {
        assert!(
            matches!(refused, Err(RingError::Table { index: 0, .. })),
            "{refused:?}"
        );
    }
    // A nested table: the first descriptor refers to itself.
    let refused = popped(&[(0, 16, INDIRECT, 0)]);
    assert!(
        matches!(refused, Err(RingError::Table { index: 0, .. })),
        "{refused:?}"
    );
    // One descriptor of zeroes.
    assert_eq!(table(16, 0), Ok((0, 0)));

    let site = Site::new(false);
    let without = QueueSetup {
        indirect: false,
        ..site.setup
    };
    let mut queue = Queue::new(site.memory.clone(), without, None).unwrap();
    let mut driver = site.driver;
    driver.add(&[(BUFFERS, 16)], &[], Form::Indirect);
    driver.expose();
    assert!(matches!(queue.pop(), Err(RingError::Table { .. })));
}

/// The longest permitted chain in an indirect table, and a longer one.
#[test]
fn chain_length_is_limited() {
    for (descriptors, fits) in [(CHAIN_MAX - 1, true), (CHAIN_MAX, false)] {
        let mut site = Site::new(false);
        let mut queue = site.queue();
        let [table, _, _] = site.driver.places();
        for n in 0..descriptors {
            let last = n + 1 == descriptors;
            let flags = if last { 0 } else { NEXT };
            let (at, next) = (n as u16, n as u16 + 1);
            site.driver.describe(BUFFERS, at, (0, 1), flags, next);
        }
        let named = (BUFFERS, 16 * descriptors);
        site.driver.describe(table, 0, named, INDIRECT, 0);
        offer(&mut site.driver, 0);
        match queue.pop() {
            Ok(chain) => assert!(fits && chain.unwrap().readable() == u64::from(descriptors)),
            Err(why) => assert!(!fits && why == RingError::Endless(CHAIN_MAX), "{why}"),
        }
    }
}

#[test]
fn request_offered_twice_is_refused() {
    let mut site = Site::new(false);
    let mut queue = site.queue();
    let head = site
        .driver
        .add(&[(BUFFERS, 16)], &[], Form::Direct)
        .unwrap();
    site.driver.offer(head);
    site.driver.expose();
    let chain = queue.pop().unwrap().unwrap();
    assert_eq!(queue.pop().map(drop), Err(RingError::Again(head)));
    assert_eq!(chain.head(), head);
}

#[test]
fn queue_with_too_many_requests_is_refused() {
    let mut site = Site::new(false);
    let mut queue = site.queue();
    for head in 0..=SIZE {
        site.driver.offer(head % SIZE);
    }
    site.driver.expose();
    let ahead = RingError::Ahead {
        ahead: SIZE + 1,
        size: SIZE,
    };
    assert_eq!(queue.pop().map(drop), Err(ahead));
    assert_eq!(queue.arm(), Err(ahead));
}

/// Only the first read counts, even if the guest changes the memory later.
#[test]
fn later_changes_of_descriptors_and_headers_are_ignored() {
    let mut site = Site::new(false);
    let mut queue = site.queue();
    let write = [&1u32.to_le_bytes()[..], &[0; 12]].concat();
    site.driver.put(BUFFERS, &write);
    let read = [(BUFFERS, 16), (BUFFERS + 16, 512)];
    let head = site
        .driver
        .add(&read, &[(BUFFERS + 528, 1)], Form::Indirect);
    site.driver.expose();
    let chain = queue.pop().unwrap().unwrap();
    let asked = vring::blk::parse(&chain, 1 << 20).unwrap().unwrap();
    // Now all descriptors are very long and outside the memory.
    let table = site.driver.table_of(head.unwrap());
    for n in 0..3 {
        let nowhere = (u64::MAX - 5, u32::MAX);
        site.driver.describe(table, n, nowhere, NEXT | WRITE, n);
    }
    site.driver.put(BUFFERS, &[0xff; 16]);
    site.driver.put(BUFFERS + 16, &[3; 512]);
    assert_eq!((chain.readable(), chain.writable()), (528, 1));
    let mut data = vec![0; asked.length as usize];
    chain.read(vring::blk::DATA_AT, &mut data);
    assert_eq!(data, [3; 512]);
    let written = vring::blk::finish(&chain, vring::blk::Status::Done, 0);
    queue.push(chain, written);
    queue.publish();
    assert_eq!(site.driver.next_used(), Some((head.unwrap(), 1)));
}
