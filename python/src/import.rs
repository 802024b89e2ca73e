//! Tables of other libraries: any object with the Arrow PyCapsule interface, column by column.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef, TimeUnit};
use pyo3::prelude::*;
use pyo3_arrow::input::AnyRecordBatch;

use crate::error::error;

/// Beginning of the names of columns that pandas makes of a row index without a name.
const INDEX_LEVEL: &str = "__index_level_";
/// Whole numbers below it have a form of their own as f64.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Table of another library. `what` names it in errors.
pub struct ForeignTable {
    what: &'static str,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl ForeignTable {
    /// Takes over the batches, without copying them.
    pub fn new(what: &'static str, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let wrong = |e: PyErr| error(format!("{what} is not an Arrow table: {e}"));
        let any: AnyRecordBatch = object.extract().map_err(wrong)?;
        let (batches, schema) = any.into_table()?.into_inner();
        Ok(Self {
            what,
            schema,
            batches,
        })
    }

    /// Refuses columns that are not `known`, except the row index of pandas.
    pub fn check_names(&self, known: &[&str]) -> PyResult<()> {
        for field in self.schema.fields() {
            if !known.contains(&field.name().as_str()) && !field.name().starts_with(INDEX_LEVEL) {
                return Err(error(format!(
                    "{}: unknown column \"{}\"; known: {}",
                    self.what,
                    field.name(),
                    known.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Values of a column of text; `None` without the column.
    pub fn text(&self, name: &str) -> PyResult<Option<Vec<Option<String>>>> {
        self.column(name, &DataType::Utf8, |array, to| {
            let values = array.as_string::<i32>().iter();
            to.extend(values.map(|v| v.map(str::to_owned)));
        })
    }

    /// Values of a column of whole numbers, or of times and durations in nanoseconds; `None` without the column.
    pub fn u64(&self, name: &str) -> PyResult<Option<Vec<Option<u64>>>> {
        self.check_whole(name)?;
        self.column(name, &DataType::UInt64, |array, to| {
            to.extend(array.as_primitive::<UInt64Type>().iter());
        })
    }

    /// Refuses values of a column of decimal numbers that are not whole, or that may have been rounded.
    fn check_whole(&self, name: &str) -> PyResult<()> {
        let field = self.schema.field_with_name(name);
        if !field.is_ok_and(|f| f.data_type().is_floating()) {
            return Ok(());
        }
        for (row, value) in self.f64(name)?.iter().flatten().enumerate() {
            let whole = |v: f64| v.fract() == 0.0 && (0.0..WHOLE_MAX).contains(&v);
            if let Some(value) = value.filter(|v| !whole(*v)) {
                return Err(error(format!(
                    "{}: row {row}: {value} in column \"{name}\" is not a whole number from 0 to 2^53",
                    self.what
                )));
            }
        }
        Ok(())
    }

    /// Values of a column of decimal numbers; `None` without the column.
    pub fn f64(&self, name: &str) -> PyResult<Option<Vec<Option<f64>>>> {
        self.column(name, &DataType::Float64, |array, to| {
            to.extend(array.as_primitive::<Float64Type>().iter());
        })
    }

    /// Values that must all be there.
    pub fn required<T>(&self, name: &str, values: Option<Vec<Option<T>>>) -> PyResult<Vec<T>> {
        let what = self.what;
        let values = values.ok_or_else(|| {
            let there: Vec<&str> = self
                .schema
                .fields()
                .iter()
                .map(|f| f.name().as_str())
                .collect();
            let there = there.join(", ");
            error(format!(
                "{what}: missing column \"{name}\"; it has: {there}"
            ))
        })?;
        let values = values.into_iter().enumerate();
        let value = |(row, value): (usize, Option<T>)| {
            value.ok_or_else(|| error(format!("{what}: row {row}: no value in column \"{name}\"")))
        };
        values.map(value).collect()
    }

    fn column<T>(
        &self,
        name: &str,
        to: &DataType,
        take: impl Fn(&ArrayRef, &mut Vec<Option<T>>),
    ) -> PyResult<Option<Vec<Option<T>>>> {
        let Ok(index) = self.schema.index_of(name) else {
            return Ok(None);
        };
        let mut values = Vec::with_capacity(self.rows());
        for batch in &self.batches {
            let array = converted(batch.column(index), to)
                .map_err(|e| error(format!("{}: column \"{name}\": {e}", self.what)))?;
            take(&array, &mut values);
        }
        Ok(Some(values))
    }
}

/// Returns the array in another type. A value that the type cannot hold is an error.
fn converted(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, arrow_schema::ArrowError> {
    let options = arrow_cast::CastOptions {
        safe: false,
        ..Default::default()
    };
    let cast = |array: &ArrayRef, to: &DataType| arrow_cast::cast_with_options(array, to, &options);
    let nanoseconds = match array.data_type() {
        DataType::Timestamp(_, zone) => {
            Some(DataType::Timestamp(TimeUnit::Nanosecond, zone.clone()))
        }
        DataType::Duration(_) => Some(DataType::Duration(TimeUnit::Nanosecond)),
        _ => None,
    };
    let Some(nanoseconds) = nanoseconds else {
        return cast(array, to);
    };
    let array = cast(array, &nanoseconds)?;
    let array = cast(&array, &DataType::Int64)?;
    cast(&array, to)
}
