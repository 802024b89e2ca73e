//! All volumes of a worker in one answer, for who asks often: nothing here looks at single extents.

use units::{Bytes, DeviceId, Nanos, VolumeId};

use crate::clock;
use crate::stages::StagesSample;

use super::guests::Stage;
use super::volumes::LiveVolume;
use super::{CacheSample, LastMove, Mirroring, Moving, SecondStatus, Worker};

/// How the volumes of a worker are.
#[derive(Debug)]
pub struct WorkerSamples {
    /// In order.
    pub volumes: Vec<LiveSample>,
    /// Remote devices that it is connected to.
    pub linked: Vec<DeviceId>,
    /// The second level of its cache.
    pub second: Option<SecondStatus>,
    /// Time that it has looked for something to do, since it was started.
    pub looked: Nanos,
}

/// How a served volume is.
#[derive(Debug)]
pub struct LiveSample {
    /// Its number.
    pub id: VolumeId,
    /// Bytes by device, in order of devices.
    pub placed: Vec<(DeviceId, Bytes)>,
    pub connections: usize,
    /// The move under way.
    pub moving: Option<Moving>,
    /// How the last one ended.
    pub last_move: Option<LastMove>,
    /// Requests that its stages hold back.
    pub held_back: u64,
    /// Time that its guest's I/O took of devices, by reads and by all else, in nanoseconds, of those that say so.
    pub took: Vec<(DeviceId, [u64; 2])>,
    /// What of it has a second copy.
    pub mirror: Option<Mirroring>,
    pub stages: StagesSample,
    /// Its cache, if it is cached.
    pub cache: Option<CacheSample>,
}

impl Worker {
    pub(super) fn samples(&mut self, at_ns: u64) -> WorkerSamples {
        // No event after this may be dated before `at_ns`, or the depth of a queue would go backwards.
        self.now_ns = clock::now_ns();
        let mut connections = vec![0; self.volumes.len()];
        for (_, connection) in &self.connections {
            if let Stage::Serving { volume, .. } = connection.stage {
                // One that is only being attached has no place here yet.
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
        moving: live.engine.move_status().map(Moving::from),
        last_move: live.last_move.clone(),
        held_back,
        took: live.took.all(),
        mirror: None,
        stages: live.stages.sample(at_ns),
        cache: None,
    }
}
