//! Address translation in memory of several regions.

use std::sync::Arc;

use testkit::virtio::{Driver, Form};
use vm_memory::{Bytes, MmapRegion, VolatileMemory};
use vring::{Memory, Queue, QueueSetup, Region, RingError};

use crate::site::{BUFFERS, SIZE, Site, USER, anonymous, setup_of};

fn region(guest: u64, user: u64, length: u64, map: &Arc<MmapRegion>, at: usize) -> Region {
    Region {
        guest,
        user,
        length,
        map: map.clone(),
        at,
    }
}

/// A buffer whose halves are in adjacent regions, at different places of the mapping.
#[test]
fn buffer_may_span_adjacent_regions() {
    let map = Arc::new(anonymous());
    let mut driver = Driver::new(map.clone(), 0, SIZE, false);
    let memory = Memory::new(vec![
        region(BUFFERS, USER + 0x9000_0000, 0x1000, &map, 0xc_0000),
        region(0, USER, BUFFERS, &map, 0),
    ]);
    let setup = setup_of(&driver, false, false);
    let mut queue = Queue::new(Arc::new(memory.unwrap()), setup, None).unwrap();
    driver.add(&[], &[(BUFFERS - 100, 200)], Form::Direct);
    driver.expose();
    let chain = queue.pop().unwrap().unwrap();
    assert_eq!((chain.readable(), chain.writable()), (0, 200));
    chain.write(50, &[7; 100]);
    let all = map.get_slice(0, map.size()).unwrap();
    let mut bytes = [0; 50];
    all.read_slice(&mut bytes, BUFFERS as usize - 50).unwrap();
    assert_eq!(bytes, [7; 50]);
    all.read_slice(&mut bytes, 0xc_0000).unwrap();
    assert_eq!(bytes, [7; 50]);
    // One byte more than both regions have.
    driver.add(&[(BUFFERS - 1, 0x1002)], &[], Form::Direct);
    driver.expose();
    let refused = queue.pop().unwrap_err();
    let outside = RingError::Outside {
        what: "a buffer",
        address: BUFFERS - 1,
        length: 0x1002,
    };
    assert_eq!(refused, outside);
}

#[test]
fn invalid_regions_are_refused() {
    let map = Arc::new(anonymous());
    let overlap = vec![
        region(0, 0, 0x2000, &map, 0),
        region(0x1fff, 0x8000, 0x1000, &map, 0x4000),
    ];
    let refused = Memory::new(overlap).unwrap_err();
    assert_eq!(refused, RingError::Overlap { address: 0x1fff });
    for (guest, length, at) in [
        (0, map.size() as u64 + 1, 0),
        (0, 2, map.size() - 1),
        (u64::MAX, 2, 0),
        (0, u64::MAX, 1),
    ] {
        let refused = Memory::new(vec![region(guest, 0, length, &map, at)]).unwrap_err();
        let unmapped = RingError::Unmapped {
            address: guest,
            length,
        };
        assert_eq!(refused, unmapped);
    }
}

#[test]
fn rings_must_be_in_memory_and_aligned() {
    let site = Site::new(false);
    let with = |change: fn(&mut QueueSetup)| {
        let mut setup = site.setup;
        change(&mut setup);
        Queue::new(site.memory.clone(), setup, None).map(drop)
    };
    assert_eq!(with(|_| ()), Ok(()));
    let unaligned = with(|s| s.used += 2).unwrap_err();
    assert!(matches!(
        unaligned,
        RingError::Unaligned {
            what: "the used ring",
            ..
        }
    ));
    let unaligned = with(|s| s.descriptors += 8).unwrap_err();
    assert!(matches!(
        unaligned,
        RingError::Unaligned {
            what: "the descriptors",
            ..
        }
    ));
    let outside = with(|s| s.available = USER + (1 << 20) - 4).unwrap_err();
    assert!(matches!(
        outside,
        RingError::Outside {
            what: "the available ring",
            ..
        }
    ));
    let outside = with(|s| s.descriptors = 0x1000).unwrap_err();
    assert!(matches!(outside, RingError::Outside { .. }));
    for size in [0, 3, 2048] {
        let mut setup = site.setup;
        setup.size = size;
        let refused = Queue::new(site.memory.clone(), setup, None).map(drop);
        assert_eq!(refused, Err(RingError::Size(size.into())));
    }
}

/// Chains that were taken before the memory changed are completed in the old memory.
#[test]
fn chains_complete_in_the_old_memory_after_a_change() {
    let mut site = Site::new(false);
    let mut queue = site.queue();
    site.driver.add(&[], &[(BUFFERS, 4)], Form::Direct);
    site.driver.add(&[], &[(BUFFERS, 4)], Form::Direct);
    site.driver.expose();
    let old = queue.pop().unwrap().unwrap();
    let elsewhere = region(0, USER, 0x1000, &site.map, 0);
    let small = Memory::new(vec![elsewhere]).unwrap();
    // The new memory has the queue, but not the tables and buffers.
    queue.set_memory(Arc::new(small)).unwrap();
    old.write(0, b"done");
    queue.push(old, 4);
    assert!(matches!(queue.pop(), Err(RingError::Outside { .. })));
    let moved = region(0, USER + 0x1000, 1 << 20, &site.map, 0);
    let moved = Memory::new(vec![moved]).unwrap();
    let gone = queue.set_memory(Arc::new(moved)).unwrap_err();
    assert!(matches!(
        gone,
        RingError::Outside {
            what: "the descriptors",
            ..
        }
    ));
}
