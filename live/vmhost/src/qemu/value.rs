//! Fields of JSON values with their paths, for error messages.

use serde_json::Value;

use crate::HostError;

/// Value with its path.
#[derive(Clone)]
pub(crate) struct PathValue<'a> {
    value: &'a Value,
    what: &'static str,
    path: String,
}

impl<'a> PathValue<'a> {
    pub(crate) fn root(what: &'static str, value: &'a Value) -> Self {
        let path = "return".into();
        Self { value, what, path }
    }

    /// Returns the content of an answer of Proxmox VE.
    pub(crate) fn data(what: &'static str, value: &'a Value) -> Self {
        let path = "data".into();
        Self { value, what, path }
    }

    pub(crate) fn fault(&self, why: &str) -> HostError {
        HostError::Field {
            what: self.what,
            field: self.path.clone(),
            why: why.into(),
        }
    }

    /// Returns a field; null if it is missing.
    pub(crate) fn field(&self, name: &str) -> PathValue<'a> {
        const NULL: &Value = &Value::Null;
        PathValue {
            value: self.value.get(name).unwrap_or(NULL),
            what: self.what,
            path: format!("{}.{name}", self.path),
        }
    }

    pub(crate) fn is_there(&self) -> bool {
        !self.value.is_null()
    }

    pub(crate) fn items(&self) -> Result<Vec<PathValue<'a>>, HostError> {
        let items = self.value.as_array();
        let items = items.ok_or_else(|| self.fault("not a list"))?;
        let item = |(i, value)| PathValue {
            value,
            what: self.what,
            path: format!("{}[{i}]", self.path),
        };
        Ok(items.iter().enumerate().map(item).collect())
    }

    pub(crate) fn text(&self) -> Result<&'a str, HostError> {
        self.value
            .as_str()
            .ok_or_else(|| self.fault("not a string"))
    }

    pub(crate) fn number(&self) -> Result<u64, HostError> {
        let number = self.value.as_u64();
        number.ok_or_else(|| self.fault("not a number"))
    }

    pub(crate) fn flag(&self) -> Result<bool, HostError> {
        let flag = self.value.as_bool();
        flag.ok_or_else(|| self.fault("not a boolean"))
    }

    /// Reads a number that may be written as text, because Perl does not distinguish them.
    pub(crate) fn loose_number(&self) -> Result<u64, HostError> {
        let text = self.value.as_str().and_then(|t| t.parse().ok());
        let number = self.value.as_u64().or(text);
        // Some storages report sizes as fractions.
        let fraction = || self.value.as_f64().filter(|f| *f >= 0.0).map(|f| f as u64);
        number
            .or_else(fraction)
            .ok_or_else(|| self.fault("not a number"))
    }

    /// Reads a boolean, which Perl writes as 0 or 1; false if it is missing.
    pub(crate) fn loose_flag(&self) -> Result<bool, HostError> {
        match self.value {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            _ => Ok(self.loose_number()? != 0),
        }
    }

    /// Returns the fields of an object.
    pub(crate) fn fields(&self) -> Result<Vec<(&'a str, PathValue<'a>)>, HostError> {
        let fields = self.value.as_object();
        let fields = fields.ok_or_else(|| self.fault("not an object"))?;
        Ok(fields
            .keys()
            .map(|name| (name.as_str(), self.field(name)))
            .collect())
    }

    /// Reads an optional field; `None` if it is missing.
    pub(crate) fn maybe<T>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, HostError>,
    ) -> Result<Option<T>, HostError> {
        self.is_there().then(|| read(self)).transpose()
    }
}
