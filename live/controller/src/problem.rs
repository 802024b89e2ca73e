//! Error replies.

use axum::http::StatusCode;
use client::body::ErrorBody;
use manager::question::Refusal;
use manager::service::MessageRefusal;
use manager::wire::WireRefusal;

/// Error of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) said: ErrorText,
}

/// Text of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ErrorText {
    Words(String),
    /// Error that agents parse.
    Wire(WireRefusal),
}

impl Problem {
    pub(crate) fn new(status: StatusCode, words: impl Into<String>) -> Self {
        let said = ErrorText::Words(words.into());
        Self { status, said }
    }

    /// The request is invalid.
    pub(crate) fn invalid(words: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, words)
    }

    pub(crate) fn words(&self) -> String {
        match &self.said {
            ErrorText::Words(words) => words.clone(),
            ErrorText::Wire(refusal) => refusal.to_string(),
        }
    }

    pub(crate) fn json(self) -> Vec<u8> {
        let json = match self.said {
            ErrorText::Words(error) => serde_json::to_vec(&ErrorBody { error }),
            ErrorText::Wire(refusal) => serde_json::to_vec(&refusal),
        };
        // Serialization of these types cannot fail.
        json.unwrap_or_default()
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::NotFound(_) => StatusCode::NOT_FOUND,
            Refusal::Conflict(_) => StatusCode::CONFLICT,
            Refusal::Invalid(_) => StatusCode::BAD_REQUEST,
            Refusal::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, refusal.to_string())
    }
}

impl From<MessageRefusal> for Problem {
    fn from(refusal: MessageRefusal) -> Self {
        match refusal {
            MessageRefusal::Wire(refusal) => Self {
                status: StatusCode::CONFLICT,
                said: ErrorText::Wire(refusal),
            },
            MessageRefusal::Unavailable(why) => Self::new(StatusCode::SERVICE_UNAVAILABLE, why),
        }
    }
}
