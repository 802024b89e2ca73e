//! Walk through the tables of a sparse VMDK file, independent of QEMU's reader. A table or a grain after the end of
//! the file reads as zeroes, or fails in the middle of an import.
//!
//! ```text
//!   header ─▶ grain directory ─▶ grain tables ─▶ grains: plain, or compressed (a marker tells the length)
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::check::lies_inside;
use crate::error::{DatapathError, Result};

/// Longest grain directory or table that QEMU opens. Bounds the memory for them.
const ENTRIES_MAX: u64 = 1 << 25;

/// Distance of the second header from the end of a stream file. It contains the place of the grain directory.
const FOOTER: u64 = 1024;

const SECTOR: u64 = 512;
const COMPRESSED: u32 = 1 << 16;

/// Length of a marker: sector number, length in bytes.
const MARKER_BYTES: u64 = 12;

/// Smallest entry that refers to a grain: 0 is none, 1 is a grain of zeroes.
const FIRST_GRAIN: u32 = 2;

/// Fields of a header, in sectors.
#[derive(Debug)]
struct Header {
    capacity: u64,
    grain: u64,
    tables: u64,
    table_entries: u64,
    directory: u64,
    compressed: bool,
}

/// Checks that a sparse file has all tables and grains of the disk.
///
/// # Errors
/// [`DatapathError::Image`] with a predicate, without the path: the first missing part.
pub(super) fn is_complete(file: &File) -> Result<()> {
    let failed = |e: io::Error| DatapathError::Image(format!("cannot be read: {e}"));
    let end = file.metadata().map_err(failed)?.len();
    let inside = |what: &str, at, length| lies_inside(end, what, at, length);
    let numbers = |what: &str, sector: u64, entries: u64| {
        let at = sector.saturating_mul(SECTOR);
        inside(what, at, entries * 4)?;
        let mut bytes = vec![0; entries as usize * 4];
        file.read_exact_at(&mut bytes, at).map_err(failed)?;
        let numbers = bytes.chunks_exact(4).filter_map(|b| b.first_chunk());
        Ok::<_, DatapathError>(numbers.map(|b| u32::from_le_bytes(*b)).collect::<Vec<_>>())
    };
    let header = Header::read(file, end)?;
    let mut first = 0;
    for table in numbers("its grain directory", header.directory, header.tables)? {
        let sectors = header.grain * header.table_entries;
        let left = header.capacity.saturating_sub(first);
        first = first.saturating_add(sectors);
        if table == 0 || left == 0 {
            continue;
        }
        let grains = numbers("a grain table", table.into(), header.table_entries)?;
        for (n, grain) in grains.into_iter().enumerate() {
            let left = left.saturating_sub(n as u64 * header.grain);
            if grain < FIRST_GRAIN || left == 0 {
                continue;
            }
            let at = u64::from(grain) * SECTOR;
            if !header.compressed {
                inside("data", at, header.grain.min(left) * SECTOR)?;
                continue;
            }
            inside("data", at, MARKER_BYTES)?;
            let mut marker = [0; MARKER_BYTES as usize];
            file.read_exact_at(&mut marker, at).map_err(failed)?;
            let [.., a, b, c, d] = marker;
            let length = u64::from(u32::from_le_bytes([a, b, c, d]));
            inside("data", at, MARKER_BYTES + length)?;
        }
    }
    Ok(())
}

impl Header {
    fn read(file: &File, end: u64) -> Result<Self> {
        let invalid = |why: &str| DatapathError::Image(why.into());
        let header = Self::read_at(file, 0)?;
        let header = match header.directory {
            // The directory is after the data.
            at if at == u64::MAX => {
                let at = end.checked_sub(FOOTER);
                at.and_then(|at| Self::read_at(file, at).ok())
                    .filter(|h| h.directory != u64::MAX)
                    .ok_or_else(|| invalid("is truncated: the footer of the stream is missing"))?
            }
            _ => header,
        };
        let entries = [header.tables, header.table_entries];
        if header.grain == 0 || entries.iter().any(|n| *n == 0 || *n > ENTRIES_MAX) {
            return Err(invalid(
                "is damaged: the number of table entries in its header is out of range",
            ));
        }
        Ok(header)
    }

    fn read_at(file: &File, at: u64) -> Result<Self> {
        let mut head = [0; 512];
        let read = file.read_exact_at(&mut head, at);
        read.map_err(|e| {
            DatapathError::Image(format!("cannot be read: no header at byte {at}: {e}"))
        })?;
        let short = |at: usize| {
            head[at..]
                .first_chunk()
                .map_or(0, |b| u32::from_le_bytes(*b))
        };
        let long = |at: usize| {
            head[at..]
                .first_chunk()
                .map_or(0, |b| u64::from_le_bytes(*b))
        };
        match &head[..4] {
            b"KDMV" => {
                let (capacity, grain) = (long(12), long(20));
                let table_entries = u64::from(short(44));
                let covered = grain.saturating_mul(table_entries).max(1);
                Ok(Self {
                    capacity,
                    grain,
                    tables: capacity.div_ceil(covered),
                    table_entries,
                    directory: long(56),
                    compressed: short(8) & COMPRESSED != 0,
                })
            }
            b"COWD" => Ok(Self {
                capacity: short(12).into(),
                grain: short(16).into(),
                tables: short(24).into(),
                table_entries: 4096,
                directory: short(20).into(),
                compressed: false,
            }),
            _ => {
                let why = format!("has no sparse vmdk header at byte {at}");
                Err(DatapathError::Image(why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sparse file with its directory in sector 1, a table in sector 2 and a grain in sector 6.
    fn sparse(flags: u32) -> Vec<u8> {
        let mut bytes = vec![0; 14 * 512];
        let mut put = |at: usize, value: u32| {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        };
        put(0, u32::from_le_bytes(*b"KDMV"));
        put(4, 1);
        put(8, flags);
        put(12, 24); // capacity
        put(20, 8); // sectors of a grain
        put(44, 512); // entries of a table
        put(56, 1); // directory
        put(512, 2);
        put(1024, 6);
        put(1028, 1); // a grain of zeroes
        put(6 * 512 + 8, 700);
        bytes
    }

    fn walked(bytes: &[u8]) -> Result<(), String> {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        is_complete(&file).map_err(|why| why.to_string())
    }

    #[test]
    fn truncated_sparse_vmdk_is_refused_with_the_missing_part() {
        let plain = sparse(3);
        assert_eq!(walked(&plain), Ok(()));
        for (end, what) in [
            (14 * 512 - 1, "data"),
            (6 * 512 - 1, "a grain table"),
            (514, "its grain directory"),
            (400, "no header"),
        ] {
            let why = walked(&plain[..end]).unwrap_err();
            assert!(why.contains(what), "{end}: {why}");
        }
    }

    #[test]
    fn compressed_grain_requires_the_length_in_its_marker() {
        let packed = sparse(3 | COMPRESSED);
        assert_eq!(walked(&packed[..6 * 512 + 712]), Ok(()));
        assert!(walked(&packed[..6 * 512 + 711]).is_err());
    }

    #[test]
    fn stream_vmdk_without_footer_is_refused() {
        let mut stream = sparse(3 | COMPRESSED);
        let header = stream[..512].to_vec();
        stream[56..64].fill(0xff);
        assert!(walked(&stream).unwrap_err().contains("footer"));
        stream.extend(header);
        stream.extend([0; 512]);
        assert_eq!(walked(&stream), Ok(()));
    }
}
