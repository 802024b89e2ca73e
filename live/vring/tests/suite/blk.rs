//! Block requests in chains of any layout.

use testkit::virtio::{Buffer, Form};
use vring::RingError;
use vring::blk::{self, Operation, ParsedRequest, Request, Status, feature};

use crate::site::{BUFFERS, Site};

const MOST: u64 = 64 << 10;
const DATA: u64 = BUFFERS + 0x1000;

/// Parses a request of this type and sector, with `given` after its header and `room` writable bytes.
fn asked(kind: u32, sector: u64, given: &[u8], room: u32) -> Result<ParsedRequest, RingError> {
    let mut site = Site::new(false);
    let mut queue = site.queue();
    let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
    let bytes = [&header[..], given].concat();
    site.driver.put(BUFFERS, &bytes);
    // Buffer boundaries that match no field.
    let cut = bytes.len() as u32 / 3;
    let readable: [Buffer; 2] = [
        (BUFFERS, cut),
        (BUFFERS + u64::from(cut), bytes.len() as u32 - cut),
    ];
    site.driver.add(&readable, &[(DATA, room)], Form::Indirect);
    site.driver.expose();
    let chain = queue.pop().unwrap().unwrap();
    let asked = blk::parse(&chain, MOST);
    if asked.is_ok() {
        let written = blk::finish(&chain, Status::Unknown, u64::from(room) - 1);
        queue.push(chain, written);
        queue.publish();
        assert_eq!(site.driver.next_used().map(|(_, n)| n), Some(room));
        let mut status = [9];
        site.driver.get(DATA + u64::from(room) - 1, &mut status);
        assert_eq!(status, [2], "the status is the last byte");
    }
    asked
}

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [
        &sector.to_le_bytes()[..],
        &sectors.to_le_bytes(),
        &flags.to_le_bytes(),
    ]
    .concat()
}

fn request(operation: Operation, offset: u64, length: u64) -> Result<ParsedRequest, RingError> {
    Ok(Ok(Request {
        operation,
        offset,
        length,
    }))
}

#[test]
fn requests_are_parsed() {
    assert_eq!(asked(0, 3, &[], 1025), request(Operation::Read, 1536, 1024));
    assert_eq!(
        asked(1, 3, &[5; 512], 1),
        request(Operation::Write, 1536, 512)
    );
    assert_eq!(asked(4, 9, &[], 1), request(Operation::Flush, 0, 0));
    assert_eq!(asked(8, 0, &[], 21), request(Operation::Name, 0, 20));
    assert_eq!(asked(8, 0, &[], 5), request(Operation::Name, 0, 4));
    let some = range(8, 16, 0);
    assert_eq!(
        asked(11, 0, &some, 1),
        request(Operation::Discard, 4096, 8192)
    );
    assert_eq!(
        asked(13, 0, &some, 1),
        request(Operation::ZeroAllocated, 4096, 8192)
    );
    let unmap = range(8, 16, 1);
    assert_eq!(
        asked(13, 0, &unmap, 1),
        request(Operation::Zero, 4096, 8192)
    );
}

#[test]
fn invalid_requests_are_answered_with_an_error() {
    let failed = Ok(Err(Status::Failed));
    let unknown = Ok(Err(Status::Unknown));
    // Partial sectors.
    assert_eq!(asked(0, 0, &[], 512), failed);
    assert_eq!(asked(1, 0, &[0; 100], 1), failed);
    // Lengths and offsets beyond the limits.
    assert_eq!(asked(0, 0, &[], MOST as u32 * 2), Ok(Err(Status::Failed)));
    assert_eq!(asked(0, u64::MAX, &[], 513), failed);
    assert_eq!(asked(11, 0, &range(u64::MAX / 2, 1, 0), 1), failed);
    assert_eq!(asked(11, 0, &range(0, u32::MAX, 0), 1), failed);
    // Two ranges, and part of one.
    assert_eq!(
        asked(13, 0, &[range(0, 1, 0), range(8, 1, 0)].concat(), 1),
        failed
    );
    assert_eq!(asked(11, 0, &[0; 8], 1), failed);
    // Undefined flags and types.
    assert_eq!(asked(11, 0, &range(0, 1, 1), 1), unknown);
    assert_eq!(asked(13, 0, &range(0, 1, 3), 1), unknown);
    assert_eq!(asked(2, 0, &[], 1), unknown);
    assert_eq!(asked(u32::MAX, 0, &[], 1), unknown);
    // Empty requests.
    assert_eq!(asked(0, 0, &[], 1), Ok(Err(Status::Done)));
    assert_eq!(asked(11, 0, &range(5, 0, 0), 1), Ok(Err(Status::Done)));
}

#[test]
fn request_without_header_or_status_is_an_error() {
    for (readable, writable) in [(15, 1), (16, 0), (0, 513)] {
        let mut site = Site::new(false);
        let mut queue = site.queue();
        let read = [(BUFFERS, readable)];
        let written = [(DATA, writable)];
        site.driver.add(&read, &written, Form::Direct);
        site.driver.expose();
        let chain = queue.pop().unwrap().unwrap();
        let headless = RingError::Headless {
            readable: readable.into(),
            writable: writable.into(),
        };
        assert_eq!(blk::parse(&chain, MOST), Err(headless));
    }
}

#[test]
fn configuration_space_matches_the_specification() {
    let config = blk::config(10 << 30, 512, 4, true);
    let number = |at: usize, bytes: usize| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&config[at..at + bytes]);
        u64::from_le_bytes(word)
    };
    assert_eq!(number(0, 8), 20 << 20, "capacity");
    assert_eq!(
        number(8, 4) * number(12, 4),
        126 * (32 << 10),
        "size_max times seg_max"
    );
    assert_eq!(
        (number(16, 2), number(18, 1), number(19, 1)),
        (16383, 16, 63)
    );
    assert_eq!((number(20, 4), number(24, 1), number(26, 2)), (512, 3, 8));
    assert_eq!(
        (number(32, 1), number(34, 2)),
        (1, 4),
        "writeback, num_queues"
    );
    assert_eq!(
        (number(36, 4), number(40, 4), number(44, 4)),
        (1 << 21, 1, 8),
        "discard"
    );
    assert_eq!(
        (number(48, 4), number(52, 4), number(56, 1)),
        (1 << 21, 1, 1),
        "write zeroes"
    );
    assert_eq!(
        blk::config(1 << 20, 512, 1, false)[blk::WRITE_CACHE_AT as usize],
        0
    );
    assert_eq!(
        &blk::name_field("a-volume-of-many-letters"),
        b"a-volume-of-many-let"
    );
    assert_eq!(&blk::name_field("größe")[..8], b"gr\xc3\xb6\xc3\x9fe\0");
}

/// Writes of a guest that does not flush must be durable before they complete.
#[test]
fn guest_flushes_are_derived_from_its_features() {
    let (flush, wce) = (feature::FLUSH, feature::CONFIG_WCE);
    for (features, cached, expected) in [
        (0, true, false),
        (flush, true, true),
        // If the guest cannot set the write cache, the offered one is in use.
        (flush, false, true),
        (flush | wce, true, true),
        (flush | wce, false, false),
        (wce, true, false),
    ] {
        assert_eq!(
            blk::flushes(features, cached),
            expected,
            "{features:#x} {cached}"
        );
    }
}
