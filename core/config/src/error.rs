//! Errors in values, independent of their place in a file.

use thiserror::Error;

/// Invalid value. [`Text::fault`](crate::Text::fault) adds the place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ValueError {
    /// Nothing has this name.
    #[error("unknown name \"{name}\"{suggestion}")]
    UnknownName {
        name: String,
        /// Similar name, or all known names.
        suggestion: String,
    },
    /// The text of an axis has another form.
    #[error("\"{0}\" does not have the form KEY=VALUE,VALUE")]
    AxisForm(String),
    /// A value of an axis is empty.
    #[error("{key}: value {number} of the list is empty")]
    EmptyValue {
        key: String,
        /// Position in the list, from 1.
        number: usize,
    },
    /// An axis has no values.
    #[error("{0}: at least one value is needed")]
    NoValue(String),
    /// An axis has the same value twice.
    #[error("{key}: {value} is listed twice")]
    Repeated { key: String, value: String },
    /// The text of a time range has another form.
    #[error(
        "invalid hours {0:?}: write \"22:00-06:00\", \"Sat 00:00-24:00\" or \"Mon-Fri 20:00-23:30\""
    )]
    HoursForm(String),
    /// A time range contains no time.
    #[error("hours {0:?} are empty: start and end must differ, and 24:00 is not a valid start")]
    EmptyHours(String),
    /// The time zone does not exist.
    #[error("unknown time zone {zone:?}: write Europe/Berlin or +02:00 ({why})")]
    TimeZone {
        zone: String,
        /// Error of the parser.
        why: String,
    },
    /// The address for lending has another form.
    #[error(
        "invalid address {0:?}: write \"tcp:ADDRESS\", \"tcp:ADDRESS:FIRST-LAST\" or \"unix:DIR\""
    )]
    Address(String),
    /// The range of ports is empty, or has another form.
    #[error("invalid port range {0:?}: write a range such as \"10810-10819\"")]
    Ports(String),
    /// TOML cannot represent the configuration; the text is that of the library.
    #[error("{0}")]
    Toml(String),
}

impl ValueError {
    pub(crate) fn toml(error: impl ToString) -> Self {
        Self::Toml(error.to_string())
    }
}
