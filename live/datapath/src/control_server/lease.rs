//! Lease: claims of controllers, and their orders. The holder is stored in the map, so that it outlasts the server;
//! renewals are not stored.

use std::sync::PoisonError;

use array::{Change, LeaseRecord};
use model::{ControllerId, LeaseHolder};
use units::Nanos;
use volume::{LEASE_MAX, Lease, LeaseClaim};

use super::{ControlAnswer, ControlRequest, ControlServer, DatapathError, Result, refused};
use crate::clock::now_ns;

impl ControlServer {
    /// Loads the stored lease, which starts again now.
    pub(super) fn load_lease(&self) {
        let record = self.with_keeper(|keeper| keeper.map.state().lease.clone());
        if let Ok(Some(LeaseRecord { holder, lasting })) = record {
            let until_ns = now_ns().saturating_add(lasting.0);
            *self.lease.write().unwrap_or_else(PoisonError::into_inner) =
                Lease::found(holder, until_ns);
        }
    }

    /// Restores the end of the lease from the previous process.
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

    /// Claims the lease for a controller. Orders of the previous holder have ended when this returns.
    pub(super) fn claim_lease(&self, by: &LeaseHolder, lasting: Nanos) -> Result<ControlAnswer> {
        let mut lease = self.lease.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = lease.clone();
        if next.claim(now_ns(), by, lasting) == LeaseClaim::Taken {
            let change = Change::SetLease(LeaseRecord {
                holder: by.clone(),
                lasting: lasting.min(LEASE_MAX),
            });
            self.with_keeper(move |keeper| match keeper.is_salvaged() {
                true => Ok(()), // the map of a salvaged array is not written
                false => keeper.commit(&[change]).map_err(refused),
            })??;
        }
        *lease = next;
        let status = lease.status(now_ns()).expect("it was just claimed");
        Ok(ControlAnswer::Lease(status))
    }

    /// Carries out an order of a controller, which must have the lease.
    ///
    /// # Errors
    /// [`DatapathError`], also if another controller has the lease.
    pub fn order_of(
        &self,
        controller: ControllerId,
        order: ControlRequest,
    ) -> Result<ControlAnswer> {
        let _inside = self.gate.enter()?;
        // The lock is held until the order is carried out, so no other controller gets the lease before.
        let lease = self.lease.read().unwrap_or_else(PoisonError::into_inner);
        let admitted = lease.admit(now_ns(), controller);
        admitted.map_err(|why| DatapathError::Refused(why.to_string()))?;
        match order {
            ControlRequest::Claim { .. } => Err(DatapathError::Invalid(
                "a claim of the lease cannot be sent as an order".into(),
            )),
            order => self.answer(order),
        }
    }
}
