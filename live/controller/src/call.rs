//! Request and reply of a route, and the state that all requests share.

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use axum::http::StatusCode;
use manager::question::{Actor, Answer, Question};
use manager::service::{Now, Service};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::access::Caller;
use crate::bodies::{Bodies, ReceivedBody};
use crate::gate::Gate;
use crate::limits::Limits;
use crate::problem::Problem;
use crate::reload::{Reloader, SharedTls};
use crate::server::Clock;
use crate::sessions::Sessions;
use crate::tokens::Tokens;

/// State that all requests share.
pub(crate) struct State {
    pub(crate) service: Arc<Mutex<dyn Service + Send>>,
    pub(crate) clock: Clock,
    pub(crate) tokens: RwLock<Arc<Tokens>>,
    /// Set when a port is added.
    pub(crate) tls: OnceLock<SharedTls>,
    pub(crate) reload: Option<Reloader>,
    /// Serializes reloads.
    pub(crate) reloading: Mutex<()>,
    pub(crate) limits: Limits,
    pub(crate) bodies: Arc<Bodies>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) sessions: Sessions,
    /// Long messages are parsed one at a time, because the result takes several times the memory of the message.
    pub(crate) reading: Mutex<()>,
}

type ServiceLock<'a> = MutexGuard<'a, dyn Service + Send + 'static>;

impl State {
    /// Locks the service and reads the time. The lock lasts as long as the result.
    pub(crate) fn hold(&self) -> Result<(ServiceLock<'_>, Now), Problem> {
        // A panic may have left the service in an inconsistent state.
        let held = self.service.lock().map_err(|_| {
            let words = "the controller has failed on a request and is restarting: its log names the request; try again in a few seconds";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, words)
        })?;
        let now = (self.clock)();
        Ok((held, now))
    }

    /// Returns the tokens in force.
    pub(crate) fn tokens(&self) -> Arc<Tokens> {
        let tokens = self.tokens.read();
        tokens.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts tokens in force.
    pub(crate) fn set_tokens(&self, tokens: Tokens) -> Result<(), Problem> {
        let terms = tokens.terms();
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
        let (mut service, now) = self.hold()?;
        service.set_tokens(now, terms);
        Ok(())
    }

    /// Wall-clock time, for the expiry of tokens.
    pub(crate) fn unix_ms(&self) -> u64 {
        (self.clock)().unix_ms
    }

    pub(crate) fn tick(&self) {
        let refused = self.gate.take_refusals(Instant::now());
        if let Some(refused) = &refused {
            warn!("{refused}");
        }
        if let Ok((mut service, now)) = self.hold() {
            service.tick(now);
            if let Some(refused) = refused {
                service.refused(now, refused);
            }
        }
    }

    /// Sends several questions under one lock, so their answers are consistent.
    pub(crate) fn ask_all<T>(
        &self,
        actor: &Actor,
        ask: impl FnOnce(&mut ServiceCall<'_>) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let (mut service, now) = self.hold()?;
        let service = &mut *service;
        ask(&mut ServiceCall {
            service,
            now,
            actor,
        })
    }
}

/// Locked service.
pub(crate) struct ServiceCall<'a> {
    service: &'a mut (dyn Service + Send),
    now: Now,
    actor: &'a Actor,
}

impl ServiceCall<'_> {
    pub(crate) fn ask(&mut self, question: Question) -> Result<Answer, Problem> {
        Ok(self.service.ask(self.now, self.actor, question)?)
    }
}

/// Successful reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(content_type: &'static str, text: impl Into<String>) -> Self {
        Self {
            content_type,
            body: text.into().into_bytes(),
        }
    }

    pub(crate) fn json(value: &impl Serialize) -> Result<Self, Problem> {
        let body = serde_json::to_vec(value)
            .map_err(|e| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
        Ok(Self {
            content_type: "application/json",
            body,
        })
    }
}

/// Authorized request.
pub(crate) struct Call {
    pub(crate) state: Arc<State>,
    pub(crate) caller: Caller,
    /// Parts of the path, decoded.
    pub(crate) path: Vec<(String, String)>,
    pub(crate) query: String,
    pub(crate) body: ReceivedBody,
}

impl Call {
    /// Returns a part of the path by its name in the table of routes.
    pub(crate) fn part(&self, name: &str) -> String {
        let found = self.path.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// Returns a numeric part of the path.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<T, Problem> {
        let text = self.part(name);
        let wrong = |_| Problem::invalid(format!("{text:?} is not the number of a {name}"));
        text.parse().map_err(wrong)
    }

    /// Returns a part of the path that is a keyword.
    pub(crate) fn word<T: DeserializeOwned>(&self, name: &str) -> Result<T, Problem> {
        let text = self.part(name);
        let word = serde_json::from_value(text.clone().into());
        word.map_err(|e| Problem::invalid(format!("{text:?} is not a {name}: {e}")))
    }

    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_urlencoded::from_str(&self.query)
            .map_err(|e| Problem::invalid(format!("the query is not understood: {e}")))
    }

    /// Parses the body as a JSON object; an empty body is an object without fields.
    pub(crate) fn body<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let wrong = |why: String| Problem::invalid(format!("the body is not understood: {why}"));
        let body = match self.body.bytes().trim_ascii_start() {
            b"" => b"{}",
            // Serde would accept a list as fields without names.
            body if body.starts_with(b"[") => {
                return Err(wrong("the body is not a JSON object".into()));
            }
            body => body,
        };
        serde_json::from_slice(body).map_err(|e| wrong(e.to_string()))
    }

    pub(crate) fn actor(&self) -> Actor {
        Actor(self.caller.name.clone())
    }

    pub(crate) fn ask(&self, question: Question) -> Result<Answer, Problem> {
        let actor = self.actor();
        self.state.ask_all(&actor, |service| service.ask(question))
    }

    /// Queries the service and returns its answer as JSON.
    pub(crate) fn answer(&self, question: Question) -> Result<Reply, Problem> {
        Reply::json(&self.ask(question)?)
    }

    /// Passes the message of an agent to the service, for the host in the path.
    pub(crate) fn message<M, A>(
        &self,
        send: impl FnOnce(&mut dyn Service, Now, &str, M) -> Result<A, Problem>,
    ) -> Result<Reply, Problem>
    where
        M: DeserializeOwned,
        A: Serialize,
    {
        let host = self.part("host");
        self.caller.check_host(&host)?;
        let _one = self.body.is_long().then(|| self.state.reading.lock());
        let message = self.body()?;
        let answer = {
            let (mut service, now) = self.state.hold()?;
            send(&mut *service, now, &host, message)?
        };
        Reply::json(&answer)
    }
}

/// Error for an answer of the service that does not belong to its question.
pub(crate) fn unexpected() -> Problem {
    let words = "internal error: the reply of the controller does not match the request";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, words)
}
