//! Errors in texts of hypervisors and storage programs, and in options of disks.

use thiserror::Error;

/// Text that cannot be parsed, or option that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HostError {
    /// The text is not XML.
    #[error("{what}: not XML: {why}")]
    Xml {
        /// Kind of text.
        what: String,
        /// Error of the parser, with line and column.
        why: String,
    },
    /// XML without a required element.
    #[error("{what}, line {line}: {why}")]
    Element {
        /// Kind of text.
        what: String,
        /// Line of the faulty element.
        line: u32,
        /// Missing or wrong part.
        why: String,
    },
    /// A line of another form.
    #[error("{what}, line {line}: {why}")]
    Line {
        /// Kind of text.
        what: &'static str,
        line: usize,
        /// Fault of the line.
        why: String,
    },
    /// JSON of another form.
    #[error("{what}, {field}: {why}")]
    Field {
        /// Kind of text.
        what: &'static str,
        field: String,
        /// Fault of the field.
        why: String,
    },
    /// A fact cannot be read; the text is that of the caller.
    #[error("{0}")]
    Unread(String),
    /// The text after the prefix of a kind of storage is not a name.
    #[error("{name:?} is not the name of {kind}")]
    StorageName {
        name: String,
        /// Kind of storage, with an article.
        kind: &'static str,
    },
    /// A new image cannot have an option of the present image.
    #[error("{0}")]
    ImageOption(String),
    /// Limits of disks are not tested with a build of QEMU.
    #[error("limits of disks by QEMU {build} are not tested ({least} and later are)")]
    UntestedLimits {
        build: String,
        /// First tested version.
        least: String,
    },
    /// A drive has an option under an old name.
    #[error("its option {0} is outdated: replace it with m{0}, in MiB/s")]
    OutdatedLimit(&'static str),
    /// A limit of a drive is not a number.
    #[error("its limit {option}={value} is not a number")]
    LimitNotNumber { option: &'static str, value: String },
}

impl HostError {
    /// Creates the error of a fact that cannot be read.
    pub fn unread(why: impl ToString) -> Self {
        Self::Unread(why.to_string())
    }
}
