//! Addresses of controllers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::ClientError;

/// Address of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Path of its socket on this machine.
    Unix(PathBuf),
    /// Host and port of its TLS interface.
    Https {
        /// Host name or address, without brackets.
        host: String,
        port: u16,
    },
}

impl FromStr for Address {
    type Err = ClientError;

    /// Parses `unix:PATH` or `https://HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, ClientError> {
        if let Some(path) = text.strip_prefix("unix:").filter(|p| !p.is_empty()) {
            return Ok(Address::Unix(path.into()));
        }
        let unknown = || ClientError::Address(text.into());
        let rest = text.strip_prefix("https://").ok_or_else(unknown)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or_else(unknown)?;
        let port = port.parse().map_err(|_| unknown())?;
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let host = match inner {
            Some(inner) if inner.contains(':') => inner,
            None if !host.contains([':', '[', ']']) => host,
            _ => return Err(unknown()),
        };
        let sensible = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
        if host.is_empty() || !host.chars().all(sensible) {
            return Err(unknown());
        }
        let host = host.to_owned();
        Ok(Address::Https { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Https { .. } => write!(f, "https://{}", self.authority()),
        }
    }
}

impl Address {
    /// Returns the value of the `Host` header.
    pub(crate) fn authority(&self) -> String {
        match self {
            Address::Unix(_) => "localhost".into(),
            Address::Https { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Address::Https { host, port } => format!("{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_and_print() {
        for text in [
            "unix:/run/terrace.sock",
            "unix:here.sock",
            "https://storage-1.example:9443",
            "https://127.0.0.1:1",
            "https://[::1]:9443",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!(
            "https://a:1/".parse::<Address>().unwrap(),
            "https://a:1".parse().unwrap()
        );
    }

    #[test]
    fn invalid_address_is_refused_with_the_expected_form() {
        for text in [
            "",
            "unix:",
            "/run/terrace.sock",
            "http://a:1",
            "https://a",
            "https://:1",
            "https://a:x",
            "https://::1:9443",
            "https://[a]:1",
            "https://a/b:1",
            "https://u@a:1",
        ] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains("unix:PATH or https://HOST:PORT"), "{error}");
        }
    }
}
