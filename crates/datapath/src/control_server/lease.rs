//! Claims of controllers, and their orders. The holder is in the map, so that it outlasts the
//! server; a renewal is not written down.

use std::sync::PoisonError;

use array::{Change, LeaseRecord};
use model::{ControllerId, LeaseHolder};
use units::Nanos;
use volume::{LEASE_MAX, Lease, LeaseClaim};

use super::{ControlAnswer, ControlRequest, ControlServer, Result, refused};
use crate::clock::now_ns;

impl ControlServer {
    /// The lease as it was written down, which lasts anew from now on.
    pub(super) fn load_lease(&self) {
        let record = self.with_keeper(|keeper| keeper.map.state().lease.clone());
        if let Ok(Some(LeaseRecord { holder, lasting })) = record {
            let until_ns = now_ns().saturating_add(lasting.0);
            *self.lease.write().unwrap_or_else(PoisonError::into_inner) =
                Lease::found(holder, until_ns);
        }
    }

    /// The end of the lease in the process before this one.
    pub(super) fn set_handed_lease(&self, until_ns: Option<u64>) {
        let mut lease = self.lease.write().unwrap_or_else(PoisonError::into_inner);
        if let (Some(status), Some(until_ns)) = (lease.status(0), until_ns) {
            *lease = Lease::found(status.holder, until_ns);
        }
    }

    pub(super) fn lease_to_hand(&self) -> Option<u64> {
        let lease = self.lease.read().unwrap_or_else(PoisonError::into_inner);
        lease.until_ns()
    }

    /// A controller claims the lease. Orders of its predecessor have ended when this returns.
    pub(super) fn claim_lease(&self, by: &LeaseHolder, lasting: Nanos) -> Result<ControlAnswer> {
        let mut lease = self.lease.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = lease.clone();
        if next.claim(now_ns(), by, lasting) == LeaseClaim::Taken {
            let change = Change::SetLease(LeaseRecord {
                holder: by.clone(),
                lasting: lasting.min(LEASE_MAX),
            });
            self.with_keeper(move |keeper| match keeper.is_salvaged() {
                true => Ok(()), // nothing is written to its map
                false => keeper.commit(&[change]).map_err(refused),
            })??;
        }
        *lease = next;
        let status = lease.status(now_ns()).expect("it was just claimed");
        Ok(ControlAnswer::Lease(status))
    }

    /// Carries an order of a controller out, which must have the lease.
    ///
    /// # Errors
    /// Another controller has the lease; errors of [`ControlServer::ask`].
    pub fn order_of(
        &self,
        controller: ControllerId,
        order: ControlRequest,
    ) -> Result<ControlAnswer> {
        let _inside = self.gate.enter()?;
        // Held until the order is carried out: no other controller has the lease before.
        let lease = self.lease.read().unwrap_or_else(PoisonError::into_inner);
        lease.admit(now_ns(), controller)?;
        match order {
            ControlRequest::Claim { .. } => {
                Err("a claim of the lease cannot be sent as an order".into())
            }
            order => self.answer(order),
        }
    }
}
