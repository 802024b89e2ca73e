//! What is wrong with what was told.

use thiserror::Error;

/// A text that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HostError {
    /// No XML.
    #[error("{what}: not XML: {why}")]
    Xml {
        /// What the text is of.
        what: String,
        /// What the parser says, with line and column.
        why: String,
    },
    /// XML without something that it has to have.
    #[error("{what}, line {line}: {why}")]
    Element {
        /// What the text is of.
        what: String,
        /// The line of the element that lacks it.
        line: u32,
        /// What is missing or wrong.
        why: String,
    },
    /// A line of another form.
    #[error("{what}, line {line}: {why}")]
    Line {
        /// What the text is of.
        what: &'static str,
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// JSON of another form.
    #[error("{what}, {field}: {why}")]
    Field {
        /// What the text is of.
        what: &'static str,
        field: String,
        /// What is wrong with it.
        why: String,
    },
}
