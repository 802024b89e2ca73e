//! Program that `bench/csv_read.py` measures. It generates a CSV file in the format of Microsoft Research Cambridge, or reads one into
//! memory.
//!
//! ```text
//! csv-rows generate FILE ROWS
//! csv-rows read FILE            prints the number of records, a sum over all records, and CPU seconds
//! ```

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use trace::{Format, ReadOptions, load};

use crate::BenchResult;
use crate::cpu::cpu_s;

/// Returns the next random number of SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Writes rows in order of time. A few volumes are busy in turn. Sizes and response times have different numbers of digits.
fn generate(path: &Path, rows: u64) -> Result<(), Box<dyn Error>> {
    const VOLUMES: [(&str, u32); 6] = [
        ("usr", 0),
        ("usr", 1),
        ("proj", 3),
        ("web", 0),
        ("src1", 2),
        ("prxy", 0),
    ];
    const SIZES: [u64; 8] = [512, 4096, 4096, 4096, 8192, 16_384, 32_768, 65_536];
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut state, mut time, mut volume) = (1, 128_166_372_003_061_629u64, 0);
    for _ in 0..rows {
        let r = random(&mut state);
        time += r % 20_000;
        if r >> 32 & 7 == 0 {
            volume = (r >> 36) as usize % VOLUMES.len();
        }
        let (host, disk) = VOLUMES[volume];
        let op = if r >> 40 & 3 == 0 { "Write" } else { "Read" };
        let spread = random(&mut state);
        let offset = (spread % (200 << 30)) / 512 * 512;
        let size = SIZES[(r >> 44) as usize % SIZES.len()];
        let response = 500 + (spread >> 40) % 10u64.pow(2 + (spread >> 33) as u32 % 5);
        writeln!(out, "{time},{host},{disk},{op},{offset},{size},{response}")?;
    }
    Ok(out.flush()?)
}

pub(crate) fn main(args: &[String]) -> BenchResult {
    match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["generate", file, rows] => generate(Path::new(file), rows.parse()?),
        ["read", file] => {
            let options = ReadOptions {
                format: Some(Format::Msr),
                ..ReadOptions::default()
            };
            let before = cpu_s();
            let trace = load(Path::new(file), &options)?;
            let seconds = cpu_s() - before;
            let sum = trace.records().iter().fold(0u64, |sum, r| {
                sum.wrapping_add(r.offset_bytes)
                    .wrapping_add(u64::from(r.length_bytes))
            });
            println!("{} {sum} {seconds}", trace.records().len());
            Ok(())
        }
        _ => Err(crate::WRONG.into()),
    }
}
