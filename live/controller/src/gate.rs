//! Limits for callers without a valid token, by address, and counters of rejections.
//!
//! ```text
//!  accept ─▶ connections of the address left? ─▶ request ─▶ valid token ─▶ the connection is trusted: no limits
//!             └ no: closed                         └ no or invalid token: takes one from the address's allowance
//!                                                     └ used up: 429, and tokens are not compared
//! ```
//!
//! A connection is no longer trusted after a rejection on it. The gate does not apply to the unix socket, where the kernel
//! identifies callers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{ADDRESSES_MAX, Limits, REFUSALS_PAUSE};

/// Maximum number of addresses in a log line.
const NAMED_MAX: usize = 5;

/// Reason for the rejection of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RejectReason {
    /// Unknown token.
    Unknown,
    /// Expired token.
    Expired,
    /// Ended or unknown session of the page.
    Session,
    /// No token and no session.
    Missing,
    /// Too many requests without a valid token.
    Requests,
    /// Too many connections without a valid token.
    Connections,
}

impl RejectReason {
    pub(crate) const ALL: [Self; 6] = [
        Self::Unknown,
        Self::Expired,
        Self::Session,
        Self::Missing,
        Self::Requests,
        Self::Connections,
    ];

    /// Returns the name in the metric and the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown token",
            Self::Expired => "expired token",
            Self::Session => "ended session",
            Self::Missing => "no token",
            Self::Requests => "too many requests",
            Self::Connections => "too many connections",
        }
    }

    /// Returns false for reasons that are normal for browsers: no token before the sign-in, an ended session later.
    fn is_suspicious(self) -> bool {
        !matches!(self, Self::Missing | Self::Session)
    }
}

/// Callers that share a limit: an IPv4 address, or an IPv6 network of 64 bits, because one customer usually has all of its
/// addresses. `None` stands for all addresses that do not fit in the table.
type Source = Option<IpAddr>;

fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::from(v6) & !u128::from(u64::MAX);
            Ipv6Addr::from(network).into()
        }
        v4 => v4,
    }
}

struct Entry {
    connections: usize,
    /// Number of requests left at `at`.
    allowance: f64,
    at: Instant,
    /// Number of rejections that are not logged yet.
    unsaid: u64,
}

pub(crate) struct Gate {
    connections_max: usize,
    burst: f64,
    per_second: f64,
    table: Mutex<BTreeMap<Source, Entry>>,
    refused: [AtomicU64; RejectReason::ALL.len()],
    said: Mutex<LoggedRejections>,
}

/// Rejections in the last log line.
#[derive(Default)]
struct LoggedRejections {
    at: Option<Instant>,
    refused: [u64; RejectReason::ALL.len()],
}

impl Gate {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            connections_max: limits.unknown_connections_max,
            burst: f64::from(limits.unknown_burst),
            per_second: f64::from(limits.unknown_per_second),
            table: Mutex::default(),
            refused: Default::default(),
            said: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Source, Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the entry of an address, with its allowance at `now`. Addresses that do not fit in the table share an entry.
    fn with<R>(&self, of: Source, now: Instant, change: impl FnOnce(&mut Entry) -> R) -> R {
        let mut table = self.lock();
        let entry = table.entry(of).or_insert(Entry {
            connections: 0,
            allowance: self.burst,
            at: now,
            unsaid: 0,
        });
        let passed = now.saturating_duration_since(entry.at).as_secs_f64();
        entry.allowance = (entry.allowance + passed * self.per_second).min(self.burst);
        entry.at = now;
        change(entry)
    }

    /// Adds a connection of an address; `None` if the address has too many connections without a valid token.
    pub(crate) fn connect(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
    ) -> Option<Arc<Connection>> {
        let of = Some(source(address));
        let known = {
            let table = self.lock();
            table.contains_key(&of) || table.len() < ADDRESSES_MAX
        };
        let source = of.filter(|_| known);
        let taken = self.with(source, now, |entry| {
            let room = entry.connections < self.connections_max;
            entry.connections += usize::from(room);
            room
        });
        if !taken {
            self.refuse(source, RejectReason::Connections, now);
            return None;
        }
        Some(Arc::new(Connection {
            gate: self.clone(),
            source,
            trusted: AtomicBool::new(false),
        }))
    }

    fn refuse(&self, source: Source, why: RejectReason, now: Instant) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
        if why.is_suspicious() {
            self.with(source, now, |entry| entry.unsaid += 1);
        }
    }

    /// Returns the number of rejected connections and requests since the start.
    pub(crate) fn refused(&self, why: RejectReason) -> u64 {
        self.refused[why as usize].load(Ordering::Relaxed)
    }

    /// Describes the rejections since the last description, at most once a minute, for log and audit.
    /// Removes addresses without unreported rejections and with a full allowance.
    pub(crate) fn take_refusals(&self, now: Instant) -> Option<String> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let recently = said
            .at
            .is_some_and(|at| now.saturating_duration_since(at) < REFUSALS_PAUSE);
        let mut table = self.lock();
        let full = Duration::from_secs_f64(self.burst / self.per_second);
        table.retain(|_, entry| {
            let idle = entry.connections == 0 && entry.unsaid == 0;
            !idle || now.saturating_duration_since(entry.at) < full
        });
        if recently || table.values().all(|entry| entry.unsaid == 0) {
            return None;
        }
        let mut addresses: Vec<(u64, Source)> = table
            .iter_mut()
            .map(|(source, entry)| (std::mem::take(&mut entry.unsaid), *source))
            .filter(|(count, _)| *count > 0)
            .collect();
        drop(table);
        said.at = Some(now);
        addresses.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut reasons = vec![];
        for why in RejectReason::ALL
            .into_iter()
            .filter(|why| why.is_suspicious())
        {
            let all = self.refused(why);
            let new = all - std::mem::replace(&mut said.refused[why as usize], all);
            if new > 0 {
                reasons.push(format!("{} ({new})", why.name()));
            }
        }
        let named = addresses
            .iter()
            .take(NAMED_MAX)
            .map(|(count, source)| match source {
                Some(address) => format!("{address} ({count})"),
                None => format!("addresses beyond {ADDRESSES_MAX} ({count})"),
            });
        let mut named: Vec<String> = named.collect();
        if addresses.len() > NAMED_MAX {
            named.push(format!("{} more", addresses.len() - NAMED_MAX));
        }
        Some(format!(
            "rejected callers without a valid token: {}; from {}",
            reasons.join(", "),
            named.join(", ")
        ))
    }
}

/// Peer of a TLS connection.
pub(crate) struct Connection {
    gate: Arc<Gate>,
    source: Source,
    /// True after a valid token, until a rejection.
    trusted: AtomicBool,
}

impl Connection {
    /// Takes one request from the allowance for callers without a valid token; returns false if it is used up.
    pub(crate) fn take(&self, now: Instant) -> bool {
        self.is_trusted()
            || self.gate.with(self.source, now, |entry| {
                let left = entry.allowance >= 1.0;
                entry.allowance -= if left { 1.0 } else { 0.0 };
                left
            })
    }

    /// Returns true if a token of this caller may be compared.
    pub(crate) fn may_try(&self, now: Instant) -> bool {
        self.is_trusted()
            || self
                .gate
                .with(self.source, now, |entry| entry.allowance >= 1.0)
    }

    fn is_trusted(&self) -> bool {
        self.trusted.load(Ordering::Acquire)
    }

    /// Marks the connection as trusted after a valid token.
    pub(crate) fn trust(&self, now: Instant) {
        if !self.trusted.swap(true, Ordering::AcqRel) {
            self.gate
                .with(self.source, now, |entry| entry.connections -= 1);
        }
    }

    /// Counts a rejected request.
    pub(crate) fn refuse(&self, why: RejectReason, now: Instant) {
        if self.trusted.swap(false, Ordering::AcqRel) {
            self.gate
                .with(self.source, now, |entry| entry.connections += 1);
        }
        self.gate.refuse(self.source, why, now);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_trusted() {
            let now = Instant::now();
            self.gate
                .with(self.source, now, |entry| entry.connections -= 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Arc<Gate> {
        Gate::new(&Limits {
            unknown_connections_max: 2,
            unknown_burst: 3,
            unknown_per_second: 1,
            ..Limits::default()
        })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn token_guesses_of_an_address_are_limited_and_recover() {
        let (gate, now) = (gate(), Instant::now());
        let caller = gate.connect(ip("192.0.2.1"), now).unwrap();
        for _ in 0..3 {
            assert!(caller.may_try(now) && caller.take(now));
            caller.refuse(RejectReason::Unknown, now);
        }
        assert!(!caller.may_try(now) && !caller.take(now));
        // Another address has its own allowance; a second connection from this one shares its allowance.
        assert!(gate.connect(ip("192.0.2.2"), now).unwrap().may_try(now));
        assert!(
            !gate
                .connect(ip("::ffff:192.0.2.1"), now)
                .unwrap()
                .may_try(now)
        );
        let later = now + Duration::from_secs(1);
        assert!(caller.take(later) && !caller.take(later));
        let said = gate.take_refusals(later).unwrap();
        assert!(
            said.contains("unknown token (3); from 192.0.2.1 (3)"),
            "{said}"
        );
        // Without new rejections nothing is reported, and at most once a minute.
        assert_eq!(gate.take_refusals(later), None);
        caller.refuse(RejectReason::Unknown, later);
        assert_eq!(gate.take_refusals(later), None);
        assert!(gate.take_refusals(later + REFUSALS_PAUSE).is_some());
        assert_eq!(gate.refused(RejectReason::Unknown), 4);
    }

    #[test]
    fn connections_without_a_token_are_counted_by_address() {
        let (gate, now) = (gate(), Instant::now());
        let first = gate.connect(ip("2001:db8::1"), now).unwrap();
        let second = gate.connect(ip("2001:db8::2"), now).unwrap();
        // Addresses of one network of 64 bits share a limit.
        assert!(gate.connect(ip("2001:db8::ffff:3"), now).is_none());
        assert!(gate.connect(ip("2001:db8:0:1::1"), now).is_some());
        first.trust(now);
        let third = gate.connect(ip("2001:db8::3"), now).unwrap();
        drop((second, third));
        drop(gate.connect(ip("2001:db8::4"), now).unwrap());
        // After a rejection, the first connection counts again.
        first.refuse(RejectReason::Unknown, now);
        let _fourth = gate.connect(ip("2001:db8::4"), now).unwrap();
        assert!(gate.connect(ip("2001:db8::5"), now).is_none());
        assert_eq!(gate.refused(RejectReason::Connections), 2);
    }

    #[test]
    fn address_table_is_bounded() {
        let (gate, now) = (gate(), Instant::now());
        for i in 0..2 * ADDRESSES_MAX as u32 {
            drop(gate.connect(std::net::Ipv4Addr::from(i).into(), now));
        }
        assert!(gate.lock().len() <= ADDRESSES_MAX + 1);
        // After a minute all entries have been removed.
        let later = now + Duration::from_secs(60);
        gate.take_refusals(later);
        gate.take_refusals(later + REFUSALS_PAUSE);
        assert!(gate.lock().is_empty(), "{}", gate.lock().len());
    }
}
