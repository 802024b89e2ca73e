//! Late requests.

use rustix::io::Errno;

use super::{Effect, Engine, Failure, Fault, GuestState, IoState, Owner, Stage};

/// Shortest gap between two looks that counts as a pause of the process, whatever the timeout of requests.
const LOOKS_APART_NS: u64 = 2_000_000_000;

impl<G> Engine<G> {
    /// Fails late requests, unless the process has paused since the last look. After a pause, completed I/Os are handled
    /// first.
    pub(super) fn look_for_late(&mut self) {
        let looked_ns = std::mem::replace(&mut self.looked_ns, self.now_ns);
        let since_ns = self.now_ns.saturating_sub(looked_ns);
        if since_ns <= (self.limits.timeout_ns / 2).max(LOOKS_APART_NS) {
            self.answer_late();
        }
    }

    fn answer_late(&mut self) {
        let deadline = self.now_ns.saturating_sub(self.limits.timeout_ns);
        let overdue = |s: &GuestState<G>| s.guest.is_some() && s.since_ns < deadline;
        let late: Vec<u32> = self
            .requests
            .iter()
            .filter(|(_, s)| overdue(s))
            .map(|(i, _)| i as u32)
            .collect();
        for id in late {
            let fault = self.late_for(id).map_or(Fault::Io, Fault::Device);
            let state = &mut self.requests[id as usize];
            let (guest, request) = (state.guest.take(), state.request);
            let guest = guest.expect("late requests were not answered");
            self.effects.push(Effect::Reply {
                guest,
                request,
                result: Err(fault),
                gaps: vec![],
            });
            if state.stage == Stage::Waiting {
                self.requests.remove(id as usize);
                self.waiting.retain(|w| *w != id);
            } else if request.op.changes() {
                self.zombies += 1;
            }
        }
    }

    /// Returns the I/O that a late request waits for, if it waits for one.
    pub(super) fn late_for(&self, id: u32) -> Option<Failure> {
        self.late_io(|io| matches!(io.owner, Owner::Guest { request, .. } if request == id))
    }

    /// Returns an I/O in flight that matches, as a timeout.
    pub(super) fn late_io(&self, is: impl Fn(&IoState) -> bool) -> Option<Failure> {
        let late = self.ios.iter().map(|(_, io)| io).find(|io| is(io))?;
        Some(Failure::new(late.device, late.kind, Errno::TIMEDOUT))
    }
}

#[cfg(test)]
mod tests {
    use units::{Bytes, DeviceId};
    use volume::VolumeMap;

    use super::*;
    use crate::engine::{EngineLimits, GuestOp, GuestRequest, Zeroes};

    #[test]
    fn request_completed_during_a_process_suspension_is_not_late() {
        let (extent, limits) = (Bytes::mib(1), EngineLimits::default());
        let map = VolumeMap::new(extent, extent, DeviceId(0));
        let mut engine = Engine::new(map, limits);
        let read = GuestRequest {
            op: GuestOp::Read,
            offset: 0,
            length: 512,
            fua: false,
        };
        let answers = |engine: &mut Engine<u32>| {
            let mut effects = vec![];
            engine.take_effects(&mut effects);
            let mut answers = vec![];
            for effect in effects {
                if let Effect::Reply { guest, result, .. } = effect {
                    answers.push((guest, result.is_ok()));
                }
            }
            answers
        };
        engine.submit(0, 1, read);
        let Some(Effect::Io(io)) = engine.effects.pop() else {
            panic!("it is read");
        };
        let later_ns = 2 * limits.timeout_ns;
        engine.tick(later_ns);
        assert_eq!(answers(&mut engine), []);
        engine.io_done(later_ns, io.io, Ok(()), Zeroes::No);
        assert_eq!(answers(&mut engine), [(1, true)]);
        // A request that still does not end is late at the next look.
        engine.submit(0, 2, read);
        engine.tick(later_ns + 1);
        assert_eq!(answers(&mut engine), [(2, false)]);
    }
}
