//! Traces: read any, check everything, replay from a memory map.
//!
//! ```text
//!  any format ──▶ TraceStream ──▶ TraceInfo          what it is
//!  (gz, xz, zst)        │  ├─────▶ convert ──▶ .trc   once
//!                       │  └─────▶ load                into memory
//!  .trc ────────────────┴────────▶ load ──▶ &[Record]  mapped, verified, in place
//! ```
//!
//! A trace is a list of [`Record`]s in order of time, counted from zero, and a list of volumes that the records
//! index. Readers of foreign formats are [`RecordSource`]s; [`TraceStream`] puts decompression before one and the
//! rules that are the same for all formats behind it: which bad records are passed over, how time gets into order.
//! Input is never trusted: no length from a file decides an allocation, arithmetic on it is checked, and a record
//! that reaches a caller is valid.
//!
//! Not here: clocks and sockets (only files are opened), replay (the simulator's and the data path's), formats that
//! need a second file.

#![warn(missing_docs)]

#[doc(hidden)]
pub mod fuzzing;
pub mod measurements;
pub mod native;

mod arrivals;
mod atomic;
mod beginning;
mod bulk;
mod client;
mod columnar;
mod compress;
pub mod conditions;
mod convert;
pub mod curves;
mod detect;
mod detect_rows;
mod distribution;
mod error;
mod fixed;
mod footprint;
mod formats;
mod generate;
mod generated;
mod info;
mod load;
mod map;
mod native_source;
mod order;
mod peaks;
mod presets;
mod record;
mod references;
mod sample;
mod source;
mod stream;
mod summary;
mod text;
mod warm;

pub use arrivals::{Arrival, ArrivalSpec, Arrivals};
pub use atomic::AtomicFile;
pub use client::{
    Bursts, Client, ClientError, ClientRequest, ClientSpec, ClientStep, Habits, Phase, SizeShare,
};
pub use columnar::PARQUET_SCHEMA;
pub use compress::Compression;
pub use convert::{CaptureWriter, ConversionSummary, convert, save};
pub use detect::{DETECT_BYTES, Detection, detect};
pub use distribution::{LatencyStats, SizeStats};
pub use error::{BadRecord, ColumnError, Location, OptionError, SkipBad, TraceError};
pub use footprint::FOOTPRINT_PAGE_BYTES;
pub use formats::{Format, IdPlacement};
pub use generate::{GenerateOptions, GeneratedVolume, Generator};
pub use generated::is_generated;
pub use info::{INFO_SCHEMA, TraceInfo, VolumeInfo};
pub use load::{LoadedTrace, load, load_stream};
pub use native::{NativeError, NativeTrace, VolumeSummary};
pub use order::REORDER_RECORDS_MAX;
pub use peaks::{PeakAndMean, RequestLoad};
pub use presets::{
    CLIENT_PRESETS, ClientPreset, FIO_PRESETS, NULL_ENGINE, client_preset, client_preset_names,
};
pub use record::{LATENCY_UNKNOWN, RawRecord, Record, Request, VOLUME_NAME_BYTES_MAX, VOLUMES_MAX};
pub use references::{CacheKind, PageReferences, Touch};
pub use sample::{SAMPLE_UNIT_MAX, SAMPLE_UNIT_MIN, SampleCounts, SampleSpec};
pub use source::{NAMELESS_VOLUME, RecordSource, SourceClock, Times, VolumeNames};
pub use stream::{Ordering, Progress, RECORDS_IN_MEMORY_MAX, ReadOptions, TraceStream};
pub use summary::{MrcSummary, SummaryBuilder, SummaryError, SummaryOptions};
pub use text::{ColumnSpec, Delimiter, HeaderRow, TimeUnit};
pub use warm::{WARM_RECORDS, warmed};
