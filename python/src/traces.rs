//! Traces: files of any format, tables of other libraries, and everything that is computed from requests alone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::types::{UInt8Type, UInt32Type};
use arrow_array::{DictionaryArray, StringArray, UInt8Array, UInt32Array};
use model::Op;
use pyo3::prelude::*;
use trace::curves::{self, CurveOptions, Method, Rate};
use trace::{
    CacheKind, Format, LATENCY_UNKNOWN, LoadedTrace, PageReferences, ReadOptions, Record, Request,
    TraceInfo, TraceStream, VOLUMES_MAX,
};
use units::Bytes;

use crate::cache_sim;
use crate::error::{error, of_trace, other};
use crate::import::Imported;
use crate::json;
use crate::table::{Columns, Table};

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
/// Names of the kinds of requests, in the order of `Op`.
pub const OPS: [&str; 4] = ["read", "write", "trim", "flush"];
/// Name of the volume of a table that names none.
const ONLY_VOLUME: &str = "volume";

/// Trace of block I/O in memory, or mapped if its file is in the native format.
#[pyclass(frozen, module = "terrace")]
pub struct Trace {
    pub(crate) loaded: Arc<LoadedTrace>,
    /// The file and the format that the caller named; `None` for a trace from a table.
    file: Option<(PathBuf, Option<Format>)>,
}

fn format_of(name: Option<&str>) -> PyResult<Option<Format>> {
    let parsed = name.map(str::parse).transpose();
    parsed.map_err(|e: String| error(format!("format: {e}")))
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
        let loaded = py
            .detach(|| trace::load(&path, &options))
            .map_err(of_trace)?;
        Ok(Self {
            loaded: Arc::new(loaded),
            file: Some((path, format)),
        })
    }

    /// Makes a trace from a table with the columns time_ns, op, offset_bytes and length_bytes, and optionally volume and latency_ns. Rows are
    /// in the order of time; time counts from the first row.
    #[staticmethod]
    fn from_arrow(table: &Bound<'_, PyAny>) -> PyResult<Self> {
        let table = Imported::new("trace", table)?;
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
        let info = py.detach(|| match &self.file {
            Some((path, format)) => {
                let options = ReadOptions {
                    format: *format,
                    ..ReadOptions::default()
                };
                let mut stream = TraceStream::open(path, &options)?;
                TraceInfo::collect(&mut stream, &mut |_| ())
            }
            None => Ok(TraceInfo::of("table", &self.loaded)),
        });
        let info = serde_json::to_value(info.map_err(of_trace)?).map_err(other)?;
        json::to_python(py, &info)
    }

    /// Writes the trace to a file in the native format.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| trace::save(&self.loaded, &path))
            .map_err(of_trace)
    }

    /// Requests as a table.
    fn to_arrow(&self, py: Python<'_>) -> PyResult<Table> {
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
        let methods: Result<Vec<Method>, String> = methods.iter().map(|m| m.parse()).collect();
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
        let sizes = sizes.map(|s| s.iter().map(|s| s.bytes("sizes")).collect());
        let sizes: Option<Vec<Bytes>> = sizes.transpose()?;
        if sizes.iter().flatten().any(|s| s.0 < page.0) {
            return Err(error(format!(
                "sizes: a cache has at least one page of {page}"
            )));
        }
        let options = CurveOptions {
            methods: &methods,
            rate,
            seed,
        };
        let estimates = py.detach(|| {
            curves::estimates(self.loaded.records(), &pages, &options, &mut |_: String| ())
        });
        let sizes: Vec<u64> = match sizes {
            Some(sizes) => sizes.iter().map(|s| s.0 / page.0).collect(),
            None => curves::default_sizes(&estimates),
        };
        let rows = || {
            let sizes = &sizes;
            estimates
                .iter()
                .flat_map(move |e| sizes.iter().map(move |size| (e, *size)))
        };
        Columns::default()
            .text("method", rows().map(|r| Some(r.0.method.name())))
            .u64(
                "size_bytes",
                "B",
                rows().map(|r| Some(r.1.saturating_mul(page.0))),
            )
            .f64("miss_ratio", "", rows().map(|r| Some(r.0.curve.at(r.1))))
            .f64("sampled_share", "", rows().map(|r| r.0.rate))
            .finish(CURVES_SCHEMA)
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

fn to_table(trace: &LoadedTrace) -> PyResult<Table> {
    let records = || trace.records().iter();
    let volumes: StringArray = trace
        .volumes
        .iter()
        .map(|v| Some(v.name.as_str()))
        .collect();
    let ops = StringArray::from(OPS.to_vec());
    let volume: UInt32Array = records().map(|r| Some(r.volume())).collect();
    let op: UInt8Array = records().map(|r| Some(r.op() as u8)).collect();
    let volume = DictionaryArray::<UInt32Type>::try_new(volume, Arc::new(volumes));
    let op = DictionaryArray::<UInt8Type>::try_new(op, Arc::new(ops));
    let length: UInt32Array = records().map(|r| Some(r.length_bytes)).collect();
    let latency = |i: usize| {
        let known = trace.latencies().map(|l| l[i]);
        known.filter(|ns| *ns != LATENCY_UNKNOWN)
    };
    Columns::default()
        .u64("time_ns", "ns", records().map(|r| Some(r.time_ns)))
        .array("volume", "", Arc::new(volume.map_err(other)?))
        .array("op", "", Arc::new(op.map_err(other)?))
        .u64("offset_bytes", "B", records().map(|r| Some(r.offset_bytes)))
        .array("length_bytes", "B", Arc::new(length))
        .u64("latency_ns", "ns", (0..records().len()).map(latency))
        .finish(REQUESTS_SCHEMA)
}

fn from_table(table: &Imported) -> PyResult<LoadedTrace> {
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
        let name = volumes.as_ref().map_or(ONLY_VOLUME, |v| v[row].as_str());
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
