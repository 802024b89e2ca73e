//! zstd frames, each with its length and a checksum.

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, get_frame_content_size};

use crate::failure::Failure;

/// Compression level of zstd: 3 takes longer and makes neither windows nor decisions smaller.
const LEVEL: i32 = 1;

/// Largest unpacked size of a frame, bytes. Bounds the memory that a damaged length can request. A decision about 10,000
/// volumes has about 10 MiB.
const UNPACKED_BYTES_MAX: usize = 256 << 20;

/// Compressor and decompressor of frames.
pub(crate) struct Frames {
    pack: Compressor<'static>,
    unpack: Decompressor<'static>,
}

impl Frames {
    pub(crate) fn new() -> Result<Self, Failure> {
        let mut pack = Compressor::new(LEVEL).map_err(unfit)?;
        pack.set_parameter(CParameter::ChecksumFlag(true))
            .map_err(unfit)?;
        Ok(Self {
            pack,
            unpack: Decompressor::new().map_err(unfit)?,
        })
    }

    pub(crate) fn pack(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        if bytes.len() > UNPACKED_BYTES_MAX {
            let n = bytes.len();
            return Err(Failure::Unfit(format!(
                "a record of {n} bytes exceeds the limit of {UNPACKED_BYTES_MAX} bytes"
            )));
        }
        self.pack.compress(bytes).map_err(unfit)
    }

    pub(crate) fn unpack(&mut self, frame: &[u8]) -> Result<Vec<u8>, Failure> {
        let bytes = match get_frame_content_size(frame) {
            Ok(Some(n)) if n <= UNPACKED_BYTES_MAX as u64 => n as usize,
            _ => return Err(Failure::Damaged("a frame has no length".to_string())),
        };
        let unpacked = self.unpack.decompress(frame, bytes);
        unpacked.map_err(|e| Failure::Damaged(e.to_string()))
    }
}

fn unfit(error: std::io::Error) -> Failure {
    Failure::Unfit(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_with_a_flipped_bit_is_detected() {
        let mut frames = Frames::new().unwrap();
        let bytes: Vec<u8> = (0..2000u32).map(|n| ((n * n) >> 3) as u8).collect();
        let frame = frames.pack(&bytes).unwrap();
        assert_eq!(frames.unpack(&frame).unwrap(), bytes);
        for at in (0..frame.len()).step_by(7) {
            let mut bad = frame.clone();
            bad[at] ^= 4;
            // A flipped bit without a meaning in zstd leaves the content unchanged.
            assert!(frames.unpack(&bad).map_or(true, |found| found == bytes));
        }
        assert!(frames.unpack(&frame[..frame.len() - 1]).is_err());
        assert!(frames.unpack(&[]).is_err());
    }
}
