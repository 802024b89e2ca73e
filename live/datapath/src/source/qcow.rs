//! Walk through the tables of a qcow2 or qcow image, independent of QEMU's reader.
//!
//! QEMU reads zeroes after the end of a file. A truncated table therefore loses the data that it refers to, without
//! an error, and `qemu-img check` permits a missing cluster. This walk finds every table and every guest-visible
//! cluster that is not completely in the file.
//!
//! ```text
//!   header ─▶ L1 table ─▶ L2 tables ─▶ clusters: plain, zero, or compressed (a number of sectors)
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::check::lies_inside;
use crate::error::{DatapathError, Result};

/// Longest L1 table that QEMU opens. Bounds the memory for it.
const L1_BYTES_MAX: u64 = 32 << 20;

const BITMAPS_EXTENSION: u32 = 0x2385_2875;
const CORRUPT: u64 = 1 << 1;
const EXTENDED_L2: u64 = 1 << 4;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;

/// Fields of a header.
#[derive(Debug)]
pub(super) struct Header {
    version: u32,
    cluster_bits: u32,
    l2_entries: u64,
    size: u64,
    l1: (u64, u64),
    encrypted: bool,
    incompatible: u64,
    snapshots: u32,
    bitmaps: u32,
}

impl Header {
    /// Reads the header of an image.
    ///
    /// # Errors
    /// [`DatapathError`]: the file cannot be read, or fields contradict each other.
    pub(super) fn read(file: &File) -> Result<Self> {
        let mut head = vec![0; 4096];
        let read = file.read_at(&mut head, 0);
        let length = read.map_err(DatapathError::failed)?;
        head.truncate(length);
        let long = |at: usize| {
            let bytes = head.get(at..at + 8).and_then(|b| b.first_chunk());
            bytes
                .map(|b| u64::from_be_bytes(*b))
                .ok_or_else(|| invalid("the header is truncated"))
        };
        let short = |at: usize| long(at).map(|n| (n >> 32) as u32);
        let byte = |at: usize| long(at).map(|n| (n >> 56) as u32);
        if !head.starts_with(b"QFI\xfb") {
            return Err(invalid("the qcow signature is missing"));
        }
        let version = short(4)?;
        let mut header = match version {
            1 => Self {
                version,
                size: long(24)?,
                cluster_bits: byte(32)?,
                l2_entries: 1 << byte(33)?.min(63),
                l1: (long(40)?, 0),
                encrypted: short(36)? != 0,
                incompatible: 0,
                snapshots: 0,
                bitmaps: 0,
            },
            2 | 3 => Self {
                version,
                size: long(24)?,
                cluster_bits: short(20)?,
                l2_entries: 0,
                l1: (long(40)?, u64::from(short(36)?)),
                encrypted: short(32)? != 0,
                incompatible: if version == 3 { long(72)? } else { 0 },
                snapshots: short(60)?,
                bitmaps: bitmaps(&head, if version == 3 { short(100)? } else { 72 }),
            },
            other => {
                let why = format!("version {other}, must be 1, 2 or 3");
                return Err(DatapathError::Image(why));
            }
        };
        if !(9..=21).contains(&header.cluster_bits) {
            return Err(DatapathError::Image(format!(
                "field cluster_bits is {}, must be 9 to 21",
                header.cluster_bits
            )));
        }
        match version {
            1 if !(64..=1 << 16).contains(&header.l2_entries) => {
                return Err(invalid("field l2_bits must be 6 to 16"));
            }
            1 => header.l1.1 = header.l1_entries(),
            _ => header.l2_entries = header.cluster() / header.entry_bytes(),
        }
        Ok(header)
    }

    fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    fn entry_bytes(&self) -> u64 {
        if self.incompatible & EXTENDED_L2 != 0 {
            16
        } else {
            8
        }
    }

    /// Returns the number of L1 entries that cover the disk.
    fn l1_entries(&self) -> u64 {
        self.size.div_ceil(self.cluster() * self.l2_entries)
    }

    /// Refuses an image that QEMU cannot read correctly.
    ///
    /// # Errors
    /// [`DatapathError::Image`] with a predicate, without the path.
    pub(super) fn is_readable(&self) -> Result<()> {
        if self.encrypted {
            return Err(invalid(
                "is encrypted: decrypt it with `qemu-img convert` and its secret",
            ));
        }
        if self.incompatible & CORRUPT != 0 {
            return Err(invalid(
                "is marked as corrupt: its data is not reliable; restore it from a backup, or repair a copy with `qemu-img check -r all`",
            ));
        }
        Ok(())
    }

    /// Describes content other than the disk: internal snapshots and persistent bitmaps.
    pub(super) fn more_than_disk(&self) -> Option<String> {
        let count = |n: u32, what: &str| match n {
            0 => None,
            1 => Some(format!("1 {what}")),
            n => Some(format!("{n} {what}s")),
        };
        let snapshots = count(self.snapshots, "internal snapshot");
        let bitmaps = count(self.bitmaps, "persistent bitmap");
        let all: Vec<String> = snapshots.into_iter().chain(bitmaps).collect();
        (!all.is_empty()).then(|| all.join(" and "))
    }

    /// Checks that the file has all tables and clusters of the disk.
    ///
    /// # Errors
    /// [`DatapathError::Image`] with a predicate, without the path: the first missing part.
    pub(super) fn is_complete(&self, file: &File) -> Result<()> {
        let failed = |e: io::Error| DatapathError::Image(format!("cannot be read: {e}"));
        let end = file.metadata().map_err(failed)?.len();
        let inside = |what: &str, at, length| lies_inside(end, what, at, length);
        let (at, entries) = (self.l1.0, self.l1_entries());
        if self.l1.1 < entries {
            return Err(DatapathError::Image(format!(
                "has an L1 table of {} entries, {entries} needed",
                self.l1.1
            )));
        }
        let bytes = entries.saturating_mul(8);
        if bytes > L1_BYTES_MAX {
            return Err(invalid("has an L1 table of more than 32 MiB"));
        }
        inside("its L1 table", at, bytes)?;
        let mut l1 = vec![0; bytes as usize];
        file.read_exact_at(&mut l1, at).map_err(failed)?;
        let mut l2 = vec![0; (self.l2_entries * self.entry_bytes()) as usize];
        let offsets = if self.version == 1 { u64::MAX } else { OFFSET };
        for (n, at) in numbers(&l1, 8).map(|e| e & offsets).enumerate() {
            if at == 0 {
                continue;
            }
            inside("an L2 table", at, l2.len() as u64)?;
            file.read_exact_at(&mut l2, at).map_err(failed)?;
            let first = n as u64 * self.l2_entries;
            for (i, entry) in numbers(&l2, self.entry_bytes() as usize).enumerate() {
                let guest = (first + i as u64) << self.cluster_bits;
                if guest >= self.size {
                    break;
                }
                let subclusters = match self.entry_bytes() {
                    16 => {
                        let bits = l2[16 * i + 12..].first_chunk();
                        bits.map_or(0, |b| u32::from_be_bytes(*b))
                    }
                    _ => u32::MAX,
                };
                if let Some((at, length)) = self.place(entry, subclusters, self.size - guest) {
                    inside("data", at, length)?;
                }
            }
        }
        Ok(())
    }

    /// Returns offset and length in the file of a cluster with `left` bytes of the disk; `None` if it reads as
    /// zeroes.
    fn place(&self, entry: u64, subclusters: u32, left: u64) -> Option<(u64, u64)> {
        if self.version == 1 {
            // The highest bit marks a compressed cluster. Its length in bytes is in the bits above its offset.
            let at_bits = 63 - self.cluster_bits;
            return match (entry, entry >> 63) {
                (0, _) => None,
                (_, 0) => Some((entry, self.cluster().min(left))),
                _ => {
                    let length = (entry >> at_bits) & (self.cluster() - 1);
                    Some((entry & ((1 << at_bits) - 1), length))
                }
            };
        }
        if entry & COMPRESSED != 0 {
            let at_bits = 62 - (self.cluster_bits - 8);
            let at = entry & ((1 << at_bits) - 1);
            let sectors = ((entry >> at_bits) & ((1 << (self.cluster_bits - 8)) - 1)) + 1;
            // A file that ends within the last sector may be truncated: QEMU decompresses zeroes in place of the
            // missing bytes, and may accept the result. `qemu-img convert -c` pads its files.
            let from = at / 512 * 512;
            return Some((from, sectors * 512));
        }
        let zero = self.entry_bytes() == 8 && self.version == 3 && entry & ZERO != 0;
        let at = entry & OFFSET;
        if at == 0 || zero || subclusters == 0 {
            return None;
        }
        let used = u64::from(32 - subclusters.leading_zeros());
        Some((at, (self.cluster() / 32 * used).max(1).min(left)))
    }
}

fn invalid(why: &str) -> DatapathError {
    DatapathError::Image(why.into())
}

/// Returns the big-endian 8-byte numbers at intervals of `apart` bytes.
fn numbers(bytes: &[u8], apart: usize) -> impl Iterator<Item = u64> + '_ {
    let numbers = bytes.chunks_exact(apart).filter_map(|b| b.first_chunk());
    numbers.map(|b| u64::from_be_bytes(*b))
}

/// Returns the number of bitmaps in the header's extensions.
fn bitmaps(head: &[u8], from: u32) -> u32 {
    let mut at = from as usize;
    let number = |at: usize| {
        let bytes = head.get(at..)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    };
    while let (Some(kind), Some(length)) = (number(at), number(at.saturating_add(4))) {
        match kind {
            0 => break,
            BITMAPS_EXTENSION => return number(at + 8).unwrap_or(0),
            _ => at = at.saturating_add(8 + (length as usize).next_multiple_of(8)),
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: usize = 1 << 16;

    /// Returns an image with header, L1 table, L2 table and the given entries in the L2 table.
    fn image(clusters: usize, entries: &[(usize, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; clusters * CLUSTER];
        let mut put = |at: usize, value: u64| {
            bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        };
        put(0, u64::from_be_bytes(*b"QFI\xfb\0\0\0\x03"));
        put(20, 16 << 32); // cluster_bits
        put(24, 10 << 16); // ten clusters
        put(36, 1 << 32); // entries of the L1 table
        put(40, CLUSTER as u64);
        put(100, 104 << 32); // length of the header
        put(CLUSTER, (2 * CLUSTER as u64) | (1 << 63));
        for (n, entry) in entries {
            put(2 * CLUSTER + 8 * n, *entry);
        }
        bytes
    }

    fn walked(bytes: &[u8]) -> Result<(), String> {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        let walk = || {
            let header = Header::read(&file)?;
            header.is_readable()?;
            header.is_complete(&file)
        };
        walk().map_err(|why: DatapathError| why.to_string())
    }

    const STANDARD: u64 = (1 << 63) | (3 << 16);

    #[test]
    fn truncated_qcow2_data_or_tables_are_refused() {
        let whole = image(4, &[(4, STANDARD)]);
        assert_eq!(walked(&whole), Ok(()));
        for (end, what) in [
            (4 * CLUSTER - 1, "data"),
            (3 * CLUSTER, "data"),
            (3 * CLUSTER - 512, "an L2 table"),
            (CLUSTER + 7, "its L1 table"),
            (60, "header is truncated"),
        ] {
            let why = walked(&whole[..end]).unwrap_err();
            assert!(why.contains(what), "{end}: {why}");
        }
    }

    #[test]
    fn zero_clusters_and_clusters_beyond_the_disk_need_no_data() {
        // A zero cluster with an offset, and an entry after the tenth.
        let entries = [(0, STANDARD | ZERO), (10, STANDARD)];
        assert_eq!(walked(&image(3, &entries)), Ok(()));
        // Only the disk's part of its last cluster is needed.
        let mut short = image(4, &[(9, STANDARD)]);
        short[24..32].copy_from_slice(&((9u64 << 16) + 512).to_be_bytes());
        assert_eq!(walked(&short[..3 * CLUSTER + 512]), Ok(()));
        assert!(walked(&short[..3 * CLUSTER + 511]).is_err());
    }

    #[test]
    fn compressed_cluster_requires_all_its_sectors() {
        // From byte 3 clusters + 100: the first sector and two more.
        let packed = COMPRESSED | (2 << (62 - 8)) | (3 * CLUSTER as u64 + 100);
        let whole = image(4, &[(0, packed)]);
        assert_eq!(walked(&whole[..3 * CLUSTER + 3 * 512]), Ok(()));
        assert!(walked(&whole[..3 * CLUSTER + 3 * 512 - 1]).is_err());
    }

    #[test]
    fn corrupt_and_encrypted_images_are_refused_and_dirty_ones_accepted() {
        let with = |at: usize, byte: u8| {
            let mut bytes = image(4, &[]);
            bytes[at] = byte;
            walked(&bytes)
        };
        assert_eq!(with(79, 1), Ok(()));
        assert!(with(79, 2).unwrap_err().contains("corrupt"));
        assert!(with(35, 2).unwrap_err().contains("encrypted"));
        assert!(with(23, 30).unwrap_err().contains("cluster_bits"));
    }

    #[test]
    fn snapshots_and_bitmaps_are_counted() {
        let file = tempfile::tempfile().unwrap();
        let mut bytes = image(3, &[]);
        file.write_all_at(&bytes, 0).unwrap();
        assert_eq!(Header::read(&file).unwrap().more_than_disk(), None);
        bytes[63] = 2;
        // An extension of one byte, then that of one bitmap.
        bytes[104..112].copy_from_slice(&[1, 2, 3, 4, 0, 0, 0, 1]);
        bytes[120..128].copy_from_slice(&[0x23, 0x85, 0x28, 0x75, 0, 0, 0, 24]);
        bytes[131] = 1;
        file.write_all_at(&bytes, 0).unwrap();
        let more = Header::read(&file).unwrap().more_than_disk();
        assert_eq!(
            more.as_deref(),
            Some("2 internal snapshots and 1 persistent bitmap")
        );
    }
}
