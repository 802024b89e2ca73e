//! Hosts whose array obeys another controller: this controller makes no decisions about them.

use executor::{EndCause, FailCause, Input, JobId};
use model::{ControllerId, LeaseHolder};

use super::Controller;
use super::host::Host;

impl Controller {
    /// Returns the holder of the lease of a host's array, if it is another controller.
    pub(super) fn other_holder(&self, name: &str) -> Option<&LeaseHolder> {
        self.holder_beside(self.hosts.get(name)?)
    }

    /// Same as [`Controller::other_holder`], for a given host.
    pub(super) fn holder_beside<'a>(&self, host: &'a Host) -> Option<&'a LeaseHolder> {
        // Without its store the controller does not know its own identity.
        if self.id == ControllerId::default() {
            return None;
        }
        let lease = host.report()?.lease.as_ref()?;
        (lease.holder.id != self.id).then_some(&lease.holder)
    }

    /// Ends all orders of this controller for a host: they would be outdated when it gets the lease
    /// again.
    pub(super) fn stand_back(&mut self, name: &str) {
        self.end_responses(name, "the array obeys another controller");
        let now = self.now.at;
        let mut host = self.hosts.remove(name).expect("its agent reports");
        self.drop_queued(&mut host, &EndCause::OtherController, |_, _| true);
        let jobs = host.executor.jobs().iter();
        let active: Vec<JobId> = jobs.filter(|j| j.state.active()).map(|j| j.id).collect();
        for job in active {
            let cause = FailCause::OtherController;
            self.input(&mut host, now, Input::Failed { job, cause });
        }
        host.dirty.kept |= !(host.kept.cancelling.is_empty() && host.kept.calibrations.is_empty());
        host.kept.cancelling.clear();
        host.kept.calibrations.clear();
        // Measurements under another controller's orders do not belong to an epoch of this one.
        host.epoch = None;
        self.hosts.insert(name.into(), host);
    }
}
