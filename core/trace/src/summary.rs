//! Summary of a part of a trace set, from which the miss-ratio curve of the set is computed. Summaries merge, so parts can be read on different
//! machines, and no machine needs the whole set.
//!
//! Parts follow one another in time. A page is known by the name of its volume and its number there, so the same volume in two parts is the
//! same.

use std::fmt;

use algo::mrc::{Curve, HyperLogLog, Sampler, Segment, SegmentBuilder};
use model::Op;
use serde::{Deserialize, Serialize};
use units::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::TraceError;
use crate::record::Record;
use crate::references::PageReferences;
use crate::source::NAMELESS_VOLUME;
use crate::stream::TraceStream;

/// Precision of the count of distinct pages: 16 KiB, with a standard error of 0.8 %.
const DISTINCT_PRECISION: u32 = 14;

/// Options of a summary. Summaries with another size of a page or another sample do not merge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SummaryOptions<'a> {
    /// Size of a page: a power of two from [`PageReferences::PAGE_MIN`] to [`PageReferences::PAGE_MAX`].
    pub page: Bytes,
    /// Share of the pages that is sampled, above 0 and at most 1.
    pub rate: f64,
    /// Seed of the sample.
    pub seed: u64,
    /// Name of the volume of a part whose format does not name it.
    pub volume: Option<&'a str>,
}

/// Reason that summaries do not merge, or that there is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SummaryError {
    /// The page size is not allowed.
    #[error("page: {0}: a page is a power of two from 512 B to 1 GiB")]
    Page(Bytes),
    /// The rate is not allowed.
    #[error("rate: {0}: a share above 0 and at most 1")]
    Rate(String),
    /// Different page sizes.
    #[error("summaries have pages of {0} and {1}: use one size for all parts")]
    Pages(Bytes, Bytes),
    /// Different samples.
    #[error("summaries have different samples: use one rate and one seed for all parts")]
    Samples,
    /// A name for a volume that has one.
    #[error("volume: the part has a volume {0}: leave volume out")]
    Named(String),
}

/// Summary of a part of a trace set. Reads and writes are references; trims and flushes are not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MrcSummary {
    page: Bytes,
    requests: u64,
    bytes: u64,
    distinct: HyperLogLog,
    segment: Segment,
}

impl MrcSummary {
    /// Reads the rest of a stream. Memory does not grow with its requests. `progress` is called now and then with the number of requests; an error
    /// ends the reading.
    ///
    /// # Errors
    /// Those of the stream and of `progress`.
    pub fn read<E>(
        stream: &mut TraceStream,
        options: SummaryOptions<'_>,
        progress: &mut dyn FnMut(u64) -> Result<(), E>,
    ) -> Result<Self, E>
    where
        E: From<TraceError> + From<SummaryError>,
    {
        let mut builder = SummaryBuilder::new(options)?;
        while let Some((record, _)) = stream.next_record()? {
            let volume = stream.volumes().get(record.volume()).unwrap_or_default();
            builder.push(&record, volume)?;
            if builder
                .requests
                .is_multiple_of(crate::info::PROGRESS_RECORDS)
            {
                progress(builder.requests)?;
            }
        }
        Ok(builder.finish())
    }

    /// Adds the summary of the part that follows in time.
    ///
    /// # Errors
    /// Another page size, rate or seed.
    pub fn merge(&mut self, next: &Self) -> Result<(), SummaryError> {
        if self.page != next.page {
            return Err(SummaryError::Pages(self.page, next.page));
        }
        let merged = self.segment.merge(&next.segment);
        merged.map_err(|_| SummaryError::Samples)?;
        self.distinct.merge(&next.distinct);
        self.requests += next.requests;
        self.bytes += next.bytes;
        Ok(())
    }

    /// Returns the size of a page.
    pub fn page(&self) -> Bytes {
        self.page
    }

    /// Returns the number of reads and writes.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the bytes of reads and writes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of references to pages.
    pub fn references(&self) -> u64 {
        self.segment.references()
    }

    /// Returns the number of distinct pages, with a standard error of 0.8 %.
    pub fn distinct_pages(&self) -> f64 {
        self.distinct.count()
    }

    /// Returns the miss-ratio curve of one LRU cache in front of all volumes, by size in pages (SHARDS at a fixed rate).
    pub fn curve(&self) -> Curve {
        self.segment.curve()
    }
}

/// Maker of a [`MrcSummary`], request by request.
pub struct SummaryBuilder<'a> {
    options: SummaryOptions<'a>,
    page_bits: u32,
    requests: u64,
    bytes: u64,
    distinct: HyperLogLog,
    segment: SegmentBuilder,
    /// Names of pages 0, by the number of the volume.
    volumes: Vec<Option<u64>>,
}

impl fmt::Debug for SummaryBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SummaryBuilder of {} requests", self.requests)
    }
}

impl<'a> SummaryBuilder<'a> {
    /// Empty part.
    ///
    /// # Errors
    /// A page size or rate that is not allowed.
    pub fn new(options: SummaryOptions<'a>) -> Result<Self, SummaryError> {
        let SummaryOptions {
            page, rate, seed, ..
        } = options;
        let allowed = PageReferences::PAGE_MIN..=PageReferences::PAGE_MAX;
        if !page.0.is_power_of_two() || !allowed.contains(&page) {
            return Err(SummaryError::Page(page));
        }
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(SummaryError::Rate(rate.to_string()));
        }
        Ok(Self {
            options,
            page_bits: page.0.trailing_zeros(),
            requests: 0,
            bytes: 0,
            distinct: HyperLogLog::new(DISTINCT_PRECISION),
            segment: SegmentBuilder::new(Sampler::new(rate, seed)),
            volumes: Vec::new(),
        })
    }

    /// Adds a request of the volume with this name. A number of a volume always has the same name within a part.
    ///
    /// # Errors
    /// A volume with a name, although the options have one for it.
    pub fn push(&mut self, record: &Record, volume: &str) -> Result<(), SummaryError> {
        if !matches!(record.op(), Op::Read | Op::Write) || record.length_bytes == 0 {
            return Ok(());
        }
        let number = record.volume() as usize;
        if self.volumes.len() <= number {
            self.volumes.resize(number + 1, None);
        }
        let origin = match self.volumes[number] {
            Some(origin) => origin,
            None => {
                let name = match self.options.volume {
                    Some(_) if volume != NAMELESS_VOLUME => {
                        return Err(SummaryError::Named(volume.into()));
                    }
                    given => given.unwrap_or(volume),
                };
                *self.volumes[number].insert(xxh3_64(name.as_bytes()))
            }
        };
        self.requests += 1;
        self.bytes += u64::from(record.length_bytes);
        let first = record.offset_bytes >> self.page_bits;
        let last = (record.end_offset_bytes() - 1) >> self.page_bits;
        for page in first..=last {
            let name = origin.wrapping_add(page);
            self.distinct.add(name);
            self.segment.reference(name);
        }
        Ok(())
    }

    /// Returns the summary.
    pub fn finish(self) -> MrcSummary {
        MrcSummary {
            page: self.options.page,
            requests: self.requests,
            bytes: self.bytes,
            distinct: self.distinct,
            segment: self.segment.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Request;

    fn options() -> SummaryOptions<'static> {
        SummaryOptions {
            page: Bytes(4096),
            rate: 0.5,
            seed: 3,
            volume: None,
        }
    }

    /// Summary of requests; `names` are those of the volumes in this part.
    fn summary(requests: &[(u32, u64, u32)], names: &[&str]) -> MrcSummary {
        let mut builder = SummaryBuilder::new(options()).unwrap();
        for (volume, offset_bytes, length_bytes) in requests {
            let record = Record::new(Request {
                time_ns: 0,
                volume: *volume,
                op: Op::Read,
                offset_bytes: *offset_bytes,
                length_bytes: *length_bytes,
            });
            builder.push(&record, names[*volume as usize]).unwrap();
        }
        builder.finish()
    }

    proptest! {
        #[test]
        fn merged_summaries_equal_the_summary_of_all(
            requests in prop::collection::vec((0u32..2, 0u64..1 << 18, 1u32..20_000), 0..200),
            cut in 0usize..200,
        ) {
            let (before, after) = requests.split_at(cut.min(requests.len()));
            // The second part numbers its volumes in another order.
            let swapped: Vec<_> = after.iter().map(|(v, o, l)| (1 - v, *o, *l)).collect();
            let mut merged = summary(before, &["a", "b"]);
            merged.merge(&summary(&swapped, &["b", "a"])).unwrap();
            prop_assert_eq!(merged, summary(&requests, &["a", "b"]));
        }
    }

    #[test]
    fn incompatible_summaries_are_refused() {
        let with = |page, rate| {
            let builder = SummaryBuilder::new(SummaryOptions {
                page,
                rate,
                ..options()
            });
            builder.map(SummaryBuilder::finish)
        };
        let mut one = with(Bytes(4096), 0.5).unwrap();
        for (other, says) in [
            (with(Bytes(8192), 0.5), "pages of 4 KiB and 8 KiB"),
            (with(Bytes(4096), 0.1), "different samples"),
        ] {
            let error = one.merge(&other.unwrap()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(with(Bytes(1000), 0.5).is_err());
        assert!(with(Bytes(4096), f64::NAN).is_err());
    }
}
