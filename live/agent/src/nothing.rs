//! Host without an array: it only lends memory and flash to other hosts.

use manager::agent::{ActionError, AgentAction, Snapshot, WantedExtents};
use manager::wire::ArrayPolicy;
use model::{ClassObjective, LeaseHolder, LeaseStatus};
use units::Nanos;

use crate::error::Result;
use crate::host::Host;

/// Array without devices and volumes.
pub struct Nothing;

impl Host for Nothing {
    fn called(&self) -> &'static str {
        "the host"
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        Ok(Snapshot::default())
    }

    fn look_at_extents(&mut self, _: Vec<WantedExtents>, _: &mut Snapshot) -> Result<()> {
        Ok(())
    }

    fn claim(&mut self, by: &LeaseHolder, lasting: Nanos) -> Result<LeaseStatus> {
        Ok(LeaseStatus {
            holder: by.clone(),
            left_ns: lasting.0,
            refused: None,
        })
    }

    fn hold_to(&mut self, _: &ArrayPolicy) -> Result<()> {
        Ok(())
    }

    fn promise(&mut self, _: &[ClassObjective], _: Nanos) -> Result<()> {
        Ok(())
    }

    fn carry_out(&mut self, _: &AgentAction) -> Result<(), ActionError> {
        Err("this host has no volumes: it only lends memory or flash".into())
    }
}
