//! URIs of exports.
//!
//! ```text
//!  nbd://host[:port]/export            nbd+unix:///export?socket=/run/nbd.sock
//!  nbds://host[:port]/export?tls-certificates=DIR
//!  nbds+unix:///export?socket=/run/nbd.sock&tls-psk-file=FILE&tls-username=NAME
//! ```
//!
//! The export's name is the text after the first `/` of the path, percent-encoded: `nbd://host//disk` is the export `/disk`.
//! `nbds` requires TLS, with libnbd's parameters. Unknown and inapplicable parameters are refused, not ignored.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use crate::wire::name;

/// Default port.
pub const DEFAULT_PORT: u16 = 10809;

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp {
        /// Host name or address; IPv6 without brackets.
        host: String,
        /// Port number.
        port: u16,
    },
    /// Path of a Unix domain socket, in UTF-8.
    Unix(PathBuf),
}

/// Address of a server and name of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    /// Address of the server.
    pub address: Address,
    /// Name of the export; empty for the server's default.
    pub export: String,
    /// TLS parameters, if TLS is required; `None` for no encryption.
    pub tls: Option<TlsWords>,
}

/// TLS parameters of a URI. Without certificates and keys the server cannot be authenticated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsWords {
    /// Directory of certificates and keys.
    pub certificates: Option<PathBuf>,
    /// File of pre-shared keys.
    pub psk_file: Option<PathBuf>,
    /// User whose key is used; by default the only one in the file.
    pub username: Option<String>,
    /// Name in the server's certificate; by default the host.
    pub hostname: Option<String>,
}

/// Reason why a text is not a URI of an export.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UriError {
    /// A scheme other than NBD.
    #[error("unknown scheme {scheme:?}: use nbd://host/export or nbd+unix:///export?socket=path")]
    Scheme {
        /// Text before `://`.
        scheme: String,
    },
    /// A text without `://`.
    #[error("not a URI: use nbd://host/export or nbd+unix:///export?socket=path")]
    NoScheme,
    /// An invalid part.
    #[error("{part}: {why}")]
    Part {
        /// Name of the part.
        part: &'static str,
        /// Violated rule.
        why: &'static str,
    },
    /// An unknown parameter.
    #[error("unknown parameter {name:?}")]
    Parameter {
        /// Name of the parameter.
        name: String,
    },
}

fn part<T>(part: &'static str, why: &'static str) -> Result<T, UriError> {
    Err(UriError::Part { part, why })
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return part(
                "uri",
                "a space or a control character must be written as %XX",
            );
        }
        let (scheme, rest) = text.split_once("://").ok_or(UriError::NoScheme)?;
        let scheme = scheme.to_ascii_lowercase();
        let (unix, secured) = match scheme.as_str() {
            "nbd" => (false, false),
            "nbd+unix" => (true, false),
            "nbds" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(UriError::Scheme { scheme }),
        };
        if rest.contains('#') {
            return part("uri", "a fragment (#) is not supported");
        }
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decode("export", path)?;
        if let Err(why) = name(export.as_bytes()) {
            return part("export", why);
        }
        let mut words = parameters(query.unwrap_or_default())?;
        let user = authority.split_once('@');
        let (user, authority) = user.map_or((None, authority), |(user, rest)| (Some(user), rest));
        if let Some(user) = user {
            let user = decode("user", user)?;
            if !secured {
                return part("user", "a user name needs TLS: use nbds://");
            }
            if words.tls.username.replace(user).is_some() {
                return part("user", "given twice");
            }
        }
        if !secured && words.tls != TlsWords::default() {
            return part("tls", "TLS parameters need nbds://");
        }
        if words.tls.certificates.is_some() && words.tls.psk_file.is_some() {
            return part("tls", "use either certificates or pre-shared keys");
        }
        let address = match (unix, words.socket) {
            (false, Some(_)) => return part("socket", "a socket needs nbd+unix://"),
            (false, None) => tcp(authority)?,
            (true, _) if !authority.is_empty() => {
                return part(
                    "host",
                    "a Unix socket has no host: use nbd+unix:///export?socket=path",
                );
            }
            (true, None) => return part("socket", "the parameter socket=path is missing"),
            (true, Some(path)) => Address::Unix(path.into()),
        };
        Ok(Self {
            address,
            export,
            tls: secured.then_some(words.tls),
        })
    }
}

fn tcp(authority: &str) -> Result<Address, UriError> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else {
            return part("host", "the closing bracket is missing");
        };
        if host.parse::<Ipv6Addr>().is_err() {
            return part("host", "not an IPv6 address in brackets");
        }
        match port.strip_prefix(':') {
            None if !port.is_empty() => {
                return part("host", "unexpected characters after the bracket");
            }
            port => (host, port),
        }
    } else {
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        if host.is_empty() || !host.chars().all(plain) {
            return part(
                "host",
                "not a host name or address (write IPv6 addresses in brackets)",
            );
        }
        (host, port)
    };
    let port = match port {
        None | Some("") => DEFAULT_PORT,
        Some(digits) => match digits.parse() {
            Ok(port) if port != 0 && digits.bytes().all(|b| b.is_ascii_digit()) => port,
            _ => return part("port", "not a number from 1 to 65535"),
        },
    };
    Ok(Address::Tcp {
        host: host.into(),
        port,
    })
}

/// Parsed parameters.
#[derive(Default)]
struct Parameters {
    socket: Option<String>,
    tls: TlsWords,
}

/// Parses the parameters; unknown ones are refused.
fn parameters(query: &str) -> Result<Parameters, UriError> {
    let mut words = Parameters::default();
    for parameter in query.split('&').filter(|p| !p.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let key = decode("parameter", key)?;
        let tls = &mut words.tls;
        let (place, twice) = match key.as_str() {
            "socket" => {
                let path = path("socket", value)?;
                ("socket", words.socket.replace(path).is_some())
            }
            place @ ("tls-certificates" | "tls-psk-file") => {
                let (place, word) = match place {
                    "tls-certificates" => ("tls-certificates", &mut tls.certificates),
                    _ => ("tls-psk-file", &mut tls.psk_file),
                };
                let path = path(place, value)?;
                (place, word.replace(path.into()).is_some())
            }
            "tls-username" => {
                let name = decode("tls-username", value)?;
                ("tls-username", tls.username.replace(name).is_some())
            }
            "tls-hostname" => {
                let name = decode("tls-hostname", value)?;
                ("tls-hostname", tls.hostname.replace(name).is_some())
            }
            _ => return Err(UriError::Parameter { name: key }),
        };
        if twice {
            return part(place, "given twice");
        }
    }
    Ok(words)
}

fn path(place: &'static str, value: &str) -> Result<String, UriError> {
    let path = decode(place, value)?;
    if path.is_empty() || path.contains('\0') {
        return part(place, "not a file path");
    }
    Ok(path)
}

fn decode(place: &'static str, text: &str) -> Result<String, UriError> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let digits = piece.as_bytes().split_first_chunk::<2>();
        let Some((&[high, low], rest)) = digits else {
            return part(place, "% needs two hexadecimal digits");
        };
        let digit = |b: u8| char::from(b).to_digit(16);
        let (Some(high), Some(low)) = (digit(high), digit(low)) else {
            return part(place, "% needs two hexadecimal digits");
        };
        bytes.push((high << 4 | low) as u8);
        bytes.extend_from_slice(rest);
    }
    String::from_utf8(bytes).or_else(|_| part(place, "not UTF-8"))
}

/// Writes text for a path or a parameter's value, with `%XX` for each byte that needs encoding.
fn encode(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:,".contains(&byte) {
            write!(f, "{}", char::from(byte))?;
        } else {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls.is_some() { "nbds" } else { "nbd" })?;
        let mut between = '?';
        match &self.address {
            Address::Tcp { host, port } => {
                if host.contains(':') {
                    write!(f, "://[{host}]")?;
                } else {
                    write!(f, "://{host}")?;
                }
                if *port != DEFAULT_PORT {
                    write!(f, ":{port}")?;
                }
                f.write_str("/")?;
                encode(f, &self.export)?;
            }
            Address::Unix(path) => {
                f.write_str("+unix:///")?;
                encode(f, &self.export)?;
                f.write_str("?socket=")?;
                encode(f, &path.to_string_lossy())?;
                between = '&';
            }
        }
        let Some(tls) = &self.tls else { return Ok(()) };
        let path = |path: &Option<PathBuf>| path.as_ref().map(|p| p.to_string_lossy().into_owned());
        for (key, value) in [
            ("tls-certificates", path(&tls.certificates)),
            ("tls-psk-file", path(&tls.psk_file)),
            ("tls-username", tls.username.clone()),
            ("tls-hostname", tls.hostname.clone()),
        ] {
            let Some(value) = value else { continue };
            write!(f, "{between}{key}=")?;
            encode(f, &value)?;
            between = '&';
        }
        Ok(())
    }
}
