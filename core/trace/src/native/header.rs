//! 128-byte header, and the positions of the sections.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use super::{NativeError, RECORDS_PER_BLOCK};
use crate::record::{Record, VOLUME_NAME_BYTES_MAX, VOLUMES_MAX};
use crate::source::Times;

/// First bytes of every native trace. The high bit, CR LF, ^Z and LF reveal transfers that modify text.
pub const MAGIC: [u8; 8] = *b"\x89TRC\r\n\x1a\n";
/// Version that this program writes; it reads no other version.
pub const FORMAT_VERSION: u32 = 1;

pub(super) const HEADER_BYTES: usize = 128;
pub(super) const VOLUME_ROW_BYTES: usize = 64;
const FLAG_LATENCIES: u32 = 1;
const FLAG_ORIGIN: u32 = 2;
const FLAG_ORDER: u32 = 4;

/// Decoded fields of the header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) has_latencies: bool,
    pub(super) records: u64,
    pub(super) span_ns: u64,
    pub(super) origin_unix_ns: Option<i64>,
    pub(super) times: Times,
    pub(super) volumes: u32,
    pub(super) names_bytes: u32,
    pub(super) requests: [u64; 4],
    pub(super) bytes: [u64; 3],
    pub(super) tables_checksum: u64,
}

/// Byte ranges of the sections. [`Sections::of`] checks that they are within the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sections {
    pub(super) records: Range<usize>,
    pub(super) latencies: Range<usize>,
    pub(super) volumes: Range<usize>,
    pub(super) names: Range<usize>,
    pub(super) checksums: Range<usize>,
}

impl Sections {
    /// Returns the range of volumes, names and checksums, which the checksum of the tables covers.
    pub(super) fn tables(&self) -> Range<usize> {
        self.volumes.start..self.checksums.end
    }

    /// Computes the positions of the sections and compares their end with the size of the file. All arithmetic is
    /// checked, because the counts come from the file.
    pub(super) fn of(header: &Header, file_bytes: u64) -> Result<Self, NativeError> {
        let layout = || -> Option<[u64; 6]> {
            let records = HEADER_BYTES as u64;
            let latencies =
                records.checked_add(header.records.checked_mul(Record::SIZE_BYTES as u64)?)?;
            let latency_bytes = if header.has_latencies {
                header.records.checked_mul(8)?
            } else {
                0
            };
            let volumes = latencies.checked_add(latency_bytes)?;
            let names = volumes
                .checked_add(u64::from(header.volumes).checked_mul(VOLUME_ROW_BYTES as u64)?)?;
            let checksums = names.checked_add(u64::from(header.names_bytes).next_multiple_of(8))?;
            let columns = if header.has_latencies { 2 } else { 1 };
            let blocks = header
                .records
                .div_ceil(RECORDS_PER_BLOCK as u64)
                .checked_mul(columns)?;
            Some([
                records,
                latencies,
                volumes,
                names,
                checksums,
                checksums.checked_add(blocks.checked_mul(8)?)?,
            ])
        };
        let Some(at) = layout() else {
            return Err(NativeError::Size {
                expected_bytes: u64::MAX,
                actual_bytes: file_bytes,
            });
        };
        if at[5] != file_bytes {
            return Err(NativeError::Size {
                expected_bytes: at[5],
                actual_bytes: file_bytes,
            });
        }
        let at = at.map(usize::try_from);
        let [
            Ok(records),
            Ok(latencies),
            Ok(volumes),
            Ok(names),
            Ok(checksums),
            Ok(end),
        ] = at
        else {
            return Err(NativeError::Structure {
                what: "larger than this machine's address space".into(),
            });
        };
        Ok(Self {
            records: records..latencies,
            latencies: latencies..volumes,
            volumes: volumes..names,
            names: names..checksums,
            checksums: checksums..end,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let flags = [
            (self.has_latencies, FLAG_LATENCIES),
            (self.origin_unix_ns.is_some(), FLAG_ORIGIN),
            (self.times == Times::Order, FLAG_ORDER),
        ];
        let flags = flags
            .iter()
            .fold(0, |all, (set, flag)| if *set { all | flag } else { all });
        out[..8].copy_from_slice(&MAGIC);
        let mut put32 = |at: usize, v: u32| out[at..at + 4].copy_from_slice(&v.to_le_bytes());
        put32(8, FORMAT_VERSION);
        put32(12, flags);
        put32(40, self.volumes);
        put32(44, self.names_bytes);
        put32(104, RECORDS_PER_BLOCK as u32);
        put32(108, Record::SIZE_BYTES as u32);
        let mut put64 = |at: usize, v: u64| out[at..at + 8].copy_from_slice(&v.to_le_bytes());
        put64(16, self.records);
        put64(24, self.span_ns);
        put64(32, self.origin_unix_ns.unwrap_or(0).cast_unsigned());
        for (i, v) in self.requests.iter().chain(&self.bytes).enumerate() {
            put64(48 + 8 * i, *v);
        }
        put64(112, self.tables_checksum);
        let checksum = xxh3_64(&out[..120]);
        out[120..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decodes the header and checks everything that does not require the rest of the file.
    pub(super) fn decode(file: &[u8]) -> Result<Self, NativeError> {
        if !file.starts_with(&MAGIC) {
            return Err(NativeError::NotNative);
        }
        let Some(b) = file.get(..HEADER_BYTES) else {
            return Err(NativeError::Size {
                expected_bytes: HEADER_BYTES as u64,
                actual_bytes: file.len() as u64,
            });
        };
        // The version is checked before the checksum, because another version may use another checksum.
        if u32_at(b, 8) != FORMAT_VERSION {
            return Err(NativeError::Version {
                found: u32_at(b, 8),
            });
        }
        if xxh3_64(&b[..120]) != u64_at(b, 120) {
            return Err(NativeError::Checksum {
                section: "header".into(),
                start_byte: 0,
                end_byte: 128,
            });
        }
        let structure = |what: &str| Err(NativeError::Structure { what: what.into() });
        let flags = u32_at(b, 12);
        if flags & !(FLAG_LATENCIES | FLAG_ORIGIN | FLAG_ORDER) != 0 {
            return structure("unknown flags");
        }
        if u32_at(b, 104) as usize != RECORDS_PER_BLOCK
            || u32_at(b, 108) as usize != Record::SIZE_BYTES
        {
            return structure("unknown block or record size");
        }
        let origin = u64_at(b, 32).cast_signed();
        if flags & FLAG_ORIGIN == 0 && origin != 0 {
            return structure("an unknown origin must be zero");
        }
        let header = Header {
            has_latencies: flags & FLAG_LATENCIES != 0,
            records: u64_at(b, 16),
            span_ns: u64_at(b, 24),
            origin_unix_ns: (flags & FLAG_ORIGIN != 0).then_some(origin),
            times: if flags & FLAG_ORDER == 0 {
                Times::Measured
            } else {
                Times::Order
            },
            volumes: u32_at(b, 40),
            names_bytes: u32_at(b, 44),
            requests: std::array::from_fn(|i| u64_at(b, 48 + 8 * i)),
            bytes: std::array::from_fn(|i| u64_at(b, 80 + 8 * i)),
            tables_checksum: u64_at(b, 112),
        };
        if header.volumes as usize > VOLUMES_MAX {
            return structure("too many volumes");
        }
        if header.names_bytes as usize > header.volumes as usize * VOLUME_NAME_BYTES_MAX {
            return structure("the names are too long");
        }
        if header.records > 0 && header.volumes == 0 {
            return structure("it has records but no volumes");
        }
        if header.records == 0 && header.span_ns != 0 {
            return structure("it has a span but no records");
        }
        let sum = header
            .requests
            .iter()
            .try_fold(0u64, |sum, n| sum.checked_add(*n));
        if sum != Some(header.records) {
            return structure("the sum of the counts per kind differs from the number of records");
        }
        Ok(header)
    }
}
