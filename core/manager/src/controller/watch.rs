//! Supervision of hosts that stop reporting, and of jobs without progress.

use executor::Input;
use units::Nanos;

use super::Controller;
use super::host::Host;
use crate::view::{EventKind, HostState};

impl Controller {
    pub(super) fn late_after(&self) -> Nanos {
        let words = &self.settings.words;
        Nanos(words.window.0 * u64::from(words.watch.late_windows))
    }

    /// State of a host, by the age of its last report.
    pub(super) fn state_of(&self, host: &Host) -> HostState {
        let words = &self.settings.words;
        let Some((as_of, _)) = host.last else {
            return HostState::Lost;
        };
        let age = self.now.at.saturating_sub(as_of);
        // The current window has no report yet, which is normal.
        if age <= Nanos(words.window.0 * (u64::from(words.watch.late_windows) + 1)) {
            HostState::Live
        } else if age <= Nanos(words.window.0 * (u64::from(words.watch.lost_windows) + 1)) {
            HostState::Late
        } else {
            HostState::Lost
        }
    }

    /// Writes an event when a host changes its state, and checks the jobs of live hosts.
    pub(super) fn watch(&mut self) {
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        for name in names {
            let state = self.state_of(&self.hosts[&name]);
            let host = self
                .hosts
                .get_mut(&name)
                .expect("the name is a key of the hosts");
            if host.called != state {
                let before = std::mem::replace(&mut host.called, state);
                let text = match (before, state) {
                    (_, HostState::Live) => format!("host {name} is live"),
                    (_, HostState::Late) => {
                        format!("host {name} is late: no decisions about it until it reports")
                    }
                    (_, HostState::Lost) => {
                        format!("host {name} is lost: its load is unknown until it reports")
                    }
                };
                self.event(EventKind::Host, Some(&name), None, text);
            }
            if state == HostState::Live {
                self.watch_jobs(&name);
            }
        }
    }

    /// Marks jobs without progress as stuck, and cancels those that are stuck for long.
    pub(super) fn watch_jobs(&mut self, name: &str) {
        self.reconsider(name);
        let mut host = self.hosts.remove(name).expect("the host is known");
        let now = self.now.at;
        let watch = self.settings.words.watch;
        let active: Vec<_> = host
            .executor
            .jobs()
            .iter()
            .filter(|j| j.state.active())
            .map(|j| j.id)
            .collect();
        for id in active {
            let progress = host.progress.entry(id).or_default();
            if progress.moved_at == Nanos::ZERO {
                progress.moved_at = now; // just ordered, or ordered before a restart
            }
            let idle = now.saturating_sub(progress.moved_at);
            let volume = {
                let job = host.executor.get(id).expect("the job is active");
                host.kept.names.of_volume(job.order.volume).to_string()
            };
            if idle >= watch.stuck_after && !progress.called_stuck {
                progress.called_stuck = true;
                let text = format!(
                    "job {} of {volume} is stuck: no data copied for {}",
                    id.0, watch.stuck_after
                );
                self.event(EventKind::Job, Some(name), Some(&volume), text);
            }
            if idle >= watch.give_up_after {
                progress.moved_at = now;
                let text = format!(
                    "job {} of {volume} is cancelled: no data copied for {}",
                    id.0, watch.give_up_after
                );
                self.event(EventKind::Job, Some(name), Some(&volume), text);
                self.input(&mut host, now, Input::Cancel(id));
            }
        }
        self.hosts.insert(name.into(), host);
    }
}
