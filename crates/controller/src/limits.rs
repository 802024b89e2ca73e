//! What protects the controller from its clients.

use std::time::Duration;

/// Longest body of a request, but for agents. Orders are short; protects memory.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;

/// Longest message of an agent: a report of 10,000 volumes has some 40 MiB at worst. Protects memory.
pub(crate) const AGENT_BODY_BYTES_MAX: usize = 64 << 20;

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
            write_time: Duration::from_secs(10),
        }
    }
}
