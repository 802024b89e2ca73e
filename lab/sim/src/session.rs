//! Calibration sessions on simulated volumes. Each window injects a latency and measures the volume's response.

use manager::wire::{CalibrationMeasured, CalibrationOrder};

use crate::agenda::Event;
use crate::engine::Simulation;

/// Calibration session in progress.
pub(crate) struct Session {
    order: CalibrationOrder,
    step: usize,
    /// Count and total latency of the volume's requests at the start of the window, by direction.
    before: [(u64, u64); 2],
    windows: Vec<CalibrationMeasured>,
}

impl Session {
    pub(crate) fn id(&self) -> u64 {
        self.order.id
    }
}

impl Simulation<'_> {
    pub(crate) fn start_calibration(
        &mut self,
        now_ns: u64,
        volume: usize,
        order: CalibrationOrder,
    ) {
        self.sessions[volume] = Some(Session {
            before: self.so_far(volume),
            order,
            step: 0,
            windows: vec![],
        });
        self.begin_step(now_ns, volume);
    }

    fn so_far(&self, volume: usize) -> [(u64, u64); 2] {
        [0, 1].map(|dir| self.world.stats.issued(volume, dir))
    }

    fn begin_step(&mut self, now_ns: u64, volume: usize) {
        let session = self.sessions[volume]
            .as_ref()
            .expect("a session is under way");
        let step = session.order.steps[session.step];
        self.world.inject_ns[volume] = step.inject.0;
        let (volume, session) = (volume as u32, session.order.id);
        self.agenda.at(
            now_ns + step.duration.0,
            Event::Calibration { volume, session },
        );
    }

    /// Ends a window of a session, unless the session has ended before. Requests count in the window of their issue.
    pub(crate) fn end_calibration_window(&mut self, now_ns: u64, v: usize, id: u64) {
        let now = self.so_far(v);
        let Some(session) = self.sessions[v].as_mut().filter(|s| s.order.id == id) else {
            return;
        };
        let step = session.order.steps[session.step];
        let [reads, writes] = [0, 1].map(|dir| {
            let count = now[dir].0 - session.before[dir].0;
            let sum_ns = now[dir].1 - session.before[dir].1;
            let mean_us = match count {
                0 => 0.0,
                _ => sum_ns as f64 / count as f64 / 1e3,
            };
            (count, mean_us)
        });
        session.windows.push(CalibrationMeasured {
            wanted_ns: step.inject.0,
            injected_us: step.inject.as_micros_f64(),
            duration_ns: step.duration.0,
            reads: reads.0,
            writes: writes.0,
            read_mean_us: reads.1,
            write_mean_us: writes.1,
        });
        session.before = now;
        session.step += 1;
        if session.step == session.order.steps.len() {
            self.end_calibration(v, None);
        } else {
            self.begin_step(now_ns, v);
        }
    }

    /// Ends the session of a volume, if there is one. `cut_off` is the reason of an early end.
    pub(crate) fn end_calibration(&mut self, v: usize, cut_off: Option<String>) {
        if let Some(session) = self.sessions[v].take() {
            self.world.inject_ns[v] = 0;
            let result = session.order.ended(session.windows, cut_off);
            self.host.results.push(result);
        }
    }
}
