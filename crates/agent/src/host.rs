//! What an agent looks after, whatever it is.

use manager::agent::{ActionError, AgentAction, Snapshot, WantedExtents};
use manager::wire::ArrayPolicy;
use model::{ClassObjective, LeaseHolder, LeaseStatus};
use units::Nanos;

/// An array, or a host that counts as one.
pub trait Host: Send {
    /// What it is called in what operators are told.
    fn called(&self) -> &'static str;

    /// The array as it is.
    ///
    /// # Errors
    /// Why it does not answer.
    fn snapshot(&mut self) -> Result<Snapshot, String>;

    /// What an operator should know that was not told yet.
    fn warnings(&mut self) -> Vec<String> {
        vec![]
    }

    /// Adds the extents of some volumes to a snapshot. Of one that cannot be looked at, as it is gone by now, they stay unknown.
    ///
    /// # Errors
    /// Why it does not answer.
    fn look_at_extents(
        &mut self,
        wanted: Vec<WantedExtents>,
        snapshot: &mut Snapshot,
    ) -> Result<(), String>;

    /// Adds to a snapshot how pages of some volumes are read again. Of one of which that is not known it stays unknown.
    ///
    /// # Errors
    /// Why it does not answer.
    fn look_at_reuse(&mut self, _: Vec<String>, _: &mut Snapshot) -> Result<(), String> {
        Ok(())
    }

    /// Claims the lease for a controller, whose orders all others are from then on if it gets it.
    ///
    /// # Errors
    /// Why nobody can say who has the lease.
    fn claim(&mut self, by: &LeaseHolder, lasting: Nanos) -> Result<LeaseStatus, String>;

    /// Says what it is to hold its operators to.
    ///
    /// # Errors
    /// Why it does not take that.
    fn hold_to(&mut self, policy: &ArrayPolicy) -> Result<(), String>;

    /// Says what guests were promised, and for how long that holds.
    ///
    /// # Errors
    /// Why it does not take that.
    fn promise(&mut self, objectives: &[ClassObjective], lasting: Nanos) -> Result<(), String>;

    /// Does what the agent wants.
    ///
    /// # Errors
    /// Why it is not done.
    fn carry_out(&mut self, action: &AgentAction) -> Result<(), ActionError>;

    /// Gives back what it was lent, as nobody looks any more.
    fn end(&mut self) {}
}
