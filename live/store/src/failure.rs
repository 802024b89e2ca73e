//! Conversion of internal errors to errors of the `Store` interface.

use std::path::PathBuf;

use manager::store::StoreError;
use rusqlite::ErrorCode;

/// Error inside a transaction.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of SQLite.
    Sqlite(rusqlite::Error),
    /// Stored data is invalid.
    Damaged(String),
    /// A value cannot be stored, for example because it is too large.
    Unfit(String),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error as E;
        match error {
            E::IntegralValueOutOfRange(..)
            | E::InvalidColumnType(..)
            | E::FromSqlConversionFailure(..)
            | E::Utf8Error(..) => Failure::Damaged(error.to_string()),
            E::ToSqlConversionFailure(_) => {
                Failure::Unfit("a number or time exceeds 2^63 - 1".to_string())
            }
            other => Failure::Sqlite(other),
        }
    }
}

/// Path of the store, for messages.
#[derive(Debug, Clone)]
pub(crate) struct Place(pub PathBuf);

impl Place {
    /// Converts an error of a commit.
    pub(crate) fn writing(&self, failure: Failure) -> StoreError {
        match failure {
            Failure::Sqlite(e) if is_damage(&e) => self.damaged(&e.to_string()),
            Failure::Sqlite(e) => StoreError::Write {
                why: format!("{}: {e}", self.0.display()),
            },
            Failure::Unfit(why) => StoreError::Write {
                why: format!("{}: {why}", self.0.display()),
            },
            Failure::Damaged(what) => self.damaged(&what),
        }
    }

    /// Converts an error of a query.
    pub(crate) fn reading(&self, failure: Failure) -> StoreError {
        match self.writing(failure) {
            StoreError::Write { why } => StoreError::Read { why },
            other => other,
        }
    }

    /// Returns the error for a file or directory that could not be created or opened.
    pub(crate) fn io(&self, action: &str, error: &std::io::Error) -> StoreError {
        StoreError::Write {
            why: format!("cannot {action} {}: {error}", self.0.display()),
        }
    }

    /// Returns the error for a damaged file, with the required action.
    pub(crate) fn damaged(&self, what: &str) -> StoreError {
        let path = self.0.display();
        StoreError::Read {
            why: format!(
                "{path} is damaged ({what}): restore a copy, or move it away with the files {path}-wal and {path}-shm and start again; \
                 a new store lacks the history, pins set at run time and past jobs; data and its map are not affected"
            ),
        }
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}
