//! Reader of native traces.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;
use xxhash_rust::xxh3::xxh3_64;

use super::header::{Header, Sections};
use super::totals::{VolumeSummary, content_hash, decode_volumes};
use super::{NativeError, RECORDS_PER_BLOCK};
use crate::error::TraceError;
use crate::map::map_read_only;
use crate::record::Record;
use crate::source::Times;

/// Mapped native trace. The records are used in place, in the page cache.
///
/// The file must not be modified or truncated while it is open. Writers of this crate never do that: they rename new
/// files into place. So a verified trace stays valid.
#[derive(Debug)]
pub struct NativeTrace {
    file: String,
    storage: Storage,
    header: Header,
    sections: Sections,
    volumes: Vec<VolumeSummary>,
}

#[derive(Debug)]
enum Storage {
    Mapped(Mmap),
    /// Stored as words, because a slice of bytes may not be aligned for a record.
    Owned(Vec<u64>, usize),
}

impl Storage {
    fn bytes(&self) -> &[u8] {
        match self {
            Storage::Mapped(map) => map,
            Storage::Owned(words, length) => &bytemuck::cast_slice(words)[..*length],
        }
    }
}

impl NativeTrace {
    /// Maps a file and checks its header, its size and its tables, but not the records: see [`Self::verify`].
    ///
    /// # Errors
    /// [`TraceError::Io`] if it cannot be opened or mapped, [`TraceError::Native`] if it is not a valid native trace.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(TraceError::io("open", path))?;
        let length = file
            .metadata()
            .map_err(TraceError::io("inspect", path))?
            .len();
        let name = path.display().to_string();
        if length == 0 {
            return Err(TraceError::Native {
                file: name,
                error: NativeError::NotNative,
            });
        }
        let map = map_read_only(&file).map_err(TraceError::io("map", path))?;
        Self::parse(name, Storage::Mapped(map))
    }

    /// Calls [`Self::open`], then [`Self::verify`].
    ///
    /// # Errors
    /// Errors of both.
    pub fn open_verified(path: &Path) -> Result<Self, TraceError> {
        let trace = Self::open(path)?;
        trace.verify()?;
        Ok(trace)
    }

    /// Opens a trace from bytes in memory, which are copied once for their alignment. `name` is the file name in
    /// errors.
    ///
    /// # Errors
    /// [`TraceError::Native`] if they are not a valid native trace.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, TraceError> {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self::parse(name.to_owned(), Storage::Owned(words, bytes.len()))
    }

    fn parse(file: String, storage: Storage) -> Result<Self, TraceError> {
        let parsed = parse(storage.bytes());
        match parsed {
            Ok((header, sections, volumes)) => Ok(Self {
                file,
                storage,
                header,
                sections,
                volumes,
            }),
            Err(error) => Err(TraceError::Native { file, error }),
        }
    }

    /// Returns the file name as given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns all records in order of time, in place.
    #[inline]
    pub fn records(&self) -> &[Record] {
        // Cannot fail: the section starts at a multiple of 8 in a map or a Vec<u64> and is a multiple of 24 long.
        bytemuck::cast_slice(&self.storage.bytes()[self.sections.records.clone()])
    }

    /// Returns the latency of each record in nanoseconds ([`crate::LATENCY_UNKNOWN`] if unknown), if the trace has
    /// latencies.
    #[inline]
    pub fn latencies(&self) -> Option<&[u64]> {
        let bytes = &self.storage.bytes()[self.sections.latencies.clone()];
        self.header
            .has_latencies
            .then(|| bytemuck::cast_slice(bytes))
    }

    /// Returns the volumes; [`Record::volume`] is an index into them.
    pub fn volumes(&self) -> &[VolumeSummary] {
        &self.volumes
    }

    /// Returns the time of the last record in nanoseconds.
    pub fn span_ns(&self) -> u64 {
        self.header.span_ns
    }

    /// Returns the Unix time of time 0 in nanoseconds, if known.
    pub fn origin_unix_ns(&self) -> Option<i64> {
        self.header.origin_unix_ns
    }

    /// Returns the meaning of the times.
    pub fn times(&self) -> Times {
        self.header.times
    }

    /// Returns the number of requests by kind.
    pub fn requests(&self) -> [u64; 4] {
        self.header.requests
    }

    /// Returns the bytes read, written and trimmed.
    pub fn bytes(&self) -> [u64; 3] {
        self.header.bytes
    }

    /// Returns the XXH3-128 of the checksums of the blocks of records, in hex. It is the same for the same records from
    /// any file.
    pub fn content_hash(&self) -> String {
        content_hash(&self.block_checksums()[..self.blocks()])
    }

    /// Returns the number of blocks of records.
    pub(super) fn blocks(&self) -> usize {
        self.records().len().div_ceil(RECORDS_PER_BLOCK)
    }

    /// Returns the checksum of each block of records, then that of each block of latencies.
    pub(super) fn block_checksums(&self) -> &[u64] {
        bytemuck::cast_slice(&self.storage.bytes()[self.sections.checksums.clone()])
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    pub(super) fn sections(&self) -> &Sections {
        &self.sections
    }
}

fn parse(bytes: &[u8]) -> Result<(Header, Sections, Vec<VolumeSummary>), NativeError> {
    let header = Header::decode(bytes)?;
    let sections = Sections::of(&header, bytes.len() as u64)?;
    let tables = sections.tables();
    if xxh3_64(&bytes[tables.clone()]) != header.tables_checksum {
        let (start_byte, end_byte) = (tables.start as u64, tables.end as u64);
        return Err(NativeError::Checksum {
            section: "tables".into(),
            start_byte,
            end_byte,
        });
    }
    let (rows, names) = (
        &bytes[sections.volumes.clone()],
        &bytes[sections.names.clone()],
    );
    let volumes = decode_volumes(rows, names, header.names_bytes)?;
    Ok((header, sections, volumes))
}
