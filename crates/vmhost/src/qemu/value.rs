//! Fields of JSON, with their place in what is said of those that are missing.

use serde_json::Value;

use crate::HostError;

/// A value, and where it is.
#[derive(Clone)]
pub(crate) struct At<'a> {
    value: &'a Value,
    what: &'static str,
    path: String,
}

impl<'a> At<'a> {
    pub(crate) fn root(what: &'static str, value: &'a Value) -> Self {
        let path = "return".into();
        Self { value, what, path }
    }

    /// Content of an answer of Proxmox VE.
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

    /// A field; null where there is none.
    pub(crate) fn field(&self, name: &str) -> At<'a> {
        const NULL: &Value = &Value::Null;
        At {
            value: self.value.get(name).unwrap_or(NULL),
            what: self.what,
            path: format!("{}.{name}", self.path),
        }
    }

    pub(crate) fn is_there(&self) -> bool {
        !self.value.is_null()
    }

    pub(crate) fn items(&self) -> Result<Vec<At<'a>>, HostError> {
        let items = self.value.as_array();
        let items = items.ok_or_else(|| self.fault("not a list"))?;
        let item = |(i, value)| At {
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

    /// A number that may be written as text: Perl does not tell them apart.
    pub(crate) fn loose_number(&self) -> Result<u64, HostError> {
        let text = self.value.as_str().and_then(|t| t.parse().ok());
        let number = self.value.as_u64().or(text);
        // Sizes of some storages are fractions.
        let fraction = || self.value.as_f64().filter(|f| *f >= 0.0).map(|f| f as u64);
        number
            .or_else(fraction)
            .ok_or_else(|| self.fault("not a number"))
    }

    /// A boolean, which Perl writes as 0 or 1; false where it is not there.
    pub(crate) fn loose_flag(&self) -> Result<bool, HostError> {
        match self.value {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            _ => Ok(self.loose_number()? != 0),
        }
    }

    /// Fields of an object.
    pub(crate) fn fields(&self) -> Result<Vec<(&'a str, At<'a>)>, HostError> {
        let fields = self.value.as_object();
        let fields = fields.ok_or_else(|| self.fault("not an object"))?;
        Ok(fields
            .keys()
            .map(|name| (name.as_str(), self.field(name)))
            .collect())
    }

    /// What it is read as; none where it is not there.
    pub(crate) fn maybe<T>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, HostError>,
    ) -> Result<Option<T>, HostError> {
        self.is_there().then(|| read(self)).transpose()
    }
}
