//! Authentication and authorization of callers.

use std::sync::Arc;
use std::time::Instant;

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::State;
use crate::gate::{Connection, RejectReason};
use crate::limits::SESSION_TIME;
use crate::problem::Problem;
use crate::tokens::{Token, TokenLookup};

/// Cookie of the page. It has the id of a session, never a token. With this prefix, browsers accept it only from this host and
/// over TLS.
pub(crate) const SESSION_COOKIE: &str = "__Host-terrace";

/// Header that only the script of this page sends; forms and links of other pages cannot set it.
const OWN_HEADER: &str = "x-terrace";

/// Rights of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read everything.
    Read,
    /// Read everything and give the orders of an operator: moves, pauses, pins, cordons.
    Operate,
    /// All rights.
    Admin,
    /// Register and report as the host with the name of the token; nothing else.
    Agent,
}

impl Role {
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [Role::Read, Role::Operate, Role::Admin, Role::Agent];
        all.into_iter().find(|r| r.name() == name)
    }

    /// Returns the name in the token file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
            Role::Agent => "agent",
        }
    }

    /// Returns true if this role includes the rights of `needed`.
    pub(crate) fn may(self, needed: Role) -> bool {
        self == Role::Admin || self == needed || (self == Role::Operate && needed == Role::Read)
    }
}

/// Peer of a connection.
#[derive(Clone)]
pub(crate) enum Peer {
    /// Process that opened the unix socket, with its user id from the kernel.
    Unix { uid: u32 },
    /// TLS client; its token identifies it.
    Tls(Arc<Connection>),
}

/// Means of authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthMethod {
    Socket,
    Header,
    /// Browsers also send it with requests that other sites caused.
    Cookie,
}

/// Authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) role: Role,
    /// Name in the audit log.
    pub(crate) name: String,
    pub(crate) through: AuthMethod,
}

impl Caller {
    /// Authenticates the caller of a request. Counts a refusal against the caller's address.
    pub(crate) fn find(peer: &Peer, headers: &HeaderMap, state: &State) -> Result<Self, Problem> {
        let connection = match peer {
            Peer::Tls(connection) => connection,
            Peer::Unix { uid } => {
                return Ok(Self {
                    role: Role::Admin,
                    name: format!("uid {uid}"),
                    through: AuthMethod::Socket,
                });
            }
        };
        match (bearer(headers), cookie(headers)) {
            (Some(secret), _) => admit(connection, state, |state| {
                let tokens = state.tokens();
                let token = known(tokens.find(secret, state.unix_ms()))?;
                Ok(token.caller(AuthMethod::Header))
            }),
            (None, Some(id)) => admit(connection, state, |state| {
                let ended = || {
                    let words = "the session has ended, sign in again";
                    (RejectReason::Session, words.to_owned())
                };
                let digest = state.sessions.find(id, Instant::now()).ok_or_else(ended)?;
                let tokens = state.tokens();
                // The token may have been removed or may have expired since then.
                let token = known(tokens.with_digest(&digest, state.unix_ms()));
                Ok(token.map_err(|_| ended())?.caller(AuthMethod::Cookie))
            }),
            (None, None) => admit(connection, state, |_| {
                Err((RejectReason::Missing, "a token is required".into()))
            }),
        }
    }

    /// Checks that the caller has the rights of `needed`.
    pub(crate) fn check(&self, needed: Role) -> Result<(), Problem> {
        if self.role.may(needed) {
            return Ok(());
        }
        let words = format!(
            "this request requires the role {}; the token {:?} has the role {}",
            needed.name(),
            self.name,
            self.role.name()
        );
        Err(Problem::new(StatusCode::FORBIDDEN, words))
    }

    /// Checks that an agent acts for its own host.
    pub(crate) fn check_host(&self, host: &str) -> Result<(), Problem> {
        if self.role != Role::Agent || self.name == host {
            return Ok(());
        }
        let words = format!(
            "the token {:?} belongs to the agent of host {0:?}, not to that of host {host:?}: create an agent token with the name of the host",
            self.name
        );
        Err(Problem::new(StatusCode::FORBIDDEN, words))
    }

    /// Checks that an order with a cookie comes from this page, because other sites can make a browser send requests.
    pub(crate) fn check_order(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let own = headers.get(OWN_HEADER).is_some_and(|v| v == "1");
        if self.through != AuthMethod::Cookie || (own && is_from_page(headers)) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "orders with the cookie of the page are accepted only from the page: programs must send Authorization: Bearer",
        ))
    }
}

/// Returns true if the headers of a browser show that a page of this server made the request.
fn is_from_page(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    let host = text(HOST.as_str()).unwrap_or_default();
    let origin = text(ORIGIN.as_str()).and_then(|o| o.strip_prefix("https://"));
    let fetched = text("sec-fetch-site").is_none_or(|site| site == "same-origin");
    fetched && origin == Some(host)
}

/// Admits a caller over a connection, within the limits of its address.
fn admit<T>(
    connection: &Connection,
    state: &State,
    find: impl FnOnce(&State) -> Result<T, (RejectReason, String)>,
) -> Result<T, Problem> {
    let now = Instant::now();
    if !connection.may_try(now) {
        return Err(too_many(connection, now));
    }
    match find(state) {
        Ok(found) => {
            connection.trust(now);
            Ok(found)
        }
        Err((why, words)) => {
            connection.refuse(why, now);
            connection.take(now);
            Err(unauthorized(&words))
        }
    }
}

/// Counts a request without a token against the allowance of its address.
pub(crate) fn admit_unknown(peer: &Peer) -> Result<(), Problem> {
    let now = Instant::now();
    match peer {
        Peer::Tls(connection) if !connection.take(now) => Err(too_many(connection, now)),
        _ => Ok(()),
    }
}

fn too_many(connection: &Connection, now: Instant) -> Problem {
    connection.refuse(RejectReason::Requests, now);
    let words = "too many requests without a valid token from this address: wait a few seconds";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, words)
}

/// Returns the token if it is valid, or the reason of the rejection.
fn known(found: TokenLookup<'_>) -> Result<&Token, (RejectReason, String)> {
    match found {
        TokenLookup::Valid(token) => Ok(token),
        TokenLookup::Unknown => Err((RejectReason::Unknown, "the token is unknown".into())),
        TokenLookup::Expired(token) => {
            let (name, date) = (&token.name, token.expires().unwrap_or_default());
            Err((
                RejectReason::Expired,
                format!("the token {name:?} expired on {date}"),
            ))
        }
    }
}

impl Token {
    fn caller(&self, through: AuthMethod) -> Caller {
        Caller {
            role: self.role,
            name: self.name.clone(),
            through,
        }
    }
}

/// Exchanges a token for a session of the page; the value of `Set-Cookie`.
pub(crate) fn sign_in(peer: &Peer, secret: &[u8], state: &State) -> Result<String, Problem> {
    let Peer::Tls(connection) = peer else {
        let words = "the unix socket has no sessions: open the page over https";
        return Err(Problem::invalid(words));
    };
    let token = admit(connection, state, |state| {
        let tokens = state.tokens();
        Ok(known(tokens.find(secret, state.unix_ms()))?.digest)
    })?;
    let id = state.sessions.begin(token, Instant::now()).ok_or_else(|| {
        let words = "the system provides no random numbers";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, words)
    })?;
    let seconds = SESSION_TIME.as_secs();
    Ok(format!(
        "{SESSION_COOKIE}={id}; Max-Age={seconds}; {COOKIE_TERMS}"
    ))
}

/// Rejects forms that a browser sends from another site. Programs do not send these headers.
pub(crate) fn check_form(headers: &HeaderMap) -> Result<(), Problem> {
    let from_browser = headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site");
    if from_browser && !is_from_page(headers) {
        let words = "forms are accepted only from the page";
        return Err(Problem::new(StatusCode::FORBIDDEN, words));
    }
    Ok(())
}

/// Ends the session of a request of the page; the value of `Set-Cookie`.
pub(crate) fn sign_out(headers: &HeaderMap, state: &State) -> String {
    if let Some(id) = cookie(headers) {
        state.sessions.end(id);
    }
    format!("{SESSION_COOKIE}=; Max-Age=0; {COOKIE_TERMS}")
}

/// Hides the cookie from scripts and other sites, and restricts it to encrypted connections.
const COOKIE_TERMS: &str = "Path=/; Secure; HttpOnly; SameSite=Strict";

fn unauthorized(what: &str) -> Problem {
    let words = format!(
        "{what}: send Authorization: Bearer with a secret from the controller's token file"
    );
    Problem::new(StatusCode::UNAUTHORIZED, words)
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, secret) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(secret)
}

fn cookie(headers: &HeaderMap) -> Option<&[u8]> {
    let all = headers.get_all(COOKIE).iter();
    all.filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == SESSION_COOKIE)
        .map(|(_, secret)| secret.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_agent_is_separate() {
        use Role::{Admin, Agent, Operate, Read};
        let may = |role: Role| [Read, Operate, Admin, Agent].map(|needed| role.may(needed));
        assert_eq!(may(Read), [true, false, false, false]);
        assert_eq!(may(Operate), [true, true, false, false]);
        assert_eq!(may(Admin), [true, true, true, true]);
        assert_eq!(may(Agent), [false, false, false, true]);
        for role in [Read, Operate, Admin, Agent] {
            assert_eq!(Role::named(role.name()), Some(role));
        }
    }

    #[test]
    fn session_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, "a=b; __Host-terrace=s3cret; c=d".parse().unwrap());
        assert_eq!(cookie(&headers), Some(&b"s3cret"[..]));
        headers.insert(COOKIE, "x__Host-terrace=s3cret".parse().unwrap());
        assert_eq!(cookie(&headers), None);
        headers.insert(AUTHORIZATION, "bearer x".parse().unwrap());
        assert_eq!(bearer(&headers), Some(&b"x"[..]));
        headers.insert(AUTHORIZATION, "Basic x".parse().unwrap());
        assert_eq!(bearer(&headers), None);
    }
}
