//! Interface between an agent and the array or virtualization host that it manages.

use manager::agent::{ActionError, AgentAction, Snapshot, WantedExtents};
use manager::wire::ArrayPolicy;
use model::{ClassObjective, LeaseHolder, LeaseStatus};
use units::Nanos;

use crate::error::Result;

/// Served array, or a host of virtual machines that is treated as an array.
pub trait Host: Send {
    /// Name in messages to operators, such as "the array".
    fn called(&self) -> &'static str;

    /// Returns the present state of the array.
    ///
    /// # Errors
    /// The array does not answer; the error has the reason.
    fn snapshot(&mut self) -> Result<Snapshot>;

    /// Returns warnings for the operator that were not returned before.
    fn warnings(&mut self) -> Vec<String> {
        vec![]
    }

    /// Adds the extents of volumes to a snapshot. They stay unknown for a volume that no longer exists.
    ///
    /// # Errors
    /// The array does not answer; the error has the reason.
    fn look_at_extents(
        &mut self,
        wanted: Vec<WantedExtents>,
        snapshot: &mut Snapshot,
    ) -> Result<()>;

    /// Adds the reuse distances of page reads of volumes to a snapshot. They stay unknown for a volume that does not
    /// measure them.
    ///
    /// # Errors
    /// The array does not answer; the error has the reason.
    fn look_at_reuse(&mut self, _: Vec<String>, _: &mut Snapshot) -> Result<()> {
        Ok(())
    }

    /// Claims the lease for a controller. If the claim succeeds, all later orders are those of this controller.
    ///
    /// # Errors
    /// The holder of the lease cannot be determined; the error has the reason.
    fn claim(&mut self, by: &LeaseHolder, lasting: Nanos) -> Result<LeaseStatus>;

    /// Sets the policy to which the array limits its operators.
    ///
    /// # Errors
    /// The array rejects the policy; the error has the reason.
    fn hold_to(&mut self, policy: &ArrayPolicy) -> Result<()>;

    /// Sets the latency objectives of guests, and the time for which they are valid.
    ///
    /// # Errors
    /// The array rejects the objectives; the error has the reason.
    fn promise(&mut self, objectives: &[ClassObjective], lasting: Nanos) -> Result<()>;

    /// Carries out an action of the agent.
    ///
    /// # Errors
    /// The action was not carried out; the error has the reason.
    fn carry_out(&mut self, action: &AgentAction) -> Result<(), ActionError>;

    /// Removes the agent's temporary settings, such as limits of disks, because the agent ends.
    fn end(&mut self) {}
}
