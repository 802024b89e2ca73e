//! Entry points for fuzzers. For any memory content, changed at any time, nothing panics, hangs or exceeds its limits.

use std::sync::Arc;

use vm_memory::{Bytes, MmapRegion, VolatileMemory};

use crate::{InflightBuffer, Memory, Queue, QueueSetup, Region, blk};

/// Size of the guest's memory, bytes.
const MEMORY_BYTES: usize = 64 << 10;

/// Number of descriptors of the queue.
const SIZE: u16 = 16;

/// Largest number of polls of the queue per input.
const STEPS_MAX: usize = 256;

fn map(bytes: &[u8]) -> MmapRegion {
    let map = MmapRegion::new(MEMORY_BYTES).expect("some memory");
    overwrite(&map, 0, bytes);
    map
}

fn overwrite(map: &MmapRegion, at: usize, bytes: &[u8]) {
    let slice = map.get_slice(0, MEMORY_BYTES).expect("all of it");
    for (n, byte) in bytes.iter().enumerate() {
        let written = slice.write_obj(*byte, (at + n) % MEMORY_BYTES);
        written.expect("it is inside");
    }
}

/// Runs a queue at the start of a guest's memory. The first four bytes of the input choose features, base and changes of the
/// memory; the rest is the memory. An inflight buffer gets the same bytes.
pub fn queue(bytes: &[u8]) {
    let Some((choices, bytes)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let bytes = &bytes[..bytes.len().min(MEMORY_BYTES)];
    let guest = map(bytes);
    let has = |bit: u8| choices[0] & 1 << bit != 0;
    let regions = vec![Region {
        guest: 0,
        user: 0x1000,
        length: MEMORY_BYTES as u64,
        map: Arc::new(guest),
        at: 0,
    }];
    let memory = Arc::new(Memory::new(regions).expect("one region"));
    let inflight = has(2).then(|| {
        let map = map(&bytes[..bytes.len().min(4096)]);
        InflightBuffer::new(Arc::new(map), 0, 1, SIZE).expect("it has room")
    });
    let account = inflight.map(|l| l.account(0, SIZE).expect("the first"));
    let setup = QueueSetup {
        size: SIZE,
        descriptors: 0x1000,
        available: 0x1000 + 16 * u64::from(SIZE),
        used: 0x1000 + 0x400,
        base: u16::from(choices[1]),
        event_index: has(0),
        indirect: has(1),
    };
    let Ok(mut queue) = Queue::new(memory, setup, account) else {
        return;
    };
    let mut carried_out = vec![];
    for step in 0..STEPS_MAX {
        match queue.pop() {
            Err(_) => return,
            Ok(None) => match queue.arm() {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            },
            Ok(Some(chain)) => carried_out.push(chain),
        }
        assert!(
            carried_out.len() <= usize::from(SIZE),
            "more than the queue holds"
        );
        // Completions are out of order, and the written bytes may be the queue itself.
        let at = usize::from(choices[2]).wrapping_add(step) % (carried_out.len() + 1);
        if at < carried_out.len() {
            let chain = carried_out.swap_remove(at);
            let data = vec![choices[3]; chain.writable().min(8192) as usize];
            match blk::parse(&chain, 1 << 20) {
                Err(_) => return,
                Ok(asked) => {
                    let status = match asked {
                        Ok(request) => {
                            assert!(request.length <= 1 << 30);
                            if request.operation == blk::Operation::Read {
                                let most = request.length.min(data.len() as u64);
                                chain.write(0, &data[..most as usize]);
                            }
                            if request.operation == blk::Operation::Write {
                                let mut payload = vec![0; request.length.min(8192) as usize];
                                chain.read(blk::DATA_AT, &mut payload);
                            }
                            blk::Status::Done
                        }
                        Err(status) => status,
                    };
                    let written = blk::finish(&chain, status, 0);
                    queue.push(chain, written);
                }
            }
            if has(3) {
                queue.publish();
            }
        }
    }
}
