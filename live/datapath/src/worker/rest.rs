//! Volumes at rest: no changes are in flight, and all acknowledged writes are durable.

use std::sync::mpsc::Sender;

use units::VolumeId;

use super::Worker;
use crate::engine::Fault;

impl Worker {
    pub(super) fn rest(&mut self, volume: VolumeId, answer: Sender<Result<u32, Fault>>) {
        let live = self.volumes.get_mut(volume.index());
        let Some(live) = live.and_then(Option::as_mut) else {
            let _ = answer.send(Err(Fault::Shutdown)); // the volume is not served; the caller may have ended, here and below
            return;
        };
        let Some(number) = live.engine.rest(self.now_ns) else {
            let _ = answer.send(Err(Fault::Io)); // another caller has the volume at rest
            return;
        };
        live.resting = Some((number, answer));
        self.carry_out(volume.0);
    }

    /// Passes the result of the engine to the caller.
    pub(super) fn at_rest(&mut self, volume: u32, result: Result<(), Fault>) {
        let live = self.volumes[volume as usize].as_mut();
        if let Some((number, answer)) = live.and_then(|live| live.resting.take()) {
            let _ = answer.send(result.map(|()| number));
        }
    }

    pub(super) fn go_on(&mut self, volume: VolumeId, rest: u32, shared: bool) {
        let live = self.volumes.get_mut(volume.index());
        if let Some(live) = live.and_then(Option::as_mut) {
            live.engine.go_on(self.now_ns, rest, shared);
            self.carry_out(volume.0);
        }
    }

    /// Ends a rest, or an attempt to reach one.
    pub(super) fn no_rest(&mut self, volume: VolumeId) {
        let live = self.volumes.get_mut(volume.index());
        if let Some(live) = live.and_then(Option::as_mut) {
            live.resting = None;
            live.engine.end_rest(self.now_ns);
            self.carry_out(volume.0);
        }
    }
}
