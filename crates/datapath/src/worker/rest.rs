//! Volumes at rest: nothing of them changes, and all that was answered is durable.

use std::sync::mpsc::Sender;

use units::VolumeId;

use super::Worker;
use crate::engine::Fault;

impl Worker {
    pub(super) fn rest(&mut self, volume: VolumeId, answer: Sender<Result<u32, Fault>>) {
        let live = self.volumes.get_mut(volume.index());
        let Some(live) = live.and_then(Option::as_mut) else {
            let _ = answer.send(Err(Fault::Shutdown)); // it is not served; whoever asks may have gone, here and below
            return;
        };
        let Some(number) = live.engine.rest(self.now_ns) else {
            let _ = answer.send(Err(Fault::Io)); // somebody else has it rest
            return;
        };
        live.resting = Some((number, answer));
        self.carry_out(volume.0);
    }

    /// The engine says that it is, or why not.
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

    /// Nobody wants it to rest any more.
    pub(super) fn no_rest(&mut self, volume: VolumeId) {
        let live = self.volumes.get_mut(volume.index());
        if let Some(live) = live.and_then(Option::as_mut) {
            live.resting = None;
            live.engine.end_rest(self.now_ns);
            self.carry_out(volume.0);
        }
    }
}
