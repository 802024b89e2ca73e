//! Bodies of requests, with one budget of bytes for all bodies.
//!
//! ```text
//!  chunk ─▶ room in the buffer? ─▶ reserve more of the budget ─▶ buffer grows ─▶ … ─▶ route ─▶ given back
//!                                   └ used up: 503
//! ```
//!
//! Memory is reserved before the buffer grows, so incomplete bodies never take more memory than the budget. The reservation lasts
//! until the reply. Each caller has a share of the budget, so one agent cannot block the reports of others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::limits::{BODY_BYTES_MAX, Limits};
use crate::problem::Problem;

/// First reservation of a body, bytes. It suffices for most orders.
const FIRST_BYTES: usize = 16 << 10;

/// Budget of bytes, and the share of each caller.
pub(crate) struct Bodies {
    total_max: usize,
    caller_max: usize,
    held: Mutex<BodyReservations>,
}

#[derive(Default)]
struct BodyReservations {
    total: usize,
    /// Bytes by name of the caller; callers without a reservation have no entry.
    callers: BTreeMap<String, usize>,
}

impl Bodies {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            total_max: limits.bodies_bytes_max,
            caller_max: limits.caller_bytes_max,
            held: Mutex::default(),
        })
    }

    /// Returns the reserved bytes.
    pub(crate) fn reserved(&self) -> usize {
        self.lock().total
    }

    fn lock(&self) -> MutexGuard<'_, BodyReservations> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an empty body.
    pub(crate) fn empty(self: &Arc<Self>, caller: &str) -> ReceivedBody {
        ReceivedBody {
            bodies: self.clone(),
            caller: caller.into(),
            reserved: 0,
            bytes: vec![],
        }
    }

    /// Reads a body to its end.
    ///
    /// # Errors
    /// 413 for a body longer than `most`, 503 when the budget is used up, 408 for a slow sender.
    pub(crate) async fn read(
        self: &Arc<Self>,
        caller: &str,
        headers: &HeaderMap,
        body: Body,
        most: usize,
        limits: &Limits,
    ) -> Result<ReceivedBody, Problem> {
        let mut received = self.empty(caller);
        let length = headers.get(CONTENT_LENGTH).and_then(|l| l.to_str().ok());
        let length: Option<usize> = length.and_then(|l| l.parse().ok());
        if length.is_some_and(|l| l > most) {
            return Err(too_long(most));
        }
        let end = Instant::now() + limits.body_time;
        let mut body = body;
        loop {
            let pause = Instant::now() + limits.body_pause;
            let frame = match timeout_at(end.min(pause), body.frame()).await {
                Err(_) => return Err(too_slow(limits, pause < end)),
                Ok(None) => return Ok(received),
                // The client has closed the connection and gets no reply.
                Ok(Some(Err(_))) => return Err(Problem::invalid("the body is incomplete")),
                Ok(Some(Ok(frame))) => frame,
            };
            if let Ok(chunk) = frame.into_data() {
                received.push(&chunk, length, most)?;
            }
        }
    }
}

fn too_long(most: usize) -> Problem {
    let words = match most {
        0 => "this route accepts no body".to_owned(),
        most => format!("the body is longer than {most} bytes"),
    };
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, words)
}

fn too_slow(limits: &Limits, paused: bool) -> Problem {
    let words = match paused {
        true => format!("no byte of the body arrived for {:?}", limits.body_pause),
        false => format!("the body did not arrive within {:?}", limits.body_time),
    };
    Problem::new(StatusCode::REQUEST_TIMEOUT, words)
}

/// Received part of a body, with its reservation.
pub(crate) struct ReceivedBody {
    bodies: Arc<Bodies>,
    caller: String,
    reserved: usize,
    bytes: Vec<u8>,
}

impl ReceivedBody {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns true for a body that only agents may send.
    pub(crate) fn is_long(&self) -> bool {
        self.bytes.len() > BODY_BYTES_MAX
    }

    fn push(&mut self, chunk: &[u8], length: Option<usize>, most: usize) -> Result<(), Problem> {
        let needed = self.bytes.len() + chunk.len();
        if needed > most {
            return Err(too_long(most));
        }
        if needed > self.reserved {
            // The buffer doubles, so a long body is copied only a few times.
            let doubled = needed.max(2 * self.reserved).max(FIRST_BYTES);
            self.reserve(doubled.min(length.unwrap_or(most).max(needed)))?;
            self.bytes.reserve_exact(self.reserved - self.bytes.len());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), Problem> {
        let more = bytes - self.reserved;
        let mut held = self.bodies.lock();
        let of_caller = held.callers.get(&self.caller).copied().unwrap_or(0);
        let (total_max, caller_max) = (self.bodies.total_max, self.bodies.caller_max);
        if of_caller + more > caller_max {
            let words = format!(
                "bodies of {:?} in flight have {of_caller} bytes, {more} more exceed its share of {caller_max}: send one request after the other",
                self.caller
            );
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, words));
        }
        if held.total + more > total_max {
            let words = format!(
                "bodies in flight have {} bytes, {more} more exceed the limit of {total_max}: send again in a few seconds",
                held.total
            );
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, words));
        }
        held.total += more;
        *held.callers.entry(self.caller.clone()).or_default() += more;
        self.reserved = bytes;
        Ok(())
    }
}

impl Drop for ReceivedBody {
    fn drop(&mut self) {
        // The memory is freed before its reservation.
        self.bytes = vec![];
        let mut held = self.bodies.lock();
        held.total -= self.reserved;
        if let Some(of_caller) = held.callers.get_mut(&self.caller) {
            *of_caller -= self.reserved;
            if *of_caller == 0 {
                held.callers.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(total: usize, caller: usize) -> Arc<Bodies> {
        Bodies::new(&Limits {
            bodies_bytes_max: total,
            caller_bytes_max: caller,
            ..Limits::default()
        })
    }

    #[test]
    fn half_sent_bodies_share_one_budget() {
        let bodies = bodies(1 << 20, 600 << 10);
        let chunk = vec![0; 64 << 10];
        let mut sent: Vec<ReceivedBody> = vec![];
        let mut refused = 0;
        for agent in 0..24 {
            let mut body = bodies.empty(&format!("agent-{agent}"));
            for _ in 0..4 {
                match body.push(&chunk, Some(64 << 20), 64 << 20) {
                    Ok(()) => {}
                    Err(problem) => {
                        assert_eq!(problem.status, StatusCode::SERVICE_UNAVAILABLE);
                        assert!(problem.words().contains("limit of 1048576"));
                        refused += 1;
                        break;
                    }
                }
            }
            sent.push(body);
            assert!(bodies.reserved() <= 1 << 20);
        }
        assert!(refused > 0);
        let buffers: usize = sent.iter().map(|b| b.bytes.capacity()).sum();
        assert!(buffers <= bodies.reserved(), "{buffers}");
        drop(sent);
        assert_eq!(bodies.reserved(), 0);
        assert!(bodies.lock().callers.is_empty());
    }

    #[test]
    fn body_budget_of_one_caller_leaves_room_for_others() {
        let bodies = bodies(1 << 20, 512 << 10);
        let chunk = vec![0; 300 << 10];
        let mut first = bodies.empty("alpha");
        first.push(&chunk, Some(300 << 10), 64 << 20).unwrap();
        let mut second = bodies.empty("alpha");
        let refused = second.push(&chunk, Some(300 << 10), 64 << 20).unwrap_err();
        assert!(
            refused.words().contains("its share of 524288"),
            "{}",
            refused.words()
        );
        bodies
            .empty("beta")
            .push(&chunk, Some(300 << 10), 64 << 20)
            .unwrap();
        drop(first);
        second.push(&chunk, Some(300 << 10), 64 << 20).unwrap();
    }

    #[test]
    fn body_of_unknown_length_is_limited() {
        let bodies = bodies(1 << 20, 1 << 20);
        let mut body = bodies.empty("alpha");
        body.push(&[0; 1000], None, 1500).unwrap();
        let refused = body.push(&[0; 1000], None, 1500).unwrap_err();
        assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(bodies.reserved(), 1500);
    }
}
