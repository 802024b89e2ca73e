use algo::Rng;

use super::*;

const SECTOR_IN_PAGE: Alignment = Alignment {
    memory: 512,
    block: 4096,
};

/// Returns all steps of an I/O.
fn steps(
    alignment: Alignment,
    writes: bool,
    at: u64,
    length: u64,
    from: usize,
) -> Vec<(u64, Step)> {
    let mut all = vec![];
    let mut done = 0;
    while done < length {
        let step = alignment.step(writes, at + done, length - done, from + done as usize);
        all.push((at + done, step));
        done += match step {
            Step::Plain(bytes) => bytes,
            Step::Through(through) => through.bytes,
        };
    }
    assert_eq!(done, length);
    all
}

fn through(at: u64, length: u64, skip: u64, bytes: u64) -> Step {
    Step::Through(BufferedPart {
        at,
        length,
        skip,
        bytes,
    })
}

#[test]
fn aligned_io_is_one_plain_step() {
    let all = steps(SECTOR_IN_PAGE, true, 8192, 1 << 20, 512);
    assert_eq!(all, [(8192, Step::Plain(1 << 20))]);
}

#[test]
fn unaligned_memory_uses_a_buffer_without_a_read() {
    let all = steps(SECTOR_IN_PAGE, true, 8192, 300 << 10, 7);
    let first = through(8192, 256 << 10, 0, 256 << 10);
    let second = through(8192 + (256 << 10), 44 << 10, 0, 44 << 10);
    assert_eq!(all, [(8192, first), (8192 + (256 << 10), second)]);
    assert!(
        all.iter()
            .all(|s| !matches!(s.1, Step::Through(t) if t.merges()))
    );
}

#[test]
fn short_unaligned_write_is_one_step() {
    let all = steps(SECTOR_IN_PAGE, true, 4096 + 512, 8192, 512);
    assert_eq!(all, [(4608, through(4096, 12288, 512, 8192))]);
}

#[test]
fn long_unaligned_write_buffers_only_its_ends() {
    let length = 1 << 20;
    let all = steps(SECTOR_IN_PAGE, true, 512, length, 512);
    let middle = length - (4096 - 512) - 512;
    assert_eq!(
        all,
        [
            (512, through(0, 4096, 512, 3584)),
            (4096, Step::Plain(middle)),
            (4096 + middle, through(4096 + middle, 4096, 0, 512)),
        ]
    );
}

/// Executes random I/Os with random alignments byte by byte, and compares them with unaligned ones.
#[test]
fn steps_perform_the_request_and_are_aligned() {
    let mut rng = Rng::new(7, 0xd1);
    for _ in 0..20_000 {
        let alignment = Alignment {
            memory: 1 << rng.below(13),
            block: 512 << rng.below(4),
        };
        let unit = [1, 512, u64::from(alignment.block)][rng.below(3) as usize];
        let longest = 1 << rng.below(20);
        let length = (1 + rng.below(longest) / unit) * unit;
        let at = rng.below(1 << 20) / unit * unit;
        let from = rng.below(8192) as usize;
        let writes = rng.below(2) == 0;
        let mut through_bytes = 0;
        for (at, step) in steps(alignment, writes, at, length, from) {
            match step {
                Step::Plain(bytes) => assert!(alignment.is_whole(at, bytes) && bytes > 0),
                Step::Through(t) => {
                    assert!(alignment.is_whole(t.at, t.length) && t.length <= THROUGH_BYTES);
                    assert_eq!(t.at + t.skip, at);
                    assert!(t.bytes > 0 && t.skip + t.bytes <= t.length);
                    // A write does not read more than necessary.
                    assert!(!(writes && t.merges()) || t.length <= MERGED_AT_ONCE);
                    through_bytes += t.length;
                }
            }
        }
        let slack = 2 * u64::from(alignment.block);
        assert!(through_bytes <= length + slack + MERGED_AT_ONCE);
    }
}

/// Write that waits or is in flight.
struct Write {
    number: u32,
    /// Time of its start.
    value: u32,
    begun: bool,
    range: Range<u64>,
    seen: Option<Vec<u32>>,
}

/// Executes random writes on one device in any permitted order. Of two writes at different times, the later one
/// determines each byte.
#[test]
fn concurrent_unaligned_writes_lose_no_update() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed, 0x0d);
        let alignment = Alignment {
            memory: 1,
            block: 16,
        };
        const BYTES: u64 = 160;
        let mut order = ChangeQueue::default();
        let mut device = vec![0_u32; BYTES as usize];
        // Possible values of each byte, with the time of their write. When a write completes, it excludes values
        // whose write had completed before its start. Of two simultaneous writes, either value is possible.
        let mut possible: Vec<Vec<(u32, Option<u32>)>> = vec![vec![(0, Some(0))]; BYTES as usize];
        let mut live: Vec<Write> = vec![];
        let mut free: Vec<u32> = (0..8).collect();
        for now in 1..400 {
            if let Some(number) = free.pop() {
                let at = rng.below(BYTES - 1);
                let length = 1 + rng.below((BYTES - at).min(40));
                let range = at..at + length;
                for byte in range.clone() {
                    possible[byte as usize].push((now, None));
                }
                live.push(Write {
                    number,
                    value: now,
                    begun: order.begin(number, 0, 0..=0, alignment.changes(at, length)),
                    range,
                    seen: None,
                });
            }
            // One of the started writes makes a step.
            let begun: Vec<usize> = (0..live.len()).filter(|i| live[*i].begun).collect();
            let index = begun[rng.below(begun.len() as u64) as usize];
            let range = live[index].range.clone();
            let blocks = alignment.blocks(range.start, range.end - range.start);
            let all = blocks.start as usize..blocks.end as usize;
            match live[index].seen.take() {
                None => live[index].seen = Some(device[all].to_vec()),
                Some(mut seen) => {
                    let write = live.remove(index);
                    for byte in range.clone() {
                        seen[(byte - blocks.start) as usize] = write.value;
                    }
                    device[all].copy_from_slice(&seen);
                    for byte in range {
                        let possible = &mut possible[byte as usize];
                        possible.retain(|p| p.1.is_none_or(|over| over >= write.value));
                        let own = possible.iter_mut().find(|p| p.0 == write.value);
                        own.unwrap().1 = Some(now);
                    }
                    for next in order.over(write.number) {
                        live.iter_mut().find(|l| l.number == next).unwrap().begun = true;
                    }
                    free.push(write.number);
                }
            }
            for (byte, value) in device.iter().enumerate() {
                let known = possible[byte].iter().any(|p| p.0 == *value);
                assert!(
                    known,
                    "seed {seed}, byte {byte}: {value} of {:?}",
                    possible[byte]
                );
            }
        }
    }
}

#[test]
fn whole_block_writes_wait_only_for_read_modify_writes() {
    let mut order = ChangeQueue::default();
    let mut begin = |io, (device, slot), at, length| {
        order.begin(io, device, slot..=slot, SECTOR_IN_PAGE.changes(at, length))
    };
    assert!(begin(0, (0, 7), 0, 4096));
    assert!(begin(1, (0, 7), 0, 4096), "both are guests' own affair");
    assert!(!begin(2, (0, 7), 512, 512));
    assert!(!begin(3, (0, 7), 0, 8192));
    assert!(begin(4, (1, 7), 0, 8192), "another device");
    assert!(begin(5, (0, 7), 4096, 4096), "other blocks");
    assert!(order.over(0).is_empty());
    assert_eq!(order.over(1), [2]);
    assert!(order.over(5).is_empty());
    assert_eq!(order.over(2), [3]);
    assert!(order.over(3).is_empty());
    assert!(order.over(9).is_empty(), "never told of");
    assert_eq!(order.slots.len(), 1, "what is over leaves nothing");
}

#[test]
fn cached_writes_wait_only_for_read_modify_writes() {
    let mut order = ChangeQueue::default();
    let cached = |at| Changes::cached(at, 512);
    assert!(order.begin(0, 0, 0..=0, cached(0)));
    assert!(order.begin(1, 0, 0..=0, cached(512)), "of the same block");
    assert!(!order.begin(2, 0, 0..=0, SECTOR_IN_PAGE.changes(1024, 512)));
    assert!(!order.begin(3, 0, 0..=0, cached(1536)));
    assert!(order.over(0).is_empty());
    assert_eq!(order.over(1), [2]);
    assert_eq!(order.over(2), [3]);
}

#[test]
fn long_unaligned_write_blocks_others_only_at_its_ends() {
    let mut order = ChangeQueue::default();
    let mut begin = |io, at, length| order.begin(io, 0, 0..=0, SECTOR_IN_PAGE.changes(at, length));
    assert!(begin(0, 512, 1 << 20));
    assert!(begin(1, 8192, 4096), "a whole block in the middle");
    assert!(
        !begin(2, 16384 + 512, 512),
        "it would bring back the rest of the block"
    );
    assert!(!begin(3, 0, 4096));
    assert!(!begin(4, 1 << 20, 4096));
    assert_eq!(order.over(0), [2, 3, 4]);
}

#[test]
fn queued_changes_of_a_lost_device_are_cancelled_and_started_ones_end() {
    let mut order = ChangeQueue::default();
    let mut begin = |io, (device, slot), at| {
        order.begin(io, device, slot..=slot, SECTOR_IN_PAGE.changes(at, 512))
    };
    assert!(begin(0, (3, 0), 0));
    assert!(!begin(1, (3, 0), 512));
    assert!(begin(2, (3, 9), 0));
    assert!(!begin(3, (3, 9), 1024));
    assert!(begin(4, (4, 0), 0));
    assert!(!begin(5, (4, 0), 512));
    assert_eq!(order.give_up(3), [1, 3]);
    // Newer writes wait for started ones, which may still write.
    assert!(!order.begin(1, 3, 0..=0, SECTOR_IN_PAGE.changes(0, 4096)));
    assert_eq!(order.over(0), [1]);
    assert_eq!(order.over(4), [5]);
}

#[test]
fn change_across_slots_is_found_in_each_slot_and_counted_once() {
    let mut order = ChangeQueue::default();
    let changes = |at, length| SECTOR_IN_PAGE.changes(at, length);
    // Two consecutive slots of 64 KiB.
    assert!(order.begin(0, 0, 2..=3, changes(128 << 10, 65536 + 512)));
    assert!(!order.begin(1, 0, 3..=3, changes((192 << 10) + 512, 512)));
    assert!(!order.begin(2, 0, 2..=3, changes(128 << 10, 128 << 10)));
    assert_eq!(order.over(0), [1]);
    assert_eq!(order.over(1), [2]);
    assert!(order.over(2).is_empty() && order.slots.is_empty());
}
