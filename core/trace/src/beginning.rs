//! Start of a file, which determines its format.

use std::io::Read;

use crate::compress::{Bytes, Compression};
use crate::detect::{DETECT_BYTES, Detection, detect};
use crate::error::TraceError;
use crate::formats::Format;
use crate::native::MAGIC;
use crate::stream::ReadOptions;

/// Returns the name of a compressed stream for errors.
pub(crate) fn stream_name(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "data",
        Compression::Gzip => "gzip data (uncompressed)",
        Compression::Xz => "xz data (uncompressed)",
        Compression::Zstd => "zstd data (uncompressed)",
    }
}

/// Start of a file for detection, and the rest of the file.
pub(crate) struct First {
    pub(crate) peek: Vec<u8>,
    pub(crate) rest: Bytes,
    pub(crate) compression: Compression,
}

impl First {
    pub(crate) fn read(
        file: &str,
        mut bytes: Bytes,
        compression: Compression,
    ) -> Result<Self, TraceError> {
        let mut peek = Vec::with_capacity(DETECT_BYTES);
        if let Err(source) = bytes
            .by_ref()
            .take(DETECT_BYTES as u64)
            .read_to_end(&mut peek)
        {
            let (file, offset_bytes) = (file.to_owned(), peek.len() as u64);
            return Err(TraceError::Stream {
                file,
                offset_bytes,
                what: stream_name(compression),
                source,
            });
        }
        Ok(Self {
            peek,
            rest: bytes,
            compression,
        })
    }

    pub(crate) fn is_native(&self, options: &ReadOptions) -> bool {
        match options.format {
            Some(format) => format == Format::Native,
            None => options.columns.is_none() && self.peek.starts_with(&MAGIC),
        }
    }
}

/// Returns the format that the caller named, or the detected one. If it is only assumed, returns the reason.
pub(crate) fn choose_format(
    file: &str,
    first: &First,
    options: &ReadOptions,
) -> Result<(Format, Option<String>), TraceError> {
    let file = || file.to_owned();
    match (options.format, &options.columns) {
        (None | Some(Format::Csv), Some(_)) => return Ok((Format::Csv, None)),
        (Some(format), Some(_)) => {
            let reason = format!(
                "the columns of {format} are fixed: a column mapping goes with --format csv"
            );
            return Err(TraceError::Columns {
                file: file(),
                reason,
            });
        }
        (Some(format), None) => return Ok((format, None)),
        (None, None) => {}
    }
    match detect(&first.peek, &file()) {
        Detection::Known(format) => Ok((format, None)),
        Detection::Assumed { format, why } => Ok((format, Some(why))),
        Detection::Ambiguous(formats) => {
            let candidates = formats
                .iter()
                .map(|f| f.name())
                .collect::<Vec<_>>()
                .join(", ");
            Err(TraceError::AmbiguousFormat {
                file: file(),
                candidates,
            })
        }
        Detection::Unknown { hint } => Err(TraceError::UnknownFormat { file: file(), hint }),
    }
}
