//! Files of tables. Each appears when it is complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use sim::{Model, ServedRequest};
use trace::{AtomicFile, TraceError};
use zstd::stream::write::Encoder;

use crate::requests::RequestNames;

/// Rows of a row group: bounds the memory of a file that is written table by table.
const GROUP_ROWS: usize = 1 << 17;
const ZSTD_LEVEL: i32 = 3;

/// Reason that a file of a table was not written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The directory does not exist and was not created.
    #[error("cannot create {}", directory.display())]
    Directory {
        /// Directory.
        directory: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file was not created, or did not get its name.
    #[error(transparent)]
    File(#[from] TraceError),
    /// Writing failed.
    #[error("cannot write {}", file.display())]
    Write {
        /// File.
        file: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Encoding failed.
    #[error("cannot write {}", file.display())]
    Parquet {
        /// File.
        file: PathBuf,
        /// Error of the encoder.
        source: ParquetError,
    },
    /// Name whose ending stands for no format.
    #[error("{}: the name must end in .parquet, .csv or .csv.zst", file.display())]
    Form {
        /// File.
        file: PathBuf,
    },
}

/// Writes tables to the directory, which is created: `NAME.parquet` for each. Units of columns and the layout are in the metadata that Arrow
/// libraries read.
///
/// # Errors
/// A directory or file that cannot be written.
pub fn write_tables<'a>(
    directory: &Path,
    tables: impl IntoIterator<Item = (&'a str, RecordBatch)>,
) -> Result<(), TableError> {
    fs::create_dir_all(directory).map_err(|source| TableError::Directory {
        directory: directory.to_owned(),
        source,
    })?;
    for (name, table) in tables {
        write_table(&directory.join(format!("{name}.parquet")), &[table])?;
    }
    Ok(())
}

/// Writes a table, which is in parts of one schema, to a Parquet file.
///
/// # Errors
/// A file that cannot be written.
///
/// # Panics
/// Without any part.
pub fn write_table(path: &Path, parts: &[RecordBatch]) -> Result<(), TableError> {
    let mut file = ParquetFile::create(path, &parts[0])?;
    for part in parts {
        file.write(part)?;
    }
    file.finish()
}

/// Parquet file that is written table by table.
struct ParquetFile {
    file: AtomicFile,
    writer: ArrowWriter<File>,
}

impl ParquetFile {
    fn create(path: &Path, like: &RecordBatch) -> Result<Self, TableError> {
        let file = AtomicFile::create(path)?;
        let level = ZstdLevel::try_new(ZSTD_LEVEL).map_err(failed(path))?;
        // For readers that do not know Arrow's form of the schema.
        let schema = like.schema();
        let pairs = schema.metadata().iter();
        let pairs = pairs.map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_key_value_metadata(Some(pairs.collect()))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let out = file.file().try_clone().map_err(not_written(path))?;
        let writer = ArrowWriter::try_new(out, schema, Some(properties));
        let writer = writer.map_err(failed(path))?;
        Ok(Self { file, writer })
    }

    fn write(&mut self, table: &RecordBatch) -> Result<(), TableError> {
        let written = self.writer.write(table);
        written.map_err(failed(self.file.target()))
    }

    fn finish(self) -> Result<(), TableError> {
        let closed = self.writer.close();
        closed.map_err(failed(self.file.target()))?;
        Ok(self.file.commit()?)
    }
}

/// File of single requests: Parquet, or comma-separated values, by the end of its name. Memory does not grow with the run.
pub struct RequestFile {
    path: PathBuf,
    names: RequestNames,
    form: Form,
}

enum Form {
    Parquet(Box<ParquetFile>),
    Csv(AtomicFile),
    CsvZstd(AtomicFile, Box<Encoder<'static, File>>),
}

impl RequestFile {
    /// Creates the file for a run on this array.
    ///
    /// # Errors
    /// [`TableError::Form`], and a file that cannot be created.
    pub fn create(path: &Path, model: &Model) -> Result<Self, TableError> {
        let names = RequestNames::new(model);
        let empty = names.table(&[]);
        let name = path.to_string_lossy();
        let form = if name.ends_with(".parquet") {
            Form::Parquet(Box::new(ParquetFile::create(path, &empty)?))
        } else if name.ends_with(".csv") {
            Form::Csv(AtomicFile::create(path)?)
        } else if name.ends_with(".csv.zst") {
            let file = AtomicFile::create(path)?;
            let out = file.file().try_clone().map_err(not_written(path))?;
            let encoder = Encoder::new(out, ZSTD_LEVEL).map_err(not_written(path))?;
            Form::CsvZstd(file, Box::new(encoder))
        } else {
            let file = path.to_owned();
            return Err(TableError::Form { file });
        };
        let mut file = Self {
            path: path.to_owned(),
            names,
            form,
        };
        let schema = empty.schema();
        let columns: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        file.text(format!("{}\n", columns.join(",")).as_bytes())?;
        Ok(file)
    }

    /// Adds requests.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&mut self, requests: &[ServedRequest]) -> Result<(), TableError> {
        if let Form::Parquet(file) = &mut self.form {
            return file.write(&self.names.table(requests));
        }
        for part in requests.chunks(GROUP_ROWS) {
            let mut lines = Vec::new();
            self.names.csv(part, &mut lines);
            self.text(&lines)?;
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) -> Result<(), TableError> {
        let written = match &mut self.form {
            Form::Parquet(_) => Ok(()),
            Form::Csv(file) => file.file().write_all(text),
            Form::CsvZstd(_, out) => out.write_all(text),
        };
        written.map_err(not_written(&self.path))
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn finish(self) -> Result<(), TableError> {
        match self.form {
            Form::Parquet(file) => file.finish(),
            Form::Csv(file) => Ok(file.commit()?),
            Form::CsvZstd(file, out) => {
                out.finish().map_err(not_written(&self.path))?;
                Ok(file.commit()?)
            }
        }
    }
}

fn failed(file: &Path) -> impl FnOnce(ParquetError) -> TableError {
    let file = file.to_owned();
    |source| TableError::Parquet { file, source }
}

fn not_written(file: &Path) -> impl FnOnce(io::Error) -> TableError {
    let file = file.to_owned();
    |source| TableError::Write { file, source }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::SchemaRef;
    use model::Op;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use sim::{RequestServer, ScenarioFile};
    use units::TierId;

    use super::*;
    use crate::{Columns, REQUESTS_SCHEMA, SCHEMA, UNIT};

    const SCENARIO: &str = r#"
duration = "10s"
[[tiers]]
name = "fast, small"
preset = "pm953"
[[volumes]]
name = "db"
size = "1 GiB"
tier = "fast, small"
[[clients]]
volume = "db"
habits = { outstanding = 1 }
"#;

    fn model() -> Model {
        let file = ScenarioFile::parse("s.toml", SCENARIO).unwrap();
        file.build(vec![]).unwrap()
    }

    fn requests() -> [ServedRequest; 2] {
        let by = |missed| RequestServer::Tier {
            tier: TierId::from_index(0),
            missed,
        };
        let request = |arrival_ns, op, by| ServedRequest {
            arrival_ns,
            volume: 0,
            op,
            offset: 4096,
            length: 512,
            by,
            latency_ns: 7,
        };
        [
            request(1, Op::Read, by(true)),
            request(2, Op::Write, RequestServer::Cache),
        ]
    }

    /// Row groups, schema and all rows of a file.
    fn read(path: &Path) -> (usize, SchemaRef, Vec<RecordBatch>) {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
        let groups = reader.metadata().num_row_groups();
        let schema = Arc::clone(reader.schema());
        let batches = reader.build().unwrap().collect::<Result<Vec<_>, _>>();
        (groups, schema, batches.unwrap())
    }

    #[test]
    fn tables_preserve_values_units_and_layout() {
        let directory = tempfile::tempdir().unwrap();
        let table = Columns::default()
            .text("name", ["a", "b"].into_iter().map(Some))
            .f64("mean_us", "us", [Some(1.5), None].into_iter())
            .finish("terrace.test/1");
        let to = directory.path().join("new/tables");
        write_tables(&to, [("one", table.clone())]).unwrap();
        let (_, schema, rows) = read(&to.join("one.parquet"));
        assert_eq!((rows.len(), &schema), (1, &table.schema()));
        assert_eq!(rows[0].columns(), table.columns());
        assert_eq!(schema.metadata()[SCHEMA], "terrace.test/1");
        assert_eq!(schema.field(1).metadata()[UNIT], "us");
        let files: Vec<_> = fs::read_dir(&to).unwrap().collect();
        assert_eq!(files.len(), 1, "no unfinished file is left");
    }

    #[test]
    fn requests_are_written_to_each_file_format() {
        let (directory, model) = (tempfile::tempdir().unwrap(), model());
        let path = |name: &str| directory.path().join(name);
        for name in ["r.parquet", "r.csv", "r.csv.zst"] {
            let mut file = RequestFile::create(&path(name), &model).unwrap();
            file.write(&requests()).unwrap();
            assert!(!path(name).exists(), "the file is not complete");
            file.write(&requests()[..1]).unwrap();
            file.finish().unwrap();
        }
        let (_, schema, rows) = read(&path("r.parquet"));
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
        assert_eq!(schema.metadata()[SCHEMA], REQUESTS_SCHEMA);
        let text = fs::read_to_string(path("r.csv")).unwrap();
        assert_eq!(
            text,
            "time_ns,volume,op,offset_bytes,length_bytes,tier,cache,latency_ns\n\
             1,db,read,4096,512,\"fast, small\",miss,7\n\
             2,db,write,4096,512,,hit,7\n\
             1,db,read,4096,512,\"fast, small\",miss,7\n"
        );
        let packed = zstd::decode_all(File::open(path("r.csv.zst")).unwrap()).unwrap();
        assert_eq!(packed, text.as_bytes());
    }

    #[test]
    fn row_groups_bound_the_memory_use() {
        let (directory, model) = (tempfile::tempdir().unwrap(), model());
        let path = directory.path().join("r.parquet");
        let mut file = RequestFile::create(&path, &model).unwrap();
        let many = vec![requests()[0]; 1000];
        for _ in 0..300 {
            file.write(&many).unwrap();
        }
        file.finish().unwrap();
        assert_eq!(read(&path).0, 300_000usize.div_ceil(GROUP_ROWS));
    }

    #[test]
    fn unknown_formats_and_unfinished_files_leave_no_file() {
        let (directory, model) = (tempfile::tempdir().unwrap(), model());
        let create = |name: &str| RequestFile::create(&directory.path().join(name), &model);
        let error = create("r.txt").err().unwrap().to_string();
        assert!(error.ends_with("r.txt: the name must end in .parquet, .csv or .csv.zst"));
        assert!(create("missing/r.csv").is_err());
        drop(create("r.parquet").unwrap());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
