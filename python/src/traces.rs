//! Traces: files of any format, tables of other libraries, and everything that is computed from requests alone.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray, UInt32Array};
use model::Op;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use tables::{Columns, OPS};
use trace::curves::{self, CurveOptions, Estimate, Method, Rate};
use trace::{
    CacheKind, Format, LATENCY_UNKNOWN, LoadedTrace, NAMELESS_VOLUME, OptionError, PageReferences,
    ReadOptions, Record, Request, TraceInfo, TraceStream, VOLUMES_MAX,
};
use units::Bytes;

use crate::cache_sim;
use crate::error::{ReadException, error, of_trace, other};
use crate::import::ForeignTable;
use crate::interrupt::{interruptible, look};
use crate::json;
use crate::table::Table;

/// Layout of the table of requests.
const REQUESTS_SCHEMA: &str = "terrace.trace.requests/1";
/// Layout of the table of miss-ratio curves.
const CURVES_SCHEMA: &str = "terrace.trace.curves/1";
/// Columns that make a trace.
const COLUMNS: [&str; 6] = [
    "time_ns",
    "volume",
    "op",
    "offset_bytes",
    "length_bytes",
    "latency_ns",
];

/// Trace of block I/O in memory, or mapped if its file is in the native format.
#[pyclass(frozen, module = "terrace")]
pub struct Trace {
    pub(crate) loaded: Arc<LoadedTrace>,
    /// The file and the format that the caller named; `None` for a trace from a table.
    file: Option<(PathBuf, Option<Format>)>,
}

/// Returns the format of this name.
pub fn format_of(name: Option<&str>) -> PyResult<Option<Format>> {
    let parsed = name.map(str::parse).transpose();
    parsed.map_err(|e: OptionError| error(format!("format: {e}")))
}

/// Size from text such as "4 KiB", or a number of bytes.
#[derive(FromPyObject)]
pub enum Size {
    /// Number of bytes.
    Bytes(u64),
    /// With its unit.
    Text(String),
}

impl Size {
    /// Returns the bytes. `what` names the argument in errors.
    pub fn bytes(&self, what: &str) -> PyResult<Bytes> {
        match self {
            Size::Bytes(n) => Ok(Bytes(*n)),
            Size::Text(text) => {
                Bytes::from_str(text).map_err(|e| error(format!("{what}: \"{text}\": {e}")))
            }
        }
    }
}

#[pymethods]
impl Trace {
    /// Opens a trace file of any known format, which is detected unless it is named, or takes a table as `from_arrow` does.
    #[staticmethod]
    #[pyo3(signature = (source, format = None))]
    fn open(py: Python<'_>, source: &Bound<'_, PyAny>, format: Option<&str>) -> PyResult<Self> {
        let format = format_of(format)?;
        if source.hasattr("__arrow_c_stream__")? {
            if format.is_some() {
                return Err(error("format: a table has none"));
            }
            return Self::from_arrow(source);
        }
        let path: PathBuf = source.extract()?;
        let options = ReadOptions {
            format,
            ..ReadOptions::default()
        };
        let file = Some((path.clone(), format));
        let loaded = interruptible(py, move |_| trace::load(&path, &options))?;
        Ok(Self {
            loaded: Arc::new(loaded.map_err(of_trace)?),
            file,
        })
    }

    /// Makes a trace from a table with the columns time_ns, op, offset_bytes and length_bytes, and optionally volume and latency_ns. Rows are
    /// in the order of time; time counts from the first row.
    #[staticmethod]
    fn from_arrow(table: &Bound<'_, PyAny>) -> PyResult<Self> {
        let table = ForeignTable::new("trace", table)?;
        table.check_names(&COLUMNS)?;
        let loaded = from_table(&table)?;
        Ok(Self {
            loaded: Arc::new(loaded),
            file: None,
        })
    }

    /// Format of the file.
    #[getter]
    fn format(&self) -> String {
        self.loaded.format.to_string()
    }

    /// Reason why the format is only assumed; None if it is certain.
    #[getter]
    fn format_assumed(&self) -> Option<&str> {
        self.loaded.format_assumed.as_deref()
    }

    /// Names of the volumes.
    #[getter]
    fn volumes(&self) -> Vec<&str> {
        self.loaded
            .volumes
            .iter()
            .map(|v| v.name.as_str())
            .collect()
    }

    /// Time of the last request in seconds since the start.
    #[getter]
    fn span_s(&self) -> f64 {
        self.loaded.span_ns as f64 / 1e9
    }

    /// Hash of the requests; the same for the same requests in any format.
    #[getter]
    fn content_hash(&self) -> &str {
        &self.loaded.content_hash
    }

    fn __len__(&self) -> usize {
        self.loaded.records().len()
    }

    fn __repr__(&self) -> String {
        let (requests, volumes) = (self.loaded.records().len(), self.loaded.volumes.len());
        format!("<terrace.Trace of {requests} requests to {volumes} volumes>")
    }

    /// Statistics, as `terrace trace info -o json` gives them.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (file, loaded) = (self.file.clone(), Arc::clone(&self.loaded));
        let info = interruptible(py, move |abandoned| match file {
            Some((path, format)) => {
                let options = ReadOptions {
                    format,
                    ..ReadOptions::default()
                };
                let mut stream = TraceStream::open(&path, &options)?;
                TraceInfo::collect(&mut stream, &mut |_| abandoned.check())
            }
            None => Ok(TraceInfo::of("table", &loaded)),
        });
        let info = serde_json::to_value(info?.map_err(of_trace)?).map_err(other)?;
        json::to_python(py, &info)
    }

    /// Writes the trace to a file in the native format.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| trace::save(&self.loaded, &path, &mut |_| look().map_err(ReadException)))
            .map_err(|raised| raised.0)
    }

    /// Requests as a table.
    fn to_arrow(&self, py: Python<'_>) -> Table {
        py.detach(|| to_table(&self.loaded))
    }

    /// Miss-ratio curves of LRU caches: a row per method and size.
    #[pyo3(signature = (methods = vec!["exact".into()], sizes = None, page = Size::Bytes(4096), rate = None, seed = 1, reads_only_cache = false))]
    #[allow(clippy::too_many_arguments)] // keyword arguments in Python
    fn mrc(
        &self,
        py: Python<'_>,
        methods: Vec<String>,
        sizes: Option<Vec<Size>>,
        page: Size,
        rate: Option<f64>,
        seed: u64,
        reads_only_cache: bool,
    ) -> PyResult<Table> {
        let methods: Result<Vec<Method>, _> = methods.iter().map(|m| m.parse()).collect();
        let methods = methods.map_err(|e| error(format!("methods: {e}")))?;
        let page = page.bytes("page")?;
        let cache = match reads_only_cache {
            true => CacheKind::ReadsOnly,
            false => CacheKind::ReadWrite,
        };
        let pages = PageReferences::new(page, cache)
            .ok_or_else(|| error("page: a page is a power of two from 512 B to 1 GiB"))?;
        if reads_only_cache && methods.contains(&Method::Wss) {
            return Err(error(
                "reads_only_cache: the method wss cannot model it, because working sets ignore the pages that writes drop: leave wss out",
            ));
        }
        let rate = match rate {
            None => Rate::Auto,
            Some(share) if share > 0.0 && share <= 1.0 => Rate::Share(share),
            Some(share) => {
                return Err(error(format!(
                    "rate: {share} is not a share above 0 and at most 1"
                )));
            }
        };
        let loaded = Arc::clone(&self.loaded);
        let (estimates, notes) = interruptible(py, move |_| {
            let options = CurveOptions {
                methods: &methods,
                rate,
                seed,
            };
            let mut notes = Vec::new();
            let note = &mut |words: String| notes.push(words);
            let records = loaded.records();
            let estimates = curves::estimates(&records, &pages, &options, note);
            estimates.map(|estimates| (estimates, notes))
        })?
        .map_err(of_trace)?;
        for note in notes {
            let words = CString::new(note.trim_start_matches("warning: "))?;
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &words, 1)?;
        }
        curves_table(&estimates, page, sizes)
    }

    /// Simulates caches in front of the trace: a row per policy and size. A policy is the name of a native one or a class in Python.
    #[pyo3(signature = (policies, sizes, page = Size::Bytes(4096)))]
    fn cache(
        &self,
        py: Python<'_>,
        policies: Vec<Bound<'_, PyAny>>,
        sizes: Vec<Size>,
        page: Size,
    ) -> PyResult<Table> {
        cache_sim::simulate(py, &self.loaded, &policies, &sizes, page.bytes("page")?)
    }
}

/// Returns a row per curve and size of the cache.
pub fn curves_table(
    estimates: &[Estimate],
    page: Bytes,
    sizes: Option<Vec<Size>>,
) -> PyResult<Table> {
    let sizes = sizes.map(|s| s.iter().map(|s| s.bytes("sizes")).collect());
    let sizes: Option<Vec<Bytes>> = sizes.transpose()?;
    if sizes.iter().flatten().any(|s| s.0 < page.0) {
        return Err(error(format!(
            "sizes: a cache has at least one page of {page}"
        )));
    }
    let sizes: Vec<u64> = match sizes {
        Some(sizes) => sizes.iter().map(|s| s.0 / page.0).collect(),
        None => curves::default_sizes(estimates),
    };
    let of_curve = |e| sizes.iter().map(move |size| (e, *size));
    let rows: Vec<(&Estimate, u64)> = estimates.iter().flat_map(of_curve).collect();
    let rows = || rows.iter();
    let table = Columns::default()
        .text("method", rows().map(|r| Some(r.0.method.name())))
        .u64(
            "size_bytes",
            "B",
            rows().map(|r| Some(r.1.saturating_mul(page.0))),
        )
        .f64("miss_ratio", "", rows().map(|r| Some(r.0.curve.at(r.1))))
        .f64("sampled_share", "", rows().map(|r| r.0.rate))
        .finish(CURVES_SCHEMA);
    Ok(table.into())
}

fn to_table(trace: &LoadedTrace) -> Table {
    let records = || trace.records().iter();
    let volumes = trace.volumes.iter().map(|v| Some(v.name.as_str()));
    let volumes: ArrayRef = Arc::new(volumes.collect::<StringArray>());
    let ops: ArrayRef = Arc::new(StringArray::from(OPS.to_vec()));
    let length: UInt32Array = records().map(|r| Some(r.length_bytes)).collect();
    let latency = |i: usize| {
        let known = trace.latencies().map(|l| l[i]);
        known.filter(|ns| *ns != LATENCY_UNKNOWN)
    };
    Columns::default()
        .u64("time_ns", "ns", records().map(|r| Some(r.time_ns)))
        .names("volume", &volumes, records().map(|r| Some(r.volume())))
        .names("op", &ops, records().map(|r| Some(r.op() as u32)))
        .u64("offset_bytes", "B", records().map(|r| Some(r.offset_bytes)))
        .array("length_bytes", "B", Arc::new(length))
        .u64("latency_ns", "ns", (0..records().len()).map(latency))
        .finish(REQUESTS_SCHEMA)
        .into()
}

fn from_table(table: &ForeignTable) -> PyResult<LoadedTrace> {
    let times = table.required("time_ns", table.u64("time_ns")?)?;
    let ops = table.required("op", table.text("op")?)?;
    let offsets = table.required("offset_bytes", table.u64("offset_bytes")?)?;
    let lengths = table.required("length_bytes", table.u64("length_bytes")?)?;
    let volumes = match table.text("volume")? {
        Some(names) => Some(table.required("volume", Some(names))?),
        None => None,
    };
    let latencies = table.u64("latency_ns")?;
    let first = times.first().copied().unwrap_or(0);
    let mut names: Vec<&str> = Vec::new();
    let mut by_name: BTreeMap<&str, u32> = BTreeMap::new();
    let mut records = Vec::with_capacity(times.len());
    for (row, time) in times.iter().enumerate() {
        let wrong = |why: String| error(format!("trace: row {row}: {why}"));
        let time_ns = time
            .checked_sub(first)
            .ok_or_else(|| wrong("its time is before the first row".into()))?;
        let op = OPS.iter().position(|o| *o == ops[row]);
        let op = op.ok_or_else(|| {
            wrong(format!(
                "unknown op \"{}\"; known: {}",
                ops[row],
                OPS.join(", ")
            ))
        })?;
        let name = volumes
            .as_ref()
            .map_or(NAMELESS_VOLUME, |v| v[row].as_str());
        let volume = match by_name.get(name) {
            Some(volume) => *volume,
            None if names.len() >= VOLUMES_MAX => {
                return Err(wrong(format!("more than {VOLUMES_MAX} volumes")));
            }
            None => {
                let volume = names.len() as u32;
                by_name.insert(name, volume);
                names.push(name);
                volume
            }
        };
        let length_bytes = u32::try_from(lengths[row])
            .map_err(|_| wrong(format!("length_bytes {} is too large", lengths[row])))?;
        records.push(Record::new(Request {
            time_ns,
            volume,
            op: Op::ALL[op],
            offset_bytes: offsets[row],
            length_bytes,
        }));
    }
    let latencies = latencies.map(|l| {
        l.into_iter()
            .map(|ns| ns.unwrap_or(LATENCY_UNKNOWN))
            .collect()
    });
    LoadedTrace::from_records(records, latencies, &names).map_err(of_trace)
}
