//! Calibration sessions: latency is injected window by window, never beyond the volume's objective, and measured.
//!
//! A session ends early when its volume is moved or throttled, when its counters are reset, when the objective leaves no margin, or
//! when the orders no longer contain it. Its windows until then are reported; the latency that would have been injected in the
//! next window is not.

use model::{CalibrationStep, ClassObjective};
use units::Nanos;

use super::{Agent, AgentAction, Counts, Snapshot};
use crate::wire::{CalibrationMeasured, CalibrationOrder, CalibrationResult, Load};

/// Time after its window at which injected latency ends if it is not renewed.
const LINGER_NS: u64 = 2_000_000_000;

/// Running session.
#[derive(Debug)]
pub(super) struct Session {
    order: CalibrationOrder,
    /// Current step.
    step: usize,
    /// Begin of the step, and the counters at that time.
    began_ns: u64,
    counts: Counts,
    windows: Vec<CalibrationMeasured>,
    /// Last measured statistic of the objective without injection, nanoseconds.
    undisturbed_ns: Option<u64>,
}

impl Session {
    pub(super) fn is_on(&self, volume: &str) -> bool {
        self.order.volume == volume
    }

    pub(super) fn due_in_ns(&self, now_ns: u64) -> u64 {
        (self.began_ns + self.current().duration.0).saturating_sub(now_ns)
    }

    fn current(&self) -> CalibrationStep {
        self.order.steps[self.step]
    }

    fn ended(self, cut_off: Option<String>) -> CalibrationResult {
        self.order.ended(self.windows, cut_off)
    }
}

impl Agent {
    pub(super) fn look_after_sessions(&mut self, now_ns: u64, snapshot: &Snapshot) {
        for mut session in std::mem::take(&mut self.sessions) {
            let volume = snapshot.volumes.iter().find(|v| session.is_on(&v.name));
            let counts = volume.and_then(|v| v.counts.as_ref());
            let cut_off = match (volume, counts) {
                (None, _) => Some("the volume was removed".to_string()),
                (Some(v), _) if v.moving.is_some() => Some("the volume is being moved".into()),
                (Some(v), _) if v.throttle.is_some() => Some("the volume is throttled".into()),
                (Some(_), None) => Some("the volume is not measured".into()),
                (Some(_), Some(c)) if c.since_ns != session.counts.since_ns => {
                    Some("its counters were reset".into())
                }
                (Some(v), Some(counts)) => {
                    let objective = self.objectives.iter().find(|o| o.class == v.class);
                    match next_step(&mut session, now_ns, counts, objective) {
                        Step::Same => {
                            self.sessions.push(session);
                            continue;
                        }
                        Step::Next(action) => {
                            self.actions.push_back(action);
                            self.sessions.push(session);
                            continue;
                        }
                        Step::Over(cut_off) => cut_off,
                    }
                }
            };
            self.end_session(session, cut_off);
        }
        if now_ns < self.orders_until_ns() {
            self.begin_sessions(now_ns, snapshot);
        }
    }

    fn begin_sessions(&mut self, now_ns: u64, snapshot: &Snapshot) {
        for order in std::mem::take(&mut self.wanted_sessions) {
            let known = self.sessions.iter().any(|s| s.order.id == order.id)
                || self.results.iter().any(|r| r.id == order.id);
            if known || order.steps.is_empty() {
                continue;
            }
            let volume = snapshot.volumes.iter().find(|v| v.name == order.volume);
            let counts = volume.and_then(|v| v.counts.clone());
            let busy = self.sessions.iter().any(|s| s.is_on(&order.volume))
                || volume.is_some_and(|v| v.moving.is_some() || v.throttle.is_some());
            let (Some(volume), Some(counts), false) = (volume, counts, busy) else {
                let why = "the volume is being moved, throttled or not measured";
                self.results.push(order.ended(vec![], Some(why.into())));
                continue;
            };
            let objective = self.objectives.iter().find(|o| o.class == volume.class);
            // The statistic of the current window, if any.
            let lately = self.began.as_ref().and_then(|(_, earlier)| {
                let old = earlier.volumes.iter().find(|v| v.name == order.volume)?;
                volume
                    .load_since(old)?
                    .against(objective?.objective)
                    .statistic_ns
            });
            let session = Session {
                order,
                step: 0,
                began_ns: now_ns,
                counts,
                windows: vec![],
                undisturbed_ns: lately,
            };
            match no_room(&session, session.current(), objective) {
                Some(why) => self.end_session(session, Some(why)),
                None => {
                    self.actions.push_back(inject(&session));
                    self.sessions.push(session);
                }
            }
        }
    }

    /// Ends sessions that the newest orders do not contain.
    pub(super) fn end_unwanted_sessions(&mut self) {
        for session in std::mem::take(&mut self.sessions) {
            let wanted = self
                .wanted_sessions
                .iter()
                .any(|w| w.id == session.order.id);
            if wanted {
                self.sessions.push(session);
            } else {
                self.end_session(
                    session,
                    Some("the controller no longer orders the session".into()),
                );
            }
        }
    }

    /// Ends a session whose injection has failed.
    pub(super) fn cut_off(&mut self, volume: &str, why: &str) {
        if let Some(i) = self.sessions.iter().position(|s| s.is_on(volume)) {
            let session = self.sessions.remove(i);
            self.results.push(session.ended(Some(why.into())));
        }
    }

    fn end_session(&mut self, session: Session, cut_off: Option<String>) {
        self.actions.push_back(AgentAction::Inject {
            volume: session.order.volume.clone(),
            delay_ns: 0,
            lasting_ns: 0,
        });
        self.results.push(session.ended(cut_off));
    }
}

enum Step {
    /// The window continues.
    Same,
    /// The window has ended, and another begins.
    Next(AgentAction),
    /// The session has ended, with the cause if it ended early.
    Over(Option<String>),
}

fn inject(session: &Session) -> AgentAction {
    let step = session.current();
    AgentAction::Inject {
        volume: session.order.volume.clone(),
        delay_ns: step.inject.0,
        lasting_ns: step.duration.0 + LINGER_NS,
    }
}

fn next_step(
    session: &mut Session,
    now_ns: u64,
    counts: &Counts,
    objective: Option<&ClassObjective>,
) -> Step {
    let step = session.current();
    let duration_ns = now_ns.saturating_sub(session.began_ns);
    if duration_ns < step.duration.0 {
        return Step::Same;
    }
    let Some(load) = counts.total.since(&session.counts.total) else {
        return Step::Over(Some("its counters decreased".into()));
    };
    session.windows.push(measured(step, duration_ns, &load));
    let judged = objective.map(|o| load.against(o.objective));
    let statistic_ns = judged.and_then(|j| j.statistic_ns);
    if step.inject.0 == 0 {
        session.undisturbed_ns = statistic_ns.or(session.undisturbed_ns);
    }
    if session.step + 1 == session.order.steps.len() {
        return Step::Over(None);
    }
    if let (Some(objective), Some(now)) = (objective, statistic_ns)
        && judged.is_some_and(|j| j.violated)
    {
        return Step::Over(Some(format!(
            "the objective of class {0} is violated: {1} {2}, objective {1} at most {3}",
            objective.class,
            objective.objective.statistic.name(),
            Nanos(now).words(),
            objective.objective.latency.words()
        )));
    }
    session.step += 1;
    session.began_ns = now_ns;
    session.counts = counts.clone();
    match no_room(session, session.current(), objective) {
        Some(why) => Step::Over(Some(why)),
        None => Step::Next(inject(session)),
    }
}

/// Reason for which a step must not start: its latency would violate the objective.
fn no_room(
    session: &Session,
    step: CalibrationStep,
    objective: Option<&ClassObjective>,
) -> Option<String> {
    let (objective, undisturbed_ns) = (objective?, session.undisturbed_ns?);
    let with_it = undisturbed_ns.saturating_add(step.inject.0);
    (step.inject.0 > 0 && with_it > objective.objective.latency.0).then(|| {
        format!(
            "the objective of class {} leaves no margin: {} {} plus {} of injected latency exceeds {}",
            objective.class,
            objective.objective.statistic.name(),
            Nanos(undisturbed_ns).words(),
            step.inject.words(),
            objective.objective.latency.words()
        )
    })
}

fn measured(step: CalibrationStep, duration_ns: u64, load: &Load) -> CalibrationMeasured {
    CalibrationMeasured {
        wanted_ns: step.inject.0,
        injected_us: load.held_mean_us(),
        duration_ns,
        reads: load.reads.ios,
        writes: load.writes.ios,
        read_mean_us: load.reads.guest_mean_us().unwrap_or(0.0),
        write_mean_us: load.writes.guest_mean_us().unwrap_or(0.0),
    }
}
