//! Disk image of a self-checking guest, for `bench/machine-moves.sh`.

use std::fs::{self, OpenOptions};

use testkit::guest::Guest;

use crate::{BenchResult, WRONG};

/// Writes the image. Arguments: `FILE REQUESTS_PER_TICK BLOCKS`.
pub fn main(words: &[String]) -> BenchResult {
    let [file, requests, blocks] = words else {
        return Err(WRONG.into());
    };
    let guest = Guest {
        requests_per_tick: requests.parse()?,
        blocks: blocks.parse()?,
    };
    fs::write(file, guest.boot_sector())?;
    let disk = OpenOptions::new().write(true).open(file)?;
    Ok(disk.set_len(guest.disk_bytes())?)
}
