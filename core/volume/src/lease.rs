//! Lease of an array: only one controller at a time may give orders.
//!
//! ```text
//!            claim: no holder, or the lease has expired
//!   free ──────────────────────────────────────────▶ held ◀──┐ claim of the holder: renewed
//!     ▲                                                │ │ └─┘
//!     └────────── not renewed for `lasting` ───────────┘ └──▶ claim of a later start on the same
//!                                                             store: taken at once; of others: refused
//! ```
//!
//! Times are of the host's monotonic clock. The caller passes them, and stores the lease.

use model::{ControllerId, LeaseHolder, LeaseStatus};
use thiserror::Error;
use units::Nanos;

/// Longest duration of a lease without renewal. Bounds the time for which a vanished controller with extremely long windows
/// can block its successor.
pub const LEASE_MAX: Nanos = Nanos::from_secs(3600);

/// State of the lease, with the last refused claim.
#[derive(Debug, Clone, Default)]
pub struct Lease {
    held: Option<ActiveLease>,
    /// Controller whose claim was refused, and the time until which it may still be running.
    refused: Option<(LeaseHolder, u64)>,
}

#[derive(Debug, Clone)]
struct ActiveLease {
    holder: LeaseHolder,
    until_ns: u64,
}

/// Result of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseClaim {
    /// The claimant had the lease already.
    Renewed,
    /// The claimant has the lease now, and did not have it before.
    Taken,
    /// Another controller has the lease.
    Refused,
}

/// Rejection of the orders of a controller without the lease.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LeaseError {
    /// Another controller has the lease.
    #[error(
        "orders of controller {id} are rejected: {holder} holds the lease of the array for another {}; stop one of the two controllers",
        .left.words()
    )]
    OtherHolder {
        /// Rejected controller.
        id: ControllerId,
        /// Holder of the lease.
        holder: LeaseHolder,
        /// Remaining time of the lease.
        left: Nanos,
    },
    /// No controller has claimed the lease.
    #[error("orders of controller {0} are rejected: it has not claimed the lease of the array")]
    NotClaimed(ControllerId),
}

impl Lease {
    /// Restores a stored lease: it ends at `until_ns` unless it is renewed.
    pub fn found(holder: LeaseHolder, until_ns: u64) -> Self {
        Self {
            held: Some(ActiveLease { holder, until_ns }),
            refused: None,
        }
    }

    /// Processes a controller's claim for the given duration.
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
        self.held = Some(ActiveLease { holder, until_ns });
        claim
    }

    /// Checks if orders of a controller may be carried out. An expired lease remains valid for its holder until another
    /// controller claims it.
    ///
    /// # Errors
    /// [`LeaseError`], if the controller does not have the lease.
    pub fn admit(&self, now_ns: u64, id: ControllerId) -> Result<(), LeaseError> {
        match &self.held {
            Some(held) if held.holder.id == id => Ok(()),
            Some(held) => Err(LeaseError::OtherHolder {
                id,
                holder: held.holder.clone(),
                left: Nanos(held.until_ns.saturating_sub(now_ns)),
            }),
            None => Err(LeaseError::NotClaimed(id)),
        }
    }

    /// Returns the holder and the remaining time, which may be 0; `None` before the first claim.
    pub fn status(&self, now_ns: u64) -> Option<LeaseStatus> {
        let held = self.held.as_ref()?;
        let refused = self.refused.as_ref().filter(|r| now_ns < r.1);
        Some(LeaseStatus {
            holder: held.holder.clone(),
            left_ns: held.until_ns.saturating_sub(now_ns),
            refused: refused.map(|r| r.0.clone()),
        })
    }

    /// Returns the end of the lease; `None` before the first claim.
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
        let why = lease.admit(20, two.id).unwrap_err().to_string();
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
    fn later_start_on_the_same_store_gets_the_lease_and_earlier_does_not() {
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
        // A restored backup of the store counts its starts from an earlier number.
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
