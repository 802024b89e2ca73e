//! Compressed files as streams: gzip, xz and Zstandard, recognized by their first bytes.
//!
//! ```text
//! member ─▶ zeros (padding of tapes and block devices), none or many ─▶ member … ─▶ end of the file
//! ```
//!
//! Any other byte between two members is an error that names its offset.

use std::fmt;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::GzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::Stream;
use serde::{Serialize, Serializer};

/// Memory limit of an xz decoder. Protects from a file that requires the format's 4 GiB; `xz -9` needs 65 MiB.
const XZ_MEMORY_BYTES_MAX: u64 = 512 << 20;
/// Logarithm of the largest Zstandard window, that of `zstd --long` (128 MiB). Also protects memory.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
const INPUT_BUFFER_BYTES: usize = 128 << 10;

/// Compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// xz.
    Xz,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Compression {
    /// Detects the compression from the first bytes of a file.
    pub fn detect(first: &[u8]) -> Self {
        match first {
            [0x1f, 0x8b, 8, ..] => Compression::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            // A frame, or one of the sixteen kinds of skippable frames before it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            _ => Compression::None,
        }
    }

    /// Returns the name for reports.
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

/// Bytes of compressed input read so far; shared with the progress report.
#[derive(Debug, Clone, Default)]
pub(crate) struct InputPosition(Arc<AtomicU64>);

impl InputPosition {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct CountingReader<R> {
    inner: R,
    position: InputPosition,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.position.0.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Readable stream of bytes that can move to another thread.
pub(crate) type Bytes = Box<dyn Read + Send>;

/// Wraps `input` in the decoder for its first bytes.
pub(crate) fn decompress(mut input: Bytes) -> io::Result<(Bytes, Compression, InputPosition)> {
    let mut first = Vec::with_capacity(8);
    input.by_ref().take(8).read_to_end(&mut first)?;
    let compression = Compression::detect(&first);
    let position = InputPosition::default();
    let counted = CountingReader {
        inner: Cursor::new(first).chain(input),
        position: position.clone(),
    };
    let buffered = BufReader::with_capacity(INPUT_BUFFER_BYTES, counted);
    let bytes: Bytes = match compression {
        Compression::None => Box::new(buffered),
        _ => Box::new(Members {
            compression,
            member: Some(Member::new(compression, buffered)?),
            start_bytes: 0,
            position: position.clone(),
        }),
    };
    Ok((bytes, compression, position))
}

type Input = BufReader<CountingReader<io::Chain<Cursor<Vec<u8>>, Bytes>>>;

/// Decoder of one member.
enum Member {
    Gzip(GzDecoder<Input>),
    Xz(XzDecoder<Input>),
    Zstd(zstd::stream::read::Decoder<'static, Input>),
}

impl Member {
    fn new(compression: Compression, input: Input) -> io::Result<Self> {
        Ok(match compression {
            Compression::None | Compression::Gzip => Member::Gzip(GzDecoder::new(input)),
            Compression::Xz => {
                let stream =
                    Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, 0).map_err(io::Error::from)?;
                Member::Xz(XzDecoder::new_stream(input, stream))
            }
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?.single_frame();
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Member::Zstd(decoder)
            }
        })
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Member::Gzip(decoder) => decoder.read(buffer),
            Member::Xz(decoder) => decoder.read(buffer),
            Member::Zstd(decoder) => decoder.read(buffer),
        }
    }

    /// Returns the input behind the member, after the whole member was read.
    fn into_input(self) -> Input {
        match self {
            Member::Gzip(decoder) => decoder.into_inner(),
            Member::Xz(decoder) => decoder.into_inner(),
            Member::Zstd(decoder) => decoder.finish(),
        }
    }
}

/// All members of a file as one stream.
struct Members {
    compression: Compression,
    /// Present member; `None` at the end.
    member: Option<Member>,
    /// Offset of the member in the file.
    start_bytes: u64,
    position: InputPosition,
}

impl Read for Members {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member
            && !buffer.is_empty()
        {
            match member.read(buffer) {
                Ok(0) => self.next_member()?,
                Err(error)
                    if self.start_bytes > 0 && error.kind() != io::ErrorKind::Interrupted =>
                {
                    let (name, start) = (self.compression, self.start_bytes);
                    let reason = format!("{name} data that start at byte {start}: {error}");
                    return Err(io::Error::new(error.kind(), reason));
                }
                result => return result,
            }
        }
        Ok(0)
    }
}

impl Members {
    /// Skips zeros and starts the next member, if there is one.
    fn next_member(&mut self) -> io::Result<()> {
        let Some(member) = self.member.take() else {
            return Ok(());
        };
        let mut input = member.into_input();
        loop {
            let ahead = match input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                ahead => ahead?,
            };
            if ahead.is_empty() {
                return Ok(());
            }
            let zeroes = ahead.iter().take_while(|b| **b == 0).count();
            let first = ahead.get(zeroes).copied();
            input.consume(zeroes);
            let Some(first) = first else { continue };
            self.start_bytes = self.position.bytes() - input.buffer().len() as u64;
            let is_member = match self.compression {
                Compression::None => false,
                Compression::Gzip => first == 0x1f,
                Compression::Xz => first == 0xfd,
                Compression::Zstd => matches!(first, 0x28 | 0x50..=0x5f),
            };
            if !is_member {
                let (name, start) = (self.compression, self.start_bytes);
                let reason = format!(
                    "byte {start} of the file follows the {name} data and is neither zero padding nor more \
                     {name} data: truncate the file there if the remaining bytes do not belong to it"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            self.member = Some(Member::new(self.compression, input)?);
            return Ok(());
        }
    }
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
    fn concatenated_members_are_one_stream() {
        for compression in ALL {
            let mut data = packed(compression, b"first,");
            data.extend(packed(compression, b"second"));
            assert_eq!(unpacked(data).unwrap(), b"first,second", "{compression}");
        }
    }

    #[test]
    fn zero_padding_is_ignored() {
        for compression in ALL {
            for zeroes in [1, 4, 400, 3 * INPUT_BUFFER_BYTES] {
                let mut data = packed(compression, b"first,");
                data.resize(data.len() + zeroes, 0);
                assert_eq!(unpacked(data.clone()).unwrap(), b"first,", "{compression}");
                data.extend(packed(compression, b"second"));
                assert_eq!(unpacked(data).unwrap(), b"first,second", "{compression}");
            }
        }
    }

    #[test]
    fn trailing_bytes_are_an_error_with_their_offset() {
        for compression in ALL {
            let data = packed(compression, b"all of it");
            for (zeroes, more) in [(0, b"rubbish".as_slice()), (300, b"x"), (0, &data[..3])] {
                let mut data = data.clone();
                data.resize(data.len() + zeroes, 0);
                let at = format!("byte {}", data.len());
                data.extend(more);
                let error = unpacked(data).unwrap_err().to_string();
                assert!(error.contains(&at), "{compression}: {error}");
            }
        }
    }

    #[test]
    fn truncated_stream_is_an_error_at_any_length() {
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
