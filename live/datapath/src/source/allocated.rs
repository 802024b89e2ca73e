//! Allocated extents of a source: ranges of known zeroes are not read. Parts that were not examined in time count as
//! data.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::client::Client;
use crate::error::DatapathError;

/// Largest range of one status query. The protocol has 32 bits; this is slightly less and a multiple of all block
/// sizes.
const ASK_BYTES: u64 = 1 << 30;

/// Ranges of extents, built from ascending ranges of bytes.
struct Ranges {
    extent: u64,
    size: u64,
    found: Vec<(u32, u32)>,
}

impl Ranges {
    fn new(size: u64, extent: u64) -> Self {
        let found = vec![];
        Self {
            extent,
            size,
            found,
        }
    }

    /// Adds a range of bytes that may be nonzero.
    fn add(&mut self, from: u64, to: u64) {
        if from >= to.min(self.size) {
            return;
        }
        let first = (from / self.extent) as u32;
        let end = to.min(self.size).div_ceil(self.extent) as u32;
        match self.found.last_mut() {
            Some(last) if first <= last.1 => last.1 = last.1.max(end),
            _ => self.found.push((first, end)),
        }
    }
}

/// Returns the allocated extents of a file or a block device. Without support for holes, all of it is data.
pub(super) fn of_file(
    file: &File,
    size: u64,
    extent: u64,
    until: Instant,
) -> Result<Vec<(u32, u32)>, DatapathError> {
    let mut ranges = Ranges::new(size, extent);
    let mut at = 0;
    while at < size {
        if Instant::now() > until {
            ranges.add(at, size);
            break;
        }
        let data = match seek(file.as_fd(), SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break, // a hole up to the end
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(DatapathError::system("look for", &"data")(error)),
        };
        let hole = match seek(file.as_fd(), SeekFrom::Hole(data)) {
            Ok(hole) if hole > data => hole,
            Ok(_) | Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => size,
            Err(error) => return Err(DatapathError::system("look for", &"holes")(error)),
        };
        ranges.add(data, hole);
        at = hole;
    }
    Ok(ranges.found)
}

/// Returns the allocated extents of an export. Without status of the server, all of it is data.
pub(super) fn of_export(
    client: &mut Client,
    size: u64,
    extent: u64,
    until: Instant,
) -> Result<Vec<(u32, u32)>, DatapathError> {
    let mut ranges = Ranges::new(size, extent);
    if !client.tells_status() {
        ranges.add(0, size);
        return Ok(ranges.found);
    }
    let mut at = 0;
    while at < size {
        if Instant::now() > until {
            ranges.add(at, size);
            break;
        }
        let length = ASK_BYTES.min(size - at);
        let runs = client.status(at, length as u32);
        let runs = runs.map_err(DatapathError::failed)?;
        let before = at;
        for stretch in runs {
            let end = at.saturating_add(u64::from(stretch.length)).min(size);
            // A range that is only unallocated may read as anything.
            if stretch.flags & nbd::StatusExtent::ZERO == 0 {
                ranges.add(at, end);
            }
            at = end;
        }
        if at == before {
            let why = format!("the server sent no block status for byte {at}");
            return Err(DatapathError::Refused(why));
        }
    }
    Ok(ranges.found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    use super::*;

    #[test]
    fn adjacent_ranges_are_merged_and_ranges_beyond_the_end_ignored() {
        let mut ranges = Ranges::new(1000, 100);
        for (from, to) in [(0, 1), (99, 101), (350, 350), (350, 360), (390, 410)] {
            ranges.add(from, to);
        }
        ranges.add(999, 5000);
        ranges.add(1000, 5000);
        assert_eq!(ranges.found, [(0, 2), (3, 5), (9, 10)]);
    }

    #[test]
    fn file_holes_are_not_read() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 << 20).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let found = of_file(&file, 64 << 20, 1 << 20, until).unwrap();
        assert!(found.is_empty(), "{found:?}");
        file.write_all_at(&[1; 4096], 5 << 20).unwrap();
        file.write_all_at(&[1; 8192], (9 << 20) - 4096).unwrap();
        let found = of_file(&file, 64 << 20, 1 << 20, until).unwrap();
        assert_eq!(found, [(5, 6), (8, 10)]);
        // The search ends at its time limit.
        let over = Instant::now() - Duration::from_secs(1);
        let found = of_file(&file, 64 << 20, 1 << 20, over).unwrap();
        assert_eq!(found, [(0, 64)]);
    }
}
