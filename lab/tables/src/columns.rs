//! Columns of a table with their units.

use std::sync::Arc;

use arrow_array::types::UInt32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, RecordBatch, StringArray, UInt32Array,
    UInt64Array,
};
use arrow_schema::{Field, Schema};

/// Key of a column's unit in its metadata.
pub const UNIT: &str = "unit";
/// Key of the name and version of a table's layout in its metadata.
pub const SCHEMA: &str = "terrace.schema";

/// Columns of a table that is being made.
#[derive(Default)]
pub struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl Columns {
    /// Adds a column of any type. An empty unit is left out.
    pub fn array(mut self, name: &str, unit: &str, array: ArrayRef) -> Self {
        let field = Field::new(name, array.data_type().clone(), true);
        let unit = (!unit.is_empty()).then(|| (UNIT.to_owned(), unit.to_owned()));
        self.fields
            .push(field.with_metadata(unit.into_iter().collect()));
        self.arrays.push(array);
        self
    }

    /// Adds a column of text.
    pub fn text<S: AsRef<str>>(self, name: &str, values: impl Iterator<Item = Option<S>>) -> Self {
        self.array(name, "", Arc::new(values.collect::<StringArray>()))
    }

    /// Adds a column of text from a few names, each value by the number of its name.
    ///
    /// # Panics
    /// If a number has no name.
    pub fn names(
        self,
        name: &str,
        names: &ArrayRef,
        values: impl Iterator<Item = Option<u32>>,
    ) -> Self {
        let keys: UInt32Array = values.collect();
        let values = DictionaryArray::<UInt32Type>::try_new(keys, Arc::clone(names));
        self.array(
            name,
            "",
            Arc::new(values.expect("every number has its name")),
        )
    }

    /// Adds a column of decimal numbers.
    pub fn f64(self, name: &str, unit: &str, values: impl Iterator<Item = Option<f64>>) -> Self {
        self.array(name, unit, Arc::new(values.collect::<Float64Array>()))
    }

    /// Adds a column of whole numbers.
    pub fn u64(self, name: &str, unit: &str, values: impl Iterator<Item = Option<u64>>) -> Self {
        self.array(name, unit, Arc::new(values.collect::<UInt64Array>()))
    }

    /// Adds a column of booleans.
    pub fn flag(self, name: &str, values: impl Iterator<Item = bool>) -> Self {
        let values: BooleanArray = values.map(Some).collect();
        self.array(name, "", Arc::new(values))
    }

    /// Returns the table. `schema` is the name and version of its layout.
    ///
    /// # Panics
    /// If the columns have different lengths.
    pub fn finish(self, schema: &str) -> RecordBatch {
        let metadata = std::iter::once((SCHEMA.to_owned(), schema.to_owned())).collect();
        let schema = Arc::new(Schema::new_with_metadata(self.fields, metadata));
        RecordBatch::try_new(schema, self.arrays).expect("all columns have the rows of the table")
    }
}
