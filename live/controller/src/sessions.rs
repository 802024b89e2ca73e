//! Sessions of the page. The cookie has a random number instead of the token.
//!
//! A session is valid while its token is, and for [`SESSION_TIME`] at most. It ends with the sign-out and with the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ring::rand::{SecureRandom, SystemRandom};

use crate::limits::{SESSION_TIME, SESSIONS_MAX, SESSIONS_OF_TOKEN_MAX};
use crate::tokens::{Digest, digest};

#[derive(Default)]
pub(crate) struct Sessions(Mutex<BTreeMap<Digest, Session>>);

struct Session {
    token: Digest,
    begun: Instant,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Digest, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a session of a token and returns its id for the cookie. Ends the oldest session if the limit is reached.
    pub(crate) fn begin(&self, token: Digest, now: Instant) -> Option<String> {
        let mut random = [0; 32];
        SystemRandom::new().fill(&mut random).ok()?;
        let id: String = random.iter().map(|b| format!("{b:02x}")).collect();
        let mut all = self.lock();
        all.retain(|_, s| !is_over(s, now));
        let of_token = all.values().filter(|s| s.token == token).count();
        let any = all.len() >= SESSIONS_MAX;
        if any || of_token >= SESSIONS_OF_TOKEN_MAX {
            let counted = all.iter().filter(|(_, s)| any || s.token == token);
            let oldest = counted.min_by_key(|(_, s)| s.begun).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                all.remove(&oldest);
            }
        }
        all.insert(digest(id.as_bytes()), Session { token, begun: now });
        Some(id)
    }

    /// Returns the token of a valid session.
    pub(crate) fn find(&self, id: &[u8], now: Instant) -> Option<Digest> {
        let all = self.lock();
        let session = all.get(&digest(id)).filter(|s| !is_over(s, now))?;
        Some(session.token)
    }

    pub(crate) fn end(&self, id: &[u8]) {
        self.lock().remove(&digest(id));
    }

    /// Ends the sessions of all tokens except those for which `is_token` is true.
    pub(crate) fn keep(&self, is_token: impl Fn(&Digest) -> bool) {
        self.lock().retain(|_, s| is_token(&s.token));
    }
}

fn is_over(session: &Session, now: Instant) -> bool {
    now.saturating_duration_since(session.begun) >= SESSION_TIME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_end_by_time_sign_out_and_token_removal() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let (a, b) = (digest(b"a"), digest(b"b"));
        let first = sessions.begin(a, now).unwrap();
        let second = sessions.begin(b, now).unwrap();
        assert!(first.len() == 64 && first != second);
        assert_eq!(sessions.find(first.as_bytes(), now), Some(a));
        assert_eq!(sessions.find(b"0", now), None);
        assert_eq!(sessions.find(first.as_bytes(), now + SESSION_TIME), None);
        sessions.end(first.as_bytes());
        assert_eq!(sessions.find(first.as_bytes(), now), None);
        sessions.keep(|token| *token != b);
        assert_eq!(sessions.find(second.as_bytes(), now), None);
    }

    #[test]
    fn oldest_session_of_a_token_is_evicted() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let (a, b) = (digest(b"a"), digest(b"b"));
        let other = sessions.begin(b, now).unwrap();
        let later = |i: usize| now + std::time::Duration::from_secs(i as u64);
        let ids: Vec<String> = (0..=SESSIONS_OF_TOKEN_MAX)
            .map(|i| sessions.begin(a, later(i)).unwrap())
            .collect();
        assert_eq!(sessions.find(ids[0].as_bytes(), now), None);
        assert_eq!(sessions.find(ids[1].as_bytes(), now), Some(a));
        assert_eq!(sessions.find(other.as_bytes(), now), Some(b));
    }
}
