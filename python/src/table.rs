//! Tables with units: Arrow record batches behind the Arrow PyCapsule interface.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::{DataType, Field, SchemaRef};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyString};
use pyo3_arrow::ffi::{ArrayIterator, to_schema_pycapsule, to_stream_pycapsule};
use tables::{SCHEMA, UNIT};

use crate::error::{error, other};

/// Table of results. It is read by every library that knows the Arrow PyCapsule interface, such as `pyarrow.table(t)`, `polars.DataFrame(t)`
/// and duckdb; without one, by its own methods.
#[pyclass(frozen, module = "terrace")]
pub struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl From<RecordBatch> for Table {
    fn from(batch: RecordBatch) -> Self {
        Self::joined(batch, vec![])
    }
}

impl Table {
    /// Puts batches of one schema below each other.
    pub fn joined(first: RecordBatch, others: Vec<RecordBatch>) -> Self {
        let schema = first.schema();
        let batches = std::iter::once(first).chain(others).collect();
        Self { schema, batches }
    }

    fn list<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyList>> {
        let all = PyList::empty(py);
        for batch in &self.batches {
            all.call_method1("extend", (values(py, batch.column(index))?,))?;
        }
        Ok(all)
    }
}

#[pymethods]
impl Table {
    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        let fields = self.schema.fields().iter();
        fields.map(|f| f.name().as_str()).collect()
    }

    /// Unit of each column that has one.
    #[getter]
    fn units(&self) -> BTreeMap<&str, &str> {
        let fields = self.schema.fields().iter();
        fields
            .filter_map(|f| Some((f.name().as_str(), f.metadata().get(UNIT)?.as_str())))
            .collect()
    }

    /// Name and version of the layout.
    #[getter]
    fn layout(&self) -> Option<&str> {
        self.schema.metadata().get(SCHEMA).map(String::as_str)
    }

    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    fn __len__(&self) -> usize {
        self.num_rows()
    }

    /// Values of a column, as a list.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        match self.schema.index_of(name) {
            Ok(index) => self.list(py, index),
            Err(_) => Err(PyKeyError::new_err(format!(
                "no column \"{name}\"; columns: {}",
                self.column_names().join(", ")
            ))),
        }
    }

    /// Columns as lists, by name.
    fn to_pydict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for (i, name) in self.column_names().into_iter().enumerate() {
            columns.set_item(name, self.list(py, i)?)?;
        }
        Ok(columns)
    }

    /// Writes the table to a Parquet file, with units and layout in its metadata.
    pub fn to_parquet(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| tables::write_table(&path, &self.batches))
            .map_err(other)
    }

    /// Rows as dicts.
    pub fn to_pylist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        // One object per name, with its hash, for all rows.
        let names = self.column_names().into_iter();
        let names: Vec<_> = names.map(|n| PyString::intern(py, n)).collect();
        let columns: PyResult<Vec<_>> = (0..names.len()).map(|i| self.list(py, i)).collect();
        let columns = columns?;
        for i in 0..self.num_rows() {
            let row = PyDict::new(py);
            for (name, column) in names.iter().zip(&columns) {
                row.set_item(name, column.get_item(i)?)?;
            }
            rows.append(row)?;
        }
        Ok(rows)
    }

    /// Arrow PyCapsule interface: the schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.schema.as_ref())?)
    }

    /// Arrow PyCapsule interface: the batches.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let fields = self.schema.fields().clone();
        let field = Field::new_struct("", fields, false);
        let field = field.with_metadata(self.schema.metadata().clone());
        let arrays = self.batches.clone().into_iter();
        let arrays = arrays.map(|b| Ok(Arc::new(StructArray::from(b)) as ArrayRef));
        let reader = Box::new(ArrayIterator::new(arrays, Arc::new(field)));
        Ok(to_stream_pycapsule(py, reader, requested_schema)?)
    }

    fn __repr__(&self) -> String {
        let columns = self.column_names().join(", ");
        format!("<terrace.Table of {} rows: {columns}>", self.num_rows())
    }
}

/// Returns the values of a column as Python objects.
fn values<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyList>> {
    match array.data_type() {
        DataType::Utf8 => PyList::new(py, array.as_string::<i32>().iter().collect::<Vec<_>>()),
        DataType::Boolean => PyList::new(py, array.as_boolean().iter().collect::<Vec<_>>()),
        DataType::Float64 => PyList::new(
            py,
            array
                .as_primitive::<Float64Type>()
                .iter()
                .collect::<Vec<_>>(),
        ),
        DataType::UInt64 => PyList::new(
            py,
            array
                .as_primitive::<UInt64Type>()
                .iter()
                .collect::<Vec<_>>(),
        ),
        DataType::UInt32 => PyList::new(
            py,
            array
                .as_primitive::<UInt32Type>()
                .iter()
                .collect::<Vec<_>>(),
        ),
        DataType::Int64 => PyList::new(
            py,
            array.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(),
        ),
        DataType::Dictionary(_, of) => {
            let plain = arrow_cast::cast(array, of).map_err(other)?;
            values(py, &plain)
        }
        unknown => Err(error(format!("no Python values for a column of {unknown}"))),
    }
}
