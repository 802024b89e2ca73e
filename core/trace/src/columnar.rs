//! Reader and writer of Parquet files, with the columns of the capture CSV as types.
//!
//! | column | type | |
//! |---|---|---|
//! | `time_ns` | int64 | since the trace's start |
//! | `volume` | string | |
//! | `op` | string | `R`, `W`, `D` (trim), `F` (flush, with offset and length 0) |
//! | `offset_bytes`, `length_bytes` | int64 | |
//! | `latency_ns` | int64, null if not known | may be absent when reading |
//!
//! Key-value metadata: `terrace.schema` = [`PARQUET_SCHEMA`], `terrace.times` = `measured` or `order`, and
//! `terrace.origin_unix_ns` if it is known. Files of other tools with these columns are also read; the columns may be
//! in any order, with others between them. The earliest record becomes time 0.
//!
//! A library decodes the format. Its output for a damaged file is checked like any other record, and a panic in it
//! becomes an ordinary error. But a file can make it allocate memory. Limit memory when you read Parquet files from
//! untrusted sources.

use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use model::Op;
use parquet::basic::{Compression, Type as Physical, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::error::{FieldError, Location, TraceError};
use crate::record::{LATENCY_UNKNOWN, RawRecord, Record};
use crate::source::{RecordSource, SourceClock, Times, VolumeNames};
use crate::text::{OpRule, check_range};

/// Schema of written Parquet files.
pub const PARQUET_SCHEMA: &str = "terrace.trace.parquet/1";

const SCHEMA_KEY: &str = "terrace.schema";
const TIMES_KEY: &str = "terrace.times";
const ORIGIN_KEY: &str = "terrace.origin_unix_ns";
const MESSAGE: &str = "message trace {
    required int64 time_ns;
    required binary volume (STRING);
    required binary op (STRING);
    required int64 offset_bytes;
    required int64 length_bytes;
    optional int64 latency_ns;
}";
const COLUMNS: [(&str, Physical); 6] = [
    ("time_ns", Physical::INT64),
    ("volume", Physical::BYTE_ARRAY),
    ("op", Physical::BYTE_ARRAY),
    ("offset_bytes", Physical::INT64),
    ("length_bytes", Physical::INT64),
    ("latency_ns", Physical::INT64),
];
/// Rows of a written row group. They are held in memory, about 15 MiB.
const GROUP_ROWS: usize = 1 << 17;
/// Rows per read.
const BATCH_ROWS: usize = 4096;

/// Writer of a Parquet file.
pub(crate) struct ParquetWriter<W: Write + Send> {
    file: String,
    writer: SerializedFileWriter<W>,
    numbers: [Vec<i64>; 4],
    known: Vec<i16>,
    volumes: Vec<ByteArray>,
    ops: Vec<ByteArray>,
    /// Names of volumes by index, stored when they are first written.
    names: Vec<ByteArray>,
    records: u64,
}

fn failed(file: &str, error: &ParquetError) -> TraceError {
    TraceError::Columns {
        file: file.to_owned(),
        reason: format!("Parquet: {error}"),
    }
}

impl<W: Write + Send> ParquetWriter<W> {
    pub(crate) fn new(
        path: &Path,
        out: W,
        times: Times,
        origin_unix_ns: Option<i64>,
    ) -> Result<Self, TraceError> {
        let file = path.display().to_string();
        let mut pairs = vec![
            KeyValue::new(SCHEMA_KEY.to_owned(), PARQUET_SCHEMA.to_owned()),
            KeyValue::new(
                TIMES_KEY.to_owned(),
                match times {
                    Times::Measured => "measured".to_owned(),
                    Times::Order => "order".to_owned(),
                },
            ),
        ];
        pairs.extend(origin_unix_ns.map(|ns| KeyValue::new(ORIGIN_KEY.to_owned(), ns.to_string())));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_key_value_metadata(Some(pairs))
            .build();
        let schema = parse_message_type(MESSAGE).map_err(|e| failed(&file, &e))?;
        let writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))
            .map_err(|e| failed(&file, &e))?;
        Ok(Self {
            file,
            writer,
            numbers: Default::default(),
            known: Vec::new(),
            volumes: Vec::new(),
            ops: Vec::new(),
            names: Vec::new(),
            records: 0,
        })
    }

    pub(crate) fn push(
        &mut self,
        record: &Record,
        names: &VolumeNames,
        latency_ns: Option<u64>,
    ) -> Result<(), TraceError> {
        let refuse = |what: &str| TraceError::Write {
            index: self.records,
            reason: format!("its {what} exceeds 2^63, the limit of a Parquet column"),
        };
        let signed = |what, n: u64| i64::try_from(n).map_err(|_| refuse(what));
        let numbers = [
            signed("time", record.time_ns)?,
            signed("offset", record.offset_bytes)?,
            i64::from(record.length_bytes),
        ];
        let latency = latency_ns.map(|ns| signed("latency", ns)).transpose()?;
        for (column, number) in self.numbers.iter_mut().zip(numbers) {
            column.push(number);
        }
        self.known.push(i16::from(latency.is_some()));
        self.numbers[3].extend(latency);
        while self.names.len() <= record.volume() as usize {
            let name = names.get(self.names.len() as u32).unwrap_or_default();
            self.names.push(ByteArray::from(name));
        }
        self.volumes
            .push(self.names[record.volume() as usize].clone());
        self.ops.push(ByteArray::from(match record.op() {
            Op::Read => "R",
            Op::Write => "W",
            Op::Trim => "D",
            Op::Flush => "F",
        }));
        self.records += 1;
        if self.known.len() == GROUP_ROWS {
            self.write_group().map_err(|e| failed(&self.file, &e))?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for (i, (name, _)) in COLUMNS.iter().enumerate() {
            let Some(mut column) = group.next_column()? else {
                return Err(ParquetError::General(format!("no column {name} to write")));
            };
            match i {
                1 => column
                    .typed::<ByteArrayType>()
                    .write_batch(&self.volumes, None, None)?,
                2 => column
                    .typed::<ByteArrayType>()
                    .write_batch(&self.ops, None, None)?,
                0 => column
                    .typed::<Int64Type>()
                    .write_batch(&self.numbers[0], None, None)?,
                5 => column.typed::<Int64Type>().write_batch(
                    &self.numbers[3],
                    Some(&self.known),
                    None,
                )?,
                _ => column
                    .typed::<Int64Type>()
                    .write_batch(&self.numbers[i - 2], None, None)?,
            };
            column.close()?;
        }
        group.close()?;
        self.numbers.iter_mut().for_each(Vec::clear);
        self.known.clear();
        self.volumes.clear();
        self.ops.clear();
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<u64, TraceError> {
        let written = if self.known.is_empty() {
            Ok(())
        } else {
            self.write_group()
        };
        written
            .and_then(|()| self.writer.close().map(|_| ()))
            .map_err(|e| failed(&self.file, &e))?;
        Ok(self.records)
    }
}

/// Column of a row group, with the values of a batch.
struct Column<T: DataType> {
    reader: ColumnReaderImpl<T>,
    optional: bool,
    levels: Vec<i16>,
    values: Vec<T::T>,
}

impl<T: DataType> Column<T> {
    fn new(reader: ColumnReaderImpl<T>, optional: bool) -> Self {
        Self {
            reader,
            optional,
            levels: Vec::new(),
            values: Vec::new(),
        }
    }

    fn read(&mut self) -> Result<usize, ParquetError> {
        self.levels.clear();
        self.values.clear();
        let levels = self.optional.then_some(&mut self.levels);
        let (rows, ..) = self
            .reader
            .read_records(BATCH_ROWS, levels, None, &mut self.values)?;
        if self.optional {
            // The library returns only values that are not null. Nulls get a placeholder, so rows and values have equal
            // indexes.
            let mut values = std::mem::take(&mut self.values).into_iter();
            let levels = self.levels.iter().map(|level| *level > 0);
            self.values = levels
                .map(|known| if known { values.next() } else { None })
                .map(Option::unwrap_or_default)
                .collect();
        } else {
            self.levels.resize(rows, 1);
        }
        if self.values.len() != rows || self.levels.len() != rows {
            return Err(ParquetError::General(
                "the number of rows of a column differs from its declaration".into(),
            ));
        }
        Ok(rows)
    }

    /// Returns the value of a row; `None` if it is null.
    fn get(&self, row: usize) -> Option<&T::T> {
        (*self.levels.get(row)? > 0).then(|| self.values.get(row))?
    }
}

struct Group {
    time: Column<Int64Type>,
    volume: Column<ByteArrayType>,
    op: Column<ByteArrayType>,
    offset: Column<Int64Type>,
    length: Column<Int64Type>,
    latency: Option<Column<Int64Type>>,
}

impl Group {
    fn read(&mut self) -> Result<usize, ParquetError> {
        let rows = self.time.read()?;
        let others = [
            self.volume.read()?,
            self.op.read()?,
            self.offset.read()?,
            self.length.read()?,
            self.latency.as_mut().map_or(Ok(rows), Column::read)?,
        ];
        if others.iter().any(|n| *n != rows) {
            return Err(ParquetError::General(
                "the columns have different numbers of rows".into(),
            ));
        }
        Ok(rows)
    }
}

/// Reader of a Parquet file.
pub(crate) struct ParquetSource {
    file: String,
    reader: SerializedFileReader<File>,
    /// Index and optionality of each of [`COLUMNS`].
    columns: [Option<(usize, bool)>; 6],
    groups: usize,
    group: Option<Group>,
    rows: usize,
    row: usize,
    record: u64,
    clock: SourceClock,
    pub(crate) origin_unix_ns: Option<i64>,
    volumes: VolumeNames,
}

/// Runs the decoder and converts a panic to an error.
fn guarded<T>(file: &str, work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, TraceError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failed(file, &error)),
        Err(_) => Err(TraceError::Columns {
            file: file.to_owned(),
            reason: "Parquet: the file is damaged, and its decoder failed".into(),
        }),
    }
}

impl ParquetSource {
    pub(crate) fn open(name: &str, file: File) -> Result<Self, TraceError> {
        let reader = guarded(name, || SerializedFileReader::new(file))?;
        let columns = |reason: String| TraceError::Columns {
            file: name.to_owned(),
            reason,
        };
        let metadata = reader.metadata();
        let schema = metadata.file_metadata().schema_descr();
        let mut found = [None; 6];
        for ((column, physical), found) in COLUMNS.iter().zip(&mut found) {
            let is_it = |i: &usize| schema.column(*i).path().string() == *column;
            let Some(i) = (0..schema.num_columns()).find(is_it) else {
                if *column == "latency_ns" {
                    continue;
                }
                return Err(columns(format!("Parquet: missing column {column}")));
            };
            let description = schema.column(i);
            if description.physical_type() != *physical
                || description.max_rep_level() > 0
                || description.max_def_level() > 1
            {
                return Err(columns(format!(
                    "Parquet: column {column} is not a flat {physical}"
                )));
            }
            *found = Some((i, description.max_def_level() == 1));
        }
        let pairs = metadata.file_metadata().key_value_metadata();
        let value = |key: &str| {
            let pair = pairs.into_iter().flatten().find(|pair| pair.key == key)?;
            pair.value.clone()
        };
        let schema = value(SCHEMA_KEY);
        if schema.as_ref().is_some_and(|s| s != PARQUET_SCHEMA) {
            return Err(columns(format!(
                "Parquet: the schema is not {PARQUET_SCHEMA}"
            )));
        }
        let clock = match (schema, value(TIMES_KEY).as_deref()) {
            (None, _) => SourceClock::Relative,
            (Some(_), Some("order")) => SourceClock::Order,
            (Some(_), _) => SourceClock::Recording,
        };
        let origin_unix_ns = value(ORIGIN_KEY).and_then(|text| text.parse().ok());
        Ok(Self {
            file: name.to_owned(),
            columns: found,
            groups: 0,
            group: None,
            rows: 0,
            row: 0,
            record: 0,
            clock,
            origin_unix_ns,
            volumes: VolumeNames::default(),
            reader,
        })
    }

    fn open_group(&self, index: usize) -> Result<Group, ParquetError> {
        let group = self.reader.get_row_group(index)?;
        let wrong = || ParquetError::General("the type of a column differs from the schema".into());
        let numbers = |column: usize| {
            let Some((i, optional)) = self.columns[column] else {
                return Ok(None);
            };
            match group.get_column_reader(i)? {
                ColumnReader::Int64ColumnReader(reader) => Ok(Some(Column::new(reader, optional))),
                _ => Err(wrong()),
            }
        };
        let texts = |column: usize| {
            let (i, optional) = self.columns[column].ok_or_else(wrong)?;
            match group.get_column_reader(i)? {
                ColumnReader::ByteArrayColumnReader(reader) => Ok(Column::new(reader, optional)),
                _ => Err(wrong()),
            }
        };
        Ok(Group {
            time: numbers(0)?.ok_or_else(wrong)?,
            volume: texts(1)?,
            op: texts(2)?,
            offset: numbers(3)?.ok_or_else(wrong)?,
            length: numbers(4)?.ok_or_else(wrong)?,
            latency: numbers(5)?,
        })
    }

    /// Reads rows if none are left. Returns false at the end.
    fn fill(&mut self) -> Result<bool, TraceError> {
        loop {
            if self.group.is_none() {
                if self.groups == self.reader.num_row_groups() {
                    return Ok(false);
                }
                let file = &self.file;
                self.group = Some(guarded(file, || self.open_group(self.groups))?);
                self.groups += 1;
            }
            let Some(group) = &mut self.group else {
                continue;
            };
            self.row = 0;
            self.rows = guarded(&self.file, || group.read())?;
            if self.rows > 0 {
                return Ok(true);
            }
            self.group = None;
        }
    }
}

fn number(
    column: &Column<Int64Type>,
    name: &'static str,
    row: usize,
) -> Result<u64, Box<FieldError>> {
    let Some(number) = column.get(row) else {
        return Err(FieldError::new(name, b"null", "unknown"));
    };
    u64::try_from(*number)
        .map_err(|_| FieldError::new(name, number.to_string().as_bytes(), "negative"))
}

fn parse(
    group: &Group,
    row: usize,
    volumes: &mut VolumeNames,
) -> Result<RawRecord, Box<FieldError>> {
    let null = |name| FieldError::new(name, b"null", "unknown");
    let time_ns = *group.time.get(row).ok_or_else(|| null("time_ns"))?;
    let op = OpRule::Words.parse(group.op.get(row).ok_or_else(|| null("op"))?.data())?;
    let (offset_bytes, length_bytes) = if op == Op::Flush {
        (0, 0)
    } else {
        let (offset, length) = (
            number(&group.offset, "offset_bytes", row)?,
            number(&group.length, "length_bytes", row)?,
        );
        check_range(offset, length).map_err(|(field, reason)| {
            let value = if field == "offset" { offset } else { length };
            FieldError::new(field, value.to_string().as_bytes(), reason)
        })?
    };
    let latency_ns = match &group.latency {
        Some(column) if column.get(row).is_some() => number(column, "latency_ns", row)?,
        _ => LATENCY_UNKNOWN,
    };
    let volume = volumes.intern(group.volume.get(row).ok_or_else(|| null("volume"))?.data())?;
    Ok(RawRecord {
        time_ns,
        offset_bytes,
        latency_ns,
        length_bytes,
        volume,
        op,
    })
}

impl RecordSource for ParquetSource {
    fn next(&mut self, out: &mut RawRecord) -> Result<bool, TraceError> {
        if self.row == self.rows && !self.fill()? {
            self.rows = 0;
            self.row = 0;
            return Ok(false);
        }
        let Some(group) = &self.group else {
            return Ok(false);
        };
        let parsed = parse(group, self.row, &mut self.volumes);
        self.row += 1;
        self.record += 1;
        *out = parsed.map_err(|error| error.at(&self.file, self.location()))?;
        Ok(true)
    }

    fn volumes(&self) -> &VolumeNames {
        &self.volumes
    }

    fn has_latencies(&self) -> bool {
        self.columns[5].is_some()
    }

    fn clock(&self) -> SourceClock {
        self.clock
    }

    fn location(&self) -> Location {
        Location::Record(self.record.saturating_sub(1))
    }
}
