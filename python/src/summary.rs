//! Summaries of parts of trace sets, which merge: for sets larger than one machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use trace::curves::{Estimate, Method};
use trace::{
    Format, LoadedTrace, MrcSummary, ReadOptions, SummaryBuilder, SummaryError, SummaryOptions,
    TraceStream,
};

use crate::error::{ReadException, error, other};
use crate::interrupt::look;
use crate::table::Table;
use crate::traces::{Size, Trace, curves_table, format_of};

/// Summary of a part of a trace set.
#[pyclass(frozen, name = "MrcSummary", module = "terrace")]
pub struct Summary {
    summary: MrcSummary,
    rate: f64,
}

/// Requests of a summary: a trace in memory, or a file, which is read as a stream.
#[derive(FromPyObject)]
pub enum Part<'py> {
    /// Trace.
    Trace(Bound<'py, Trace>),
    /// File.
    Path(PathBuf),
}

/// Summarizes a part of a trace set for `MrcSummary.merge`. `rate` is the share of the pages that is sampled.
/// `volume` names the volume of a part whose format does not: without it, such parts have the same volume.
#[pyfunction]
#[pyo3(signature = (part, page = Size::Bytes(4096), rate = 0.001, seed = 1, format = None, volume = None))]
pub fn mrc_summary(
    py: Python<'_>,
    part: Part<'_>,
    page: Size,
    rate: f64,
    seed: u64,
    format: Option<&str>,
    volume: Option<&str>,
) -> PyResult<Summary> {
    let page = page.bytes("page")?;
    let options = SummaryOptions {
        page,
        rate,
        seed,
        volume,
    };
    let summary = match part {
        Part::Trace(trace) => {
            let loaded = Arc::clone(&trace.get().loaded);
            py.detach(|| of_loaded(&loaded, options)).map_err(other)?
        }
        Part::Path(path) => {
            let format = format_of(format)?;
            py.detach(|| of_file(&path, format, options))
                .map_err(|raised| raised.0)?
        }
    };
    Ok(Summary { summary, rate })
}

fn of_loaded(trace: &LoadedTrace, options: SummaryOptions<'_>) -> Result<MrcSummary, SummaryError> {
    let mut builder = SummaryBuilder::new(options)?;
    for record in trace.records() {
        builder.push(record, &trace.volumes[record.volume() as usize].name)?;
    }
    Ok(builder.finish())
}

fn of_file(
    path: &Path,
    format: Option<Format>,
    options: SummaryOptions<'_>,
) -> Result<MrcSummary, ReadException> {
    let reading = ReadOptions {
        format,
        ..ReadOptions::default()
    };
    let mut stream = TraceStream::open(path, &reading)?;
    if let Some(why) = stream.format_assumed() {
        let remedy = match stream.format() {
            Format::Csv => "then convert it: terrace trace convert".into(),
            format => format!("name it: format=\"{format}\""),
        };
        return Err(ReadException(error(format!(
            "{}: {why}; {remedy}",
            stream.file()
        ))));
    }
    MrcSummary::read(&mut stream, options, &mut |_| look().map_err(ReadException))
}

#[pymethods]
impl Summary {
    /// Number of reads and writes.
    #[getter]
    fn requests(&self) -> u64 {
        self.summary.requests()
    }

    /// Bytes of reads and writes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.summary.bytes()
    }

    /// Number of references to pages.
    #[getter]
    fn references(&self) -> u64 {
        self.summary.references()
    }

    /// Number of distinct pages, with a standard error of 0.8 % (HyperLogLog).
    #[getter]
    fn distinct_pages(&self) -> f64 {
        self.summary.distinct_pages()
    }

    /// Returns the summary of this part and the one that follows it in time.
    fn merge(&self, py: Python<'_>, next: &Bound<'_, Self>) -> PyResult<Self> {
        let next = &next.get().summary;
        let mut summary = self.summary.clone();
        py.detach(|| summary.merge(next)).map_err(other)?;
        Ok(Self {
            summary,
            rate: self.rate,
        })
    }

    /// Miss-ratio curve of one LRU cache in front of all volumes (SHARDS at a fixed rate): a row per size.
    #[pyo3(signature = (sizes = None))]
    fn mrc(&self, sizes: Option<Vec<Size>>) -> PyResult<Table> {
        let estimate = Estimate {
            method: Method::Shards,
            curve: self.summary.curve(),
            raw: None,
            rate: Some(self.rate),
        };
        curves_table(&[estimate], self.summary.page(), sizes)
    }

    /// Form of the summary for other processes.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let of = slf.get();
        let bytes = serde_json::to_vec(&(of.rate, &of.summary)).map_err(other)?;
        let make = slf.get_type().getattr("_of_bytes")?;
        Ok((make, PyTuple::new(py, [PyBytes::new(py, &bytes)])?))
    }

    /// Reads the form of `__reduce__`.
    #[staticmethod]
    fn _of_bytes(bytes: &[u8]) -> PyResult<Self> {
        let (rate, summary) = serde_json::from_slice(bytes).map_err(other)?;
        Ok(Self { summary, rate })
    }

    fn __repr__(&self) -> String {
        format!(
            "<terrace.MrcSummary of {} requests to {:.0} pages>",
            self.requests(),
            self.distinct_pages()
        )
    }
}
