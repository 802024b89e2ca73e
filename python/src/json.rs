//! Plain data between Python and JSON values.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

use crate::error::error;

/// Returns the Python object of a JSON value.
pub fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?
        .call_method1("loads", (value.to_string(),))
}

/// Returns the JSON value of plain data: dict, list, str, numbers, booleans and None. `what` names it in errors.
pub fn from_python(what: &str, object: &Bound<'_, PyAny>) -> PyResult<Value> {
    let py = object.py();
    let options = PyDict::new(py);
    options.set_item("allow_nan", false)?;
    let text: String = py
        .import("json")?
        .call_method("dumps", (object,), Some(&options))
        .map_err(|e| {
            error(format!(
                "{what} is not plain data (dict, list, str, numbers): {}",
                e.value(py)
            ))
        })?
        .extract()?;
    serde_json::from_str(&text).map_err(|e| error(format!("{what}: {e}")))
}
