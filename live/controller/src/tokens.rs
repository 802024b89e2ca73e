//! Token file: callers over TLS and their roles.
//!
//! ```text
//! # ROLE NAME SECRET [expires=DATE], one per line; read by the controller's user only (mode 0600)
//! read    grafana  Zm9yIGdyYWZhbmE...
//! operate alice    c29tZSBzZWNyZXQ...  expires=2027-01-31   # rejected from that day on (UTC)
//! operate alice    YW5vdGhlciBzZWN...  expires=2028-01-31   # both are valid until then
//! agent   alpha    dGhlIGFnZW50IG9m...     # may register and report as host alpha
//! ```
//!
//! To rotate a token, add a second line with the same role and name, reload, remove the old line when all clients use the new
//! secret, and reload again.

use std::path::Path;
use std::string::FromUtf8Error;

use manager::service::TokenTerm;
use subtle::ConstantTimeEq;
use thiserror::Error;
use units::Nanos;

use crate::access::Role;
use crate::server::StartError;

/// Minimum length of a secret. Protects against guesses, also from many addresses.
const SECRET_CHARS_MIN: usize = 16;

/// Maximum number of tokens. A request without a session is compared with each token. Protects the event loop.
const TOKENS_MAX: usize = 10_000;

/// Maximum length of the name of a token. Each event of its owner contains it.
const NAME_BYTES_MAX: usize = 100;

/// SHA-256 of a secret.
pub(crate) type Digest = [u8; 32];

/// All tokens; the secrets only as their SHA-256.
#[derive(Default)]
pub(crate) struct Tokens(Vec<Token>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) role: Role,
    pub(crate) name: String,
    pub(crate) digest: Digest,
    expires: Option<Expiry>,
}

/// First day on which a token is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expiry {
    date: String,
    unix_ms: u64,
}

/// The result of looking up a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenLookup<'a> {
    Valid(&'a Token),
    Expired(&'a Token),
    Unknown,
}

pub(crate) fn digest(secret: &[u8]) -> Digest {
    let digest = ring::digest::digest(&ring::digest::SHA256, secret);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// Fault of a token file.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// The file is not UTF-8.
    #[error(transparent)]
    Encoding(#[from] FromUtf8Error),
    /// The file has no tokens.
    #[error("the file has no tokens, so no client could connect: add a line ROLE NAME SECRET")]
    Empty,
    /// A line is invalid.
    #[error("line {line}: {fault}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        fault: LineFault,
    },
}

/// Fault of a line of a token file. It never contains the secret.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum LineFault {
    /// The line has another form.
    #[error("a line is ROLE NAME SECRET, optionally with expires=YYYY-MM-DD")]
    Form,
    #[error("unknown role {0:?}: use read, operate, admin or agent")]
    Role(String),
    /// The name has invisible characters.
    #[error("the name {shown} {why}")]
    Name {
        /// Name with visible characters only.
        shown: String,
        why: String,
    },
    #[error("the name has more than {max} bytes", max = NAME_BYTES_MAX)]
    LongName,
    #[error(
        "the secret has fewer than {min} characters: create one with `openssl rand -hex 32`",
        min = SECRET_CHARS_MIN
    )]
    ShortSecret,
    #[error("the secret has other characters than letters, digits and - . _ ~")]
    SecretCharacters,
    #[error("{0:?} is not a date: write expires=YYYY-MM-DD")]
    Date(String),
    /// Two lines have the same secret.
    #[error("this secret is used by another line")]
    SameSecret,
    /// Two lines give a name different roles.
    #[error("the token {name:?} has the role {role} in another line: give this token another name")]
    OtherRole {
        name: String,
        /// Role in the other line.
        role: &'static str,
    },
    #[error("more than {max} tokens", max = TOKENS_MAX)]
    TooMany,
}

impl Tokens {
    pub(crate) fn read(path: &Path) -> Result<Self, StartError> {
        let failed = |why| StartError::Tokens {
            path: path.into(),
            why,
        };
        let bytes = secret::read(path)?;
        let text = String::from_utf8(bytes).map_err(|e| failed(e.into()))?;
        Self::parse(&text).map_err(failed)
    }

    fn parse(text: &str) -> Result<Self, TokenError> {
        let mut tokens: Vec<Token> = vec![];
        for (i, line) in text.lines().enumerate() {
            // A secret cannot contain `#`.
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |fault| TokenError::Line { line: i + 1, fault };
            let token = Token::parse(line).map_err(wrong)?;
            if tokens.iter().any(|t| t.digest == token.digest) {
                return Err(wrong(LineFault::SameSecret));
            }
            let other = |t: &&Token| t.name == token.name && t.role != token.role;
            if let Some(other) = tokens.iter().find(other) {
                return Err(wrong(LineFault::OtherRole {
                    role: other.role.name(),
                    name: token.name,
                }));
            }
            if tokens.len() == TOKENS_MAX {
                return Err(wrong(LineFault::TooMany));
            }
            tokens.push(token);
        }
        match tokens.is_empty() {
            true => Err(TokenError::Empty),
            false => Ok(Self(tokens)),
        }
    }

    /// Returns the token with this secret. The time does not depend on the secret.
    pub(crate) fn find(&self, secret: &[u8], unix_ms: u64) -> TokenLookup<'_> {
        self.with_digest(&digest(secret), unix_ms)
    }

    /// Returns the token whose secret has this digest. The time does not depend on the digest.
    pub(crate) fn with_digest(&self, digest: &Digest, unix_ms: u64) -> TokenLookup<'_> {
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.digest.ct_eq(digest)) {
                found = Some(token);
            }
        }
        match found {
            None => TokenLookup::Unknown,
            Some(token) if token.is_expired(unix_ms) => TokenLookup::Expired(token),
            Some(token) => TokenLookup::Valid(token),
        }
    }

    /// Returns true if a token has this digest.
    pub(crate) fn have(&self, digest: &Digest) -> bool {
        self.0.iter().any(|t| t.digest == *digest)
    }

    /// Returns the end of access by role and name: the last expiry of the tokens with that name.
    pub(crate) fn terms(&self) -> Vec<TokenTerm> {
        let mut terms: Vec<TokenTerm> = vec![];
        for token in &self.0 {
            let expires_ms = token.expires.as_ref().map(|e| e.unix_ms);
            match terms.iter_mut().find(|t| t.name == token.name) {
                Some(term) => {
                    let both = term.expires_ms.zip(expires_ms);
                    term.expires_ms = both.map(|(a, b)| a.max(b));
                }
                None => terms.push(TokenTerm {
                    name: token.name.clone(),
                    role: token.role.name().into(),
                    expires_ms,
                }),
            }
        }
        terms.retain(|t| t.expires_ms.is_some());
        terms
    }

    /// Describes the tokens that a reload adds and removes, for the audit log; `None` without a change.
    pub(crate) fn changes(&self, to: &Self) -> Option<String> {
        let named = |all: &Self, others: &Self| -> Vec<String> {
            let new = all.0.iter().filter(|t| !others.0.contains(t));
            new.map(Token::words).collect()
        };
        let mut parts = vec![];
        for (what, tokens) in [("added", named(to, self)), ("removed", named(self, to))] {
            if !tokens.is_empty() {
                parts.push(format!("{what} {}", some_of(&tokens)));
            }
        }
        (!parts.is_empty()).then(|| format!("tokens: {}", parts.join("; ")))
    }
}

impl Token {
    fn parse(line: &str) -> Result<Self, LineFault> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (role, name, secret, expires) = match words[..] {
            [role, name, secret] => (role, name, secret, None),
            [role, name, secret, word] => match word.strip_prefix("expires=") {
                Some(date) => (role, name, secret, Some(Expiry::parse(date)?)),
                None => return Err(LineFault::Form),
            },
            _ => return Err(LineFault::Form),
        };
        let Some(role) = Role::named(role) else {
            return Err(LineFault::Role(role.into()));
        };
        if let Some(fault) = units::hidden_fault(name) {
            return Err(LineFault::Name {
                shown: units::shown(name).into_owned(),
                why: fault,
            });
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(LineFault::LongName);
        }
        if secret.len() < SECRET_CHARS_MIN {
            return Err(LineFault::ShortSecret);
        }
        // Characters without escapes in headers and URLs.
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        if !secret.bytes().all(plain) {
            return Err(LineFault::SecretCharacters);
        }
        Ok(Self {
            role,
            name: name.into(),
            digest: digest(secret.as_bytes()),
            expires,
        })
    }

    fn is_expired(&self, unix_ms: u64) -> bool {
        self.expires.as_ref().is_some_and(|e| e.unix_ms <= unix_ms)
    }

    /// Returns the first day on which the token is rejected.
    pub(crate) fn expires(&self) -> Option<&str> {
        self.expires.as_ref().map(|e| e.date.as_str())
    }

    fn words(&self) -> String {
        let until = self.expires().map(|date| format!(" (expires {date})"));
        format!(
            "{} {}{}",
            self.role.name(),
            self.name,
            until.unwrap_or_default()
        )
    }
}

/// The first names of a long list.
fn some_of(names: &[String]) -> String {
    const NAMED_MAX: usize = 20;
    let more = names.len().saturating_sub(NAMED_MAX);
    let named = names[..names.len() - more].join(", ");
    match more {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

impl Expiry {
    fn parse(date: &str) -> Result<Self, LineFault> {
        let days = days(date).ok_or_else(|| LineFault::Date(date.into()))?;
        Ok(Self {
            date: date.into(),
            unix_ms: Nanos::from_secs(days * 86_400).0 / 1_000_000,
        })
    }
}

/// Days from 1970-01-01 to a date of the 21st century.
fn days(date: &str) -> Option<u64> {
    let parts: Vec<&str> = date.split('-').collect();
    let [year, month, day] = parts[..] else {
        return None;
    };
    if (year.len(), month.len(), day.len()) != (4, 2, 2) {
        return None;
    }
    let number = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse().ok())
    };
    let (year, month, day): (u64, u64, u64) = (number(year)??, number(month)??, number(day)??);
    if !(2000..2100).contains(&year) {
        return None;
    }
    let leap = |year: u64| year.is_multiple_of(4);
    let february = if leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *months.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if !(1..=length).contains(&day) {
        return None;
    }
    let before: u64 = months[..month as usize - 1].iter().sum();
    // 2000-01-01 is day 10,957; every fourth year of that century is a leap year.
    let years = year - 2000;
    Some(10_957 + years * 365 + years.div_ceil(4) + before + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0123456789abcdef";
    const B: &str = "fedcba9876543210";
    const DAY_MS: u64 = 86_400_000;

    #[test]
    fn token_is_found_by_its_secret() {
        let text = format!("# all\n\nread grafana {A}\n agent alpha {B} # its agent\n");
        let tokens = Tokens::parse(&text).unwrap();
        let find = |secret: &str| match tokens.find(secret.as_bytes(), 0) {
            TokenLookup::Valid(t) => Some((t.role, t.name.as_str())),
            _ => None,
        };
        assert_eq!(find(A), Some((Role::Read, "grafana")));
        assert_eq!(find(B), Some((Role::Agent, "alpha")));
        for wrong in ["", "0123456789abcde", "0123456789abcdef0", "grafana"] {
            assert!(find(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn invalid_token_lines_are_named() {
        let refused = |text: &str| Tokens::parse(text).err().expect("it is wrong").to_string();
        assert!(refused("\n# nothing\n").contains("no token"));
        assert!(refused("\nread x").starts_with("line 2: a line is ROLE NAME SECRET"));
        assert!(refused(&format!("root x {A}")).starts_with("line 1: unknown role \"root\""));
        assert!(refused("read x short").contains("fewer than 16"));
        assert!(refused("read x 0123456789;abcdef").contains("letters, digits"));
        assert!(refused(&format!("read x\u{202e}y {A}")).contains("\\u{202e}"));
        let twice = refused(&format!("read x {A}\nread y {A}"));
        assert_eq!(twice, "line 2: this secret is used by another line");
        let roles = refused(&format!("read x {A}\nadmin x {B}"));
        assert!(
            roles.contains("has the role read in another line"),
            "{roles}"
        );
        for date in [
            "2027-02-29",
            "2027-13-01",
            "2027-1-1",
            "tomorrow",
            "1999-01-01",
            "2027-00-10",
        ] {
            let why = refused(&format!("read x {A} expires={date}"));
            assert!(why.contains("is not a date"), "{why}");
        }
        assert!(refused(&format!("read x {A} until=2027-01-01")).contains("a line is"));
    }

    #[test]
    fn dates_convert_to_days_since_1970() {
        let expected = [
            ("2000-01-01", 10_957),
            ("2000-03-01", 11_017),
            ("2026-11-29", 20_786),
            ("2028-02-29", 21_243),
            ("2099-12-31", 47_481),
        ];
        for (date, day) in expected {
            assert_eq!(days(date), Some(day), "{date}");
        }
    }

    #[test]
    fn tokens_expire_and_two_of_one_name_may_be_valid() {
        let text =
            format!("read grafana {A} expires=2000-01-03\nread grafana {B} expires=2000-01-05\n");
        let tokens = Tokens::parse(&text).unwrap();
        let day = |day: u64| (10_957 + day) * DAY_MS;
        let valid =
            |secret: &str, at| matches!(tokens.find(secret.as_bytes(), at), TokenLookup::Valid(_));
        assert!(valid(A, day(1)) && valid(B, day(1)));
        let TokenLookup::Expired(token) = tokens.find(A.as_bytes(), day(2)) else {
            panic!("it has expired");
        };
        assert_eq!(token.expires(), Some("2000-01-03"));
        assert!(valid(B, day(3)) && !valid(B, day(4)));
        // Access ends with the last token of the name.
        let terms = tokens.terms();
        assert_eq!((terms.len(), terms[0].expires_ms), (1, Some(day(4))));
        let forever = Tokens::parse(&format!("{text}read grafana {A}{B}")).unwrap();
        assert!(forever.terms().is_empty());
    }

    #[test]
    fn token_changes_name_tokens_and_no_secret() {
        let before = Tokens::parse(&format!("read grafana {A}")).unwrap();
        let after = Tokens::parse(&format!("read grafana {B} expires=2030-01-01")).unwrap();
        assert_eq!(before.changes(&before), None);
        assert_eq!(
            before.changes(&after).unwrap(),
            "tokens: added read grafana (expires 2030-01-01); removed read grafana"
        );
    }
}
