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
    pub(crate) said: Said,
}

/// Text of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Words(String),
    /// Error that agents parse.
    Wire(WireRefusal),
}

impl Problem {
    pub(crate) fn new(status: StatusCode, words: impl Into<String>) -> Self {
        let said = Said::Words(words.into());
        Self { status, said }
    }

    /// The request is invalid.
    pub(crate) fn invalid(words: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, words)
    }

    pub(crate) fn words(&self) -> String {
        match &self.said {
            Said::Words(words) => words.clone(),
            Said::Wire(refusal) => refusal.to_string(),
        }
    }

    pub(crate) fn json(self) -> Vec<u8> {
        let json = match self.said {
            Said::Words(error) => serde_json::to_vec(&ErrorBody { error }),
            Said::Wire(refusal) => serde_json::to_vec(&refusal),
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
                said: Said::Wire(refusal),
            },
            MessageRefusal::Unavailable(why) => Self::new(StatusCode::SERVICE_UNAVAILABLE, why),
        }
    }
}
