//! Who asks, and whether they may.

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::tokens::Tokens;

/// The page's cookie. The prefix makes browsers refuse it from anywhere but this host, over TLS.
pub(crate) const SESSION_COOKIE: &str = "__Host-terrace";

/// A header that only this page's script sends: forms and links of other pages cannot.
const OWN_HEADER: &str = "x-terrace";

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look.
    Read,
    /// Look, and order what an operator orders: moves, pauses, pins, cordons.
    Operate,
    /// Everything.
    Admin,
    /// Register and report as the host that has the token's name; nothing else.
    Agent,
}

impl Role {
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [Role::Read, Role::Operate, Role::Admin, Role::Agent];
        all.into_iter().find(|r| r.name() == name)
    }

    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
            Role::Agent => "agent",
        }
    }

    /// Whether it is enough where `needed` is.
    pub(crate) fn may(self, needed: Role) -> bool {
        self == Role::Admin || self == needed || (self == Role::Operate && needed == Role::Read)
    }
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Whoever may open the socket, by the user id that the kernel tells.
    Unix { uid: u32 },
    /// Anybody, until a token says more.
    Tls,
}

/// What said who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Through {
    Socket,
    Header,
    /// Browsers send it by themselves, whoever made them.
    Cookie,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) role: Role,
    /// For the audit.
    pub(crate) name: String,
    pub(crate) through: Through,
}

impl Caller {
    pub(crate) fn find(peer: Peer, headers: &HeaderMap, tokens: &Tokens) -> Result<Self, Problem> {
        if let Peer::Unix { uid } = peer {
            return Ok(Self {
                role: Role::Admin,
                name: format!("uid {uid}"),
                through: Through::Socket,
            });
        }
        let found = match (bearer(headers), cookie(headers)) {
            (Some(secret), _) => tokens.find(secret, Through::Header),
            (None, Some(secret)) => tokens.find(secret, Through::Cookie),
            (None, None) => return Err(unauthorized("a token is needed")),
        };
        found.ok_or_else(|| unauthorized("the token is not known"))
    }

    /// Whether they may do what needs `needed`.
    pub(crate) fn check(&self, needed: Role) -> Result<(), Problem> {
        if self.role.may(needed) {
            return Ok(());
        }
        let words = format!(
            "this needs the role {}; the token {:?} has the role {}",
            needed.name(),
            self.name,
            self.role.name()
        );
        Err(Problem::new(StatusCode::FORBIDDEN, words))
    }

    /// An agent speaks for its own host.
    pub(crate) fn check_host(&self, host: &str) -> Result<(), Problem> {
        if self.role != Role::Agent || self.name == host {
            return Ok(());
        }
        let words = format!(
            "the token {:?} is of the agent of host {0:?}, not of {host:?}: an agent's token has the name of its host",
            self.name
        );
        Err(Problem::new(StatusCode::FORBIDDEN, words))
    }

    /// Whether an order comes from our own page, where a browser may have been made to send it.
    pub(crate) fn check_order(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.through != Through::Cookie {
            return Ok(());
        }
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        let own = text(OWN_HEADER) == Some("1");
        let host = text(HOST.as_str()).unwrap_or_default();
        let origin = text(ORIGIN.as_str()).and_then(|o| o.strip_prefix("https://"));
        let fetched = text("sec-fetch-site").is_none_or(|site| site == "same-origin");
        match own && fetched && origin == Some(host) {
            true => Ok(()),
            false => Err(Problem::new(
                StatusCode::FORBIDDEN,
                "an order with the page's cookie is only taken from the page itself: programs send Authorization: Bearer",
            )),
        }
    }
}

fn unauthorized(what: &str) -> Problem {
    let words =
        format!("{what}: send Authorization: Bearer with a secret of the controller's token file");
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

/// What the link that opens the page asks for: a cookie instead of the token, and a URL without it.
pub(crate) struct SignIn {
    /// For `Set-Cookie`.
    pub(crate) cookie: String,
    /// Where to go on.
    pub(crate) location: String,
}

impl SignIn {
    /// `None` when no token is in the URL.
    pub(crate) fn asked(uri: &Uri, tokens: &Tokens) -> Option<Result<Self, Problem>> {
        let query = uri.query()?;
        let is_token = |pair: &&str| pair.starts_with("token=");
        let pair = query.split('&').find(is_token)?;
        let secret = &pair["token=".len()..];
        if tokens.find(secret.as_bytes(), Through::Cookie).is_none() {
            return Some(Err(unauthorized("the token is not known")));
        }
        let rest: Vec<&str> = query.split('&').filter(|p| !is_token(p)).collect();
        let location = match rest.is_empty() {
            true => "/".into(),
            false => format!("/?{}", rest.join("&")),
        };
        // No expiry: it ends with the browser.
        let cookie =
            format!("{SESSION_COOKIE}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict");
        Some(Ok(Self { cookie, location }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_a_ladder_with_agents_beside_it() {
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
    fn the_cookie_is_found_among_others() {
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
