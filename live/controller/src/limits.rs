//! Limits that protect the controller from its clients.

use std::time::Duration;

/// Maximum body of a request, except of agents, bytes. Protects memory.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;

/// Maximum message of an agent, bytes; a report of 10,000 volumes has at most about 40 MiB. Protects memory.
pub(crate) const AGENT_BODY_BYTES_MAX: usize = 64 << 20;

/// Total size of bodies in flight: three messages of maximum size. Protects memory.
const BODIES_BYTES_MAX: usize = 3 * AGENT_BODY_BYTES_MAX;

/// Maximum number of addresses in the table of callers without a valid token; further addresses share one entry. Protects
/// memory.
pub(crate) const ADDRESSES_MAX: usize = 4096;

/// Minimum time between two log lines about rejections. Protects the log and the audit.
pub(crate) const REFUSALS_PAUSE: Duration = Duration::from_secs(60);

/// Maximum length of a session of the page.
pub(crate) const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);

/// Maximum size of the sign-in form, bytes. Unauthenticated clients may send it. Protects memory.
pub(crate) const SIGN_IN_BYTES_MAX: usize = 4 << 10;

/// Maximum number of concurrent sessions of the page. Protects memory.
pub(crate) const SESSIONS_MAX: usize = 1024;

/// Maximum number of sessions of one token. Protects the sessions of other tokens.
pub(crate) const SESSIONS_OF_TOKEN_MAX: usize = 32;

/// Maximum size of the head of a request, bytes; longer heads get the status 431. Protects memory.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Size of a read from a connection, bytes: large enough for long reports. Protects memory.
pub(crate) const READ_BYTES_MAX: usize = 64 << 10;

/// Number of worker threads for requests. The service handles one call at a time; the other workers render or wait.
pub(crate) const WORKERS_MAX: usize = 8;

/// Maximum number of rows of a list of events, jobs or outcomes. Protects memory.
pub(crate) const ROWS_MAX: usize = 1000;

/// Default number of rows of a list.
pub(crate) const ROWS_DEFAULT: usize = 100;

/// Maximum number of connections that wait for an accept; the system rejects more.
pub(crate) const BACKLOG: i32 = 128;

/// Time that a stopping controller waits for running requests.
pub(crate) const STOP_TIME: Duration = Duration::from_secs(5);

/// Interval in which the service gets the time.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Limits of the clients of each listener. They are separate, so network clients cannot block the operator at the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent connections; more are closed at once. Protects memory and file descriptors.
    pub connections_max: usize,
    /// Maximum time of a TLS handshake. Frees connections of hanging clients.
    pub handshake_time: Duration,
    /// Maximum time from the start of a connection or the previous reply to the end of the next head. It also limits idle
    /// connections.
    pub head_time: Duration,
    /// Maximum time from the end of the head to the end of the body.
    pub body_time: Duration,
    /// Maximum pause within a body; then the connection is closed.
    pub body_pause: Duration,
    /// Total size of bodies in flight of all listeners, bytes; more get the status 503. Protects memory.
    pub bodies_bytes_max: usize,
    /// Maximum share of one caller in this total: one message of maximum size. Protects the other callers.
    pub caller_bytes_max: usize,
    /// Maximum number of connections of one address without a valid token; more are closed at once. Protects connections of
    /// other addresses.
    pub unknown_connections_max: usize,
    /// Number of requests without a valid token that one address may send at once, and then per second; more get the status
    /// 429. Protects against guesses and floods.
    pub unknown_burst: u32,
    pub unknown_per_second: u32,
    /// Maximum time in which a client accepts no byte of its reply; then the connection is closed.
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
