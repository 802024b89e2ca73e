//! What can be wrong with a trace.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use units::{Bytes, ParseUnitError};

use crate::ClientError;
use crate::native::NativeError;

/// Bytes of an offending value that an error quotes. Protects logs from a line of binary rubbish.
const QUOTED_BYTES_MAX: usize = 48;

/// Where in a file a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// Line of a text, counted from 1 (after decompression).
    Line(u64),
    /// Byte offset in a binary file (after decompression).
    Byte(u64),
    /// Record of a trace, counted from 0: where the original position is no longer known.
    Record(u64),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Line(n) => write!(f, "line {n}"),
            Location::Byte(n) => write!(f, "byte {n}"),
            Location::Record(n) => write!(f, "record {n}"),
        }
    }
}

/// One record that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// File as given by the caller.
    pub file: String,
    /// Where the record starts.
    pub at: Location,
    /// Which field.
    pub field: &'static str,
    /// What it says: escaped, and cut after 48 bytes.
    pub value: String,
    /// What is wrong with it.
    pub reason: Cow<'static, str>,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}: {} \"{}\": {}",
            self.file, self.at, self.field, self.value, self.reason
        )
    }
}

/// A field that could not be read; becomes a [`BadRecord`] where the position is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    pub(crate) field: &'static str,
    pub(crate) value: String,
    pub(crate) reason: Cow<'static, str>,
}

impl FieldError {
    #[cold]
    pub(crate) fn new(
        field: &'static str,
        value: &[u8],
        reason: impl Into<Cow<'static, str>>,
    ) -> Box<Self> {
        Box::new(Self {
            field,
            value: quote(value),
            reason: reason.into(),
        })
    }

    #[cold]
    pub(crate) fn at(self, file: &str, at: Location) -> TraceError {
        let FieldError {
            field,
            value,
            reason,
        } = self;
        TraceError::BadRecord(Box::new(BadRecord {
            file: file.into(),
            at,
            field,
            value,
            reason,
        }))
    }
}

/// Escapes a value for a message and cuts it.
pub(crate) fn quote(value: &[u8]) -> String {
    let cut = value.len().min(QUOTED_BYTES_MAX);
    let dots = if cut < value.len() { "…" } else { "" };
    format!("{}{dots}", value[..cut].escape_ascii())
}

/// How many bad records a reader passes over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SkipBad {
    /// Up to this many are counted and skipped; the next one is the error. Zero tolerates none.
    pub limit: u64,
}

/// Everything that reading or writing a trace can fail with.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The operating system refused.
    #[error("cannot {action} {path}")]
    Io {
        /// What was tried, such as `open`.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The data stopped coming: an unreadable file, or a damaged or truncated compressed one.
    #[error("{file}: cannot read beyond {offset_bytes} bytes of {what}")]
    Stream {
        /// File.
        file: String,
        /// Uncompressed bytes that were read before.
        offset_bytes: u64,
        /// `data`, `gzip data`, …
        what: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// One record is bad and none may be skipped.
    #[error("{0}")]
    BadRecord(Box<BadRecord>),
    /// More records are bad than may be skipped.
    #[error("more than {limit} bad records: {last}")]
    TooManyBad {
        /// How many may be skipped.
        limit: u64,
        /// The first one that may not.
        last: Box<BadRecord>,
    },
    /// Time goes back further than the reorder buffer reaches.
    #[error(
        "{file}: {at}: time decreases by {back_ns} ns, more than the reorder buffer of {buffer_records} records \
         can correct: use --sort to sort the whole trace in memory"
    )]
    TimeReversal {
        /// File.
        file: String,
        /// Which record.
        at: Location,
        /// How far before the last record that was already handed on.
        back_ns: u64,
        /// Size of the reorder buffer.
        buffer_records: usize,
    },
    /// Two records are further apart than 2^63 nanoseconds.
    #[error("{file}: {at}: the trace would span more than 292 years: check the unit of time")]
    SpanTooLong {
        /// File.
        file: String,
        /// Which record.
        at: Location,
    },
    /// More records than the caller wants in memory.
    #[error(
        "{file}: more than {limit} records: convert it to a native trace, which is mapped instead of loaded"
    )]
    TooManyRecords {
        /// File.
        file: String,
        /// The caller's limit.
        limit: u64,
    },
    /// The format is not one that we know.
    #[error("{file}: not a trace: {hint}")]
    UnknownFormat {
        /// File.
        file: String,
        /// What was seen and what can be done.
        hint: String,
    },
    /// The content fits several formats.
    #[error("{file}: the content fits several formats ({candidates}): name one with --format")]
    AmbiguousFormat {
        /// File.
        file: String,
        /// Their names.
        candidates: String,
    },
    /// The format was guessed, and the caller needs to be sure.
    #[error("{file}: the format looks like {format}, but {why}: name it with --format to continue")]
    AssumedFormat {
        /// File.
        file: String,
        /// The guess.
        format: &'static str,
        /// Why it is only that.
        why: String,
    },
    /// A column mapping that cannot be applied.
    #[error("{file}: {reason}")]
    Columns {
        /// File.
        file: String,
        /// What is missing or wrong.
        reason: String,
    },
    /// A native trace is damaged or not one.
    #[error("{file}: {error}")]
    Native {
        /// File.
        file: String,
        /// What is wrong; part of the message already, so not a `#[source]`.
        error: NativeError,
    },
    /// The caller of a writer broke its contract.
    #[error("cannot write record {index}: {reason}")]
    Write {
        /// Which record, counted from 0.
        index: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The extension of an output file names no format.
    #[error(
        "unknown output format of {path}: use a name that ends in .trc, .csv, .csv.zst or .parquet"
    )]
    OutputFormat {
        /// The name.
        path: PathBuf,
    },
}

/// Column mapping that is invalid or does not fit the columns of a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ColumnError {
    /// A part of the text has no `=`.
    #[error("\"{0}\" maps no column: use a form such as time=1:s or time=timestamp:us")]
    Form(String),
    /// A part of the text names neither a column nor a kind of requests, or no value.
    #[error("\"{part}\" {why}")]
    Meaning {
        /// Part of the text.
        part: String,
        /// Fault of the part.
        why: &'static str,
    },
    /// Two parts of the text give a value different kinds of requests.
    #[error("\"{0}\" has two kinds")]
    TwoKinds(String),
    /// Too many values have a kind of requests.
    #[error("more than {max} values of the op column")]
    TooManyValues {
        /// Largest number of values.
        max: usize,
    },
    /// All requests have one kind, and values have kinds, too.
    #[error("a kind for all requests and kinds for values exclude each other")]
    Exclusive,
    /// The number, name, unit or rule of a column does not exist.
    #[error("{role}: {why}")]
    Column {
        /// Role of the column, such as `time`.
        role: &'static str,
        /// Number, name, unit or rule, with the reason.
        why: String,
    },
    /// A column is mapped twice, or has a unit of another dimension.
    #[error("{role} {why}")]
    Role {
        /// Role of the column.
        role: &'static str,
        /// Fault of the mapping.
        why: &'static str,
    },
    /// The volume column has a unit.
    #[error("the volume column has no unit: remove \"{0}\"")]
    VolumeUnit(String),
    /// The file has no column for a role.
    #[error("no column for the {role}{among}: map it with --columns {role}=…")]
    Missing {
        /// Role of the column.
        role: &'static str,
        /// Names in the header; empty without a header.
        among: String,
    },
    /// The unit of a column is unknown.
    #[error("the {role} needs a unit: --columns {role}=…:{example}")]
    NoUnit {
        /// Role of the column.
        role: &'static str,
        /// Name of a possible unit.
        example: &'static str,
    },
}

/// Invalid option of reading, sampling, generating or analysing traces.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum OptionError {
    /// The text is not a delimiter.
    #[error("\"{0}\" is not a delimiter: use one character such as \",\", or tab or space")]
    Delimiter(String),
    /// The text is not the name of a format.
    #[error("\"{text}\" is not a trace format: use one of {known}")]
    Format {
        /// Text.
        text: String,
        /// Names of all formats.
        known: String,
    },
    /// The text is not a placement of ids.
    #[error("must be \"appearance\" or the size of a block: {0}")]
    Ids(ParseUnitError),
    /// The size of a block is zero.
    #[error("a block must have at least one byte")]
    EmptyBlock,
    /// The text is not the name of a method for miss-ratio curves.
    #[error("unknown method \"{name}\"; known: {known}")]
    Method {
        /// Text.
        name: String,
        /// Names of all methods.
        known: String,
    },
    /// The text is not the rate of a method for miss-ratio curves.
    #[error("a share above 0 and at most 1, or auto")]
    Rate,
    /// The rate of a sample is out of range.
    #[error("the rate of a sample must be between {least:.1e} and 1, not {rate:e}")]
    SampleRate {
        /// Smallest rate.
        least: f64,
        /// Given rate.
        rate: f64,
    },
    /// The unit of a sample is not a power of two, or out of range.
    #[error("the unit of a sample must be a power of two from 4 KiB to 1 GiB, not {0}")]
    SampleUnit(Bytes),
    /// The part of time in a sample is empty.
    #[error("the start of a sample must be before its end")]
    SampleTimes,
    /// A sample keeps each zeroth request.
    #[error("--every must be at least 1")]
    SampleEvery,
    /// A part of the name of a generated trace has no `=`.
    #[error("\"{0}\": write KEY=VALUE, such as preset=jesd")]
    Form(String),
    /// The name of a generated trace has an unknown key.
    #[error("unknown key \"{0}\"; known: preset, volume-size, requests, duration, latency, seed")]
    UnknownKey(String),
    /// The name of a generated trace has an invalid value.
    #[error("{key}={value}: {why}")]
    Value {
        /// Key.
        key: String,
        /// Value.
        value: String,
        /// Reason.
        why: String,
    },
    /// The name of a generated trace has no workload.
    #[error("no preset; known: {known}")]
    NoPreset {
        /// Names of all workloads.
        known: String,
    },
    /// A workload of a generated trace does not exist, or does not fit its volume.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl TraceError {
    pub(crate) fn io(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(io::Error) -> TraceError + use<> {
        let path = path.to_path_buf();
        move |source| TraceError::Io {
            action,
            path,
            source,
        }
    }
}
