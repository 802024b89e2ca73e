//! Measurements of all volumes of a worker in one answer, for frequent callers: the cost does not depend on the number of
//! extents.

use units::{Bytes, DeviceId, Nanos, VolumeId};

use crate::clock;
use crate::stages::StagesSample;

use super::guests::Stage;
use super::volumes::LiveVolume;
use super::{CacheSample, LastMove, MirrorProgress, MoveProgress, SecondStatus, Worker};

/// Measurements of a worker.
#[derive(Debug)]
pub struct WorkerSamples {
    /// Volumes, in order of their numbers.
    pub volumes: Vec<LiveSample>,
    /// Remote devices that are connected.
    pub linked: Vec<DeviceId>,
    /// L2 cache.
    pub second: Option<SecondStatus>,
    /// Total time of polling since the start of the worker.
    pub looked: Nanos,
}

/// Measurements of a served volume.
#[derive(Debug)]
pub struct LiveSample {
    /// Number of the volume.
    pub id: VolumeId,
    /// Bytes by device, in order of devices.
    pub placed: Vec<(DeviceId, Bytes)>,
    pub connections: usize,
    /// Current move.
    pub moving: Option<MoveProgress>,
    /// End of the last move.
    pub last_move: Option<LastMove>,
    /// Number of requests that its stages delay.
    pub held_back: u64,
    /// Device time of its guests' I/O, by reads and other kinds, in nanoseconds; only for devices that report it.
    pub took: Vec<(DeviceId, [u64; 2])>,
    /// Second copies of extents.
    pub mirror: Option<MirrorProgress>,
    pub stages: StagesSample,
    /// Cache of the volume, if it is cached.
    pub cache: Option<CacheSample>,
}

impl Worker {
    pub(super) fn samples(&mut self, at_ns: u64) -> WorkerSamples {
        // No later event may have a time before `at_ns`: the integral of a queue depth would decrease.
        self.now_ns = clock::now_ns();
        let mut connections = vec![0; self.volumes.len()];
        for (_, connection) in &self.connections {
            if let Stage::Serving { volume, .. } = connection.stage {
                // A volume that is being attached has no place in the list yet.
                if let Some(n) = connections.get_mut(volume as usize) {
                    *n += 1;
                }
            }
        }
        for volume in self.rings.volumes() {
            if let Some(n) = connections.get_mut(volume as usize) {
                *n += 1;
            }
        }
        let held = self.timers.held_back(self.volumes.len());
        let live = self.volumes.iter().zip(connections.into_iter().zip(held));
        let live = live.filter_map(|(volume, counted)| Some((volume.as_ref()?, counted)));
        WorkerSamples {
            volumes: live
                .map(|(volume, counted)| LiveSample {
                    cache: self.cache_sample(volume),
                    mirror: self.mirroring(volume),
                    ..sample(volume, counted, at_ns)
                })
                .collect(),
            linked: self.remotes_linked(),
            second: self.second_status(),
            looked: Nanos(self.polling.spent_ns()),
        }
    }
}

fn sample(live: &LiveVolume, (connections, held_back): (usize, u64), at_ns: u64) -> LiveSample {
    let map = live.engine.map();
    let bytes = |extents: u32| Bytes(u64::from(extents) * map.extent_bytes().0);
    LiveSample {
        id: live.id,
        placed: map.holders().iter().map(|(d, n)| (*d, bytes(*n))).collect(),
        connections,
        moving: live.engine.move_status().map(MoveProgress::from),
        last_move: live.last_move.clone(),
        held_back,
        took: live.took.all(),
        mirror: None,
        stages: live.stages.sample(at_ns),
        cache: None,
    }
}
