//! Compressed files, as streams: gzip, xz and Zstandard, recognized by their first bytes; several members in a row.

use std::fmt;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use serde::{Serialize, Serializer};

/// Memory that an xz decoder may take. Protects from a file that asks for the format's 4 GiB; `xz -9` needs 65 MiB.
const XZ_MEMORY_BYTES_MAX: u64 = 512 << 20;
/// Logarithm of the largest Zstandard window, as `zstd --long` makes them (128 MiB). Protects memory likewise.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
const INPUT_BUFFER_BYTES: usize = 128 << 10;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// xz.
    Xz,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Compression {
    /// Recognizes the first bytes of a file.
    pub fn detect(first: &[u8]) -> Self {
        match first {
            [0x1f, 0x8b, 8, ..] => Compression::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            // A frame, or one of the sixteen kinds of skippable frames that may stand before it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            _ => Compression::None,
        }
    }

    /// The name by which it is reported.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Compression {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// How much of the (compressed) input was read so far; shared with whoever shows progress.
#[derive(Debug, Clone, Default)]
pub(crate) struct InputPosition(Arc<AtomicU64>);

impl InputPosition {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Counted<R> {
    inner: R,
    position: InputPosition,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.position.0.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// A readable stream of bytes that may go to another thread.
pub(crate) type Bytes = Box<dyn Read + Send>;

/// Wraps `input` in the decoder that its first bytes call for.
pub(crate) fn decompress(mut input: Bytes) -> io::Result<(Bytes, Compression, InputPosition)> {
    let mut first = Vec::with_capacity(8);
    input.by_ref().take(8).read_to_end(&mut first)?;
    let compression = Compression::detect(&first);
    let position = InputPosition::default();
    let counted = Counted {
        inner: Cursor::new(first).chain(input),
        position: position.clone(),
    };
    let buffered = BufReader::with_capacity(INPUT_BUFFER_BYTES, counted);
    let bytes: Bytes = match compression {
        Compression::None => Box::new(buffered),
        Compression::Gzip => Box::new(MultiGzDecoder::new(buffered)),
        Compression::Xz => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, CONCATENATED)
                .map_err(io::Error::from)?;
            Box::new(XzDecoder::new_stream(buffered, stream))
        }
        Compression::Zstd => Box::new(zstd_decoder(buffered)?),
    };
    Ok((bytes, compression, position))
}

fn zstd_decoder<R: BufRead>(input: R) -> io::Result<zstd::stream::read::Decoder<'static, R>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn packed(compression: Compression, data: &[u8]) -> Vec<u8> {
        match compression {
            Compression::None => data.to_vec(),
            Compression::Gzip => {
                let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                w.write_all(data).unwrap();
                w.finish().unwrap()
            }
            Compression::Xz => {
                let mut w = liblzma::write::XzEncoder::new(Vec::new(), 1);
                w.write_all(data).unwrap();
                w.finish().unwrap()
            }
            Compression::Zstd => zstd::stream::encode_all(data, 1).unwrap(),
        }
    }

    fn unpacked(data: Vec<u8>) -> io::Result<Vec<u8>> {
        let (mut bytes, ..) = decompress(Box::new(Cursor::new(data)))?;
        let mut out = Vec::new();
        bytes.read_to_end(&mut out).map(|_| out)
    }

    const ALL: [Compression; 3] = [Compression::Gzip, Compression::Xz, Compression::Zstd];

    #[test]
    fn several_members_are_one_stream() {
        for compression in ALL {
            let mut data = packed(compression, b"first,");
            data.extend(packed(compression, b"second"));
            assert_eq!(unpacked(data).unwrap(), b"first,second", "{compression}");
        }
    }

    #[test]
    fn a_truncated_stream_is_an_error_at_every_length() {
        let text: Vec<u8> = (0..4000u32)
            .flat_map(|i| (i.wrapping_mul(2_654_435_761)).to_le_bytes())
            .collect();
        for compression in ALL {
            let data = packed(compression, &text);
            for length in (8..data.len())
                .step_by(97)
                .chain(data.len() - 20..data.len())
            {
                assert!(
                    unpacked(data[..length].to_vec()).is_err(),
                    "{compression} cut to {length}"
                );
            }
        }
    }
}
