//! The token file: who may connect over TLS, and as what.
//!
//! ```text
//! # ROLE NAME SECRET, one per line; read by the controller's user only (mode 0600)
//! read    grafana  Zm9yIGdyYWZhbmE...
//! operate alice    c29tZSBzZWNyZXQ...
//! agent   alpha    dGhlIGFnZW50IG9m...     # may register and report as host alpha
//! ```

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use subtle::ConstantTimeEq;

use crate::access::{Caller, Role, Through};
use crate::server::StartError;

/// Shortest secret that is taken: nobody counts failed guesses here, so guessing must be hopeless.
const SECRET_CHARS_MIN: usize = 16;

/// Longest token file. Protects memory from a wrong path.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// All tokens; the secrets only as their SHA-256.
#[derive(Default)]
pub(crate) struct Tokens(Vec<Token>);

struct Token {
    role: Role,
    name: String,
    digest: [u8; 32],
}

fn digest(secret: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, secret);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

impl Tokens {
    pub(crate) fn read(path: &Path) -> Result<Self, StartError> {
        let failed = |why: String| StartError::Tokens {
            path: path.into(),
            why,
        };
        let metadata = std::fs::metadata(path).map_err(|e| failed(e.to_string()))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(StartError::Open { path: path.into() });
        }
        if metadata.len() > FILE_BYTES_MAX {
            return Err(failed(format!("it is longer than {FILE_BYTES_MAX} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
        Self::parse(&text).map_err(failed)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut tokens: Vec<Token> = vec![];
        for (i, line) in text.lines().enumerate() {
            // A secret has no `#` in it.
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let token = Token::parse(line).map_err(|why| format!("line {}: {why}", i + 1))?;
            if tokens.iter().any(|t| t.digest == token.digest) {
                return Err(format!("line {}: this secret is there already", i + 1));
            }
            tokens.push(token);
        }
        match tokens.is_empty() {
            true => Err("there is no token in it, so nobody could connect".into()),
            false => Ok(Self(tokens)),
        }
    }

    /// Whose secret this is. Takes the same time whichever token it is, and whether it is one.
    pub(crate) fn find(&self, secret: &[u8], through: Through) -> Option<Caller> {
        let digest = digest(secret);
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.digest.ct_eq(&digest)) {
                found = Some(token);
            }
        }
        found.map(|token| Caller {
            role: token.role,
            name: token.name.clone(),
            through,
        })
    }
}

impl Token {
    fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [role, name, secret] = words[..] else {
            return Err("a line is ROLE NAME SECRET".into());
        };
        let Some(role) = Role::named(role) else {
            return Err(format!(
                "there is no role {role:?}: read, operate, admin or agent"
            ));
        };
        if secret.len() < SECRET_CHARS_MIN {
            return Err(format!(
                "the secret has fewer than {SECRET_CHARS_MIN} characters: make one with `openssl rand -hex 32`"
            ));
        }
        // What goes through a header, a cookie and a URL as it is.
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        if !secret.bytes().all(plain) {
            return Err("a secret has only letters, digits and - . _ ~".into());
        }
        Ok(Self {
            role,
            name: name.into(),
            digest: digest(secret.as_bytes()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0123456789abcdef";
    const B: &str = "fedcba9876543210";

    #[test]
    fn a_secret_finds_its_token() {
        let text = format!("# all\n\nread grafana {A}\n agent alpha {B} # its agent\n");
        let tokens = Tokens::parse(&text).unwrap();
        let find = |secret: &str| tokens.find(secret.as_bytes(), Through::Header);
        assert_eq!(
            find(A).map(|c| (c.role, c.name)),
            Some((Role::Read, "grafana".into()))
        );
        assert_eq!(
            find(B).map(|c| (c.role, c.name)),
            Some((Role::Agent, "alpha".into()))
        );
        for wrong in ["", "0123456789abcde", "0123456789abcdef0", "grafana"] {
            assert!(find(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn wrong_lines_are_named() {
        let refused = |text: &str| Tokens::parse(text).err().expect("it is wrong");
        assert!(refused("\n# nothing\n").contains("no token"));
        assert_eq!(refused("\nread x"), "line 2: a line is ROLE NAME SECRET");
        assert!(refused(&format!("root x {A}")).starts_with("line 1: there is no role \"root\""));
        assert!(refused("read x short").contains("fewer than 16"));
        assert!(refused("read x 0123456789;abcdef").contains("letters, digits"));
        let twice = refused(&format!("read x {A}\nadmin y {A}"));
        assert_eq!(twice, "line 2: this secret is there already");
    }
}
