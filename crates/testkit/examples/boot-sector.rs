//! Writes the disk of a guest that checks itself: `boot-sector FILE REQUESTS_PER_TICK BLOCKS`.

use testkit::guest::Guest;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, requests, blocks] = &words[..] else {
        return Err("it needs FILE REQUESTS_PER_TICK BLOCKS".into());
    };
    let guest = Guest {
        requests_per_tick: requests.parse()?,
        blocks: blocks.parse()?,
    };
    std::fs::write(file, guest.boot_sector())?;
    let disk = std::fs::OpenOptions::new().write(true).open(file)?;
    Ok(disk.set_len(guest.disk_bytes())?)
}
