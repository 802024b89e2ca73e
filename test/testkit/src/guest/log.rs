//! Report of a guest: its consistency, and its comparison with the disk's image.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{BLOCK_BYTES, BLOCKS_MAX, BOOT_SHIFT, MARK};

const RECORD_BYTES: usize = 9;
const SECTOR_BYTES: usize = 512;
const SECTORS: usize = BLOCK_BYTES / SECTOR_BYTES;
/// Largest number of boots in a log. The sequence numbers of a further boot would end with the first byte of [`MARK`].
const BOOTS_MAX: u32 = 0xfe;

/// Consistent report of a guest: every read found acknowledged data.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Sequence number of each block: that of the last acknowledged write, or of a later read.
    held: BTreeMap<u32, u32>,
    /// Writes that may be on the disk without an acknowledgement: failed ones, and the next one of each boot that
    /// ended.
    unacknowledged: BTreeSet<u32>,
    /// Sequence number of the next write.
    next: u32,
    /// Number of the first boot.
    first: u32,
    boots: usize,
    writes: usize,
    reads: usize,
    errors: usize,
}

/// Block that lacks its last acknowledged write, or has data that was never written to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostWrite {
    pub block: u32,
    /// Sequence number of its last acknowledged write.
    pub acknowledged: u32,
    /// Sequence number in each of its sectors: 0 if the sector was never written, is not a sector of this block, or is
    /// beyond the image's end.
    pub found: [u32; SECTORS],
}

impl fmt::Display for LostWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            block,
            acknowledged,
            found,
        } = self;
        write!(
            f,
            "block {block}: {acknowledged:#x} was acknowledged, its sectors have {found:x?}"
        )
    }
}

impl Log {
    /// Parses the report of a guest up to now. The last record before the end or before a reset may be incomplete.
    ///
    /// # Errors
    /// The offset at which the report is malformed, skips a write, or has a read with other data than the newest
    /// acknowledged write of its block. A block without a write in this log may have any data older than the log.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut log = Self::default();
        let windows = bytes.windows(MARK.len()).enumerate();
        let marks = windows.filter_map(|(at, window)| (window == MARK).then_some(at));
        let ends: Vec<usize> = marks.chain([bytes.len()]).collect();
        if bytes[..ends[0]].iter().any(|&byte| byte != MARK[0]) {
            return Err("offset 0: no boot".into());
        }
        for pair in ends.windows(2) {
            log.boot(bytes, pair[0] + MARK.len(), pair[1])?;
        }
        Ok(log)
    }

    /// Parses the report of the boot from `at` to `end`.
    fn boot(&mut self, bytes: &[u8], at: usize, end: usize) -> Result<(), String> {
        // Skip an incomplete mark at the end.
        let cut = bytes[at..end].iter().rposition(|&byte| byte != MARK[0]);
        let report = &bytes[at..at + cut.map_or(0, |last| last + 1)];
        let Some((base, records)) = report.split_first_chunk() else {
            return Ok(());
        };
        let base = u32::from_le_bytes(*base);
        let boot = base >> BOOT_SHIFT;
        if base != boot << BOOT_SHIFT || base < self.next || !(1..=BOOTS_MAX).contains(&boot) {
            return Err(format!("offset {at}: boot at {base:#x}"));
        }
        if self.boots == 0 {
            self.first = boot;
        } else {
            self.unacknowledged.insert(self.next);
        }
        self.boots += 1;
        self.next = base + 1;
        for (i, record) in records.chunks_exact(RECORD_BYTES).enumerate() {
            let number = |at| u32::from_le_bytes(std::array::from_fn(|i| record[at + i]));
            self.record(record[0], number(1), number(5))
                .map_err(|wrong| format!("offset {}: {wrong}", at + 4 + i * RECORD_BYTES))?;
        }
        Ok(())
    }

    fn record(&mut self, tag: u8, block: u32, value: u32) -> Result<(), String> {
        if block >= BLOCKS_MAX {
            return Err(format!("no block {block:#x}"));
        }
        let [status, function, zeroes @ ..] = value.to_le_bytes();
        match (tag, function) {
            (b'W', _) if value == self.next => {
                self.held.insert(block, value);
                self.writes += 1;
                self.next += 1;
            }
            (b'W', _) => return Err(format!("write {value:#x} instead of {:#x}", self.next)),
            (b'R', _) => {
                self.reads += 1;
                if !self.may_hold(block, value) {
                    return Err(self.wrong(block, value));
                }
                self.held.insert(block, value);
            }
            (b'T', _) => {
                self.reads += 1;
                if !self.may_be_torn(block) {
                    return Err(format!("torn: {}", self.wrong(block, value)));
                }
            }
            (b'E', 0x42 | 0x43) if status != 0 && zeroes == [0, 0] => {
                self.errors += 1;
                if function == 0x43 {
                    self.unacknowledged.insert(self.next);
                    self.next += 1;
                }
            }
            _ => return Err(format!("no record: {tag:#x} {block:#x} {value:#x}")),
        }
        Ok(())
    }

    fn may_hold(&self, block: u32, found: u32) -> bool {
        match self.held.get(&block) {
            Some(&held) => found == held || found > held && self.unacknowledged.contains(&found),
            None => {
                let older = 1..self.first;
                found == 0
                    || older.contains(&(found >> BOOT_SHIFT))
                    || self.unacknowledged.contains(&found)
            }
        }
    }

    fn may_be_torn(&self, block: u32) -> bool {
        match self.held.get(&block) {
            Some(held) => self.unacknowledged.last() > Some(held),
            None => self.first > 1 || !self.unacknowledged.is_empty(),
        }
    }

    fn wrong(&self, block: u32, found: u32) -> String {
        match self.held.get(&block) {
            Some(held) => {
                format!("read of block {block} found {found:#x}, acknowledged was {held:#x}")
            }
            None => format!("read of block {block} found {found:#x}, which nobody wrote there"),
        }
    }

    /// Returns the blocks that lack acknowledged writes. `image` is a whole raw disk. A block may instead have the
    /// write in flight when the guest was killed, or writes later than this log.
    pub fn lost_in(&self, image: &[u8]) -> Vec<LostWrite> {
        let lost = self.held.iter().filter_map(|(&block, &acknowledged)| {
            let start = BLOCK_BYTES * (1 + block as usize);
            let found = std::array::from_fn(|i| {
                let start = start + i * SECTOR_BYTES;
                let sector = image.get(start..start + SECTOR_BYTES);
                sector.map_or(0, |sector| sequence_in(sector, block))
            });
            let may_be = |&found: &u32| {
                found == acknowledged
                    || found >= self.next
                    || found > acknowledged && self.unacknowledged.contains(&found)
            };
            let lost = LostWrite {
                block,
                acknowledged,
                found,
            };
            (!found.iter().all(may_be)).then_some(lost)
        });
        lost.collect()
    }

    /// Returns the number of boots of the guest.
    pub fn boots(&self) -> usize {
        self.boots
    }

    /// Returns the number of acknowledged writes.
    pub fn writes(&self) -> usize {
        self.writes
    }

    /// Returns the number of acknowledged reads.
    pub fn reads(&self) -> usize {
        self.reads
    }

    /// Returns the number of failed requests.
    pub fn errors(&self) -> usize {
        self.errors
    }
}

fn sequence_in(sector: &[u8], block: u32) -> u32 {
    let (pairs, _) = sector.as_chunks::<8>();
    let [s0, s1, s2, s3, own @ ..] = pairs[0];
    let is_whole = pairs.iter().all(|pair| *pair == pairs[0]) && own == block.to_le_bytes();
    if is_whole {
        u32::from_le_bytes([s0, s1, s2, s3])
    } else {
        0
    }
}
