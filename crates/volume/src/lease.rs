//! The lease on an array: one controller at a time gives orders.
//!
//! ```text
//!            claim: nobody has it, or it has ended
//!   free ──────────────────────────────────────────▶ held ◀──┐ claim of the holder: renewed
//!     ▲                                                │ │ └─┘
//!     └────────── not renewed for `lasting` ───────────┘ └──▶ claim of a later start on the same
//!                                                             store: taken at once; of others: refused
//! ```
//!
//! Times are of the host's monotonic clock. The module reads no clock and writes nothing down:
//! the caller does both.

use model::{ControllerId, LeaseHolder, LeaseStatus};
use units::Nanos;

/// Longest time that a lease lasts without renewal. Limits the time for which a controller that is
/// gone, with an extreme length of its windows, keeps its successor out.
pub const LEASE_MAX: Nanos = Nanos::from_secs(3600);

/// The lease, and the last claim that was refused.
#[derive(Debug, Clone, Default)]
pub struct Lease {
    held: Option<Held>,
    /// A controller that was refused, and the time until which it may still be running.
    refused: Option<(LeaseHolder, u64)>,
}

#[derive(Debug, Clone)]
struct Held {
    holder: LeaseHolder,
    until_ns: u64,
}

/// The result of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseClaim {
    /// The claimant had the lease already.
    Renewed,
    /// The claimant has the lease now, and did not have it before.
    Taken,
    /// Another controller has the lease.
    Refused,
}

impl Lease {
    /// The lease of a holder that was written down earlier: it ends at `until_ns` unless renewed.
    pub fn found(holder: LeaseHolder, until_ns: u64) -> Self {
        Self {
            held: Some(Held { holder, until_ns }),
            refused: None,
        }
    }

    /// A controller wants the lease for the given time.
    pub fn claim(&mut self, now_ns: u64, by: &LeaseHolder, lasting: Nanos) -> LeaseClaim {
        let until_ns = now_ns.saturating_add(lasting.min(LEASE_MAX).0);
        let claim = match &self.held {
            Some(held) if held.holder.id == by.id => LeaseClaim::Renewed,
            Some(held) if now_ns < held.until_ns && !is_later_start(by.id, held.holder.id) => {
                LeaseClaim::Refused
            }
            _ => LeaseClaim::Taken,
        };
        if claim == LeaseClaim::Refused {
            self.refused = Some((by.clone(), until_ns));
            return claim;
        }
        self.refused.take_if(|(refused, _)| refused.id == by.id);
        let holder = by.clone();
        self.held = Some(Held { holder, until_ns });
        claim
    }

    /// Checks that orders of a controller may be carried out. A lease that has ended is good for
    /// its holder until another controller claims it.
    ///
    /// # Errors
    /// The controller that has the lease.
    pub fn admit(&self, now_ns: u64, id: ControllerId) -> Result<(), String> {
        match &self.held {
            Some(held) if held.holder.id == id => Ok(()),
            Some(held) => Err(format!(
                "orders of controller {id} are rejected: {} holds the lease of the array for another {}; stop one of the two controllers",
                held.holder,
                Nanos(held.until_ns.saturating_sub(now_ns)).words()
            )),
            None => Err(format!(
                "orders of controller {id} are rejected: it has not claimed the lease of the array"
            )),
        }
    }

    /// The holder and the time that is left, also when that is none; nothing before the first claim.
    pub fn status(&self, now_ns: u64) -> Option<LeaseStatus> {
        let held = self.held.as_ref()?;
        let refused = self.refused.as_ref().filter(|r| now_ns < r.1);
        Some(LeaseStatus {
            holder: held.holder.clone(),
            left_ns: held.until_ns.saturating_sub(now_ns),
            refused: refused.map(|r| r.0.clone()),
        })
    }

    /// The time at which the lease ends; none before the first claim.
    pub fn until_ns(&self) -> Option<u64> {
        self.held.as_ref().map(|h| h.until_ns)
    }
}

/// Returns true if a controller was started on the same store after another one.
fn is_later_start(one: ControllerId, other: ControllerId) -> bool {
    one.store == other.store && one.epoch > other.epoch
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTING: Nanos = Nanos(30);

    fn controller(store: u64, epoch: u64, start: u64) -> LeaseHolder {
        let id = ControllerId {
            store,
            epoch,
            start,
        };
        let name = format!("store-{store}.sock");
        LeaseHolder { id, name }
    }

    #[test]
    fn second_controller_is_refused_until_the_lease_ends() {
        let (one, two) = (controller(1, 5, 50), controller(2, 9, 90));
        let mut lease = Lease::default();
        assert!(lease.admit(0, one.id).is_err() && lease.status(0).is_none());
        assert_eq!(lease.claim(0, &one, LASTING), LeaseClaim::Taken);
        assert_eq!(lease.claim(10, &two, LASTING), LeaseClaim::Refused);
        assert_eq!(lease.claim(20, &one, LASTING), LeaseClaim::Renewed);
        assert_eq!(lease.admit(20, one.id), Ok(()));
        let why = lease.admit(20, two.id).unwrap_err();
        assert!(
            why.contains("controller store-1.sock (") && why.contains("30ns"),
            "{why}"
        );
        let status = lease.status(30).unwrap();
        assert_eq!((status.holder, status.left_ns), (one.clone(), 20));
        assert_eq!(status.refused, Some(two.clone()));
        // A claim that is not repeated is forgotten.
        assert_eq!(lease.status(40).unwrap().refused, None);
        assert_eq!(lease.claim(49, &two, LASTING), LeaseClaim::Refused);
        assert_eq!(lease.admit(50, one.id), Ok(()));
        assert_eq!(lease.claim(50, &two, LASTING), LeaseClaim::Taken);
        assert!(lease.admit(50, one.id).is_err());
        assert_eq!(
            (lease.admit(50, two.id), lease.status(50).unwrap().refused),
            (Ok(()), None)
        );
    }

    #[test]
    fn later_start_on_the_same_store_takes_over_and_an_earlier_one_is_refused() {
        let (before, after) = (controller(1, 5, 50), controller(1, 6, 60));
        let mut lease = Lease::default();
        lease.claim(0, &before, LASTING);
        assert_eq!(lease.claim(1, &after, LASTING), LeaseClaim::Taken);
        assert_eq!(lease.claim(2, &before, LASTING), LeaseClaim::Refused);
        // A start on a copy of the store has the same number.
        assert_eq!(
            lease.claim(3, &controller(1, 6, 61), LASTING),
            LeaseClaim::Refused
        );
        // A backup of the store that was put back: its starts count from an earlier number.
        assert_eq!(
            lease.claim(31, &controller(1, 3, 30), LASTING),
            LeaseClaim::Taken
        );
    }

    #[test]
    fn lease_of_extreme_length_is_shortened() {
        let mut lease = Lease::default();
        lease.claim(7, &controller(1, 1, 1), Nanos(u64::MAX));
        assert_eq!(lease.until_ns(), Some(7 + LEASE_MAX.0));
    }
}
