//! What protects the controller from its clients.

use std::time::Duration;

/// Longest body of a request, but for agents. Orders are short; protects memory.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;

/// Longest message of an agent: a report of 10,000 volumes has some 40 MiB at worst. Protects memory.
pub(crate) const AGENT_BODY_BYTES_MAX: usize = 64 << 20;

/// All bodies in flight together: three of the longest messages. Protects memory.
const BODIES_BYTES_MAX: usize = 3 * AGENT_BODY_BYTES_MAX;

/// Addresses with an entry of their own in the table of callers without a valid token. Protects
/// memory; addresses beyond share one entry.
pub(crate) const ADDRESSES_MAX: usize = 4096;

/// Refusals are logged at most so often. Protects the log and the audit.
pub(crate) const REFUSALS_PAUSE: Duration = Duration::from_secs(60);

/// A session of the page ends after so long.
pub(crate) const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);

/// Longest form with a token. Anybody may send one; protects memory.
pub(crate) const SIGN_IN_BYTES_MAX: usize = 4 << 10;

/// Sessions of the page at the same time. Protects memory.
pub(crate) const SESSIONS_MAX: usize = 1024;

/// Sessions of one token: a caller with one token cannot end those of others.
pub(crate) const SESSIONS_OF_TOKEN_MAX: usize = 32;

/// Longest head of a request; longer ones are answered with 431. Protects memory.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;

/// What is read of a connection at a time. Enough that long reports do not come in crumbs; protects memory.
pub(crate) const READ_BYTES_MAX: usize = 64 << 10;

/// Answers that are worked on at the same time. The service takes one call at a time; the others render, or wait.
pub(crate) const WORKERS_MAX: usize = 8;

/// Rows of a list, at most: events, jobs and outcomes are kept for long.
pub(crate) const ROWS_MAX: usize = 1000;

/// Rows of a list when nobody says how many.
pub(crate) const ROWS_DEFAULT: usize = 100;

/// Connections that wait to be accepted. More are refused by the system.
pub(crate) const BACKLOG: i32 = 128;

/// A stopping controller finishes answers for so long.
pub(crate) const STOP_TIME: Duration = Duration::from_secs(5);

/// How often the service is told the time.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Limits of the clients of each listener: those who come over the network cannot shut out the operator at the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time; more are closed at once. Protects memory and file descriptors.
    pub connections_max: usize,
    /// A TLS handshake must be complete after this long. Frees connections of clients that hang.
    pub handshake_time: Duration,
    /// The head of a request must be complete so long after the connection was opened, or the request before it answered. So
    /// this also is how long an idle connection is kept.
    pub head_time: Duration,
    /// The body of a request must be complete so long after its head.
    pub body_time: Duration,
    /// A client that sends no byte of a body for so long is cut off.
    pub body_pause: Duration,
    /// Bytes of all bodies in flight, of all listeners together; more are refused with 503.
    /// Protects memory.
    pub bodies_bytes_max: usize,
    /// The share of one caller in them: one longest message. Protects the other callers.
    pub caller_bytes_max: usize,
    /// Connections of one address without a valid token; more are closed at once. Protects the
    /// connections of others.
    pub unknown_connections_max: usize,
    /// Requests without a valid token that one address may send at once, and then per second;
    /// more are refused with 429. Protects against guessing and floods.
    pub unknown_burst: u32,
    pub unknown_per_second: u32,
    /// A client that takes no byte of its answer for so long is cut off.
    pub write_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            handshake_time: Duration::from_secs(10),
            head_time: Duration::from_secs(30),
            body_time: Duration::from_secs(60),
            body_pause: Duration::from_secs(10),
            bodies_bytes_max: BODIES_BYTES_MAX,
            caller_bytes_max: AGENT_BODY_BYTES_MAX,
            unknown_connections_max: 32,
            unknown_burst: 50,
            unknown_per_second: 5,
            write_time: Duration::from_secs(10),
        }
    }
}
