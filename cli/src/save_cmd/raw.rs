//! Raw images: copy with holes for zeroes, and comparison.

use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::bail;
use units::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::Save;
use super::pieces::{Export, PIECE_BYTES, Piece};
use super::target::Target;
use crate::live::Stop;

/// Size of an aligned block of zeroes that becomes a hole, bytes: the allocation unit of most file systems.
const BLOCK_BYTES: usize = 4096;

static ZEROES: [u8; PIECE_BYTES as usize] = [0; PIECE_BYTES as usize];

/// Content of a written image.
pub struct ImageContent {
    pub data: Bytes,
    pub holes: Bytes,
    /// XXH3 of all bytes, in hexadecimal, if requested.
    pub xxh3: Option<String>,
}

/// Writes the whole export to the target.
pub fn write(
    export: &Export,
    target: &Target,
    what: &Save,
    stop: &Stop,
) -> anyhow::Result<ImageContent> {
    let mut hash = (!what.no_checksum).then(Xxh3::new);
    let data = AtomicU64::new(0);
    let put = |piece: &Piece| {
        let Some(bytes) = &piece.data else {
            return target.zero(piece.offset, piece.length);
        };
        for (from, to, zeroes) in runs(bytes) {
            let (offset, length) = (piece.offset + from as u64, (to - from) as u64);
            if zeroes {
                target.zero(offset, length)?;
            } else {
                data.fetch_add(length, Ordering::Relaxed);
                target.write(offset, &bytes[from..to])?;
            }
        }
        Ok(())
    };
    let in_order = |piece: Piece, ()| {
        if let Some(hash) = &mut hash {
            match &piece.data {
                Some(bytes) => hash.update(bytes),
                None => zeroes(piece.length).for_each(|some| hash.update(some)),
            }
        }
        Ok(())
    };
    export.each_piece(&what.volume, stop, put, in_order)?;
    let data = data.into_inner();
    Ok(ImageContent {
        data: Bytes(data),
        holes: Bytes(export.size - data),
        xxh3: hash.map(|hash| format!("{:032x}", hash.digest128())),
    })
}

/// Compares the target with the export.
///
/// # Errors
/// If they differ.
pub fn compare(export: &Export, target: &Target, volume: &str, stop: &Stop) -> anyhow::Result<()> {
    target.forget_cached();
    let file = target.reread()?;
    let buffers = Mutex::new(vec![]);
    let first = AtomicU64::new(u64::MAX);
    let look = |piece: &Piece| {
        let spare = || buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut there: Vec<u8> = spare().pop().unwrap_or_default();
        there.resize(PIECE_BYTES as usize, 0);
        let (mut at, mut differ) = (0, 0);
        while at < piece.length {
            let n = PIECE_BYTES.min(piece.length - at) as usize;
            let offset = piece.offset + at;
            let read = file.read_exact_at(&mut there[..n], offset);
            read.map_err(|e| target.failed("read", offset, e))?;
            let wanted = match &piece.data {
                Some(bytes) => &bytes[at as usize..at as usize + n],
                None => &ZEROES[..n],
            };
            if there[..n] != *wanted {
                let other = |i: &usize| there[*i] != wanted[*i];
                differ += (0..n).filter(other).count() as u64;
                if let Some(i) = (0..n).find(other) {
                    first.fetch_min(offset + i as u64, Ordering::Relaxed);
                }
            }
            at += n as u64;
        }
        spare().push(there);
        Ok(differ)
    };
    let mut all = 0;
    let add = |_, differ: u64| {
        all += differ;
        Ok(())
    };
    export.each_piece(&format!("comparing {volume}"), stop, look, add)?;
    match all {
        0 => Ok(()),
        n => bail!(
            "{n} bytes differ, the first at byte {}: {} is not a correct copy of {volume}",
            first.into_inner(),
            target.path().display()
        ),
    }
}

/// Returns `length` zeroes, in parts.
fn zeroes(length: u64) -> impl Iterator<Item = &'static [u8]> {
    let parts = length.div_ceil(PIECE_BYTES);
    (0..parts).map(move |part| {
        let left = length - part * PIECE_BYTES;
        &ZEROES[..left.min(PIECE_BYTES) as usize]
    })
}

/// Divides bytes into runs of zero blocks and of other blocks: start, end, and true for zeroes.
fn runs(bytes: &[u8]) -> Vec<(usize, usize, bool)> {
    let mut runs: Vec<(usize, usize, bool)> = vec![];
    let mut from = 0;
    for block in bytes.chunks(BLOCK_BYTES) {
        let zeroes = *block == ZEROES[..block.len()];
        let to = from + block.len();
        match runs.last_mut() {
            Some((_, end, same)) if *same == zeroes => *end = to,
            _ => runs.push((from, to, zeroes)),
        }
        from = to;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_blocks_are_separated_from_data_blocks() {
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[0; 512]), [(0, 512, true)]);
        let mut bytes = vec![0; 5 * BLOCK_BYTES + 512];
        bytes[BLOCK_BYTES - 1] = 1;
        bytes[BLOCK_BYTES] = 1;
        bytes[5 * BLOCK_BYTES + 511] = 1;
        let two = 2 * BLOCK_BYTES;
        let five = 5 * BLOCK_BYTES;
        assert_eq!(
            runs(&bytes),
            [
                (0, two, false),
                (two, five, true),
                (five, five + 512, false)
            ]
        );
    }

    #[test]
    fn zero_pieces_sum_to_the_requested_length() {
        for length in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let all: usize = zeroes(length).map(<[u8]>::len).sum();
            assert_eq!(all as u64, length);
        }
    }
}
