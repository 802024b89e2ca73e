//! A host that looks after nothing: it lends to others, and that is all.

use manager::agent::{ActionError, AgentAction, Snapshot, WantedExtents};
use manager::wire::ArrayPolicy;
use model::{ClassObjective, LeaseHolder, LeaseStatus};
use units::Nanos;

use crate::host::Host;

/// An array without devices and volumes.
pub struct Nothing;

impl Host for Nothing {
    fn called(&self) -> &'static str {
        "the host"
    }

    fn snapshot(&mut self) -> Result<Snapshot, String> {
        Ok(Snapshot::default())
    }

    fn look_at_extents(&mut self, _: Vec<WantedExtents>, _: &mut Snapshot) -> Result<(), String> {
        Ok(())
    }

    fn claim(&mut self, by: &LeaseHolder, lasting: Nanos) -> Result<LeaseStatus, String> {
        Ok(LeaseStatus {
            holder: by.clone(),
            left_ns: lasting.0,
            refused: None,
        })
    }

    fn hold_to(&mut self, _: &ArrayPolicy) -> Result<(), String> {
        Ok(())
    }

    fn promise(&mut self, _: &[ClassObjective], _: Nanos) -> Result<(), String> {
        Ok(())
    }

    fn carry_out(&mut self, _: &AgentAction) -> Result<(), ActionError> {
        Err("this host has no volumes: it only lends memory or flash".into())
    }
}
